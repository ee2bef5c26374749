"""What a worker, a device and the numbered streams guard themselves with, each as a switch.

A switch replaces a method for as long as the test lasts; the machines know nothing of it. It
takes away one safeguard and leaves everything else as it is.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
from attrs import evolve

from wmp import codec
from wmp.actions import Send
from wmp.codec.strict import CodecLimits
from wmp.core.device import DeviceMachine
from wmp.core.protocol.resources import Resources
from wmp.core.protocol.stream import Arrival, Stream
from wmp.core.protocol.timers import ResendTimer
from wmp.core.worker.capacity import Capacity
from wmp.core.worker.credit import Credit
from wmp.core.worker.executions import Executions
from wmp.core.worker.machine import WorkerMachine, sessions
from wmp.core.worker.outbound import WorkerOutbound
from wmp.message import Field

Patch = pytest.MonkeyPatch

# -- numbered streams, of both ends


def stream_dedupe(patch: Patch) -> None:
    """WMP-7.1: what was received already is accepted again."""
    arrive = Stream.arrive

    def believe(self: Stream, number: int) -> Arrival:
        return Arrival.NEXT if number <= self.received else arrive(self, number)

    patch.setattr(Stream, "arrive", believe)


def stream_order(patch: Patch) -> None:
    """WMP-7.1: what comes behind a gap is accepted, and the gap with it."""
    arrive = Stream.arrive

    def believe(self: Stream, number: int) -> Arrival:
        self.received = max(self.received, number - 1)
        return arrive(self, number)

    patch.setattr(Stream, "arrive", believe)


def ack_bound(patch: Patch) -> None:
    """WMP-7.4: an ack for a number that was never sent is believed."""

    def believe(self: Stream, number: int) -> bool:
        while self.kept and self.kept[0].number <= number:
            self.size -= self.kept.popleft().size
        self.acked = number
        return True

    patch.setattr(Stream, "acknowledge", believe)


# -- locks and room


def lock_timeout(patch: Patch) -> None:
    """WMP-4.11: a lock without an answer stays."""
    ticked = WorkerMachine._ticked_for

    def wait(self: WorkerMachine, upstream: Any, what: str, rest: list[int], now: float) -> None:
        if what == "lock":
            self._board.timers.set((what, upstream.identity, *rest), now + 1e9)
        else:
            ticked(self, upstream, what, rest, now)

    patch.setattr(WorkerMachine, "_ticked_for", wait)


def resources_check(patch: Patch) -> None:
    """WMP-4.1: nobody looks whether what a job needs is free."""
    patch.setattr(Resources, "fits", Resources.capacity)
    patch.setattr(Resources, "take", lambda self, needs, count=1: None)
    patch.setattr(Resources, "release", lambda self, needs, count=1: None)
    patch.setattr("wmp.core.worker.machine.check_worker", lambda *parts: None)


def late_take(patch: Patch) -> None:
    """WMP-4.12: a TAKE whose lock is gone waits here although there is no room."""
    of = Capacity.of
    patch.setattr(Capacity, "of", lambda self, needs, spare: of(self, needs, spare) + 1)


def lost_give(patch: Patch) -> None:
    """WMP-5.5: PONG does not tell that a GIVE was lost."""
    heard = Capacity.heard_pong

    def unread(self: Capacity, upstream: Any, message: Any) -> None:
        heard(self, upstream, evolve(message, fields={**message.fields, Field.LOCK: 1 << 40}))

    patch.setattr(Capacity, "heard_pong", unread)


def ready_by_pong(patch: Patch) -> None:
    """WMP-3.13: PONG does not tell that READY or WAKE was lost."""
    heard = Capacity.heard_pong

    def unread(self: Capacity, upstream: Any, message: Any) -> None:
        ready = {Field.READY: upstream.ready, Field.CREDIT: upstream.announced}
        heard(self, upstream, evolve(message, fields={**message.fields, **ready}))

    patch.setattr(Capacity, "heard_pong", unread)


def ready_backoff(patch: Patch) -> None:
    """WMP-3.12: the repeats of READY do not back off."""
    repeat = Credit.repeat

    def eager(self: Credit, credit: int, window: int, now: float, *, said: bool) -> None:
        self._backoff = 0.5
        repeat(self, credit, window, now, said=said)

    patch.setattr(Credit, "repeat", eager)


def pending_wake(patch: Patch) -> None:
    """WMP-3.9: a WAKE that comes while there is no room is forgotten."""
    answer = Capacity._answer_woke

    def forget(self: Capacity, now: float) -> bool:
        woke = self._woke
        said = answer(self, now)
        if woke is not None:
            woke.wake = None
        return said

    patch.setattr(Capacity, "_answer_woke", forget)


def turns(patch: Patch) -> None:
    """WMP-3.10: a freed place goes to whoever was served last."""
    patch.setattr("wmp.core.worker.capacity._turn", lambda upstream: (-upstream.served, 0.0))


def byte_limit(patch: Patch) -> None:
    """WMP-7.9: results that nobody acknowledges are kept without a limit."""
    patch.setattr(Capacity, "closed", property(lambda self: self.draining))


# -- jobs


def held_already(patch: Patch) -> None:
    """WMP-4.14: a job that is held already is taken a second time."""
    take = Executions.take

    def forget(self: Executions, upstream: Any, link: int, message: Any, now: float) -> None:
        owner = tuple(message.fields[Field.MANAGER])
        held = upstream.taken.get(owner)
        if held is not None:
            for id in message.columns.ids:
                held.attempts.pop(id, None)
                held.states.pop(id, None)
        take(self, upstream, link, message, now)

    patch.setattr(Executions, "take", forget)


# -- sessions, epochs, liveness


def old_session(patch: Patch) -> None:
    """WMP-7.6: a newer session is entered, nothing of the old one is lost."""

    def keep(self: WorkerMachine, upstream: Any) -> None:
        return None

    patch.setattr(WorkerMachine, "_lose", keep)


def message_of_old_session(patch: Patch) -> None:
    """WMP-7.6: a message of an older session is acted on."""
    enter = sessions.enter

    def believe(board: Any, upstream: Any, link: Any, message: Any, now: float) -> Any:
        session, stream = message.fields.get(Field.SESSION), upstream.stream
        if stream is not None and session is not None and session < stream.session:
            return sessions.SessionEntry.KNOWN
        return enter(board, upstream, link, message, now)

    patch.setattr(sessions, "enter", believe)


def forgotten_session(patch: Patch) -> None:
    """WMP-7.8: a session that was forgotten is entered again."""
    enter = sessions.enter

    def believe(board: Any, upstream: Any, link: Any, message: Any, now: float) -> Any:
        session = message.fields.get(Field.SESSION)
        if upstream.stream is None and session is not None:
            upstream.stream = Stream(session)
        return enter(board, upstream, link, message, now)

    patch.setattr(sessions, "enter", believe)


def forgotten_number(patch: Patch) -> None:
    """WMP-7.8: which session was forgotten is not remembered."""
    enter = sessions.enter

    def believe(board: Any, upstream: Any, link: Any, message: Any, now: float) -> Any:
        upstream.forgotten = 0
        return enter(board, upstream, link, message, now)

    patch.setattr(sessions, "enter", believe)


def older_epoch(patch: Patch) -> None:
    """WMP-9.6: a manager's message of an epoch that was replaced is acted on."""
    heard = WorkerMachine._upstream

    def believe(self: WorkerMachine, link: Any, message: Any, now: float) -> Any:
        identity, epoch = message.sender
        upstream = self._board.upstreams.get(identity)
        if upstream is not None:
            upstream.epoch = min(upstream.epoch, epoch)
        if self._gone.get(identity, (-1, 0))[0] > epoch:
            del self._gone[identity]
        return heard(self, link, message, now)

    patch.setattr(WorkerMachine, "_upstream", believe)


