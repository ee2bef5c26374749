"""A worker's room and how managers learn of it: locks, WAKE, GIVE, held GIVE, READY.

Theory of operation. Everything that changes room (a TAKE, a NO, results, time) ends in
one call of ``settle``, which hands out what is free in a fixed order:

1. pending WAKEs, the manager served least recently first (WMP-3.10);
2. READY of credit 0 to a manager that woke us in vain (WMP-3.9);
3. what is left: a held GIVE when there is one manager (spec §5), else READY to those who
   are believed to remember less credit than there is room.

A call of ``settle`` without a change before it says nothing.
"""

from __future__ import annotations

from math import inf
from typing import Any, Final

from attrs import define, field

from wmp.actions import Note
from wmp.core.protocol.resources import Needs, Resources, needs_of, within
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.worker.credit import Credit
from wmp.core.worker.links import LinkState
from wmp.core.worker.locks import IGNORED, Lock, LockInput, LockState
from wmp.core.worker.outbound import WorkerOutbound
from wmp.core.worker.remote_manager import PendingWake, RemoteManager
from wmp.core.worker.run_queue import RunQueue
from wmp.message import DEFAULT_NEEDS, Command, ErrorCode, Field, Message

__all__ = ["Capacity"]

_HOLD_PAUSE: Final = 1.0
"""Seconds without held GIVE after a manager did not keep one, or had no use for it."""


