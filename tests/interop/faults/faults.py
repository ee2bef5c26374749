"""Real processes to kill, stop and start again, and TCP links to cut."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.interop.programs.forks import ForkedProcess, forks
from tests.waiting import WAIT

"""Seconds after which a wait has failed."""

Words = dict[str, Any]


class Part:
    """A process of :mod:`tests.interop.faults.fault_parts`. Its name survives a restart."""

    def __init__(self, part: str, folder: Path, receive: Callable[[Words], None] | None = None):
        self.part = part
        self.folder = folder
        self.generation = 0
        self.process: ForkedProcess | None = None
        self._receive = receive
        self._received: list[Words] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._asked = 0

    def start(self, **config: Any) -> Words:
        """Start the process, or start it again, and wait until it is ready."""
        assert self.process is None
        self.generation += 1
        self._received.clear()
        with (self.folder / "stderr").open("ab") as stderr:
            self.process = forks().start(
                *(
                    sys.executable,
                    "-c",
                    "from tests.interop.faults import fault_parts as f; f.main()",
                ),
                cwd=self.folder,
                errors=stderr.fileno(),
            )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        self.tell(part=self.part, generation=self.generation, **config)
        return self._wait(lambda words: "bound" in words or "started" in words)

    def _listen(self) -> None:
        assert self.process is not None
        for line in self.process.stdout:
            if not line.endswith(b"\n"):
                break  # the process was killed in the middle of a line, which does not count
            words = json.loads(line)
            if self._receive is not None and "done" in words:
                self._receive(words)
                continue
            with self._changed:
                self._received.append(words)
                self._changed.notify_all()

    def tell(self, **words: Any) -> None:
        """Send a request."""
        assert self.process is not None
        self.process.stdin.write(json.dumps(words).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self) -> Words:
        """Ask for the process's state."""
        self._asked += 1
        request = self._asked
        self.tell(ask=request)
        return self._wait(lambda words: words.get("answer") == request)

    def _wait(self, wanted: Callable[[Words], bool]) -> Words:
        until = time.monotonic() + WAIT
        with self._changed:
            while True:
                for words in self._received:
                    if wanted(words):
                        self._received.remove(words)
                        return words
                left = until - time.monotonic()
                assert left > 0, f"no answer in time:\n{self.complaints()}"
                assert self.alive, f"it has ended:\n{self.complaints()}"
                self._changed.wait(min(left, 0.2))

    @property
    def alive(self) -> bool:
        """Return whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def complaints(self) -> str:
        """Return the end of the stderr of all processes of the folder."""
        return (self.folder / "stderr").read_text(errors="replace")[-4000:]

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the process with SIGKILL and read its last output; do nothing if it does not run."""
        if self.process is None or self._thread is None:
            return
        self.process.kill()
        self.process.wait(WAIT)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self._thread.join(WAIT)
        assert not self._thread.is_alive()
        self.process.stdout.close()
        self.process = self._thread = None


class Wire:
    """A TCP link that can be cut, and the peers at its ends do not notice the cut.

    Connections to ``endpoint`` are passed on to ``target``, which may change.
    """

    def __init__(self) -> None:
        self.target = ""
        self.endpoint = ""
        self._flows: set[_Flow] = set()
        self._open = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Wire:
        self._thread.start()
        assert self._open.wait(WAIT)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._flowing = asyncio.Event()
        self._flowing.set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.endpoint = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._open.set()
        await self._stop.wait()
        server.close()
        self._flowing.set()
        while self._flows:
            for flow in self._flows:
                flow.end()
            await asyncio.sleep(0)
        # The transports are closed in the next turns of the loop.
        for _ in range(3):
            await asyncio.sleep(0)

    async def _connected(self, *below: Any) -> None:
        flow = _Flow(below, self._flowing)
        self._flows.add(flow)
        try:
            host, port = self.target.removeprefix("tcp://").rsplit(":", 1)
            flow.above = await asyncio.open_connection(host, int(port))
            await flow.run()
        except OSError:
            pass  # no peer is at the target, or the link was cut
        finally:
            flow.end()
            self._flows.discard(flow)

    def _each(self, do: Callable[[_Flow], None]) -> None:
        self._loop.call_soon_threadsafe(lambda: [do(flow) for flow in tuple(self._flows)])

    def cut(self) -> None:
        """Reset all connections; new connections are accepted."""
        self._each(_Flow.end)

    def half_close(self) -> None:
        """Close the connections only on the side of the connecting peers."""
        self._each(_Flow.half_close)

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        """Pass no bytes in either direction: connections stay open, and new ones are accepted."""
        self._loop.call_soon_threadsafe(self._flowing.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._flowing.set)


class _Flow:
    """Two connections whose bytes are passed to each other."""

    def __init__(self, below: Any, flowing: asyncio.Event) -> None:
        self.below = below
        self.above: Any = None
        self._flowing = flowing
        self._deaf = False

    async def run(self) -> None:
        """Pass bytes and ends until both sides have ended."""
        await asyncio.gather(
            self._pump(self.below[0], self.above[1]), self._pump(self.above[0], self.below[1])
        )

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._flowing.wait()
            if not self._deaf:
                writer.write(data)
                await writer.drain()
        await self._flowing.wait()
        if not self._deaf:
            with contextlib.suppress(OSError):
                writer.write_eof()

    def half_close(self) -> None:
        """Close the connecting peer's side only."""
        self._deaf = True
        with contextlib.suppress(OSError):
            self.below[1].write_eof()

    def end(self) -> None:
        """Reset both connections."""
        for side in (self.below, self.above):
            if side is not None:
                side[1].transport.abort()


def descriptors() -> int:
    """Return the number of open file descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))
