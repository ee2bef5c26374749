"""The settings of pieces and their jobs; they travel to the tasks of Spark by pickle."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import attrs
from attrs import field, frozen

from wmp.errors import ConfigError
from wmp.message import DEFAULT_ROLE
from wmp.runtime.sockets.security import Security


def _endpoints(value: str | Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _count(terms: object, attribute: attrs.Attribute[int], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{attribute.name} is {value!r}; expected a whole number from 1")


def _seconds(terms: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{attribute.name} is {value!r}; expected a number of seconds")
    if not (0 < value < math.inf):
        raise ConfigError(f"{attribute.name} is {value!r}; expected more than 0 seconds")


@frozen(kw_only=True)
class RowTerms:
    """The cutting of a table, the destination of its jobs, and the treatment of their errors.

    Raises:
        ConfigError: A value is wrong.
    """

    through: tuple[str, ...] = field(converter=_endpoints)
    """Endpoints that devices bind for managers."""
    role: str = DEFAULT_ROLE
    rows_per_job: int = field(default=100, validator=_count)
    max_bytes: int = field(default=1 << 20, validator=_count)
    under_way: int = field(default=32, validator=_count)
    ordered: bool = False
    errors: Literal["raise", "column"] = field(default="raise")
    error_column: str = "error"
    run_limit: float | None = field(default=None, validator=attrs.validators.optional(_seconds))
    """Seconds that one attempt of a piece may run."""
    max_worker_losses: int = field(default=3)
    """Lost workers that a piece survives."""
    needs: Mapping[str, int] | None = None
    priority: int = 0
    wait: float = field(default=30.0, validator=_seconds)
    """Seconds for which a waiting piece may have no worker that could do it."""
    security: Security | None = field(default=None, repr=False)
    store: str | Callable[[], Any] | None = None
    """File of a store on SQLite, or a function that opens a store."""

    @through.validator
    def _check_through(self, attribute: object, value: tuple[str, ...]) -> None:
        if not value:
            raise ConfigError('through is missing; expected an endpoint such as "tcp://HOST:5572"')

    @errors.validator
    def _check_errors(self, attribute: object, value: object) -> None:
        if value not in ("raise", "column"):
            raise ConfigError(f"errors is {value!r}; expected 'raise' or 'column'")

    @max_worker_losses.validator
    def _check_max_worker_losses(self, attribute: object, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ConfigError(f"max_worker_losses is {value!r}; expected a whole number from 0")
