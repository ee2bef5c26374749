"""A store in memory that is written directly from the table of stored jobs: slow and obvious.

Other stores are tested against this store: the same history gives the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from attrs import define, evolve, field

from wmp.errors import InstanceEnded
from wmp.message import Kind
from wmp.store.contract import JobFilter, QueuedKind, StoredJob, StoreInstance, SubmitterNews
from wmp.store.job_terms import StoredTerms
from wmp.store.store_settings import LEARNING
from wmp.store.stored_job import (
    ENDED,
    INHERITED,
    OF_KEY,
    OPEN,
    TRANSITIONS,
    Effect,
    Guard,
    StoredJobInput,
    StoredJobState,
    Transition,
    rows_of,
)
from wmp.store.write_batch import (
    AddAnswer,
    BatchAnswer,
    ChangeAnswer,
    JobChanges,
    NewJobs,
    Reservation,
    ReservedJobs,
    StoredFailure,
    SweptJob,
    WriteBatch,
)

_BLOCK: Final = 65_536
_KEPT_INSTANCES: Final = 24 * 3_600_000
_State = StoredJobState
_In = StoredJobInput


@define(eq=False)
class _StoredRow:
    """One stored job, which changes."""

    id: int
    state: StoredJobState
    kind: Kind
    terms: StoredTerms
    priority: int
    due: int
    deadline_ms: int | None
    expires_at_ms: int | None
    created: int
    key: str | None
    payload: bytes
    submitter: int | None
    instance: int | None = None
    attempt: int = 0
    lost: int = 0
    failed: int = 0
    unbegun: int = 0
    ended: int | None = None
    purge: int | None = None
    result: bytes | None = None
    over: bool = False
    worker: str | None = None
    begun: int | None = None
    ran: int = 0
    fraction: float | None = None
    note: str | None = None
    watchers: set[int] = field(factory=set)
    history: list[StoredFailure] = field(factory=list)
    new: NewJobs | None = None
    """The submission of a job that has not got the results for which it waits."""

    def value(self, *, payloads: bool) -> StoredJob:
        """Return the job as a value."""
        return StoredJob(
            self.id,
            self.state,
            self.kind,
            self.terms,
            self.priority,
            self.due,
            self.attempt,
            self.lost,
            self.failed,
            self.unbegun,
            self.instance,
            self.submitter,
            self.deadline_ms,
            self.expires_at_ms,
            self.created,
            self.ended,
            self.purge,
            self.key,
            self.payload if payloads else None,
            self.result if payloads else None,
            self.worker,
            self.begun,
            self.ran,
            self.fraction,
            self.note,
            tuple(self.history) if payloads else (),
        )


@define(eq=False)
class _InstanceRow:
    """One instance, which changes."""

    value: StoreInstance
    begun: int
    valid_until: int
    ended: int | None = None
    batch: int = 0


@define(eq=False)
class _Change:
    """The values of one input for one job."""

    me: int
    now: int
    attempt: int = 0
    cost: int = 0
    wait: int = 0
    payload: bytes = b""
    failure: StoredFailure | None = None
    worker: str | None = None
    age: int | None = None
    fraction: float | None = None
    note: str | None = None
    unbegun: int = 0


@define(eq=False)
class ReferenceStore:
    """See the module. ``died`` contains the instances whose processes ended without ``end``."""

    clock: Callable[[], float]
    grace: int = 10_000
    validity: int = 15_000
    identity: bytes = b"reference"
    generation: int = 1
    died: set[int] = field(factory=set)
    _rows: dict[int, _StoredRow] = field(factory=dict)
    _instances: dict[int, _InstanceRow] = field(factory=dict)
    _next_id: int = 1
    _next_instance: int = 1
    _last_epoch: int = 0
    _stirred: bool = False

    def _now(self) -> int:
        return int(self.clock() * 1000)

    # -- instances ------------------------------------------------------------------------------

    def begin(self, identity: bytes, label: str) -> StoreInstance:
        """Begin an instance."""
        now = self._now()
        self._last_epoch = max(now, self._last_epoch + 1)
        block = self._block()
        me = StoreInstance(self._next_instance, identity, self._last_epoch, label, block)
        self._next_instance += 1
        self._instances[me.number] = _InstanceRow(me, now, now + self.validity)
        return me

    def _block(self) -> range:
        first = self._next_id
        self._next_id += _BLOCK
        return range(first, first + _BLOCK)

    def end(self, me: StoreInstance) -> None:
        """End an instance in good order."""
        row = self._instances.get(me.number)
        if row is not None and row.ended is None:
            row.ended = self._now()

    def living(self) -> set[int]:
        """Return the numbers of the instances that have not ended."""
        return {number for number, row in self._instances.items() if row.ended is None}

    def _ended_at(self, number: int | None) -> float:
        """Return when an instance ended; infinity for a living one."""
        row = self._instances.get(number or 0)
        if row is None:
            return float("-inf")
        return float("inf") if row.ended is None else row.ended

    # -- writing --------------------------------------------------------------------------------

    def apply(self, me: StoreInstance, number: int, batch: WriteBatch) -> BatchAnswer:
        """Apply a batch."""
        now, row = self._now(), self._instances.get(me.number)
        if row is None or row.ended is not None:
            raise InstanceEnded(f"instance {me.number} has ended")
        if number not in (row.batch, row.batch + 1):
            raise ValueError(f"the batch has number {number}; expected {row.batch + 1}")
        row.valid_until = now + self.validity
        if number == row.batch:
            return self._repeated(batch, now)
        row.batch = number
        self._stirred = False
        adds = [self._add(me.number, now, new) for new in batch.adds]
        changes = [self._change(me.number, now, change) for change in batch.changes]
        swept = self._receive_and_sweep(me.number, now, batch)
        self._resolve(now)
        return BatchAnswer(
            now=now,
            repeated=False,
            adds=adds,
            changes=changes,
            swept=swept,
            stirred=self._stirred,
            reserved=[self._reserve(me.number, now, wanted) for wanted in batch.reservations],
            block=self._block() if batch.block else None,
        )

    def _repeated(self, batch: WriteBatch, now: int) -> BatchAnswer:
        adds = []
        for new in batch.adds:
            rows = [
                self._rows.get(id) or self._of_key(key, new.kind.role, kept=True)
                for id, key in zip(new.ids, new.keys or [None] * len(new.ids), strict=True)
            ]
            adds.append(
                AddAnswer(
                    [0 if row is None else row.id for row in rows],
                    [_State.ABSENT if row is None else row.state for row in rows],
                )
            )
        return BatchAnswer(
            now, True, adds, [self._states(changes.ids) for changes in batch.changes], (), (), None
        )

    def _states(self, ids: Iterable[int]) -> ChangeAnswer:
        rows = [self._rows.get(id) for id in ids]
        return ChangeAnswer(
            [_State.ABSENT if row is None else row.state for row in rows],
            [0 if row is None else row.attempt for row in rows],
        )

    def _of_key(self, key: str | None, role: str, *, kept: bool) -> _StoredRow | None:
        if key is None:
            return None
        rows = [row for row in self._rows.values() if (row.key, row.kind.role) == (key, role)]
        for row in rows:
            if row.state in OF_KEY:
                return row
        ended = [row for row in rows if kept and row.state in ENDED]
        return max(ended, key=lambda row: (row.ended or 0, row.id), default=None)

    def _add(self, me: int, now: int, new: NewJobs) -> AddAnswer:
        due = now + new.delay_ms
        waits = any(
            row.state is _State.QUEUED and row.kind == new.kind and row.due <= now
            for row in self._rows.values()
        )
        reserve = new.reserve and not new.delay_ms and not waits and not new.after
        what = _In.ADD_RESERVED if reserve else _In.ADD_WAITING if new.after else _In.ADD
        timed = not new.after
        ids = []
        for index, id in enumerate(new.ids):
            key = _at(new.keys, index, None)
            row = self._rows.get(id) or self._of_key(key, new.kind.role, kept=new.unique == "kept")
            if row is None:
                row = self._rows[id] = _StoredRow(
                    id=id,
                    state=TRANSITIONS[_State.ABSENT, what],
                    kind=new.kind,
                    terms=new.terms,
                    priority=new.priority,
                    due=due,
                    deadline_ms=None
                    if new.timeout_ms is None or not timed
                    else due + new.timeout_ms,
                    expires_at_ms=(
                        None if new.expires_in_ms is None or not timed else due + new.expires_in_ms
                    ),
                    created=now,
                    key=key,
                    payload=bytes(new.payloads[index]),
                    submitter=me,
                    new=new if new.after else None,
                )
                for effect in rows_of(what)[0].effects:
                    self._take_effect(effect, row, _Change(me, now))
            elif row.id != id:
                row.watchers.add(me)
            ids.append(row.id)
        if new.after:
            # Only these: a job that others end in this batch is visited after all changes.
            self._decide(
                now, [row for id in new.ids if (row := self._rows.get(id)) and row.new is new]
            )
        return AddAnswer(ids, [self._rows[id].state for id in ids])

    def _resolve(self, now: int) -> None:
        """Release or end the jobs that need not wait any more."""
        while self._decide(now, sorted(self._rows.values(), key=lambda row: row.id)):
            pass

    def _decide(self, now: int, rows: Iterable[_StoredRow]) -> bool:
        """Release or end some waiting jobs; return whether one of them ended."""
        ended = False
        for row in rows:
            if row.state is not _State.WAITING or row.new is None:
                continue
            others = [(id, self._rows.get(id)) for id in row.new.after]
            failed = next(
                ((id, other) for id, other in others if other is None or other.state in INHERITED),
                None,
            )
            if failed is not None:
                id, other = failed
                what = INHERITED[_State.ABSENT if other is None else other.state]
                row.result = (
                    b"the store does not have job %d, for whose result this job waits" % id
                    if other is None
                    else other.result
                )
                ended = self._step(what, row.id, _Change(0, now)) or ended
            elif all(other is not None and other.state is _State.OK for _, other in others):
                if (splice := row.new.splice) is not None:
                    results = [other.result or b"" for _, other in others if other is not None]
                    row.payload = b"".join([row.payload[:splice], *results, row.payload[splice:]])
                self._step(_In.PROCEED, row.id, _Change(0, now))
        self._stirred = self._stirred or ended
        return ended

    def _change(self, me: int, now: int, changes: JobChanges) -> ChangeAnswer:
        for index, id in enumerate(changes.ids):
            change = _Change(
                me,
                now,
                _at(changes.attempts, index),
                _at(changes.costs, index),
                _at(changes.waits_ms, index),
                b"" if changes.payloads is None else bytes(changes.payloads[index]),
                _at(changes.failures, index, None),
                _at(changes.workers, index, None),
                _at(changes.ages_ms, index, None),
                _at(changes.fractions, index, None),
                _at(changes.notes, index, None),
                _at(changes.unbegun, index),
            )
            self._step(changes.input, id, change)
        return self._states(changes.ids)

    def _step(self, what: StoredJobInput, id: int, change: _Change) -> bool:
        """Give one input to one job; return whether the job changed."""
        row = self._rows.get(id)
        if row is None:
            return False
        for transition in rows_of(what):
            if row.state in transition.sources and all(
                self._holds(guard, row, change) for guard in transition.guards
            ):
                self._follow(transition, row, change)
                return True
        return False

    def _holds(self, guard: Guard, row: _StoredRow, change: _Change) -> bool:
        now = change.now
        overdue = row.deadline_ms is not None and row.deadline_ms <= now
        expired = row.expires_at_ms is not None and row.expires_at_ms <= now
        ended = self._ended_at(row.instance)
        match guard:
            case Guard.KEY_FREE:
                other = self._of_key(row.key, row.kind.role, kept=False)
                return other is None or other is row
            case Guard.NOTHING_WAITS | Guard.AWAITS:
                raise AssertionError("this guard is about other jobs")
            case Guard.FULFILLED:
                return True  # the caller has looked at the other jobs
            case Guard.COMPLETE:
                return row.new is None
            case Guard.DUE:
                return row.due <= now
            case Guard.FRESH:
                return not overdue and not expired
            case Guard.MINE:
                return row.instance == change.me
            case Guard.ATTEMPT:
                return row.attempt == change.attempt > 0 and not row.over
            case Guard.ORPHANED:
                return ended < float("inf")
            case Guard.LAPSED:
                return ended <= now - self.grace
            case Guard.OVERDUE:
                return overdue
            case Guard.EXPIRED:
                return overdue or expired
            case Guard.ATTENDED:
                return row.instance == change.me or ended < float("inf")
            case Guard.OUTLIVED:
                return row.purge is not None and row.purge <= now
            case Guard.UNNEEDED:
                return not self._needed(row, now)

    def _needed(self, row: _StoredRow, now: int) -> bool:
        """Return whether somebody waits for the end or the result of an ended job."""
        living = self.living()
        learns = row.submitter in living and (row.purge or 0) > now - LEARNING
        waits = any(
            other.state is _State.WAITING and other.new is not None and row.id in other.new.after
            for other in self._rows.values()
        )
        return learns or waits or bool(row.watchers & living)

    def _follow(self, transition: Transition, row: _StoredRow, change: _Change) -> None:
        row.state = transition.target
        for effect in transition.effects:
            self._take_effect(effect, row, change)

    def _take_effect(self, effect: Effect, row: _StoredRow, change: _Change) -> None:
        match effect:
            case Effect.NEXT_ATTEMPT:
                row.attempt, row.over = row.attempt + 1, False
            case Effect.OVER:
                row.over = True
            case Effect.UNUSED:
                row.attempt, row.over = row.attempt - 1, True
            case Effect.HOLD:
                row.instance = change.me
            case Effect.LEAVE:
                row.instance = None
            case Effect.COUNT_LOST:
                row.lost += change.cost
            case Effect.COUNT_FAILED:
                row.failed += 1
            case Effect.COUNT_UNBEGUN:
                row.unbegun += change.unbegun
            case Effect.WAIT:
                if change.wait > 0:
                    row.due = change.now + change.wait
            case Effect.KEEP_RESULT:
                row.result = change.payload
            case Effect.KEEP_FAILURE:
                if change.failure is not None:
                    failure = evolve(change.failure, attempt=change.attempt, at=change.now)
                    row.history.append(failure)
                    if len(row.history) > 32:
                        del row.history[16]
            case Effect.KEEP_RUN:
                if change.age is not None and row.ran != change.attempt:
                    row.begun = change.now - change.age
                if change.worker is not None:
                    row.worker, row.ran = change.worker, change.attempt
            case Effect.KEEP_PROGRESS:
                row.fraction, row.note = change.fraction, change.note
            case Effect.END:
                dead = row.state in (_State.ERROR, _State.TIMEOUT, _State.LOST)
                row.ended = change.now
                row.purge = change.now + (row.terms.keep_dead_ms if dead else row.terms.keep_ms)
                row.instance = None
                if row.submitter == change.me:
                    row.submitter = None
            case Effect.RESET:
                row.lost = row.failed = 0
                row.due = change.now
                row.deadline_ms = row.expires_at_ms = row.ended = row.purge = None
                row.result = row.submitter = None
                row.worker = row.begun = row.fraction = row.note = None
                row.ran = 0
                row.history.clear()
            case Effect.FILL:
                assert row.new is not None
                new, row.new = row.new, None
                row.due = change.now + new.delay_ms
                if new.timeout_ms is not None:
                    row.deadline_ms = row.due + new.timeout_ms
                if new.expires_in_ms is not None:
                    row.expires_at_ms = row.due + new.expires_in_ms
                self._stirred = True
            case Effect.INHERIT:
                submitter, row.submitter = row.submitter, None
                self._take_effect(Effect.END, row, change)
                row.submitter = submitter
            case Effect.REMOVE:
                del self._rows[row.id]

    # -- sweeps and reservations ------------------------------------------------------------------

    def _receive_and_sweep(self, me: int, now: int, batch: WriteBatch) -> list[SweptJob]:
        for id in batch.receipts:
            row = self._rows.get(id)
            if row is not None and row.state in ENDED and row.submitter == me:
                row.submitter = None
            if row is not None:
                row.watchers.discard(me)
        for id in batch.watch:
            if id in self._rows:
                self._rows[id].watchers.add(me)
        return self._sweep(me, now, batch.sweep) if batch.sweep else []

    def _sweep(self, me: int, now: int, limit: int) -> list[SweptJob]:
        for number, instance in self._instances.items():
            over = instance.valid_until < now or number in self.died
            if number != me and instance.ended is None and over:
                instance.ended = now
        held = {row.instance for row in self._rows.values()}
        for number, instance in list(self._instances.items()):
            old = instance.ended is not None and instance.ended < now - _KEPT_INSTANCES
            if old and number not in held:
                del self._instances[number]
        rows = self._rows.values
        swept = []
        reserved = (_State.RESERVED, _State.CANCELLING)
        for what, is_due, order in (
            (
                _In.LAPSE,
                lambda row: (
                    self._instances[me].begun <= now - self.grace
                    and row.state in reserved
                    and self._ended_at(row.instance) <= now - self.grace
                ),
                lambda row: (row.instance, row.state, row.id),
            ),
            (
                _In.EXPIRE,
                lambda row: (
                    row.state in OPEN
                    and row.deadline_ms is not None
                    and row.deadline_ms <= now
                    and (
                        row.state is _State.QUEUED
                        or row.instance == me
                        or self._ended_at(row.instance) < float("inf")
                    )
                ),
                lambda row: (row.deadline_ms, row.id),
            ),
            (
                _In.EXPIRE,
                lambda row: (
                    row.state is _State.QUEUED
                    and row.expires_at_ms is not None
                    and row.expires_at_ms <= now
                ),
                lambda row: (row.expires_at_ms, row.id),
            ),
            (
                _In.PURGE,
                lambda row: row.state in ENDED and row.purge <= now and not self._needed(row, now),
                lambda row: (row.purge, row.id),
            ),
        ):
            for row in sorted(filter(is_due, rows()), key=order)[:limit]:
                mine = me in (row.instance, row.submitter)
                self._step(what, row.id, _Change(me, now))
                if mine and row.id in self._rows and row.state in ENDED:
                    swept.append(SweptJob(row.id, row.state, row.attempt))
        return swept

    def _reserve(self, me: int, now: int, wanted: Reservation) -> ReservedJobs:
        change = _Change(me, now)
        queued = [
            row
            for row in self._rows.values()
            if row.state is _State.QUEUED and row.kind == wanted.kind
        ]
        due = sorted(
            (
                row
                for row in queued
                if all(self._holds(guard, row, change) for guard in rows_of(_In.RESERVE)[0].guards)
            ),
            key=lambda row: (-row.priority, row.due, row.id),
        )
        size, chosen = 0, list[_StoredRow]()
        for row in due[: wanted.count]:
            size += len(row.payload)
            if chosen and size > wanted.bytes:
                break
            chosen.append(row)
        for row in chosen:
            self._follow(rows_of(_In.RESERVE)[0], row, change)
        more, later = len(chosen) < len(due), [row.due for row in queued if row.due > now]
        return ReservedJobs(
            ids=[row.id for row in chosen],
            attempts=[row.attempt for row in chosen],
            payloads=[row.payload for row in chosen],
            priorities=[row.priority for row in chosen],
            lost=[row.lost for row in chosen],
            failed=[row.failed for row in chosen],
            unbegun=[row.unbegun for row in chosen],
            terms=[row.terms for row in chosen],
            deadlines_ms=[row.deadline_ms for row in chosen],
            expires_at_ms=[row.expires_at_ms for row in chosen],
            more=more,
            next_due=None if more else min(later, default=None),
            histories={row.id: tuple(row.history) for row in chosen if row.history},
        )

    # -- reading --------------------------------------------------------------------------------

    def news(self, me: StoreInstance, limit: int = 1000) -> SubmitterNews:
        """Return what others did."""
        rows = sorted(self._rows.values(), key=lambda row: row.id)
        ended = [row for row in rows if row.state in ENDED and row.submitter == me.number]
        cancelling = [
            row.id for row in rows if row.state is _State.CANCELLING and row.instance == me.number
        ]
        return SubmitterNews(
            [row.value(payloads=True) for row in ended[:limit]], cancelling[:limit]
        )

    def list(
        self,
        where: JobFilter = JobFilter(),  # noqa: B008 - a frozen value
        *,
        after: int = 0,
        limit: int = 1000,
        payloads: bool = False,
    ) -> list[StoredJob]:
        """Return jobs in the order of their numbers."""
        chosen = [
            row
            for _, row in sorted(self._rows.items())
            if row.id > after
            and (where.ids is None or row.id in where.ids)
            and (where.key is None or row.key == where.key)
            and (where.role is None or row.kind.role == where.role)
            and (where.states is None or row.state in where.states)
            and (where.instance is None or row.instance == where.instance)
        ]
        return [row.value(payloads=payloads) for row in chosen[:limit]]

    def kinds(self, *, counted: bool = False) -> Sequence[QueuedKind]:
        """Return the kinds of which jobs are queued."""
        due: dict[Kind, list[int]] = {}
        for row in self._rows.values():
            if row.state is _State.QUEUED:
                due.setdefault(row.kind, []).append(row.due)
        return [
            QueuedKind(kind, max(0, min(times) - self._now()), len(times) if counted else None)
            for kind, times in due.items()
        ]

    def wait(self, descriptor: int, timeout: float) -> bool:
        """Return that another process wrote: nothing is known about this."""
        return True

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _at(column: Sequence[Any] | None, index: int, absent: int | None = 0) -> Any:
    return absent if column is None else column[index]
