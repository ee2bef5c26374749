"""The door of a gateway as a value: all that a gateway, its program and its TOML file ask of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

from attrs import field, frozen

from wmp.errors import ConfigError
from wmp.gateways.gateway.door_machine import DoorContext, DoorMachine
from wmp.runtime.node.config_table import ConfigTable

NO_ADDRESS: Final = "-"
"""The address of a door that is left out, as the argument of a flag."""


def addresses(value: str | Sequence[str]) -> tuple[str, ...]:
    """Return one or several texts as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value)


@frozen
class Door(ABC):
    """The address at which a gateway listens for peers of another protocol, and their settings.

    A protocol defines a subclass. One line in :mod:`wmp.gateways.doors` registers the subclass.

    Raises:
        ConfigError: A setting is wrong.
    """

    bind: tuple[str, ...] = field(converter=addresses)
    """Addresses to which the peers connect."""
    protocol: str = field(kw_only=True)
    """Name of the protocol."""
    open: bool = field(default=False, kw_only=True)
    """Whether the door may be open to the network without keys."""
    keys: bool = field(default=False, kw_only=True)
    """Whether the peers need CURVE keys, with those of the gateway on this side."""

    def __attrs_post_init__(self) -> None:
        if not self.bind:
            raise ConfigError("a door has no address; expected one endpoint or more in bind")
        for name, flag in (("open", self.open), ("keys", self.keys)):
            if not isinstance(flag, bool):
                raise ConfigError(f"{name} is {flag!r}; expected true or false")

    @abstractmethod
    def make(self, context: DoorContext) -> DoorMachine:
        """Make the machine of the door."""

    @property
    @abstractmethod
    def takes_clients(self) -> bool:
        """Whether clients connect to the door, so that it makes jobs."""

    @property
    @abstractmethod
    def takes_workers(self) -> bool:
        """Whether workers connect to the door, so that it does jobs."""

    @property
    def group(self) -> str:
        """Name of the group of the workers, or first part of such names; empty without workers."""
        return ""

    @property
    def pairs(self) -> bool:
        """Whether the door may belong to one of two gateways that a Binary Star decides about."""
        return False

    @property
    def routing_id(self) -> bytes | None:
        """Name of the ROUTER for peers with a ROUTER; empty for its first address."""
        return None

    @property
    def more_messages(self) -> int:
        """Number of messages that libzmq queues for a peer beyond ``high_water_mark``."""
        return 0

    @property
    def side(self) -> str:
        """``"clients"``, ``"workers"`` or ``"both"``: the peers that connect to the door."""
        if self.takes_clients:
            return "both" if self.takes_workers else "clients"
        return "workers"

    @abstractmethod
    def describe(self) -> str:
        """Return the roles or terms of the door in a few words for people."""

    @classmethod
    def settings_of(cls, table: ConfigTable) -> dict[str, Any]:
        """Return the arguments of the class from a table of a TOML file, all but ``bind``.

        Raises:
            ConfigError: A key is missing, or a value has another form than TOML should give it.
        """
        return {**table.values}

    @classmethod
    def flags(cls) -> Sequence[DoorFlag]:
        """Return the flags of ``wmp gateway`` that make doors; by default none."""
        return ()


@frozen
class DoorFlag:
    """A flag of ``wmp gateway`` that makes one door or more of its addresses."""

    name: str
    """The flag, ``--majordomo`` for example."""
    metavars: tuple[str, ...]
    """A word for each address, ``("ENDPOINT",)`` for example."""
    help: str
    make: Callable[[Sequence[str], int, bool], Sequence[Door]]
    """Makes the doors of the addresses, the number of the doors so far, and ``open``. The argument
    of an address that is left out is ``NO_ADDRESS``."""


def numbered(group: str, count: int) -> str:
    """Return a name for the group of a door behind other doors of the same gateway.

    Args:
        group: Name of the group at a gateway with one door.
        count: Number of the doors before this one.
    """
    return f"{group}-{count + 1}" if count else group
