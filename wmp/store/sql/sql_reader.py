"""A store in an SQL database as its readers see it."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from wmp.errors import StoreUnusable
from wmp.store.contract import JobFilter, StoredJob
from wmp.store.sql.interned_terms import InternedTerms
from wmp.store.sql.sql_rows import SqlRows
from wmp.store.stored_job import StoredJobState

_Answer = TypeVar("_Answer")


class SqlLink(Protocol):
    """The connection of one process to a store, which is opened anew after every error.

    Every call may raise :class:`~wmp.errors.StoreError`.
    """

    expected: tuple[bytes, int] | None
    """Identity and generation of the store that was opened first."""

    @property
    def name(self) -> str:
        """Where the store is, for people."""

    @property
    def terms(self) -> InternedTerms:
        """The numbers of kinds and terms."""

    def reading(self) -> AbstractContextManager[Any]:
        """Give a connection that reads a consistent state."""

    def write(self, work: Callable[[Any], _Answer], *, alone: bool = False) -> _Answer:
        """Run a function in one transaction; an exception rolls it back.

        Args:
            work: Gets the connection. It may run again when other transactions were in its way.
            alone: Whether no other transaction of the store may run meanwhile.
        """

    def check_columns(self) -> None:
        """Check that the store has all columns of jobs, after the version was read.

        Raises:
            StoreUnusable: A reader opened a store of an older version.
        """

    def close(self) -> None:
        """Close the connection. Idempotent."""


LinkT = TypeVar("LinkT", bound=SqlLink)


def too_old(name: str, seen: int, known: int) -> StoreUnusable:
    """Return the error of a reader for a store of an older version.

    Args:
        name: The store, for people.
        seen: The version of its schema, 1000 x major + minor.
        known: The version of this program.
    """
    return StoreUnusable(
        f"the store {name} has schema {seen // 1000}.{seen % 1000}, and this wmp reads the jobs of "
        f"{known // 1000}.{known % 1000}; readers change nothing: start a manager of this version "
        "with the store, which migrates the store"
    )


class SqlReader(ABC, Generic[LinkT]):
    """Reads a store, and changes nothing.

    Args:
        link: The connection.

    Attributes:
        name: The path of the store, or its URL without a password, for people.
        identity: Identity of the store.
        generation: Generation of the store.
    """

    ROWS: ClassVar[type[SqlRows]]

    identity: bytes
    generation: int

    def __init__(self, link: LinkT) -> None:
        self.name = link.name
        self._link = link
        self._rows = self.ROWS(link.terms)

    def _identify(self) -> None:
        """Read which store this is; from now on, another one in its place is refused."""
        with self._link.reading() as connection:
            identity, generation = connection.execute(
                "SELECT identity, generation FROM meta"
            ).fetchone()
            self.identity, self.generation = bytes(identity), int(generation)
        self._link.expected = (self.identity, self.generation)

    def list(
        self,
        where: JobFilter = JobFilter(),  # noqa: B008 - a frozen value
        *,
        after: int = 0,
        limit: int = 1000,
        payloads: bool = False,
    ) -> list[StoredJob]:
        """Return jobs; see :class:`~wmp.store.contract.Store`."""
        with self._link.reading() as connection:
            self._link.check_columns()
            return self._rows.jobs(connection, where, after=after, limit=limit, payloads=payloads)

    def counts(self) -> dict[StoredJobState, int]:
        """Return the number of jobs in each state. This reads all jobs."""
        with self._link.reading() as connection:
            rows = connection.execute(
                "SELECT state, count(*) FROM jobs GROUP BY state ORDER BY state"
            ).fetchall()
            return {StoredJobState(state): count for state, count in rows}

    def close(self) -> None:
        """Release all resources. Idempotent."""
        self._link.close()
