"""A conversation with a testee: what a script is written against.

A script is plain blocking code. It makes peers with :meth:`Talk.worker` or
:meth:`Talk.manager` (:mod:`wmp.conformance.played_peer`), lets them send, and waits for answers;
while it waits, the peers do by themselves what keeps a connection alive. Everything that the
testee sends is held against the rules that hold always, whatever the script is about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from attrs import define, field

from wmp import codec
from wmp.conformance.case import Broken, Case, Unimplemented
from wmp.conformance.frame_check import check_form
from wmp.conformance.transcript import TranscriptLine, describe
from wmp.conformance.wire import Connection, JobEnd, SubmittedJob, Wire
from wmp.errors import DecodeError
from wmp.message import Command, Field, Frame, Message

__all__ = ["Player", "ReceivedMessage", "Talk"]


@define(eq=False)
class ReceivedMessage:
    """A message of the testee, as one of the kit's peers received it."""

    at: float
    """Units since the testee was started."""
    connection: Connection
    message: Message
    frames: Sequence[Frame]
    again: bool = False
    """A numbered message that was received before."""
    asked: set[int] = field(factory=set)
    """Jobs in it that a script has asked for."""

    @property
    def command(self) -> Command:
        """Which command."""
        return self.message.command

    def __getitem__(self, name: str) -> Any:
        """A field by its name in the specification; None when it is not there."""
        return self.message.fields.get(getattr(Field, name.upper()))

    @property
    def jobs(self) -> list[tuple[int, int]]:
        """(id, attempt) of each job in its columns."""
        columns = self.message.columns
        return [] if columns is None else list(zip(columns.ids, columns.attempts, strict=True))

    @property
    def payloads(self) -> list[bytes]:
        """Payloads in its columns."""
        columns = self.message.columns
        return [] if columns is None else [bytes(one) for one in columns.payloads or ()]

    @property
    def outcomes(self) -> list[int]:
        """Outcomes in its columns."""
        columns = self.message.columns
        return [] if columns is None else list(columns.outcomes or ())


class Player(Protocol):
    """A peer that the kit plays."""

    name: str

    def is_for(self, connection: Connection, message: Message) -> bool:
        """Whether a message of the testee is for this peer."""

    def was_for(self, message: Message) -> bool:
        """Whether it was for this peer before it started again."""

    def receive(self, connection: Connection, frames: Sequence[Frame], message: Message) -> None:
        """Take it in; answer what keeps the connection alive.

        Raises:
            Broken: It breaks a rule that holds always.
        """

    def due(self) -> float:
        """When ``wait`` is to be called; infinity for never."""

    def wait(self) -> None:
        """The time has come."""


