"""Every door with every client and every worker of the zoo (tests/peers), while workers are killed.

As a program, ``python -m tests.interop.gateways.zoo [--requests 2000] [--kills 10]`` plays all
pairs and prints a line for each. Workers are processes, which SIGKILL ends.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import zmq
from attrs import define, field, frozen

from tests.house import ROOT
from tests.peers.old_zmtp import REQ, OldConnection, connect
from wmp.gateways import ClientDoor, Gateway, MajordomoDoor, RoundRobinDoor, WorkerDoor

_ANY: Final = "tcp://127.0.0.1:*"
_TRY: Final = 2.0
"""Seconds after which a client asks again, over a new connection."""
_HANG: Final = 60.0
"""Seconds without a reply after which the requests count as stuck."""
_WORKERS: Final = 3
_CLIENTS: Final = 2
_WIDE: Final = 60
"""Number of frames of a body of many frames."""

_IN_C: Final[Mapping[str, str]] = {
    "c-words": "word-simple",
    "c-words-and-signs": "word-paranoid",
    "c-silent-paranoid": "silent-paranoid",
    "c-silent-ping-pong": "silent-ping-pong",
    "c-string": "cstring-majordomo",
    "c-bare-reply": "bare-majordomo",
    "c-silent-majordomo": "silent-majordomo",
}
"""The habits of the program in C, by the names of the workers here."""

DOORS: Final[Mapping[str, tuple[str, ...]]] = {
    "simple-pirate": ("WordSimplePirate", "SilentOnceSimplePirate", "old-1", "old-2", "c-words"),
    "paranoid-pirate": (
        "WordParanoidPirate",
        "SilentOnceParanoidPirate",
        "old-1",
        "old-2",
        "c-words-and-signs",
        "c-silent-paranoid",
    ),
    "ping-pong": ("SilentOncePingPong", "old-1", "old-2", "c-silent-ping-pong"),
    "round-robin": ("PlainRoundRobin", "SilentOnceRoundRobin"),
    "majordomo": (
        "CStringMajordomo",
        "BareReplyMajordomo",
        "SilentOnceMajordomo",
        "old-1",
        "old-2",
        "c-string",
        "c-bare-reply",
        "c-silent-majordomo",
    ),
}
"""The workers of the zoo, by the door at which they work."""

CLIENTS: Final = ("req", "wide", "old-1", "old-2", "c", "c-wide")


def pairs() -> Iterator[tuple[str, str, str]]:
    """Yield each door with each client and each worker; the clients in C know no round robin."""
    for door, workers in DOORS.items():
        for client, worker in itertools.product(CLIENTS, workers):
            if door != "round-robin" or not client.startswith("c"):
                yield door, client, worker


def in_c(client: str, worker: str) -> bool:
    """Return whether a pair needs the program in C."""
    return client.startswith("c") or worker in _IN_C


def compiled(folder: Path) -> Path | None:
    """Return the compiled program in C; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    program = folder / "quirky"
    if not program.exists():
        source = ROOT / "tests" / "peers" / "quirky.c"
        words = [compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(source)]
        subprocess.run(words, check=True)
    return program


@frozen
class ZooResult:
    """What became of the requests of one pair."""

    asked: int
    right: int
    wrong: list[str]
    kills: int
    seconds: float

    @property
    def stuck(self) -> int:
        """Number of requests without a reply."""
        return self.asked - self.right - len(self.wrong)


@define(eq=False)
class _Tally:
    """The requests of one pair and their replies. Threads only append."""

    right: list[int] = field(factory=list)
    """Number of right replies, in parts."""
    wrong: list[str] = field(factory=list)
    over: bool = False
    """Whether the clients give up."""


# -- clients ------------------------------------------------------------------------------------


_HEADER: Final[Mapping[str, list[bytes]]] = {
    "majordomo": [b"MDPC01", b"echo"],
    "round-robin": [b"LMQv100", b"\x04", b"0001", b"\x20"],
}
"""The frames before the body of a request."""

