"""Handlers: the user's functions, their arguments, and their results.

A handler is any callable ``f(payload)`` or ``f(payload, job)``, ``def`` or ``async def``. The
number of its required positional parameters is read once, when the handler is registered. No
callable is inspected while jobs run.
"""

from __future__ import annotations

import functools
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

from wmp.error_reports import names_of, pack_error
from wmp.errors import ConfigError, Reject, RetryLater
from wmp.lane_exchange import Finished
from wmp.record import FrozenRecord
from wmp.vocabulary import DEFAULT_ROLE, Limits, Outcome

if TYPE_CHECKING:
    from wmp.retry import Retry
    from wmp.runtime.codecs.value_converters import Converter

Handler = Callable[..., Any]
"""``f(payload)`` or ``f(payload, job)``, plain or ``async``."""

BEGAN: Final = "the job had begun"
"""Text of a job that was cancelled after it had begun (WMP-6.35)."""

REPORT_INTERVAL: Final = 0.05
"""Seconds between two reports of one job: often enough for a progress bar, with few messages."""


class Served(FrozenRecord):
    """A handler with its role and its kind."""

    role: str
    call: Handler
    takes_job: bool
    is_async: bool
    retry: Retry | None = None
    """Settings that name the handler's errors after which a job is tried again."""
    convert: Converter | None = None
    """Makes the first argument of a decoded payload; None to pass the payload as it is."""

    def __reduce__(self) -> tuple[Any, ...]:
        # A converter cannot be pickled: a worker process inspects such a handler again.
        if self.convert is not None:
            return serve, (self.role, self.call, self.retry)
        return Served, (self.role, self.call, self.takes_job, self.is_async, self.retry)


class Prepared(ABC):
    """A handler that prepares its process before a job, outside of the context of the job."""

    @abstractmethod
    def prepare(self) -> None:
        """Prepare this process, once. An error that this method raises is the error of the job."""


class JobHost(Protocol):
    """The lane of a :class:`RunningJob`."""

    cancelled: set[int]

    def report(self, job: RunningJob, fraction: float | None, text: str | None) -> None: ...


