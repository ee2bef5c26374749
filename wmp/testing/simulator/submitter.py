"""The program that submits the jobs of a world of handlers, and the story of its jobs.

The program outlives its manager. When the manager's process ends, the program submits the jobs
without a result again, to the next manager.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from attrs import define, field

from wmp.actions import End, Notify, Resolve
from wmp.checks.job_history import History
from wmp.events import Submitted
from wmp.message import Frame, Outcome, Peer
from wmp.runtime.submission.results import Status
from wmp.testing.simulator.agenda import Agenda
from wmp.testing.simulator.fleet import SimulatedFleet
from wmp.testing.simulator.network import Action, LinkQueue, Network
from wmp.testing.simulator.simulated_job import SimulatedJob
from wmp.testing.simulator.trace import Trace

MANAGER = "manager"


@define(eq=False)
class NarratedTrace(Trace):
    """A trace, and a story in words without the messages."""

    notes: list[tuple[float, str, SimulatedJob | None]] = field(factory=list, init=False)
    """Time, text, and the job that the text concerns."""

    def note(self, now: float, text: str, job: SimulatedJob | None = None) -> None:
        """Add a text to the story, about a job or the world."""
        Trace.note(self, now, text if job is None else f"{job}: {text}")
        self.notes.append((now, text, job))


@define(eq=False)
class HandlerHistory(History):
    """A history of jobs whose results are known only after their handlers have run."""

    _handled: dict[tuple[Peer, int, int], tuple[End, bytes]] = field(factory=dict)

    def handled(self, owner: Peer, id: int, attempt: int, outcome: Outcome, result: Frame) -> None:
        """Record the result of a handler."""
        if outcome in (Outcome.OK, Outcome.ERROR):
            end = End.OK if outcome is Outcome.OK else End.ERROR
            self._handled[owner, id, attempt] = end, bytes(result)

    def resolved(
        self,
        owner: Peer,
        id: int,
        end: End,
        payload: bytes,
        attempt: int,
        by: Peer | None,
        now: float = inf,
    ) -> None:
        """Compare the end of a job with the result of that attempt's handler."""
        result = self._handled.get((owner, id, attempt))
        if result is not None:
            self.jobs[owner][id].results = dict([result])
        History.resolved(self, owner, id, end, payload, attempt, by, now)


@define(eq=False)
class Submitter:
    """Submits jobs to the manager, and records their results.

    Args:
        network: Has the manager.
        agenda: Has the current time.
        fleet: Knows whether the manager's process is paused.
        history: Records accepted jobs.
        story: Notes the events of each job.
    """

    network: Network
    agenda: Agenda
    fleet: SimulatedFleet
    history: History
    story: NarratedTrace
    jobs: list[SimulatedJob] = field(factory=list, init=False)
    _held: dict[tuple[Peer, int], SimulatedJob] = field(factory=dict, init=False)
    """The jobs, by (manager, id)."""
    _handed: SimulatedJob | None = field(default=None, init=False)
    """The job of the current submission."""

    # -- from the program

    def submit(self, job: SimulatedJob) -> None:
        """Submit a job, now or as soon as a manager runs."""
        self.jobs.append(job)
        self.note("is submitted", job)
        self._submit(job)

    def _submit(self, job: SimulatedJob) -> None:
        network, fleet = self.network, self.fleet
        if MANAGER not in network.nodes or not network.alive(MANAGER) or MANAGER in fleet.paused:
            return  # the job is submitted when the manager starts, or after its pause
        payload, kind, priority, timeout, max_worker_losses = job._terms
        self._handed = job
        network.submit(
            MANAGER,
            [bytes(payload)],
            kind,
            priority=priority,
            timeout=timeout,
            max_worker_losses=max_worker_losses,
        )

    def submit_the_rest(self) -> None:
        """Submit all jobs without an end that this process of the manager does not hold."""
        me = self.fleet.peer(MANAGER)
        rest = [j for j in self.jobs if not j.done() and (j.owner is None or j.owner[0] != me)]
        for job in rest:
            if job.unwanted:
                job.settle(End.CANCELLED, b"", 0)
                continue
            if job.owner is not None:
                self.note(
                    "is submitted again, because its manager was killed before the result", job
                )
            self._submit(job)

    def withdraw(self, job: SimulatedJob) -> None:
        """Cancel a job."""
        self.note("is cancelled by its submitter", job)
        if job.owner is None:
            job.settle(End.CANCELLED, b"", 0)  # no manager has the job
        elif MANAGER in self.network.nodes and self.network.alive(MANAGER):
            owner, id = job.owner
            if owner == self.fleet.peer(MANAGER):
                self.network.cancel(MANAGER, [id])

    # -- from the network

    def accepted(self, owner: Peer, event: Submitted) -> None:
        """Record that the manager accepted a job."""
        assert self._handed is not None
        (id,) = event.ids
        self._held[owner, id] = self._handed
        self._handed.owner = owner, id
        self.history.accepted(owner, id, {}, event.max_worker_losses)

    def handled(self, name: str, event: object, actions: Sequence[Action]) -> None:
        """Record results and progress from the manager's actions."""
        if name != MANAGER:
            return
        me = self.fleet.peer(name)
        for action in actions:
            if isinstance(action, Resolve):
                rows = zip(action.ids, action.ends, action.payloads, action.attempts, strict=True)
                for id, end, payload, attempts in rows:
                    job = self._held[me, id]
                    job.settle(end, payload, attempts)
                    self.note(f"has ended: {end.value}", job)
            elif isinstance(action, Notify):
                self._held[me, action.id].progress(Status(action.fraction, action.text))

    def job(self, lane: LinkQueue) -> SimulatedJob:
        """Return the current job of a lane."""
        return self._held[lane.run.manager, lane.left[0]]

    def note(self, text: str, job: SimulatedJob) -> None:
        """Add a text to the story of a job."""
        self.story.note(self.agenda.now, text, job)
