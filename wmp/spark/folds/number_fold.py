"""The fold of a process's message numbers: streams, acknowledgements and challenges (WMP-7)."""

from __future__ import annotations

from collections import deque
from operator import attrgetter
from typing import Any, Final

from attrs import define, field

from wmp.core.protocol.outbound import Arrival
from wmp.message import ERROR_CODES, ErrorCode
from wmp.spark.folds.facts import FoldSink, KnownProcess
from wmp.spark.journals.lines import HEAD_COLUMNS, LineRow

UNACCEPTED: Final = frozenset({
    *("after goodbye", "claimed", "old session", "other session", "unknown session"),
    *(arrival.value for arrival in Arrival),
    # A message with one unknown job or lock is nevertheless the next of its stream.
    *(code for code in ERROR_CODES if code != ErrorCode.UNKNOWN),
})  # fmt: skip
"""Reasons for which a numbered message is not accepted."""
_MAX: Final = 4096
"""Number of streams that are remembered."""
_LABELLED: Final = frozenset({"READY", "PONG"})
"""Commands with the label of their sender."""
_MAX_LINKS: Final = 1024
"""Number of the newest connections of a peer that are remembered."""
_MAX_SENDS: Final = 64
"""Number of the newest sent messages that are remembered."""
_columns: Final = attrgetter(
    "command", "source", "source_epoch", "target", "target_epoch", "session", "number", "hops",
    "via", *HEAD_COLUMNS, "ids", "attempts", "outcomes", "bytes",
)  # fmt: skip


