"""The settings of pieces and their jobs; they travel to the tasks of Spark by pickle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import attrs
from attrs import field, frozen

from wmp.duration import in_seconds
from wmp.errors import ConfigError
from wmp.runtime.common.checks import check_count, check_seconds
from wmp.runtime.sockets.security import Security
from wmp.runtime.submission.submit_options import OPTION_DEFAULTS


def _endpoints(value: str | Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _count(terms: object, attribute: attrs.Attribute[int], value: object) -> None:
    check_count(attribute.name, value, 1)


def _seconds(terms: object, attribute: attrs.Attribute[Any], value: object) -> None:
    check_seconds(attribute.name, value, zero=False)


@frozen(kw_only=True)
class RowTerms:
    """The cutting of a table, the destination of its jobs, and the treatment of their errors.

    The names, defaults and checks of the options of jobs are those of :class:`wmp.SubmitOptions`.

    Raises:
        ConfigError: A value is wrong.
    """

    through: tuple[str, ...] = field(converter=_endpoints)
    """Endpoints that devices bind for managers."""
    role: str = OPTION_DEFAULTS["role"]
    rows_per_job: int = field(default=100, validator=_count)
    max_bytes: int = field(default=1 << 20, validator=_count)
    in_flight: int = field(default=32, validator=_count)
    """Maximum number of pieces of a partition whose results are not taken, as at ``map``."""
    ordered: bool = False
    errors: Literal["raise", "column"] = field(default="raise")
    error_column: str = "error"
    run_limit: float | None = field(
        default=OPTION_DEFAULTS["run_limit"],
        converter=in_seconds,
        validator=attrs.validators.optional(_seconds),
    )
    """Seconds that one attempt of a piece may run."""
    max_worker_losses: int = field(default=3)
    """Lost workers that a piece survives."""
    needs: Mapping[str, int] | None = OPTION_DEFAULTS["needs"]
    priority: int = OPTION_DEFAULTS["priority"]
    unserved: float = field(default=30.0, converter=in_seconds, validator=_seconds)
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
        check_count("max_worker_losses", value)
