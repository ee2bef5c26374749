"""The lines of one device, folded: each message that came in is passed on unchanged, or refused.

A device handles a message in one step. So the lines of a step show what came in, and what went out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import ClassVar, Final

from attrs import define, field

from wmp.spark.folds.process_fold import ProcessFold
from wmp.spark.journals.lines import HEAD_COLUMNS, LineRow

_MAX_SENDS: Final = 1024
"""Number of the newest sent messages that are remembered."""
_address: Final = attrgetter("command", "source", "source_epoch", "target", "target_epoch")
_FIELDS: Final = ("session", "number", "text", "bytes", *HEAD_COLUMNS)
_fields: Final = attrgetter(*_FIELDS)


@define(eq=False)
class DeviceFold(ProcessFold):
    """The messages of a device, as its lines show them."""

    side: ClassVar[int] = 2
    _sends: deque[LineRow] = field(factory=lambda: deque(maxlen=_MAX_SENDS))
    _newest: Sequence[LineRow] = ()
    """The newest step. Of a killed device, its last lines may be lost."""

    def step(self, lines: Sequence[LineRow]) -> None:
        """Judge the step before, which is complete now."""
        before, self._newest = self._newest, lines
        self._judge(before)

    def finish(self) -> None:
        """Judge the last step, if the device ended in good order."""
        if self.me.end is not None:
            self._judge(self._newest)

    def _judge(self, lines: Sequence[LineRow]) -> None:
        """Compare the message of a step with the messages that the device sent in the step."""
        came = next((line for line in lines if line.what in ("received", "undelivered")), None)
        onward = [line for line in lines if line.what == "send" and line.source != line.node]
        self._sends += (line for line in lines if line.what == "send")
        if came is not None and came.what == "undelivered":
            self._check_undelivered(came)
        if came is not None and came.what == "received" and came.source is not None:
            self._note_link(came)
        if came is None or came.what == "undelivered" or came.reason is not None:
            for line in onward:
                text = f"{line.command} of {line.source} was sent, and none was received"
                self._break(line, "WMP-8.2", text)
            return
        for line in onward:
            self._compare(came, line)
        if came.target is not None:
            self._check_number(came, onward, 1)
            for line in onward:
                known = self._links.get(line.target or "")
                if known is not None and line.link not in known:
                    text = (
                        f"{line.command} to {line.target} was sent over {line.link}; expected a "
                        f"connection of {line.target}: {', '.join(sorted(known))}"
                    )
                    self._break(line, "WMP-8.2", text)
        elif came.command in ("READY", "PING"):
            self._check_number(came, onward, self.me.upstreams)

    def _check_number(self, came: LineRow, onward: Sequence[LineRow], expected: int) -> None:
        """Check that a message was passed on to its receiver, or to every upstream."""
        links = {line.link for line in onward}
        if len(onward) < expected or len(onward) > max(expected, len(links)):
            rule = "WMP-8.1" if came.target is None else "WMP-8.2"
            text = (
                f"{came.command} of {came.source} was passed on over {len(onward)} connections; "
                f"expected {expected}"
            )
            self._break(came, rule, text)

    def _compare(self, came: LineRow, line: LineRow) -> None:
        """Check that a message was passed on as it came, with one more hop."""
        who = f"{came.command} of {came.source}"
        if _address(came) != _address(line):
            text = (
                f"{who} to {came.target}:{came.target_epoch} was passed on as {line.command} of "
                f"{line.source} to {line.target}:{line.target_epoch}"
            )
            self._break(line, "WMP-8.2", text)
            return
        if (came.link[:1] == "#") == (line.link[:1] == "#"):
            text = f"{who} came over {came.link}, and was passed on to the same side: {line.link}"
            self._break(line, "WMP-8.9", text)
        # A message without a receiver names the devices that it has passed, and others their route.
        via = tuple(came.via or ())
        if came.target is None:
            via = (*via, line.node)
        if (
            line.hops != (came.hops or 0) + 1
            or tuple(line.via or ()) != via
            or line.node not in via
        ):
            text = (
                f"{who} came after {came.hops} devices on the route {_route(came)}, and was passed "
                f"on after {line.hops} devices on the route {_route(line)}"
            )
            self._break(line, "WMP-8.3", text)
        before, after = _fields(came), _fields(line)
        if before != after:
            changed = [
                f"{name} {old} became {new}"
                for name, old, new in zip(_FIELDS, before, after, strict=True)
                if old != new
            ]
            text = f"{who} was passed on with other fields: {', '.join(changed)}"
            self._break(line, "WMP-8.4", text)


def _route(line: LineRow) -> str:
    return " ".join(line.via or ()) or "without devices"
