"""Input and output of a balancing policy. ``wmp.balance`` contains the built-in policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from attrs import frozen


@frozen
class Jobs:
    """Waiting jobs: ``count`` jobs of one kind."""

    role: str
    needs: Mapping[str, int]
    count: int


@frozen
class Offer:
    """A worker that could do these jobs: its state when the policy was called."""

    identity: bytes
    """Stable name of the worker on the wire."""
    label: str
    """Name of the worker for people: host and process."""
    roles: tuple[str, ...]
    """Roles that the worker offers."""
    resources: Mapping[str, int]
    """All resources of the worker."""
    headers: Mapping[str, Any]
    """Headers of the worker's application (``headers=`` of a worker): the fields of its newest
    READY that have text keys."""
    capacity: int
    """Number of jobs that the worker would accept now."""
    spare: int
    """Number of these jobs that would start at once."""
    leased: int
    """Number of jobs of this manager that the worker holds."""
    done: int
    """Number of jobs of this manager that the worker has done."""
    served: int
    """When the worker was last woken or granted jobs, as a growing count; 0 for never."""


_P = TypeVar("_P", bound="Policy")


def in_order(policy: _P) -> _P:
    """Mark a policy that asks the workers in the order in which it sees them, oldest offer first.

    The policy then sees only as many offers as the jobs need, so the cost of a job does not grow
    with the number of idle workers. This is a decorator.
    """
    policy.in_order = True  # type: ignore[attr-defined]
    return policy


def asks_a_lone_worker(policy: _P) -> _P:
    """Mark a policy that asks the worker if it sees only one.

    The manager does not call the policy for one worker then. This is a decorator.
    """
    policy.asks_a_lone_worker = True  # type: ignore[attr-defined]
    return policy


Policy: TypeAlias = Callable[[Jobs, Sequence[Offer]], Sequence[Offer]]
"""Returns the workers to ask, in order; see :mod:`wmp.balance` for the built-in policies."""