_END: Final[Mapping[str, list[bytes]]] = {"round-robin": [b""]}
"""The frames behind it."""


def _reply_body(door: str, reply: list[bytes]) -> list[bytes]:
    """Return the body of a reply; the whole reply if its header is wrong."""
    if door == "round-robin":
        rest = reply[3:-2]  # without the empty frame and the address of the worker
        return rest if reply[:3] == [b"LMQv100", b"\x06", b"0001"] else reply
    header = _HEADER.get(door, [])
    return reply[len(header) :] if reply[: len(header)] == header else reply


class _Req:
    """A REQ socket in plain pyzmq."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> None:
        self._socket = context.socket(zmq.REQ)
        self._socket.linger = 0
        self._socket.connect(endpoint)

    def ask(self, frames: list[bytes]) -> list[bytes] | None:
        self._socket.send_multipart(frames)
        return self._socket.recv_multipart() if self._socket.poll(_TRY * 1000) else None

    def close(self) -> None:
        self._socket.close()


class _OldReq:
    """A REQ socket of ZMTP 1 or 2."""

    def __init__(self, endpoint: str, version: int) -> None:
        self._connection: OldConnection = connect(endpoint, version, REQ)
        self._connection.stream.settimeout(_TRY)

    def ask(self, frames: list[bytes]) -> list[bytes] | None:
        try:
            self._connection.send([b"", *frames])
            return self._connection.receive()[1:]
        except OSError:
            return None

    def close(self) -> None:
        self._connection.close()


def _ask_all(make: Callable[[], Any], door: str, part: range, wide: bool, tally: _Tally) -> None:
    """Send requests one after the other; repeat each until its reply comes."""
    header, end = _HEADER.get(door, []), _END.get(door, [])
    client = make()
    for number in part:
        body = [b"r%d" % number]
        if wide:
            body += [b"f%d" % index for index in range(1, _WIDE)]
        while (reply := client.ask([*header, *body, *end])) is None:
            client.close()
            if tally.over:
                return
            client = make()
        if _reply_body(door, reply) == [frame.upper() for frame in body]:
            tally.right.append(1)
        else:
            tally.wrong.append(f"{body[0]!r}: {reply[:4]!r}")
    client.close()


def _run_client(program: Path, habit: str, port: str, part: range, tally: _Tally) -> None:
    words = [str(program), habit, port, str(part.start), str(len(part))]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    while process.poll() is None and not tally.over:
        time.sleep(0.01)
    process.kill()
    output, _ = process.communicate()
    *wrong, last = output.splitlines() or [""]
    tally.wrong += wrong
    if last.endswith(f"wrong of {len(part)}"):
        tally.right.append(len(part) - len(wrong))


def _clients(
    kind: str,
    door: str,
    endpoint: str,
    requests: int,
    context: zmq.Context[zmq.Socket[bytes]],
    program: Path | None,
    tally: _Tally,
) -> list[threading.Thread]:
    """Return threads that ask, each with a part of the requests."""
    share = requests // _CLIENTS
    parts = [range(number * share, (number + 1) * share) for number in range(_CLIENTS)]
    wide = kind.endswith("wide")
    if kind.startswith("c"):
        assert program is not None
        habit = "majordomo-client" if door == "majordomo" else "pirate-client"
        habit = f"wide-{habit}" if wide else habit
        port = endpoint.rpartition(":")[2]
        return [
            threading.Thread(target=_run_client, args=(program, habit, port, part, tally))
            for part in parts
        ]

    def make() -> Any:
        if kind.startswith("old"):
            return _OldReq(endpoint, int(kind[-1]))
        return _Req(context, endpoint)

    return [
        threading.Thread(target=_ask_all, args=(make, door, part, wide, tally)) for part in parts
    ]


# -- workers ------------------------------------------------------------------------------------


def _worker(door: str, kind: str, endpoint: str, program: Path | None) -> subprocess.Popen[bytes]:
    if kind in _IN_C:
        assert program is not None
        return subprocess.Popen([str(program), _IN_C[kind], endpoint.rpartition(":")[2]])
    argv = [sys.executable, "-m", "tests.peers.quirky", kind, endpoint, door]
    return subprocess.Popen(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})


def _gateway(door: str) -> Gateway:
    """Return a gateway that waits long for heartbeats, and briefly for the silent-once workers."""
    if door == "majordomo":
        return Gateway(MajordomoDoor(_ANY, heartbeat=0.1, liveness=100, busy_timeout=0.5))
    if door == "round-robin":
        return Gateway(RoundRobinDoor(_ANY))
    times: dict[str, Any] = {} if door == "simple-pirate" else {"heartbeat": 0.1, "liveness": 100}
    if door == "paranoid-pirate":
        times["busy_timeout"] = 0.5
    return Gateway(ClientDoor(_ANY), WorkerDoor(_ANY, protocol=door, **times))


def play(
    door: str,
    client: str,
    worker: str,
    *,
    requests: int,
    kills: int,
    seed: int,
    program: Path | None = None,
) -> ZooResult:
    """Let clients of one kind ask workers of one kind through a gateway, and kill some workers.

    Args:
        door: A key of :data:`DOORS`.
        client: One of :data:`CLIENTS`.
        worker: A worker of the door.
        requests: Number of requests.
        kills: Number of workers that are killed, and started again, at equal parts of the replies.
        seed: Which of the workers are killed.
        program: The compiled program in C.
    """
    chance = random.Random(seed)
    begun = time.monotonic()
    tally = _Tally()
    killed = 0
    with _gateway(door) as gateway, zmq.Context() as context:
        front, back = gateway.doors[0][0], gateway.doors[-1][0]
        workers = [_worker(door, worker, back, program) for _ in range(_WORKERS)]
        threads = _clients(client, door, front, requests, context, program, tally)
        try:
            for thread in threads:
                thread.start()
            last, moved_at = 0, time.monotonic()
            while any(thread.is_alive() for thread in threads):
                done = gateway.statistics().doors[0].replies
                if done != last:
                    last, moved_at = done, time.monotonic()
                if killed < kills and done >= requests * (killed + 1) / (kills + 1):
                    victim = chance.randrange(_WORKERS)
                    workers[victim].kill()
                    workers[victim].wait()
                    workers[victim] = _worker(door, worker, back, program)
                    killed += 1
                if time.monotonic() - moved_at > _HANG:
                    break
                time.sleep(0.005)
        finally:
            tally.over = True
            for thread in threads:
                thread.join()
            for process in workers:
                process.kill()
                process.wait()
    asked = requests // _CLIENTS * _CLIENTS
    seconds = time.monotonic() - begun
    return ZooResult(asked, sum(tally.right), tally.wrong, killed, seconds)


def main() -> int:
    """Play all pairs; return 1 if a reply was wrong or missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.gateways.zoo")
    parser.add_argument("--requests", type=int, default=2000, help="requests of each pair")
    parser.add_argument("--kills", type=int, default=10, help="killed workers of each pair")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--door", choices=DOORS, help="only this door")
    options = parser.parse_args()
    totals = [0, 0, 0, 0]
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(Path(folder))
        for door, client, worker in pairs():
            if options.door not in (None, door) or (program is None and in_c(client, worker)):
                continue
            result = play(
                door,
                client,
                worker,
                requests=options.requests,
                kills=options.kills,
                seed=options.seed,
                program=program,
            )
            print(
                f"{door:16}{client:8}{worker:26}{result.right} right, {len(result.wrong)} wrong, "
                f"{result.stuck} stuck, {result.kills} kills, {result.seconds:.1f} s",
                *result.wrong[:3],
                flush=True,
            )
            counts = (result.asked, len(result.wrong), result.stuck, result.kills)
            totals = [total + count for total, count in zip(totals, counts, strict=True)]
    print("{} requests, {} wrong, {} stuck, {} kills".format(*totals))
    return int(bool(totals[1] or totals[2]))


if __name__ == "__main__":
    sys.exit(main())
