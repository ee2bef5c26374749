"""A process that runs out of file descriptors gets an error and is not ended by libzmq."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import re
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zmq

import wmp
import wmp.aio
from tests.waiting import RUN, WAIT, wait_until
from wmp.runtime.node import node

pytest.importorskip("resource", reason="no limit of file descriptors on this system")

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[3]

PROGRAM = """
import asyncio, os, resource, sys, wmp, wmp.aio

def make(kind):
    match kind:
        case "manager":
            return wmp.Manager("tcp://127.0.0.1:*", "tcp://localhost:*")
        case "worker":
            return wmp.Worker("tcp://127.0.0.1:9", "tcp://localhost:9", handlers=bytes.upper)
        case "device":
            return wmp.Device(bind=["tcp://127.0.0.1:*"], connect=["tcp://127.0.0.1:9"])
        case "process":
            return wmp.Worker("tcp://127.0.0.1:9", handlers=bytes.upper, pool="process", slots=3)
        case "aio":
            return wmp.aio.Manager()

async def run(made):
    async with made:
        print("started", flush=True)

def start(made):
    made.start()
    print("started", flush=True)
    made.close()

def try_with(made, kind, free):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) - 1 + free, hard))
    try:
        asyncio.run(run(made)) if kind == "aio" else start(made)
    except wmp.TransportError as error:
        print("refused:", error, flush=True)

if __name__ == "__main__":
    for word in sys.argv[1:]:
        print(word, flush=True)
        kind, free = word.split("-")
        # A process of its own, which libzmq may end, without the time that imports take.
        child = os.fork()
        if not child:
            status = 1
            try:
                try_with(make(kind), kind, int(free))
                status = 0
            finally:
                os._exit(status)
        print("ended:", os.waitpid(child, 0)[1], flush=True)
"""


def test_a_node_starts_or_says_how_many_descriptors_there_are(tmp_path: Path) -> None:
    kinds = ("manager", "worker", "device", "process", "aio")
    tried = [(kind, free) for kind in kinds for free in (0, 8, 20, 80)]
    tried.remove(("aio", 0))  # without a free descriptor asyncio itself cannot make a loop
    program = tmp_path / "few.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, program, *(f"{kind}-{free}" for kind, free in tried)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=RUN,
    )
    assert done.returncode == 0, done.stderr
    blocks = re.findall(r"^(\w+)-(\d+)\n(.*)\nended: (\d+)\n", done.stdout, re.MULTILINE)
    assert [(kind, int(free)) for kind, free, _, _ in blocks] == tried, done.stdout
    for kind, free, message, status in blocks:
        assert status == "0", (kind, free, message, done.stderr)
        if message.startswith("refused"):
            assert int(free) < 80
            match = re.search(
                r"needs (\d+) file descriptors, but only (\d+) of the \d+ of this process are "
                r"left; close files or other nodes, or raise the limit \(ulimit -n\)$",
                message,
            )
            assert match is not None, message
            assert int(match[2]) < int(match[1])
            assert int(match[2]) <= int(free)
        else:
            assert message == "started"
            assert int(free) > 8


FULL = """
import os, resource, sys, wmp
from tests.waiting import WAIT, wait_until

with wmp.Manager() as manager:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) - 1 + 5, hard))
    print(manager.endpoints[0], flush=True)
    job = manager.submit(b"a job")
    wait_until(lambda: manager.statistics().dropped.get("accept"))
    print("full", flush=True)
    print(job.result(100).decode(), manager.statistics().dropped["accept"], flush=True)
"""


def test_a_node_without_descriptors_pauses_and_accepts_connections_again() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FULL],
        env={"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        endpoint = process.stdout.readline().strip()
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        strangers = []
        # A manager that pauses refuses connections.
        with contextlib.suppress(ConnectionRefusedError):
            for _ in range(20):
                strangers.append(socket.create_connection((host, int(port))))
        assert process.stdout.readline() == "full\n"
        for stranger in strangers:
            stranger.close()
        with wmp.Worker(endpoint, handlers=bytes.upper):
            result, times = process.stdout.readline().rsplit(" ", 1)
    assert result == "A JOB"
    # libzmq itself would try thousands of times a second.
    assert int(times) < 100


@pytest.mark.parametrize("name", ["router", "new_event_loop"])
def test_a_refused_descriptor_is_a_transport_error(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        if name == "router":
            raise zmq.ZMQError(errno.EMFILE)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(node if name == "router" else asyncio, name, refuse)
    with pytest.raises(wmp.TransportError, match="cannot start the manager: Too many open files"):
        wmp.Manager().start()


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def make_worker() -> wmp.Worker:
    return wmp.Worker("tcp://127.0.0.1:9", handlers=bytes.upper)


@pytest.mark.parametrize("make", [wmp.Manager, make_worker])
def test_a_blocking_node_that_nobody_closed_warns_and_lets_go(
    make: Callable[[], wmp.Manager | wmp.Worker],
) -> None:
    before = descriptors()
    node = make()
    node.start()
    name = type(node).__name__.lower()
    thread = node._portal._thread
    assert thread is not None
    assert descriptors() > before
    kept = [node]
    del node
    with pytest.warns(ResourceWarning, match=f"unclosed {name} .*call close()"):
        kept.clear()
    thread.join(WAIT)
    assert not thread.is_alive()
    gc.collect()
    # Libzmq closes its own descriptors on its own threads.
    wait_until(lambda: descriptors() <= before)


def test_an_asyncio_node_that_nobody_closed_warns_and_lets_go() -> None:
    before = descriptors()

    async def main() -> None:
        await wmp.aio.Manager().start()

    def abandon() -> None:
        asyncio.run(main())  # Python may collect the node here already
        gc.collect()

    with pytest.warns(ResourceWarning, match="unclosed manager at tcp://.*use the manager as a"):
        abandon()
    wait_until(lambda: descriptors() <= before)


class ContextOfOldSockets(zmq.Context[zmq.Socket[bytes]]):
    """A context whose sockets are older than the node that opens them."""

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["made"] = [super().socket(zmq.ROUTER),
                                 super().socket(zmq.PAIR)]  # fmt: skip

    def socket(self, *args: Any, **kwargs: Any) -> Any:
        return self.made.pop(0)


@pytest.mark.parametrize("kind", [zmq.Context, ContextOfOldSockets])
def test_the_age_of_a_context_does_not_decide_how_a_node_is_collected(
    kind: type[zmq.Context[zmq.Socket[bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()
    # The collector finalises older objects first.
    old = [kind()]
    monkeypatch.setattr("wmp.runtime.node.node.zmq.Context", old.pop)

    async def main() -> None:
        await wmp.aio.Manager().start()

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert [str(warning.message).split(" at ")[0] for warning in seen] == ["unclosed manager"]
    wait_until(lambda: descriptors() <= before)


def test_a_node_that_is_closed_or_was_never_started_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        node = wmp.Manager()
        node.start()
        node.close()
        del node
        make_worker()
        gc.collect()


LEFT = """
import wmp
manager = wmp.Manager()
manager.start()
"""


@pytest.mark.parametrize(("flags", "seen"), [(("-W", "always"), True), ((), False)])
def test_a_node_left_at_the_end_of_the_program_warns_if_python_shows_it(
    flags: tuple[str, ...], seen: bool
) -> None:
    done = subprocess.run(
        [sys.executable, *flags, "-c", LEFT],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=RUN,
    )
    assert done.returncode == 0
    assert ("ResourceWarning: unclosed manager " in done.stderr) is seen
    assert seen or done.stderr == ""
