"""The scheduler: offers waiting jobs to workers, and answers their requests.

Spec §3 to §5. :mod:`wmp.core.manager.worker_selection` chooses the workers that are woken and the
open GIVEs that are served. :mod:`wmp.core.manager.leases` holds the granted jobs, and
:mod:`wmp.core.manager.requeue` handles the jobs that come back.
:mod:`wmp.core.manager.job_ends` ends jobs without results. Routes, numbering and liveness
belong to :mod:`wmp.core.manager.machine`, which owns one scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import floor
from typing import Any

from attrs import define, field

from wmp.actions import End, Notify
from wmp.core.manager.delayed_jobs import DelayedJobs
from wmp.core.manager.failures import Failures
from wmp.core.manager.forwarded_jobs import ForwardedJobs
from wmp.core.manager.job_ends import JobEnds
from wmp.core.manager.job_lifecycle import JobInput, JobLimits, JobRecord, JobState
from wmp.core.manager.leases import Leases
from wmp.core.manager.ownership import Ownership
from wmp.core.manager.queues import Part, Queue, Queues
from wmp.core.manager.remote_worker import Give, ManagerOutbound, RemoteWorker, fits
from wmp.core.manager.requeue import REFUSED, SEPARATED, UNACKNOWLEDGED, Requeue
from wmp.core.manager.store_link import StoreLink
from wmp.core.manager.store_writes import FIRST_UNSTORED
from wmp.core.manager.stored_changes import StoredChanges
from wmp.core.manager.stored_records import is_stored
from wmp.core.manager.succession import Succession
from wmp.core.manager.timers import DueTimer, HoldTimer, ManagerTimers, WakeTimer
from wmp.core.manager.worker_selection import WorkerSelection
from wmp.core.protocol.checksums import refuse_wrong
from wmp.core.protocol.outbound import Kept
from wmp.core.protocol.settings import ManagerSettings
from wmp.errors import LocalProtocolError
from wmp.events import Forwarded, InstanceBegun, Retracted, StoreFilled, Submitted, Woken, Written
from wmp.message import (
    Columns,
    Command,
    ErrorCode,
    Field,
    ForwardedKind,
    Kind,
    Link,
    Message,
    Peer,
    named,
)

_MAX_GIVES = 64
"""Limit of the held GIVEs of one worker; further GIVEs are answered at once."""
_MAX_HOLD = 60.0
"""Limit of the seconds for which a GIVE is held, whatever its ``hold``."""
_MAX_KEPT = 4096
"""Limit of the unacknowledged messages to one worker; above it the worker's GIVEs are dropped."""
_MAX_FACTOR = 1 << 20  # above any number of workers, so that the doubling has an end


