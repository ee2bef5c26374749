"""A lock: the resources that a worker keeps for the manager to which it sent GIVE (spec §4, §5).

Locks are opened, time out, are withdrawn and are closed here. :mod:`wmp.core.worker.capacity`
decides whether there are resources to offer.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from attrs import define, field

from wmp.actions import Note
from wmp.core.protocol.resources import Needs, Resources
from wmp.core.worker.outbound import WorkerOutbound
from wmp.core.worker.remote_manager import RemoteManager
from wmp.core.worker.timers import LockTimer
from wmp.message import Command, ErrorCode, Field, Message

HOLD_PAUSE: Final = 1.0
"""Seconds without a held GIVE after a manager did not keep a held GIVE, or had no job for it."""


class LockState(Enum):
    """The life of a lock number at the worker."""

    UNUSED = "unused"
    """No GIVE has had this number yet."""
    OPEN = "open"
    """GIVE was sent and is answered at once."""
    HELD = "held"
    """GIVE was sent with ``hold``: the manager may answer later."""
    WITHDRAWN = "withdrawn"
    """A held GIVE was withdrawn; the answer is still to come."""
    CLOSED = "closed"
    """The lock keeps no resources any more."""


class LockInput(Enum):
    """The events in the life of a lock."""

    GIVE = "give"
    HOLD = "hold"
    """GIVE with ``hold``."""
    TAKE = "take"
    """TAKE that closes the lock."""
    MORE = "more"
    """TAKE with ``more``."""
    NO = "no"
    TIMEOUT = "timeout"
    WITHDRAW = "withdraw"
    FORGET = "forget"
    """The manager's session, epoch or route to it is lost, or another manager took its place."""


_S = LockState
_I = LockInput

TRANSITIONS: Final[Mapping[tuple[LockState, LockInput], LockState]] = {
    (_S.UNUSED, _I.GIVE): _S.OPEN,
    (_S.UNUSED, _I.HOLD): _S.HELD,
    (_S.OPEN, _I.TAKE): _S.CLOSED,
    (_S.OPEN, _I.MORE): _S.OPEN,
    (_S.OPEN, _I.NO): _S.CLOSED,
    (_S.OPEN, _I.TIMEOUT): _S.CLOSED,
    (_S.OPEN, _I.FORGET): _S.CLOSED,
    (_S.HELD, _I.TAKE): _S.CLOSED,
    (_S.HELD, _I.MORE): _S.HELD,
    (_S.HELD, _I.NO): _S.CLOSED,
    (_S.HELD, _I.TIMEOUT): _S.CLOSED,
    (_S.HELD, _I.WITHDRAW): _S.WITHDRAWN,
    (_S.HELD, _I.FORGET): _S.CLOSED,
    # The answer and the withdrawal crossed each other. The jobs are accepted.
    (_S.WITHDRAWN, _I.TAKE): _S.CLOSED,
    (_S.WITHDRAWN, _I.MORE): _S.WITHDRAWN,
    (_S.WITHDRAWN, _I.NO): _S.CLOSED,
    (_S.WITHDRAWN, _I.TIMEOUT): _S.CLOSED,
    (_S.WITHDRAWN, _I.FORGET): _S.CLOSED,
}
"""The state that follows from each state by each input."""

_LATE_TAKE = "the TAKE is late: its jobs run if the worker has capacity, else they are refused"
_GIVEN = "lock numbers grow: no GIVE uses a number again"

IGNORED: Final[Mapping[tuple[LockState, LockInput], str]] = {
    # A TAKE always grants leases, whatever happened to the lock, and is never dropped (WMP-4.12).
    (_S.UNUSED, _I.TAKE): _LATE_TAKE,
    (_S.UNUSED, _I.MORE): _LATE_TAKE,
    (_S.UNUSED, _I.NO): "unknown lock",  # the NO is answered by ERROR unknown (WMP-4.13)
    (_S.UNUSED, _I.TIMEOUT): "the lock has no timer",
    (_S.UNUSED, _I.WITHDRAW): "no GIVE has this lock",
    (_S.UNUSED, _I.FORGET): "no GIVE has this lock",
    (_S.OPEN, _I.GIVE): _GIVEN,
    (_S.OPEN, _I.HOLD): _GIVEN,
    (_S.OPEN, _I.WITHDRAW): "the manager answers a GIVE without hold at once",
    (_S.HELD, _I.GIVE): _GIVEN,
    (_S.HELD, _I.HOLD): _GIVEN,
    (_S.WITHDRAWN, _I.GIVE): _GIVEN,
    (_S.WITHDRAWN, _I.HOLD): _GIVEN,
    (_S.WITHDRAWN, _I.WITHDRAW): "the lock is withdrawn already",
    (_S.CLOSED, _I.GIVE): _GIVEN,
    (_S.CLOSED, _I.HOLD): _GIVEN,
    (_S.CLOSED, _I.TAKE): _LATE_TAKE,
    (_S.CLOSED, _I.MORE): _LATE_TAKE,
    (_S.CLOSED, _I.NO): "lock already released",  # the NO is counted and not answered (WMP-4.13)
    (_S.CLOSED, _I.TIMEOUT): "the lock is closed and its timer cleared",
    (_S.CLOSED, _I.WITHDRAW): "the lock is closed already",
    (_S.CLOSED, _I.FORGET): "the lock is closed already",
}
"""Every other pair, and the reason why it changes nothing."""


