"""A conversation with a testee: the interface of the scripts.

A script is plain blocking code. It makes peers with :meth:`ManagerConversation.worker` or
:meth:`WorkerConversation.manager` (:mod:`wmp.conformance.peers.conversations`), lets them send, and
waits for answers. Meanwhile the peers keep their connections alive by themselves. Every script
checks every message of the testee against the rules that hold at all times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from attrs import define, field

from wmp import codec
from wmp.conformance.script.case import Broken, Case, Unimplemented
from wmp.conformance.script.transcript import TranscriptLine, describe
from wmp.conformance.wire.frame_check import check_form
from wmp.conformance.wire.wire import Connection, JobEnd, SubmittedJob, Wire
from wmp.errors import DecodeError
from wmp.message import Command, Field, Frame, Message


@define(eq=False)
class ReceivedMessage:
    """A message of the testee, as one of the kit's peers received it."""

    at: float
    """Units since the testee was started."""
    connection: Connection
    message: Message
    frames: Sequence[Frame]
    again: bool = False
    """Whether a message of that number was received before."""
    line: int = -1
    """The line of the message in the conversation."""
    hands_back: bool = False
    """Whether the message is a DONE, and the worker may hand each of its jobs back (WMP-6.18)."""
    taken: set[int] = field(factory=set)
    """Ids of the jobs of this message that the script has taken."""

    @property
    def command(self) -> Command:
        """The command of the message."""
        return self.message.command

    def __getitem__(self, name: str) -> Any:
        """Return a field by its name in the specification; None when the message lacks it."""
        return self.message.fields.get(getattr(Field, name.upper()))

    @property
    def jobs(self) -> list[tuple[int, int]]:
        """(id, attempt) of each job in the columns."""
        columns = self.message.columns
        return [] if columns is None else list(zip(columns.ids, columns.attempts, strict=True))

    @property
    def payloads(self) -> list[bytes]:
        """The payloads in the columns."""
        columns = self.message.columns
        return [] if columns is None else [bytes(payload) for payload in columns.payloads or ()]

    @property
    def outcomes(self) -> list[int]:
        """The outcomes in the columns."""
        columns = self.message.columns
        return [] if columns is None else list(columns.outcomes or ())


class Player(Protocol):
    """A peer that the kit plays: a manager, a worker or a neighbor of a device."""

    name: str

    def is_for(self, connection: Connection, message: Message) -> bool:
        """Return whether a message of the testee is for this peer."""

    def was_for(self, message: Message) -> bool:
        """Return whether a message was meant for this peer before its last restart."""

    def receive(self, connection: Connection, frames: Sequence[Frame], message: Message) -> None:
        """Take a message in, and send the answers that keep the connection alive.

        Raises:
            Broken: The message breaks a rule that always holds.
        """

    def due(self) -> float:
        """Return the time of the next call of ``wait``; infinity for none."""

    def wait(self) -> None:
        """Act at the due time."""


