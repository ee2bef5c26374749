"""A group of foreign workers behind a gateway: they are one WMP worker together."""

from __future__ import annotations

from attrs import define, field

from wmp.actions import WorkerAction
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Connected, Finished, Resized


@define(eq=False)
class WorkerGroup:
    """One group: its worker machine, and the facts that wait for the end of a turn.

    Args:
        name: Name of the group at its door.
        door: Number of the door.
        number: Link of the gateway's manager to the worker machine.
        settings: Settings of the worker machine, without slots.
        links: Number of links of the worker machine.
    """

    name: str
    door: int
    number: int
    settings: WorkerSettings
    links: int
    worker: WorkerMachine = field(init=False)
    key: str = field(init=False)
    """Name of the worker machine in the gateway."""
    places: int = 0
    """Number of places that the door reported last."""
    finished: list[Finished] = field(factory=list, init=False)
    """Ends of jobs that the worker machine does not know yet."""
    halted: bool = field(default=False, init=False)
    """Whether the worker machine has ended."""
    disbanded: bool = field(default=False, init=False)
    """Whether the worker machine was asked to end, because the group is empty."""
    _slots: int = field(default=0, init=False)
    """Number of slots that the worker machine has."""

    def __attrs_post_init__(self) -> None:
        self.worker = WorkerMachine(self.settings, self.links)
        self.key = f"/{self.name}"

    def settle(self, now: float) -> list[tuple[Finished | Resized, list[WorkerAction]]]:
        """Give the worker machine the ends of jobs and the places of a turn in one step.

        Returns:
            Each event, with the actions that followed.
        """
        finished, self.finished = self.finished, []
        steps: list[tuple[Finished | Resized, list[WorkerAction]]] = []
        resized = None
        if self.places != self._slots:
            resized = Resized({"slots": self.places})
            if finished and self.places < self._slots:
                # A manager that knew the ends first would give the lost jobs to the lost places,
                # and a job that was refused several times waits (WMP-6.5).
                steps.append((resized, self.worker.handle(resized, now)))
                resized = None
            self._slots = self.places
        last: Finished | Resized | None = resized or (finished.pop() if finished else None)
        if last is None:
            return steps
        steps += [(event, self.worker.gather(event, now)) for event in finished]
        return [*steps, (last, self.worker.handle(last, now))]

    def connect(self, link: int, now: float) -> tuple[Connected, list[WorkerAction]]:
        """Report to the worker machine that a link is connected."""
        event = Connected(link)
        return event, self.worker.handle(event, now)
