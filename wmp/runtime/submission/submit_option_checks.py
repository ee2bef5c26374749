"""Checks of the options of ``submit``, and the terms of jobs that are made from checked options.

:mod:`wmp.runtime.submission.submit_options` lists the options with their types and defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, cast

from attrs import evolve

from wmp.duration import Duration
from wmp.errors import ConfigError
from wmp.message import DEFAULT_NEEDS, DEFAULT_ROLE, Kind, Limits
from wmp.retry import Retry
from wmp.runtime.common.checks import (
    check_amounts,
    check_count,
    check_key,
    check_offer,
    check_role,
    check_seconds,
)
from wmp.runtime.driver.inbox import JobTerms
from wmp.runtime.node.node import Node
from wmp.runtime.submission.submit_options import (
    LONE_OPTIONS,
    OPTION_DEFAULTS,
    JobOptions,
    SubmitOptions,
    unknown_option,
)
from wmp.runtime.submission.time_limits import NO_LIMITS, TimeLimits
from wmp.store.job_terms import RESULT_AGE_MS, StoredTerms

_StoredAs: TypeAlias = tuple[Literal["open", "kept"], int]
"""Which jobs of the same key a stored job joins, and milliseconds for which its result is kept."""

_TIMES: Final = frozenset(("timeout", "expires", "run_limit", "delay", "start_at"))
_STORAGE: Final = frozenset(("stored", "unique", "result_ttl"))

_KEPT_AS_USUAL: Final[_StoredAs] = ("open", RESULT_AGE_MS)


class TermsMaker:
    """Checks the options of one manager's submissions, and makes their terms.

    Args:
        node: The manager's node.
        plain: Kind of the jobs with the usual role and needs.
        max_worker_losses: Lost leases that a job survives, unless the job has its own number.
        has_store: Whether the manager has a store.

    Attributes:
        node: As the argument.
        usual: Terms of a job without options.
    """

    def __init__(self, node: Node, plain: Kind, max_worker_losses: int, *, has_store: bool) -> None:
        self.node = node
        self.plain = plain
        self._max_worker_losses = max_worker_losses
        self._has_store = has_store
        self._unstored = JobTerms(self.plain, 0, None, max_worker_losses)
        self._stored = evolve(self._unstored, stored=StoredTerms(max_worker_losses))
        # The same object each time, so that ``Submissions.add`` compares no values.
        self.usual = self._stored if has_store else self._unstored
        self._stored_as = _KEPT_AS_USUAL if has_store else None
        """How jobs are stored by default; None for jobs that are not stored."""

    def make(self, options: SubmitOptions) -> JobTerms:
        """Return the terms of a job for the manager, which must be serving.

        Raises:
            TypeError: An option is unknown.
            ConfigError: An option has a wrong value.
            ClosedError: The manager is not started, or has ended.
        """
        driver = self.node.driver
        if driver is None or not driver.running:
            self.node.serving()
        if not options:
            return self.usual
        # One merge finds unknown options and fills in the others: fewer calls than a `get` for
        # each option.
        chosen: SubmitOptions = {**OPTION_DEFAULTS, **options}
        if len(chosen) != len(OPTION_DEFAULTS):
            raise TypeError(unknown_option(options))
        role, needs, priority = chosen["role"], chosen["needs"], chosen["priority"]
        checksum, retry = chosen["checksum"], chosen["retry"]
        on_status, key = chosen["on_status"], chosen["key"]
        max_worker_losses = chosen["max_worker_losses"]
        if role == DEFAULT_ROLE and needs is None and not checksum:
            kind = self.plain
        else:
            codec = self.plain.codec
            kind = Kind(check_role(role), _needs(needs), codec, bool(checksum))
        # A wrong argument must be found here. In the machine it would end the manager with all its
        # jobs.
        if type(priority) is not int or abs(priority) > Limits.UINT:
            raise ConfigError(
                f"priority is {priority!r}; expected a whole number from -(2**63 - 1) to 2**63 - 1"
            )
        limits, delay = NO_LIMITS, 0.0
        # Only for jobs with times: the object would make the submission of other jobs slower.
        if not _TIMES.isdisjoint(options):
            limits = TimeLimits(
                chosen["timeout"],
                chosen["expires"],
                chosen["run_limit"],
                chosen["delay"],
                chosen["start_at"],
            )
            limits.check()
            delay = limits.wait()
        given: object = retry
        if given is not None and not isinstance(given, Retry):
            raise ConfigError(
                f"retry is {given!r}; expected a wmp.Retry (max_worker_losses= is the number of "
                "lost workers that a job survives)"
            )
        if on_status is not None and not callable(on_status):
            raise ConfigError(
                f"on_status is {on_status!r}; expected a callable that takes a Status"
            )
        if key is not None:
            check_key(key)
        stored = self._stored_as
        if not _STORAGE.isdisjoint(options):
            stored = self._storage(chosen["stored"], chosen["unique"], chosen["result_ttl"])
        plain = kind is self.plain and limits is NO_LIMITS and not priority
        if plain and max_worker_losses is None and retry is None:
            if stored is None:
                return self._unstored
            if stored is _KEPT_AS_USUAL:
                return self._stored
        max_worker_losses = (
            self._max_worker_losses
            if max_worker_losses is None
            else check_count("max_worker_losses", max_worker_losses)
        )
        if stored is not None:
            unique, result_ttl_ms = stored
            return JobTerms(
                kind,
                priority,
                limits.timeout,
                max_worker_losses,
                limits.expires,
                limits.run_limit,
                delay,
                retry,
                StoredTerms(max_worker_losses, limits.run_limit, retry, result_ttl_ms),
                unique,
            )
        return JobTerms(
            kind,
            priority,
            limits.timeout,
            max_worker_losses,
            limits.expires,
            limits.run_limit,
            delay,
            retry=retry,
        )

    def make_many(self, options: JobOptions) -> JobTerms:
        """Return the terms of several jobs, as ``make`` does.

        Raises:
            TypeError: An option is unknown, or is for a single job.
        """
        if lone := sorted(LONE_OPTIONS & options.keys()):
            raise TypeError(f"{lone[0]!r} is an option of a single job; use submit")
        return self.make(cast("SubmitOptions", options))

    def _storage(
        self, stored: bool | None, unique: object, result_ttl: Duration | None
    ) -> _StoredAs | None:
        """Check the arguments about the store; None for a job that is not stored."""
        if stored is None:
            stored = self._has_store
        if not stored:
            if result_ttl is not None or unique != "open":
                raise ConfigError(
                    "result_ttl and unique are for stored jobs; give the manager a store, and "
                    "do not pass stored=False"
                )
            return None
        if not self._has_store:
            raise ConfigError("the manager has no store; make it with store='jobs.db'")
        if unique not in ("open", "kept"):
            raise ConfigError(f"unique is {unique!r}; expected 'open' or 'kept'")
        if result_ttl is None:
            return _KEPT_AS_USUAL if unique == "open" else ("kept", RESULT_AGE_MS)
        return unique, round(check_seconds("result_ttl", result_ttl) * 1000)


def _needs(needs: Mapping[str, int] | None) -> tuple[tuple[str, int], ...]:
    if needs is None:
        return DEFAULT_NEEDS
    checked = check_amounts("needs", needs)
    check_offer("needs", checked)
    return tuple(sorted((name, n) for name, n in checked.items() if n))
