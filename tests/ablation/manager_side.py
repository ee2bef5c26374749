"""Switches of a manager's safeguards: each function switches off one safeguard in a test.

A switch replaces a method while the test runs; the machines have no code for switches. A switch
removes one safeguard and leaves everything else as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from wmp.core.manager import job_lifecycle, scheduler, worker_selection
from wmp.core.manager.job_lifecycle import JobInput, JobRecord, JobState
from wmp.core.manager.leases import Leases
from wmp.core.manager.machine import ManagerMachine
from wmp.core.manager.queues import Queue
from wmp.core.manager.remote_worker import RemoteWorker
from wmp.core.manager.requeue import CONNECTION_ENDED, Requeue
from wmp.core.manager.scheduler import Scheduler
from wmp.core.manager.timers import HoldTimer, WorkerSilenceTimer
from wmp.core.manager.worker_selection import WorkerSelection
from wmp.core.protocol.claims import Claims, Standing
from wmp.core.protocol.outbound import Outbound, Stream
from wmp.core.protocol.timers import ResendTimer
from wmp.core.worker.machine import WorkerMachine
from wmp.core.worker.outbound import WorkerOutbound
from wmp.core.worker.sessions import Sessions
from wmp.errors import Superseded
from wmp.message import Command, Field, Outcome

Patch = pytest.MonkeyPatch


def ready_dedupe(patch: Patch) -> None:
    """WMP-3.3: every READY replaces the remembered READY, also a repeated or older READY."""
    ready = Scheduler.ready

    def believe(self: Scheduler, worker: Any, link: Any, message: Any, now: float) -> None:
        worker.ready = 0
        ready(self, worker, link, message, now)

    patch.setattr(Scheduler, "ready", believe)


def unbegun_leases(patch: Patch) -> None:
    """WMP-6.34: TAKE does not tell how many earlier leases ended before the job began."""
    lease = Leases.lease

    def silent(self: Leases, *arguments: Any) -> Any:
        return evolve(lease(self, *arguments), begun=None)

    patch.setattr(Leases, "lease", silent)


def begun_runs(patch: Patch) -> None:
    """WMP-6.34: a job that is queued again counts as a job that had not begun."""
    step = Requeue._step

    def forget(self: Requeue, *arguments: Any, unbegun: int = 0) -> list[Queue]:
        return step(self, *arguments, unbegun=1)

    patch.setattr(Requeue, "_step", forget)


def text_of_cancelled(patch: Patch) -> None:
    """WMP-6.34: the text of DONE cancelled is not read."""
    take_back = Requeue.take_back

    def ignore(self: Requeue, worker: Any, returned: Any, now: float) -> list[Queue]:
        rows = [
            (*row[:3], None, row[4]) if row[1] == Outcome.CANCELLED else row for row in returned
        ]
        return take_back(self, worker, rows, now)

    patch.setattr(Requeue, "take_back", ignore)


def fencing(patch: Patch) -> None:
    """WMP-6.2: the attempt of a result is not compared with the attempt of the lease."""
    done = Scheduler.done

    def believe(self: Scheduler, worker: Any, columns: Any, *others: Any) -> int:
        for id, attempt in zip(columns.ids, columns.attempts, strict=True):
            job = self.leases.record(id)
            if job is not None and job.holder == worker.identity:
                job.attempt = attempt
        return done(self, worker, columns, *others)

    patch.setattr(Scheduler, "done", believe)


def session_of_results(patch: Patch) -> None:
    """WMP-7.7: a numbered message of another session counts as a message of the current session."""
    numbered = ManagerMachine._numbered

    def accept(self: ManagerMachine, worker: Any, fields: Any, now: float) -> str:
        fields = {**fields, Field.SESSION: worker.stream.session}
        return numbered(self, worker, fields, now)

    patch.setattr(ManagerMachine, "_numbered", accept)


def _unchecked(patch: Patch) -> None:
    """Skip the checks of the manager's tables, so that only the world can notice the fault."""
    patch.setattr(ManagerMachine, "check_invariants", lambda self: None)


