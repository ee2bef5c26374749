"""The workload of a world: submissions, the tasks of jobs at their workers, cancellations.

A workload is drawn from one random stream, before the world begins.
"""

from __future__ import annotations

from random import Random

from attrs import evolve, frozen

from wmp.message import Kind, Outcome
from wmp.retry import Retry, exponential
from wmp.testing.simulator.topology import Topology


@frozen
class SimulatedTask:
    """One job: its payload, which is unique in the world, and the behaviour of its handler."""

    payload: bytes
    takes: float
    """Seconds that the handler takes."""
    fails: bool
    heeds: bool
    """Whether the task ends early when its cancelled flag is set."""
    fails_first: int = 0
    """Number of attempts that fail with a ``ConnectionError`` before an attempt succeeds."""
    later: float | None = None
    """Seconds after which a failed attempt requests the next attempt; None for no request."""

    @property
    def outcome(self) -> Outcome:
        """The outcome without an interruption."""
        return Outcome.ERROR if self.fails else Outcome.OK

    @property
    def result(self) -> bytes:
        """The exact result of the handler."""
        return (b"failed " if self.fails else b"did ") + self.payload


@frozen
class SubmitBatch:
    """Jobs submitted together."""

    at: float
    manager: str
    kind: Kind
    tasks: tuple[SimulatedTask, ...]
    priority: int = 0
    timeout: float | None = None
    max_worker_losses: int = 3
    expires: float | None = None
    run_limit: float | None = None
    delay: float = 0.0
    retry: Retry | None = None


@frozen
class CancelBatch:
    """A cancellation of some jobs of a batch by their submitter."""

    at: float
    batch: int
    rows: tuple[int, ...]


@frozen
class DrainWorker:
    """A worker drains, and starts again afterwards."""

    at: float
    worker: str


@frozen
class Workload:
    """All submissions, cancellations and departures of a world."""

    batches: tuple[SubmitBatch, ...]
    cancels: tuple[CancelBatch, ...]
    drains: tuple[DrainWorker, ...]


def draw_workload(topology: Topology, until: float, draw: Random) -> Workload:
    """Draw the batches in the order of time, their cancellations, and the departures of workers."""
    batches = []
    times = sorted(draw.uniform(0, until) for _ in range(draw.randint(2, 6)))
    for number, at in enumerate(times):
        count = draw.choice((1, 1, 2, 3, 5))
        batches.append(draw_batch(topology, at, str(number), count, draw))
    cancels = []
    for number, batch in enumerate(batches):
        if draw.random() < 0.4:
            rows = [row for row in range(len(batch.tasks)) if draw.random() < 0.6]
            after = draw.choice((0.0, topology.timers.latency, draw.uniform(0, 3)))
            if rows:
                cancels.append(CancelBatch(batch.at + after, number, tuple(rows)))
    drains = []
    if draw.random() < 0.3:
        drains.append(DrainWorker(draw.uniform(0, until), draw.choice(list(topology.workers))))
    return Workload(tuple(batches), tuple(cancels), tuple(drains))


def draw_times(workload: Workload, draw: Random) -> Workload:
    """Draw start times, expiries, run limits and failures for the batches of a workload."""
    return evolve(workload, batches=tuple([_with_times(batch, draw) for batch in workload.batches]))


def _with_times(batch: SubmitBatch, draw: Random) -> SubmitBatch:
    waits = exponential(draw.choice((0.0, 0.01, 0.3)), draw.choice((0.4, 2.0)))
    on = draw.choice(((Exception,), (ConnectionError,), (KeyError,)))
    own = Retry(draw.choice((0, 1, 3)), on, waits, jitter=draw.random() < 0.5)
    first, later = draw.choice((0, 0, 1, 2, 5)), draw.choice((None, None, 0.0, 0.2))
    expires = draw.choice((None, None, 0.2, 2.0))
    timeout = batch.timeout
    if timeout is not None and expires is not None:
        timeout = max(timeout, expires)
    return evolve(
        batch,
        tasks=tuple(
            [evolve(task, fails=False, fails_first=first, later=later) for task in batch.tasks]
        ),
        timeout=timeout,
        expires=expires,
        run_limit=draw.choice((None, None, 0.1, 1.0)),
        delay=draw.choice((0.0, 0.0, 0.05, 1.0, 3.0)),
        retry=draw.choice((None, own, own)),
    )


def draw_batch(topology: Topology, at: float, name: str, count: int, draw: Random) -> SubmitBatch:
    """Draw one batch that a worker can do, for a manager that has workers."""
    manager = draw.choice(topology.managers)
    kind = draw.choice(topology.kinds(manager))
    takes = draw.choice((0.0, 0.0, 0.002, 0.05, 0.4, 1.5))
    tasks = []
    for row in range(count):
        # Some payloads do not fit into the columns and travel in frames of their own.
        padding = b"." * (5000 if draw.random() < 0.05 else 0)
        payload = f"{manager} {name}.{row} ".encode() + padding
        fails, heeds = draw.random() < 0.1, draw.random() < 0.5
        tasks.append(SimulatedTask(payload, takes, fails, heeds))
    return SubmitBatch(
        at,
        manager,
        kind,
        tuple(tasks),
        priority=draw.choice((0, 0, 0, 1, -1)),
        timeout=draw.choice((None, None, None, 0.3, 4.0)),
        max_worker_losses=draw.choice((0, 1, 3, 100)),
    )
