"""``python -m tests.store_checker --acks 2000 --faults 40 [--store postgres] [--seed N]``.

The environment needs the extras ``cli``, ``dispatcher`` and ``postgres``.

Two submitters, a pair of managers with a client, a dispatcher with a client, and two workers share
one store. The checker kills and stops all of them, cuts connections after COMMIT, kills the
server, and sets clocks. In the end it compares the store with the logs of the submitters: lost,
twice, wrong, stuck. The logs are synced files of the submitters, and not of the library.

Exit status: 0 nothing is lost, twice, wrong or stuck; 1 something is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.interop.programs.programs import ENVIRON, ROOT
from tests.store_checker.party_log import PartyLog, expected, payload_of
from wmp.store.contract import JobFilter
from wmp.store.opening import make_store
from wmp.store.stored_job import StoredJobState

STUCK = 180.0
"""Seconds without an acknowledgement or an end after which the checker calls the store stuck."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Party:
    """One program, which is started again whenever it has ended."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name, self.command, self.folder = name, command, folder
        self.stopped_until = 0.0
        self.start()

    def start(self) -> None:
        with open(self.folder / f"{self.name}.out", "ab") as out:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=ENVIRON, stdout=out, stderr=out
            )

    def ended(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.stopped_until = 0.0

    def stop(self, seconds: float) -> None:
        self.process.send_signal(signal.SIGSTOP)
        self.stopped_until = time.monotonic() + seconds

    def go_on(self) -> None:
        if self.stopped_until:
            self.stopped_until = 0.0
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)


class StoreChecker:
    """One run on one store."""

    def __init__(self, kind: str, acks: int, faults: int, seed: int) -> None:
        self.acks, self.faults = acks, faults
        self.draw = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.restarts = 0
        self.enough = False
        """Whether the submitters end when their jobs have ended."""
        self.folder = Path(tempfile.mkdtemp(prefix="wmp-check-", dir="/tmp"))
        (self.folder / "clock").write_bytes(struct.pack("d", 0.0))
        self.server: Any = None
        self.proxies: list[Any] = []
        places = [str(self.folder / "jobs.db")] * 4
        if kind == "postgres":
            from tests.postgres.proxy import PostgresProxy
            from tests.postgres.server import PostgresServer

            self.server = PostgresServer()
            self.proxies = [PostgresProxy(self.server.url) for _ in places]
            places = [proxy.url for proxy in self.proxies]
        self.place = places[0]
        make_store(self.place).close()
        ports = [free_port() for _ in range(4)]
        ends = [f"tcp://127.0.0.1:{port}" for port in ports[:2]]
        bound, http = f"tcp://127.0.0.1:{ports[2]}", f"127.0.0.1:{ports[3]}"
        pair = [f"ipc://{self.folder}/pair-{own}" for own in "ab"]
        self.parties: dict[str, Party] = {}
        for number in range(2):
            self._add(f"s{number}", "submit", f"s{number}", places[number], ends[number])
            self._add(f"w{number}", "work", f"w{number}", *ends, *pair, bound)
        self._add("pa", "pair", "p", places[2], "a", "b")
        self._add("pb", "pair", "p", places[2], "b", "a")
        self._add("ask", "ask", "ask")
        self._add("d", "dispatch", "d", places[3], http, bound)
        self._add("create", "create", "create", f"http://{http}")
        self.logs = {
            name: PartyLog(self.folder / f"{name}.log", writes=False)
            for name in ("s0", "s1", "p", "ask", "create")
        }

    def _add(self, name: str, what: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.store_checker.parties", what, str(self.folder)]
        self.parties[name] = Party(name, [*command, *arguments], self.folder)

    # -- faults -----------------------------------------------------------------------------------

    def strike(self) -> None:
        """Make one fault."""
        kinds = ["kill"] * 4 + ["stop"] * 2
        kinds += ["server", "commit", "cut", "hole"] if self.server else ["clock", "all"]
        kind = self.draw.choice(kinds)
        party = self.draw.choice(list(self.parties.values()))
        if kind == "kill":
            party.kill()
            kind = f"kill {party.name}"
        elif kind == "all":
            for process in self.parties.values():
                process.kill()
            kind = "kill all"
        elif kind == "stop":
            party.stop(self.draw.choice([0.5, 2.0, 5.0, 12.0]))
            kind = f"stop {party.name}"
        elif kind == "clock":
            offset = self.draw.choice([-1500.0, -30.0, -2.0, 0.0, 2.0, 30.0, 1500.0])
            part = self.folder / "clock.part"
            part.write_bytes(struct.pack("d", offset))
            os.replace(part, self.folder / "clock")
        elif kind == "server":
            self.server.kill()
            self.server.start()
            kind = "kill server"
        else:
            self._strike_proxy(kind, self.draw.choice(self.proxies))
        self.counts[kind] += 1

    def _strike_proxy(self, kind: str, proxy: Any) -> None:
        if kind == "cut":
            proxy.cut()
        elif kind == "hole":
            proxy.hole = True
            self._wait(self.draw.choice([0.2, 1.0, 3.0]))
            proxy.hole = False
        else:
            before, until = proxy.lost, time.monotonic() + 5.0
            proxy.loses = lambda request: request.endswith("COMMIT\0")
            while proxy.lost == before and time.monotonic() < until:
                self._wait(0.01)
            proxy.loses = lambda request: False

    def _wait(self, seconds: float) -> None:
        """Watch the programs for a while."""
        until = time.monotonic() + seconds
        while True:
            for party in self.parties.values():
                if party.stopped_until and time.monotonic() >= party.stopped_until:
                    party.go_on()
                if party.ended() and not (self.enough and party.process.returncode == 0):
                    self.restarts += 1
                    party.start()
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.02))

    # -- the run ----------------------------------------------------------------------------------

    def run(self) -> bool:
        """Make all faults; return whether everything goes on and ends."""
        for number in range(self.faults):
            if not self._reach((number + 0.5) * self.acks / self.faults):
                return False
            self.strike()
            if number % 20 == 19:
                self._say(f"{number + 1} faults, {self.total()} acknowledged")
        if not self._reach(self.acks):
            return False
        self.enough = True
        (self.folder / "enough").touch()
        parties = [party for name, party in self.parties.items() if name in ("s0", "s1", "create")]
        asker = self.parties["ask"]
        ends = self._until(lambda: asker.ended() and all(party.ended() for party in parties))
        # The pair serves its client, and submits until all its own jobs have ended.
        log = self.logs["p"]
        ends = ends and self._until(lambda: log.asked == log.ended.keys())
        (self.folder / "asked").touch()
        return ends

    def total(self) -> int:
        """Return the number of acknowledgements."""
        for log in self.logs.values():
            log.read()
        return sum(len(log.acknowledged) for log in self.logs.values())

    def _reach(self, count: float) -> bool:
        return self._until(lambda: self.total() >= count)

    def _until(self, reached: Any) -> bool:
        """Wait for a fact; return False when nothing goes on."""
        before, since = -1, time.monotonic()
        while True:
            self.total()
            if reached():
                return True
            now = self.total() + sum(len(log.ended) for log in self.logs.values())
            if now != before:
                before, since = now, time.monotonic()
            elif time.monotonic() - since > STUCK:
                return False
            self._wait(0.05)

    def _say(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")

    def report(self, goes_on: bool) -> dict[str, Any]:
        """Compare the store with the logs."""
        self.total()
        store = make_store(self.place if self.server is None else self.server.url)
        ends: dict[str, list[Any]] = {}
        after = -1
        while page := store.list(JobFilter(), after=after, limit=1000, payloads=True):
            for job in page:
                if job.key is not None:
                    # A dispatcher has a word in front of the key.
                    ends.setdefault(job.key.removeprefix("http:"), []).append(job)
            after = page[-1].id
        damages = store.check() if self.server is None else []
        store.close()
        faults: dict[str, list[str]] = {
            "lost": [],
            "twice": [],
            "wrong": list(damages),
            "stuck": [],
        }
        for name, log in self.logs.items():
            faults["wrong"] += log.wrong
            for number, result in log.ended.items():
                if result != expected(payload_of(name, number)):
                    faults["wrong"].append(f"{name}-{number}: {result}")
            if name == "ask":
                faults["stuck"] += [
                    f"ask-{asked_number}" for asked_number in log.asked - log.ended.keys()
                ]
                continue
            for number in sorted(log.acknowledged):
                jobs = ends.get(f"{name}-{number}", [])
                if not jobs:
                    faults["lost"].append(f"{name}-{number}")
                elif len(jobs) > 1:
                    faults["twice"].append(f"{name}-{number}: {len(jobs)} jobs")
                elif jobs[0].state is not StoredJobState.OK:
                    faults["stuck"].append(f"{name}-{number}: {jobs[0].state.name}")
                elif expected(payload_of(name, number)) not in (jobs[0].result or b"").decode():
                    faults["wrong"].append(f"{name}-{number} in the store")
                if number not in log.ended:
                    faults["stuck"].append(f"{name}-{number}: its submitter has no result")
        if not goes_on:
            faults["stuck"].append(f"nothing went on for {STUCK:g} s")
        waits = sorted(self.logs["ask"].waits)
        return {
            "acknowledged": self.total(),
            "faults": sum(self.counts.values()),
            "by kind": dict(sorted(self.counts.items())),
            "starts after an end": self.restarts,
            **{kind: len(some) for kind, some in faults.items()},
            "examples": {kind: some[:5] for kind, some in faults.items() if some},
            "seconds of a reply of the pair": {
                "count": len(waits),
                "median": waits[len(waits) // 2] if waits else None,
                "99 %": waits[len(waits) * 99 // 100] if waits else None,
                "maximum": waits[-1] if waits else None,
            },
        }

    def close(self, *, keep: bool) -> None:
        """End all programs."""
        for party in self.parties.values():
            party.kill()
        for proxy in self.proxies:
            proxy.close()
        if self.server is not None:
            self.server.stop()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def main() -> int:
    """Run the checker; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.store_checker", description=__doc__)
    parser.add_argument("--acks", type=int, default=2000)
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    given = parser.parse_args()
    checker = StoreChecker(given.store, given.acks, given.faults, given.seed)
    bad = True
    try:
        began = time.monotonic()
        goes_on = checker.run()
        report = checker.report(goes_on)
        bad = any(report[kind] for kind in ("lost", "twice", "wrong", "stuck"))
        report = {"seed": given.seed, "store": given.store, **report}
        report["seconds"] = round(time.monotonic() - began)
        print(json.dumps(report, indent=1))
        if bad:
            print(f"the logs are in {checker.folder}", file=sys.stderr)
    finally:
        checker.close(keep=bad)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
