"""One transaction of a store that decides from what it reads, with records beside the jobs.

A write batch states its changes in advance, and its guards are those of stored jobs. A dispatcher
also has conditions about workers: it reads, decides and writes inside one transaction. The records
are small JSON objects; their sorts and fields belong to the program that writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from attrs import frozen

from wmp.store.contract import JobFilter, QueuedKind, Store, StoredJob, StoreInstance
from wmp.store.write_batch import (
    AddAnswer,
    ChangeAnswer,
    JobChanges,
    NewJobs,
    Reservation,
    ReservedJobs,
    SweptJob,
)

_T = TypeVar("_T")


@frozen
class StoreRecord:
    """One record beside the jobs."""

    id: int
    open: bool
    """Whether the record still matters; closed ones are history."""
    body: Mapping[str, Any]
    """The fields: values of JSON."""


class StoreTransaction(Protocol):
    """An open transaction. No other transaction changes what this one has read.

    On a store without one lock for all writers, ``record`` and ``records`` lock what they return.
    """

    now: int
    """The time of the transaction in milliseconds since 1970, by the clock of the store."""
    me: int
    """Number of the instance that writes."""

    def add(self, new: NewJobs) -> AddAnswer:
        """Add jobs."""

    def change(self, changes: JobChanges) -> ChangeAnswer:
        """Make changes; a change whose guards do not hold has no effect."""

    def reserve(self, wanted: Reservation) -> ReservedJobs:
        """Reserve due jobs of a kind."""

    def sweep(self, limit: int) -> Sequence[SweptJob]:
        """Make the changes that time alone causes (STORE-4.5)."""

    def jobs(
        self, where: JobFilter, *, after: int = 0, limit: int = 1000, payloads: bool = False
    ) -> list[StoredJob]:
        """Return jobs in the order of their numbers, as :meth:`Store.list` does."""

    def queued(self, *, counted: bool = False) -> Sequence[QueuedKind]:
        """Return the kinds of which jobs are queued."""

    def living(self) -> set[int]:
        """Return the numbers of the instances that have not ended."""

    def block(self) -> range:
        """Return a new block of numbers for jobs."""

    def record(self, sort: str, id: int) -> StoreRecord | None:
        """Return a record; None if there is none."""

    def records(
        self, sort: str, *, opened: bool = True, after: int = -1, limit: int = 10_000
    ) -> Sequence[StoreRecord]:
        """Return records in the order of their numbers.

        Args:
            sort: Which sort.
            opened: Whether only open records are returned.
            after: Only records with greater numbers.
            limit: Maximum number of records.
        """

    def put(self, sort: str, record: StoreRecord) -> None:
        """Write a record, in place of one with the same number."""

    def remove(self, sort: str, id: int) -> None:
        """Remove a record if it exists."""


class TransactingStore(Store, Protocol):
    """A store with transactions and records."""

    def transact(self, me: StoreInstance, work: Callable[[StoreTransaction], _T]) -> _T:
        """Run a function in one transaction, which renews the validity of the instance.

        The function may run again when the transaction has to be repeated, so that it changes
        nothing but the transaction.

        Raises:
            InstanceEnded: The instance has ended; begin a new one.
            StoreUnavailable: Nothing is known to be stored. The transaction may have been committed
                if COMMIT itself failed.
        """
