"""A testee in this process, in virtual time: fast and repeatable."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from attrs import define, field

from wmp.conformance.script.case import Broken
from wmp.conformance.wire.wire import EPOCH, Connection, JobEnd, SubmittedJob
from wmp.message import Frame

_MAX_TICKS = 100
_UPPER = 1000
"""The numbers from here on are those of connections of a device's upper ROUTER."""

Sends = Sequence[tuple[int | bytes, Sequence[Frame] | None]]
"""The messages that a testee sends: (link, frames).

A link is the number of a DEALER of the testee, or the routing id that the testee's ROUTER gave a
connection. To a connection of the ROUTER to which managers dial in (device), the kit gives a number
from 1000 on. None instead of frames: the testee has replaced this DEALER,
and later messages go over the new DEALER.
"""


class Testee(Protocol):
    """A sans-I/O implementation. Times are in seconds; a unit is one second."""

    def start(self, now: float) -> Sends:
        """Begin; all DEALERs are connected."""

    def receive(self, link: int | bytes, frames: Sequence[Frame], now: float) -> Sends:
        """Handle a message."""

    def undelivered(self, link: int | bytes, frames: Sequence[Frame], now: float) -> Sends:
        """Handle a message that could not be sent: there is no such connection (EHOSTUNREACH)."""

    def deadline(self) -> float | None:
        """Return the time of the next ``tick``; None when no tick is due."""

    def tick(self, now: float) -> Sends:
        """Act at the due time."""


@runtime_checkable
class ManagerTestee(Testee, Protocol):
    """A manager, with the jobs of its submitter."""

    def submit(self, job: SubmittedJob, now: float) -> Sends:
        """Take a job."""

    def cancel(self, name: str, now: float) -> Sends:
        """Cancel a job."""

    def ends(self) -> list[JobEnd]:
        """Return the ends since the last call."""


@runtime_checkable
class WorkerTestee(Testee, Protocol):
    """A worker with the handlers of ``specs/testee.md``, and a way to end."""

    def drain(self, now: float) -> Sends:
        """Finish or hand back all jobs, then send BYE."""

    @property
    def ended(self) -> bool:
        """Whether the worker has ended."""


@define(eq=False)
class VirtualWire:
    """A :class:`~wmp.conformance.wire.wire.Wire` to a :class:`Testee`."""

    testee: Testee
    unit: int = 1000
    grace: float = 0.0
    patience: float = 0.0
    may_end: bool = False
    epoch: int = EPOCH
    _now: float = 0.0
    _arrived: deque[tuple[Connection, Sequence[Frame]]] = field(factory=deque)
    _replaced: dict[int, int] = field(factory=dict)
    _open: dict[int | bytes, Connection] = field(factory=dict)
    _dialled: int = 0

    _started: bool = False
    _stopped: bool = False
    _waiting: deque[tuple[Connection, Sequence[Frame]]] = field(factory=deque)
    """Messages for a stopped testee."""

    def stalled(self, evident: bool) -> str:
        return ""

    def now(self) -> float:
        return self._now

    def start(self) -> None:
        if not self._started:
            self._started = True
            self._call(self.testee.start)

    def dial(self, *, upper: bool = False) -> Connection:
        self._dialled += 1
        connection = Connection("upper" if upper else "dialled", self._dialled)
        self._open[self._link(connection)] = connection
        return connection

    def hang_up(self, connection: Connection) -> None:
        self._open.pop(self._link(connection), None)

    def send(self, connection: Connection, frames: Sequence[Frame]) -> None:
        if self._stopped:
            self._waiting.append((connection, frames))
            return
        link = self._link(connection)
        if connection not in (self._open.get(link), self._taken(connection.endpoint)):
            return
        self._call(self.testee.receive, link, tuple(frames))

    def receive(self, until: float) -> tuple[Connection, Sequence[Frame]] | None:
        still = 0
        while not self._arrived:
            if self.ended and not self.may_end:
                raise Broken(
                    "WMP-10.1", "the testee ended during the case; expected it to run until the end"
                )
            due = None if self._stopped else self.testee.deadline()
            if due is None or due > until:
                self._now = max(self._now, until)
                return None
            still = still + 1 if due <= self._now else 0
            if still > _MAX_TICKS:
                raise Broken(
                    "WMP-10.1",
                    f"the deadline of the testee is still {due:.3f} after {_MAX_TICKS} ticks at "
                    "this time",
                )
            self._now = max(self._now, due)
            self._call(self.testee.tick)
        return self._arrived.popleft()

    def submit(self, job: SubmittedJob) -> None:
        assert isinstance(self.testee, ManagerTestee)
        self._call(self.testee.submit, job)

    def cancel(self, name: str) -> None:
        assert isinstance(self.testee, ManagerTestee)
        self._call(self.testee.cancel, name)

    def ends(self) -> list[JobEnd]:
        assert isinstance(self.testee, ManagerTestee)
        return self.testee.ends()

    def restart(self) -> bool:
        again = getattr(self.testee, "restart", None)
        if again is not None:
            self._call(again)
        return again is not None

    def stop(self) -> bool:
        self._stopped = True
        return True

    def resume(self) -> None:
        self._stopped = False
        while self._waiting:
            self.send(*self._waiting.popleft())

    def drain(self) -> None:
        assert isinstance(self.testee, WorkerTestee)
        self.may_end = True
        self._call(self.testee.drain)

    @property
    def ended(self) -> bool:
        return bool(getattr(self.testee, "ended", False))

    def close(self) -> str:
        return ""

    def _taken(self, index: int) -> Connection:
        # ROUTERs make such routing ids: the first byte is zero.
        return Connection("taken", index, b"\x00%d" % self._replaced.get(index, 0))

    def _link(self, connection: Connection) -> int | bytes:
        match connection.side:
            case "dialled":
                return b"\x00dial" + bytes((connection.endpoint,))
            case "upper":
                return _UPPER + connection.endpoint
        return connection.endpoint

    def _call(self, method: Callable[..., Sends], *arguments: object) -> None:
        """Call a method of the testee, and take the messages that it sends.

        Raises:
            Broken: The testee raised an exception (WMP-10.1).
        """
        try:
            sends = method(*arguments, self._now)
        except Exception as error:  # Any exception is a fault of the testee.
            text = f"the testee raised {type(error).__name__}: {error}"
            raise Broken("WMP-10.1", text) from error
        self._collect(sends)

    def _collect(self, sends: Sends) -> None:
        for link, frames in sends:
            if isinstance(link, int) and link < _UPPER:
                if frames is None:
                    self._replaced[link] = self._replaced.get(link, 0) + 1
                else:
                    self._arrived.append((self._taken(link), frames))
            elif frames is not None:
                if connection := self._open.get(link if isinstance(link, int) else bytes(link)):
                    self._arrived.append((connection, frames))
                else:
                    self._call(self.testee.undelivered, link, frames)
