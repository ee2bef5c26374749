"""What a manager guards itself with, each as a function that switches it off in a test.

A switch replaces a method for as long as the test lasts; the machines know nothing of it. It
takes away one safeguard and leaves everything else as it is.
"""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from wmp.core import dispatch, jobs, offers
from wmp.core.dispatch import Dispatch
from wmp.core.jobs import Input, Job, State
from wmp.core.manager import Manager
from wmp.core.offers import Offers
from wmp.core.post import Post
from wmp.core.queues import Queue
from wmp.core.stream import Stream
from wmp.message import Command, Field, Outcome

Patch = pytest.MonkeyPatch


def ready_dedupe(patch: Patch) -> None:
    """WMP-3.3: every READY replaces what is remembered, also a repeated or older one."""
    ready = Manager._ready

    def believe(self: Manager, worker: Any, link: Any, message: Any, now: float) -> None:
        worker.ready = 0
        ready(self, worker, link, message, now)

    patch.setattr(Manager, "_ready", believe)


def fencing(patch: Patch) -> None:
    """WMP-6.2: the attempt of a result is not held against the lease's."""
    done = Dispatch.done

    def believe(self: Dispatch, worker: Any, columns: Any, now: float) -> int:
        for id, attempt in zip(columns.ids, columns.attempts, strict=True):
            job = self.granted.record(id)
            if job is not None and job.worker is worker:
                job.attempt = attempt
        return done(self, worker, columns, now)

    patch.setattr(Dispatch, "done", believe)


def session_of_results(patch: Patch) -> None:
    """WMP-7.7: a numbered message of another session counts as one of the current."""
    numbered = Manager._numbered

    def accept(self: Manager, worker: Any, link: Any, message: Any, now: float) -> None:
        fields = {**message.fields, Field.SESSION: worker.stream.session}
        numbered(self, worker, link, evolve(message, fields=fields), now)

    patch.setattr(Manager, "_numbered", accept)


def new_session(patch: Patch) -> None:
    """WMP-7.5: a worker that has forgotten the manager is kept in the old session."""
    patch.setattr(Manager, "_new_session", lambda self, worker, now: None)


def leases_of_the_old_session(patch: Patch) -> None:
    """WMP-7.5: a new session is opened, the leases of the old one stay."""
    opened = Manager._new_session

    def keep(self: Manager, worker: Any, now: float) -> None:
        self._dispatch.granted.of(worker)  # each has a record of its own now
        leases, worker.leases = worker.leases, {}
        opened(self, worker, now)
        worker.leases = leases

    patch.setattr(Manager, "_new_session", keep)


def expiry(patch: Patch) -> None:
    """WMP-9.3: no worker is ever given up for its silence."""

    def wait(self: Manager, worker: Any, now: float) -> None:
        self._timers.set(("expire", worker.identity), now + self.settings.expire)

    patch.setattr(Manager, "_check_expiry", wait)


def older_epoch(patch: Patch) -> None:
    """WMP-9.6: a message of an epoch that was replaced is acted on."""
    heard = Manager._worker

    def believe(self: Manager, link: Any, message: Any, now: float) -> Any:
        identity, epoch = message.sender
        worker = self._workers.get(identity)
        if worker is not None:
            worker.epoch = min(worker.epoch, epoch)
        if self._gone.get(identity, -1) > epoch:
            del self._gone[identity]
        return heard(self, link, message, now)

    patch.setattr(Manager, "_worker", believe)


def newer_epoch(patch: Patch) -> None:
    """WMP-9.7: a newer epoch takes over what was remembered of the older."""
    heard = Manager._worker

    def inherit(self: Manager, link: Any, message: Any, now: float) -> Any:
        identity, epoch = message.sender
        worker = self._workers.get(identity)
        if worker is not None:
            worker.epoch = max(worker.epoch, epoch)
        return heard(self, link, message, now)

    patch.setattr(Manager, "_worker", inherit)


def reconciliation(patch: Patch) -> None:
    """WMP-9.13: what a PING lists is not held against the leases."""
    ping = Manager._ping

    def unread(self: Manager, worker: Any, message: Any, now: float) -> None:
        fields = {key: value for key, value in message.fields.items() if key != Field.IDLE}
        ping(self, worker, evolve(message, fields=fields, columns=None), now)

    patch.setattr(Manager, "_ping", unread)


def goodbye(patch: Patch) -> None:
    """WMP-9.11: BYE is not acted on."""
    forget = Manager._forget

    def deaf(self: Manager, worker: Any, cause: str, now: float) -> None:
        if cause != "the worker said goodbye":
            forget(self, worker, cause, now)

    patch.setattr(Manager, "_forget", deaf)


def echo_after_goodbye(patch: Patch) -> None:
    """A late message of a worker that said goodbye brings it back."""
    patch.setattr("wmp.core.manager._is_late", lambda message: False)


def lost_leases(patch: Patch) -> None:
    """WMP-6.4: a lease that is lost is not queued again."""
    patch.setattr(Dispatch, "lose_leases", lambda self, worker, jobs, cause, now: None)


def replay_by_manager(patch: Patch) -> None:
    """WMP-7.3: a new route of a worker does not get what is not acknowledged."""
    heard, replay = Manager._worker, Post.replay
    routing = False

    def note(self: Manager, link: Any, message: Any, now: float) -> Any:
        nonlocal routing
        routing = True
        try:
            return heard(self, link, message, now)
        finally:
            routing = False

    def only_if_asked(self: Post, worker: Any, now: float) -> None:
        if not routing:
            replay(self, worker, now)

    patch.setattr(Manager, "_worker", note)
    patch.setattr(Post, "replay", only_if_asked)