def refused_twice(patch: Patch) -> None:
    """WMP-7.11: a manager keeps the session in which its NO is refused."""
    replace = ManagerMachine._replace

    def keep(self: ManagerMachine, worker: Any, kept: Any, error: Any, now: float) -> None:
        if kept.command is Command.TAKE and not kept.replaced:
            replace(self, worker, kept, error, now)

    patch.setattr(ManagerMachine, "_replace", keep)


def bound_returns(patch: Patch) -> None:
    """WMP-3.5: the doubled bound on WAKEs stays when a job is granted."""

    def grow(self: Queue, name: str, value: Any) -> None:
        if name == "factor":
            value = max(value, getattr(self, name, 1))
        object.__setattr__(self, name, value)

    patch.setattr(Queue, "__setattr__", grow)


def withdrawn_unseen(patch: Patch) -> None:
    """WMP-4.5: the withdrawal of a lock counts as its GIVE."""
    give = Scheduler.give

    def count(self: Scheduler, worker: Any, message: Any, now: float) -> None:
        give(self, worker, message, now)
        worker.last_lock = max(worker.last_lock, message.fields[Field.LOCK])

    patch.setattr(Scheduler, "give", count)


def order_of_lost_jobs(patch: Patch) -> None:
    """WMP-6.28: jobs that are lost together are queued in the reverse order."""
    lose = Requeue.lose

    def turn(self: Requeue, worker: Any, jobs: Any, *more: Any) -> Any:
        return lose(self, worker, list(reversed(jobs)), *more)

    patch.setattr(Requeue, "lose", turn)


def lost_jobs_wait(patch: Patch) -> None:
    """WMP-6.28: a job that is queued again stands behind the others of its priority."""

    def behind(self: Queue, job: JobRecord) -> None:
        self._line(job.priority).new.append(job)
        self.waiting += 1
        self.batches.seal()

    patch.setattr(Queue, "put_back", behind)


def new_session(patch: Patch) -> None:
    """WMP-7.5: the old session continues with a worker that has forgotten the manager."""
    patch.setattr(ManagerMachine, "_new_session", lambda self, worker, cause, now: None)


def leases_of_the_old_session(patch: Patch) -> None:
    """WMP-7.5: a new session is opened, and the leases of the old session stay."""
    opened = ManagerMachine._new_session

    def keep(self: ManagerMachine, worker: Any, cause: str, now: float) -> None:
        self._scheduler.leases.of(worker)  # grants become records, one for each job
        leases, worker.leases = worker.leases, {}
        opened(self, worker, cause, now)
        worker.leases = leases

    patch.setattr(ManagerMachine, "_new_session", keep)
    _unchecked(patch)


def expiry(patch: Patch) -> None:
    """WMP-9.3: no worker expires, however long it is silent."""

    def wait(self: ManagerMachine, worker: Any, now: float) -> None:
        self._timers.set(WorkerSilenceTimer(worker.identity), now + self.settings.max_silence)

    patch.setattr(ManagerMachine, "_check_silence", wait)


def reconnect_grace(patch: Patch) -> None:
    """WMP-9.16: a worker whose connection ended is given up at once."""
    disconnected = ManagerMachine._disconnected

    def forget(self: ManagerMachine, link: Any, now: float) -> None:
        workers = [w for w in self._workers.values() if w.link == link and w.direct]
        disconnected(self, link, now)
        for worker in workers:
            self._forget(worker, CONNECTION_ENDED, now)

    patch.setattr(ManagerMachine, "_disconnected", forget)


def beats(patch: Patch) -> None:
    """WMP-9.18: no beat counts, so a worker that does not run loses its jobs."""
    patch.setattr(ManagerMachine, "_beat", lambda self, link, message, now: None)