@define(eq=False)
class Scheduler:
    """The job side of a manager.

    Invariant: a job is in ``leases`` from its first grant until its end. A queued job is in its
    queue and has no holder. A leased job has exactly one holder.
    """

    settings: ManagerSettings
    outbound: ManagerOutbound
    timers: ManagerTimers
    selection: WorkerSelection
    ownership: Ownership
    queues: Queues = field(factory=Queues)
    stored: bool = False
    """Whether the manager has a store."""
    leases: Leases = field(init=False)
    delayed: DelayedJobs = field(init=False)
    requeue: Requeue = field(init=False)
    ends: JobEnds = field(init=False)
    forwarded: ForwardedJobs = field(init=False)
    store: StoreLink | None = field(default=None, init=False)
    """The stored jobs; None without a store."""
    last_id: int = 0
    held_gives: int = 0
    """Number of open GIVEs of all workers."""

    def __attrs_post_init__(self) -> None:
        # Each object knows only those before it.
        outbound, queues, timers = self.outbound, self.queues, self.timers
        ownership = self.ownership
        self.delayed = DelayedJobs(queues.batches)
        self.leases = leases = Leases(outbound, timers)
        changes = StoredChanges(leases) if self.stored else None
        failures = Failures(leases, self.delayed, self.settings.epoch, changes)
        self.requeue = Requeue(outbound, leases, queues, failures, changes)
        self.ends = JobEnds(outbound, leases, queues, timers, self.delayed, ownership, changes)
        self.forwarded = ForwardedJobs(outbound, leases, queues, self.selection, ownership)
        if changes is not None:
            self.last_id = FIRST_UNSTORED - 1
            succession = Succession(outbound, leases, ownership, changes, self.ends, failures)
            self.store = StoreLink(
                outbound, leases, queues, timers, ownership, changes, self.ends, succession
            )

    # -- from the application

    def submit(self, event: Submitted, now: float) -> None:
        """Queue new jobs, and offer them to workers."""
        if len(event.ids) != len(event.payloads):
            text = f"{len(event.ids)} jobs have {len(event.payloads)} payloads"
            raise LocalProtocolError(f"{text}; submit one payload for each job")
        if not event.ids:
            return
        if event.stored is not None:
            if self.store is None:
                raise LocalProtocolError("the manager has no store; submit jobs without `stored`")
            self.store.submit(event, now)
            return
        queue = self.queues.get(event.kind)
        # Round up to a whole millisecond: jobs with one delay then share a batch, and no job is
        # granted too early.
        due = (floor((now + event.delay) * 1000) + 1) / 1000 if event.delay > 0 else None
        begin = now if due is None else due
        deadline = None if event.timeout is None else begin + event.timeout
        limits, first = None, deadline
        some = event.expires is not None or event.run_limit is not None
        if some or event.retry is not None:
            expires_at = None if event.expires is None else begin + event.expires
            limits = JobLimits(expires_at, event.run_limit, event.retry)
            first = _earlier(deadline, expires_at)
        self.last_id = max(self.last_id, event.ids[-1])
        if first is not None:
            self.timers.set_all(event.ids, first)
        terms = event.priority, event.max_worker_losses, deadline, limits
        if due is not None:
            ids, payloads = event.ids, event.payloads
            batch = self.queues.batches.add(ids, payloads, queue.kind, *terms, due)
            self.delayed.extend(due, batch, len(ids))
            self._watch_delayed(now)
            self.queues.tidy(queue)
            return
        queue.append(event.ids, event.payloads, *terms)
        self.offer(queue, now)

    def from_relay(self, event: Forwarded | Retracted, now: float, *, draining: bool) -> None:
        """Queue jobs of another manager and offer them to workers, or take them back (§19)."""
        if isinstance(event, Retracted):
            how = {"unstarted": event.unstarted, "waiting": event.waiting}
            self.ends.cancel(event.ids, now, **how)
            return
        queue = self.forwarded.add(event, now, draining=draining)
        if queue is not None:
            self.offer(queue, now)

    def forwarded_done(
        self, worker: RemoteWorker, owner: Peer, columns: Columns, now: float, codec: str
    ) -> int:
        """Pass results to the manager above; return the number of those that do not count."""
        stale = self.forwarded.done(worker, owner, columns, codec)
        self._offer_all(self._next_share(worker), now)
        return stale

    def from_store(self, event: InstanceBegun | Written | StoreFilled | Woken, now: float) -> None:
        """Act on an event of the store.

        Raises:
            LocalProtocolError: The manager has no store.
        """
        if self.store is None:
            raise LocalProtocolError("the manager has no store; expected no event of a store")
        self._offer_all(self.store.handle(event, now), now)

    def release(self, now: float) -> None:
        """Queue the jobs whose start time has come, and offer them to workers (WMP-6.24)."""
        queues: list[Queue] = []
        for part in self.delayed.release(now):
            queue = self.queues.get(part.kind)
            queue.join(part)
            queues.append(queue)
        self._offer_all(queues, now)
        self._watch_delayed(now)

    def _watch_delayed(self, now: float) -> None:
        """Set the timer to the earliest start time, or to a later moment if due jobs are left."""
        due = self.delayed.next()
        if due is not None:
            self.timers.set(DueTimer(), due if due > now else now + 0.001)

    # -- the jobs that have not ended

    def stored_kinds(self) -> Mapping[Kind, int]:
        """Return the kinds of which jobs wait in the store, with their numbers as far as known."""
        return {} if self.store is None else self.store.demand.waiting()

    @property
    def in_store(self) -> int:
        """The number of the jobs that wait in the store, as far as known."""
        return 0 if self.store is None else self.store.demand.stored

    @property
    def empty(self) -> bool:
        """Return whether all jobs have ended."""
        written = self.store is None or self.store.idle
        return written and not self.leases and not self.queues.waiting and not self.delayed.waiting

    # -- from workers

    def ready(self, worker: RemoteWorker, link: Link, message: Message, now: float) -> None:
        """Remember a worker's newest READY, and offer waiting jobs (spec §3)."""
        fields = message.fields
        number = fields[Field.READY]
        if number <= worker.ready:
            # WMP-3.3: a worker may repeat a READY.
            self.outbound.drop("repeated READY", link, message)
            return
        self.selection.remove(worker)
        self.close_wakes(worker)
        worker.ready = number
        worker.capacity_reports += 1
        worker.forwards = fields.get(Field.FORWARDS, ())
        worker.circular = worker.circular or self.outbound.me[0] in worker.forwards
        if worker.circular:
            # WMP-19.9: its capacity is that of this manager's own workers.
            text = f"worker {named(worker.identity)} offers the workers of this manager itself"
            self.outbound.drop("circle", link, message, f"{text}: managers forward in a circle")
        worker.credit = 0 if worker.circular else fields[Field.CREDIT]
        worker.window = min(fields.get(Field.WINDOW, 0), worker.credit)
        worker.widest = max(worker.widest, worker.window)
        worker.roles = () if worker.circular else tuple(fields[Field.ROLES])
        worker.resources = {} if worker.circular else fields[Field.RESOURCES]
        worker.label = fields.get(Field.LABEL, worker.label)
        worker.headers = {key: value for key, value in fields.items() if isinstance(key, str)}
        self.selection.update(worker)
        if self.store is not None:
            self.store.demand.changed()
        if worker.credit:
            self.offer_to(worker, now)
        else:
            # WMP-3.14: this worker takes no job, so others are woken at once.
            for queue in self.queues.for_roles(worker.roles):
                self.offer(queue, now)

    def give(self, worker: RemoteWorker, message: Message, now: float) -> None:
        """Act on a GIVE (spec §4, §5)."""
        fields = message.fields
        lock, want = fields[Field.LOCK], fields[Field.WANT]
        if want == 0 or lock <= worker.last_lock:
            give = worker.gives.get(lock)
            if want == 0 and give is not None:
                self.close(give, now)
            else:
                self.outbound.drop("repeated lock", message=message)
            return
        if len(worker.stream.kept) > _MAX_KEPT:
            # The worker acknowledges no message, and the manager would have to keep each further
            # answer.
            self.outbound.drop("too much unacknowledged", message=message)
            return
        worker.last_lock = lock
        worker.capacity_reports += 1
        if worker.circular:
            self._no(worker, lock, now)
            return
        hold = min(fields.get(Field.HOLD, 0) / 1000, _MAX_HOLD)
        full = len(worker.gives) >= _MAX_GIVES or self.held_gives >= self.settings.max_gives
        if full or self.ownership.standby:  # WMP-17.1
            hold = 0.0
        until = now + hold - min(self.settings.reply_margin, hold / 2)
        give = Give(
            worker,
            lock,
            want,
            min(fields.get(Field.WINDOW, 0), want),
            tuple(fields[Field.ROLES]),
            fields[Field.NEEDS],
            until,
        )
        worker.widest = max(worker.widest, give.window)
        if not worker.ready and not worker.gives:
            # Without a remembered READY only the GIVE names roles and resources.
            self.selection.remove(worker)
            worker.roles, worker.resources = give.roles, give.needs
        self.close_wakes(worker, give.roles)
        filled = self._fill(give, now, held=until > now)
        held = give.want > 0 and until > now
        for last, (queue, parts) in enumerate(filled, 1 - len(filled)):
            queue.factor = 1
            self._grant(give, queue, parts, now, more=last < 0 or held)
        if held:
            worker.gives[lock] = give
            self.held_gives += 1
            self.selection.update(worker)
            if self.store is not None:
                self.store.demand.changed()
            self.timers.set(HoldTimer(worker.identity, lock), until)
        elif not filled:
            self._no(worker, lock, now)

    def answered(self, worker: RemoteWorker, link: Link, message: Message, now: float) -> None:
        """Act on a DONE or STATUS that is the next message of its stream (WMP-10.5)."""
        fields, columns, ownership = message.fields, message.columns, self.ownership
        assert columns is not None
        owner: Peer = tuple(fields[Field.MANAGER])
        own = owner == self.outbound.me
        several = not own or ownership.store is not None  # else all jobs are this manager's own
        if several and (text := ownership.misnamed(owner, columns.ids)):
            self.outbound.refuse(link, message, ErrorCode.UNKNOWN, text)
            return
        if own and max(columns.ids) > self.last_id:
            # The other jobs of the message still count, because the number of the message will not
            # come again.
            text = "the message names a job that this manager never granted"
            self.outbound.refuse(link, message, ErrorCode.UNKNOWN, text)
        if message.command is Command.STATUS:
            self.status(worker, owner, columns)
            return
        if columns.checksums is not None:
            columns = refuse_wrong(columns)  # WMP-2.13
        codec = fields.get(Field.CODEC, "")
        if not own and ownership.is_foreign(owner):
            stale = self.forwarded_done(worker, owner, columns, now, codec)
        else:
            number = 0 if own else fields[Field.NUMBER]
            stale = self.done(worker, columns, now, codec, number)
        if stale:
            self.outbound.drop("stale result", link, message, f"{stale} of {len(columns.ids)}")
        worker.stream.unacked_bytes += sum(map(len, columns.payloads or ()))

    def close(self, give: Give, now: float) -> None:
        """Answer the rest of an open GIVE with NO."""
        self._forget_give(give)
        self._no(give.worker, give.lock, now)

    def done(
        self, worker: RemoteWorker, columns: Columns, now: float, codec: str, number: int = 0
    ) -> int:
        """Accept results; return the number of those that do not count (WMP-6.2, 6.3, 14.8).

        Args:
            worker: The worker.
            columns: The columns of its DONE.
            now: Seconds.
            codec: Codec of the results.
            number: Number of DONE if its jobs are of the store; else 0.
        """
        stale, changed = list[int](), list[Queue]()
        if not self.leases.settle(worker, columns, codec):
            stale, returned = self.leases.settle_each(worker, columns, codec)
            changed = self.requeue.take_back(worker, returned, now)
            self._watch_delayed(now)
        count = len(stale)
        if number and self.store is not None:
            count = self.store.succession.done(worker, columns, stale, number)
        self._offer_all([*changed, *self._next_share(worker)], now)
        return count

    def compare(self, worker: RemoteWorker, message: Message, now: float) -> None:
        """Compare the list of a PING with the leases of its worker (WMP-9.13, 14.7)."""
        fields, columns, store = message.fields, message.columns, self.store
        if columns is None and not fields.get(Field.IDLE):
            return
        if fields.get(Field.SESSION) != worker.stream.session:
            return
        held = {} if columns is None else dict(zip(columns.ids, columns.attempts, strict=True))
        owner = fields.get(Field.MANAGER)
        stored = owner is not None and self.ownership.is_stored(owner)
        if owner is not None and owner != self.outbound.me and not stored:
            return
        missing = self.leases.missing(worker, fields.get(Field.ACK, 0), held)
        if owner is not None:
            missing = [job for job in missing if is_stored(job) is stored]
            if fields.get(Field.MORE) or fields.get(Field.SENT, 0) > worker.stream.received:
                missing = []
        if missing:
            self.lose_leases(worker, missing, "the worker does not hold the job", now)
        if stored and store is not None and held:
            store.listed(worker, held, now)

    def status(self, worker: RemoteWorker, owner: Peer, columns: Columns) -> None:
        """Pass progress on to the submitter (WMP-6.9), or to the manager above."""
        if self.ownership.is_foreign(owner):
            self.forwarded.status(worker, owner, columns)
            return
        fractions = columns.fractions or [None] * len(columns.ids)
        texts = columns.texts or [None] * len(columns.ids)
        for id, attempt, fraction, text in zip(
            columns.ids, columns.attempts, fractions, texts, strict=True
        ):
            if self.leases.holds(worker, id, attempt):
                self.outbound.actions.append(Notify(id, fraction, text))
                if self.store is not None:
                    self.store.progressed(id, fraction, text)

    def lose(self, worker: RemoteWorker, cause: str, now: float) -> None:
        """Remove the offers of ``worker``, and end all its leases (WMP-6.4)."""
        self.forget_offers(worker)
        self.lose_leases(worker, self.leases.of(worker), cause, now)

    def refused(
        self, worker: RemoteWorker, take: Kept, text: str, now: float, *, named: bool
    ) -> None:
        """Void the leases of a TAKE that its worker refuses, and close its lock (WMP-7.11).

        Args:
            worker: The worker.
            take: The TAKE.
            text: Why the worker refuses the TAKE, for the submitter.
            now: Seconds.
            named: Whether an ERROR names the TAKE; otherwise no acknowledgement came, and the jobs
                may have begun (WMP-7.12).
        """
        lock = take.fields[Field.LOCK]
        if (give := worker.gives.get(lock)) is not None:
            self._forget_give(give)
        jobs = self.leases.of_take(worker, take.number)
        several = take.columns is not None and len(take.columns.ids) > 1
        for job in jobs:
            job.alone = True
        self.outbound.replace(worker, take, Command.NO, {Field.LOCK: lock}, None, 0, now)
        separated = SEPARATED if named else UNACKNOWLEDGED
        self.lose_leases(worker, jobs, separated if several else REFUSED, now, text)

    def lose_leases(
        self,
        worker: RemoteWorker,
        jobs: Sequence[JobRecord],
        cause: str,
        now: float,
        text: str = "",
    ) -> None:
        """End these leases of ``worker``, so that other workers get the jobs (WMP-6.4)."""
        changed = self.requeue.lose(worker, jobs, cause, now, text)
        # The worker may still be connected, and now holds fewer jobs.
        self._offer_all([*changed, *self._next_share(worker)], now)

    def lose_route(self, worker: RemoteWorker, now: float) -> None:
        """Forget a worker's credit.

        Its open GIVEs are answered over the next route (WMP-9.12, 4.4).
        """
        for give in tuple(worker.gives.values()):
            self.close(give, now)
        self.forget_offers(worker)

    def forget_offers(self, worker: RemoteWorker) -> None:
        """Forget a worker's credit, WAKEs and open GIVEs."""
        for give in tuple(worker.gives.values()):
            self._forget_give(give)
        worker.credit = worker.window = 0
        self.selection.remove(worker)
        self.close_wakes(worker)

    def close_wakes(self, worker: RemoteWorker, roles: Iterable[str] | None = None) -> None:
        """Forget the WAKEs of a worker for these roles: GIVE has answered them, or no GIVE will "
        "come."""
        for kind, count in tuple(worker.woken.items()):
            if roles is None or kind.role in roles:
                del worker.woken[kind]
                queue = self.queues.get(kind)
                queue.woken -= count
                self.queues.tidy(queue)

    # -- offering

    def offer(self, queue: Queue, now: float) -> None:
        """Serve open GIVEs with the jobs of ``queue``. Then wake workers for the other jobs."""
        if queue.waiting:
            for worker, share in self.selection.to_serve(queue):
                for give in worker.gives_for(queue):
                    if share > 0:
                        share -= self._serve(give, queue, share, now)
        count = queue.waiting * queue.factor - queue.woken
        wakes = self.selection.to_wake(queue, count) if queue.waiting and count > 0 else ()
        for worker, share in wakes:
            self._wake(worker, queue, share, now)
        if queue.waiting and queue.woken:
            # If no further worker can be woken, fewer candidates are enough.
            after = self.settings.wake_timeout * (1 if wakes else queue.factor)
            after = min(after, self.settings.max_silence)
            self.timers.arm(WakeTimer(queue.kind), now + after)
        self.queues.tidy(queue)

    def _serve(self, give: Give, queue: Queue, share: int, now: float) -> int:
        """Fill an open GIVE with up to ``share`` jobs; return their number."""
        want, settings = give.want, self.settings
        left = min(share, want)
        while left > 0:
            maximum = min(left, settings.bundle)
            parts, count = queue.take(maximum, settings.bundle_bytes, give.worker.mark)
            if [part for part in parts if part.limits is not None]:
                parts, count = self._unexpired(parts, count, queue, maximum, give, now)
            if not parts:
                break
            left -= count
            give.want -= count
            give.worker.hold(queue.kind, count)
            queue.factor = 1
            self._grant(give, queue, parts, now, more=give.want > 0)
        if not give.want:
            self._forget_give(give)
        return want - give.want

    def offer_to(self, worker: RemoteWorker, now: float) -> None:
        """Offer waiting jobs to a worker that reported capacity (WMP-3.6)."""
        if worker.credit:
            self._offer_all(
                (q for q in self._by_urgency(worker.roles) if fits(q.needs, worker.resources)), now
            )

    def widen(self, queue: Queue, now: float) -> None:
        """Wake twice as many workers, because no GIVE came within ``wake_timeout`` (WMP-3.5)."""
        if queue.waiting and queue.woken:
            queue.factor = min(queue.factor * 2, _MAX_FACTOR)
        self.offer(queue, now)

    # -- helpers

    def _by_urgency(self, roles: Iterable[str]) -> list[Queue]:
        queues = [(head, q) for q in self.queues.for_roles(roles) if (head := q.head())]
        if len(queues) > 1:
            queues.sort(key=lambda pair: pair[0])
        return [queue for _, queue in queues]

    def _next_share(self, worker: RemoteWorker) -> Iterable[Queue]:
        """Yield the queues from which a worker may get more jobs, now that it holds fewer jobs."""
        roles = set(worker.roles) if worker.credit else set()
        for give in worker.gives.values():
            roles.update(give.roles)
        return self._by_urgency(sorted(roles))

    def _offer_all(self, queues: Iterable[Queue], now: float) -> None:
        for queue in {id(q): q for q in queues}.values():
            self.offer(queue, now)

    def _fill(self, give: Give, now: float, *, held: bool) -> list[tuple[Queue, list[Part]]]:
        """Yield the jobs for a new GIVE, one kind after the other, the most urgent first."""
        filled: list[tuple[Queue, list[Part]]] = []
        settings = self.settings
        for queue in self._by_urgency(give.roles):
            if give.want and fits(queue.needs, give.needs):
                left = self.selection.maximum(give, queue, held=held)
                while left > 0:
                    maximum = min(left, settings.bundle)
                    parts, count = queue.take(maximum, settings.bundle_bytes, give.worker.mark)
                    if [part for part in parts if part.limits is not None]:
                        parts, count = self._unexpired(parts, count, queue, maximum, give, now)
                    if not parts:
                        break
                    left -= count
                    give.want -= count
                    # Counted now, because the limit of the next queue depends on it (WMP-4.16).
                    give.worker.hold(queue.kind, count)
                    filled.append((queue, parts))
        return filled

    def _unexpired(
        self, parts: list[Part], count: int, queue: Queue, maximum: int, give: Give, now: float
    ) -> tuple[list[Part], int]:
        """End the jobs that have expired at the time of this step, of those taken for a GIVE.

        If all of them have expired, the next jobs of the queue are taken instead.

        Returns:
            The other jobs and their number.
        """
        while parts:
            good: list[Part] = []
            for part in parts:
                if part.limits is None or not part.limits.expired(now):
                    good.append(part)
                    continue
                for job in [part] if type(part) is JobRecord else list(part.waiting()):  # type: ignore[union-attr]
                    count -= 1
                    job.step(JobInput.EXPIRE)
                    text = self.ends.causes.ended(job, JobState.QUEUED, "expired", now)
                    self.leases.end(job, End.TIMEOUT, text)
            if good:
                return good, count
            self.queues.tidy(queue)
            parts, count = queue.take(maximum, self.settings.bundle_bytes, give.worker.mark)
        return parts, count

    def _grant(
        self, give: Give, queue: Queue, parts: list[Part], now: float, *, more: bool
    ) -> None:
        """Send one TAKE for the jobs of each owner."""
        if self.ownership.store is not None and len(parts) > 1:
            stored: list[Part] = [
                part for part in parts if type(part) is JobRecord and is_stored(part)
            ]
            if stored and len(stored) < len(parts):
                others = [part for part in parts if part not in stored]
                self._grant(give, queue, stored, now, more=True)
                parts = others
        worker = give.worker
        columns = self.leases.lease(worker, parts, now)
        kind = queue.kind
        fields: dict[int | str, Any] = {
            Field.ROLE: kind.role,
            Field.NEEDS: queue.needs,
            Field.LOCK: give.lock,
            Field.MANAGER: self.outbound.me,
        }
        if type(kind) is ForwardedKind:
            fields |= {Field.MANAGER: kind.owner, Field.PASSED: kind.passed}
        elif self.ownership.store is not None:
            fields |= self.ownership.fields_of_take(columns.ids[0])
        if more:
            fields[Field.MORE] = True
        if kind.codec:
            fields[Field.CODEC] = kind.codec
        give.window = min(give.window, give.want)
        size = sum(map(len, columns.payloads or ()))
        self.outbound.push(worker, Command.TAKE, fields, columns, now, size)
        self.selection.mark_served(worker)
        self.queues.tidy(queue)

    def _wake(self, worker: RemoteWorker, queue: Queue, share: int, now: float) -> None:
        worker.credit -= share
        worker.window = min(worker.window, worker.credit)
        worker.woken[queue.kind] = share
        queue.woken += share
        self.selection.mark_served(worker)
        self.selection.update(worker)
        fields: dict[int | str, Any] = {
            Field.COUNT: share,
            Field.ROLE: queue.kind.role,
            Field.NEEDS: queue.needs,
        }
        self.outbound.send(worker, Command.WAKE, fields, None, now)

    def _no(self, worker: RemoteWorker, lock: int, now: float) -> None:
        self.outbound.push(worker, Command.NO, {Field.LOCK: lock}, None, now)

    def _forget_give(self, give: Give) -> None:
        worker = give.worker
        if worker.gives.pop(give.lock, None) is not None:
            self.held_gives -= 1
            self.timers.clear(HoldTimer(worker.identity, give.lock))
            self.selection.update(worker)


def _earlier(first: float | None, second: float | None) -> float | None:
    """Return the earlier of two times; None stands for no time."""
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)
