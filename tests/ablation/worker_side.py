"""Switches of the safeguards of a worker, a device and the numbered streams.

A switch replaces a method while the test runs; the machines have no code for switches. A switch
removes one safeguard and leaves everything else as it is.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
from attrs import evolve

from tests.ablation import manager_side
from wmp import codec
from wmp.actions import Send
from wmp.codec.limits import CodecLimits
from wmp.core.device import DeviceMachine
from wmp.core.protocol.outbound import Arrival, Outbound, Stream
from wmp.core.protocol.resources import Resources
from wmp.core.protocol.timers import ResendTimer
from wmp.core.worker.capacity import Capacity
from wmp.core.worker.credit import Credit
from wmp.core.worker.executions import Executions
from wmp.core.worker.locks import Locks
from wmp.core.worker.machine import WorkerMachine
from wmp.core.worker.outbound import WorkerOutbound
from wmp.core.worker.remote_manager import RemoteManager, SessionEntry
from wmp.core.worker.run_queue import RunQueue
from wmp.core.worker.sessions import Sessions
from wmp.core.worker.timers import LockTimer
from wmp.message import Field, Outcome

Patch = pytest.MonkeyPatch

# -- numbered streams, at both ends


def stream_dedupe(patch: Patch) -> None:
    """WMP-7.1: a message that was received before is accepted again."""
    arrive = Stream.arrive

    def believe(self: Stream, number: int) -> Arrival:
        return Arrival.NEXT if number <= self.received else arrive(self, number)

    patch.setattr(Stream, "arrive", believe)


def stream_order(patch: Patch) -> None:
    """WMP-7.1: a message behind a gap is accepted, and the missing messages count as received."""
    arrive = Stream.arrive

    def believe(self: Stream, number: int) -> Arrival:
        self.received = max(self.received, number - 1)
        return arrive(self, number)

    patch.setattr(Stream, "arrive", believe)


def ack_bound(patch: Patch) -> None:
    """WMP-7.4: an ack for a number that was never sent is accepted."""

    def believe(self: Stream, number: int) -> bool:
        while self.kept and self.kept[0].number <= number:
            self.size -= self.kept.popleft().size
        self.acked = number
        return True

    patch.setattr(Stream, "acknowledge", believe)


def refused_messages(patch: Patch) -> None:
    """WMP-7.11: no message takes the place of a refused message."""
    patch.setattr(Outbound, "refused", lambda self, peer, error: None)


def endless_resends(patch: Patch) -> None:
    """WMP-7.12: a message that is never acknowledged is sent again for ever."""
    patch.setattr("wmp.core.protocol.outbound.MAX_RESENDS", 1 << 60)


def refused_twice(patch: Patch) -> None:
    """WMP-7.11: a worker keeps the session in which its other message is refused too."""
    patch.setattr(Sessions, "leave", lambda self, manager, now: None)


# -- locks and capacity


def lock_timeout(patch: Patch) -> None:
    """WMP-4.11: a lock without an answer never times out."""

    def wait(self: Locks, manager: Any, number: int) -> bool:
        self.outbound.timers.set(LockTimer(manager.identity, number), 1e9)
        return False

    patch.setattr(Locks, "time_out", wait)


def withdrawn_lock(patch: Patch) -> None:
    """WMP-4.11: a lock that was withdrawn and not answered stays until the end of its ``hold``."""
    withdraw = Locks.withdraw

    def keep(self: Locks, manager: Any, now: float) -> None:
        before = {
            number: lock.opened + lock.hold for number, lock in self.of(manager.identity).items()
        }
        withdraw(self, manager, now)
        for number, end in before.items():
            self._set_timer(manager, number, end)

    patch.setattr(Locks, "withdraw", keep)


def refused_jobs(patch: Patch) -> None:
    """WMP-4.17: a refused job holds resources as if it ran, and no event releases them."""
    refuse = Executions._refuse

    def hold(self: Executions, *args: Any) -> None:
        if args[5] is Outcome.REFUSED:
            self.resources.take(self.usual)
        refuse(self, *args)

    patch.setattr(Executions, "_refuse", hold)


def first_number(patch: Patch) -> None:
    """WMP-7.10: a worker enters a session only by PONG."""
    enter = RemoteManager.enter

    def wait(self: RemoteManager, session: int | None, *, begins: bool) -> SessionEntry:
        return enter(self, session, begins=begins and self.session_requested)

    patch.setattr(RemoteManager, "enter", wait)


def resources_check(patch: Patch) -> None:
    """WMP-4.1: the free resources are not checked."""
    patch.setattr(Resources, "fits", Resources.capacity)
    patch.setattr(Resources, "take", lambda self, needs, count=1: None)
    patch.setattr(Resources, "release", lambda self, needs, count=1: None)
    patch.setattr("wmp.core.worker.machine.check_worker", lambda *parts: None)


def late_take(patch: Patch) -> None:
    """WMP-4.12: the jobs of a TAKE whose lock is gone wait here although there is no capacity."""
    of = Credit.of
    patch.setattr(Credit, "of", lambda self, needs, spare: of(self, needs, spare) + 1)


def late_take_beside_a_lock(patch: Patch) -> None:
    """WMP-4.12: a TAKE whose lock is gone gets no resources of another lock of its manager."""
    patch.setattr(Locks, "lend", lambda self, manager, needs, count, without=None: None)


def lost_give(patch: Patch) -> None:
    """WMP-5.5: the worker does not see from PONG that a GIVE was lost."""
    patch.setattr(Locks, "compare", lambda self, manager, message: False)


def ready_by_pong(patch: Patch) -> None:
    """WMP-3.13: the worker does not see from PONG that READY or WAKE was lost."""
    compare = Credit.compare

    def unread(self: Credit, manager: Any, message: Any) -> None:
        ready = {Field.READY: manager.ready, Field.CREDIT: manager.announced}
        compare(self, manager, evolve(message, fields={**message.fields, **ready}))

    patch.setattr(Credit, "compare", unread)


def ready_backoff(patch: Patch) -> None:
    """WMP-3.12: the repeats of READY do not back off."""
    end_step = Credit.end_step

    def eager(self: Credit, credit: int, now: float, *, sent: bool) -> None:
        if self._due and credit > 0:
            self._backoff = 0.5
        end_step(self, credit, now, sent=sent)

    patch.setattr(Credit, "end_step", eager)


def pending_wake(patch: Patch) -> None:
    """WMP-3.9: a WAKE that arrives while there is no capacity is forgotten."""
    answer = Capacity._answer_woke

    def forget(self: Capacity, woke: Any, now: float) -> None:
        answer(self, woke, now)
        woke.wake = None

    patch.setattr(Capacity, "_answer_woke", forget)


def vain_wake(patch: Patch) -> None:
    """WMP-3.9: a WAKE that the worker can never serve replaces a pending WAKE."""
    woken = Capacity.woken

    def replace(self: Capacity, manager: Any, link: int, message: Any, now: float) -> None:
        before = manager.wake
        woken(self, manager, link, message, now)
        if manager.wake is before:
            manager.wake = None

    patch.setattr(Capacity, "woken", replace)


def turns(patch: Patch) -> None:
    """WMP-3.10: a freed place goes to the manager that was served last."""
    patch.setattr("wmp.core.worker.capacity._turn", lambda manager: (-manager.served, 0.0))


def byte_limit(patch: Patch) -> None:
    """WMP-7.9: unacknowledged results are kept without a limit."""
    patch.setattr(Credit, "closed", property(lambda self: self.executions.draining))


# -- jobs


def held_already(patch: Patch) -> None:
    """WMP-4.14: a job that the worker already holds is accepted a second time."""
    take = Executions.take

    def forget(self: Executions, manager: Any, link: int, message: Any, *rest: Any) -> None:
        for held in self.held(manager.identity):
            if held.owner == tuple(message.fields[Field.MANAGER]):
                for id in message.columns.ids:
                    held.attempts.pop(id, None)
                    held.states.pop(id, None)
        take(self, manager, link, message, *rest)

    patch.setattr(Executions, "take", forget)


# -- sessions, epochs, liveness


def old_session(patch: Patch) -> None:
    """WMP-7.6: a newer session begins, and the jobs and locks of the old session stay."""

    patch.setattr(Sessions, "lose", lambda self, manager: None)


def message_of_old_session(patch: Patch) -> None:
    """WMP-7.6: a message of an older session is acted on."""
    enter = RemoteManager.enter

    def believe(self: RemoteManager, session: Any, *, begins: bool) -> SessionEntry:
        entry = enter(self, session, begins=begins)
        return SessionEntry.CURRENT if entry is SessionEntry.OLD else entry

    patch.setattr(RemoteManager, "enter", believe)


def forgotten_session(patch: Patch) -> None:
    """WMP-7.8: a forgotten session begins again."""
    enter = RemoteManager.enter

    def believe(self: RemoteManager, session: Any, *, begins: bool) -> SessionEntry:
        if self.stream is None and session is not None:
            self.stream = Stream(session)
        return enter(self, session, begins=begins)

    patch.setattr(RemoteManager, "enter", believe)


def forgotten_number(patch: Patch) -> None:
    """WMP-7.8: the worker does not remember which session it has forgotten."""
    enter = RemoteManager.enter

    def believe(self: RemoteManager, session: Any, *, begins: bool) -> SessionEntry:
        self.forgotten = 0
        return enter(self, session, begins=begins)

    patch.setattr(RemoteManager, "enter", believe)


def older_epoch(patch: Patch) -> None:
    """WMP-9.6: a manager's message of an older epoch is acted on."""
    manager_side._inherit(patch, RemoteManager, lambda new, old: new < old)