def beat_keys(patch: Patch) -> None:
    """WMP-9.18: beats with any key count."""
    beat = ManagerMachine._beat

    def believe(self: ManagerMachine, link: Any, message: Any, now: float) -> None:
        if (worker := self._workers.get(message.sender[0])) is not None:
            worker.beat_key = message.fields[Field.BEAT]
        beat(self, link, message, now)

    patch.setattr(ManagerMachine, "_beat", believe)


def beat_bound(patch: Patch) -> None:
    """WMP-9.18: beats keep the leases for ever."""
    beat = ManagerMachine._beat

    def believe(self: ManagerMachine, link: Any, message: Any, now: float) -> None:
        if (worker := self._workers.get(message.sender[0])) is not None:
            worker.own_at = now
        beat(self, link, message, now)

    patch.setattr(ManagerMachine, "_beat", believe)


def beat_answers(patch: Patch) -> None:
    """WMP-9.19: a beat is answered over its own route."""
    beat = ManagerMachine._beat

    def answer(self: ManagerMachine, link: Any, message: Any, now: float) -> None:
        worker = self._workers.get(message.sender[0])
        route = None if worker is None else (worker.link, worker.path)
        if worker is not None:
            worker.link, worker.path = link, message.answer_to
        beat(self, link, message, now)
        if worker is not None and route is not None:
            worker.link, worker.path = route

    patch.setattr(ManagerMachine, "_beat", answer)


def older_epoch(patch: Patch) -> None:
    """WMP-9.6: a message of an older epoch is acted on."""
    _inherit(patch, RemoteWorker, lambda new, old: new < old)


def newer_epoch(patch: Patch) -> None:
    """WMP-9.7: a newer epoch inherits the state of the older epoch."""
    _inherit(patch, RemoteWorker, lambda new, old: new > old)


def _inherit(patch: Patch, kind: type, which: Callable[[int, int], bool]) -> None:
    """Let another epoch continue with the state of the identity's holder."""
    judge = Claims.judge

    def go_on(
        self: Claims[Any, Any], holder: Any, link: Any, path: Any, message: Any, now: float
    ) -> Standing:
        if isinstance(holder, kind) and which(path[-2], holder.epoch):
            holder.epoch = path[-2]
            return Standing.MOVED
        return judge(self, holder, link, path, message, now)

    patch.setattr(Claims, "judge", go_on)


# -- claims, at both ends


def claims(patch: Patch) -> None:
    """WMP-15.3: the newest message of the newest epoch holds an identity."""
    judge = Claims.judge

    def believe(
        self: Claims[Any, Any], holder: Any, link: Any, path: Any, message: Any, now: float
    ) -> Standing:
        if path[-2] == holder.epoch:
            return Standing.MOVED
        if path[-2] > holder.epoch:
            return Standing.RESTARTED
        return judge(self, holder, link, path, message, now)

    patch.setattr(Claims, "judge", believe)


def any_claim(patch: Patch) -> None:
    """WMP-15.1: any message holds its identity."""

    def believe(
        self: Claims[Any, Any], holder: Any, link: Any, path: Any, message: Any, now: float
    ) -> Standing:
        return Standing.MOVED if path[-2] == holder.epoch else Standing.RESTARTED

    patch.setattr(Claims, "judge", believe)


def restart_of_the_holder(patch: Patch) -> None:
    """WMP-15.2: a greater epoch over the route of the holder is a claim."""
    judge = Claims.judge

    def ask(
        self: Claims[Any, Any], holder: Any, link: Any, path: Any, message: Any, now: float
    ) -> Standing:
        standing = judge(self, holder, link, path, message, now)
        return Standing.CLAIMED if standing is Standing.RESTARTED else standing

    patch.setattr(Claims, "judge", ask)


def refusal(patch: Patch) -> None:
    """WMP-15.5: the peer of a failed claim receives no ERROR."""
    patch.setattr(Claims, "_refuse", lambda *rest: None)


def failed_claims(patch: Patch) -> None:
    """WMP-15.5: the answer of the holder does not end a claim."""
    patch.setattr(Claims, "answered", lambda *rest: None)


