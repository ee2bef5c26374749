"""The locks that a worker offers and the jobs given to it, as the kit's managers count them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from attrs import define, field

from wmp.message import Peer


@define
class OfferedLock:
    """A GIVE and the jobs that it still wants."""

    number: int
    want: int
    window: int
    roles: Sequence[str]
    needs: Mapping[str, int]
    hold: float
    """Units for which the manager may keep the GIVE."""
    at: float
    open: bool = True

    @property
    def locked(self) -> int:
        """The number of jobs that would run at once."""
        return max(0, self.want - self.window)


@define
class GivenJob:
    """A job that the worker has received and has not answered."""

    id: int
    attempt: int
    payload: bytes
    windowed: bool
    """Whether the job may wait at the worker without resources."""
    needs: Mapping[str, int]
    fields: Mapping[str, Any] = field(factory=dict)
    """The further fields and columns of the job's TAKE."""
    waits: bool = True
    """Whether the job may wait behind other jobs, so that the worker may hand it back."""
    cancelled: bool = False
    """Whether the manager has sent CANCEL for this attempt."""
    until: float = -inf
    """The earliest time at which the handler may have ended. It may have begun late."""


@define
class DoubtfulLock:
    """A GIVE that exceeds the resources if the jobs that were unanswered at its arrival had begun.

    A job that is refused, expired or handed back never holds resources (WMP-4.1), and its DONE may
    arrive after the GIVE (WMP-3.11). So the outcomes of the jobs decide.
    """

    number: int
    line: int
    """The line of the GIVE in the conversation."""
    resource: str
    total: int
    locked: int
    jobs: dict[tuple[Peer, int, int], int]
    """The amount that each job would hold, by (owner, id, attempt)."""
    begun: set[tuple[Peer, int, int]] = field(factory=set)

    @property
    def excess(self) -> bool:
        """Whether locks and jobs together exceed the resource."""
        return self.locked + sum(self.jobs.values()) > self.total

    @property
    def text(self) -> str:
        """The text of the breach."""
        ids = ", ".join(str(id) for _, id, _ in self.jobs)
        return (
            f"after GIVE of lock {self.number} the worker locks {self.locked} {self.resource}, "
            f"and its running jobs {ids} use {sum(self.jobs.values())}; expected at most "
            f"{self.total} in all, its total"
        )