def session_of_a_stranger(patch: Patch) -> None:
    """WMP-15.11: a session stays although its manager names an older one over a new route."""
    patch.setattr(Sessions, "disown", lambda *others: None)


def newer_epoch(patch: Patch) -> None:
    """WMP-9.7: a manager's newer epoch takes over what was remembered of the older."""
    manager_side._inherit(patch, RemoteManager, lambda new, old: new > old)


def one_refusal(patch: Patch) -> None:
    """WMP-15.9: the first manager that refuses a worker stops it."""
    patch.setattr(Sessions, "refuse", lambda *rest: True)


def every_refusal(patch: Patch) -> None:
    """WMP-15.9: a worker that no manager serves continues."""
    patch.setattr(Sessions, "refuse", lambda *rest: False)


def expiry(patch: Patch) -> None:
    """WMP-9.14: a manager never expires, however long it is silent."""
    check = Sessions.check_manager

    def wait(self: Sessions, manager: Any, now: float) -> bool:
        manager.received_at = now
        return check(self, manager, now)

    patch.setattr(Sessions, "check_manager", wait)


def replay_by_worker(patch: Patch) -> None:
    """WMP-7.3: unacknowledged messages are not sent again over a new route to a manager."""
    received, connected = WorkerMachine._received, WorkerMachine._connected
    replay, admit = WorkerOutbound.replay, Sessions.admit
    routing = False

    def note(self: WorkerMachine, link: Any, message: Any, now: float) -> None:
        nonlocal routing
        routing = not message.fields.get(Field.AGAIN, False)
        try:
            received(self, link, message, now)
        finally:
            routing = False

    def joined(self: WorkerMachine, link: Any, now: float) -> None:
        nonlocal routing
        routing = True
        try:
            connected(self, link, now)
        finally:
            routing = False

    def moved(self: Sessions, manager: Any, claim: Any, now: float) -> None:
        nonlocal routing
        routing, before = True, routing
        try:
            admit(self, manager, claim, now)
        finally:
            routing = before

    def only_if_asked(self: WorkerOutbound, manager: Any, now: float) -> None:
        if not routing:
            replay(self, manager, now)

    patch.setattr(Sessions, "admit", moved)
    patch.setattr(WorkerMachine, "_received", note)
    patch.setattr(WorkerMachine, "_connected", joined)
    patch.setattr(WorkerOutbound, "replay", only_if_asked)


