"""Kinds and terms of jobs: each is stored once, and has a number in the rows of jobs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from wmp.message import Kind
from wmp.store.job_terms import (
    StoredTerms,
    needs_from_text,
    needs_to_text,
    terms_from_text,
    terms_to_text,
)


class InternedTerms(ABC):
    """The numbers of kinds and terms, remembered by a process.

    A subclass has the statements. :meth:`key` and :meth:`row` make their values.
    """

    FIND_KIND: ClassVar[str]
    """Select the number of a kind by its key."""
    ADD_KIND: ClassVar[str]
    """Insert the row of a kind."""
    READ_KIND: ClassVar[str]
    """Select the columns of a kind by its number."""
    FIND_TERMS: ClassVar[str]
    """Select the number of terms by their key."""
    ADD_TERMS: ClassVar[str]
    """Insert the row of terms, unless the store has them."""
    READ_TERMS: ClassVar[str]
    """Select the columns of terms by their number."""

    def __init__(self) -> None:
        self._kinds: dict[Kind, int] = {}
        self._kind_of: dict[int, Kind] = {}
        self._terms: dict[StoredTerms, int] = {}
        self._terms_of: dict[int, StoredTerms] = {}

    @abstractmethod
    def encoded(self, text: str) -> Any:
        """Return a text of a user as the database has it."""

    @abstractmethod
    def decoded(self, value: Any) -> str:
        """Return the text of a value of the database."""

    @abstractmethod
    def key(self, columns: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the values by which a row with these columns is found."""

    @abstractmethod
    def row(self, columns: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the values of the row with these columns."""

    def clear(self) -> None:
        """Forget everything: a transaction that made numbers was rolled back."""
        for table in (self._kinds, self._kind_of, self._terms, self._terms_of):
            table.clear()

    def find_kind(self, connection: Any, kind: Kind) -> int | None:
        """Return the number of a kind; None if the store has no such kind."""
        number = self._kinds.get(kind)
        if number is None:
            key = self.key(self._columns(kind))
            row = connection.execute(self.FIND_KIND, key).fetchone()
            if row is None:
                return None
            number = self._kinds[kind] = row[0]
        return number

    def number_of_kind(self, connection: Any, kind: Kind) -> int:
        """Return the number of a kind, which is stored if it is new."""
        number = self.find_kind(connection, kind)
        if number is None:
            connection.execute(self.ADD_KIND, self.row(self._columns(kind)))
            number = self.find_kind(connection, kind)
            assert number is not None
        return number

    def kind(self, connection: Any, number: int) -> Kind:
        """Return the kind of a number."""
        kind = self._kind_of.get(number)
        if kind is None:
            role, needs, codec, checksum = connection.execute(self.READ_KIND, (number,)).fetchone()
            kind = self._kind_of[number] = Kind(
                self.decoded(role), needs_from_text(needs), self.decoded(codec), bool(checksum)
            )
        return kind

    def number_of_terms(self, connection: Any, terms: StoredTerms) -> int:
        """Return the number of terms, which are stored if they are new."""
        number = self._terms.get(terms)
        if number is None:
            columns = (terms_to_text(terms), terms.keep_ms, terms.keep_dead_ms)
            connection.execute(self.ADD_TERMS, self.row(columns))
            (number,) = connection.execute(self.FIND_TERMS, self.key(columns)).fetchone()
            self._terms[terms] = number
        return number

    def terms(self, connection: Any, number: int) -> StoredTerms:
        """Return the terms of a number."""
        terms = self._terms_of.get(number)
        if terms is None:
            row = connection.execute(self.READ_TERMS, (number,)).fetchone()
            terms = self._terms_of[number] = terms_from_text(*row)
        return terms

    def _columns(self, kind: Kind) -> tuple[Any, ...]:
        role, codec = self.encoded(kind.role), self.encoded(kind.codec)
        return role, needs_to_text(kind), codec, bool(kind.checksum)
