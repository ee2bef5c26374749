"""A manager's memory of one worker: route, READY, open GIVEs, leases, numbering.

The memory is kept for an identity (WMP-1.8), in one epoch and one session. The route is the route
that holds the identity (spec §15).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import repeat
from math import inf
from typing import Any, TypeAlias

from attrs import define, field

from wmp.actions import ManagerAction
from wmp.core.manager.job_lifecycle import JobRecord
from wmp.core.manager.policy import Offer
from wmp.core.manager.queues import Grant, Queue
from wmp.core.protocol.claims import Claim
from wmp.core.protocol.outbound import Outbound, Stream
from wmp.message import (
    Command,
    Field,
    ForwardedKind,
    Kind,
    Link,
    Message,
    Path,
    Peer,
    printable,
)

_UNREPORTED = 512
"""Limit of the leases of a worker without a remembered READY."""


def fits(needs: Mapping[str, int], available: Mapping[str, int]) -> bool:
    """Return whether ``available`` covers all ``needs``."""
    for name, amount in needs.items():  # noqa: SIM110 - a generator costs more than the rest
        if available.get(name, 0) < amount:
            return False
    return True


def capacity(needs: Mapping[str, int], available: Mapping[str, int]) -> int:
    """Return how often ``needs`` fit into ``available``; 1 if ``needs`` is empty."""
    count: int | None = None
    for name, amount in needs.items():  # a generator costs more than the rest
        if amount:
            fit = available.get(name, 0) // amount
            count = fit if count is None else min(count, fit)
    return 1 if count is None else count


@define(eq=False)
class Give:
    """An open GIVE: the worker keeps resources locked until the manager answers."""

    worker: RemoteWorker
    lock: int
    want: int
    """Number of jobs that may still come."""
    window: int
    """Number of these jobs that would wait at the worker."""
    roles: tuple[str, ...]
    needs: Mapping[str, int]
    until: float
    """Time at which the GIVE must be answered; a GIVE without ``hold`` must be answered at once."""


@define(eq=False)
class BusyWorkers:
    """Number of workers that hold jobs of a kind and have no capacity, by kind.

    Entries of 0 are left out.
    """

    counts: dict[Kind, int] = field(factory=dict)

    def count(self, kind: Kind, change: int) -> None:
        """Add one worker to the counts of these kinds, or remove one."""
        count = self.counts.get(kind, 0) + change
        if count:
            self.counts[kind] = count
        else:
            del self.counts[kind]


@define(eq=False)
class RemoteWorker:
    """One worker, as its manager knows it."""

    identity: bytes
    epoch: int
    stream: Stream
    last_received: float
    """When the last message of the worker arrived."""
    own_at: float = -inf
    """When the last message of the worker itself arrived, which is not a beat (WMP-9.18)."""
    beat_key: int = 0
    """Number that beats for the worker must have; 0 for none."""
    origin: Link = b""
    """The connection of the worker's first message."""
    link: Link | None = None
    """Link of the worker; None while no route is known."""
    newest_link: Link | None = None
    """Link of the worker's newest message."""
    path: Path = ()
    """The ``to`` that reaches the worker."""
    claim: Claim | None = None
    """A claim of another process to the identity, while the manager waits for this worker's
    answer.
    """
    confirmed_at: float = -inf
    """When the worker last answered a challenge."""
    label: str = ""
    ready: int = 0
    """Number of the remembered READY; 0 for none."""
    has_capacity: bool = False
    """Whether the worker has credit or an open GIVE. ``Profiles`` sets and counts it."""
    capacity_reports: int = 0
    """Number of the worker's reports of capacity: READYs, GIVEs, and PINGs that confirm them."""
    credit: int = 0
    window: int = 0
    """Number of these jobs that would wait at the worker."""
    widest: int = 0
    """The greatest window of all READYs and GIVEs of the worker."""
    roles: tuple[str, ...] = ()
    resources: Mapping[str, int] = field(factory=dict)
    headers: Mapping[str, Any] = field(factory=dict)
    """Fields of the newest READY with text keys: the headers of the application."""
    gives: dict[int, Give] = field(factory=dict)
    last_lock: int = 0
    leases: dict[int, JobRecord] = field(factory=dict)
    """Records of the worker's jobs, by number."""
    grants: dict[int, Grant] = field(factory=dict)
    """Grants of the worker by their first number; their jobs have no records."""
    granted: int = 0
    """Number of the open jobs in these grants."""
    forwarded: dict[tuple[Peer, int], int] = field(factory=dict)
    """Number of each leased job of another manager, by its owner and its number there."""
    forwards: tuple[bytes, ...] = ()
    """Identities of the forwarding managers behind the worker, as its READY names them."""
    circular: bool = False
    """Whether this manager is one of them, so that the worker gets no job (WMP-19.9)."""
    held: dict[Kind, int] = field(factory=dict)
    """Number of jobs of each kind at the worker, with and without records; no entry is 0."""
    busy: BusyWorkers = field(factory=BusyWorkers)
    """The count of busy workers, which all workers of the manager share."""
    woken: dict[Kind, int] = field(factory=dict)
    """Number of jobs in WAKEs that are not answered yet, by kind."""
    served: int = 0
    """When the worker was last woken or granted jobs, as a count of such events; 0 for never."""
    done: int = 0
    offer_cache: Offer | None = None
    """The offer for policies; None after a change of a value that the offer contains."""

    @property
    def name(self) -> str:
        """Return the worker's name for people: its label, or its identity in hex."""
        return printable(self.label) or self.identity.hex()

    def offer(self) -> Offer:
        """Return the offer that policies see."""
        offer = self.offer_cache
        if offer is None:
            self.offer_cache = offer = self.fresh_offer()
        return offer

    def fresh_offer(self) -> Offer:
        """Make an offer of the present state."""
        total, waiting = self.credit, self.window
        for give in self.gives.values():
            total += give.want
            waiting += give.window
        return Offer(
            self.identity,
            self.label,
            self.roles,
            self.resources,
            self.headers,
            total,
            max(0, total - waiting),
            self.leased,
            self.done,
            self.served,
        )

    def gives_for(self, queue: Queue) -> list[Give]:
        """Return the open GIVEs that jobs of ``queue`` fit, oldest first."""
        role, needs = queue.kind.role, queue.needs
        return [
            give
            for give in self.gives.values()
            if give.want and role in give.roles and fits(needs, give.needs)
        ]

    @property
    def direct(self) -> bool:
        """Return whether the route has no device, as far as this manager knows."""
        return len(self.path) == 2

    @property
    def leased(self) -> int:
        """Return the number of this manager's jobs that the worker holds."""
        return len(self.leases) + self.granted

    def fields_of_pong(self, max_stall: float) -> dict[int | str, Any]:
        """Return the fields that report the memory of this worker, and whether beats count.

        Args:
            max_stall: Seconds for which beats count; 0 for never.
        """
        fields: dict[int | str, Any] = {}
        if self.beat_key and max_stall:
            fields[Field.MAX_STALL] = int(max_stall * 1000)
        if self.last_lock:
            fields[Field.LOCK] = self.last_lock
        if self.ready:
            fields |= {Field.READY: self.ready, Field.CREDIT: self.credit}
        return fields

    def run_limits(self) -> Iterator[float | None]:
        """Return the run limit of each job that the worker holds, in seconds; None for none.

        Jobs of one grant share their limit and are returned once for each open job.
        """
        for job in self.leases.values():
            yield None if job.limits is None else job.limits.run
        for grant in self.grants.values():
            limit = None if grant.limits is None else grant.limits.run
            yield from repeat(limit, grant.left)

    def leases_left(self, queue: Queue, maximum: int) -> int:
        """Return the number of further leases of ``queue`` that the worker may get (WMP-4.16).

        The ``want`` of its GIVEs does not matter.

        Args:
            queue: The queue of the jobs.
            maximum: Limit of the leases of one worker.
        """
        held = self.held
        alone = held.get(queue.kind) if len(held) == 1 else None
        leased = sum(held.values()) if alone is None else alone
        if not self.ready:
            return min(maximum, _UNREPORTED) - leased
        # A GIVE reports only the free places of the window: the whole window is at most twice the
        # greatest number of free places that was reported.
        left, has, window = maximum - leased, self.resources, 2 * self.widest
        for name, amount in queue.needs.items():
            if not amount:
                continue
            if alone is not None:
                free = amount * (window - leased)
            else:
                used, greatest = 0, amount
                for kind, count in self.held.items():
                    for other, each in kind.needs:
                        if other == name:
                            used += count * each
                            greatest = max(greatest, each)
                free = window * greatest - used
            fit = (has.get(name, 0) + free) // amount
            if fit < left:
                left = fit
        return left

    def hold(self, kind: Kind, count: int) -> None:
        """Add ``count`` jobs of a kind to the held jobs; a negative count removes jobs."""
        self.offer_cache = None
        before = self.held.get(kind, 0)
        if held := before + count:
            self.held[kind] = held
        else:
            del self.held[kind]
        if not self.has_capacity and (not before or not held):
            self.busy.count(kind, 1 if held else -1)

    def set_has_capacity(self, has_capacity: bool) -> None:
        """Record whether the worker has credit or an open GIVE.

        Only ``Profiles`` calls this method.
        """
        self.has_capacity = has_capacity
        for kind in self.held:
            self.busy.count(kind, -1 if has_capacity else 1)

    def release_forwarded(self, job: JobRecord) -> None:
        """Forget the lease of a job of another manager, unless a newer attempt has replaced it."""
        assert type(job.kind) is ForwardedKind
        key = job.kind.owner, job.number
        if self.forwarded.get(key) == job.id:
            del self.forwarded[key]

    @property
    def mark(self) -> tuple[bytes, int, int]:
        """Return the mark that a refused job remembers: identity, session, reports (WMP-6.5)."""
        return self.identity, self.stream.session, self.capacity_reports


ManagerOutbound: TypeAlias = Outbound[RemoteWorker, ManagerAction]


def is_late(message: Message) -> bool:
    """Return whether the message may be a late message of a worker that has gone."""
    return message.command not in (Command.READY, Command.PING)


def all_answered(workers: Mapping[bytes, RemoteWorker]) -> bool:
    """Return whether every CANCEL has arrived.

    The answer to a CANCEL that crossed the result comes after the end of the job (WMP-6.10).
    The worker would send it again until it gives the manager up.
    """
    return not any(
        kept.command is Command.CANCEL for worker in workers.values() for kept in worker.stream.kept
    )