@define(eq=False)
class NumberFold:
    """The numbers that a process sent and received, as its lines show them.

    The numbers of a stream start at 1 in a session and grow by 1 (WMP-7.1).
    """

    me: KnownProcess
    sink: FoldSink
    _last: dict[tuple[Any, ...], int] = field(factory=dict)
    """The last number of each stream, by (whether sent, peer, epoch, session)."""
    _accepted: tuple[tuple[Any, ...], int] | None = None
    """The stream of the newest numbered message that was accepted, and the step."""
    _challenges: dict[tuple[str, int, int], None] = field(factory=dict)
    """The newest challenges that came, by peer and epoch."""
    _links: dict[str, dict[str, None]] = field(factory=dict)
    """The connections over which the messages of each node came, by its identity."""
    _sends: deque[LineRow] = field(factory=lambda: deque(maxlen=_MAX_SENDS))
    """The newest messages that the process made and sent."""

    def _break(self, line: LineRow, name: str, detail: str, **about: Any) -> None:
        """Report a violation that a line shows."""
        self.sink.violation(name, detail, (line.node, line.epoch, line.n, line.at), **about)

    def _check_sent(self, line: LineRow) -> None:
        """Check the number of a message that the process made and sent; it may be sent again."""
        if line.number is not None:
            key = (True, line.target, line.target_epoch, line.session)
            last = self._last.get(key, 0)
            if line.number > last + 1:
                self._break_number(line, "sent", last)
            self._remember(key, max(last, line.number))
        self._check_own(line)
        self._sends.append(line)
        links = self._links.get(line.target or "")
        if links is not None and line.link not in links and line.command != "ERROR":
            text = (
                f"{line.command} to {line.target} was sent over {line.link}; expected a connection "
                f"of {line.target}: {', '.join(sorted(links))}"
            )
            NumberFold._break(self, line, "WMP-1.2", text)

    def _check_own(self, line: LineRow) -> None:
        """Check what a sent message states about the messages of its receiver (WMP-7.2)."""
        peer = (line.target, line.target_epoch)
        if line.ack is not None and line.session is not None:
            key = (False, *peer, line.session)
            received = self._last.get(key, 0)
            # A message on a new route makes its receiver send again before it counts the message.
            before = self._accepted == (key, line.step)
            if line.ack != received and not (before and line.ack == received - 1):
                text = f"{line.command} was sent with ack {line.ack}; expected {received}, the"
                NumberFold._break(
                    self, line, "WMP-7.2", f"{text} highest number that was received in order"
                )
            if (line.kept or 0) > line.ack:
                text = f"{line.command} was sent with kept {line.kept}, above its ack {line.ack}"
                NumberFold._break(self, line, "WMP-14.3", text)
        if line.sent is not None and line.session is not None:
            sent = self._last.get((True, *peer, line.session), 0)
            if line.sent > sent:
                text = f"{line.command} names {line.sent} as sent; the last number was {sent}"
                NumberFold._break(self, line, "WMP-7.4", text)
        own, label = self.me.label, line.label
        # A PING that only answers a challenge has no label.
        labelled = label is not None or line.command in _LABELLED
        if labelled and own is not None and (label or "") != own:
            text = f"{line.command} has the label {label}; the start line has '{own}'"
            NumberFold._break(self, line, "start lines agree", text)
        if line.answer and (*peer, line.answer) not in self._challenges:
            text = f"{line.command} answers the challenge {line.answer}, which never came"
            NumberFold._break(self, line, "WMP-15.4", text)

    def _check_ack(self, line: LineRow) -> None:
        """Check that a received ack names a number that was sent (WMP-7.4)."""
        if line.challenge:
            self._challenges[line.source, line.source_epoch, line.challenge] = None
            if len(self._challenges) > _MAX:
                self._challenges.pop(next(iter(self._challenges)))
        mine = (line.target, line.target_epoch) == (line.node, line.epoch)
        if line.ack and line.session is not None and mine and line.reason is None:
            sent = self._last.get((True, line.source, line.source_epoch, line.session), 0)
            if line.ack > sent:
                text = f"{line.command} came with ack {line.ack}; the last number sent was {sent}"
                NumberFold._break(self, line, "WMP-7.4", text)

    def _check_received(self, line: LineRow) -> None:
        """Check the number of a message; a message that was not accepted changes nothing."""
        self._note_link(line)
        self._check_ack(line)
        mine = line.target is None or line.target == line.node
        if line.number is not None and mine and line.reason not in UNACCEPTED:
            key = (False, line.source, line.source_epoch, line.session)
            last = self._last.get(key, 0)
            if line.number != last + 1:
                self._break_number(line, "accepted", last)
            self._accepted = key, line.step
            self._remember(key, line.number)

    def _note_link(self, line: LineRow) -> None:
        """Remember over which connection a message came."""
        if line.source is None:
            return
        links = self._links.get(line.source)
        if links is None:
            links = self._links[line.source] = {}
            if len(self._links) > _MAX:
                del self._links[next(iter(self._links))]
        if line.link not in links:
            links[line.link] = None
            if len(links) > _MAX_LINKS:
                del links[next(iter(links))]

    def _check_undelivered(self, line: LineRow) -> None:
        """Check that a message that could not be delivered was sent."""
        complete = len(self._sends) < (self._sends.maxlen or 0)
        if complete and _columns(line) not in map(_columns, self._sends):
            text = f"{line.command} to {line.target} came back undelivered, and was not sent so"
            NumberFold._break(self, line, "messages arrive as sent", text)

    def _check_drop(self, line: LineRow, event: LineRow) -> None:
        """Check that a dropped message is that of the event of its step."""
        if event.what not in ("received", "undelivered") or line.command is None:
            return
        if _columns(line) != _columns(event) or line.link != event.link:
            text = f"{line.command} of {line.source} was dropped, and {event.command} came"
            NumberFold._break(self, line, "messages arrive as sent", text)

    def _remember(self, key: tuple[Any, ...], number: int) -> None:
        self._last[key] = number
        if len(self._last) > _MAX:
            self._last.pop(next(iter(self._last)))

    def _break_number(self, line: LineRow, what: str, last: int) -> None:
        text = f"{line.command} was {what} with number {line.number} after number {last}"
        NumberFold._break(self, line, "WMP-7.1", f"{text}; expected the next number")
