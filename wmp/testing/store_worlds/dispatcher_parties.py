"""The parties of a world of dispatchers, and the faults that happen to them."""

from __future__ import annotations

from typing import Any

from attrs import define, field, frozen

from wmp.dispatcher.dispatch_events import DispatcherAction, DispatcherEvent
from wmp.dispatcher.machine import DispatcherMachine
from wmp.store.contract import StoreInstance


@frozen
class DispatcherFaults:
    """Probabilities of faults at each move, while faults happen."""

    crash: float = 0.0
    """A dispatcher ends; another one begins."""
    pause: float = 0.0
    """A dispatcher stands still, and its instance may be ended meanwhile."""
    partition: float = 0.0
    """A dispatcher loses its store for some time."""
    lose: float = 0.0
    """A request is lost, or its answer."""
    worker_crash: float = 0.0
    gone: float = 0.0
    """A worker ends for ever; one stays."""
    jump: float = 0.0
    """The clock of the store jumps by some seconds."""
    cancel: float = 0.0
    isolate: float = 0.0
    """A worker and all dispatchers lose each other for some time."""
    apart: float = 0.0
    """A worker and one dispatcher lose each other for some time."""
    resign: float = 0.0
    """A worker resigns, does its jobs to the end, and registers again later."""
    refuse: float = 0.0
    """A worker answers a job by 404."""
    err: float = 0.0
    """A worker answers a job by 500, and does it nevertheless."""
    manager_crash: float = 0.0
    """A manager of WMP workers ends, and another manager begins."""
    drift: float = 0.0
    """Maximum factor by which the clocks of dispatchers run faster or slower than time."""


@define(eq=False)
class WorldWorker:
    """An HTTP worker that refuses nothing: the dispatchers alone keep its limit."""

    port: int
    places: int
    running: dict[int, int] = field(factory=dict)
    until: dict[int, float] = field(factory=dict)
    """When each running job is done."""
    outbox: list[tuple[int, int]] = field(factory=list)
    down_until: float = 0.0
    registers_at: float = 0.0
    alone_until: float = 0.0
    """Until when no dispatcher and the worker reach each other."""
    apart: dict[int, float] = field(factory=dict)
    """Time until which the worker and each dispatcher, by its index, do not reach each other."""
    failed: int = 0
    """Contacts with dispatchers that failed running."""

    def reaches(self, index: int, now: float) -> bool:
        """Return whether the worker and a dispatcher, by its index, reach each other."""
        return max(self.alone_until, self.apart.get(index, 0.0)) <= now

    def stop(self) -> None:
        """Stop all jobs, and forget their results."""
        self.running.clear()
        self.outbox.clear()
        self.failed = 0


@define(eq=False)
class WorldDispatcher:
    """A dispatcher: its machine, and what it has to do."""

    machine: DispatcherMachine
    me: StoreInstance
    ids: Any
    rate: float = 1.0
    """Seconds of the dispatcher's clock in a second."""
    actions: list[DispatcherAction] = field(factory=list)
    events: list[DispatcherEvent] = field(factory=list)
    renewed: float = 0.0
    paused_until: float = 0.0
    cut_until: float = 0.0


@define(eq=False)
class WorldManager:
    """A manager whose WMP workers do jobs of the same queue."""

    me: StoreInstance
    places: int
    held: dict[int, tuple[int, float]] = field(factory=dict)
    """The attempt of each job that the workers have, and when the job is done."""
    renews_at: float = 0.0