def newer_epoch(patch: Patch) -> None:
    """WMP-9.7: a manager's newer epoch takes over what was remembered of the older."""
    heard = WorkerMachine._upstream

    def inherit(self: WorkerMachine, link: Any, message: Any, now: float) -> Any:
        identity, epoch = message.sender
        upstream = self._board.upstreams.get(identity)
        if upstream is not None:
            upstream.epoch = max(upstream.epoch, epoch)
        return heard(self, link, message, now)

    patch.setattr(WorkerMachine, "_upstream", inherit)


def superseded(patch: Patch) -> None:
    """WMP-9.6: nobody is told that it was replaced."""
    patch.setattr("wmp.core.protocol.error_replies.refusal", lambda *rest: [])


def expiry(patch: Patch) -> None:
    """WMP-9.14: a silent manager is never given up."""
    check = WorkerOutbound.check_ping

    def wait(self: WorkerOutbound, upstream: Any, now: float) -> bool:
        upstream.heard = now
        return check(self, upstream, now)

    patch.setattr(WorkerOutbound, "check_ping", wait)


def replay_by_worker(patch: Patch) -> None:
    """WMP-7.3: a new route to a manager does not get what is not acknowledged."""
    received, connected = WorkerMachine._received, WorkerMachine._connected
    replay = WorkerOutbound.replay
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

    def only_if_asked(self: WorkerOutbound, upstream: Any, now: float) -> None:
        if not routing:
            replay(self, upstream, now)

    patch.setattr(WorkerMachine, "_received", note)
    patch.setattr(WorkerMachine, "_connected", joined)
    patch.setattr(WorkerOutbound, "replay", only_if_asked)


