"""The common part of the statistics of the three nodes: their form for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import attrs
from attrs import frozen


@frozen
class Statistics:
    """A snapshot of a node's state and counters."""

    def as_dict(self) -> dict[str, Any]:
        """Return the snapshot as a dict that ``json.dumps`` takes.

        Returns:
            One entry for each field. Identities are hexadecimal text, outcomes and ends are their
            names in lower case, rows are dicts, sequences are lists.
        """
        plain = _plain(self)
        assert isinstance(plain, dict)
        return plain


def _plain(value: object) -> object:
    kind = type(value)
    if attrs.has(kind):
        return {name: _plain(getattr(value, name)) for name in attrs.fields_dict(kind)}
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {_plain(name): _plain(held) for name, held in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(held) for held in value]
    return value
