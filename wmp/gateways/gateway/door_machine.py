"""The interface between a gateway and the machines of its doors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Protocol

from attrs import field, frozen

from wmp.gateways.common.attendance import Attendance
from wmp.message import Peer


def _nobody(role: str) -> bool:
    return False


@frozen(kw_only=True)
class DoorContext:
    """The services that a gateway offers to the machines of all its doors."""

    epoch: int = 1
    """Time of the start in milliseconds."""
    home: Peer | None = None
    """Identity and epoch of the gateway's own manager; None without one."""
    job_numbers: Iterator[int] = field(factory=lambda: count(1))
    """Gives the numbers of jobs. The doors of one manager share this iterator."""
    offered: Callable[[str], bool] = _nobody
    """Returns whether any worker of the manager does jobs of a role."""


class DoorMachine(Protocol):
    """A door as the gateway uses it. A door may be a front door, a back door, or both in one.

    After ``Drained`` a door takes no further clients and workers. A front door ends with its last
    request, a back door with the last job of its workers. A door that is both gets ``Drained``
    twice: its workers serve the other doors of the gateway until the second one.
    """

    @property
    def dismisses(self) -> bool:
        """Whether the protocol has a message that ends a worker, so that ``Dismissed`` sends it."""

    def handle(self, event: Any, now: float) -> Sequence[Any]:
        """Take one event; return the actions."""

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""

    def statistics(self) -> object:
        """Return a snapshot."""

    def open_requests(self) -> int:
        """Return the number of requests of clients of this door in progress."""

    def attendances(self) -> Mapping[str, Mapping[bytes, Attendance]]:
        """Return the states of the foreign workers by routing id, by the name of their group."""
