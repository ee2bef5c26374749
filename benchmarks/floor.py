"""The cost of a lone job without the machines: ``python -m benchmarks --only floor,latency``.

Three echoes are measured, one job at a time. Each adds something to the one before:

- ``loop``: both ends on an asyncio loop that watches the socket's descriptor;
- ``threads``: the caller waits in another thread than its loop's, and the handler runs in another
  thread than the worker's loop's. These are two hand-overs at each end, as for a blocking manager
  and a pool;
- ``codec``: also a TAKE on the way there and a DONE on the way back, which wmp's codec makes and
  reads.

The rest of ``latency`` is the cost of the machines, of the driver, and of the promises of the API.
The machines alone, and the codec, are measured in this process by its CPU clock.

The other end is ``python -m benchmarks.floor RUNG``.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import process_time
from types import TracebackType
from typing import Any

import zmq

from benchmarks.figure import Bench, Case, summary
from benchmarks.process import python
from benchmarks.work import make
from wmp import codec
from wmp.actions import Resolve, Run, Send
from wmp.balance import least_recently_used
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Connected, Finished, Received, Submitted
from wmp.message import DEFAULT_ROLE, Columns, Command, Field, Kind, Message, Outcome, Peer

__all__ = ["CASES", "RUNGS", "measure", "serve"]

RUNGS = ("loop", "threads", "codec")
MANAGER: Peer = (b"m" * 16, 1)
WORKER: Peer = (b"w" * 16, 1)


def take(payload: bytes) -> list[Any]:
    """Return the frames of a manager's TAKE for one job."""
    fields = {
        Field.NUMBER: 1000,
        Field.ACK: 1000,
        Field.SESSION: 1,
        Field.LOCK: 10,
        Field.ROLE: DEFAULT_ROLE,
        Field.NEEDS: {"slots": 1},
        Field.MANAGER: MANAGER,
        Field.MORE: True,
    }
    columns = Columns([1000], [1], payloads=[payload])
    return codec.encode(Message(Command.TAKE, WORKER[::-1], MANAGER, fields, columns))


def done(payload: bytes) -> list[Any]:
    """Return the frames of a DONE that answers the TAKE, with this result."""
    fields = {Field.NUMBER: 1000, Field.ACK: 1000, Field.SESSION: 1, Field.MANAGER: MANAGER}
    columns = Columns([1000], [1], outcomes=[Outcome.OK], payloads=[payload])
    return codec.encode(Message(Command.DONE, MANAGER[::-1], WORKER, fields, columns))


def payload_of(frames: Sequence[Any]) -> Any:
    """Return the payload of a TAKE or DONE."""
    columns = codec.decode(frames).columns
    assert columns is not None
    assert columns.payloads is not None
    return columns.payloads[0]


def watch(
    loop: asyncio.AbstractEventLoop, socket: Any, got: Callable[[list[bytes]], None]
) -> Callable[[], None]:
    """Have ``got`` called with the frames of each message.

    Returns:
        A function that checks for messages. Call it after sending too, because a send may clear the
        signal of the descriptor.
    """

    def readable() -> None:
        # The descriptor reports a change once, so read until no message waits.
        while socket.get(zmq.EVENTS) & zmq.POLLIN:
            got(socket.recv_multipart(zmq.NOBLOCK))

    loop.add_reader(socket.get(zmq.FD), readable)
    return readable


class Rung:
    """The submitting end of one of these echoes, as a context manager."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._result: Any = None
        self._future: concurrent.futures.Future[bytes] | None = None

    def __enter__(self) -> Rung:
        self._process = python("benchmarks.floor", self._name)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket: Any = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.connect(self._process.receive())
        self._loop = asyncio.new_event_loop()
        self._look = watch(self._loop, self._socket, self._got)
        self._thread = None
        if self._name != "loop":
            self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()
        self._socket.close()
        self._context.term()
        self._process.end()

    def map(self, payloads: Sequence[bytes]) -> Iterator[bytes]:
        """Echo payloads one after the other."""
        return map(self.do_job, payloads)

    def do_job(self, payload: bytes) -> bytes:
        """Echo one payload and wait for the echo."""
        if self._thread is None:
            self._send(payload)
            self._loop.run_forever()
            result: bytes = self._result
            return result
        self._future = concurrent.futures.Future()
        self._loop.call_soon_threadsafe(self._send, payload)
        return self._future.result()

    def _send(self, payload: bytes) -> None:
        frames = take(payload) if self._name == "codec" else [b"\x01", payload]
        self._socket.send_multipart(frames)
        self._look()

    def _got(self, frames: list[bytes]) -> None:
        payload = payload_of(frames) if self._name == "codec" else frames[1]
        if self._future is not None:
            self._future.set_result(payload)
        else:
            self._result = payload
            self._loop.stop()


def serve(name: str) -> None:
    """Echo for ever, in the way of one of these echoes; first print the address."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router: Any = context.socket(zmq.ROUTER)
    router.linger = 0
    port = router.bind_to_random_port("tcp://127.0.0.1")
    loop = asyncio.new_event_loop()
    jobs: queue.SimpleQueue[tuple[bytes, Any]] = queue.SimpleQueue()

    def got(frames: list[bytes]) -> None:
        payload = payload_of(frames[1:]) if name == "codec" else frames[2]
        if name == "loop":
            answer(frames[0], payload)
        else:
            jobs.put((frames[0], payload))

    def answer(link: bytes, payload: Any) -> None:
        frames = done(payload) if name == "codec" else [b"\x01", payload]
        router.send_multipart([link, *frames])
        look()

    def work() -> None:
        while True:
            loop.call_soon_threadsafe(answer, *jobs.get())

    look = watch(loop, router, got)
    threading.Thread(target=work, daemon=True).start()
    print(json.dumps(f"tcp://127.0.0.1:{port}"), flush=True)
    loop.run_forever()


