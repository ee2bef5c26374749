"""One run of the checker: its programs, its faults, and what it reports."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.interop.programs.programs import ENVIRON, ROOT
from tests.store_checker.comparison import FAULTS, Comparison
from tests.store_checker.homes import PostgresHome, SqliteHome, home_of
from tests.store_checker.party import Party, free_port
from tests.store_checker.party_log import PartyLog
from wmp.store.stored_job import OPEN

__all__ = ["StoreChecker"]

STUCK: Final = 180.0
"""Seconds without an acknowledgement or an end after which the checker calls the store stuck."""

_FIRST_STARTS: Final = 3
"""Times that all programs are killed in the first starts of the store."""
_TRIES: Final = 5
"""Tries of a first start on a new path, which are one fault."""
_CUTS: Final = 40
"""Power cuts of a trace, which are one fault."""


class StoreChecker:
    """One run on one store."""

    def __init__(self, kind: str, acks: int, faults: int, seed: int) -> None:
        self.kind, self.acks, self.faults = kind, acks, faults
        self.draw = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.restarts = 0
        self.enough = False
        """Whether the submitters end when their jobs have ended."""
        self.folder = Path(tempfile.mkdtemp(prefix="wmp-check-", dir="/tmp"))
        self.folder.chmod(0o755)  # the server of PostgreSQL runs as another user
        self.home = home_of(kind, self.folder)
        self.deck: list[str] = []
        self.parties: dict[str, Party] = {}
        names = ("s0", "s1", "p", "ask", "create")
        self.comparison = Comparison(
            {name: PartyLog(self.folder / f"{name}.log", writes=False) for name in names}
        )
        self._start_all()

    def _start_all(self) -> None:
        addresses, folder = self.home.addresses, self.folder
        ports = [free_port() for _ in range(4)]
        ends = [f"tcp://127.0.0.1:{port}" for port in ports[:2]]
        bound, http = f"tcp://127.0.0.1:{ports[2]}", f"127.0.0.1:{ports[3]}"
        pair = [f"ipc://{folder}/pair-{own}" for own in "ab"]
        for number in range(2):
            self._add(f"s{number}", "submit", f"s{number}", addresses[number], ends[number])
            self._add(f"w{number}", "work", f"w{number}", *ends, *pair, bound)
        self._add("pa", "pair", "p", addresses[2], "a", "b")
        self._add("pb", "pair", "p", addresses[2], "b", "a")
        self._add("ask", "ask", "ask")
        self._add("d", "dispatch", "d", addresses[3], http, bound)
        self._add("create", "create", "create", f"http://{http}")

    def _add(self, name: str, what: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.store_checker.parties", what, str(self.folder)]
        self.parties[name] = Party(name, [*command, *arguments], self.folder)

    # -- faults -----------------------------------------------------------------------------------

    def strike(self) -> None:
        """Make one fault. A deck of all kinds lets each kind come."""
        if not self.deck:
            self.deck = ["kill"] * 4 + ["stop"] * 2 + ["restore", "first start", *self.home.kinds]
            self.deck += ["disk"] if self.home.mount else []
            self.draw.shuffle(self.deck)
        kind = self.deck.pop()
        strikes: dict[str, Callable[[], str]] = {
            "kill": self._kill,
            "stop": self._stop,
            "all": self._kill_all,
            "restore": self._restore,
            "first start": self._first_start_elsewhere,
            "disk": self._fill_disk,
            "power": self._cut_power,
            "clock": self._set_clock,
        }
        self.counts[strikes.get(kind, lambda: self._strike_server(kind))()] += 1

    def _some_party(self) -> Party:
        return self.draw.choice(list(self.parties.values()))

    def _kill(self) -> str:
        party = self._some_party()
        party.kill()
        return f"kill {party.name}"

    def _kill_all(self) -> str:
        for party in self.parties.values():
            party.kill()
        return "kill all"

    def _stop(self) -> str:
        party = self._some_party()
        party.stop(self.draw.choice([0.5, 2.0, 5.0, 12.0]))
        return f"stop {party.name}"

    def _set_clock(self) -> str:
        assert isinstance(self.home, SqliteHome)
        self.home.set_clock(self.draw.choice([-1500.0, -30.0, -2.0, 0.0, 2.0, 30.0, 1500.0]))
        return "clock"

    def _fill_disk(self) -> str:
        """Fill the disk for a while; often a program is killed and starts on the full disk."""
        self.home.fill()
        self._wait(self.draw.choice([0.3, 1.0, 3.0]))
        name = "full disk"
        if self.draw.random() < 0.5:
            self._some_party().kill()
            self._wait(self.draw.choice([0.5, 2.0]))
            name = "full disk and kill"
        self.home.free()
        return name

    def _restore(self) -> str:
        """Make a backup, go on for a while, and restore the backup."""
        self.comparison.back_up(self.home.copy)
        count = self.total() + self.draw.choice([50, 200, 500])
        until = time.monotonic() + 20.0
        self._until(lambda: self.total() >= count or time.monotonic() > until)
        for party in self.parties.values():
            if party.uses_store:
                party.kill()
        # Clients wait for answers of the killed programs, and submit again in their next life.
        for name in ("ask", "create"):
            self.parties[name].kill()
        before = self._generation()
        self.home.restore()
        store = self.home.open()
        self.comparison.restored(store)
        if store.generation <= before:
            self.comparison.faults["wrong"].append(
                f"generation {store.generation} after a restoration, and {before} before"
            )
        store.close()
        return "restore"

    def _generation(self) -> int:
        store = self.home.open()
        generation: int = store.generation
        store.close()
        return generation

    def _first_start(self) -> None:
        """Kill all programs in the very first start of the store, while they race for it."""
        for _ in range(_FIRST_STARTS):
            new = not self.home.exists()
            until = time.monotonic() + 3.0
            while new and not self.home.exists() and time.monotonic() < until:
                self._wait(0.001)
            self._wait(self.draw.choice([0.0, 0.0, 0.005, 0.02, 0.1]))
            for party in self.parties.values():
                party.kill()
            self.counts["kill all in the first start" if new else "kill all"] += 1

    def _first_start_elsewhere(self) -> str:
        """Kill programs in the first start of other stores."""
        seed = str(self.draw.randrange(1 << 30))
        command = ["tests.store_checker.trials", "first-start", "--tries", str(_TRIES)]
        self._program([*command, "--seed", seed, "--store", self.kind])
        return f"{_TRIES} kills in first starts"

    def _cut_power(self) -> str:
        """Cut the power of a store of its own: replay its system calls up to drawn ones."""
        seed = str(self.draw.randrange(1 << 30))
        command = ["wmp.testing.power", "--batches", "6", "--cuts", str(_CUTS), "--json"]
        self._program([*command, "--seed", seed])
        return f"{_CUTS} power cuts"

    def _program(self, command: list[str]) -> None:
        """Run a program that looks for faults; what it finds is wrong."""
        done = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env=ENVIRON,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        while done.poll() is None:
            self._wait(0.1)
        assert done.stdout is not None
        output = done.stdout.read()
        if done.returncode:
            self.comparison.faults["wrong"].append(f"{' '.join(command)}: {output[-2000:]}")

    def _strike_server(self, kind: str) -> str:
        assert isinstance(self.home, PostgresHome)
        proxy = self.draw.choice(self.home.proxies)
        if kind == "server":
            self.home.restart()
        elif kind == "cut":
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
        return {
            "server": "kill server",
            "cut": "cut connections",
            "hole": "black hole",
            "commit": "cut after COMMIT",
        }[kind]

    # -- the run ----------------------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        """Watch the programs for a while."""
        until = time.monotonic() + seconds
        while True:
            for party in self.parties.values():
                if party.stopped_until and time.monotonic() >= party.stopped_until:
                    party.go_on()
                if party.ended() and not (self.enough and party.finished()):
                    self.restarts += 1
                    party.start()
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.02))

    def run(self) -> bool:
        """Make all faults; return whether everything goes on and ends."""
        self._first_start()
        while (number := self.counts.total()) < self.faults:
            if not self._reach((number + 0.5) * self.acks / self.faults):
                return False
            self.strike()
            if number % 20 == 19:
                self._say(f"{number + 1} faults, {self.total()} acknowledged")
        if not self._reach(self.acks):
            return False
        self.enough = True
        (self.folder / "enough").touch()
        # The last fault may have killed them.
        parties = [self.parties[name] for name in ("s0", "s1", "ask", "create")]
        ends = self._until(lambda: all(party.finished() for party in parties))
        # The pair serves its client, and submits until all its own jobs have ended.
        log = self.comparison.logs["p"]
        ends = ends and self._until(lambda: log.asked == log.ended.keys())
        # A restoration revives jobs whose ends their submitters know already.
        ends = ends and self._until_none_is_open()
        (self.folder / "asked").touch()
        return ends

    def total(self) -> int:
        """Return the number of acknowledgements."""
        self.comparison.read()
        logs = self.comparison.logs.values()
        return sum(len(log.acknowledged) + len(log.forgotten) for log in logs)

    def _reach(self, count: float) -> bool:
        return self._until(lambda: self.total() >= count)

    def _until(self, reached: Callable[[], bool]) -> bool:
        """Wait for a fact; return False when nothing goes on."""
        before, since = -1, time.monotonic()
        while True:
            total = self.total()
            if reached():
                return True
            now = total + sum(len(log.ended) for log in self.comparison.logs.values())
            if now != before:
                before, since = now, time.monotonic()
            elif time.monotonic() - since > STUCK:
                return False
            self._wait(0.05)

    def _until_none_is_open(self) -> bool:
        until = time.monotonic() + STUCK
        store = self.home.open()
        try:
            while sum(count for state, count in store.counts().items() if state in OPEN):
                if time.monotonic() > until:
                    return False
                self._wait(0.2)
        finally:
            store.close()
        return True

    def _say(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")

    def report(self, goes_on: bool) -> dict[str, Any]:
        """Compare the store with the logs."""
        store, comparison = self.home.open(), self.comparison
        comparison.final(store, list(store.check()) if self.kind == "sqlite" else [])
        store.close()
        if not goes_on:
            comparison.faults["stuck"].append(f"nothing went on for {STUCK:g} s")
        waits = sorted(comparison.logs["ask"].waits)
        return {
            "acknowledged": self.total(),
            "forgotten by restorations": comparison.forgotten,
            "faults": self.counts.total(),
            "by kind": dict(sorted(self.counts.items())),
            "starts after an end": self.restarts,
            **{kind: len(comparison.faults[kind]) for kind in FAULTS},
            "examples": {kind: texts[:5] for kind, texts in comparison.faults.items() if texts},
            "seconds of a reply of the pair": {
                "count": len(waits),
                "median": waits[len(waits) // 2] if waits else None,
                "99 %": waits[len(waits) * 99 // 100] if waits else None,
                "maximum": waits[-1] if waits else None,
            },
        }

    def save(self, report: dict[str, Any]) -> None:
        """Write all faults beside the logs."""
        whole = {**report, "examples": self.comparison.faults}
        (self.folder / "report.json").write_text(json.dumps(whole, indent=1))

    def close(self, *, keep: bool) -> None:
        """End all programs."""
        for party in self.parties.values():
            party.kill()
        if keep and self.kind == "sqlite":
            shutil.copytree(self.home.disk, self.folder / "kept", ignore_dangling_symlinks=True)
        self.home.close()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)
