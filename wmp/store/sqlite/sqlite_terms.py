"""The statements of SQLite for the kinds and the terms of jobs."""

from __future__ import annotations

from typing import Any

from wmp.store.sql.interned_terms import InternedTerms


class SqliteTerms(InternedTerms):
    """The numbers of kinds and terms. Unique indexes over all columns find them."""

    FIND_KIND = "SELECT kind FROM kinds WHERE role = ? AND needs = ? AND codec = ? AND checksum = ?"
    ADD_KIND = "INSERT INTO kinds(role, needs, codec, checksum) VALUES(?, ?, ?, ?)"
    READ_KIND = "SELECT role, needs, codec, checksum FROM kinds WHERE kind = ?"
    FIND_TERMS = "SELECT terms FROM terms WHERE spec = ? AND keep = ? AND keep_dead = ?"
    ADD_TERMS = "INSERT OR IGNORE INTO terms(spec, keep, keep_dead) VALUES(?, ?, ?)"
    READ_TERMS = "SELECT spec, keep, keep_dead FROM terms WHERE terms = ?"

    def encoded(self, text: str) -> str:
        """Return the text."""
        return text

    def decoded(self, value: Any) -> str:
        """Return the text."""
        return str(value)

    def key(self, columns: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return all columns."""
        return columns

    def row(self, columns: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return all columns."""
        return columns
