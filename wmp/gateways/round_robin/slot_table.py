"""The table of workers of round robin: their slots, and the order in which they get messages."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque

from attrs import define, field

from wmp.gateways.common.job_lanes import JobLane
from wmp.gateways.round_robin.pending_messages import ClientMessage
from wmp.message import Limits


@define(eq=False)
class GivenMessage:
    """A message that a worker has."""

    lane: JobLane
    job: int
    """Number of its job."""
    token: bytes
    tracked: bool
    worker: SlotWorker
    asker: ClientMessage | None
    """The message of the client; None for a job of another manager."""
    given_at: float
    ended: bool = False
    """Whether the job has ended. The slot may still be taken."""


@define(eq=False)
class SlotWorker:
    """A registered worker."""

    port: int
    peer: bytes
    slots: int = 0
    free: int = 0
    debt: int = 0
    """Number of messages for which INCREMENT has not come."""
    answered: int = 0
    """Number of these messages that the worker has answered."""
    owed: int = 0
    """Number of those for which INCREMENT is expected at once, and gives back a slot."""
    assignments: dict[bytes, GivenMessage] = field(factory=dict)
    """The messages that have not ended, by token, the oldest first."""
    untracked: deque[GivenMessage] = field(factory=deque)
    """The messages of type EXEC for which INCREMENT has not come, the oldest first."""
    late: set[bytes] = field(factory=set)
    """Tokens of messages of type TRACKEXEC that ended before the worker answered them."""
    last_at: float = 0.0
    registered: bool = True
    """Whether the worker is in the table."""
    away: bool = False
    """Whether the worker was silent for too long, or could not be reached."""
    _silent: list[bytes] = field(factory=list, init=False)
    """For each INCREMENT that belongs to a TRACKEXEC without an answer: the token of the newest
    message that this TRACKEXEC can be."""

    @property
    def silent(self) -> bool:
        """Whether the worker has done a TRACKEXEC without an answer that cannot be named yet."""
        return bool(self._silent)

    def note_silent(self) -> None:
        """Note that INCREMENT came for a TRACKEXEC that the worker has not answered."""
        if unanswered := self._unanswered():
            self._silent.append(unanswered[-1])

    def take_silent(self) -> list[bytes]:
        """Return the tokens of the messages that no RESPONSE can follow any more (RR-4.6).

        If *n* messages are without a RESPONSE, and *n* INCREMENTs came for some of them, all of
        them are done.
        """
        unanswered = self._unanswered()
        for increments in range(len(self._silent), 0, -1):
            count = bisect_right(unanswered, self._silent[increments - 1])
            if count <= increments:
                del self._silent[:increments]
                return unanswered[:count]
        return []

    def _unanswered(self) -> list[bytes]:
        """Return the tokens of all messages that may be answered, in the order of their giving."""
        tracked = [token for token, message in self.assignments.items() if message.tracked]
        return sorted((*tracked, *self.late))

    def clear_debt(self) -> None:
        """Forget the messages that have ended: no INCREMENT can come any more."""
        self.untracked.clear()
        self.late.clear()
        self._silent.clear()


@define(eq=False)
class SlotTable:
    """The registered workers. The first worker with a free slot gets the next message."""

    _ready: OrderedDict[bytes, SlotWorker] = field(factory=OrderedDict, init=False)
    """The workers with a free slot, in their order."""
    _full: OrderedDict[bytes, SlotWorker] = field(factory=OrderedDict, init=False)
    """The workers without one. A worker that leaves this part always moves to the bottom."""
    free: int = field(default=0, init=False)
    """Number of free slots of all workers."""
    owed: int = field(default=0, init=False)
    """Number of slots of all workers that become free at once: INCREMENT follows RESPONSE."""
    slots: int = field(default=0, init=False)
    """Number of slots of all workers."""
    maximum: int = field(default=Limits.JOBS, init=False)
    """Maximum number of slots of all workers: they are one WMP worker, and its jobs have this
    limit."""

    def __len__(self) -> int:
        return len(self._ready) + len(self._full)

    def rows(self) -> list[SlotWorker]:
        """Return the workers, those with a free slot first, in the order of the table."""
        return [*self._ready.values(), *self._full.values()]

    def put(self, worker: SlotWorker, slots: int) -> None:
        """Set the slots of a worker, and put the worker to the bottom (RR-4.1, RR-4.2).

        A worker gets fewer slots if too few are left.
        """
        self.remove(worker)
        worker.slots = worker.free = min(slots, self.maximum - self.slots)
        worker.owed = 0  # INCREMENT gives no slot above this number
        worker.registered, worker.away = True, False
        self._insert(worker)

    def put_back(self, worker: SlotWorker) -> None:
        """Put a worker that was away to the bottom, with the slots that it does not use."""
        worker.slots = min(worker.slots, self.maximum - self.slots)
        worker.free = max(0, worker.slots - worker.debt)
        worker.registered, worker.away = True, False
        self._insert(worker)

    def _insert(self, worker: SlotWorker) -> None:
        self.slots += worker.slots
        self.free += worker.free
        self.owed += worker.owed
        (self._ready if worker.free else self._full)[worker.peer] = worker

    def remove(self, worker: SlotWorker) -> None:
        """Take a worker out of the table; a worker that is not there is ignored."""
        part = self._ready if worker.peer in self._ready else self._full
        if part.pop(worker.peer, None) is not None:
            self.slots -= worker.slots
            self.free -= worker.free
            self.owed -= worker.owed
        worker.registered = False

    def take(self) -> SlotWorker | None:
        """Take a slot of the first worker that has one (RR-4.3); None if all are full."""
        if not self._ready:
            return None
        peer, worker = next(iter(self._ready.items()))
        worker.free -= 1
        worker.debt += 1
        self.free -= 1
        if worker.free:
            self._ready.move_to_end(peer)
        else:
            del self._ready[peer]
            self._full[peer] = worker
        return worker

    def answer(self, worker: SlotWorker) -> None:
        """Note that RESPONSE of a worker came. INCREMENT follows (RR-6.3)."""
        worker.answered += 1
        if worker.free + worker.owed < worker.slots:
            worker.owed += 1
            self.owed += worker.registered

    def pay(self, worker: SlotWorker) -> None:
        """Note that INCREMENT of an answered message came."""
        worker.answered -= 1
        if worker.owed:
            worker.owed -= 1
            self.owed -= worker.registered

    def expect_nothing(self, worker: SlotWorker) -> None:
        """Expect INCREMENT of answered messages of a worker no longer at once."""
        self.owed -= worker.owed * worker.registered
        worker.owed = 0

    def forgive(self, worker: SlotWorker) -> None:
        """Expect one INCREMENT less of a worker."""
        worker.debt -= 1

    def give_back(self, worker: SlotWorker) -> bool:
        """Give back a slot of a worker, and put the worker to the bottom (RR-4.4).

        Returns:
            Whether the worker had a message.
        """
        if not worker.debt:
            return False
        self.forgive(worker)
        if worker.registered:
            self.remove(worker)
            worker.free = min(worker.slots, worker.free + 1)
            worker.registered = True
            self._insert(worker)
        return True
