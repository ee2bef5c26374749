"""The terms of submissions, made from the arguments of the user's calls, which are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

from attrs import evolve

from wmp.errors import ConfigError
from wmp.message import DEFAULT_NEEDS, DEFAULT_ROLE, Kind, Limits
from wmp.retry import Retry
from wmp.runtime.common.checks import (
    check_amounts,
    check_count,
    check_offer,
    check_role,
    check_seconds,
)
from wmp.runtime.driver.inbox import JobTerms
from wmp.runtime.node.node import Node
from wmp.runtime.submission.results import Status
from wmp.runtime.submission.time_limits import NO_LIMITS, NO_TIMES, TimeLimits, Times
from wmp.store.job_terms import RESULT_AGE, StoredTerms

Storage: TypeAlias = tuple[bool | None, object, float | None]
"""The user's arguments about the store: ``stored``, ``unique`` and ``keep``."""

AS_USUAL: Final[Storage] = (None, "open", None)
"""The defaults of these arguments: jobs are stored if the manager has a store."""

UNSTORED: Final[Storage] = (False, "open", None)
"""Jobs are not stored."""

_StoredAs: TypeAlias = tuple[Literal["open", "kept"], int]
"""Which jobs of the same key a stored job joins, and milliseconds for which its result is kept."""

_KEPT_AS_USUAL: Final[_StoredAs] = ("open", RESULT_AGE)


class TermsMaker:
    """Makes the terms of one manager's submissions.

    Args:
        node: The manager's node.
        plain: Kind of the jobs with the usual role and needs.
        max_worker_losses: Lost leases that a job survives, unless the job has its own number.
        has_store: Whether the manager has a store.

    Attributes:
        node: As the argument.
    """

    def __init__(self, node: Node, plain: Kind, max_worker_losses: int, *, has_store: bool) -> None:
        self.node = node
        self.plain = plain
        self._max_worker_losses = max_worker_losses
        self._has_store = has_store
        self._usual = JobTerms(self.plain, 0, None, max_worker_losses)
        self._usual_stored = evolve(self._usual, stored=StoredTerms(max_worker_losses))
        self._stored_as = _KEPT_AS_USUAL if has_store else None
        """How jobs are stored by default; None for jobs that are not stored."""

    def make(
        self,
        role: str,
        needs: Mapping[str, int] | None,
        priority: int,
        times: Times,
        max_worker_losses: int | None,
        retry: Retry | None = None,
        on_status: Callable[[Status], object] | None = None,
        key: str | None = None,
        checksum: bool = False,
        storage: Storage = UNSTORED,
    ) -> JobTerms:
        """Return the terms of jobs for the manager, which must be serving.

        Raises:
            ConfigError: An argument is wrong.
            ClosedError: The manager is not started, or has ended.
        """
        driver = self.node.driver
        if driver is None or not driver.running:
            self.node.serving()
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
        # Only for jobs with times: the object would make the submission of a plain job a tenth
        # slower.
        if times != NO_TIMES:
            limits = TimeLimits(*times)
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
        if key is not None and not isinstance(key, str):
            raise ConfigError(f"key is {key!r}; expected text")
        stored = self._stored_as if storage == AS_USUAL else self._stored(*storage)
        usual = self._usual
        plain = kind is usual.kind and limits is NO_LIMITS and not priority
        if plain and max_worker_losses is None and retry is None:
            # The same object each time, so that ``Submissions.add`` compares no values.
            if stored is None:
                return usual
            if stored is _KEPT_AS_USUAL:
                return self._usual_stored
        max_worker_losses = (
            self._max_worker_losses
            if max_worker_losses is None
            else check_count("max_worker_losses", max_worker_losses)
        )
        if stored is not None:
            unique, keep = stored
            return JobTerms(
                kind,
                priority,
                limits.timeout,
                max_worker_losses,
                limits.expires,
                limits.run_limit,
                delay,
                retry,
                StoredTerms(max_worker_losses, limits.run_limit, retry, keep),
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

    def _stored(self, stored: bool | None, unique: object, keep: float | None) -> _StoredAs | None:
        """Check the arguments about the store; None for a job that is not stored."""
        if stored is None:
            stored = self._has_store
        if not stored:
            if keep is not None or unique != "open":
                raise ConfigError(
                    "keep and unique are for stored jobs; give the manager a store, and do not "
                    "pass stored=False"
                )
            return None
        if not self._has_store:
            raise ConfigError("the manager has no store; make it with store='jobs.db'")
        if unique not in ("open", "kept"):
            raise ConfigError(f"unique is {unique!r}; expected 'open' or 'kept'")
        if keep is None:
            return _KEPT_AS_USUAL if unique == "open" else ("kept", RESULT_AGE)
        return unique, round(check_seconds("keep", keep) * 1000)


def _needs(needs: Mapping[str, int] | None) -> tuple[tuple[str, int], ...]:
    if needs is None:
        return DEFAULT_NEEDS
    made = check_amounts("needs", needs)
    check_offer("needs", made)
    return tuple(sorted((name, n) for name, n in made.items() if n))