def resend_by_worker(patch: Patch) -> None:
    """WMP-7.3: an unacknowledged message is never sent again because of its age."""

    def wait(self: WorkerOutbound, manager: Any, now: float) -> None:
        self.timers.set(ResendTimer(manager.identity), now + 1e9)

    patch.setattr(WorkerOutbound, "check_resend", wait)


def again_to_worker(patch: Patch) -> None:
    """WMP-7.3: a manager's ``again`` is ignored."""
    received = WorkerMachine._received

    def deaf(self: WorkerMachine, link: Any, message: Any, now: float) -> None:
        fields = {key: value for key, value in message.fields.items() if key != Field.AGAIN}
        received(self, link, evolve(message, fields=fields), now)

    patch.setattr(WorkerMachine, "_received", deaf)


def silent_link(patch: Patch) -> None:
    """WMP-9.4: a link is not replaced, however long it is silent."""
    patch.setattr("wmp.core.worker.outbound.LinkState.silent_at", lambda self, *rest: float("inf"))


# -- devices


def loop_check(patch: Patch) -> None:
    """WMP-8.5: a device does not recognise its own hop."""
    received = DeviceMachine._received

    def blind(self: DeviceMachine, link: Any, message: Any, now: float) -> list[Any]:
        me, mask = self._me[0], b"not " + self._me[0]
        source = message.source
        hidden = [mask if n % 3 == 2 and hop == me else hop for n, hop in enumerate(source)]
        actions = []
        for action in received(self, link, evolve(message, source=tuple(hidden)), now):
            if isinstance(action, Send):
                source = action.message.source
                shown = tuple(me if hop == mask else hop for hop in source)
                action = evolve(action, message=evolve(action.message, source=shown))
            actions.append(action)
        return actions

    patch.setattr(DeviceMachine, "_received", blind)


