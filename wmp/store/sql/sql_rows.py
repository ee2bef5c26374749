"""Stored jobs as values: rows of a database, read by a filter or by the numbers of jobs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Final

from wmp.store.contract import JobFilter, QueuedKind, StoredJob
from wmp.store.sql.interned_terms import InternedTerms
from wmp.store.stored_job import StoredJobState
from wmp.store.write_batch import StoredFailure

MAX_COUNTED: Final = 10_000
"""Maximum number of queued jobs of a kind that are counted."""


class SqlRows(ABC):
    """Reads rows as values, in a transaction of the caller.

    Args:
        terms: The numbers of kinds and terms.

    Attributes:
        looks: Where this process looked last for a job without a result, by number of the job that
            waits for its result (:class:`~wmp.store.sql.dependents.Dependents`).
    """

    def __init__(self, terms: InternedTerms) -> None:
        self.terms = terms
        self.looks: dict[int, int] = {}

    # -- statements of each database ------------------------------------------------------------

    @abstractmethod
    def select_jobs(
        self, connection: Any, where: JobFilter, *, after: int, limit: int, payloads: bool
    ) -> Sequence[tuple[Any, ...]]:
        """Return the fields of jobs, in the order of :class:`StoredJob`, without histories."""

    @abstractmethod
    def select_by_ids(
        self, connection: Any, select: str, ids: Sequence[int], order: str = ""
    ) -> Iterable[tuple[Any, ...]]:
        """Return the rows of ``select`` that have these numbers, in the order of ``order``.

        All rows of a job come together, if ``order`` begins with its number.
        """

    @abstractmethod
    def kinds(self, connection: Any, now: int, *, counted: bool) -> list[QueuedKind]:
        """Return the kinds of which jobs are queued; ``counted``: with the numbers of the jobs."""

    # -- values ---------------------------------------------------------------------------------

    def jobs(
        self,
        connection: Any,
        where: JobFilter,
        *,
        after: int = 0,
        limit: int = 1000,
        payloads: bool = False,
    ) -> list[StoredJob]:
        """Return jobs in the order of their numbers; see :class:`~wmp.store.contract.Store`."""
        rows = self.select_jobs(connection, where, after=after, limit=limit, payloads=payloads)
        histories = self.failures(connection, [row[0] for row in rows]) if payloads else {}
        terms = self.terms
        jobs = []
        for row in rows:
            id, state, kind, number, *rest, key, worker, begun, ran, fraction, note = row[:-2]
            job: list[Any] = [
                id,
                StoredJobState(state),
                terms.kind(connection, kind),
                terms.terms(connection, number),
                *rest,
                None if key is None else terms.decoded(key),
                *row[-2:],
                None if worker is None else terms.decoded(worker),
                begun,
                ran,
                fraction,
                None if note is None else terms.decoded(note),
                histories.get(id, ()),
            ]
            jobs.append(StoredJob(*job))
        return jobs

    def failures(self, connection: Any, ids: Sequence[int]) -> dict[int, tuple[StoredFailure, ...]]:
        """Return the stored failures of the jobs that have some, oldest first."""
        decoded = self.terms.decoded
        failures: dict[int, tuple[StoredFailure, ...]] = {}
        for id, attempt, worker, error, at in self.select_by_ids(
            connection,
            "SELECT id, attempt, worker, error, at FROM failures",
            ids,
            " ORDER BY id, attempt",
        ):
            failure = StoredFailure(attempt, decoded(worker), decoded(error), at)
            failures[id] = (*failures.get(id, ()), failure)
        return failures

    def states(self, connection: Any, ids: Sequence[int]) -> dict[int, tuple[StoredJobState, int]]:
        """Return state and attempt of each job; absent ones too."""
        states = {
            id: (StoredJobState(state), attempt)
            for id, state, attempt in self.select_by_ids(
                connection, "SELECT id, state, attempt FROM jobs", ids
            )
        }
        return {id: states.get(id, (StoredJobState.ABSENT, 0)) for id in ids}
