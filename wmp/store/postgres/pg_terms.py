"""Kinds and terms of jobs in PostgreSQL: each is stored once, and has a number in rows of jobs."""

from __future__ import annotations

import hashlib
from typing import Any

from wmp.message import Kind
from wmp.store.job_terms import (
    StoredTerms,
    needs_from_text,
    needs_to_text,
    terms_from_text,
    terms_to_text,
)


def as_bytes(text: str) -> bytes:
    """Return a text as the database has it."""
    return text.encode("utf-8", "surrogatepass")


def as_text(found: bytes) -> str:
    """Return the text of bytes of the database."""
    return bytes(found).decode("utf-8", "surrogatepass")


class PostgresTerms:
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

    def find_kind(self, connection: Any, kind: Kind) -> int | None:
        """Return the number of a kind; None if the store has no such kind."""
        number = self._kinds.get(kind)
        if number is None:
            found = connection.execute(
                "SELECT kind FROM kinds WHERE digest = %s", (_digest(*_columns(kind)),)
            ).fetchone()
            if found is None:
                return None
            number = self._kinds[kind] = found[0]
        return number

    def number_of_kind(self, connection: Any, kind: Kind) -> int:
        """Return the number of a kind, which is stored if it is new."""
        number = self.find_kind(connection, kind)
        if number is None:
            row = _columns(kind)
            connection.execute(
                "INSERT INTO kinds(digest, role, needs, codec, checksum)"
                " VALUES(%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
                (_digest(*row), *row),
            )
            number = self.find_kind(connection, kind)
            assert number is not None
        return number

    def kind(self, connection: Any, number: int) -> Kind:
        """Return the kind of a number."""
        kind = self._kind_of.get(number)
        if kind is None:
            role, needs, codec, checksum = connection.execute(
                "SELECT role, needs, codec, checksum FROM kinds WHERE kind = %s", (number,)
            ).fetchone()
            kind = Kind(as_text(role), needs_from_text(needs), as_text(codec), checksum)
            self._kind_of[number] = kind
        return kind

    def number_of_terms(self, connection: Any, terms: StoredTerms) -> int:
        """Return the number of terms, which are stored if they are new."""
        number = self._terms.get(terms)
        if number is None:
            row = (terms_to_text(terms), terms.keep, terms.keep_dead)
            digest = _digest(*row)
            connection.execute(
                "INSERT INTO terms(digest, spec, keep, keep_dead) VALUES(%s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING",
                (digest, *row),
            )
            (number,) = connection.execute(
                "SELECT terms FROM terms WHERE digest = %s", (digest,)
            ).fetchone()
            self._terms[terms] = number
        return number

    def terms(self, connection: Any, number: int) -> StoredTerms:
        """Return the terms of a number."""
        terms = self._terms_of.get(number)
        if terms is None:
            row = connection.execute(
                "SELECT spec, keep, keep_dead FROM terms WHERE terms = %s", (number,)
            ).fetchone()
            terms = self._terms_of[number] = terms_from_text(*row)
        return terms


def _columns(kind: Kind) -> tuple[bytes, str, bytes, bool]:
    return as_bytes(kind.role), needs_to_text(kind), as_bytes(kind.codec), bool(kind.checksum)


def _digest(*columns: object) -> bytes:
    return hashlib.sha256(repr(columns).encode()).digest()
