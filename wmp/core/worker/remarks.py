"""Remarks of a worker on jobs that failed: the text of the error, and the wait before another try.

Few answers have a remark, so remarks are kept apart from the columns of answers until DONE is made.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from wmp.message import Columns, Limits


def cut_text(text: str | None) -> str | None:
    """Cut a text to the limit; a name at its end is left out whole."""
    if text is None:
        return None
    text = text.encode(errors="backslashreplace").decode()
    if len(text.encode()) <= Limits.LONG_TEXT:
        return text
    summary, newline, names = text.partition("\n")
    summary = summary.encode()[: Limits.LONG_TEXT // 2].decode(errors="ignore")
    left = Limits.LONG_TEXT - len(summary.encode()) - 1
    while len(names.encode()) > left:
        names = names.rpartition(" ")[0]
    return f"{summary}{newline}{names}"


def with_remarks(columns: Columns, remarks: Mapping[int, tuple[str | None, int | None]]) -> Columns:
    """Add the texts and waits of the jobs that have a text or a wait."""
    none = (None, None)
    texts, waits = zip(*(remarks.get(id, none) for id in columns.ids), strict=True)
    return evolve(
        columns,
        texts=texts if texts.count(None) < len(texts) else None,
        waits_ms=waits if waits.count(None) < len(waits) else None,
    )
