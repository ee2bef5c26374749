"""Kinds and terms of jobs: each is stored once, and has a number in the rows of jobs."""

from __future__ import annotations

import sqlite3

from wmp.message import Kind
from wmp.store.job_terms import (
    StoredTerms,
    needs_from_text,
    needs_to_text,
    terms_from_text,
    terms_to_text,
)


class InternedTerms:
    """The numbers of kinds and terms, remembered by a process."""

    def __init__(self) -> None:
        self._kinds: dict[Kind, int] = {}
        self._kind_of: dict[int, Kind] = {}
        self._terms: dict[StoredTerms, int] = {}
        self._terms_of: dict[int, StoredTerms] = {}

    def clear(self) -> None:
        """Forget everything: a transaction that made numbers was rolled back."""
        for table in (self._kinds, self._kind_of, self._terms, self._terms_of):
            table.clear()

    def find_kind(self, connection: sqlite3.Connection, kind: Kind) -> int | None:
        """Return the number of a kind; None if the store has no such kind."""
        number = self._kinds.get(kind)
        if number is None:
            found = connection.execute(
                "SELECT kind FROM kinds WHERE role = ? AND needs = ? AND codec = ? AND"
                " checksum = ?",
                _columns(kind),
            ).fetchone()
            if found is None:
                return None
            number = self._kinds[kind] = found[0]
        return number

    def number_of_kind(self, connection: sqlite3.Connection, kind: Kind) -> int:
        """Return the number of a kind, which is stored if it is new."""
        number = self.find_kind(connection, kind)
        if number is None:
            connection.execute(
                "INSERT INTO kinds(role, needs, codec, checksum) VALUES(?, ?, ?, ?)",
                _columns(kind),
            )
            number = self.find_kind(connection, kind)
            assert number is not None
        return number

    def kind(self, connection: sqlite3.Connection, number: int) -> Kind:
        """Return the kind of a number."""
        kind = self._kind_of.get(number)
        if kind is None:
            role, needs, codec, checksum = connection.execute(
                "SELECT role, needs, codec, checksum FROM kinds WHERE kind = ?", (number,)
            ).fetchone()
            kind = self._kind_of[number] = Kind(role, needs_from_text(needs), codec, bool(checksum))
        return kind

    def number_of_terms(self, connection: sqlite3.Connection, terms: StoredTerms) -> int:
        """Return the number of terms, which are stored if they are new."""
        number = self._terms.get(terms)
        if number is None:
            row = (terms_to_text(terms), terms.keep, terms.keep_dead)
            connection.execute(
                "INSERT OR IGNORE INTO terms(spec, keep, keep_dead) VALUES(?, ?, ?)", row
            )
            (number,) = connection.execute(
                "SELECT terms FROM terms WHERE spec = ? AND keep = ? AND keep_dead = ?", row
            ).fetchone()
            self._terms[terms] = number
        return number

    def terms(self, connection: sqlite3.Connection, number: int) -> StoredTerms:
        """Return the terms of a number."""
        terms = self._terms_of.get(number)
        if terms is None:
            row = connection.execute(
                "SELECT spec, keep, keep_dead FROM terms WHERE terms = ?", (number,)
            ).fetchone()
            terms = self._terms_of[number] = terms_from_text(*row)
        return terms


def _columns(kind: Kind) -> tuple[str, str, str, int]:
    return kind.role, needs_to_text(kind), kind.codec, int(kind.checksum)
