"""The options about the file of a store, wherever ``--store`` is accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from wmp.store.store_settings import RESERVE

_F = TypeVar("_F", bound=Callable[..., Any])

_RESERVE: Final = click.option(
    "--reserve",
    metavar="BYTES",
    type=click.IntRange(0),
    help="Space on the disk that a store in a file keeps for the ends of jobs when the disk is "
    f"full; 0: none.  [default: {RESERVE}]",
)
_GROUP: Final = click.option(
    "--group",
    metavar="NAME",
    help="Group that may use a new store in a file, too; default: only the user may.",
)


def store_flags(function: _F) -> _F:
    """Add ``--reserve`` and ``--group`` to a command that has ``--store``."""
    return _RESERVE(_GROUP(function))
