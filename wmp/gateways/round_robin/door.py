"""The door of a gateway for the clients and the workers of round robin, as a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from attrs import field, frozen

from wmp.duration import in_seconds
from wmp.errors import ConfigError
from wmp.gateways.gateway.door import Door, DoorFlag, addresses, numbered
from wmp.gateways.gateway.door_machine import DoorContext
from wmp.gateways.round_robin.server_machine import RoundRobinDoorMachine
from wmp.gateways.round_robin.terms import RoundRobinDoorSettings
from wmp.message import Limits
from wmp.runtime.common.checks import check_count, check_role, check_seconds, check_text
from wmp.runtime.node.config_table import ConfigTable

MAX_SLOTS: Final = Limits.JOBS
"""The largest ``max_slots``, and the maximum number of slots of our worker."""

ROUND_ROBIN = "round-robin"
"""Role of the messages of clients, and name of the workers together."""


Command: TypeAlias = int | bytes
"""The command of an application: the first argument of its messages."""


class TableRow(NamedTuple):
    """A worker in the table of a server."""

    address: str
    """Routing id of the worker; bytes that are not text are shown in hexadecimal."""
    free: int
    """Number of free slots."""
    slots: int


@frozen
class RoundRobinDoor(Door):
    """A door for the clients and the workers of round robin, which share its addresses.

    Each message of a client is a job: a list of frames, the command of the application and its
    arguments. Workers of round robin do these jobs, and WMP workers.

    Raises:
        ConfigError: A setting is wrong.
    """

    protocol: str = field(default=ROUND_ROBIN, init=False)
    name: str = field(default="", kw_only=True)
    """Name of the server for original clients and workers; by default its first address."""
    group: str = field(default=ROUND_ROBIN, kw_only=True)
    """Name of the workers together, a part of their identity."""
    role: str = field(default=ROUND_ROBIN, kw_only=True)
    """Role of the jobs of commands that ``commands`` does not list."""
    commands: Mapping[bytes, str] = field(factory=dict, kw_only=True)
    """Roles of the jobs by command."""
    roles: tuple[str, ...] = field(default=(), converter=addresses, kw_only=True)
    """Roles of the jobs that the workers of round robin do; by default all roles of the door."""
    priority: int = field(default=0, kw_only=True)
    max_worker_losses: int = field(default=3, kw_only=True)
    """Number of lost workers that a TRACKEXEC survives."""
    timeout: float | None = field(default=None, converter=in_seconds, kw_only=True)
    """Seconds within which a message must be done; None for no limit."""
    heartbeat: float = field(default=30.0, converter=in_seconds, kw_only=True)
    """Seconds of silence after which a worker gets PING."""
    liveness: int = field(default=3, kw_only=True)
    """Number of such times after which a silent worker has left."""
    leave: float = field(default=15.0, converter=in_seconds, kw_only=True)
    """Seconds that a worker has after DEREGISTER for the messages that it has."""
    busy_timeout: float | None = field(default=3600.0, converter=in_seconds, kw_only=True)
    """Seconds after which a message at a worker counts as lost; None for no limit."""
    max_queue: int | None = field(default=None, kw_only=True)
    """Maximum number of messages that wait; the newest is dropped. None for no limit."""
    limit_bytes: int = field(default=512 << 20, kw_only=True)
    """Maximum number of bytes of all messages in progress. Each message counts with all its frames
    and 512 bytes more."""
    max_workers: int = field(default=10_000, kw_only=True)
    """Maximum number of workers."""
    max_slots: int = field(default=1000, kw_only=True)
    """Maximum number of slots of one worker. A worker that registers more gets so many."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        check_text("name", self.name, 255)
        check_text("group", self.group, 64, 1)
        for role in (self.role, *self.commands.values(), *self.roles):
            check_role(role)
        for command in self.commands:
            if not 0 < len(command) <= 255:
                raise ConfigError(f"a command is {command!r}; expected 1 to 255 bytes")
        if type(self.priority) is not int or abs(self.priority) > Limits.UINT:
            raise ConfigError(f"priority is {self.priority!r}; expected a whole number")
        check_count("max_worker_losses", self.max_worker_losses)
        if self.timeout is not None:
            check_seconds("timeout", self.timeout, zero=False)
        check_seconds("heartbeat", self.heartbeat, zero=False)
        check_count("liveness", self.liveness, 1)
        check_seconds("leave", self.leave, zero=False)
        if self.busy_timeout is not None:
            check_seconds("busy_timeout", self.busy_timeout, zero=False)
        if self.max_queue is not None:
            check_count("max_queue", self.max_queue)
        check_count("limit_bytes", self.limit_bytes, 1)
        check_count("max_workers", self.max_workers, 1)
        check_count("max_slots", self.max_slots, 1, MAX_SLOTS)

    @property
    def served(self) -> tuple[str, ...]:
        """Roles of the jobs that the workers of round robin do."""
        return self.roles or tuple(dict.fromkeys((self.role, *self.commands.values())))

    takes_clients: ClassVar[bool] = True
    takes_workers: ClassVar[bool] = True

    @property
    def routing_id(self) -> bytes:
        """Name of the ROUTER for original programs; empty for its first address."""
        return self.name.encode()

    @property
    def more_messages(self) -> int:
        """A worker may get as many messages at once as it has slots."""
        return self.max_slots

    def describe(self) -> str:
        """Return the roles of the jobs that the workers of round robin do."""
        return f"roles {', '.join(self.served)}"

    @classmethod
    def settings_of(cls, table: ConfigTable) -> dict[str, Any]:
        """Return the arguments of the class from a table of a TOML file, all but ``bind``."""
        given = {**table.values}
        if "commands" in given:
            given["commands"] = _commands(table)
        return given

    @classmethod
    def flags(cls) -> Sequence[DoorFlag]:
        """Return the flag of a server."""
        help = "Address of a server of round robin for clients and for workers."
        return [DoorFlag("--round-robin", ("ENDPOINT",), help, _server)]

    def make(self, context: DoorContext) -> RoundRobinDoorMachine:
        """Make the machine of the door."""
        terms = RoundRobinDoorSettings(
            epoch=context.epoch,
            group=self.group,
            role=self.role,
            roles=self.commands,
            served=self.served,
            priority=self.priority,
            max_worker_losses=self.max_worker_losses,
            timeout=self.timeout,
            heartbeat=self.heartbeat,
            liveness=self.liveness,
            leave=self.leave,
            busy_timeout=self.busy_timeout,
            max_queue=self.max_queue,
            limit_bytes=self.limit_bytes,
            max_workers=self.max_workers,
            max_slots=self.max_slots,
            home=context.home,
        )
        return RoundRobinDoorMachine(terms, context.job_numbers)


def _server(given: Sequence[str], count: int, opened: bool) -> list[Door]:
    return [RoundRobinDoor(given, group=numbered(ROUND_ROBIN, count), open=opened)]


def _commands(table: ConfigTable) -> dict[bytes, str]:
    """Return the roles by command of a table with commands in hexadecimal."""
    given = table.values["commands"]
    if not isinstance(given, dict):
        raise ConfigError(
            f"{table.file}: {table.name}.commands is {given!r}; expected roles by command, as in "
            '{ "20" = "shout" }'
        )
    try:
        return {bytes.fromhex(command): role for command, role in given.items()}
    except ValueError as error:
        raise ConfigError(
            f"{table.file}: {table.name}.commands has the commands {', '.join(given)}; expected "
            "bytes in hexadecimal, for example 20"
        ) from error
