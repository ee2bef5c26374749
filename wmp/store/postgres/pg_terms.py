"""The statements of PostgreSQL for the kinds and the terms of jobs."""

from __future__ import annotations

import hashlib
from typing import Any

from wmp.store.sql.interned_terms import InternedTerms


def as_bytes(text: str) -> bytes:
    """Return a text as the database has it."""
    return text.encode("utf-8", "surrogatepass")


def as_text(value: bytes) -> str:
    """Return the text of bytes of the database."""
    return bytes(value).decode("utf-8", "surrogatepass")


class PostgresTerms(InternedTerms):
    """The numbers of kinds and terms. A digest finds them, since entries of indexes are short."""

    FIND_KIND = "SELECT kind FROM kinds WHERE digest = %s"
    ADD_KIND = (
        "INSERT INTO kinds(digest, role, needs, codec, checksum)"
        " VALUES(%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
    )
    READ_KIND = "SELECT role, needs, codec, checksum FROM kinds WHERE kind = %s"
    FIND_TERMS = "SELECT terms FROM terms WHERE digest = %s"
    ADD_TERMS = (
        "INSERT INTO terms(digest, spec, keep, keep_dead) VALUES(%s, %s, %s, %s)"
        " ON CONFLICT DO NOTHING"
    )
    READ_TERMS = "SELECT spec, keep, keep_dead FROM terms WHERE terms = %s"

    def encoded(self, text: str) -> bytes:
        """Return the text as bytes."""
        return as_bytes(text)

    def decoded(self, value: Any) -> str:
        """Return the text of bytes."""
        return as_text(value)

    def key(self, columns: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the digest of the columns."""
        return (hashlib.sha256(repr(columns).encode()).digest(),)

    def row(self, columns: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the digest and the columns."""
        return (*self.key(columns), *columns)
