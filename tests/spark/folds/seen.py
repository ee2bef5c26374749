"""The state and actions of machines, step by step. A pipeline must rebuild them from the journals.

This module reads no journal. It compares the machine's own tables before and after each step. A
lease or lock that is missing after a step has ended in the step. The step's event and actions give
the reason.
"""

from __future__ import annotations

from collections import defaultdict

from attrs import define, field

from wmp.actions import Note, Resolve, Run, Send
from wmp.core.manager.job_lifecycle import JobState
from wmp.core.manager.machine import ManagerMachine
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Cancelled, Finished, Recalled, Received, Submitted
from wmp.message import Command, Field, Outcome
from wmp.testing.state.manager_state import all_jobs

__all__ = ["Job", "Lane", "Lease", "Lock", "Seen"]

CAUSES = {
    Outcome.OK: None,
    Outcome.ERROR: None,
    Outcome.REFUSED: "refused",
    Outcome.CANCELLED: "handed back",
    Outcome.LOST: "lost at the worker",
}


def named(peer):
    """Return (identity, epoch) of a machine in a journal's spelling."""
    return peer[0].decode(), peer[1]


def microseconds(now):
    """Return a time in a journal's unit."""
    return round(now * 1e6)


@define
class Job:
    """A job of a manager."""

    max_worker_losses: int
    submitted: int
    state: str = "queued"
    attempts: int = 0
    lost: int = 0
    """Lost leases that count, up to the last step before the job's end."""
    requested: bool = False
    ended: int | None = None
    end: str | None = None
    over: int = 0
    """Leases that ended without a result."""
    executions: int = 0
    holder: tuple[str, int] | None = None


@define
class Lease:
    """A lease of a job at its manager."""

    worker: tuple[str, int]
    lock: int
    cause: str | None = None
    """The reason why the job was queued again or ended."""
    outcome: str | None = None
    """The outcome in the accepted DONE, or else in the first DONE."""


@define
class Lock:
    """A lock of a worker."""

    manager: tuple[str, int]
    want: int
    given: int
    state: str
    answer: str | None = None
    answered: bool = False
    closed: int | None = None
    withdrawn: bool = False
    jobs: int = 0
    late: int = 0


@define
class Lane:
    """A job in a lane of a worker."""

    owner: tuple[str, int]
    attempt: int
    outcome: str | None = None