def admission(patch: Patch) -> None:
    """WMP-15.6: no claim is admitted."""
    patch.setattr(ManagerMachine, "_admit", lambda *rest: None)
    patch.setattr(Sessions, "admit", lambda *rest: None)


def route_of_reports(patch: Patch) -> None:
    """WMP-15.8: ERRORs are acted on, whoever sends them."""
    for machine in ("manager", "worker"):
        patch.setattr(f"wmp.core.{machine}.machine.is_on_route", lambda *rest: True)


def answers(patch: Patch) -> None:
    """WMP-15.4: a challenge is not answered."""
    pong, ping = ManagerMachine._pong, WorkerOutbound.ping

    def mute_pong(self: Any, worker: Any, now: float, *, answer: int = 0, **rest: Any) -> None:
        pong(self, worker, now, **rest)

    def mute_ping(self: Any, manager: Any, now: float, *, answer: int = 0, **rest: Any) -> None:
        if not answer:
            ping(self, manager, now, **rest)

    patch.setattr(ManagerMachine, "_pong", mute_pong)
    patch.setattr(WorkerOutbound, "ping", mute_ping)
    patch.setattr(WorkerMachine, "_answer", lambda *rest: None)


def goodbye_of_a_claim(patch: Patch) -> None:
    """WMP-15.7: a BYE over a new route ends no lease."""
    judge = Claims.judge

    def deaf(
        self: Claims[Any, Any], holder: Any, link: Any, path: Any, message: Any, now: float
    ) -> Standing:
        if message.command is Command.BYE:
            return Standing.CLAIMED
        return judge(self, holder, link, path, message, now)

    patch.setattr(Claims, "judge", deaf)


def reports_of_rivals(patch: Patch) -> None:
    """WMP-15.10: ERROR superseded stops a manager."""

    def stop(self: ManagerMachine, link: Any, message: Any, now: float) -> None:
        self._halt(Superseded("replaced"))

    patch.setattr(ManagerMachine, "_abandoned", stop)


def reconciliation(patch: Patch) -> None:
    """WMP-9.13: the list of jobs in a PING is not compared with the leases."""
    ping = ManagerMachine._ping

    def unread(self: ManagerMachine, worker: Any, message: Any, now: float) -> None:
        fields = {key: value for key, value in message.fields.items() if key != Field.IDLE}
        ping(self, worker, evolve(message, fields=fields, columns=None), now)

    patch.setattr(ManagerMachine, "_ping", unread)


def goodbye(patch: Patch) -> None:
    """WMP-9.11: BYE is ignored."""
    forget = ManagerMachine._forget

    def deaf(self: ManagerMachine, worker: Any, cause: str, now: float) -> None:
        if cause != "the worker sent BYE":
            forget(self, worker, cause, now)

    patch.setattr(ManagerMachine, "_forget", deaf)


def echo_after_goodbye(patch: Patch) -> None:
    """A late message of a worker that sent BYE makes the worker known again."""
    patch.setattr("wmp.core.manager.machine.is_late", lambda message: False)


def lost_leases(patch: Patch) -> None:
    """WMP-6.4: a job whose lease is lost is not queued again."""
    patch.setattr(Scheduler, "lose_leases", lambda self, worker, jobs, *cause: None)
    _unchecked(patch)


def replay_by_manager(patch: Patch) -> None:
    """WMP-7.3: unacknowledged messages are not sent again over a worker's new route."""
    received, replay, admit = ManagerMachine._received, Outbound.replay, ManagerMachine._admit
    routing = False

    def note(self: ManagerMachine, link: Any, message: Any, now: float) -> None:
        nonlocal routing
        routing = not message.fields.get(Field.AGAIN, False)
        try:
            received(self, link, message, now)
        finally:
            routing = False

    def moved(self: ManagerMachine, worker: Any, claim: Any, now: float) -> None:
        nonlocal routing
        before, routing = routing, True
        try:
            admit(self, worker, claim, now)
        finally:
            routing = before

    def only_if_asked(self: Outbound[Any, Any], peer: Any, now: float) -> None:
        if not routing:
            replay(self, peer, now)

    patch.setattr(ManagerMachine, "_admit", moved)
    patch.setattr(ManagerMachine, "_received", note)
    patch.setattr(Outbound, "replay", only_if_asked)


