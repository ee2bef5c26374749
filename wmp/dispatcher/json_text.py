"""JSON of other programs: requests are read strictly, and what is stored is always readable."""

from __future__ import annotations

import json
import math
from typing import Any, Final

DEPTH: Final = 100
"""How deep a document may be nested."""


def read_json(text: bytes | str) -> Any:
    """Return the value of a JSON text that can be written again as JSON.

    Raises:
        ValueError: The text is not JSON, is nested too deep, or has a number that JSON has not.
    """
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        value = None
        deep = True
    else:
        deep = _is_deep(value)
    if deep:
        raise ValueError(f"nested more than {DEPTH} deep")
    return value


def read_stored_json(payload: bytes) -> Any:
    """Return the value of a stored payload; what is not JSON is returned as text.

    WMP workers store what they like. The documents of their jobs stay readable.
    """
    try:
        return read_json(payload)
    except ValueError:
        return payload.decode("utf-8", "replace")


def write_json(value: Any) -> bytes:
    """Return JSON in ASCII: half of a surrogate pair, which UTF-8 cannot have, is escaped."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:30]} is out of the range of numbers")
    return value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True
