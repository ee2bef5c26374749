"""Names of settings that were replaced, so that an error for the old name gives the new one.

The table is read where a user writes names as text: keys of TOML files, flags of programs,
environment variables and settings of a dispatcher. A name of the table is refused only
where it is unknown: ``retries`` remains a flag of ``wmp worker``.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Final

_RENAMED: Final[Mapping[str, tuple[str, ...]]] = {
    "expire": ("max_silence",),
    "expiry": ("timeout",),
    "keep": ("result_ttl", "orphan_ttl"),
    "retries": ("max_worker_losses",),
    "tries": ("retries",),
    "callbacks.max_retries": ("callbacks.retries",),
    "jobs.keep": ("jobs.result_ttl",),
    "jobs.retries": ("jobs.max_worker_losses",),
    "workers.dead_worker_max_retries": ("workers.dead_worker_max_failed_checks",),
    "workers.max_retries": ("workers.max_failed_checks",),
}
"""Each old name with the new names, of which a table or a program knows one."""


def new_name(old: str, known: Collection[str]) -> str | None:
    """Return the known name that replaced a name; None if the name was not replaced.

    Args:
        old: The name that is not known, with ``-`` or ``_`` between its words.
        known: The names that the table or the program knows, written with ``-`` or ``_``.
    """
    by_key = {name.replace("-", "_"): name for name in known}
    for name in _RENAMED.get(old.replace("-", "_"), ()):
        if name in by_key:
            return by_key[name]
    return None


def remedy_for(unknown: str, known: Collection[str]) -> str:
    """Return what to write instead of an unknown name, as the end of an error's text."""
    renamed = new_name(unknown, known)
    if renamed is not None:
        return f"it was renamed; write {renamed}"
    near = difflib.get_close_matches(unknown, known, 1)
    return f"did you mean {near[0]}" if near else f"expected {', '.join(known)}"
