"""The timers of a manager: what may be due, one type each."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from wmp.core.protocol.timers import ResendTimer, Timers
from wmp.message import Kind

__all__ = [
    "DeadlineTimer",
    "ExpiryTimer",
    "HoldTimer",
    "ManagerTimer",
    "ManagerTimers",
    "WakeTimer",
]


DeadlineTimer: TypeAlias = int
"""The time of the job with this number is over (WMP-6.8).

The number itself, because each job that has a deadline has such a timer.
"""


class ExpiryTimer(NamedTuple):
    """A worker may have been silent for too long (WMP-9.3)."""

    identity: bytes
    what: Literal["expiry"] = "expiry"


class HoldTimer(NamedTuple):
    """A held GIVE must be answered (WMP-4.4)."""

    identity: bytes
    lock: int
    what: Literal["hold"] = "hold"


class WakeTimer(NamedTuple):
    """Workers that were woken for jobs of this kind may have to be joined by others (WMP-3.5)."""

    kind: Kind
    what: Literal["wake"] = "wake"


ManagerTimer: TypeAlias = DeadlineTimer | ExpiryTimer | HoldTimer | ResendTimer | WakeTimer
ManagerTimers: TypeAlias = Timers[ManagerTimer]
