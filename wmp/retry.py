"""Retries of jobs whose handler failed: values, and pure functions of them.

A job's own settings name errors by the qualified names of their types; a handler's settings name
them by their classes. The waits grow, and jitter spreads them. Jitter is computed from the job's
number and the number of its failures, so equal histories have equal waits.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Final

from attrs import field, frozen

from wmp.duration import Duration, in_seconds
from wmp.error_reports import name_of, names_of
from wmp.errors import ConfigError

__all__ = ["Backoff", "Retry", "exponential", "names_of", "spread_of"]

_MAX_TIMES: Final = 1_000_000
_MAX_WAIT: Final = 1e9
_MASK: Final = (1 << 64) - 1


@frozen
class Backoff:
    """Waits that grow: ``first`` seconds after the first failure, at most ``maximum``."""

    first: float = field(converter=in_seconds)
    maximum: float = field(converter=in_seconds)
    factor: float = 2.0

    def __attrs_post_init__(self) -> None:
        for name, value, minimum in (
            ("first", self.first, 0.0),
            ("most", self.maximum, self.first),
            ("factor", self.factor, 1.0),
        ):
            wrong = isinstance(value, bool) or not isinstance(value, int | float)
            if wrong or not isfinite(value) or not minimum <= value <= _MAX_WAIT:
                raise ConfigError(
                    f"{name} of a backoff is {value!r}; expected a number from {minimum:g} to "
                    f"{_MAX_WAIT:g}"
                )

    def wait(self, failures: int) -> float:
        """Return the seconds to wait after this number of failures."""
        try:
            return min(self.maximum, self.first * self.factor ** (failures - 1))
        except OverflowError:
            return self.maximum


def exponential(first: Duration, maximum: Duration, factor: float = 2.0) -> Backoff:
    """Return waits of ``first`` seconds, growing by ``factor``, up to ``maximum``."""
    return Backoff(first, maximum, factor)


def _classes(
    on: type[BaseException] | str | Iterable[type[BaseException] | str],
) -> tuple[type[BaseException] | str, ...]:
    return (on,) if isinstance(on, str | type) else tuple(on)


def _backoff(value: Backoff | Duration) -> Backoff:
    if isinstance(value, Backoff):
        return value
    value = in_seconds(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"backoff is {value!r}; expected seconds or wmp.exponential(first, most)")
    return Backoff(value, value)


@frozen
class Retry:
    """Settings of a job or a handler: the errors after which a job is tried again, how often and
    when.

    Args:
        times: Maximum number of further attempts of a job.
        on: Classes of errors, or their qualified names such as ``"requests.exceptions.Timeout"``;
            subclasses count too. The errors of Python itself need no module: ``"TimeoutError"``.
        backoff: Seconds between two attempts, or :func:`exponential`.
        jitter: Whether each wait is made shorter by up to a half, differently for each job.

    Raises:
        ConfigError: A setting is wrong.
    """

    times: int = 3
    on: tuple[type[BaseException] | str, ...] = field(default=(Exception,), converter=_classes)
    backoff: Backoff = field(default=Backoff(1.0, 60.0), converter=_backoff)
    jitter: bool = True
    names: frozenset[str] = field(init=False, repr=False, eq=False)
    """Qualified names of ``on``."""

    def __attrs_post_init__(self) -> None:
        times: object = self.times
        if type(times) is not int or not 0 <= times <= _MAX_TIMES:
            raise ConfigError(f"times is {times!r}; expected a whole number from 0 to {_MAX_TIMES}")
        if not self.on:
            raise ConfigError(
                "on= is empty; name classes of errors, or leave on= out for all errors"
            )
        given: tuple[object, ...] = self.on
        for entry in given:
            if not isinstance(entry, str) and not (
                isinstance(entry, type) and issubclass(entry, BaseException)
            ):
                raise ConfigError(
                    f"on contains {entry!r}; expected classes of errors, or their qualified names"
                )
        names = frozenset(
            _checked(entry) if isinstance(entry, str) else name_of(entry) for entry in self.on
        )
        object.__setattr__(self, "names", names)

    def suits(self, error: BaseException) -> bool:
        """Return whether an error is one of ``on``, by its classes."""
        classes = tuple(kind for kind in self.on if isinstance(kind, type))
        return isinstance(error, classes) or not self.names.isdisjoint(names_of(error))

    def suits_names(self, names: Sequence[str] | None) -> bool:
        """Return whether an error is one of ``on``, by the names of its types.

        ``None`` stands for an error whose types are not known: it counts as an ``Exception``. An
        error without names must not be tried again.
        """
        return not self.names.isdisjoint(("builtins.Exception",) if names is None else names)

    def mismatch(self, names: Sequence[str]) -> str:
        """Return a text for people: an error with these types is none of ``on``."""
        own = [name for name in names if name not in _ROOTS]
        return (
            f"not tried again, because on= names {', '.join(sorted(self.names))} and the error is "
            f"a {' and a '.join(own or names)}"
        )

    def wait(self, failures: int, seed: int) -> float:
        """Return the seconds to wait after the failures of a job; ``seed`` varies the jitter."""
        seconds = self.backoff.wait(failures)
        return seconds * (1.0 - 0.5 * spread_of(seed, failures)) if self.jitter else seconds


_ROOTS: Final = frozenset(("builtins.Exception", "builtins.BaseException"))


def _checked(name: str) -> str:
    """Return the qualified name of a type of errors.

    Raises:
        ConfigError: The name has no module, and is not a built-in exception.
    """
    if "." in name:
        return name
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return name_of(kind)
    raise ConfigError(
        f"on contains {name!r}, which is not a built-in exception; expected a class, or a name "
        "with its module, such as 'requests.exceptions.Timeout'"
    )


def spread_of(seed: int, number: int) -> float:
    """Return a pseudorandom number from 0 to 1, computed from two numbers with splitmix64."""
    value = (seed * 0x9E3779B97F4A7C15 + number * 0xD1B54A32D192ED03) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((value ^ (value >> 31)) >> 11) / (1 << 53)
