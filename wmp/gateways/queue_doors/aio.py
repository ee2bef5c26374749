"""The front door for asyncio: clients of the Pirate patterns are served by WMP workers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Unpack

from wmp.actions import End, Resolve
from wmp.aio.manager import Manager
from wmp.aio.standby import Standby
from wmp.duration import Duration
from wmp.errors import ClosedError, ConfigError, OnStandby, QueueFull
from wmp.events import Cancelled, Submitted
from wmp.foreign import Arrived, Settled
from wmp.gateways.common.aio import DrainingPart, make_node
from wmp.gateways.queue_doors.client_door_machine import (
    FrontDoorAction,
    FrontDoorEvent,
    FrontDoorMachine,
    FrontDoorStatistics,
)
from wmp.gateways.queue_doors.settings import SERVICE, Service
from wmp.message import DEFAULT_NEEDS, Frame, Kind
from wmp.runtime.common.checks import check_amounts, check_count, check_role, check_seconds
from wmp.runtime.driver.foreign_driver import ForeignDriver
from wmp.runtime.driver.inbox import JobTerms
from wmp.runtime.node.node import Node
from wmp.runtime.sockets.socket_settings import (
    SocketOptions,
    SocketSettings,
    shows_socket_options,
)
from wmp.runtime.submission.results import Ended, Status
from wmp.runtime.submission.submissions import Submissions


class FrontDoor(DrainingPart):
    """Takes the requests of REQ sockets, for example those of Lazy Pirate clients, as jobs of a
    manager, and sends their results as replies.

    The door stands in the place of a Pirate queue for its clients. A job that ends without a result
    sends no reply, because these protocols have no message for errors.

    Args:
        bind: Endpoints for the clients.
        manager: Takes the jobs. It must be started before the door. If the manager is one of a
            pair, each request is a vote, and a request at the passive manager is dropped.
        role: Role of the jobs. Their handlers get a body of one frame as ``bytes``, and a body of
            several frames as a list.
        needs: Amounts of a worker's resources that a job takes; by default one slot.
        priority: Jobs of a higher priority are granted first.
        max_worker_losses: Number of lost leases that a job survives. With 0 no request runs twice.
        timeout: Seconds within which a job must end; None for no limit.
        limit: Maximum number of requests in progress. Further requests are dropped.
        client_limit: Maximum number of requests of one connection.
        full: Reply to a request above a limit, for example ``b"FULL"`` as at a ping-pong broker; by
            default none.
        join: Whether a request with the body of a request in progress waits for the same job. The
            newest of them gets the reply. Then a request that is sent again runs once, also when it
            takes longer than the client waits.
        as_list: Whether a body of one frame is a list for the handler, too.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        *bind: str,
        manager: Manager,
        role: str = SERVICE.kind.role,
        needs: Mapping[str, int] | None = None,
        priority: int = SERVICE.priority,
        max_worker_losses: int = SERVICE.max_worker_losses,
        timeout: Duration | None = SERVICE.timeout,
        limit: int = SERVICE.limit,
        client_limit: int = SERVICE.client_limit,
        full: bytes | None = SERVICE.full,
        join: bool = SERVICE.join,
        as_list: bool = SERVICE.as_list,
        **options: Unpack[SocketOptions],
    ) -> None:
        amounts = DEFAULT_NEEDS
        if needs is not None:
            amounts = tuple(sorted(check_amounts("needs", needs).items()))
        service = Service(
            kind=Kind(check_role(role), amounts),
            priority=priority,
            max_worker_losses=check_count("max_worker_losses", max_worker_losses),
            timeout=None if timeout is None else check_seconds("timeout", timeout, zero=False),
            limit=check_count("limit", limit, 1),
            client_limit=check_count("client_limit", client_limit, 1),
            as_list=as_list,
            join=join,
            full=_checked(full),
        )
        super().__init__(make_node("front door", bind=bind, sockets=SocketSettings.of(options)))
        self._machine = FrontDoorMachine(service, count(1))
        self._manager = manager
        self._jobs: Submissions | None = None
        self._numbers: dict[int, int] = {}
        """The manager's number of each job in progress, by the door's number."""

    async def start(self) -> None:
        """Bind and begin to serve; ``async with`` calls this method. Idempotent.

        Raises:
            ConfigError: An endpoint cannot be bound.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The door was closed, or the manager is not started.
        """
        self._node.check_open()
        if self._node.driver is None:
            self._jobs = self._manager.intake.serving()
            make_driver = functools.partial(ForeignDriver, submit=self._submit, cancel=self._cancel)
            standby, machine = self._manager.standby, self._machine
            guarded = machine if standby is None else StandbyGuard(machine, standby, self._node)
            self._node.start(guarded, link_events=True, make_driver=make_driver)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Addresses to which clients can connect, with the actual ports.

        Raises:
            ClosedError: The door is not started, and the system has not chosen an address yet.
        """
        return self._node.addresses

    async def _ended(self) -> None:
        if self._numbers and self._jobs is not None:
            self._jobs.cancel(list(self._numbers.values()))

    def statistics(self) -> FrontDoorStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._machine.statistics()

    # -- jobs

    def _submit(self, batch: Submitted) -> None:
        assert self._jobs is not None  # a door that is not started gives no jobs
        terms = JobTerms(batch.kind, batch.priority, batch.timeout, batch.max_worker_losses)
        owner = _DoorBatch(batch.ids, self._numbers, self._node.inbox.post)
        try:
            self._jobs.add(owner, batch.payloads, terms)
        except (ClosedError, OnStandby, QueueFull) as error:
            owner.lose(batch.ids, error)

    def _cancel(self, action: Cancelled) -> None:
        """Cancel the jobs that no worker has begun."""
        numbers = [self._numbers[id] for id in action.ids if id in self._numbers]
        if self._jobs is not None:
            self._jobs.cancel(numbers, unstarted=action.unstarted)


class StandbyGuard:
    """The machine of a door whose manager is one of a pair (STAR-4.2).

    While the manager is on standby, a request waits for the outcome of its vote, which the loop of
    the manager decides. The request comes again if the manager serves then.

    Args:
        door: The machine of the door.
        standby: The standby of the manager.
        node: Serves the door.
    """

    def __init__(self, door: FrontDoorMachine, standby: Standby, node: Node) -> None:
        self.settings = None
        self.deadline = door.deadline
        self._door = door
        self._standby = standby
        self._node = node

    def handle(self, event: FrontDoorEvent, now: float) -> Sequence[FrontDoorAction]:
        """Let the door take an event, unless the event is a request at a manager on standby."""
        if type(event) is Arrived and not self._standby.over:
            self._standby.vote(functools.partial(self._take, event))
            return ()
        return self._door.handle(event, now)

    def _take(self, event: Arrived) -> None:
        self._node.inbox.post(event)
        self._node.inbox.post(Settled())


def _checked(full: object) -> bytes | None:
    if full is None or isinstance(full, bytes):
        return full
    raise ConfigError(f"full is {full!r}; expected bytes, or None for no reply")


class _DoorBatch:
    """The jobs of one ``Submitted``, as their manager sees their owner."""

    def __init__(
        self, ids: Sequence[int], numbers: dict[int, int], post: Callable[[Resolve], None]
    ) -> None:
        self._ids = ids
        self._numbers = numbers
        self._post = post
        self._first = 0

    def lose(self, ids: Sequence[int], error: BaseException) -> None:
        """End jobs that no worker had, for example because the manager did not take them."""
        self._end(ids, [End.LOST] * len(ids), [_cause(error)] * len(ids))

    def _given(self, first: int, count: int) -> None:
        self._first = first
        self._numbers.update(zip(self._ids, range(first, first + count), strict=True))

    def _succeed(self, ids: Sequence[int], payloads: Sequence[Frame]) -> None:
        self._end([self._ids[id - self._first] for id in ids], [End.OK] * len(ids), payloads)

    def _settle(self, rows: Sequence[Ended]) -> None:
        ids = [self._ids[row[0] - self._first] for row in rows]
        ends = [row[1] if isinstance(row[1], End) else End.LOST for row in rows]
        payloads = [row[2] if isinstance(row[1], End) else _cause(row[1]) for row in rows]
        self._end(ids, ends, payloads)

    def _undelivered(self, ids: Sequence[int], error: BaseException) -> None:
        numbers = [self._ids[id - self._first] for id in ids]
        left = [number for number in numbers if number in self._numbers]
        if left:
            self.lose(left, error)

    def _progress(self, id: int, status: Status) -> None:
        pass  # The protocol has no message for progress.

    def _end(self, ids: Sequence[int], ends: Sequence[End], payloads: Sequence[Frame]) -> None:
        for id in ids:
            self._numbers.pop(id, None)
        self._post(Resolve(ids, ends, payloads, [0] * len(ids)))


def _cause(error: BaseException) -> bytes:
    """Return the payload of a job that was lost before a worker had the job."""
    return f"\n{error}".encode()
