"""What a balancing policy is given and gives back. The built-in ones are in ``wmp.balance``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from attrs import frozen

__all__ = ["Jobs", "Offer", "Policy"]


@frozen
class Jobs:
    """What waits: ``count`` jobs of one kind."""

    role: str
    needs: Mapping[str, int]
    count: int


class Offer(Protocol):
    """A worker that could do them. Read only."""

    @property
    def identity(self) -> bytes:
        """Stable name of the worker on the wire."""

    @property
    def label(self) -> str:
        """What people call it: host and process."""

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles it offers."""

    @property
    def resources(self) -> Mapping[str, int]:
        """All that it has."""

    @property
    def room(self) -> int:
        """Jobs it would take now."""

    @property
    def spare(self) -> int:
        """The part of ``room`` that would start at once."""

    @property
    def leased(self) -> int:
        """Jobs of this manager that it holds."""

    @property
    def done(self) -> int:
        """Jobs of this manager that it has done."""

    @property
    def served(self) -> int:
        """When it was last woken or given jobs, as a growing count; 0 for never."""


Policy: TypeAlias = Callable[[Jobs, Sequence[Offer]], Sequence[Offer]]
"""Which workers to ask, in which order; see :mod:`wmp.balance` for those that exist."""
