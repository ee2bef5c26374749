"""The jobs of a worker from TAKE to DONE: held, run, cancelled, answered (spec §4.12 to §4.15, §6).

Jobs stay in columns from TAKE to DONE. The answers of one ``handle`` call are collected and leave
as one DONE for each manager, owner and codec.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import define, field

from wmp.actions import Interrupt, Recall, Run
from wmp.core.protocol.checksums import WRONG_JOB, checksums_of, fits
from wmp.core.protocol.outbound import Kept
from wmp.core.protocol.resources import Needs, Resources
from wmp.core.worker.execution_lifecycle import ExecutionInput, ExecutionState
from wmp.core.worker.held_table import ORPHANED, HeldTable
from wmp.core.worker.job_times import JobTimes
from wmp.core.worker.outbound import WorkerOutbound
from wmp.core.worker.remarks import cut_text, with_remarks
from wmp.core.worker.remote_manager import RemoteManager
from wmp.core.worker.replacement import JOB_BYTES, replacements
from wmp.core.worker.run_queue import HeldJobs, RunningLane, RunQueue, Throughput
from wmp.core.worker.timers import LimitTimer, PatienceTimer
from wmp.events import Begun, Finished, Recalled, Reported
from wmp.message import (
    DEFAULT_NEEDS,
    Columns,
    Command,
    Field,
    Frame,
    Kind,
    Limits,
    Message,
    Outcome,
    Peer,
    counted,
)

_DONE_BYTES: Final = 4 << 20
"""Maximum number of payload bytes in one DONE; a single result may be larger."""
_LOOK: Final = PatienceTimer()
"""The only timer for jobs that wait."""
_STATUS_KEPT: Final = 1024
"""Limit of the unacknowledged messages to a manager; above it STATUS is dropped."""

_Answers = tuple[list[int], list[int], list[int], list[Frame]]
"""ids, attempts, outcomes, payloads."""


@define(eq=False)
class Executions:
    """All jobs that a worker holds.

    Invariant: each held job is in one line or on one lane of the run queue. An owner without jobs
    is not kept.
    """

    outbound: WorkerOutbound
    resources: Resources
    """The resources that lanes and locks share."""
    usual: Needs = field(init=False)
    """The needs of most jobs. Credit counts jobs with these needs."""
    places: int = field(init=False)
    """Number of jobs with these needs that can run at the same time when no other job runs."""
    outcomes: Counter[int] = field(factory=Counter)
    """Number of answered jobs, by outcome."""
    draining: bool = False
    """Whether the worker ends: jobs are handed back, and none may come."""
    stalled: bool = False
    """Whether jobs waited too long here and no lane has reported since."""
    _queue: RunQueue = field(init=False)
    jobs: HeldTable = field(init=False)
    """The held jobs, by manager and owner."""
    _answers: dict[tuple[bytes, Peer, str, bool], _Answers] = field(factory=dict)
    _remarks: dict[tuple[bytes, Peer, str, bool], dict[int, tuple[str | None, int | None]]] = field(
        factory=dict
    )
    """Texts and waits of answers, by job. Few answers have them."""
    _orphaned: list[Kept] = field(factory=list)
    """Answers of this step to orphaned jobs."""
    _limits_passed: list[tuple[int, int]] = field(factory=list)
    """Lanes and jobs whose run limit passed in this step.

    A PING of this step must still list these jobs.
    """
    _overdue: bool = False
    """Whether the timer for waiting jobs rang (``patience``)."""

    def __attrs_post_init__(self) -> None:
        total = self.resources.total
        if total.get("slots") or not any(total.values()):
            self.usual = DEFAULT_NEEDS if "slots" in total else ()
        else:
            # Without slots, the scarcest resource limits the number of jobs that can come.
            self.usual = ((min((n for n in total if total[n]), key=lambda n: (total[n], n)), 1),)
        self.places = self.resources.capacity(self.usual)
        throughput = Throughput(self.outbound.settings, self.places)
        self._queue = RunQueue(self.resources, throughput)
        self.jobs = HeldTable(self.outbound, self._queue)

    def resize(self, total: Mapping[str, int]) -> None:
        """Change the resources; hand back the jobs that wait and can never start (WMP-3.15)."""
        self.resources.resize(total)
        if "slots" in total:
            self.usual = DEFAULT_NEEDS
        self.places = self.resources.capacity(self.usual)
        self._queue.throughput.resize(self.places)
        for line in self._queue.unfit:
            ids = self._queue.clear(line)
            self._give_back(line.held, line.kind.codec, ids, ExecutionInput.HAND_BACK)

    # -- values that other parts read

    @property
    def parked(self) -> int:
        """Return the number of jobs that wait."""
        return self._queue.parked

    @property
    def lanes(self) -> Iterable[RunningLane]:
        """Return the lanes with jobs."""
        return self._queue.running.values()

    @property
    def running(self) -> int:
        """Return the number of unanswered jobs on lanes; jobs of lost sessions do not count."""
        return sum(len(lane.ids) - len(lane.answered) for lane in self.lanes if not lane.lost)

    @property
    def window(self) -> int:
        """Return the number of jobs that may wait here; 0 while a job has waited too long."""
        return 0 if self.stalled else self._queue.throughput.window

    def count(self, manager: bytes) -> int:
        """Return the number of unanswered jobs of a manager that are here."""
        return self.jobs.count(manager)

    def held(self, manager: bytes) -> Iterable[HeldJobs]:
        """Return the unanswered jobs of a manager by owner."""
        return self.jobs.of(manager)

    # -- from managers

    def take(
        self,
        manager: RemoteManager,
        link: int,
        message: Message,
        kind: Kind,
        places: int,
        now: float,
        keep: float = 0.0,
    ) -> None:
        """Hold the jobs of a TAKE, as many as there are ``places`` (WMP-4.8 to 4.15).

        ``keep`` is the time for which they are kept without a manager (WMP-14.5).
        """
        columns = message.columns
        assert columns is not None
        owner: Peer = tuple(message.fields[Field.MANAGER])
        identity, codec = manager.identity, kind.codec
        ids, attempts = columns.ids, columns.attempts
        rows: Sequence[int] | None = None
        payloads = columns.payloads or [b""] * len(ids)
        held = self.jobs.find(identity, owner)
        if len(set(ids)) != len(ids) or (held and not held.attempts.keys().isdisjoint(ids)):
            rows = (held or HeldJobs(identity, owner)).new_rows(ids, attempts)
            if len(rows) < len(ids):
                text = f"the worker already holds {len(ids) - len(rows)} of the {len(ids)} jobs"
                self.outbound.drop("job held already", link, message, text)
            ids, attempts = [ids[row] for row in rows], [attempts[row] for row in rows]
            payloads = [payloads[row] for row in rows]
        if self.draining:
            self._refuse(identity, owner, codec, ids, attempts, Outcome.CANCELLED)
            return
        reason = self._why_not(kind)
        if kind.checksum and not fits(columns):
            reason = WRONG_JOB  # WMP-2.12: a job that does not fit its checksum is refused
        if reason:
            self._refuse(identity, owner, codec, ids, attempts, Outcome.REFUSED, reason)
            return
        if places < len(ids):
            reason = b"lock expired and no capacity"
            over = ids[places:], attempts[places:]
            self._refuse(identity, owner, codec, *over, Outcome.REFUSED, reason)
            ids, attempts, payloads = ids[:places], attempts[:places], payloads[:places]
            rows = (range(len(columns.ids)) if rows is None else rows)[:places]
        if not ids:
            return
        if held is None:
            held = self.jobs.make(identity, owner)
        held.keep = keep
        held.add(ids, attempts)
        timed = columns.left_ms is not None or columns.expires_ms is not None
        times = None
        has_counts = columns.failed is not None or columns.begun is not None
        if timed or has_counts or columns.limits_ms is not None:
            times = JobTimes.of(columns, rows, now)
        self._queue.park(held, kind, ids, times, payloads, now)

    def cancel(self, manager: RemoteManager, message: Message) -> None:
        """Stop jobs whose results are not wanted (WMP-6.10).

        ``unstarted``: only jobs that have not begun.
        """
        fields, columns = message.fields, message.columns
        assert columns is not None
        owner: Peer = tuple(fields[Field.MANAGER])
        unstarted = fields.get(Field.UNSTARTED, False)
        what = ExecutionInput.UNSTARTED if unstarted else ExecutionInput.CANCEL
        identity = manager.identity
        held = self.jobs.find(identity, owner) or HeldJobs(identity, owner)
        absent: list[tuple[int, int]] = []
        parked: dict[int, None] = {}
        in_lanes: dict[int, None] = {}
        for job, attempt in zip(columns.ids, columns.attempts, strict=True):
            if held.attempts.get(job) != attempt:
                absent.append((job, attempt))
            elif (state := held.step(job, what)) is ExecutionState.ABSENT:
                parked[job] = None
            elif state is not None:
                in_lanes[job] = None
        if absent:
            jobs, attempts = [row[0] for row in absent], [row[1] for row in absent]
            self._refuse(identity, owner, "", jobs, attempts, Outcome.CANCELLED)
        if parked:
            self._queue.remove(held, set(parked))
            self._give_back(held, "", list(parked), what)
        if in_lanes:
            for lane in self.lanes:
                jobs = [job for job in lane.ids if job in in_lanes] if lane.held is held else []
                if jobs:
                    ask = Recall if unstarted else Interrupt
                    self.outbound.actions.append(ask(lane.number, jobs))

    def orphaned_answers(self) -> list[Kept]:
        """Take out the answers of this step to orphaned jobs."""
        answers, self._orphaned = self._orphaned, []
        return answers

    # -- from lanes

    def begun(self, event: Begun, now: float) -> None:
        """Record that a lane begins a job that may have a limit (WMP-6.21)."""
        lane = self._queue.running.get(event.lane)
        limit = lane.limits.get(event.id) if lane is not None and lane.limits else None
        if limit is not None and lane is not None and event.id in lane.ids:
            self.outbound.timers.set(LimitTimer(event.lane, event.id), now + limit)

    def limit_passed(self, lane: int, job: int) -> None:
        """Record that a run limit passed.

        ``start`` acts on it in the same step, and answers at once.
        """
        self._limits_passed.append((lane, job))

    def _run_too_long(self, number: int, job: int, now: float) -> None:
        """Interrupt a job that has run for its limit; answer it if it continues (WMP-6.21)."""
        lane = self._queue.running.get(number)
        if lane is None or lane.lost or job not in lane.ids:
            return
        if lane.held.step(job, ExecutionInput.OVERRUN) is not None:
            self.outbound.actions.append(Interrupt(number, [job]))
            grace = self.outbound.settings.overrun_grace
            self.outbound.timers.set(LimitTimer(number, job), now + grace)
            return
        if lane.held.state(job) is not ExecutionState.OVERDUE or job in lane.answered:
            return
        held = lane.held
        lane.answered.add(job)
        attempts = self.jobs.release(held, [job], ExecutionInput.ABANDON)
        text = f"{_too_long(lane, job)}; its handler still runs".encode()
        codec = lane.kind.codec
        self._refuse(held.manager, held.owner, codec, [job], attempts, Outcome.OVERRUN, text)
        self._recall(lane)  # the jobs behind this job would have to wait for its end

    def recall(self, manager: bytes) -> None:
        """Take back the jobs of a manager that wait on lanes (WMP-9.22)."""
        for lane in self.lanes:
            if lane.held.manager == manager and not lane.lost:
                self._recall(lane)

    def _recall(self, lane: RunningLane) -> None:
        """Ask a lane for the jobs that have not begun."""
        step = lane.held.step
        unbegun = [id for id in lane.ids if step(id, ExecutionInput.UNSTARTED) is not None]
        if unbegun:
            self.outbound.actions.append(Recall(lane.number, unbegun))

    def finished(self, event: Finished, now: float) -> None:
        """Record results from a lane."""
        lane, ids = self._lane_of(event.lane, event.ids)
        if lane is None:
            return
        outcomes: Sequence[int] = event.outcomes
        payloads = event.payloads
        if len(ids) < len(event.ids):
            rows = {job: row for row, job in enumerate(event.ids)}
            outcomes = [outcomes[rows[job]] for job in ids]
            payloads = [payloads[rows[job]] for job in ids]
        self._queue.throughput.record(lane.kind.role, now - lane.since, len(ids))
        self.stalled = False
        lane.since = now
        if not self._leave_lane(lane, ids):
            return
        if lane.limits is not None:
            ids, outcomes, payloads = self._judge(lane, ids, outcomes, payloads)
        if ids:
            held = lane.held
            kind = lane.kind
            codec = kind.codec if event.codec is None else event.codec
            answers = self._answers_to(held.manager, held.owner, codec, kind.checksum)
            answers[0].extend(ids)
            answers[1].extend(self.jobs.release(held, ids, ExecutionInput.FINISH))
            answers[2].extend(outcomes)
            answers[3].extend(payloads)
            if event.texts is not None or event.waits is not None:
                ends = zip(ids, outcomes, strict=True)
                # The text of a cancelled job means that the job had begun (WMP-6.35).
                remarked = (Outcome.ERROR, Outcome.CANCELLED)
                failed = {id for id, outcome in ends if outcome in remarked}
                key = held.manager, held.owner, codec, kind.checksum
                self._remark(key, event, failed)

    def _remark(
        self, key: tuple[bytes, Peer, str, bool], event: Finished, failed: Container[int]
    ) -> None:
        """Keep the texts and waits of jobs that failed, until their answers are sent."""
        none = [None] * len(event.ids)
        remarks = self._remarks.setdefault(key, {})
        rows = zip(event.ids, event.texts or none, event.waits or none, strict=True)
        for id, text, wait in rows:
            if id in failed:
                remarks[id] = cut_text(text), wait

    def recalled(self, event: Recalled) -> None:
        """Record jobs that a lane hands back before they began."""
        lane, ids = self._lane_of(event.lane, event.ids)
        if lane is not None and self._leave_lane(lane, ids):
            ids = [id for id in ids if id not in lane.answered]
            if ids:
                self._give_back(lane.held, lane.kind.codec, ids, ExecutionInput.RECALLED)

    def reported(self, event: Reported, now: float) -> None:
        """Send a handler's progress (WMP-6.9)."""
        lane, _ = self._lane_of(event.lane, [event.id])
        if lane is None or lane.lost or event.id in lane.answered:
            return
        held = lane.held
        if held.manager == ORPHANED:
            return
        manager = self.outbound.links.managers[held.manager]
        assert manager.stream is not None
        if len(manager.stream.kept) >= _STATUS_KEPT:
            self.outbound.drop(
                "too much status",
                detail="the manager has not acknowledged {_STATUS_KEPT} earlier messages",
            )
            return
        text = event.text
        if text is not None:
            text = text.encode(errors="replace")[: Limits.LONG_TEXT].decode(errors="ignore")
        attempt = held.attempts[event.id]
        columns = Columns([event.id], [attempt], fractions=[event.fraction], texts=[text])
        fields: dict[int | str, Any] = {Field.MANAGER: held.owner}
        size = JOB_BYTES + len(text or "")
        self.outbound.push(manager, Command.STATUS, fields, columns, now, size)

    def replace(self, manager: RemoteManager, kept: Kept, text: str, now: float) -> bool:
        """Send another answer in place of an answer that its manager refuses (WMP-7.11).

        Args:
            manager: The manager.
            kept: The message that the manager refuses.
            text: Why the manager refuses the message, for readers.
            now: Seconds.

        Returns:
            Whether there is another answer.
        """
        if kept.columns is None:
            return False
        fields: dict[int | str, Any] = {Field.MANAGER: kept.fields[Field.MANAGER]}
        if Field.CODEC in kept.fields:
            fields[Field.CODEC] = kept.fields[Field.CODEC]
        first, *others = replacements(kept, text)
        self.outbound.replace(manager, kept, kept.command, {**fields}, *first, now, last=not others)
        for columns, size in others:
            self.outbound.push(manager, kept.command, {**fields}, columns, now, size)
        return True

    # -- at the end of every step

    def start(self, now: float) -> tuple[list[Run], Resources, Iterable[bytes]]:
        """Start waiting jobs.

        Returns:
            Actions that run jobs; resources that are free for others; and the identities of
            managers whose jobs waited too long and are handed back (WMP-6.18).
        """
        queue = self._queue
        for number, job in self._limits_passed:
            self._run_too_long(number, job, now)
        self._limits_passed.clear()
        managers = self.outbound.links.managers.values()
        questioned = {manager.identity for manager in managers if manager.asking}
        runs, expired, spare = queue.start(now, questioned)
        for line, ids in expired:
            self._give_back(line.held, line.kind.codec, ids, ExecutionInput.EXPIRE)  # WMP-6.7
        delayed: Iterable[bytes] = ()
        if self.outbound.settings.window is None:
            if self._overdue:
                delayed = self._relieve(now)
            if queue.parked or (runs and any(len(run.ids) > 1 for run in runs)):
                self._watch(now)
        self._overdue = False
        return runs, spare, delayed

    def overdue(self) -> None:
        """Let ``start`` check the jobs that still wait, because the timer of ``patience`` rang."""
        self._overdue = True

    def drain(self) -> None:
        """Hand back all jobs that have not begun: the worker ends (WMP-9.10)."""
        self.draining = True
        for line, ids in self._queue.drain():
            self._give_back(line.held, line.kind.codec, ids, ExecutionInput.HAND_BACK)

    def flush(self, now: float) -> None:
        """Send the collected answers, one DONE for each manager, owner and codec."""
        if not self._answers:
            return
        answers, self._answers = self._answers, {}
        for (identity, owner, codec, checksum), rows in answers.items():
            ids, attempts, outcomes, payloads = rows
            managers = self.outbound.links.managers
            manager = None if identity == ORPHANED else managers[identity]
            remarks = self._remarks.pop((identity, owner, codec, checksum), None)
            first, count = outcomes[0], len(outcomes)
            if outcomes.count(first) == count:
                self.outcomes[first] += count  # almost always
            else:
                self.outcomes.update(outcomes)
            if manager is not None:
                manager.done += count
            for start, end, size in _parts(list(map(len, payloads))):
                columns = Columns(
                    ids=ids[start:end],
                    attempts=attempts[start:end],
                    outcomes=outcomes[start:end],
                    payloads=payloads[start:end],
                    checksums=checksums_of(payloads[start:end]) if checksum else None,
                )
                if remarks is not None:
                    columns = with_remarks(columns, remarks)
                fields: dict[int | str, Any] = {Field.MANAGER: owner}
                if codec:
                    fields[Field.CODEC] = codec
                size += JOB_BYTES * (end - start)
                if manager is None:
                    kept = Kept(0, Command.DONE, fields, columns, now, size)
                    self._orphaned.append(kept)
                else:
                    self.outbound.push(manager, Command.DONE, fields, columns, now, size)

    def check(self) -> None:
        """Raise AssertionError when the invariant does not hold."""
        self._queue.check()
        held = self.jobs.check()
        assert held == self.parked + self.running, (held, self.parked, self.running)

    # -- helpers

    def _relieve(self, now: float) -> Iterable[bytes]:
        """Hand back jobs that waited too long: other workers may do them earlier (WMP-6.18)."""
        queue, since = self._queue, now - self._patience
        delayed: dict[bytes, None] = {}
        for lane in queue.loaded:
            if lane.since > since:
                continue
            step = lane.held.step
            jobs = [job for job in lane.ids if step(job, ExecutionInput.UNSTARTED) is not None]
            if jobs:
                self.outbound.actions.append(Recall(lane.number, jobs))
                if lane.held.manager != ORPHANED:
                    delayed[lane.held.manager] = None
        for line in queue.blocked(since):
            ids = queue.clear(line)
            if (manager := line.held.manager) != ORPHANED:
                delayed[manager] = None
            self._give_back(line.held, line.kind.codec, ids, ExecutionInput.HAND_BACK)
        self.stalled = self.stalled or bool(delayed)
        if queue.loaded:
            self._watch(now)
        return delayed

    def _watch(self, now: float) -> None:
        """Set the timer for jobs that wait (WMP-6.18)."""
        self.outbound.timers.arm(_LOOK, now + self._patience)

    @property
    def _patience(self) -> float:
        return max(0.01, self.outbound.settings.patience)

    def _why_not(self, kind: Kind) -> bytes:
        """Return the reason why jobs of ``kind`` can never run here; empty when they can."""
        if kind.role not in self.outbound.settings.roles:
            return f"no handler for role {kind.role!r}".encode()  # WMP-4.15
        if not self.resources.capacity(kind.needs):
            return f"the job needs {dict(kind.needs)}; this worker has less in all".encode()
        return b""

    def _lane_of(self, number: int, ids: Sequence[int]) -> tuple[RunningLane | None, Sequence[int]]:
        """Return the lane, and the jobs of ``ids`` that have not ended on the lane.

        Drop the other ids.
        """
        lane = self._queue.running.get(number)
        if lane is None:
            self.outbound.drop(
                "unknown lane", detail=f"lane {number} does not exist or has no open jobs"
            )
            return None, ()
        if len(ids) == len(lane.ids) and list(ids) == list(lane.ids):
            return lane, ids  # almost always
        each = dict.fromkeys(ids)
        if len(each) == len(ids) and each.keys() <= lane.ids.keys():
            return (lane, ids) if ids else (None, ())
        known = [job for job in each if job in lane.ids]
        self.outbound.drop(
            "unknown job",
            detail=f"{len(ids) - len(known)} of {len(ids)} jobs are not on lane {number}",
        )
        return (lane, known) if known else (None, ())

    def _leave_lane(self, lane: RunningLane, ids: Sequence[int]) -> bool:
        """Remove jobs from their lane; return whether their manager waits for an answer."""
        self._queue.end(lane, ids)
        if lane.lost:
            text = f"dropped {counted(len(ids), 'result')}: the session was lost"
            self.outbound.drop("superseded result", detail=text)
        return not lane.lost

    def _judge(
        self,
        lane: RunningLane,
        ids: Sequence[int],
        outcomes: Sequence[int],
        payloads: Iterable[Frame],
    ) -> tuple[list[int], list[int], list[Frame]]:
        """Return the answers to jobs with limits; a job that ran too long ends as overrun."""
        rows: list[tuple[int, int, Frame]] = []
        for id, outcome, payload in zip(ids, outcomes, payloads, strict=True):
            self.outbound.timers.clear(LimitTimer(lane.number, id))
            if id in lane.answered:
                lane.answered.remove(id)
                self.outbound.drop(
                    "late result", detail=f"job {id} was answered as overrun, or is not wanted"
                )
            elif outcome != Outcome.OK and lane.held.state(id) is ExecutionState.OVERDUE:
                rows.append((id, Outcome.OVERRUN, _too_long(lane, id).encode()))
            else:
                rows.append((id, outcome, payload))
        return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]

    def _give_back(
        self, held: HeldJobs, codec: str, ids: Sequence[int], what: ExecutionInput
    ) -> None:
        """Answer jobs that left their line or lane before they began."""
        attempts = self.jobs.release(held, ids, what)
        self._refuse(held.manager, held.owner, codec, ids, attempts, Outcome.CANCELLED)

    def _refuse(
        self,
        manager: bytes,
        owner: Peer,
        codec: str,
        ids: Sequence[int],
        attempts: Sequence[int],
        outcome: Outcome,
        reason: bytes = b"",
    ) -> None:
        """Answer jobs that never ran as refused."""
        if ids:
            answers = self._answers_to(manager, owner, codec)
            answers[0].extend(ids)
            answers[1].extend(attempts)
            answers[2].extend([outcome] * len(ids))
            answers[3].extend([reason] * len(ids))

    def _answers_to(
        self, manager: bytes, owner: Peer, codec: str, checksum: bool = False
    ) -> _Answers:
        """Return the columns of answers collected until ``flush``."""
        key = (manager, owner, codec, checksum)
        answers = self._answers.get(key)
        if answers is None:
            answers = self._answers[key] = ([], [], [], [])
        return answers


def _too_long(lane: RunningLane, job: int) -> str:
    limit = lane.limits[job] if lane.limits else 0.0
    return f"ran for longer than its run_limit of {limit:g} s"


def _parts(lengths: list[int]) -> Iterator[tuple[int, int, int]]:
    """Divide results of these lengths among messages.

    Returns:
        (first, last + 1, payload bytes) of each message.
    """
    size = sum(lengths)
    if len(lengths) <= Limits.JOBS and size <= _DONE_BYTES:
        yield 0, len(lengths), size
        return
    first = size = 0
    for row, length in enumerate(lengths):
        if row > first and (row - first == Limits.JOBS or size + length > _DONE_BYTES):
            yield first, row, size
            first, size = row, 0
        size += length
    yield first, len(lengths), size
