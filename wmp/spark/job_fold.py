"""One job, folded from all its facts: its rows and its violations.

The invariants are those of the simulations, checked by the same code
(:mod:`wmp.testing.invariants`). The tables are those that the machines consult
(:mod:`wmp.core.manager.job_lifecycle`, :mod:`wmp.core.worker.execution_lifecycle`). Facts are in
the order of their lines: first those of the manager, and then those of each worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from attrs import define, field

from wmp.actions import JOINED, End
from wmp.core.manager import job_lifecycle
from wmp.core.manager.job_lifecycle import JobInput, JobState
from wmp.core.protocol.outbound import MOST_RESENDS
from wmp.core.worker import execution_lifecycle
from wmp.core.worker.execution_lifecycle import ExecutionInput, ExecutionState
from wmp.message import Outcome, Peer
from wmp.spark.facts import Fact, FoldSink, KnownProcess, Process
from wmp.spark.findings import FINDINGS
from wmp.spark.job_rows import OUTCOMES, JobRows
from wmp.testing.invariants import History, Violation

__all__ = ["JobFold", "is_settled"]

_LATER: Final = 5_000_000
"""µs after the end of a job: a manager that wrote a line so much later lost no line about it."""
_WAITED: Final = 60_000_000
"""µs after the end of a job for which the lines of its workers may be missing."""
_ROUNDED: Final = 2
"""Tolerance for rounded times, in µs."""
_ANY: Final = {End.OK: b"", End.ERROR: b""}
"""The payload of every result here, because a journal holds no results of handlers."""
_RESULTS: Final = {End.OK.value: Outcome.OK, End.ERROR.value: Outcome.ERROR}


@define(eq=False)
class _HeldAttempt:
    """A job at one process of a worker."""

    state: ExecutionState = ExecutionState.ABSENT
    attempt: int = 0
    due: int = 0
    """Number of DONE entries still to be sent."""
    answers: Counter[tuple[int | None, int | None]] = field(factory=Counter)
    """Number of times that a DONE was sent, by its session and number."""
    reached: set[int] = field(factory=set)
    """The outcomes that lanes reported."""


@define(eq=False)
class JobFold:
    """A job with all its facts."""

    facts: Sequence[Fact]
    sink: FoldSink
    history: History = field(factory=History)
    state: JobState = JobState.QUEUED
    _submitted: Fact | None = None
    _stored: bool = False
    """Whether a store owns the job: any manager of the store may grant and end it."""
    _workers: dict[int, Process] = field(factory=dict)
    """The worker to which each attempt of a stored job was granted."""
    _end: str | None = None
    """The end of a stored job that was reported first."""
    _held: dict[Process, _HeldAttempt] = field(factory=dict)
    _rows: JobRows = field(init=False)

    def fold(self) -> None:
        """Add the rows of the job to the sink."""
        first = self.facts[0]
        if any(fact.event == "declined" or fact.word == JOINED for fact in self.facts):
            return  # the manager did not accept the job, or has it under another number
        owner: Peer = (first.owner.encode(), first.owner_epoch)
        known = self.sink.known.get((first.owner, first.owner_epoch))
        end = next((f for f in self.facts if f.event == "resolved"), None)
        alive = known is not None and (
            known.end == "stop" or (end is not None and known.last > end.at + _LATER)
        )
        self._submitted = next((f for f in self.facts if f.event == "submitted"), None)
        self._stored = any(
            f.side == 0 and (f.node, f.epoch) != (f.owner, f.owner_epoch) for f in self.facts
        )
        if self._submitted is None or self._stored:
            # The lines of several managers have no common order, and this one may have lost some.
            # The journal of the manager is missing, so only the lines of workers can be checked.
            self.history.accepted(owner, first.job, _ANY)
        self._rows = JobRows(self.facts, self.sink, self._submitted)
        history: History | None = self.history
        for fact in self.facts:
            self._rows.keep(fact)
            if fact.side == 1 and not (alive and self._submitted):
                self.history.died(owner)  # the manager's journal may lack its last lines
            if history is not None and not (self._stored and fact.event != "run"):
                try:
                    self._record(history, owner, fact)
                except Violation as violation:
                    # The only other name is that of a job that was not submitted before.
                    name = violation.name if violation.name in FINDINGS else "WMP-6.1"
                    self._break(name, violation.detail, fact)
                    history = None  # later violations follow from this one
            wrong = None
            if fact.side == 1:
                wrong = self._at_worker(fact)
            elif self._stored:
                wrong = self._of_store(fact)
            elif history is not None and self._submitted:
                wrong = self._at_manager(fact)
            if wrong is not None:
                self._break(*wrong, fact)
        if history is not None and alive and self._submitted:
            try:
                history.finish()
            except Violation as violation:
                last = [fact for fact in self.facts if fact.side == 0][-1]
                self._break(violation.name, violation.detail, last._replace(peer=None))
        self._rows.report(self.state)

    # -- verdicts

    def _record(self, history: History, owner: Peer, fact: Fact) -> None:
        """Record an event of the job in its history."""
        job, attempt = fact.job, fact.attempt or 0
        accepted = self._submitted is not None
        match fact.event:
            case "submitted":
                history.accepted(owner, job, _ANY, fact.value or 0)
                if fact.number is not None:
                    history.limited(owner, job, fact.number - _ROUNDED)
            case "asked":
                history.asked(owner, job)
            case "granted" if accepted and fact.value:
                worker = ((fact.peer or "").encode(), fact.peer_epoch or 0)
                history.granted(owner, job, attempt, worker)
            case "lost" if accepted:
                counts = fact.value or 0
                history.lost(owner, job, attempt, counts=counts > 0, leaving=counts > 1)
            case "resolved" if accepted:
                by = None if fact.peer is None else (fact.peer.encode(), fact.peer_epoch or 0)
                history.resolved(owner, job, End(fact.word), b"", attempt, by, fact.at)
            case "run":
                history.begun((fact.node.encode(), fact.epoch), owner, job, attempt)
            case "answered":
                worker = (fact.node.encode(), fact.epoch)
                history.answered(worker, owner, job, attempt, fact.value or 0)

    def _at_manager(self, fact: Fact) -> tuple[str, str] | None:
        """Make a step in the table of jobs; return the violation if the table has no such step."""
        match fact.event:
            case "granted" if fact.value:
                return self._step(JobInput.GRANT)
            case "lost" if self.state in (JobState.LEASED, JobState.CANCELLING):
                known = self.history.jobs[fact.owner.encode(), fact.owner_epoch][fact.job]
                if not fact.value:
                    return self._step(JobInput.RETURN)
                return self._step(JobInput.SPEND if known.spent > known.retries else JobInput.LOSE)
            case "asked" if (self.state, JobInput.CANCEL) in job_lifecycle.TRANSITIONS:
                return self._step(JobInput.CANCEL)
            case "resolved":
                end = End(fact.word)
                if end in (End.OK, End.ERROR):
                    wrong = self._step(JobInput.RESULT)
                    if (
                        wrong is None
                        and (fact.attempt, _RESULTS[end.value]) not in self._rows.results
                    ):
                        text = (
                            f"the job ended {end.value} with attempt {fact.attempt}, but the "
                            "manager received no such DONE"
                        )
                        return "WMP-6.2", text
                    return wrong
                if end is End.TIMEOUT:
                    return self._step(JobInput.EXPIRE)
                if self.state is not JobState.ENDED:
                    return (
                        "WMP-6.1",
                        f"the job ended as {end.value} in the state {self.state.name.lower()}",
                    )
        return None

    def _of_store(self, fact: Fact) -> tuple[str, str] | None:
        """Compare what the managers of a store did with one job."""
        if fact.event == "granted":
            worker = (fact.peer or "", fact.peer_epoch or 0)
            first = self._workers.setdefault(fact.attempt or 0, worker)
            if first != worker:
                text = f"attempt {fact.attempt} was granted to {first[0]} and to {worker[0]}"
                return "WMP-14.2", text
        elif fact.event == "resolved":
            if self._end not in (None, fact.word):
                return "one end for each job", f"the job ended {self._end}, and {fact.word}"
            self._end = fact.word
            self.state = JobState.ENDED
        return None

    def _step(self, what: JobInput) -> tuple[str, str] | None:
        state = job_lifecycle.TRANSITIONS.get((self.state, what))
        if state is None:
            return (
                "WMP-6.1",
                f"the input {what.name.lower()} came in the state {self.state.name.lower()}",
            )
        self.state = state
        return None

    def _at_worker(self, fact: Fact) -> tuple[str, str] | None:
        """Make a step in the worker's table; return the violation if the table has no such step."""
        held = self._held.get((fact.node, fact.epoch))
        if held is None:
            held = self._held[fact.node, fact.epoch] = _HeldAttempt()
        table, attempt = execution_lifecycle.TRANSITIONS, fact.attempt or 0
        match fact.event:
            case "taken":
                if held.state is ExecutionState.ABSENT:
                    held.due += 1
                    held.attempt = attempt
                held.attempt = max(held.attempt, attempt)
                held.state = table[held.state, ExecutionInput.TAKE]
            case "run":
                state = table.get((held.state, ExecutionInput.START))
                if state is None:
                    return (
                        "WMP-6.6",
                        f"the job was handed to a lane in the state {held.state.name.lower()}",
                    )
                held.state = state
            case "finished":
                what = ExecutionInput.RECALLED if fact.word else ExecutionInput.FINISH
                held.state = table.get((held.state, what), held.state)
                if fact.value is not None:
                    held.reached.add(fact.value)
            case "cancel":
                if held.state is ExecutionState.ABSENT or held.attempt != attempt:
                    held.due += 1  # the worker does not hold the job, and answers at once
                else:
                    what = ExecutionInput.UNSTARTED if fact.value else ExecutionInput.CANCEL
                    held.state = table.get((held.state, what), held.state)
            case "forgotten":
                held.state, held.due = ExecutionState.ABSENT, 0
            case "refused":
                if held.answers.pop((fact.session, fact.number), 0):
                    held.due += 1  # another DONE stands in place of the refused DONE (WMP-7.11)
            case "answered":
                return self._answered(held, fact)
        return None

    def _answered(self, held: _HeldAttempt, fact: Fact) -> tuple[str, str] | None:
        """Judge an entry of a DONE."""
        outcome, key = fact.value or 0, (fact.session, fact.number)
        held.answers[key] += 1
        if held.answers[key] == MOST_RESENDS:
            held.due += 1  # another DONE may replace this one (WMP-7.12)
        if held.answers[key] > 1:
            return None  # the same DONE, sent again
        if self._stored and len(held.answers) > 1:
            held.due += 1  # a successor gets results that may not be stored (WMP-14.6)
        held.due -= 1
        if held.state is ExecutionState.PARKED and held.attempt == fact.attempt:
            held.state = ExecutionState.ABSENT  # refused, expired or handed back
        word = OUTCOMES.get(outcome, str(outcome))
        if held.due < 0:
            return (
                "WMP-6.6",
                f"attempt {fact.attempt} was answered as {word}; no manager waits for it",
            )
        if outcome in (Outcome.OK, Outcome.ERROR) and outcome not in held.reached:
            reached = ", ".join(OUTCOMES.get(one, str(one)) for one in sorted(held.reached))
            text = (
                f"attempt {fact.attempt} was answered as {word}; its lanes reported "
                f"{reached or 'no outcome'}"
            )
            return "WMP-6.10", text
        return None

    def _break(self, name: str, detail: str, fact: Fact) -> None:
        worker = (fact.node, fact.epoch) if fact.side == 1 else None
        if worker is None and fact.peer is not None:
            worker = (fact.peer, fact.peer_epoch or 0)
        self.sink.violation(
            name, detail, (fact.node, fact.epoch, fact.n, fact.at),
            list(dict.fromkeys((f.node, f.epoch, f.n) for f in self.facts)),
            owner=(fact.owner, fact.owner_epoch), job=fact.job, attempt=fact.attempt,
            worker=worker,
        )  # fmt: skip


def is_settled(facts: Sequence[Fact], known: Mapping[Process, KnownProcess]) -> bool:
    """Return whether a job has ended, and no further line about it is expected."""
    end = next((fact for fact in facts if fact.event == "resolved"), None)
    owner = None if end is None else known.get((end.node, end.epoch))
    if end is None or owner is None or not any(fact.event == "submitted" for fact in facts):
        return any(fact.event == "declined" for fact in facts)
    if owner.end is None and owner.last <= end.at + _LATER:
        return False
    answered = {(f.node, f.epoch, f.attempt) for f in facts if f.event == "answered"}
    for fact in facts:
        worker = known.get((fact.peer or "", fact.peer_epoch or 0))
        if fact.event != "granted" or worker is None or worker.end is not None:
            continue
        late = worker.last + worker.clock > end.at + owner.clock + _WAITED
        if not late and (worker.node, worker.epoch, fact.attempt) not in answered:
            return False
    return True