CASES = [Case(partial(Rung, name), latency=f"floor_{name}") for name in RUNGS]


class Parts:
    """A manager and a worker exchange a lone job's messages in this process.

    Args:
        hold: Seconds of the worker's held GIVE; 0 for the plain handshake.

    Attributes:
        seconds: CPU time by part.
        messages: Number of messages sent.
        ended: The job that ended last.
    """

    def __init__(self, hold: float) -> None:
        self.seconds = dict.fromkeys(("manager", "worker", "codec"), 0.0)
        self.messages = self.ended = 0
        self._look = _look()
        self._now = 0.0
        self._manager = ManagerMachine(
            ManagerSettings(identity=MANAGER[0], epoch=1), least_recently_used
        )
        self._worker = WorkerMachine(
            WorkerSettings(identity=WORKER[0], epoch=1, hold=hold, resources={"slots": 1}), 1
        )
        self._step("worker", Connected(0))

    def job(self, number: int, payload: bytes) -> None:
        """Do one job, from submission to its result."""
        self._now += 300e-6
        self._step("manager", Submitted(range(number, number + 1), [payload], Kind()))

    def _step(self, name: str, event: Any) -> None:
        waiting = [(name, event)]
        while waiting:
            name, event = waiting.pop(0)
            self._now += 10e-6
            machine: Any = self._manager if name == "manager" else self._worker
            actions = self._timed(name, machine.handle, event, self._now)
            self._timed(name, machine.deadline)
            for action in actions:
                if isinstance(action, Send):
                    self.messages += 1
                    frames = self._timed("codec", codec.encode, action.message)
                    message = self._timed("codec", codec.decode, frames)
                    if name == "manager":
                        waiting.append(("worker", Received(0, message)))
                    else:
                        waiting.append(("manager", Received(b"link", message)))
                elif isinstance(action, Run):
                    outcomes = [Outcome.OK] * len(action.ids)
                    event = Finished(action.lane, action.ids, outcomes, action.payloads)
                    waiting.append(("worker", event))
                elif isinstance(action, Resolve):
                    self.ended = action.ids[0]

    def _timed(self, part: str, act: Callable[..., Any], *arguments: Any) -> Any:
        start = process_time()
        result = act(*arguments)
        self.seconds[part] += process_time() - start - self._look
        return result


def _look() -> float:
    """Return the seconds that one reading of the clock takes."""
    start = process_time()
    for _ in range(1000):
        process_time()
    return (process_time() - start) / 1000


def measure(bench: Bench) -> None:
    """Measure the work of the machines and the codec of both ends for a lone job."""
    count = bench.scale.single
    payloads = make(count, 100)
    for word, hold in (("held", 5.0), ("plain", 0.0)):
        samples: dict[str, list[float]] = {}
        messages = 0.0
        for _ in range(bench.scale.repeats):
            parts = Parts(hold)
            for number, payload in enumerate(payloads, 1):
                parts.job(number, payload)
            if parts.ended != count:
                raise RuntimeError(f"job {parts.ended} ended last; expected job {count}")
            messages = parts.messages / count
            for part, seconds in parts.seconds.items():
                samples.setdefault(part, []).append(seconds / count * 1e6)
        for part, values in samples.items():
            name = f"floor_{word}_{part}"
            bench.figures[name] = summary(values, "µs CPU", messages=messages)
            bench.say(name)


if __name__ == "__main__":
    serve(sys.argv[1])
