"""Many workers in one process, each with a connection. Started by ``--only growth``.

``python -m benchmarks.crowd ENDPOINT --workers N [--role R] [--apart] [--credit N]``. One ROUTER
connects N times: a manager has N connected workers, and this process has one socket. The workers
use the plain handshake, one job at a time, and send only the messages that a manager without losses
needs.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from typing import Any

import zmq

from wmp import codec
from wmp.message import Columns, Command, Field, Message

__all__ = ["Crowd", "main"]

_BATCH = 50
"""Number of connections before a pause, because a listener queues a hundred."""

_EPOCH = 1
_TIMEOUT = 20_000


class Crowd:
    """N workers with one slot each.

    Args:
        endpoint: Endpoint of a manager; with ``mute`` of any socket.
        workers: Number of workers.
        role: The role that all of them offer.
        apart: Whether each worker also offers a role of its own.
        credit: Credit that each worker reports; workers with credit 0 are busy elsewhere.
        mute: Only connect and send READY: the other end need not answer.
    """

    def __init__(
        self,
        endpoint: str,
        workers: int,
        role: str,
        *,
        apart: bool = False,
        credit: int = 1,
        mute: bool = False,
    ) -> None:
        self._roles = [[role, f"host-{n}"] if apart else [role] for n in range(workers)]
        self._credit = credit
        self._ready = [0] * workers
        self._lock = [0] * workers
        self._number = [0] * workers
        self._ack = [0] * workers
        socket: Any = zmq.Context.instance().socket(zmq.ROUTER)
        socket.linger = 0
        socket.set_hwm(0)
        socket.router_mandatory = True
        self._socket: Any = socket
        self._waits = 0
        for start in range(0, workers, _BATCH):
            group = range(start, min(start + _BATCH, workers))
            for number in group:
                socket.connect_routing_id = _link(number)
                socket.connect(endpoint)
                self._say_ready(number)
                if not mute:
                    self._send(number, Command.PING, {})
            # PONG shows that a connection is established.
            self._waits += 0 if mute else len(group)
            while self._waits:
                if not socket.poll(_TIMEOUT):
                    raise TimeoutError(f"{self._waits} of {workers} workers received no answer")
                self.turn()

    def ping(self) -> None:
        """Send PING for every worker, and wait for the answers."""
        for number in range(len(self._ready)):
            self._send(number, Command.PING, {})
            self._waits += 1
            while self._waits > _BATCH:
                self.turn()
        while self._waits:
            self.turn()

    def turn(self) -> None:
        """Wait for one message and answer it."""
        link, *frames = self._socket.recv_multipart()
        number = int(link[1:])
        message = codec.decode(frames)
        fields, to = message.fields, message.answer_to
        self._ack[number] = max(self._ack[number], fields.get(Field.NUMBER, 0))
        match message.command:
            case Command.PONG:
                self._waits -= 1
            case Command.WAKE:
                self._lock[number] += 1
                give = {
                    Field.LOCK: self._lock[number],
                    Field.WANT: 1,
                    Field.ROLES: [fields[Field.ROLE]],
                    Field.NEEDS: fields[Field.NEEDS],
                }
                self._send(number, Command.GIVE, give, to)
            case Command.TAKE:
                assert message.columns is not None
                jobs = message.columns
                self._number[number] += 1
                done = {
                    Field.NUMBER: self._number[number],
                    Field.SESSION: fields[Field.SESSION],
                    Field.ACK: self._ack[number],
                    Field.MANAGER: fields[Field.MANAGER],
                }
                columns = Columns(
                    jobs.ids, jobs.attempts, outcomes=[0] * len(jobs.ids), payloads=jobs.payloads
                )
                self._send(number, Command.DONE, done, to, columns)
                self._say_ready(number)
            case Command.NO:
                self._say_ready(number)

    def serve(self) -> None:
        """Answer for ever. After a line on standard input, every worker sends PING."""
        lines: Any = zmq.Context.instance().socket(zmq.PULL)
        lines.bind("inproc://lines")
        threading.Thread(target=_read_lines, daemon=True).start()
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(lines, zmq.POLLIN)
        while True:
            for socket, _ in poller.poll():
                if socket is self._socket:
                    self.turn()
                else:
                    lines.recv()
                    self.ping()
                    print("true", flush=True)

    def _say_ready(self, number: int) -> None:
        self._ready[number] += 1
        fields = {
            Field.READY: self._ready[number],
            Field.CREDIT: self._credit,
            Field.ROLES: self._roles[number],
            Field.RESOURCES: {"slots": 1},
        }
        self._send(number, Command.READY, fields)

    def _send(
        self,
        number: int,
        command: Command,
        fields: dict[Any, Any],
        to: Any = (),
        columns: Columns | None = None,
    ) -> None:
        source = (b"worker %d" % number, _EPOCH)
        frames = codec.encode(Message(command, to, source, fields, columns))
        self._socket.send_multipart([_link(number), *frames])


def _link(number: int) -> bytes:
    return b"w%d" % number


def _read_lines() -> None:
    push: Any = zmq.Context.instance().socket(zmq.PUSH)
    push.connect("inproc://lines")
    for line in sys.stdin.buffer:
        push.send(line)


def main() -> None:
    """Connect, report when all workers are connected, and serve."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crowd")
    parser.add_argument("endpoint")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--role", default="default")
    parser.add_argument(
        "--apart", action="store_true", help="give each worker a further role of its own"
    )
    parser.add_argument("--credit", type=int, default=1)
    parser.add_argument("--mute", action="store_true")
    options = parser.parse_args()
    crowd = Crowd(
        options.endpoint,
        options.workers,
        options.role,
        apart=options.apart,
        credit=options.credit,
        mute=options.mute,
    )
    print(json.dumps(options.workers), flush=True)
    crowd.serve()


if __name__ == "__main__":
    main()
