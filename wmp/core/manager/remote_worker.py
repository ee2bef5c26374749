"""The memory of a manager about one worker: route, READY, open GIVEs, leases, numbering.

Kept per identity (WMP-1.8), for one epoch and one session. The route is that of the newest
message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from attrs import define, field

from wmp.actions import ManagerAction
from wmp.core.manager.job_lifecycle import JobRecord
from wmp.core.manager.policy import Offer
from wmp.core.manager.queues import Grant, Queue
from wmp.core.protocol.outbound import Outbound, Stream
from wmp.message import Kind, Link, Path, printable

__all__ = ["Give", "ManagerOutbound", "RemoteWorker", "capacity", "fits"]


def fits(needs: Mapping[str, int], room: Mapping[str, int]) -> bool:
    """Whether ``room`` has all that ``needs`` names."""
    for name, amount in needs.items():  # noqa: SIM110 - a generator costs more than the rest
        if room.get(name, 0) < amount:
            return False
    return True


def capacity(needs: Mapping[str, int], room: Mapping[str, int]) -> int:
    """How many times ``room`` has all that ``needs`` names; 1 where it names nothing."""
    return min((room.get(name, 0) // n for name, n in needs.items() if n), default=1)


@define(eq=False)
class Give:
    """A GIVE that is open: the worker holds resources for us until we answer."""

    worker: RemoteWorker
    lock: int
    want: int
    """How many jobs may still come."""
    window: int
    """How many of them would wait at the worker."""
    roles: tuple[str, ...]
    needs: Mapping[str, int]
    until: float
    """When it must be answered; not in the future for one without ``hold``."""


@define(eq=False)
class RemoteWorker:
    """One worker, as its manager knows it."""

    identity: bytes
    epoch: int
    stream: Stream
    last_received: float
    """When a message of the worker last arrived."""
    link: Link | None = None
    """None while no route is known."""
    path: Path = ()
    """The ``to`` that reaches it."""
    label: str = ""
    ready: int = 0
    """Number of the READY remembered; 0 for none."""
    room_reports: int = 0
    """How often the worker reported its room by READY or GIVE, or confirmed it by PING."""
    credit: int = 0
    window: int = 0
    roles: tuple[str, ...] = ()
    resources: Mapping[str, int] = field(factory=dict)
    headers: Mapping[str, Any] = field(factory=dict)
    """Fields of the newest READY that have text keys: the application's."""
    gives: dict[int, Give] = field(factory=dict)
    last_lock: int = 0
    leases: dict[int, JobRecord] = field(factory=dict)
    """Jobs that it holds and that have records."""
    grants: dict[int, Grant] = field(factory=dict)
    """Those that have none, by the first number of each grant."""
    granted: int = 0
    """How many those are."""
    held: dict[Kind, int] = field(factory=dict)
    """How many jobs of each kind it holds, with and without records; none is 0."""
    woken: dict[Kind, int] = field(factory=dict)
    """Jobs asked for by WAKEs that were not answered yet, by kind."""
    served: int = 0
    """When it was last woken or given jobs, as a count of such events; 0 for never."""
    done: int = 0
    offer_cache: Offer | None = None
    """The offer for policies; None after a change of its content."""

    @property
    def name(self) -> str:
        """The worker for people: its label, or its identity in hex."""
        return printable(self.label) or self.identity.hex()

    def offer(self) -> Offer:
        """The worker as a policy is shown it."""
        offer = self.offer_cache
        if offer is None:
            self.offer_cache = offer = self.fresh_offer()
        return offer

    def fresh_offer(self) -> Offer:
        """Make an offer of the present state."""
        room, waiting = self.credit, self.window
        for give in self.gives.values():
            room += give.want
            waiting += give.window
        return Offer(
            self.identity,
            self.label,
            self.roles,
            self.resources,
            self.headers,
            room,
            max(0, room - waiting),
            self.leased,
            self.done,
            self.served,
        )

    def gives_for(self, queue: Queue) -> list[Give]:
        """Its open GIVEs that jobs of ``queue`` fit, oldest first."""
        return [
            give
            for give in self.gives.values()
            if give.want and queue.kind.role in give.roles and fits(queue.needs, give.needs)
        ]

    @property
    def leased(self) -> int:
        """Jobs it holds of this manager."""
        return len(self.leases) + self.granted

    def hold(self, kind: Kind, count: int) -> None:
        """Count ``count`` more jobs of a kind as held, or fewer when it is negative."""
        self.offer_cache = None
        held = self.held.get(kind, 0) + count
        if held:
            self.held[kind] = held
        else:
            del self.held[kind]

    @property
    def mark(self) -> tuple[bytes, int, int]:
        """The mark that a refused job remembers: identity, session, reports (WMP-6.5)."""
        return self.identity, self.stream.session, self.room_reports


ManagerOutbound: TypeAlias = Outbound[RemoteWorker, ManagerAction]
