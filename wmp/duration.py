"""Times as arguments: a number of seconds, or a ``timedelta``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, overload

if TYPE_CHECKING:
    from datetime import timedelta

    Duration: TypeAlias = float | timedelta
    """A time that a caller passes: a number of seconds, or a ``timedelta``."""
else:
    # The machines import this module, and may not import datetime, which has a clock. A reference
    # with its module can be resolved wherever the alias is part of an annotation.
    from typing import ForwardRef, Union

    Duration = Union[float, ForwardRef("timedelta", module="datetime")]  # noqa: UP007

__all__ = ["Duration", "in_seconds"]


@overload
def in_seconds(value: Duration) -> float: ...
@overload
def in_seconds(value: None) -> None: ...
def in_seconds(value: Duration | None) -> Any:
    """Return the seconds of a ``timedelta``; return a number or None as it is.

    A wrong value is returned as it is too, for the check of the caller.
    """
    return value.total_seconds() if hasattr(value, "total_seconds") else value  # type: ignore[union-attr]
