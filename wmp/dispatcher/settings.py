"""Settings of a dispatcher, by the names of the design's configuration (specs/dispatcher.md §8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
from attrs import frozen

from wmp.errors import ConfigError
from wmp.runtime.common.renamed import remedy_for

_MAX_VALUE: Final = 10**12


def _setting(name: str, default: int, minimum: int = 0) -> Any:
    return attrs.field(default=default, metadata={"name": name, "minimum": minimum})


@frozen
class DispatcherSettings:
    """Times are milliseconds."""

    cooldown_period: int = _setting("jobs.cooldown_period", 0)
    job_verification_interval: int = _setting("jobs.job_verification_interval", 10_000, 1)
    ping_interval: int = _setting("workers.ping_interval", 30_000, 1)
    max_failed_checks: int = _setting("workers.max_failed_checks", 3, 1)
    dead_worker_ping_interval: int = _setting("workers.dead_worker_ping_interval", 60_000, 1)
    dead_worker_max_failed_checks: int = _setting("workers.dead_worker_max_failed_checks", 10)
    max_health_answer: int = _setting("workers.max_health_answer", 64 << 10, 1)
    health_timeout: int = _setting("workers.health_timeout", 5_000, 1)
    timer_interval: int = _setting("event_emitters.timer.interval", 1_000, 1)
    dispatch_timeout: int = _setting("jobs.dispatch_timeout", 30_000, 1)
    post_timeout: int = _setting("jobs.post_timeout", 5_000, 1)
    head_start: int = _setting("jobs.head_start", 50)
    max_worker_losses: int = _setting("jobs.max_worker_losses", 3)
    result_ttl: int = _setting("jobs.result_ttl", 3_600_000, 1)
    max_refusals: int = _setting("jobs.max_refusals", 10)
    unnamed_timeout: int = _setting("jobs.unnamed_timeout", 600_000, 1)
    pause: int = _setting("workers.pause", 1_000)
    max_unproven: int = _setting("workers.max_unproven", 100, 1)
    max_per_address: int = _setting("workers.max_per_address", 100, 1)
    max_workers: int = _setting("workers.max_workers", 2_000, 1)
    max_handlers: int = _setting("workers.max_handlers", 8 << 10, 2)
    callback_retries: int = _setting("callbacks.retries", 5)
    max_callback_depth: int = _setting("callbacks.max_depth", 4)
    max_body: int = _setting("http.max_body", 1 << 20, 1)
    max_rate: int = _setting("http.max_rate", 2_000, 1)


SEED_PROFILE: Final[Mapping[str, int]] = {"jobs.cooldown_period": 2_000}
"""The settings of the design that differ from the defaults."""

_FIELDS: Final = {field.metadata["name"]: field for field in attrs.fields(DispatcherSettings)}


def setting_names() -> list[str]:
    """Return the names of all settings."""
    return list(_FIELDS)


def settings_of(given: Mapping[str, int]) -> DispatcherSettings:
    """Return settings by their names; a setting that is not named has its default.

    Raises:
        ConfigError: There is no such setting, or a value is out of its range (DSP-8.1).
    """
    values = {}
    for name, value in given.items():
        field = _FIELDS.get(name)
        if field is None:
            raise ConfigError(
                f"there is no setting {name!r} of a dispatcher; {remedy_for(name, list(_FIELDS))}"
            )
        minimum = field.metadata["minimum"]
        if type(value) is not int or not minimum <= value <= _MAX_VALUE:
            raise ConfigError(f"{name} is {value!r}; expected a whole number from {minimum} on")
        values[field.name] = value
    settings = DispatcherSettings(**values)
    if settings.dispatch_timeout <= settings.cooldown_period:
        raise ConfigError(
            f"jobs.dispatch_timeout is {settings.dispatch_timeout}; expected more than "
            f"jobs.cooldown_period, {settings.cooldown_period}"
        )
    return settings
