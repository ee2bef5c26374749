"""Who may do what: the permissions of tokens and of CURVE keys, in one table.

``specs/security.md`` shows the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from attrs import field, frozen

from wmp.errors import ConfigError


class Permission(StrEnum):
    """What the holder of a token or a key may do."""

    SUBMIT = "submit"
    WORK = "work"
    OBSERVE = "observe"
    STEER = "steer"
    ADMIN = "admin"
    """All of the others, and what nobody else may do."""


class Act(StrEnum):
    """What a peer or a client does; the texts are those of error messages."""

    CREATE_JOB = "create a job"
    READ_JOBS = "read jobs"
    CANCEL_JOB = "cancel a job"
    COMPLETE_JOB = "complete a job"
    REGISTER_WORKER = "register a worker"
    RESIGN_WORKER = "resign a worker with its secret"
    RESIGN_ANY_WORKER = "resign a worker without its secret"
    READ_WORKERS = "read workers and capacity"
    READ_DESCRIPTION = "read the description of the API"
    OTHER_REQUEST = "send any other request"
    CONNECT_WORKER = "connect as a worker or a device"
    CONNECT_MANAGER = "dial in as a manager"
    CONNECT_DOOR = "connect to a door of a gateway"


_EVERY: Final = frozenset(Permission)

PERMITTED: Final[Mapping[Act, frozenset[Permission]]] = {
    Act.CREATE_JOB: frozenset({Permission.SUBMIT}),
    Act.READ_JOBS: frozenset({Permission.OBSERVE}),
    Act.CANCEL_JOB: frozenset({Permission.STEER}),
    Act.COMPLETE_JOB: frozenset({Permission.WORK}),
    Act.REGISTER_WORKER: frozenset({Permission.WORK}),
    Act.RESIGN_WORKER: frozenset({Permission.WORK}),
    Act.RESIGN_ANY_WORKER: frozenset(),
    Act.READ_WORKERS: frozenset({Permission.OBSERVE}),
    Act.READ_DESCRIPTION: _EVERY,
    Act.OTHER_REQUEST: frozenset(),
    Act.CONNECT_WORKER: frozenset({Permission.WORK}),
    Act.CONNECT_MANAGER: frozenset({Permission.SUBMIT}),
    Act.CONNECT_DOOR: frozenset({Permission.SUBMIT, Permission.WORK}),
}
"""The permissions of which one suffices for an act, besides ``admin``."""


def _permission_set(permissions: Iterable[Permission]) -> frozenset[Permission]:
    return frozenset(permissions)


@frozen
class PermissionHolder:
    """Who holds a token or a key."""

    name: str
    permissions: frozenset[Permission] = field(default=_EVERY, converter=_permission_set)

    def may(self, act: Act) -> bool:
        """Return whether the holder may do something. No other code decides this."""
        permitted = PERMITTED[act] | {Permission.ADMIN}
        return not permitted.isdisjoint(self.permissions)


def read_permissions(text: str, where: str) -> frozenset[Permission]:
    """Return the permissions of a text with commas between them.

    Args:
        text: The text.
        where: Names the text in errors.

    Raises:
        ConfigError: The text names none, or another one.
    """
    names = [name.strip() for name in text.split(",")]
    return frozenset(_permission(name, where) for name in names)


def _permission(name: str, where: str) -> Permission:
    try:
        return Permission(name)
    except ValueError:
        raise ConfigError(
            f"{where} names the permission {name[:40]!r}; expected {listed_permissions(Permission)}"
        ) from None


def listed_permissions(permissions: Iterable[Permission]) -> str:
    """Return permissions for people, in the order of the table."""
    chosen = set(permissions)
    return ", ".join(permission for permission in Permission if permission in chosen)
