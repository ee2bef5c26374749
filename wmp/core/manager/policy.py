"""Input and output of a balancing policy. ``wmp.balance`` has the built-in policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from attrs import frozen

__all__ = ["Jobs", "Offer", "Policy", "in_order"]


@frozen
class Jobs:
    """Waiting jobs: ``count`` jobs of one kind."""

    role: str
    needs: Mapping[str, int]
    count: int


@frozen
class Offer:
    """A worker that could do them, as it was when the policy was asked."""

    identity: bytes
    """Stable name of the worker on the wire."""
    label: str
    """Name of the worker for people: host and process."""
    roles: tuple[str, ...]
    """Roles it offers."""
    resources: Mapping[str, int]
    """All that it has."""
    headers: Mapping[str, Any]
    """Headers of the worker's application (``headers=`` of a worker): the fields of its newest
    READY that have text keys."""
    room: int
    """Jobs it would take now."""
    spare: int
    """The part of ``room`` that would start at once."""
    leased: int
    """Jobs of this manager that it holds."""
    done: int
    """Jobs of this manager that it has done."""
    served: int
    """When it was last woken or given jobs, as a growing count; 0 for never."""


_P = TypeVar("_P", bound="Policy")


def in_order(policy: _P) -> _P:
    """Mark a policy that asks workers in the order in which it sees them, oldest offer first.

    It is shown no more offers than the jobs need, so that what a job costs does not grow with
    the workers that are idle. A decorator.
    """
    policy.in_order = True  # type: ignore[attr-defined]
    return policy


Policy: TypeAlias = Callable[[Jobs, Sequence[Offer]], Sequence[Offer]]
"""Which workers to ask, in which order; see :mod:`wmp.balance` for those that exist."""
