"""The timers of a manager: a type for each."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from wmp.core.protocol.timers import ClaimTimer, ResendTimer, Timers
from wmp.message import Kind

DeadlineTimer: TypeAlias = int
"""The deadline of the job with this number passed (WMP-6.8).

The timer is the number itself, because there is such a timer for each job with a deadline.
"""


class AnnounceTimer(NamedTuple):
    """The manager must announce itself to a device again (WMP-8.11)."""

    link: int
    what: Literal["announce"] = "announce"


class DueTimer(NamedTuple):
    """The start time of delayed jobs has come (WMP-6.24)."""

    what: Literal["due"] = "due"


class WorkerSilenceTimer(NamedTuple):
    """A worker may have been silent for too long (WMP-9.3)."""

    identity: bytes
    what: Literal["silence"] = "silence"


class ReconnectTimer(NamedTuple):
    """A worker whose direct connection ended may not have returned (WMP-9.16)."""

    identity: bytes
    what: Literal["reconnect"] = "reconnect"


class HoldTimer(NamedTuple):
    """A held GIVE must be answered (WMP-4.4)."""

    identity: bytes
    lock: int
    what: Literal["hold"] = "hold"


class SweepTimer(NamedTuple):
    """The store must be swept again (STORE-4.5)."""

    what: Literal["sweep"] = "sweep"


class StoreDueTimer(NamedTuple):
    """Jobs in the store become due, and may be reserved."""

    what: Literal["store due"] = "store due"


class WakeTimer(NamedTuple):
    """No GIVE came for a WAKE of this kind in time, so other workers may be woken (WMP-3.5)."""

    kind: Kind
    what: Literal["wake"] = "wake"


ManagerTimer: TypeAlias = (
    AnnounceTimer
    | ClaimTimer
    | DeadlineTimer
    | DueTimer
    | WorkerSilenceTimer
    | HoldTimer
    | ReconnectTimer
    | ResendTimer
    | StoreDueTimer
    | SweepTimer
    | WakeTimer
)
ManagerTimers: TypeAlias = Timers[ManagerTimer]