def resend_by_manager(patch: Patch) -> None:
    """WMP-7.3: an unacknowledged message is never sent again because of its age."""
    check = Outbound.check_resend

    def wait(self: Outbound[Any, Any], peer: Any, now: float) -> None:
        if isinstance(peer, RemoteWorker):
            self.timers.set(ResendTimer(peer.identity), now + 1e9)
        else:
            check(self, peer, now)

    patch.setattr(Outbound, "check_resend", wait)


def again_to_manager(patch: Patch) -> None:
    """WMP-7.3: a worker's ``again`` is ignored."""
    ping = ManagerMachine._ping

    def deaf(self: ManagerMachine, worker: Any, message: Any, now: float) -> None:
        fields = {key: value for key, value in message.fields.items() if key != Field.AGAIN}
        ping(self, worker, evolve(message, fields=fields), now)

    patch.setattr(ManagerMachine, "_ping", deaf)


def lock_dedupe(patch: Patch) -> None:
    """WMP-4.5: a GIVE that comes twice is served twice."""
    give = Scheduler.give

    def serve(self: Scheduler, worker: Any, message: Any, now: float) -> None:
        if message.fields[Field.WANT]:
            worker.last_lock = 0
        give(self, worker, message, now)

    patch.setattr(Scheduler, "give", serve)


def hold_end(patch: Patch) -> None:
    """WMP-4.4: the rest of a held GIVE is never answered."""
    rang = ManagerMachine._rang

    def forget(self: ManagerMachine, timer: Any, now: float) -> None:
        if not isinstance(timer, HoldTimer):
            rang(self, timer, now)

    patch.setattr(ManagerMachine, "_rang", forget)


def wake_bound(patch: Patch) -> None:
    """WMP-3.5: waiting jobs wake all workers with credit at once."""
    to_wake = WorkerSelection.to_wake
    patch.setattr(
        WorkerSelection, "to_wake", lambda self, queue, count: to_wake(self, queue, 1 << 20)
    )


def wake_timeout(patch: Patch) -> None:
    """WMP-3.5: no other worker is woken when no GIVE arrives."""
    patch.setattr(Scheduler, "widen", lambda self, queue, now: None)


def cancelling(patch: Patch) -> None:
    """WMP-6.12: a job that is being cancelled is queued again when its lease ends."""
    for what in (JobInput.LOSE, JobInput.RETURN, JobInput.REFUSE):
        patch.setitem(job_lifecycle.TRANSITIONS, (JobState.CANCELLING, what), JobState.QUEUED)


def lost_while_cancelling(patch: Patch) -> None:
    """WMP-6.12: a job that is being cancelled is queued again when its lease is lost."""
    patch.setitem(job_lifecycle.TRANSITIONS, (JobState.CANCELLING, JobInput.LOSE), JobState.QUEUED)


def attempts_of_leases(patch: Patch) -> None:
    """WMP-6.2: a worker that holds a job holds every attempt of the job."""

    def holds(self: Leases, worker: RemoteWorker, id: int, attempt: int) -> bool:
        part = self._parts.get(id)
        return part is not None and part.holder == worker.identity

    patch.setattr(Leases, "holds", holds)


def ended_in_the_queue(patch: Patch) -> None:
    """WMP-6.12: a job that was cancelled while it was queued is granted all the same."""

    def stay(self: Queue, job: JobRecord) -> None:
        job.state = JobState.QUEUED

    patch.setattr(Queue, "count_out", stay)


