"""The timers of a worker: a type for each."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from wmp.core.protocol.timers import ClaimTimer, ResendTimer, Timers
from wmp.message import Peer


class DrainTimer(NamedTuple):
    """A worker that ends has waited long enough for a manager (WMP-9.10)."""

    what: Literal["drain"] = "drain"


class KeepTimer(NamedTuple):
    """Jobs of this owner have had no manager for too long (WMP-14.5)."""

    owner: Peer
    what: Literal["keep"] = "keep"


class LimitTimer(NamedTuple):
    """A job has run for its limit, or has continued for some time after its limit (WMP-6.21)."""

    lane: int
    job: int
    what: Literal["limit"] = "limit"


class LinkTimer(NamedTuple):
    """A link may have been silent for too long, or it is time to search for managers (WMP-9.4)."""

    link: int
    what: Literal["link"] = "link"


class LockTimer(NamedTuple):
    """A GIVE was not answered in time (WMP-4.11)."""

    identity: bytes
    lock: int
    what: Literal["lock"] = "lock"


class PatienceTimer(NamedTuple):
    """Jobs may have waited too long (WMP-6.18)."""

    what: Literal["patience"] = "patience"


class PingTimer(NamedTuple):
    """PING to a manager may be due, or the manager may be silent too long (WMP-9.1, 9.14)."""

    identity: bytes
    what: Literal["ping"] = "ping"


class ReadyTimer(NamedTuple):
    """READY may have to be repeated (WMP-3.12)."""

    what: Literal["ready"] = "ready"


WorkerTimer: TypeAlias = (
    ClaimTimer
    | DrainTimer
    | KeepTimer
    | LimitTimer
    | LinkTimer
    | LockTimer
    | PatienceTimer
    | PingTimer
    | ReadyTimer
    | ResendTimer
)
WorkerTimers: TypeAlias = Timers[WorkerTimer]
