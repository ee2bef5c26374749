"""The program that submits the jobs of a world of handlers, and the story that it reads.

The program outlives its manager: what had no result when a manager's process died it submits again
to the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from attrs import define, field

from wmp.actions import End, Notify, Resolve
from wmp.events import Submitted
from wmp.message import Frame, Outcome, Peer
from wmp.runtime.submission.results import Status
from wmp.testing.agenda import Agenda
from wmp.testing.fleet import Fleet
from wmp.testing.invariants import History
from wmp.testing.network import Action, LinkQueue, Network
from wmp.testing.simulated_job import SimulatedJob
from wmp.testing.trace import Trace

__all__ = ["MANAGER", "HandlerHistory", "Story", "Submitter"]

MANAGER = "manager"


@define(eq=False)
class Story(Trace):
    """A trace, and beside it what happened for people: no messages."""

    notes: list[tuple[float, str, SimulatedJob | None]] = field(factory=list, init=False)
    """A time, what happened then, and to which job."""

    def note(self, now: float, text: str, job: SimulatedJob | None = None) -> None:
        """Note what happened, to a job perhaps."""
        Trace.note(self, now, text if job is None else f"{job}: {text}")
        self.notes.append((now, text, job))


@define(eq=False)
class HandlerHistory(History):
    """A history of jobs whose results are known only when their handlers have made them."""

    _made: dict[tuple[Peer, int, int], tuple[End, bytes]] = field(factory=dict)

    def made(self, owner: Peer, id: int, attempt: int, outcome: Outcome, result: Frame) -> None:
        """A handler has ended."""
        if outcome in (Outcome.OK, Outcome.ERROR):
            end = End.OK if outcome is Outcome.OK else End.ERROR
            self._made[owner, id, attempt] = end, bytes(result)

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
        """Hold the end against what that attempt's handler made."""
        made = self._made.get((owner, id, attempt))
        if made is not None:
            self.jobs[owner][id].results = dict([made])
        History.resolved(self, owner, id, end, payload, attempt, by, now)


@define(eq=False)
class Submitter:
    """Submits jobs to the manager, and takes their results.

    Args:
        network: Where the manager is.
        agenda: What time it is.
        fleet: Whether the manager's process is paused.
        history: Where what was accepted is recorded.
        story: Where the fate of each job is noted.
    """

    network: Network
    agenda: Agenda
    fleet: Fleet
    history: History
    story: Story
    jobs: list[SimulatedJob] = field(factory=list, init=False)
    _held: dict[tuple[Peer, int], SimulatedJob] = field(factory=dict, init=False)
    """(manager, id) to the job."""
    _handed: SimulatedJob | None = field(default=None, init=False)
    """The job that is being submitted."""

    # -- from the program

    def submit(self, job: SimulatedJob) -> None:
        """Submit a job, now or as soon as there is a manager."""
        self.jobs.append(job)
        self.note("is submitted", job)
        self._submit(job)

    def _submit(self, job: SimulatedJob) -> None:
        network, fleet = self.network, self.fleet
        if MANAGER not in network.nodes or not network.alive(MANAGER) or MANAGER in fleet.paused:
            return  # as soon as it starts or goes on
        payload, kind, priority, timeout, retries = job._terms
        self._handed = job
        network.submit(
            MANAGER, [bytes(payload)], kind, priority=priority, timeout=timeout, retries=retries
        )

    def submit_the_rest(self) -> None:
        """Submit what this process of the manager does not have and what has not ended."""
        me = self.fleet.peer(MANAGER)
        rest = [j for j in self.jobs if not j.done() and (j.owner is None or j.owner[0] != me)]
        for job in rest:
            if job.unwanted:
                job.settle(End.CANCELLED, b"", 0)
                continue
            if job.owner is not None:
                self.note("is submitted again: its manager died before there was a result", job)
            self._submit(job)

    def withdraw(self, job: SimulatedJob) -> None:
        """Cancel a job."""
        self.note("is to be cancelled", job)
        if job.owner is None:
            job.settle(End.CANCELLED, b"", 0)  # no manager knows of it
        elif MANAGER in self.network.nodes and self.network.alive(MANAGER):
            owner, id = job.owner
            if owner == self.fleet.peer(MANAGER):
                self.network.cancel(MANAGER, [id])

    # -- from the network

    def accepted(self, owner: Peer, event: Submitted) -> None:
        """Record that the manager took a job in."""
        assert self._handed is not None
        (id,) = event.ids
        self._held[owner, id] = self._handed
        self._handed.owner = owner, id
        self.history.accepted(owner, id, {}, event.retries)

    def handled(self, name: str, event: object, actions: Sequence[Action]) -> None:
        """Take results and progress from what the manager asks for."""
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
        """The job that a lane is at."""
        return self._held[lane.run.manager, lane.left[0]]

    def note(self, text: str, job: SimulatedJob) -> None:
        """Add to the story of a job."""
        self.story.note(self.agenda.now, text, job)
