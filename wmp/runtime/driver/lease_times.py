"""When and to which worker a manager sent its jobs, read from the steps of its machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from attrs import frozen

from wmp.actions import Resolve, Send
from wmp.events import Received
from wmp.message import Command, Field, named, printable

StepWatcher: TypeAlias = Callable[[object, Sequence[object], float], None]
"""Takes the event, the actions and the time of a step of a machine. It never raises."""


@frozen
class LeaseSpan:
    """The last sending of a job to a worker, and the end of the job."""

    host: str
    """Label of the worker; empty if the job was never sent."""
    sent: float
    """Seconds since 1970."""
    ended: float
    """Seconds since 1970."""


class LeaseTimes:
    """The times of each job of a manager.

    ``step`` is called on the driver's thread, ``take`` on any thread.
    """

    def __init__(self) -> None:
        self._labels: dict[bytes, str] = {}
        self._times: dict[int, LeaseSpan] = {}

    def step(self, event: object, actions: Sequence[object], now: float) -> None:
        """Read one step of the machine."""
        if type(event) is Received:
            label = event.message.fields.get(Field.LABEL)
            if label is not None:
                self._labels[event.message.sender[0]] = printable(str(label))
        for action in actions:
            if type(action) is Resolve:
                at = time.time()
                for id in action.ids:
                    known = self._times.get(id)
                    self._times[id] = LeaseSpan(
                        "" if known is None else known.host, at if known is None else known.sent, at
                    )
            elif type(action) is Send and action.message.command is Command.TAKE:
                columns, receiver = action.message.columns, action.message.receiver
                if columns is not None and receiver is not None:
                    at = time.time()
                    host = self._labels.get(receiver) or named(receiver)
                    self._times.update(dict.fromkeys(columns.ids, LeaseSpan(host, at, at)))

    def take(self, id: int) -> LeaseSpan:
        """Return the times of a job that has ended, and forget them.

        For a number without a job, both times are now.
        """
        times = self._times.pop(id, None)
        if times is None:
            at = time.time()
            return LeaseSpan("", at, at)
        return times