def resend_by_worker(patch: Patch) -> None:
    """WMP-7.3: age alone sends nothing again."""

    def wait(self: WorkerOutbound, upstream: Any, now: float) -> None:
        self.timers.set(ResendTimer(upstream.identity), now + 1e9)

    patch.setattr(WorkerOutbound, "check_resend", wait)


def again_to_worker(patch: Patch) -> None:
    """WMP-7.3: ``again`` of a manager is not heard."""
    received = WorkerMachine._received

    def deaf(self: WorkerMachine, link: Any, message: Any, now: float) -> None:
        fields = {key: value for key, value in message.fields.items() if key != Field.AGAIN}
        received(self, link, evolve(message, fields=fields), now)

    patch.setattr(WorkerMachine, "_received", deaf)


def silent_link(patch: Patch) -> None:
    """WMP-9.4: a link is not replaced, however silent it is."""
    patch.setattr("wmp.core.worker.links.LinkState.silent_at", lambda self, *rest: float("inf"))


# -- devices


def loop_check(patch: Patch) -> None:
    """WMP-8.5: a device does not know its own hop again."""
    received = DeviceMachine._received

    def blind(self: DeviceMachine, link: Any, message: Any) -> list[Any]:
        me, mask = self._me[0], b"not " + self._me[0]
        source = message.source
        hidden = [mask if n % 3 == 2 and hop == me else hop for n, hop in enumerate(source)]
        actions = []
        for action in received(self, link, evolve(message, source=tuple(hidden))):
            if isinstance(action, Send):
                source = action.message.source
                shown = tuple(me if hop == mask else hop for hop in source)
                action = evolve(action, message=evolve(action.message, source=shown))
            actions.append(action)
        return actions

    patch.setattr(DeviceMachine, "_received", blind)


def hop_limit(patch: Patch) -> None:
    """WMP-8.5: a device does not count the devices that a message has passed."""
    received = DeviceMachine._received

    def count(self: DeviceMachine, link: Any, message: Any) -> list[Any]:
        settings, self.settings = self.settings, evolve(self.settings, max_hops=1 << 40)
        try:
            return received(self, link, message)
        finally:
            self.settings = settings

    patch.setattr(DeviceMachine, "_received", count)


def path_limit(patch: Patch) -> None:
    """WMP-2.10: the decoder of a device takes paths of any length."""
    long = functools.partial(codec.peek, limits=evolve(CodecLimits(), hops=1 << 40))
    patch.setattr(codec, "peek", long)