def resend_by_manager(patch: Patch) -> None:
    """WMP-7.3: age alone sends nothing again."""
    patch.setattr(Manager, "_check_resend", lambda self, worker, now: None)


def again_to_manager(patch: Patch) -> None:
    """WMP-7.3: ``again`` of a worker is not heard."""
    ping = Manager._ping

    def deaf(self: Manager, worker: Any, message: Any, now: float) -> None:
        fields = {key: value for key, value in message.fields.items() if key != Field.AGAIN}
        ping(self, worker, evolve(message, fields=fields), now)

    patch.setattr(Manager, "_ping", deaf)


def lock_dedupe(patch: Patch) -> None:
    """WMP-4.5: a GIVE that comes twice is served twice."""
    give = Dispatch.give

    def serve(self: Dispatch, worker: Any, message: Any, now: float) -> None:
        if message.fields[Field.WANT]:
            worker.last_lock = 0
        give(self, worker, message, now)

    patch.setattr(Dispatch, "give", serve)


def hold_end(patch: Patch) -> None:
    """WMP-4.4: what is left of a held GIVE is never answered."""
    ticked = Manager._ticked_for

    def forget(self: Manager, worker: Any, what: str, rest: list[int], now: float) -> None:
        if what != "hold":
            ticked(self, worker, what, rest, now)

    patch.setattr(Manager, "_ticked_for", forget)


def wake_bound(patch: Patch) -> None:
    """WMP-3.5: jobs that wait wake everybody who has credit, at once."""
    to_wake = Offers.to_wake
    patch.setattr(Offers, "to_wake", lambda self, queue, count: to_wake(self, queue, 1 << 20))


def wake_timeout(patch: Patch) -> None:
    """WMP-3.5: nobody else is asked when no GIVE comes."""
    patch.setattr(Dispatch, "press", lambda self, queue, now: None)


def cancelling(patch: Patch) -> None:
    """WMP-6.12: a job that is being cancelled is queued again when its lease ends."""
    for what in (Input.LOSE, Input.RETURN, Input.REFUSE):
        patch.setitem(jobs.TRANSITIONS, (State.CANCELLING, what), State.QUEUED)


def ended_in_the_queue(patch: Patch) -> None:
    """WMP-6.12: a job that was cancelled while it waited is given when its turn comes."""

    def stay(self: Queue, job: Job) -> None:
        job.state = State.QUEUED

    patch.setattr(Queue, "count_out", stay)


def retries(patch: Patch) -> None:
    """WMP-6.4: no job is ever given up."""
    lose = Dispatch._lose

    def patient(self: Dispatch, worker: Any, job: Job, cause: str) -> bool:
        job.lost = 0
        job.retries = 1
        return lose(self, worker, job, cause)

    patch.setattr(Dispatch, "_lose", patient)


def impatience(patch: Patch) -> None:
    """WMP-6.15: a job is given up one lost lease too early."""
    lose = Dispatch._lose

    def give_up(self: Dispatch, worker: Any, job: Job, cause: str) -> bool:
        job.retries -= job.lost == job.retries - 1
        return lose(self, worker, job, cause)

    patch.setattr(Dispatch, "_lose", give_up)


def lost_at_the_worker(patch: Patch) -> None:
    """WMP-6.15: that what ran a job died does not count against its retries."""
    done = Dispatch.done

    def forgive(self: Dispatch, worker: Any, columns: Any, now: float) -> int:
        rows = zip(columns.ids, columns.attempts, columns.outcomes or (), strict=True)
        for id, attempt, outcome in rows:
            job = self.granted.record(id)
            held = self.granted.holds(worker, id, attempt)
            if outcome == Outcome.LOST and held and job is not None:
                job.lost -= 1
        return done(self, worker, columns, now)

    patch.setattr(Dispatch, "done", forgive)


def handing_back(patch: Patch) -> None:
    """WMP-6.11: a job that its worker hands back counts as cancelled."""
    patch.setitem(jobs.TRANSITIONS, (State.LEASED, Input.RETURN), State.ENDED)


def takes_that_never_left(patch: Patch) -> None:
    """WMP-6.17: a lease counts although its TAKE never left."""
    patch.setattr(Stream, "left", lambda self, number: True)


def refusals_are_free(patch: Patch) -> None:
    """WMP-6.5: who refuses a job loses its lease."""
    refuse = Job.refuse

    def spend(self: Job, identity: bytes, session: int, said: int) -> None:
        self.lost += 1
        refuse(self, identity, session, said)

    patch.setattr(Job, "refuse", spend)


def fair_share(patch: Patch) -> None:
    """One worker's window may take all that waits."""
    patch.setattr(offers, "_fair", lambda waiting, profiles: offers._ALL)


def give_bounds(patch: Patch) -> None:
    """One worker may have any number of GIVEs open, for ever, and acknowledge nothing."""
    patch.setattr(dispatch, "_MOST_GIVES", 1 << 40)
    patch.setattr(dispatch, "_MOST_KEPT", 1 << 40)
    patch.setattr(dispatch, "_MOST_HOLD", 1e9)


def refusal_memory(patch: Patch) -> None:
    """WMP-6.5: a job is given again at once to who has just refused it."""
    patch.setattr(Job, "passes_over", lambda self, identity, session, said: False)


def refusal_backoff(patch: Patch) -> None:
    """WMP-6.5: who refuses a job again and again is asked at its every next word."""
    patch.setattr(jobs, "_MOST_PATIENCE", 1)


def pong(patch: Patch) -> None:
    """WMP-9.2: PING is not answered."""
    send = Post.send

    def mute(self: Post, worker: Any, command: Command, fields: Any) -> None:
        if command is not Command.PONG:
            send(self, worker, command, fields)

    patch.setattr(Post, "send", mute)