@define(eq=False)
class Lock:
    """One GIVE that is not closed.

    Invariant: 0 ≤ reserved ≤ want. The worker's resources for ``reserved`` jobs are taken. The
    other ``want - reserved`` jobs are promised places in the worker's window.
    """

    number: int
    needs: Needs
    want: int
    """Number of jobs that may still come."""
    reserved: int
    """Number of these jobs for which resources are locked."""
    opened: float
    hold: float = 0.0
    """Seconds that the manager may keep the GIVE."""
    state: LockState = LockState.UNUSED

    def step(self, what: LockInput) -> bool:
        """Change the state by the table; return False when ``what`` is ignored."""
        state = TRANSITIONS.get((self.state, what))
        if state is None:
            return False
        self.state = state
        return True

    @property
    def windowed(self) -> int:
        """Number of promised places in the window."""
        return self.want - self.reserved


_NO_LOCKS: Final[Mapping[int, Lock]] = {}


@define(eq=False)
class Locks:
    """All locks of a worker that are not closed.

    Invariants: ``windowed`` is the sum of ``lock.windowed`` over all locks. Each lock has taken the
    resources of its ``reserved`` jobs. A manager without locks is not kept.
    """

    outbound: WorkerOutbound
    resources: Resources
    """The resources that lanes and locks share."""
    windowed: int = 0
    """Number of places in the window that open locks promise."""
    late: int = 0
    """Number of jobs that came after their lock was closed."""
    newest: int = 0
    """Number of the newest lock (WMP-4.1)."""
    _open: dict[bytes, dict[int, Lock]] = field(factory=dict)
    """The locks by identity of the manager and by number."""

    def of(self, manager: bytes) -> Mapping[int, Lock]:
        """Locks of a manager, by number."""
        return self._open.get(manager, _NO_LOCKS)

    def covered(self, manager: RemoteManager) -> int:
        """Return the number of jobs that may still come under held GIVEs."""
        want = 0
        for lock in self.of(manager.identity).values():  # a generator costs more
            if lock.state is LockState.HELD:
                want += lock.want
        return want

    # -- opened

    def open(
        self,
        manager: RemoteManager,
        roles: tuple[str, ...],
        needs: Needs,
        want: int,
        spare: Resources,
        now: float,
        hold: float = 0.0,
    ) -> None:
        """Lock resources, then report the lock with GIVE (WMP-4.1, 4.2).

        Args:
            manager: The manager that gets the GIVE.
            roles: Roles offered.
            needs: Needs of each job.
            want: Number of jobs that may come.
            spare: Resources that are free for locks; this lock takes its share from them.
            now: Seconds.
            hold: Seconds that the manager may keep the GIVE.
        """
        self.newest = number = self.newest + 1
        reserved = min(want, spare.fits(needs))
        spare.take(needs, reserved)
        self.resources.take(needs, reserved)
        lock = Lock(number, needs, want, reserved, now, hold)
        lock.step(LockInput.HOLD if hold else LockInput.GIVE)
        self.windowed += lock.windowed
        self._open.setdefault(manager.identity, {})[number] = lock
        manager.last_lock = number
        self._set_timer(manager, number, now + hold)
        fields: dict[int | str, Any] = {}
        if lock.windowed:
            fields[Field.WINDOW] = lock.windowed
        fields[Field.ROLES] = roles
        fields[Field.NEEDS] = dict(needs)
        fields[Field.LOCK] = number
        fields[Field.WANT] = want
        if hold:
            fields[Field.HOLD] = max(1, int(hold * 1000))
        self.outbound.send(manager, Command.GIVE, fields, None, now)

    # -- answered

    def take(self, manager: RemoteManager, number: int, count: int, *, more: bool) -> int:
        """Record a TAKE of ``count`` jobs; return the number of places that its lock kept."""
        locks = self._open.get(manager.identity, _NO_LOCKS)
        lock = locks.get(number)
        if lock is None:
            self.late += count
            return 0
        kept = min(count, lock.want)
        reserved = min(kept, lock.reserved)
        # A manager that sends ``more`` although the lock is used up closes the lock.
        closing = not more or kept == lock.want
        lock.step(LockInput.TAKE if closing else LockInput.MORE)
        self.windowed -= kept - reserved
        self.resources.release(lock.needs, reserved)
        lock.want -= kept
        lock.reserved -= reserved
        if closing:
            self._remove(manager, lock)
        if reserved < kept:
            self.lend(manager, lock.needs, kept - reserved, without=lock)
        return kept

    def lend(
        self, manager: RemoteManager, needs: Needs, count: int, *, without: Lock | None = None
    ) -> None:
        """Let jobs start on the resources of other locks of their manager.

        A manager serves its oldest GIVE first. That GIVE may have no resources left while a newer
        GIVE holds the free place: jobs would wait beside the free place until ``hold`` ends. If the
        lock of the oldest GIVE is gone, its jobs would be refused beside the free place. The other
        locks keep their promise as places in the window.

        Args:
            manager: The manager of the jobs.
            needs: Needs of each job.
            count: Number of the jobs.
            without: A lock that lends nothing.
        """
        for other in self.of(manager.identity).values():
            if count <= 0:
                return
            if other is not without and other.reserved and other.needs == needs:
                moved = min(count, other.reserved)
                other.reserved -= moved
                self.windowed += moved
                self.resources.release(other.needs, moved)
                count -= moved

    def no(self, manager: RemoteManager, link: int, message: Message, now: float) -> None:
        """Act on a NO: no jobs, or no further jobs, come for this lock (WMP-4.10, 4.13)."""
        number = message.fields[Field.LOCK]
        lock = self.of(manager.identity).get(number)
        if lock is None:
            if number > manager.last_lock:
                reason = IGNORED[LockState.UNUSED, LockInput.NO]
                text = f"{reason}: no GIVE to this manager had lock {number}"
                self.outbound.refuse(link, message, ErrorCode.UNKNOWN, text)
            else:
                self.outbound.drop(IGNORED[LockState.CLOSED, LockInput.NO], link, message)
            return
        if lock.state is LockState.HELD and now - lock.opened < lock.hold / 2:
            # A manager that keeps held GIVEs answers NO after half of ``hold`` at the earliest.
            # This manager does not keep them. If the worker sent a new held GIVE at once, both
            # would exchange messages without pause.
            manager.hold_after = now + HOLD_PAUSE
        self._close(manager, lock, LockInput.NO)

    # -- not answered

    def time_out(self, manager: RemoteManager, number: int) -> bool:
        """Act on the timer of a lock (WMP-4.11); return whether the lock was still open."""
        lock = self.of(manager.identity).get(number)
        if lock is not None:
            self._close(manager, lock, LockInput.TIMEOUT)
        return lock is not None

    def compare(self, manager: RemoteManager, message: Message) -> bool:
        """Close locks whose GIVE was lost, as a PONG shows.

        Return whether there were any (WMP-5.5).
        """
        seen, lost = message.fields.get(Field.LOCK, 0), False
        for number, lock in list(self.of(manager.identity).items()):
            if seen < number <= manager.pinged_lock:
                self.outbound.drop("GIVE was lost", manager.link, message)
                self._close(manager, lock, LockInput.TIMEOUT)
                lost = True
        return lost

    def withdraw(self, manager: RemoteManager, now: float) -> None:
        """Withdraw held GIVEs; their places stay locked until the answer (WMP-5.4)."""
        for lock in self.of(manager.identity).values():
            if lock.step(LockInput.WITHDRAW):
                fields: dict[int | str, Any] = {Field.LOCK: lock.number, Field.WANT: 0}
                self.outbound.send(manager, Command.GIVE, fields, None, now)
                self._set_timer(manager, lock.number, now)

    def take_back(self, manager: RemoteManager, now: float) -> None:
        """Withdraw held GIVEs, and release the places of all GIVEs at once (WMP-17.4)."""
        self.withdraw(manager, now)
        self.forget(manager)

    def forget(self, manager: RemoteManager) -> None:
        """Close the locks of a manager.

        The locks are lost with the session (WMP-7.6), or because another manager took the manager's
        place on the link (WMP-9.12) or in a pair (WMP-17.4).
        """
        for lock in list(self.of(manager.identity).values()):
            self._close(manager, lock, LockInput.FORGET)

    def undelivered(self, manager: RemoteManager, number: int) -> None:
        """Close the lock of a GIVE that did not reach its manager."""
        lock = self.of(manager.identity).get(number)
        if lock is not None:
            self._close(manager, lock, LockInput.FORGET)

    # -- closed

    def _close(self, manager: RemoteManager, lock: Lock, what: LockInput) -> None:
        """Release the rest of a lock."""
        if lock.step(what):
            if what is not LockInput.NO:  # messages in the journal show the other causes
                self.outbound.actions.append(Note(what.value, manager.peer, (lock.number,)))
            self._remove(manager, lock)

    def _remove(self, manager: RemoteManager, lock: Lock) -> None:
        self.windowed -= lock.windowed
        self.resources.release(lock.needs, lock.reserved)
        locks = self._open[manager.identity]
        del locks[lock.number]
        if not locks:
            del self._open[manager.identity]
        self.outbound.timers.clear(LockTimer(manager.identity, lock.number))

    def _set_timer(self, manager: RemoteManager, number: int, start: float) -> None:
        """Set the timer of the lock to ``lock_timeout`` after ``start``."""
        timeout = max(0.01, self.outbound.settings.lock_timeout)
        self.outbound.timers.set(LockTimer(manager.identity, number), start + timeout)

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        locks = [lock for locks in self._open.values() for lock in locks.values()]
        assert self.windowed == sum(lock.windowed for lock in locks)
        assert all(0 <= lock.reserved <= lock.want for lock in locks), locks
        assert all(self._open.values()), "each listed manager must have an open lock"
