"""The doors of a gateway as values: where they listen, their protocols and their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from attrs import field, frozen

from wmp.duration import in_seconds
from wmp.errors import ConfigError
from wmp.gateways.common.client_wire import ClientWire, ReqWire
from wmp.gateways.freelance.wire import AgentWire, ShotgunWire
from wmp.gateways.gateway.door import NO_ADDRESS, Door, DoorFlag, addresses, numbered
from wmp.gateways.gateway.door_machine import DoorContext
from wmp.gateways.queue_doors.client_door_machine import FrontDoorMachine
from wmp.gateways.queue_doors.settings import (
    BACK_DOOR,
    LIVENESS,
    SERVICE,
    BackDoorSettings,
    Service,
)
from wmp.gateways.queue_doors.worker_door_machine import BackDoorMachine
from wmp.gateways.queue_doors.worker_door_wire import (
    DoorWire,
    HeartbeatStyle,
    ParanoidDoorWire,
    PingPongDoorWire,
    SimpleDoorWire,
)
from wmp.message import DEFAULT_NEEDS, Kind, Limits
from wmp.runtime.common.checks import (
    check_amounts,
    check_count,
    check_role,
    check_seconds,
    check_text,
)
from wmp.runtime.node.config_table import ConfigTable

CLIENT_PROTOCOLS: Final = ("pirates", "ping-pong", "freelance-shotgun", "freelance-agent")
"""The values of ``protocol`` of a door for clients."""

WORKER_PROTOCOLS: Final = ("simple-pirate", "paranoid-pirate", "ping-pong")
"""The values of ``protocol`` of a door for workers."""

_CONTROL_WORDS: Final = frozenset((b"PONG", b"EXIT"))
"""Jobs that a ping-pong worker would take for another message."""

_MIN_BEAT: Final = 0.01
_LONGEST_BEAT: Final = 30.0


@frozen
class ClientDoor(Door):
    """A door for clients: each request becomes a job of the gateway's manager.

    Raises:
        ConfigError: A setting is wrong.
    """

    protocol: str = field(default="pirates", kw_only=True)
    """``"pirates"`` for REQ sockets; ``"ping-pong"`` also answers a request above a limit by
    ``FULL``, and refuses the control words of ping-pong; ``"freelance-shotgun"`` and
    ``"freelance-agent"`` for these clients of Freelance. Failover clients are REQ sockets."""
    name: str = field(default="", kw_only=True)
    """For agents that have a ROUTER: the address by which they connect; by default the first
    address, with the actual port."""
    guide: bool = field(default=False, kw_only=True)
    """Whether an empty frame behind the sequence of an agent is not part of the body, as the Python
    client of the guide sends it."""
    remember: float = field(default=SERVICE.remember, converter=in_seconds, kw_only=True)
    """Seconds for which a reply to an agent is kept for repetitions of its request."""
    role: str = field(default=SERVICE.kind.role, kw_only=True)
    """Role of the jobs."""
    needs: Mapping[str, int] | None = field(default=None, kw_only=True)
    """Amounts of a worker's resources that a job takes; by default one slot."""
    priority: int = field(default=SERVICE.priority, kw_only=True)
    """Jobs of a higher priority are granted first."""
    max_worker_losses: int = field(default=SERVICE.max_worker_losses, kw_only=True)
    """Number of lost leases that a job survives. With 0 no request runs twice."""
    timeout: float | None = field(default=SERVICE.timeout, converter=in_seconds, kw_only=True)
    """Seconds within which a job must end; None for no limit."""
    limit: int = field(default=SERVICE.limit, kw_only=True)
    """Maximum number of requests in progress."""
    limit_bytes: int = field(default=SERVICE.limit_bytes, kw_only=True)
    """Maximum number of bytes of their bodies."""
    client_limit: int = field(default=SERVICE.client_limit, kw_only=True)
    """Maximum number of requests of one connection."""
    key: str | None = field(default=None, kw_only=True)
    """``"body"``: a request with the body of a request in progress waits for the same job, and the
    newest of them gets the reply."""
    as_list: bool = field(default=SERVICE.as_list, kw_only=True)
    """Whether a body of one frame is a list for WMP handlers, too."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        _check_choice("protocol", self.protocol, CLIENT_PROTOCOLS)
        check_role(self.role)
        if self.needs is not None:
            check_amounts("needs", self.needs)
        if type(self.priority) is not int or abs(self.priority) > Limits.UINT:
            raise ConfigError(f"priority is {self.priority!r}; expected a whole number")
        check_count("max_worker_losses", self.max_worker_losses)
        if self.timeout is not None:
            check_seconds("timeout", self.timeout, zero=False)
        check_count("limit", self.limit, 1)
        check_count("limit_bytes", self.limit_bytes, 1)
        check_count("client_limit", self.client_limit, 1)
        _check_flags(as_list=self.as_list, guide=self.guide)
        check_seconds("remember", self.remember)
        if (self.name or self.guide) and self.protocol != "freelance-agent":
            raise ConfigError(
                f'name and guide are settings of "freelance-agent", not of "{self.protocol}"'
            )
        if self.key not in (None, "body"):
            raise ConfigError(f'key is {self.key!r}; expected "body", or no key')

    @property
    def routing_id(self) -> bytes | None:
        """Name of the ROUTER for clients with a ROUTER; empty for its first address."""
        return self.name.encode() if self.protocol == "freelance-agent" else None

    def _wire(self) -> ClientWire:
        if self.protocol == "freelance-shotgun":
            return ShotgunWire()
        return AgentWire(guide=self.guide) if self.protocol == "freelance-agent" else ReqWire()

    takes_clients: ClassVar[bool] = True
    takes_workers: ClassVar[bool] = False
    pairs: ClassVar[bool] = True

    def describe(self) -> str:
        """Return the role of the jobs."""
        return f"role {self.role}"

    def make(self, context: DoorContext) -> FrontDoorMachine:
        """Make the machine of the door."""
        needs = DEFAULT_NEEDS
        if self.needs is not None:
            needs = tuple(sorted((name, n) for name, n in self.needs.items() if n))
        ping_pong = self.protocol == "ping-pong"
        service = Service(
            kind=Kind(self.role, needs),
            priority=self.priority,
            max_worker_losses=self.max_worker_losses,
            timeout=self.timeout,
            limit=self.limit,
            limit_bytes=self.limit_bytes,
            client_limit=self.client_limit,
            as_list=self.as_list,
            join=self.key is not None,
            full=b"FULL" if ping_pong else None,
            forbidden=_CONTROL_WORDS if ping_pong else frozenset(),
            wire=self._wire(),
            remember=self.remember,
        )
        return FrontDoorMachine(service, context.job_numbers)


@frozen
class WorkerDoor(Door):
    """A door for workers of another protocol: together they are one WMP worker.

    Raises:
        ConfigError: A setting is wrong.
    """

    protocol: str = field(kw_only=True)
    """``"simple-pirate"``, ``"paranoid-pirate"`` or ``"ping-pong"``."""
    group: str = field(kw_only=True)
    """Name of these workers together, a part of their identity; by default the protocol."""
    roles: tuple[str, ...] = field(default=BACK_DOOR.roles, converter=addresses, kw_only=True)
    """Roles of the jobs that the workers do."""
    heartbeats: str | None = field(default=None, kw_only=True)
    """``"none"``, ``"one-way"`` or ``"ping-pong"``; by default the style of the protocol."""
    heartbeat: float = field(default=BACK_DOOR.heartbeat, converter=in_seconds, kw_only=True)
    """Seconds between two signs of life, from 0.01 to 30."""
    liveness: int = field(default=LIVENESS, kw_only=True)
    """Number of heartbeats without a message after which an idle worker is forgotten."""
    busy_timeout: float | None = field(
        default=BACK_DOOR.busy_timeout, converter=in_seconds, kw_only=True
    )
    """Seconds after which a request at a worker counts as lost; None for no limit. A later
    heartbeat of the worker shows that it takes requests again."""
    max_workers: int = field(default=BACK_DOOR.max_workers, kw_only=True)
    """Maximum number of workers, at most 4096: together they are one WMP worker, and it has so
    many jobs at a time. Give further workers a door of their own."""
    guide: bool = field(default=False, kw_only=True)
    """Whether HEARTBEAT of an unknown Paranoid worker is READY, as at the queue of the guide."""
    one_frame: bool = field(default=False, kw_only=True)
    """Whether requests to Paranoid workers must have one frame, as the workers of the guide
    expect."""
    exit_on_drain: bool = field(default=BACK_DOOR.exit_on_drain, kw_only=True)
    """Whether ping-pong workers get EXIT when the gateway ends."""

    @group.default
    def _default_group(self) -> str:
        return self.protocol

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        _check_choice("protocol", self.protocol, WORKER_PROTOCOLS)
        check_text("group", self.group, 64, 1)
        if not self.roles:
            raise ConfigError("roles is empty; expected one role or more")
        for role in self.roles:
            check_role(role)
        if self.heartbeats is not None:
            _check_choice("heartbeats", self.heartbeats, [style.value for style in HeartbeatStyle])
            if self._wire().sign is None and self.heartbeats != "none":
                raise ConfigError(
                    f'heartbeats is "{self.heartbeats}"; the protocol {self.protocol} has no '
                    'heartbeats, so expected "none"'
                )
        check_seconds("heartbeat", self.heartbeat)
        if not _MIN_BEAT <= self.heartbeat <= _LONGEST_BEAT:
            raise ConfigError(
                f"heartbeat is {self.heartbeat:g}; expected seconds from {_MIN_BEAT:g} to "
                f"{_LONGEST_BEAT:g}"
            )
        check_count("liveness", self.liveness, 1)
        if self.busy_timeout is not None:
            check_seconds("busy_timeout", self.busy_timeout, zero=False)
        check_count("max_workers", self.max_workers, 1, Limits.JOBS)
        _check_flags(
            guide=self.guide,
            one_frame=self.one_frame,
            exit_on_drain=self.exit_on_drain,
        )

    def _wire(self) -> DoorWire:
        if self.protocol == "simple-pirate":
            return SimpleDoorWire()
        if self.protocol == "ping-pong":
            return PingPongDoorWire()
        return ParanoidDoorWire(guide=self.guide, one_frame=self.one_frame)

    takes_clients: ClassVar[bool] = False
    takes_workers: ClassVar[bool] = True
    pairs: ClassVar[bool] = True

    def describe(self) -> str:
        """Return the roles of the jobs that the workers do."""
        return f"roles {', '.join(self.roles)}"

    @classmethod
    def settings_of(cls, table: ConfigTable) -> dict[str, Any]:
        """Return the arguments of the class from a table of a TOML file, all but ``bind``."""
        if "protocol" not in table.values:
            raise table.missing("protocol", "the protocol of the workers")
        return {**table.values}

    @classmethod
    def flags(cls) -> Sequence[DoorFlag]:
        """Return a flag for each queue or broker with one door for clients and one for workers."""
        pair = ("FRONT", "BACK")
        return [
            DoorFlag(f"--{protocol}", pair, help, partial(_both_doors, protocol))
            for protocol, help in _QUEUES.items()
        ]

    def make(self, context: DoorContext) -> BackDoorMachine:
        """Make the machine of the door."""
        wire = self._wire()
        style = wire.style if self.heartbeats is None else HeartbeatStyle(self.heartbeats)
        silent = style is HeartbeatStyle.NONE
        settings = BackDoorSettings(
            epoch=context.epoch,
            group=self.group,
            roles=self.roles,
            style=style,
            heartbeat=self.heartbeat,
            max_silence=None if silent else self.heartbeat * self.liveness,
            busy_timeout=self.busy_timeout,
            max_workers=self.max_workers,
            home=context.home,
            exit_on_drain=self.exit_on_drain,
        )
        return BackDoorMachine(wire, settings)


_QUEUES: Final = {
    "ping-pong": (
        "Addresses of a ping-pong broker for clients and for workers; - for no such address."
    ),
    "simple-pirate": "Addresses of a Simple Pirate queue; - for no such address.",
    "paranoid-pirate": "Addresses of a Paranoid Pirate queue; - for no such address.",
}
"""What the flag of each queue or broker gives, by the protocol of its workers."""


def _both_doors(protocol: str, given: Sequence[str], count: int, opened: bool) -> list[Door]:
    """Return the doors of one queue or broker.

    Args:
        protocol: Protocol of the workers.
        given: Address for clients, and address for workers.
        count: Number of the doors before these.
        opened: Whether the doors may be open to the network without keys.
    """
    front, back = given
    doors: list[Door] = []
    if front != NO_ADDRESS:
        spoken = "ping-pong" if protocol == "ping-pong" else "pirates"
        doors.append(ClientDoor(front, protocol=spoken, open=opened))
    if back != NO_ADDRESS:
        group = numbered(protocol, count)
        doors.append(WorkerDoor(back, protocol=protocol, group=group, open=opened))
    return doors


def _check_choice(name: str, value: object, known: list[str] | tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{name} is {value!r}; expected one of {', '.join(known)}")


def _check_flags(**flags: object) -> None:
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{name} is {value!r}; expected true or false")
