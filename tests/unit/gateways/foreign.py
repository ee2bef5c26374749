"""Drive a machine of another protocol by hand: what it sends, runs and reports."""

from __future__ import annotations

from collections.abc import Sequence

from wmp.actions import Drop, Halt, Interrupt, Reconnect, Run
from wmp.codec import pack_error, pack_frames
from wmp.events import Connected, Finished, Ticked
from wmp.foreign import Arrived, Emit, EndRequest
from wmp.message import Outcome


class Driven:
    """A machine with a clock, and the actions that it returned since the last look."""

    def __init__(self, machine) -> None:
        self.machine = machine
        self.now = 100.0
        self.actions = []
        self.codec = ""
        """Codec of the newest request that was begun."""

    def feed(self, event) -> list:
        """Give the machine an event; return the actions."""
        self.actions = self.machine.handle(event, self.now)
        for codec, _ in self.runs:
            self.codec = codec
        return self.actions

    def connect(self) -> list:
        return self.feed(Connected(0))

    def get(self, *frames: bytes, peer: bytes = b"") -> list:
        """Let a message arrive."""
        return self.feed(Arrived(0, peer, frames))

    def finish(self, result: bytes | Sequence[bytes] = b"", lane: int | None = None) -> list:
        """Let the handler of a lane end with a result."""
        payload = result if isinstance(result, bytes) else pack_frames(result)
        return self._end(lane, Outcome.OK, payload)

    def fail(self, lane: int | None = None) -> list:
        """Let the handler of a lane end with an error."""
        return self._end(lane, Outcome.ERROR, pack_error("ValueError", "no"))

    def _end(self, lane: int | None, outcome: Outcome, payload: bytes) -> list:
        lane = self.lane if lane is None else lane
        return self.feed(Finished(lane, (lane,), (outcome,), (payload,)))

    def wait(self, seconds: float) -> list:
        """Let time pass; give the machine ``Ticked`` whenever one is due. Return all actions."""
        end, actions = self.now + seconds, []
        while (due := self.machine.deadline()) is not None and due <= end:
            assert due >= self.now
            self.now = due
            actions += self.feed(Ticked())
            assert self.machine.deadline() is None or self.machine.deadline() > self.now
        self.now = end
        self.actions = actions
        return actions

    @property
    def lane(self) -> int:
        """The lane of the newest ``Run`` of all times."""
        return self.machine.statistics().requests

    @property
    def sent(self) -> list[tuple[bytes, ...]]:
        """The messages of the last step."""
        return [action.frames for action in self.actions if isinstance(action, Emit)]

    @property
    def runs(self) -> list[tuple[str, bytes]]:
        """Codec and payload of each request that the last step began."""
        return [(a.kind.codec, a.payloads[0]) for a in self.actions if isinstance(a, Run)]

    @property
    def drops(self) -> list[str]:
        """The reasons for which the last step dropped messages."""
        return [action.reason for action in self.actions if isinstance(action, Drop)]

    @property
    def causes(self) -> list[str]:
        """The texts, for the log, of the messages that the last step dropped."""
        return [action.detail for action in self.actions if isinstance(action, Drop)]

    @property
    def answers(self) -> list[tuple[int, tuple[bytes, ...] | None, int]]:
        """The requests that the last step ended."""
        return [(a.id, a.frames, a.tries) for a in self.actions if isinstance(a, EndRequest)]

    @property
    def interrupted(self) -> list[int]:
        """The lanes that the last step interrupted."""
        return [action.lane for action in self.actions if isinstance(action, Interrupt)]

    @property
    def reopened(self) -> bool:
        """Whether the last step replaced the socket."""
        return Reconnect(0) in self.actions

    @property
    def halted(self) -> bool:
        """Whether the last step ended the machine."""
        return Halt(None) in self.actions