@define(eq=False)
class Seen:
    """The records of all nodes of several fleets; keys begin with the node's (identity, epoch)."""

    jobs: dict[tuple[str, int, int], Job] = field(factory=dict)
    leases: dict[tuple[str, int, int, int], Lease] = field(factory=dict)
    locks: dict[tuple[str, int, int], Lock] = field(factory=dict)
    lanes: dict[tuple[str, int, int, int], Lane] = field(factory=dict)
    _held: dict[tuple[str, int], dict[int, tuple[int, tuple[str, int]]]] = field(factory=dict)
    """By manager: the number and holder of each job's lease after the last step, by job."""
    _arrived: defaultdict[tuple[str, int], dict[bytes, tuple[int, int]]] = field(
        factory=lambda: defaultdict(dict)
    )
    """By worker: the value of :meth:`_received` after the last step."""

    def step(self, node, event, actions, now):
        """Record that a machine has handled an event."""
        if isinstance(node, ManagerMachine):
            self._manager(node, event, actions, microseconds(now))
        elif isinstance(node, WorkerMachine):
            self._worker(node, event, actions, microseconds(now))

    # -- managers

    def _manager(self, node, event, actions, at):
        me = named((node.settings.identity, node.settings.epoch))
        if isinstance(event, Submitted):
            for id in event.ids:
                self.jobs[*me, id] = Job(event.max_worker_losses, at)
        if isinstance(event, Cancelled):
            for id in event.ids:
                job = self.jobs.get((*me, id))
                if job is not None and job.end is None:
                    job.requested = True
        ends = {}
        for action in actions:
            if isinstance(action, Resolve):
                for id, end in zip(action.ids, action.ends, strict=True):
                    ends[id] = end.value
                    self.jobs[*me, id].end, self.jobs[*me, id].ended = end.value, at
        locks = self._granted(actions)
        records = all_jobs(node)
        held = {
            id: (record.attempt, named((record.holder, node._workers[record.holder].epoch)))
            for id, record in records.items()
            if record.state in (JobState.LEASED, JobState.CANCELLING)
        }
        for id, (attempt, worker) in self._held.get(me, {}).items():
            if held.get(id) != (attempt, worker):
                self._over(me, id, attempt, event, actions, ends.get(id))
        for id, (attempt, worker) in held.items():
            if (*me, id, attempt) not in self.leases:
                self.leases[*me, id, attempt] = Lease(worker, locks[id, attempt])
                self.jobs[*me, id].attempts += 1
                self.jobs[*me, id].holder = worker
        self._held[me] = held
        for (*owner, id), job in self.jobs.items():
            if tuple(owner) == me:
                record = records.get(id)
                job.state = "ended" if record is None else record.state.name.lower()
                if record is not None:
                    assert record.attempt == job.attempts
                    job.lost = record.lost
                elif job.end == "lost":
                    job.lost = job.max_worker_losses + 1

    @staticmethod
    def _granted(actions):
        """Return the lock that each new lease fills."""
        return {
            (id, attempt): action.message.fields[Field.LOCK]
            for action in actions
            if isinstance(action, Send) and action.message.command is Command.TAKE
            for id, attempt in zip(
                action.message.columns.ids, action.message.columns.attempts, strict=True
            )
        }

    def _over(self, me, id, attempt, event, actions, end):
        """Record the reason why a lease is missing from the table."""
        lease = self.leases[*me, id, attempt]
        lease.cause = next(
            (
                action.reason
                for action in actions
                if isinstance(action, Note)
                and (id, attempt) in zip(action.ids, action.attempts, strict=True)
            ),
            None,
        )
        if lease.cause is None and end == "timeout":
            lease.cause = "timeout"
        elif lease.cause is None:
            assert isinstance(event, Received), event
            columns = event.message.columns
            outcome = next(
                Outcome(outcome)
                for job, number, outcome in zip(
                    columns.ids, columns.attempts, columns.outcomes, strict=True
                )
                if (job, number) == (id, attempt)
            )
            lease.outcome, lease.cause = outcome.name.lower(), CAUSES[outcome]
        self.jobs[*me, id].over += lease.cause is not None

    # -- workers

    def _worker(self, node, event, actions, at):
        me = named((node.settings.identity, node.settings.epoch))
        for action in actions:
            if isinstance(action, Run):
                owner = named(action.manager)
                for id, attempt in zip(action.ids, action.attempts, strict=True):
                    self.lanes[*me, action.lane, id] = Lane(owner, attempt)
                    self.jobs[*owner, id].executions += 1
            elif isinstance(action, Send) and action.message.command is Command.GIVE:
                self._given(me, action.message, at)
            elif isinstance(action, Send) and action.message.command is Command.DONE:
                self._said(action.message)
        if isinstance(event, Finished):
            for id, outcome in zip(event.ids, event.outcomes, strict=True):
                self.lanes[*me, event.lane, id].outcome = Outcome(outcome).name.lower()
        elif isinstance(event, Recalled):
            for id in event.ids:
                self.lanes[*me, event.lane, id].outcome = "recalled"
        for action in actions:
            if isinstance(action, Note):
                # The worker forgets a session before it acts on a message of the next session.
                for number in action.locks:
                    lock = self.locks[*me, number]
                    lock.state, lock.closed = "closed", at
                    lock.answer = lock.answer or action.reason
        self._answered(me, node, event)
        managers = node._links.managers
        self._locks(me, {n: lock for m in managers for n, lock in node._locks.of(m).items()}, at)
        self._arrived[me] = self._received(node)

    @staticmethod
    def _received(node):
        """Return session and highest number received in order, by manager."""
        return {
            identity: (manager.stream.session, manager.stream.received)
            for identity, manager in node._links.managers.items()
            if manager.stream is not None
        }

    def _given(self, me, message, at):
        number = message.fields[Field.LOCK]
        if message.fields[Field.WANT] == 0:
            self.locks[*me, number].withdrawn = True
        else:
            assert (*me, number) not in self.locks
            manager = named(message.to[::-1][:2])
            self.locks[*me, number] = Lock(manager, message.fields[Field.WANT], at, "unused")

    def _said(self, message):
        owner, columns = named(message.fields[Field.MANAGER]), message.columns
        for id, attempt, outcome in zip(
            columns.ids, columns.attempts, columns.outcomes, strict=True
        ):
            lease = self.leases[*owner, id, attempt]
            if lease.outcome is None:
                lease.outcome = Outcome(outcome).name.lower()

    def _answered(self, me, node, event):
        """Record a TAKE or NO that is the next message of its stream, and no other message."""
        if not isinstance(event, Received):
            return
        message = event.message
        if message.command not in (Command.TAKE, Command.NO):
            return
        fields, sender = message.fields, message.sender[0]
        arrived = fields[Field.SESSION], fields[Field.NUMBER]
        if self._received(node).get(sender) != arrived or self._arrived[me].get(sender) == arrived:
            return
        lock = self.locks[*me, fields[Field.LOCK]]
        lock.answered = True
        if message.command is Command.TAKE:
            lock.jobs += len(message.columns.ids)
            if lock.state == "closed":
                lock.late += len(message.columns.ids)
            else:
                lock.answer = "TAKE"
        elif lock.state != "closed":
            lock.answer = lock.answer or "NO"

    def _locks(self, me, held, at):
        for (*worker, number), lock in self.locks.items():
            if tuple(worker) != me or lock.state == "closed":
                continue
            if number in held:
                assert held[number].want == lock.want - lock.jobs
                lock.state = held[number].state.value
            else:
                assert lock.answered
                lock.state, lock.closed = "closed", at
