"""One job, folded from all its facts: its rows and its violations.

The invariants are those of the simulations, checked by the same code
(:mod:`wmp.checks.job_history`). The tables are those that the machines consult
(:mod:`wmp.core.manager.job_lifecycle`, :mod:`wmp.core.worker.execution_lifecycle`). Facts are in
the order of their lines: first those of the manager, and then those of each worker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from attrs import define, field
from msgspec.structs import replace

from wmp.actions import JOINED, End
from wmp.checks.job_history import History, Violation
from wmp.core.manager import job_lifecycle
from wmp.core.manager.job_lifecycle import JobInput, JobState
from wmp.core.manager.requeue import SEPARATED
from wmp.core.protocol.outbound import MAX_RESENDS
from wmp.core.worker import execution_lifecycle
from wmp.core.worker.execution_lifecycle import ExecutionInput, ExecutionState
from wmp.message import Outcome, Peer
from wmp.spark.folds.facts import Fact, FoldSink, JobKey, KnownProcess, ProcessKey
from wmp.spark.folds.findings import FINDINGS
from wmp.spark.folds.job_rows import OUTCOMES, JobRows
from wmp.spark.folds.job_terms import Contradiction, SubmittedTerms

_LATER: Final = 5_000_000
"""µs after the end of a job: a manager that wrote a line so much later lost no line about it."""
_WAITED: Final = 60_000_000
"""µs after the end of a job for which the lines of its workers may be missing."""
_ROUNDED: Final = 2
"""Tolerance for rounded times, in µs."""
_ANY: Final = {End.OK: b"", End.ERROR: b""}
"""The payload of every result here, because a journal holds no results of handlers."""
_ENDS: Final = {end.value: end for end in End}
_BEGAN: Final = frozenset({Outcome.OK, Outcome.ERROR})
"""Outcomes that only a job which began has."""
_UNBEGUN: Final = frozenset({Outcome.REFUSED, Outcome.CANCELLED})
"""Outcomes of a job that did not begin, if no lane ran the job."""
_RESULTS: Final = {End.OK: Outcome.OK, End.ERROR: Outcome.ERROR}


@define(eq=False)
class _JobAtWorker:
    """The job at one process of a worker."""

    state: ExecutionState = ExecutionState.ABSENT
    attempt: int = 0
    lane: int | None = None
    """The lane to which the job was handed last. An earlier lane of a job that was answered as
    overrun, or forgotten, ends later."""
    due: int = 0
    """Number of DONE entries still to be sent."""
    answers: dict[tuple[int | None, int | None], int] = field(factory=dict)
    """Number of times that a DONE was sent, by its session and number."""
    named: set[int] = field(factory=set)
    """The attempts that TAKEs and CANCELs named."""
    reached: set[int] = field(factory=set)
    """The outcomes that lanes reported."""

    def step(self, what: ExecutionInput) -> bool:
        """Make a step in the table of executions; return whether the table has it."""
        state = execution_lifecycle.TRANSITIONS.get((self.state, what))
        if state is not None:
            self.state = state
        return state is not None


@define(eq=False)
class JobFold:
    """A job with all its facts."""

    job: JobKey
    facts: Sequence[Fact]
    sink: FoldSink
    _owner: Peer = field(init=False)
    _history: History = field(factory=History)
    _broken: bool = False
    """Whether the history is broken; later violations follow from this one."""
    _terms: SubmittedTerms | None = None
    """The terms of the submission; None without a submission, and for a stored job."""
    _state: JobState = JobState.QUEUED
    _arrived: set[tuple[int | None, int | None]] = field(factory=set)
    """Attempt and outcome of each DONE that the manager received."""
    _stored: bool = False
    """Whether a store owns the job: any manager of the store may grant and end it."""
    _workers: dict[int, ProcessKey] = field(factory=dict)
    """The worker to which each attempt of a stored job was granted."""
    _end: str | None = None
    """The end of a stored job that was reported first."""
    _grants: dict[int, tuple[str | None, int | None]] = field(factory=dict)
    """The worker of each attempt that was granted."""
    _lost: tuple[int, int] | None = None
    """The lease that was lost last, and the time."""
    _reported_at: int | None = None
    """The time of the last STATUS about the job."""
    _lines: list[tuple[str, int, int]] = field(factory=list)
    """The lines of the job; empty before its first violation."""

    def fold(self) -> None:
        """Add the rows of the job to the sink."""
        self.sink.begin()
        facts, owner = self.facts, self.job[:2]
        rows = JobRows(self.job, facts, self.sink)
        noted = "noted" in rows.first
        if "declined" in rows.first or (noted and any(fact.word == JOINED for fact in facts)):
            return  # the manager did not accept the job, or has it under another number
        known, end = self.sink.known.get(owner), rows.first.get("resolved")
        accepted = "submitted" in rows.first
        alive = accepted and known is not None and (
            known.end == "stop" or (end is not None and known.last > end.at + _LATER)
        )  # fmt: skip
        self._owner = (owner[0].encode(), owner[1])
        self._stored = any(fact.side == 0 and fact.process != owner for fact in facts)
        if self._stored or not accepted:
            # The lines of several managers have no common order, and one may have lost some.
            self._history.accepted(self._owner, self.job[2], _ANY)
        judged = self._stored or accepted
        leased = next(
            (f for f in facts if f.side == 0 and f.event in ("granted", "resolved")), None
        )
        if not judged and leased is not None and known is not None and known.whole:
            text = "the job was leased or ended, and no line of its manager submitted the job"
            self._break("WMP-6.1", text, leased)
        workers: defaultdict[ProcessKey, _JobAtWorker] = defaultdict(_JobAtWorker)
        for fact in facts:
            try:
                if fact.side == 1:
                    if not alive:
                        self._history.died(self._owner)  # its journal may lack its last lines
                    self._at_worker(fact, workers[fact.node, fact.epoch])
                elif judged and not self._broken:
                    self._at_store(fact) if self._stored else self._at_manager(fact)
            except Violation as violation:
                # The only other name is that of a job that was not submitted before.
                name = violation.name if violation.name in FINDINGS else "WMP-6.1"
                self._break(name, violation.detail, fact)
                self._broken = True
        if accepted and not self._stored and not self._broken:
            self._check_runs()
        if alive and not self._broken:
            try:
                self._history.finish()
            except Violation as violation:
                last = [fact for fact in facts if fact.side == 0][-1]
                self._break(violation.name, violation.detail, replace(last, peer=None))
        # Without its submission only an end shows the state of a job.
        judged_state = self._state if accepted else JobState.ENDED
        rows.report(judged_state if accepted or end is not None else None)

    def _at_manager(self, fact: Fact) -> None:
        """Record an event in the history, and make a step in the table of jobs."""
        history, owner, job, attempt = self._history, self._owner, self.job[2], fact.attempt or 0
        peer = ((fact.peer or "").encode(), fact.peer_epoch or 0)
        match fact.event:
            case "submitted" if self._terms is not None:
                self._break("WMP-6.1", "the job was submitted a second time", fact)
            case "submitted":
                self._terms = SubmittedTerms(fact)
                history.accepted(owner, job, _ANY, fact.value or 0)
                if fact.number is not None:
                    history.limited(owner, job, fact.number - _ROUNDED)
            case "granted" if fact.value:
                history.granted(owner, job, attempt, peer)
                self._grants[attempt] = (fact.peer, fact.peer_epoch)
                self._step(JobInput.GRANT, fact)
                if self._terms is not None and fact.terms is not None:
                    self._contradict(self._terms.grant(fact), fact)
            case "cancelling" if self._terms is not None:
                self._contradict(self._terms.cancel(fact), fact)
            case "arrived":
                self._arrived.add((fact.attempt, fact.value))
                held = history.jobs.get(owner, {}).get(job)
                current = held is not None and (held.attempt, held.holder) == (attempt, peer)
                if self._terms is not None and current:
                    self._terms.fail(fact)
            case "resolved":
                end, by = _ENDS[fact.word or ""], None if fact.peer is None else peer
                self._check_attempt(fact, end)
                history.resolved(owner, job, end, b"", attempt, by, fact.at)
                self._end_at_manager(fact, end)
                if self._terms is not None:
                    requested = history.jobs[owner][job].cancel_requested
                    self._contradict(self._terms.end(end, fact, requested=requested), fact)
            case "lost":
                counts = fact.value or 0
                self._lost = (attempt, fact.at)
                history.lost(owner, job, attempt, counts=counts > 0, leaving=counts > 1)
                if self._state in (JobState.LEASED, JobState.CANCELLING):
                    known = history.jobs[owner][job]
                    lost = (
                        JobInput.SPEND if known.spent > known.max_worker_losses else JobInput.LOSE
                    )
                    self._step(lost if counts else JobInput.RETURN, fact)
            case "noted":
                self._check_note(fact)
            case "reported":
                self._reported_at = fact.at
            case "notified" if self._reported_at != fact.at:
                self._break(
                    "WMP-6.9", "progress was reported to the submitter without a STATUS", fact
                )
            case "asked":
                history.cancelled(owner, job)
                if (self._state, JobInput.CANCEL) in job_lifecycle.TRANSITIONS:
                    self._step(JobInput.CANCEL, fact)

    def _check_note(self, fact: Fact) -> None:
        """Check that a note names the newest lease of the job, and its worker."""
        newest = max(self._grants, default=0)
        attempt, peer = fact.attempt or 0, (fact.peer, fact.peer_epoch)
        job = self._history.jobs.get(self._owner, {}).get(self.job[2])
        held = job is not None and job.holder is not None
        open_or_lost = held or self._lost == (newest, fact.at)
        if attempt < newest or (attempt > newest and open_or_lost):
            text = f"a note names attempt {attempt} as lost; the newest attempt is {newest}"
        elif self._grants.get(attempt, peer) != peer:
            holder, epoch = self._grants[attempt]
            text = f"a note names attempt {attempt} of {peer[0]}:{peer[1]}; {holder}:{epoch} had it"
        else:
            return
        self._break("leases are lost for a cause", text, fact)

    def _check_attempt(self, fact: Fact, end: End) -> None:
        """Check the attempt of an end that is no result; a lease without a route has no line."""
        newest = max(self._grants, default=0)
        if end not in _RESULTS and (fact.attempt or 0) < newest:
            text = f"the job ended {end.value} with attempt {fact.attempt}; the newest is {newest}"
            self._break("WMP-6.1", text, fact)

    def _check_runs(self) -> None:
        """Compare the earlier runs that TAKEs state with those that other lines show (WMP-6.34)."""
        ran = {fact.attempt for fact in self.facts if fact.event == "run"}
        began = {
            fact.attempt or 0 for fact in self.facts
            if fact.event == "finished" and fact.word is None and fact.value in _BEGAN
        }  # fmt: skip
        answered = {
            (*fact.process, fact.attempt) for fact in self.facts if fact.event == "answered"
        }
        taken = {fact.attempt for fact in self.facts if fact.event == "taken"}
        taken -= {fact.attempt for fact in self.facts if fact.word == SEPARATED}
        returned: dict[int, Fact] = {}
        unbegun: set[int] = set()
        for fact in self.facts:
            attempt = fact.attempt or 0
            if fact.event == "arrived" and fact.value in _UNBEGUN:
                returned[attempt] = fact
            elif fact.event == "lost":
                done = returned.get(attempt)
                if done is None or done.at != fact.at:
                    began |= {attempt} & taken  # it may have begun
                elif attempt not in ran and (done.peer, done.peer_epoch, attempt) in answered:
                    unbegun.add(attempt)
            elif fact.event == "granted" and fact.value:
                earlier = (fact.terms or (None,))[-1]
                runs = attempt - 1 if earlier is None else earlier
                least = sum(number < attempt for number in began)
                most = attempt - 1 - sum(number < attempt for number in unbegun)
                if not least <= runs <= most:
                    text = f"TAKE has {runs} earlier runs for attempt {attempt}"
                    self._break("runs are counted", f"{text}; expected {least} to {most}", fact)

    def _contradict(self, contradictions: Iterable[Contradiction], fact: Fact) -> None:
        """Report what contradicts the terms of the job."""
        for name, detail in contradictions:
            self._break(name, detail, fact)

    def _end_at_manager(self, fact: Fact, end: End) -> None:
        if end is End.TIMEOUT:
            self._step(JobInput.EXPIRE, fact)
        elif end in _RESULTS:
            fits = self._step(JobInput.RESULT, fact)
            if fits and (fact.attempt, _RESULTS[end]) not in self._arrived:
                text = (
                    f"the job ended {end.value} with attempt {fact.attempt}, but the manager "
                    "received no such DONE"
                )
                self._break("WMP-6.2", text, fact)
        elif self._state is not JobState.ENDED:
            text = f"the job ended as {end.value} in the state {self._state.name.lower()}"
            self._break("WMP-6.1", text, fact)

    def _step(self, what: JobInput, fact: Fact) -> bool:
        """Make a step in the table of jobs; return whether the table has it."""
        state = job_lifecycle.TRANSITIONS.get((self._state, what))
        if state is None:
            came = f"the input {what.name.lower()} came in the state {self._state.name.lower()}"
            self._break("WMP-6.1", came, fact)
            return False
        self._state = state
        return True

    def _at_store(self, fact: Fact) -> None:
        """Compare what the managers of a store did with one job; they have no common order."""
        if fact.event == "granted":
            worker = (fact.peer or "", fact.peer_epoch or 0)
            first = self._workers.setdefault(fact.attempt or 0, worker)
            if first != worker:
                text = f"attempt {fact.attempt} was granted to {first[0]} and to {worker[0]}"
                self._break("WMP-14.2", text, fact)
        elif fact.event == "resolved" and self._end in (None, fact.word):
            self._end, self._state = fact.word, JobState.ENDED
        elif fact.event == "resolved":
            text = f"the job ended {self._end}, and {fact.word}"
            self._break("one end for each job", text, fact)

    def _at_worker(self, fact: Fact, held: _JobAtWorker) -> None:
        """Record an event in the history, and make a step in the table of executions."""
        attempt = fact.attempt or 0
        if fact.event in ("taken", "cancel"):
            held.named.add(attempt)
        match fact.event:
            case "taken":
                if held.state is ExecutionState.ABSENT:
                    held.due += 1
                    held.attempt = attempt
                held.attempt = max(held.attempt, attempt)
                held.step(ExecutionInput.TAKE)
            case "run":
                state, held.lane = held.state, fact.value
                if not held.step(ExecutionInput.START):
                    text = f"the job was handed to a lane in the state {state.name.lower()}"
                    self._break("WMP-6.6", text, fact)
                if not self._broken:
                    worker = (fact.node.encode(), fact.epoch)
                    self._history.begun(worker, self._owner, self.job[2], attempt)
            case "finished":
                if fact.other == held.lane:
                    held.step(ExecutionInput.RECALLED if fact.word else ExecutionInput.FINISH)
                if fact.value is not None:
                    held.reached.add(fact.value)
            case "answered":
                self._answered(fact, held)
            case "cancel" if held.state is ExecutionState.ABSENT or held.attempt != attempt:
                held.due += 1  # the worker does not hold the job, and answers at once
            case "cancel":
                held.step(ExecutionInput.UNSTARTED if fact.value else ExecutionInput.CANCEL)
            case "forgotten":
                held.state, held.lane, held.due = ExecutionState.ABSENT, None, 0
            case "refused" if held.answers.pop((fact.session, fact.number), 0):
                held.due += 1  # another DONE stands in place of the refused DONE (WMP-7.11)

    def _answered(self, fact: Fact, held: _JobAtWorker) -> None:
        """Judge an entry of a DONE."""
        outcome, key = fact.value or 0, (fact.session, fact.number)
        if not self._stored:
            worker = (fact.node.encode(), fact.epoch)
            self._history.answered(worker, self._owner, self.job[2], fact.attempt or 0, outcome)
        times = held.answers[key] = held.answers.get(key, 0) + 1
        if times == MAX_RESENDS:
            held.due += 1  # another DONE may replace this one (WMP-7.12)
        if times > 1:
            return  # the same DONE, sent again
        if self._stored and len(held.answers) > 1:
            held.due += 1  # a successor gets results that may not be stored (WMP-14.6)
        held.due -= 1
        if held.state is ExecutionState.PARKED and held.attempt == fact.attempt:
            held.state = ExecutionState.ABSENT  # refused, expired or handed back
        if outcome == Outcome.OVERRUN:
            held.state, held.lane = ExecutionState.ABSENT, None  # the handler may go on
        what = f"attempt {fact.attempt} was answered as {OUTCOMES.get(outcome, str(outcome))}"
        if fact.attempt not in held.named:
            self._break("WMP-6.6", f"{what}; no TAKE or CANCEL named the attempt", fact)
        elif held.due < 0:
            self._break("WMP-6.6", f"{what}; no manager waits for it", fact)
        elif outcome in (Outcome.OK, Outcome.ERROR) and outcome not in held.reached:
            reached = ", ".join(OUTCOMES.get(code, str(code)) for code in sorted(held.reached))
            text = f"{what}; its lanes reported {reached or 'no outcome'}"
            self._break("WMP-6.10", text, fact)

    # -- violations

    def _break(self, name: str, detail: str, fact: Fact) -> None:
        worker = fact.process if fact.side == 1 else None
        if worker is None and fact.peer is not None:
            worker = (fact.peer, fact.peer_epoch or 0)
        self._lines = self._lines or list(dict.fromkeys((*f.process, f.n) for f in self.facts))
        self.sink.violation(
            name, detail, (*fact.process, fact.n, fact.at), self._lines,
            owner=self.job[:2], job=self.job[2], attempt=fact.attempt, worker=worker,
        )  # fmt: skip


def is_settled(facts: Sequence[Fact], known: Mapping[ProcessKey, KnownProcess]) -> bool:
    """Return whether a job has ended, and no further line about it is expected."""
    first = {fact.event: fact for fact in reversed(facts)}
    end = first.get("resolved")
    owner = None if end is None else known.get(end.process)
    if end is None or owner is None or "submitted" not in first:
        return "declined" in first
    if owner.end is None and owner.last <= end.at + _LATER:
        return False
    answered = {(*f.process, f.attempt) for f in facts if f.event == "answered"}
    for fact in facts:
        worker = known.get((fact.peer or "", fact.peer_epoch or 0))
        if fact.event != "granted" or worker is None or worker.end is not None:
            continue
        late = worker.last + worker.clock > end.at + owner.clock + _WAITED
        if not late and (worker.node, worker.epoch, fact.attempt) not in answered:
            return False
    return True