@define(eq=False)
class Talk:
    """One conversation with one testee."""

    wire: Wire
    case: Case | None = None
    players: list[Player] = field(factory=list)
    lines: list[TranscriptLine] = field(factory=list)
    ends: list[JobEnd] = field(factory=list)
    """What a manager told the submitter."""
    statuses: list[JobEnd] = field(factory=list)
    """Progress that a manager told the submitter."""
    over: bool = False
    """The testee has ended, or is not asked whether it still works."""
    book: Any = None
    """What the peers of this conversation know together of the testee."""
    finding: str = ""
    """What an informational case found out."""
    _jobs: int = 0

    # -- time

    @property
    def now(self) -> float:
        """Units since the testee was started."""
        return self.wire.now()

    def ms(self, units: float) -> int:
        """Milliseconds on the wire."""
        return round(units * self.wire.unit)

    def wait(self, units: float) -> None:
        """Let time pass, and everything that happens in it."""
        until = self.now + units
        while self.pump(until):
            pass

    def settle(self) -> None:
        """Let everything that happens "at once" happen."""
        self.wait(self.wire.grace)

    def until(self, done: Callable[[], bool], within: float, rule: str, text: str) -> None:
        """Wait until something is so.

        Raises:
            Broken: It is not, ``within`` units from now.
        """
        until = self.now + within
        while not done():
            if not self.pump(until):
                if done():
                    return
                raise Broken(rule, text)

    def pump(self, until: float) -> bool:
        """Let one thing happen; False when nothing more happens before ``until``."""
        due = min([until, *(player.due() for player in self.players)])
        arrived = self.wire.receive(due)
        if arrived is not None:
            self._receive(*arrived)
            return True
        if self.now < due:
            return True  # the submitter was told something
        if due >= until:
            return False
        for player in self.players:
            if player.due() <= self.now:
                player.wait()
        return True

    # -- words

    def send(self, who: str, connection: Connection, frames: Sequence[Frame]) -> None:
        """Send frames as they are."""
        message = self.read(frames)
        self.lines.append(
            TranscriptLine(self.now, who, ">", tuple(frames), message, describe(message, frames))
        )
        self.wire.send(connection, frames)

    def read(self, frames: Sequence[Frame]) -> Message | None:
        """Read frames; None when they are no message."""
        try:
            return codec.decode(frames)
        except DecodeError:
            return None

    def check_form(self, frames: Sequence[Frame]) -> None:
        """Hold what the testee says against section 2."""
        check_form(frames)

    def remark(self, text: str) -> None:
        """Note something in the conversation."""
        self.lines.append(TranscriptLine(self.now, "", "#", text=text))

    def _receive(self, connection: Connection, frames: Sequence[Frame]) -> None:
        message = self.read(frames)
        receivers = [
            player
            for player in self.players
            if message is not None and player.is_for(connection, message)
        ]
        names = " ".join(player.name for player in receivers)
        self.lines.append(
            TranscriptLine(self.now, names, "<", tuple(frames), message, describe(message, frames))
        )
        self.check_form(frames)
        if message is None:
            raise Broken("WMP-2.4", "what it says is no message")
        if not receivers:
            self._nobody(connection, message)
        for player in receivers:
            player.receive(connection, frames, message)

    def _nobody(self, connection: Connection, message: Message) -> None:
        known = [p for p in self.players if getattr(p, "connection", None) == connection]
        if any(player.was_for(message) for player in self.players):
            return
        if message.to and known:
            raise Broken(
                "WMP-2.5",
                f"{message.command.name} to {message.to!r}: nobody on this connection has that "
                "path; an answer's 'to' is the 'from' that it answers, reversed",
            )

    def farewell(self) -> None:
        """Say what lets the testee end soon: nobody listens any more after this."""

    # -- a manager's submitter

    def submit(self, payload: bytes | None = None, *, role: str = "echo", **wishes: Any) -> str:
        """Hand a job to the manager; returns its name, which is its payload if none is given."""
        self._jobs += 1
        name = f"job-{self._jobs}"
        job = SubmittedJob(name, name.encode() if payload is None else payload, role, **wishes)
        told = "".join(f" {key}={value}" for key, value in wishes.items())
        self.remark(f"submit {name} role={role}{told}")
        self.wire.submit(job)
        return name

    def cancel(self, name: str) -> None:
        """The submitter wants no result any more."""
        self.remark(f"cancel {name}")
        self.wire.cancel(name)

    def collect_ends(self) -> list[JobEnd]:
        """What the submitter has been told so far.

        Raises:
            Broken: A job ended twice (WMP-6.3).
        """
        for end in self.wire.ends():
            if end.outcome == "status":
                self.remark(f"{end.name} status {end.payload!r}")
                self.statuses.append(end)
                continue
            self.remark(f"{end.name} ended: {end.outcome} {end.payload!r}")
            if any(end.name == other.name for other in self.ends):
                raise Broken("WMP-6.3", f"{end.name} ended twice")
            self.ends.append(end)
        return self.ends

    def end_of(
        self, name: str, outcome: str = "ok", *, within: float | None = None, rule: str = ""
    ) -> JobEnd:
        """Wait until a job has ended.

        Raises:
            Broken: It has not, or otherwise.
        """
        rule = rule or self.first_rule
        grace = self.wire.grace if within is None else within
        found: list[JobEnd] = []

        def told() -> bool:
            found[:] = [end for end in self.collect_ends() if end.name == name]
            return bool(found)

        self.until(told, grace, rule, f"{name} did not end within {grace:g} units")
        if found[0].outcome != outcome:
            raise Broken(rule, f"{name} ended as {found[0].outcome}, expected {outcome}")
        return found[0]

    def not_ended(self, name: str, rule: str = "") -> None:
        """Hold that a job has not ended."""
        for end in self.collect_ends():
            if end.name == name:
                raise Broken(rule or self.first_rule, f"{name} ended: {end.outcome}")

    # -- what a script says of the testee

    @property
    def first_rule(self) -> str:
        """What an unmet expectation breaks."""
        return self.case.rules[0] if self.case is not None else "WMP-10.1"

    def check(self, good: bool, text: str, rule: str = "", level: str = "") -> None:
        """Raise :class:`Broken` unless ``good``; ``level`` where a part of a rule has another."""
        if not good:
            raise Broken(rule or self.first_rule, text, level)

    def unimplemented(self, text: str) -> None:
        """The testee does not do what this case is about.

        Raises:
            Unimplemented: Always.
        """
        raise Unimplemented(text)

    def inform(self, text: str) -> None:
        """Say what was found out: the case is INFORMATIONAL."""
        self.remark(text)
        self.finding = text