def max_worker_losses(patch: Patch) -> None:
    """WMP-6.4: a job may lose any number of leases."""
    lose = Requeue._lose

    def patient(self: Requeue, worker: Any, job: JobRecord, *texts: str) -> Any:
        job.lost = 0
        job.max_worker_losses = 1
        return lose(self, worker, job, *texts)

    patch.setattr(Requeue, "_lose", patient)


def leaving_again(patch: Patch) -> None:
    """WMP-6.23: leaving with a job, again and again, is a worker loss each time."""
    patch.setattr(JobRecord, "leave", lambda self, identity: True)


def impatience(patch: Patch) -> None:
    """WMP-6.15: a job ends as lost one lost lease too early."""
    lose = Requeue._lose

    def give_up(self: Requeue, worker: Any, job: JobRecord, *texts: str) -> Any:
        job.max_worker_losses -= job.lost == job.max_worker_losses - 1
        return lose(self, worker, job, *texts)

    patch.setattr(Requeue, "_lose", give_up)


def lost_at_the_worker(patch: Patch) -> None:
    """WMP-6.15: the outcome `lost` (a dead worker process) does not count as a worker loss."""
    done = Scheduler.done

    def forgive(self: Scheduler, worker: Any, columns: Any, *others: Any) -> int:
        rows = zip(columns.ids, columns.attempts, columns.outcomes or (), strict=True)
        for id, attempt, outcome in rows:
            job = self.leases.record(id)
            held = self.leases.holds(worker, id, attempt)
            if outcome == Outcome.LOST and held and job is not None:
                job.lost -= 1
        return done(self, worker, columns, *others)

    patch.setattr(Scheduler, "done", forgive)


def handing_back(patch: Patch) -> None:
    """WMP-6.11: a job that its worker hands back ends as cancelled."""
    patch.setitem(job_lifecycle.TRANSITIONS, (JobState.LEASED, JobInput.RETURN), JobState.ENDED)


def takes_that_never_left(patch: Patch) -> None:
    """WMP-6.17: a lease counts although its TAKE was never sent."""
    patch.setattr(Stream, "left", lambda self, number: True)


def refusals_are_free(patch: Patch) -> None:
    """WMP-6.5: a refusal counts as a lost lease."""
    refuse = JobRecord.refuse

    def spend(self: JobRecord, identity: bytes, session: int, reports: int) -> None:
        self.lost += 1
        refuse(self, identity, session, reports)

    patch.setattr(JobRecord, "refuse", spend)


def fair_share(patch: Patch) -> None:
    """The window of one worker may take all waiting jobs."""
    patch.setattr(worker_selection, "_fair", lambda waiting, workers: worker_selection._ALL)


def lease_bound(patch: Patch) -> None:
    """WMP-4.16: a worker is granted as many jobs as it wants."""
    patch.setattr(RemoteWorker, "leases_left", lambda self, queue, maximum: 1 << 62)


def give_bounds(patch: Patch) -> None:
    """One worker may keep any number of GIVEs open and acknowledge nothing."""
    patch.setattr(scheduler, "_MAX_GIVES", 1 << 40)
    patch.setattr(scheduler, "_MAX_KEPT", 1 << 40)
    patch.setattr(scheduler, "_MAX_HOLD", 1e9)


def refusal_memory(patch: Patch) -> None:
    """WMP-6.5: a refused job is granted again at once to the worker that refused it."""
    patch.setattr(JobRecord, "passes_over", lambda self, identity, session, reports: False)


def refusal_backoff(patch: Patch) -> None:
    """WMP-6.5: a worker that keeps refusing a job is asked again at each of its messages."""
    patch.setattr(job_lifecycle, "_MAX_PATIENCE", 1)


def pong(patch: Patch) -> None:
    """WMP-9.2: PING is not answered."""
    send = Outbound.send

    def mute(
        self: Outbound[Any, Any],
        peer: Any,
        command: Command,
        fields: Any,
        columns: Any,
        now: float,
    ) -> bool:
        return command is not Command.PONG and send(self, peer, command, fields, columns, now)

    patch.setattr(Outbound, "send", mute)