class RunningJob:
    """The running job of a handler; the second argument of handlers with two parameters.

    Attributes:
        id: The job's number at its manager.
        attempt: Number of this run, from 1. Above 1, an earlier run began or may have begun. A
            lease that ended before the job began does not count.
        lease: Number of the lease, which is greater than that of every earlier lease of the job: a
            fencing number for other systems.
        manager: Identity of the job's manager.
        role: The role of the job.
    """

    # A plain class with slots, because one object is made for each job and attrs would add nothing.
    __slots__ = (
        "_deadline",
        "_host",
        "attempt",
        "fraction",
        "id",
        "lease",
        "manager",
        "pending",
        "reported_at",
        "role",
        "text",
    )

    def __init__(
        self,
        host: JobHost,
        id: int,
        lease: int,
        manager: bytes,
        role: str,
        deadline: float | None,
        begun: int | None = None,
    ) -> None:
        self._host = host
        self._deadline = deadline
        self.id = id
        self.lease = lease
        # Managers that count only leases send no number of runs (WMP-6.34).
        self.attempt = lease if begun is None else begun + 1
        self.manager = manager
        self.role = role
        # The last progress, and whether it must still be sent. The lane changes both under its
        # lock.
        self.fraction: float | None = None
        self.text: str | None = None
        self.pending = False
        self.reported_at = -REPORT_INTERVAL

    @property
    def deadline(self) -> float | None:
        """Seconds until the deadline, negative after the deadline.

        None when the job has no deadline.
        """
        return None if self._deadline is None else self._deadline - monotonic()

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer wanted: the job was cancelled, or its time has passed.

        A handler that reads True may raise :class:`wmp.JobCancelled`, or just return.
        """
        cancelled = self._host.cancelled
        if self.id in cancelled:
            return True
        if self._deadline is None or self._deadline > monotonic():
            return False
        # The lane now accepts JobCancelled as the end of a cancelled job.
        cancelled.add(self.id)
        return True

    def report(self, fraction: float | None = None, text: str | None = None) -> None:
        """Report progress to the submitter. The method returns at once and may be called from any
        thread.

        Call it as often as is convenient. At most one report per 50 ms is sent, so several in a row
        reach the submitter as one, and the last report is always sent. None keeps the value of the
        report before. After the job's end the call does nothing.

        Args:
            fraction: From 0 to 1.
            text: Text for people; it is cut to 1024 bytes.

        Raises:
            ValueError: The fraction is out of range, or both arguments are missing.
            TypeError: The fraction is not a number, or the text is not text.
        """
        if fraction is None and text is None:
            raise ValueError("report() has no argument; expected a fraction, a text or both")
        if fraction is not None:
            if not isinstance(fraction, (int, float)):
                raise TypeError(
                    f"fraction is of type {type(fraction).__name__}; expected a number from 0 to 1"
                )
            if not 0 <= fraction <= 1:  # NaN is refused too
                raise ValueError(f"fraction is {fraction}; expected a number from 0 to 1")
            fraction = float(fraction)
        if text is not None:
            if not isinstance(text, str):
                raise TypeError(f"text is of type {type(text).__name__}; expected str")
            encoded = text.encode("utf-8", "replace")
            text = encoded[: Limits.LONG_TEXT].decode("utf-8", "ignore")
        self._host.report(self, fraction, text)

    def __repr__(self) -> str:
        return f"<RunningJob {self.id} attempt {self.attempt} role {self.role!r}>"


# -- registration ---------------------------------------------------------------------------


def as_handlers(handlers: Mapping[str, Handler] | Handler | None) -> dict[str, Handler]:
    """Turn a worker's argument into a mapping of roles to handlers.

    A callable that is not a mapping serves the role ``default``.
    """
    if handlers is None:
        return {}
    if isinstance(handlers, Mapping):
        return dict(handlers)
    return {DEFAULT_ROLE: handlers}


def serve(role: str, handler: Handler, retry: Retry | None = None) -> Served:
    """Inspect a handler once.

    Args:
        role: The role that the handler serves.
        handler: Function, method, ``functools.partial``, class or callable object.
        retry: Settings that name the errors after which a job is tried again.

    Raises:
        ConfigError: The handler cannot be called as a handler, or the role is not a role.
    """
    given: object = role  # not all callers are type-checked
    if not isinstance(given, str) or not given:
        raise ConfigError(f"a role is {role!r}; expected non-empty text")
    if len(role.encode("utf-8", "replace")) > Limits.TEXT:
        raise ConfigError(
            f"the role {role[:40]!r}… is too long; expected at most {Limits.TEXT} bytes"
        )
    # A worker process gets handlers that were inspected already.
    from wmp.runtime.codecs.annotations import parameter_converter

    name = _name(handler)
    if not callable(handler):
        raise ConfigError(
            f"handler of role {role!r} is {name}, of type {type(handler).__name__}; "
            "expected a callable f(payload) or f(payload, job)"
        )
    return Served(
        role,
        handler,
        _takes_job(role, name, handler),
        _is_async(handler),
        retry,
        parameter_converter(handler),
    )


def _name(handler: object) -> str:
    while isinstance(handler, functools.partial):
        handler = handler.func
    name = getattr(handler, "__qualname__", None)
    return name if isinstance(name, str) else repr(handler)[:80]


def _is_async(handler: Handler) -> bool:
    import inspect

    if inspect.iscoroutinefunction(handler):
        return True
    if isinstance(handler, functools.partial):
        return _is_async(handler.func)
    # An object may define ``async def __call__``. A class itself is called to create an object.
    return not inspect.isclass(handler) and inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 — its type is asked, not its presence
    )


def _takes_job(role: str, name: str, handler: Handler) -> bool:
    import inspect

    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        # Some functions written in C do not show their parameters. They get only the payload.
        return False
    required = accepted = 0
    unfit = False
    for parameter in signature.parameters.values():
        optional = parameter.default is not inspect.Parameter.empty
        if parameter.kind is parameter.VAR_POSITIONAL:
            accepted += 2
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            accepted += 1
            required += not optional
        elif parameter.kind is parameter.KEYWORD_ONLY and not optional:
            unfit = True
    if unfit or required > 2 or accepted < 1:
        raise ConfigError(
            f"handler {name} of role {role!r} takes {signature}; expected f(payload) or "
            "f(payload, job), and a default for every other parameter"
        )
    return required == 2


# -- payloads and results -------------------------------------------------------------------


def within_limit(event: Finished, limit: int) -> Finished:
    """Return the ended jobs, with an error in place of each result above ``limit`` bytes.

    A frame that is too long would end the connection, and would end it again after every
    reconnection.
    """
    if max(map(len, event.payloads), default=0) <= limit:
        return event
    outcomes, payloads = list(event.outcomes), list(event.payloads)
    for row, payload in enumerate(payloads):
        if len(payload) > limit:
            outcomes[row] = Outcome.ERROR
            payloads[row] = pack_error(
                "ResultTooLarge",
                f"the handler's result has {len(payload)} bytes; the limit is {limit} "
                "(Transport.max_frame, and 256 MiB in any case); return less, split the job, or "
                "store the result elsewhere and return its address",
            )
    return event.with_(outcomes=outcomes, payloads=payloads)


# -- errors ---------------------------------------------------------------------------------


def describe_error(error: BaseException) -> bytes:
    """Encode a handler's error: type, text and traceback without the runner's own frame."""
    # The code below calls methods of the exception's class, which may raise errors too.
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001
        text = "(no text: str() of the error raised an error)"
    own = error.__traceback__
    try:
        lines = traceback.format_exception(
            type(error), error, own.tb_next if own is not None and own.tb_next else own
        )
        trace = "".join(lines)
    except BaseException:  # noqa: BLE001
        trace = ""
    return pack_error(type(error).__name__, text, trace)


def describe_failure(
    error: BaseException, retry: Retry | None, failed: int | None, seed: int
) -> tuple[str, int | None]:
    """Return the text and the wait of DONE for a handler's error (WMP-6.25).

    Args:
        error: The error.
        retry: The handler's settings.
        failed: Number of earlier failed attempts; None for a job with settings of its own.
        seed: Number of the job, for the jitter.
    """
    try:
        text = f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001 - code of the exception's own class
        text = type(error).__name__
    text = " ".join(text.split())
    if isinstance(error, Reject):
        return f"{text}\n", None
    wait: float | None = None
    if isinstance(error, RetryLater):
        if retry is None:
            from wmp.retry import Retry

            retry = Retry()  # limits the tries where neither the job nor its handler does
        if failed is None or failed < retry.times:
            wait = error.seconds
    elif retry is not None and failed is not None and failed < retry.times and retry.suits(error):
        wait = retry.wait(failed + 1, seed)
    names = " ".join(names_of(error))
    return f"{text}\n{names}", None if wait is None else ceil(wait * 1000)
