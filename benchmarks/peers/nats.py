"""NATS with Python at both ends. ``python -m benchmarks --only peers``.

There is a queue group of workers and one inbox for all results, with a thousand unfinished jobs.
NATS core makes no promise: a message that a worker held when it was killed is lost. The worker is
``python -m benchmarks.peers.nats PORT``.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from types import TracebackType
from typing import Any

from benchmarks.figure import Skip
from benchmarks.process import Process, free_port, python, wait_for_port
from benchmarks.raw import in_flight

__all__ = ["Nats", "work"]


class Nats:
    """One connection; results are put in order by the last word of their subject."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def __enter__(self) -> Nats:
        server = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")
        if server is None:
            raise Skip("nats-server is not installed: apt-get install nats-server")
        try:
            library = import_module("nats")
        except ImportError as error:
            raise Skip("the NATS client is not installed: pip install nats-py") from error
        port = free_port()
        with ExitStack() as stack:
            process = Process(server, "-a", "127.0.0.1", "-p", str(port))
            wait_for_port(stack.enter_context(process), port)
            for _ in range(self._workers):
                worker = stack.enter_context(python("benchmarks.peers.nats", str(port)))
                worker.receive()
            self._runner = stack.enter_context(asyncio.Runner())
            self._nats = self._runner.run(library.connect(f"nats://127.0.0.1:{port}"))
            stack.callback(lambda: self._runner.run(self._nats.close()))
            self._runner.run(self._subscribe())
            self._stack = stack.pop_all()
        return self

    async def _subscribe(self) -> None:
        self._inbox = self._nats.new_inbox()
        self._results: dict[int, bytes] = {}
        self._room = asyncio.Semaphore(1)
        self._all = asyncio.Event()

        async def heard(message: Any) -> None:
            self._results[int(message.subject.rpartition(".")[2])] = message.data
            self._room.release()
            if len(self._results) == self._wanted:
                self._all.set()

        await self._nats.subscribe(
            self._inbox + ".*", cb=heard, pending_msgs_limit=0, pending_bytes_limit=0
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def map(self, payloads: Sequence[bytes]) -> Iterator[bytes]:
        """Publish all, then await one after the other."""
        results = self._runner.run(self._echo(payloads))
        return (results[number] for number in range(len(payloads)))

    async def _echo(self, payloads: Sequence[bytes]) -> dict[int, bytes]:
        self._results, self._wanted = {}, len(payloads)
        self._room = asyncio.Semaphore(in_flight(len(payloads[0])))
        self._all.clear()
        for number, payload in enumerate(payloads):
            await self._room.acquire()
            await self._nats.publish("echo", payload, reply=f"{self._inbox}.{number}")
        await asyncio.wait_for(self._all.wait(), 60.0)
        return self._results

    def do_job(self, payload: bytes) -> bytes:
        """Request and wait."""
        result: bytes = self._runner.run(self._nats.request("echo", payload, timeout=10.0)).data
        return result


async def work(port: int) -> None:
    """Echo for ever."""
    nats = await import_module("nats").connect(f"nats://127.0.0.1:{port}")

    async def echo(message: Any) -> None:
        await nats.publish(message.reply, message.data)

    await nats.subscribe("echo", "workers", cb=echo)
    await nats.flush()
    print("true", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(int(sys.argv[1])))
