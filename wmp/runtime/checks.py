"""Checks of what users hand in, for code that no type checker has seen."""

from __future__ import annotations

from collections.abc import Mapping

from wmp.errors import ConfigError
from wmp.message import Limits

__all__ = ["check_amounts", "check_count"]


def check_count(name: str, value: object, least: int = 0) -> int:
    """Return ``value`` if it is a whole number of at least ``least``.

    Raises:
        ConfigError: It is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} is a whole number of at least {least}, got {value!r}")
    if value > Limits.UINT:
        raise ConfigError(f"{name} is at most 2**63 - 1, got {value!r}")
    return value


def check_amounts(name: str, amounts: object) -> dict[str, int]:
    """Return a mapping of resources to amounts, checked.

    Raises:
        ConfigError: It is none; the text says where.
    """
    if not isinstance(amounts, Mapping):
        raise ConfigError(f"{name} maps names of resources to whole numbers, got {amounts!r}")
    for resource in amounts:
        if not isinstance(resource, str) or not 1 <= len(resource.encode()) <= Limits.TEXT:
            raise ConfigError(
                f"{name}: a resource's name is text of 1 to {Limits.TEXT} bytes, got {resource!r}"
            )
    return {
        resource: check_count(f"{name} of {resource!r}", amount)
        for resource, amount in amounts.items()
    }