def hop_limit(patch: Patch) -> None:
    """WMP-8.5: a device does not count the hops of a message."""
    received = DeviceMachine._received

    def count(self: DeviceMachine, link: Any, message: Any, now: float) -> list[Any]:
        settings, self.settings = self.settings, evolve(self.settings, max_hops=1 << 40)
        try:
            return received(self, link, message, now)
        finally:
            self.settings = settings

    patch.setattr(DeviceMachine, "_received", count)


def path_limit(patch: Patch) -> None:
    """WMP-2.10: the decoder of a device accepts paths of any length."""
    long = functools.partial(codec.peek, limits=evolve(CodecLimits(), hops=1 << 40))
    patch.setattr(codec, "peek", long)


def late_start(patch: Patch) -> None:
    """WMP-9.22: a worker that was stopped does not ask its managers."""
    patch.setattr(Sessions, "look_back", lambda self, now: None)


def early_answer(patch: Patch) -> None:
    """WMP-9.22: a worker that asks begins jobs before the answer."""
    start = RunQueue.start
    patch.setattr(RunQueue, "start", lambda self, now, questioned=(): start(self, now))


def any_answer(patch: Patch) -> None:
    """WMP-9.22: a worker takes any PONG for the answer to its question."""
    pong = WorkerMachine._pong

    def believe(self: WorkerMachine, manager: RemoteManager, message: Any, now: float) -> None:
        manager.asking = 0
        pong(self, manager, message, now)

    patch.setattr(WorkerMachine, "_pong", believe)


def jobs_stay_on_lanes(patch: Patch) -> None:
    """WMP-9.22: a worker that was stopped leaves jobs on lanes, where they begin."""
    patch.setattr(Executions, "recall", lambda self, manager: None)