@define(eq=False)
class Capacity:
    """The room of one worker.

    Invariants: ``windowed`` is the sum of ``lock.windowed`` over all locks; the resources
    taken are those of all locks' ``reserved`` jobs and of all lanes, and nothing else.
    """

    board: WorkerOutbound
    lanes: RunQueue
    draining: bool = False
    windowed: int = 0
    """Places in the window that open locks promise."""
    late: int = 0
    """Jobs that came when their lock was gone."""
    ready: Credit = field(init=False)
    usual: Needs = field(init=False)
    """What the jobs need that READY counts."""
    places: int = field(init=False)
    """How many of those run at once when nothing else does."""
    _locks: int = 0
    """Number of the newest lock (WMP-4.1)."""
    _servings: int = 0
    _arrivals: int = 0
    # What the event at hand leaves for ``settle`` to answer.
    _woke: RemoteManager | None = None
    _took: RemoteManager | None = None
    _greets: dict[RemoteManager, None] = field(factory=dict)
    _doubt: RemoteManager | None = None
    _greet_link: LinkState | None = None
    _repeat: bool = False

    def __attrs_post_init__(self) -> None:
        self.ready = Credit(self.board)
        total = self.settings.resources
        if total.get("slots") or not any(total.values()):
            self.usual = DEFAULT_NEEDS if total.get("slots") else ()
        else:
            # No slots at all: the scarcest thing is what limits the jobs that can come.
            self.usual = ((min((n for n in total if total[n]), key=lambda n: (total[n], n)), 1),)
        self.places = self.resources.capacity(self.usual)

    # -- how much

    @property
    def settings(self) -> WorkerSettings:
        """The worker's."""
        return self.board.settings

    @property
    def resources(self) -> Resources:
        """The worker's, shared by lanes and locks."""
        return self.lanes.resources

    @property
    def closed(self) -> bool:
        """Nothing may come: the worker ends, or keeps too many results (WMP-7.9)."""
        return self.draining or self.board.kept_bytes >= self.settings.unacked_bytes

    @property
    def window(self) -> int:
        """Jobs that may wait here without resources: none while some have waited too long."""
        if self.lanes.stalled:
            return 0
        return self.lanes.pace.window(self.places)

    @property
    def window_left(self) -> int:
        """How many of them may still come."""
        return max(0, self.window - self.lanes.parked - self.windowed)

    def of(self, needs: Needs, spare: Resources) -> int:
        """How many more jobs of ``needs`` may come when ``spare`` is free."""
        if self.closed:
            return 0
        fits = spare.fits(needs)
        if not fits and not self.resources.capacity(needs):
            return 0  # it would wait for ever
        return fits + self.window_left

    # -- locks

    def take(self, upstream: RemoteManager, number: int, count: int, *, more: bool) -> int:
        """A TAKE brought ``count`` jobs for a lock; returns for how many it kept a place."""
        self.ready.came = True
        self._took = upstream
        lock = upstream.locks.get(number)
        if lock is None:
            self.late += count
            return 0
        self._serve_mark(upstream)
        kept = min(count, lock.want)
        reserved = min(kept, lock.reserved)
        # A manager that says "more" of a lock that is used up means the end of it.
        closing = not more or kept == lock.want
        lock.step(LockInput.TAKE if closing else LockInput.MORE)
        self.windowed -= kept - reserved
        self.resources.release(lock.needs, reserved)
        lock.want -= kept
        lock.reserved -= reserved
        if closing:
            self._forget_lock(upstream, lock)
        self._borrow(upstream, lock, kept - reserved)
        return kept

    def _borrow(self, upstream: RemoteManager, lock: Lock, count: int) -> None:
        """Let jobs that came for the window start on what newer locks of their manager keep.

        A manager serves its oldest GIVE first, which may have no resources left, while a newer
        one holds the place that is free: its jobs would wait beside it until ``hold`` ends. The
        newer lock keeps its promise as places in the window.
        """
        for other in upstream.locks.values():
            if count <= 0:
                return
            if other is not lock and other.reserved and other.needs == lock.needs:
                moved = min(count, other.reserved)
                other.reserved -= moved
                self.windowed += moved
                self.resources.release(other.needs, moved)
                count -= moved

    def no(self, upstream: RemoteManager, link: int, message: Message, now: float) -> None:
        """A NO came: nothing (more) for this lock (WMP-4.10, 4.13)."""
        number = message.fields[Field.LOCK]
        lock = upstream.locks.get(number)
        if lock is None:
            if number > upstream.last_lock:
                reason = IGNORED[LockState.UNUSED, LockInput.NO]
                text = f"{reason}: {number} was never given to this manager"
                self.board.refuse(link, message, ErrorCode.UNKNOWN, text)
            else:
                self.board.drop(IGNORED[LockState.CLOSED, LockInput.NO], link, message)
            return
        if lock.state is LockState.HELD and now - lock.opened < lock.hold / 2:
            # The earliest a manager that keeps held GIVEs answers NO is half of hold; this
            # one does not, and would be asked again and again at full speed.
            upstream.hold_after = now + _HOLD_PAUSE
        self.close(upstream, lock, LockInput.NO)

    def close(self, upstream: RemoteManager, lock: Lock, what: LockInput) -> None:
        """Release what is left of a lock."""
        if lock.step(what):
            if what is LockInput.TIMEOUT:
                # Its manager may wait for this very GIVE, as the answer to a WAKE (WMP-3.5).
                self._greets[upstream] = None
            if what is not LockInput.NO:  # no message says so
                self.board.actions.append(Note(what.value, upstream.peer, (lock.number,)))
            self._forget_lock(upstream, lock)

    def close_all(self, upstream: RemoteManager) -> None:
        """Its locks are lost: with its session (WMP-7.6), or its place to another (WMP-9.12)."""
        for lock in list(upstream.locks.values()):
            self.close(upstream, lock, LockInput.FORGET)

    def withdraw(self, upstream: RemoteManager, now: float) -> None:
        """Call back held GIVEs; their places stay locked until the answer (WMP-5.4)."""
        for lock in upstream.locks.values():
            if lock.step(LockInput.WITHDRAW):
                fields: dict[int | str, Any] = {Field.LOCK: lock.number, Field.WANT: 0}
                self.board.send(upstream, Command.GIVE, fields, None, now)
                name = ("lock", upstream.identity, lock.number)
                self.board.timers.set(name, now + self._lock_timeout)

    def stall(self, upstream: RemoteManager, now: float) -> None:
        """What waits is handed back to this manager: take back what promises room for it."""
        self.lanes.stalled = True
        self.withdraw(upstream, now)
        if self.board.reachable(upstream):
            self.ready.say(0, 0, now, alone=[upstream])

    def _forget_lock(self, upstream: RemoteManager, lock: Lock) -> None:
        self.windowed -= lock.windowed
        self.resources.release(lock.needs, lock.reserved)
        del upstream.locks[lock.number]
        self.board.timers.clear(("lock", upstream.identity, lock.number))

    def _lock(
        self,
        upstream: RemoteManager,
        roles: tuple[str, ...],
        needs: Needs,
        want: int,
        spare: Resources,
        now: float,
        hold: float = 0.0,
    ) -> None:
        """Lock resources, then say so with GIVE (WMP-4.1, 4.2)."""
        self._locks += 1
        reserved = min(want, spare.fits(needs))
        spare.take(needs, reserved)
        self.resources.take(needs, reserved)
        lock = Lock(self._locks, needs, want, reserved, now, hold)
        lock.step(LockInput.HOLD if hold else LockInput.GIVE)
        self.windowed += lock.windowed
        upstream.locks[lock.number] = lock
        upstream.last_lock = lock.number
        timer = ("lock", upstream.identity, lock.number)
        self.board.timers.set(timer, now + hold + self._lock_timeout)
        fields: dict[int | str, Any] = {}
        if lock.windowed:
            fields[Field.WINDOW] = lock.windowed
        fields[Field.ROLES] = roles
        fields[Field.NEEDS] = dict(needs)
        fields[Field.LOCK] = lock.number
        fields[Field.WANT] = want
        if hold:
            fields[Field.HOLD] = max(1, int(hold * 1000))
        self.board.send(upstream, Command.GIVE, fields, None, now)

    @property
    def _lock_timeout(self) -> float:
        return max(0.01, self.settings.lock_timeout)

    # -- what happened

    def woken(self, upstream: RemoteManager, link: int, message: Message, now: float) -> None:
        """A WAKE came; ``settle`` answers it (WMP-3.8, 3.9)."""
        fields = message.fields
        role, needs, count = fields[Field.ROLE], needs_of(fields[Field.NEEDS]), fields[Field.COUNT]
        upstream.announced = max(0, upstream.announced - count)
        self.ready.came = True
        self.ready.fresh = False
        self._woke = upstream
        if role not in self.settings.roles or not self.resources.capacity(needs):
            # It would wait for ever. An older WAKE, which can be served, stays.
            detail = f"jobs of role {role!r} with needs {dict(needs)} can never run here"
            self.board.drop("wake in vain", link, message, detail)
            return
        if self.draining:
            return
        if not within(needs, self.usual):
            # Held GIVEs lock what such jobs need and never bring them.
            upstream.hold_after = now + max(_HOLD_PAUSE, self.settings.hold)
        self._arrivals += 1
        upstream.wake = PendingWake(role, needs, count, self._arrivals)

    def forget_wake(self, upstream: RemoteManager) -> None:
        """Its WAKE is answered, or of a session that is lost."""
        upstream.wake = None

    def heard_pong(self, upstream: RemoteManager, message: Message) -> None:
        """PONG says what the manager remembers; ``settle`` repairs it (WMP-3.13)."""
        seen = message.fields.get(Field.LOCK, 0)
        for number, lock in list(upstream.locks.items()):
            if seen < number <= upstream.pinged_lock:
                self.board.drop("GIVE was lost", upstream.link, message)
                self.close(upstream, lock, LockInput.TIMEOUT)  # WMP-5.5
        remembered = message.fields.get(Field.READY)
        if remembered is None or remembered < upstream.ready:
            upstream.announced = 0
            self._doubt = upstream
            # One that remembers nothing may stay so while there is no room.
            if remembered is not None and not upstream.locks and upstream.wake is None:
                self._greets[upstream] = None
        else:
            credit = message.fields.get(Field.CREDIT, 0)
            # Less than it was told, by more than the WAKEs that came: one was lost, and until a
            # new READY the manager waits for its answer, however much it remembers (WMP-3.5).
            lost = remembered == upstream.ready and credit < upstream.announced
            # That stands until READY is said, for which there may be no room yet.
            known = upstream.announced if remembered == upstream.ready else credit
            upstream.ready = remembered
            upstream.announced = 0 if lost else min(known, credit)
            self._doubt = upstream

    def met(self, upstream: RemoteManager, *, again: bool) -> None:
        """A manager was not known a moment ago; ``again``: in its older epoch it was."""
        if again:
            self._greets[upstream] = None
        else:
            self.ready.met(upstream)

    def connected(self, link: LinkState) -> None:
        """A link is there (again): say READY on it (WMP-3.1)."""
        self._greet_link = link

    def repeat(self) -> None:
        """The timer for repeating READY rang (WMP-3.12)."""
        self._repeat = True

    # -- the answer to all of it

    def settle(self, spare: Resources, now: float) -> None:
        """Hand out what is free.

        Args:
            spare: What is free after jobs that wait have been looked at; used up here.
        """
        self._serve(spare, now)
        room = self.of(self.usual, spare)
        said = self._answer_woke(now) or self._answer_link(room, now)
        if not self.draining and not said:
            upstream = self._sole(now)
            if upstream is not None:
                said = self._hold(upstream, room, spare, now)
                room = self.of(self.usual, spare)
            if not said:
                said = self._announce(room, now, holding=upstream is not None)
        if self._repeat and room > 0:
            self.ready.repeat(room, self._windowed_of(room), now, said=said)
        self._greets.clear()
        self._woke = self._took = self._doubt = self._greet_link = None
        self._repeat = False

    def _serve(self, spare: Resources, now: float) -> None:
        """Pending WAKEs, least recently served manager first (WMP-3.10)."""
        board = self.board
        pending = [u for u in board.upstreams.values() if u.wake is not None]
        if not pending or self.closed:
            return
        pending = [u for u in pending if board.reachable(u)]
        pending.sort(key=_turn)
        bundle = self.window // 4
        for place, upstream in enumerate(pending):
            wake = upstream.wake
            assert wake is not None
            room = self.of(wake.needs, spare)
            if room <= 0:
                # It waits for more than is free at once: those behind it must not eat it up.
                spare.set_aside(wake.needs)
                continue
            if room < bundle and not spare.fits(wake.needs):
                # Places in the window come free one by one. Given out as they come, to one
                # manager after the other, each job would have messages of its own.
                continue
            share = max(bundle, -(-room // (len(pending) - place)))
            self.forget_wake(upstream)
            if upstream is self._woke:
                self._woke = None
            self._serve_mark(upstream)
            want = min(wake.count, share, room)
            self._lock(upstream, (wake.role,), wake.needs, want, spare, now)

    def _answer_woke(self, now: float) -> bool:
        woke = self._woke
        if woke is None:
            return False
        wake = woke.wake
        if wake is not None:
            for upstream in self.board.upstreams.values():
                if not any(within(wake.needs, lock.needs) for lock in upstream.locks.values()):
                    self.withdraw(upstream, now)
        self.ready.say(0, 0, now, alone=[woke])
        return True

    def _answer_link(self, room: int, now: float) -> bool:
        link = self._greet_link
        if link is None:
            return False
        self.ready.say(room, self._windowed_of(room), now, links=[link], same=True)
        self.board.discover(link, now)
        return True

    def _sole(self, now: float) -> RemoteManager | None:
        """The manager that gets held GIVEs, if the rules allow any (WMP-5.1, 5.2)."""
        upstreams = self.board.upstreams
        if len(upstreams) != 1 or not self.settings.hold > 0 or self.usual != DEFAULT_NEEDS:
            return None
        upstream = next(iter(upstreams.values()))
        if upstream.stream is None or upstream.wake is not None or now < upstream.hold_after:
            return None
        return upstream if self.board.reachable(upstream) else None

    def _hold(self, upstream: RemoteManager, room: int, spare: Resources, now: float) -> bool:
        """A held GIVE when it is worth one; True when READY was said too."""
        covered = upstream.covered
        whole = self.places + self.window
        if room > 0 and (
            4 * room >= whole
            or (not self.lanes.parked and 2 * covered < whole)
            or (self._took is upstream and not covered)
        ):
            self._lock(
                upstream, self.settings.roles, self.usual, room, spare, now, self.settings.hold
            )
        # Jobs that need more than a held GIVE offers still come by WAKE, for which the
        # manager must remember some credit. Not each time: such WAKEs mostly come in vain.
        poor = upstream.announced == 0 and room + covered > 0
        if upstream in self._greets or (
            poor and now - upstream.told >= self.board.interval(upstream)
        ):
            credit = room + covered
            self.ready.say(credit, self._windowed_of(credit), now, alone=[upstream])
            return True
        return False

    def _announce(self, room: int, now: float, *, holding: bool) -> bool:
        """READY to those who remember less than there is (WMP-3.11, 3.13)."""
        whole = self.places + self.window
        lacking: dict[int, list[RemoteManager]] = {}
        for upstream in self.board.upstreams.values():
            if self.board.reachable(upstream) and (
                upstream in self._greets
                or (room > 0 and self._lacks(upstream, room, whole, holding=holding))
            ):
                lacking.setdefault(upstream.link, []).append(upstream)
        if not lacking:
            return False
        wide = [self.board.links[index] for index, who in lacking.items() if len(who) > 1]
        alone = [who[0] for who in lacking.values() if len(who) == 1]
        self.ready.say(room, self._windowed_of(room), now, links=wide, alone=alone)
        return True

    def _lacks(self, upstream: RemoteManager, room: int, whole: int, *, holding: bool) -> bool:
        growth = room - upstream.announced
        if self._doubt is upstream and growth > 0:
            return not upstream.locks and upstream.wake is None
        if holding:
            return False
        if self._took is upstream:
            return True
        if upstream.wake is not None:
            return False
        return growth > 0 and (4 * growth >= whole or not self.lanes.parked)

    def say_closed(self, now: float) -> None:
        """Tell everybody that nothing may come any more."""
        self.ready.say(0, 0, now, links=self.board.links)

    def _windowed_of(self, credit: int) -> int:
        """How many of ``credit`` jobs would wait without resources."""
        return min(credit, self.window_left + self.windowed)

    def _serve_mark(self, upstream: RemoteManager) -> None:
        self._servings += 1
        upstream.served = self._servings


def _turn(upstream: RemoteManager) -> tuple[int, float]:
    wake = upstream.wake
    return upstream.served, inf if wake is None else wake.arrival
