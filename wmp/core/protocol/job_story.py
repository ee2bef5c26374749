"""The story of a job: the events of one job at one machine, as a list.

A story is computed from the events that a machine takes and the actions that it returns. No code
inside the machines writes a story, so no case can be forgotten, and a machine without stories has
no cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import define, field, frozen

from wmp.actions import (
    Interrupt,
    ManagerAction,
    Note,
    Notify,
    Recall,
    Resolve,
    Run,
    Send,
    WorkerAction,
)
from wmp.core.protocol.error_replies import whom
from wmp.events import (
    Cancelled,
    Finished,
    ManagerEvent,
    Recalled,
    Received,
    Reported,
    Submitted,
    Undelivered,
    WorkerEvent,
)
from wmp.message import Field, Message, Outcome, Peer, counted, named

MAX_EVENTS: Final = 64
"""Maximum number of events that are kept of one job.

The first half and the newest half are kept. A line between them counts the omitted events.
"""


@frozen
class StoryEvent:
    """One event in the story of a job."""

    at: float
    """Seconds on the clock of the machine's ``now``."""
    what: str
    """Name of the event, with a past participle: ``submitted``, ``TAKE sent``, ``ended``."""
    peer: Peer | None = None
    """(identity, epoch) of the other end of a message; None when there was no message."""
    attempt: int = 0
    """Number of the lease; 0 when the event is about no lease."""
    detail: str = ""

    def __str__(self) -> str:
        peer = f" {named(self.peer[0])}" if self.peer is not None else ""
        attempt = f", attempt {self.attempt}" if self.attempt else ""
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.at:.6f} {self.what}{peer}{attempt}{detail}"


_Key = tuple[Peer | None, int]
"""(owner, number) of a job. The owner is None if the machine is the manager of the job."""


@define(eq=False)
class Stories:
    """The stories of the newest jobs of one machine.

    Args:
        maximum: Jobs whose stories are kept; a new story replaces the oldest.
        me: (identity, epoch) of the machine, if it is a manager; None at a worker, whose jobs
            are kept by the manager that owns them.
    """

    maximum: int
    me: Peer | None = None
    _events: dict[_Key, list[StoryEvent]] = field(factory=dict)
    _omitted: dict[_Key, int] = field(factory=dict)
    """Number of events left out of a story, by job."""
    _lanes: dict[int, tuple[Peer, int]] = field(factory=dict)
    """Owner of the jobs on each running lane, and the number of jobs on the lane that have not
    ended.
    """

    def of(self, job: int, owner: bytes | None = None) -> list[StoryEvent]:
        """Return the story of a job, oldest event first; empty when none is kept.

        Args:
            job: The number that the job's manager gave it.
            owner: At a worker: identity of that manager. None for the newest job of that number.
        """
        keys = [
            key
            for key in self._events
            if key[1] == job and (owner is None or key[0] is None or key[0][0] == owner)
        ]
        if not keys:
            return []
        events, omitted = self._events[keys[-1]], self._omitted.get(keys[-1], 0)
        if not omitted:
            return list(events)
        half = MAX_EVENTS // 2
        gap = StoryEvent(events[half].at, f"{counted(omitted, 'event')} left out")
        return [*events[:half], gap, *events[half:]]

    def record(
        self,
        event: ManagerEvent | WorkerEvent,
        actions: Sequence[ManagerAction | WorkerAction],
        now: float,
    ) -> None:
        """Add one step of the machine: the event that it took and the actions that it returned."""
        match event:
            case Submitted(ids=ids):
                self._add(now, None, ids, "submitted")
            case Cancelled(ids=ids):
                self._add(now, None, ids, "cancellation requested")
            case Received(message=message):
                self._message(now, message, "received from", message.sender)
            case Undelivered(message=message):
                self._message(now, message, "not delivered to", whom(message))
            case Finished(lane=lane, ids=ids, outcomes=outcomes):
                details = [Outcome(outcome).name.lower() for outcome in outcomes]
                self._add(now, self._owner(lane, ended=len(ids)), ids, "finished", details=details)
            case Recalled(lane=lane, ids=ids):
                self._add(now, self._owner(lane, ended=len(ids)), ids, "recalled")
            case Reported(lane=lane, id=id, fraction=fraction, text=text):
                details = [_progress(fraction, text)]
                self._add(now, self._owner(lane), [id], "reported", details=details)
        for action in actions:
            self._action(now, action)

    def _action(self, now: float, action: ManagerAction | WorkerAction) -> None:
        match action:
            case Send(message=message):
                self._message(now, message, "sent to", whom(message))
            case Note(reason=reason, peer=peer, owner=owner, ids=ids, attempts=attempts):
                self._add(now, owner, ids, f"lease lost ({reason})", peer, attempts)
            case Resolve(ids=ids, ends=ends, attempts=attempts):
                details = [end.value for end in ends]
                self._add(now, None, ids, "ended", None, attempts, details)
            case Notify(id=id, fraction=fraction, text=text):
                self._add(now, None, [id], "reported", details=[_progress(fraction, text)])
            case Run(lane=lane, manager=owner, ids=ids, attempts=attempts):
                self._lanes[lane] = owner, len(ids)
                self._add(now, owner, ids, f"started on lane {lane}", None, attempts)
            case Recall(lane=lane, ids=ids):
                self._add(now, self._owner(lane), ids, "recall requested")
            case Interrupt(lane=lane, ids=ids):
                self._add(now, self._owner(lane), ids, "interrupted")

    def _message(self, now: float, message: Message, way: str, peer: Peer | None) -> None:
        columns = message.columns
        if columns is None or Field.MANAGER not in message.fields:
            return  # the columns of PING name no owner
        identity, epoch = message.fields[Field.MANAGER]
        owner = None if self.me is not None else (identity, epoch)
        details: Sequence[str] = ()
        if columns.outcomes is not None:
            details = [Outcome(outcome).name.lower() for outcome in columns.outcomes]
        what = f"{message.command.name} {way}"
        self._add(now, owner, columns.ids, what, peer, columns.attempts, details)

    def _owner(self, lane: int, *, ended: int = 0) -> Peer | None:
        """Return the owner of the jobs on a lane; forget the lane with the last of its jobs."""
        owner, left = self._lanes.get(lane, (None, 0))
        if owner is not None and ended:
            if left > ended:
                self._lanes[lane] = owner, left - ended
            else:
                del self._lanes[lane]
        return owner

    def _add(
        self,
        now: float,
        owner: Peer | None,
        ids: Sequence[int],
        what: str,
        peer: Peer | None = None,
        attempts: Sequence[int] = (),
        details: Sequence[str] = (),
    ) -> None:
        for row, job in enumerate(ids):
            attempt = attempts[row] if attempts else 0
            detail = details[row] if details else ""
            self._events_of((owner, job)).append(StoryEvent(now, what, peer, attempt, detail))

    def _events_of(self, key: _Key) -> list[StoryEvent]:
        """Return the list to which the next event of a job belongs."""
        events = self._events.get(key)
        if events is None:
            if len(self._events) >= self.maximum:
                oldest = next(iter(self._events))
                del self._events[oldest]
                self._omitted.pop(oldest, None)
            events = self._events[key] = []
        elif len(events) >= MAX_EVENTS:
            del events[MAX_EVENTS // 2]
            self._omitted[key] = self._omitted.get(key, 0) + 1
        return events


def _progress(fraction: float | None, text: str | None) -> str:
    parts = ([f"{fraction:.0%}"] if fraction is not None else []) + ([text] if text else [])
    return ", ".join(parts)