@define(eq=False)
class Conversation:
    """One conversation with one testee."""

    wire: Wire
    case: Case | None = None
    players: list[Player] = field(factory=list)
    lines: list[TranscriptLine] = field(factory=list)
    ends: list[JobEnd] = field(factory=list)
    """Ends of jobs that the manager reported."""
    statuses: list[JobEnd] = field(factory=list)
    """Progress that the manager reported."""
    over: bool = False
    """Whether the testee has ended, or may end now."""
    book: Any = None
    """The knowledge about the testee that the peers of this conversation share."""
    subject: int | None = None
    """The line of the message that the script took last; None after the script has waited since."""
    means: Mapping[str, str] = field(factory=dict)
    """Maps rules that are always checked to the rules that are reported in their place."""
    finding: str = ""
    """The observation of an informational case."""
    _jobs: int = 0

    # -- time

    @property
    def now(self) -> float:
        """Units since the testee was started."""
        return self.wire.now()

    def ms(self, units: float) -> int:
        """Convert units to milliseconds."""
        return round(units * self.wire.unit)

    def wait(self, units: float) -> None:
        """Let time pass, and handle everything that happens meanwhile."""
        self.subject = None
        until = self.now + units
        while self.pump(until):
            pass

    def settle(self) -> None:
        """Wait for everything that happens "at once"."""
        self.wait(self.wire.grace)

    def until(self, done: Callable[[], bool], within: float, rule: str, text: str) -> None:
        """Wait until a condition holds.

        Raises:
            Broken: The condition does not hold within ``within`` units.
        """
        until = self.now + within
        while not done():
            if not self.pump(until):
                if done():
                    return
                raise Broken(rule, text)

    def pump(self, until: float) -> bool:
        """Handle one event; return False when none happens before ``until``."""
        due = min([until, *(player.due() for player in self.players)])
        arrived = self.wire.receive(due)
        if arrived is not None:
            self._receive(*arrived)
            return True
        if self.now < due:
            return True  # the manager reported something
        if due >= until:
            return False
        for player in self.players:
            if player.due() <= self.now:
                player.wait()
        return True

    # -- messages

    def send(self, who: str, connection: Connection, frames: Sequence[Frame]) -> None:
        """Send frames unchanged."""
        message = self.read(frames)
        self.lines.append(
            TranscriptLine(self.now, who, ">", tuple(frames), message, describe(message, frames))
        )
        self.wire.send(connection, frames)

    def turn_to(self, connection: Connection | None) -> None:
        """Prepare to send over a connection: messages of other connections must not cross."""

    def read(self, frames: Sequence[Frame]) -> Message | None:
        """Read frames; None when they are not a message."""
        try:
            return codec.decode(frames)
        except DecodeError:
            return None

    def check_form(self, connection: Connection, frames: Sequence[Frame]) -> None:
        """Check a message of the testee against section 2."""
        check_form(frames)

    def remark(self, text: str) -> None:
        """Add a remark to the conversation."""
        self.lines.append(TranscriptLine(self.now, "", "#", text=text))

    def _receive(self, connection: Connection, frames: Sequence[Frame]) -> None:
        message = self.read(frames)
        receivers = [
            player
            for player in self.players
            if message is not None and player.is_for(connection, message)
        ]
        names = " ".join(player.name for player in receivers)
        line = len(self.lines)
        self.lines.append(
            TranscriptLine(self.now, names, "<", tuple(frames), message, describe(message, frames))
        )
        try:
            self._hand_over(connection, frames, message, receivers)
        except Broken as broken:
            if broken.accused is None:
                broken.accused = line
            raise

    def _hand_over(
        self,
        connection: Connection,
        frames: Sequence[Frame],
        message: Message | None,
        receivers: Sequence[Player],
    ) -> None:
        """Check a message, and give it to its receivers."""
        self.check_form(connection, frames)
        if message is None:
            raise Broken("WMP-2.4", "the frames that the testee sent are not a message")
        if not receivers:
            self._nobody(connection, message)
        for player in receivers:
            player.receive(connection, frames, message)

    def _nobody(self, connection: Connection, message: Message) -> None:
        known = [p for p in self.players if getattr(p, "connection", None) == connection]
        if any(player.was_for(message) for player in self.players):
            return
        devices = {getattr(player, "hops", ())[:2] for player in self.players}
        if message.command is Command.ERROR and message.to and message.to[::-1] in devices:
            raise Broken(
                "WMP-10.3", "the testee answered an ERROR of a device by ERROR; expected no answer"
            )
        self._elsewhere(message)
        if message.to and known:
            raise Broken(
                "WMP-2.5",
                f"{message.command.name} to {message.to!r}: no peer on this connection has that "
                "path; expected the reversed 'from' of the message that is answered",
            )

    def _elsewhere(self, message: Message) -> None:
        """Check that a message to a peer does not arrive on another peer's connection."""

    def farewell(self) -> None:
        """Send the messages that let the testee end soon. No peer answers after this call."""

    # -- a manager's submitter

    def submit(self, payload: bytes | None = None, *, role: str = "echo", **wishes: Any) -> str:
        """Submit a job to the manager; return its name, which is also the default payload."""
        self._jobs += 1
        name = f"job-{self._jobs}"
        job = SubmittedJob(name, name.encode() if payload is None else payload, role, **wishes)
        options = "".join(f" {key}={value}" for key, value in wishes.items())
        self.remark(f"submit {name} role={role}{options}")
        self.wire.submit(job)
        return name

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the process of the testee while the body runs. Messages to the testee wait.

        Raises:
            Unimplemented: The kit cannot stop this testee.
        """
        self.settle()
        self.remark("the process of the testee is stopped")
        if not self.wire.stop():
            self.unimplemented("the kit stops only a machine of this library, in virtual time")
        try:
            yield
        finally:
            self.wire.resume()
        self.remark("the process of the testee goes on")

    def restart(self) -> None:
        """End the testee without a word, and start it again with its store.

        Raises:
            Unimplemented: The kit cannot restart this testee.
        """
        self.settle()
        self.remark("the testee is killed, and starts again with its store")
        if not self.wire.restart():
            self.unimplemented("the kit cannot restart this testee")

    def cancel(self, name: str) -> None:
        """Cancel a job: the submitter wants no result any more."""
        self.remark(f"cancel {name}")
        self.wire.cancel(name)

    def collect_ends(self) -> list[JobEnd]:
        """Return all ends that the manager has reported so far.

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
                raise Broken(
                    "WMP-6.3", f"the manager reported the end of {end.name} twice; expected once"
                )
            self.ends.append(end)
        return self.ends

    def end_of(
        self, name: str, outcome: str = "ok", *, within: float | None = None, rule: str = ""
    ) -> JobEnd:
        """Wait until a job has ended; return its end.

        Raises:
            Broken: The job did not end, or ended with another outcome.
        """
        rule = rule or self.first_rule
        grace = self.wire.grace if within is None else within
        ends: list[JobEnd] = []

        def ended() -> bool:
            ends[:] = [end for end in self.collect_ends() if end.name == name]
            return bool(ends)

        self.until(ended, grace, rule, f"{name} did not end within {grace:g} units")
        if ends[0].outcome != outcome:
            raise Broken(rule, f"{name} ended as {ends[0].outcome}; expected {outcome}")
        return ends[0]

    def not_ended(self, name: str, rule: str = "") -> None:
        """Check that a job has not ended."""
        for end in self.collect_ends():
            if end.name == name:
                raise Broken(
                    rule or self.first_rule, f"{name} ended as {end.outcome}; expected no end yet"
                )

    # -- verdicts of a script

    @property
    def first_rule(self) -> str:
        """The rule that an unmet expectation breaks."""
        return self.case.rules[0] if self.case is not None else "WMP-10.1"

    def check(self, good: bool, text: str, rule: str = "", level: str = "") -> None:
        """Raise :class:`Broken` unless ``good``; ``level`` overrides the level of the rule."""
        if not good:
            raise Broken(rule or self.first_rule, text, level, accused=self.subject)

    def unimplemented(self, text: str) -> None:
        """Report that the testee does not implement the subject of this case.

        Raises:
            Unimplemented: Always.
        """
        raise Unimplemented(text)

    def inform(self, text: str) -> None:
        """Report an observation; the case becomes INFORMATIONAL."""
        self.remark(text)
        self.finding = text
