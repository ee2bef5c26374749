"""The options of a submitted job: their names, types and defaults, for every call that submits.

:mod:`wmp.runtime.submission.submit_option_checks` checks the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypedDict, TypeVar

from wmp.duration import Duration
from wmp.message import DEFAULT_ROLE
from wmp.retry import Retry
from wmp.runtime.common.shown_options import shown_options
from wmp.runtime.submission.results import Status

_Function = TypeVar("_Function", bound=Callable[..., Any])


class CallOptions(TypedDict, total=False):
    """The options of an executor: :class:`SubmitOptions` that fit every call of a function."""

    needs: Mapping[str, int] | None
    priority: int
    timeout: Duration | None
    expires: Duration | None
    run_limit: Duration | None
    delay: Duration | None
    start_at: datetime | float | None
    max_worker_losses: int | None
    checksum: bool
    retry: Retry | None


class JobOptions(CallOptions, total=False):
    """The options of ``submit_many`` and ``map``: :class:`SubmitOptions` that fit several jobs."""

    role: str
    stored: bool | None
    result_ttl: Duration | None


class SubmitOptions(JobOptions, total=False):
    """The options of a submitted job, which ``submit`` takes as named arguments. Each time is a
    number of seconds or a ``timedelta``.

    Attributes:
        role: Role of the workers that may do the job.
        needs: Amounts of a worker's resources that the job takes; by default one slot.
        priority: Jobs of a higher priority are granted first.
        timeout: Seconds in which the job must end, waiting and running together. Otherwise
            it ends with ``JobTimeout``.
        expires: Seconds in which the job must begin. Otherwise it ends with ``JobTimeout``.
        run_limit: Seconds that one attempt may run. A longer attempt is interrupted, in a
            worker process by force, and the job ends with ``JobTimeout``.
        delay: Seconds before which no worker gets the job. ``timeout`` and ``expires`` count
            from the end of the delay.
        start_at: The end of the delay as a time: a ``datetime``, or seconds since 1970. A time
            in the past means now.
        max_worker_losses: Lost leases that the job survives; by default the manager's number.
        checksum: Whether payload and result travel with a CRC-32. A job whose payload or
            result changed on the way is done again.
        retry: Settings for trying the job again after errors of its handler. They override
            the handler's own settings. Classes are compared by their qualified names.
        stored: Whether the job is stored. By default ``submit`` stores the job if the manager has
            a store, and ``map`` stores no jobs.
        result_ttl: Seconds for which the store keeps the result; by default one hour.
        on_status: Called with each :class:`wmp.Status` that the handler reports.
        key: While a job of this role and key is in progress here, that job is returned, and no
            second job is submitted. The other options do not matter then. All callers share the
            job. Its own ``timeout`` ends it for all callers. A caller that cancels the job, or
            stops awaiting it (``asyncio.wait_for``), cancels it for all callers. Wrap the job
            in ``asyncio.shield`` to stop awaiting it alone. The key of a stored job counts in
            all processes that use the store.
        unique: ``"kept"``: a stored job that ended counts too, as long as the store keeps its
            result. The job then has this result.
    """

    on_status: Callable[[Status], object] | None
    key: str | None
    unique: Literal["open", "kept"]


CALL_OPTIONS: Final = CallOptions.__annotations__.keys()
"""The options of an executor, which chooses the role of each call and stores no calls."""

LONE_OPTIONS: Final = SubmitOptions.__annotations__.keys() - JobOptions.__annotations__.keys()
"""The options of a single job, which ``submit_many`` and ``map`` do not take."""

OPTION_DEFAULTS: Final[SubmitOptions] = {
    "role": DEFAULT_ROLE,
    "needs": None,
    "priority": 0,
    "timeout": None,
    "expires": None,
    "run_limit": None,
    "delay": None,
    "start_at": None,
    "max_worker_losses": None,
    "checksum": False,
    "retry": None,
    "stored": None,
    "result_ttl": None,
    "on_status": None,
    "key": None,
    "unique": "open",
}
"""All options, with their defaults."""

_RENAMED: Final = {"keep": "result_ttl", "retries": "max_worker_losses"}
"""Earlier names of options."""


def unknown_option(names: Iterable[str]) -> str:
    """Return the text of the error about the first of the names that is not an option; else ''."""
    from difflib import get_close_matches  # for errors alone

    known = sorted(OPTION_DEFAULTS)
    for name in sorted(set(names) - set(known)):
        if name in _RENAMED:
            return f"a job has no option {name!r}; the name of this option is {_RENAMED[name]!r}"
        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}" if near else f"expected some of {', '.join(known)}"
        return f"a job has no option {name!r}; {hint}"
    return ""


def shows_options(
    options: type[CallOptions] | type[JobOptions] | type[SubmitOptions], **defaults: Any
) -> Callable[[_Function], _Function]:
    """Let ``help`` and ``inspect.signature`` list the options of a function by name.

    Type checkers read the options from ``Unpack``, which the signature of Python does not expand.

    Args:
        options: The options that the function takes as ``**options``.
        defaults: Defaults that differ from ``OPTION_DEFAULTS``.
    """

    return shown_options(options, {**OPTION_DEFAULTS, **defaults})
