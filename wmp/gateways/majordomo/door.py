"""The door of a gateway for the clients and the workers of Majordomo, as a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
from attrs import field, frozen

from wmp.duration import in_seconds
from wmp.errors import ConfigError
from wmp.gateways.gateway.door import Door, DoorFlag, numbered
from wmp.gateways.gateway.door_machine import DoorContext
from wmp.gateways.majordomo.broker_clients import ServiceTerms
from wmp.gateways.majordomo.broker_machine import MajordomoDoorMachine, MajordomoDoorSettings
from wmp.gateways.majordomo.broker_terms import WorkersTerms
from wmp.gateways.majordomo.broker_workers import MMI
from wmp.gateways.majordomo.wire import role_of
from wmp.message import DEFAULT_NEEDS, Limits
from wmp.runtime.common.checks import check_amounts, check_count, check_seconds, check_text
from wmp.runtime.node.config_table import ConfigTable

MAJORDOMO: Final = "majordomo"
"""Name of the protocol, and first part of the names of the groups of its workers."""

SIDES: Final = ("both", "clients", "workers")
"""The values of ``serves``."""

BUSY_RULES: Final = ("honest", "strict")
"""The values of ``busy``."""

_MIN_BEAT: Final = 0.01
_LONGEST_BEAT: Final = 60.0
_LONGEST_GROUP: Final = 32


@frozen
class MajordomoService:
    """The terms of the requests for a service.

    Raises:
        ConfigError: A setting is wrong.
    """

    name: str
    """Name of the service. A name that ends with ``*`` is a beginning of names."""
    needs: Mapping[str, int] | None = field(default=None, kw_only=True)
    """Amounts of the resources of a WMP worker that a request takes; by default one slot."""
    priority: int = field(default=0, kw_only=True)
    """Requests of a higher priority are granted first."""
    max_worker_losses: int = field(default=3, kw_only=True)
    """Number of lost workers that a request survives. With 0 no request runs twice."""
    timeout: float | None = field(default=None, converter=in_seconds, kw_only=True)
    """Seconds within which a request must end; None for no limit."""
    unserved: float | None = field(default=60.0, converter=in_seconds, kw_only=True)
    """Seconds that a request waits for a service without workers; None for no limit."""
    limit: int = field(default=100_000, kw_only=True)
    """Maximum number of requests in progress."""
    key: str | None = field(default=None, kw_only=True)
    """``"body"``: a request with the body of a request in progress waits for the same job, and the
    newest of them gets the reply."""
    as_list: bool = field(default=False, kw_only=True)
    """Whether a body of one frame is a list for WMP handlers, too."""

    def __attrs_post_init__(self) -> None:
        check_text("the name of a service", self.name, Limits.TEXT, 1)
        plain = self.name.removesuffix("*")
        if plain and role_of(plain.encode()) is None:
            raise ConfigError(
                f"a service is {self.name!r}; expected a name of printable characters"
            )
        if self.name.startswith(MMI):
            raise ConfigError(
                f"a service is {self.name!r}; the broker itself does the services whose names "
                f"begin with {MMI}"
            )
        if self.needs is not None:
            check_amounts("needs", self.needs)
        if type(self.priority) is not int or abs(self.priority) > Limits.UINT:
            raise ConfigError(f"priority is {self.priority!r}; expected a whole number")
        check_count("max_worker_losses", self.max_worker_losses)
        if self.timeout is not None:
            check_seconds("timeout", self.timeout, zero=False)
        if self.unserved is not None:
            check_seconds("unserved", self.unserved, zero=False)
        check_count("limit", self.limit, 1)
        if self.key not in (None, "body"):
            raise ConfigError(f'key is {self.key!r}; expected "body", or no key')
        if not isinstance(self.as_list, bool):
            raise ConfigError(f"as_list is {self.as_list!r}; expected true or false")

    def terms(self) -> ServiceTerms:
        """Return the terms for the machine."""
        needs = DEFAULT_NEEDS
        if self.needs is not None:
            needs = tuple(sorted((name, n) for name, n in self.needs.items() if n))
        return ServiceTerms(
            self.name,
            needs,
            self.priority,
            self.max_worker_losses,
            self.timeout,
            self.unserved,
            self.limit,
            self.key is not None,
            self.as_list,
        )


def _services(value: Iterable[MajordomoService]) -> tuple[MajordomoService, ...]:
    return tuple(value)


@frozen
class MajordomoDoor(Door):
    """A door for the clients and the workers of Majordomo 0.1 (7/MDP), which share its addresses.

    Each request is a job whose role is the name of the service. Majordomo workers of the service do
    it, and WMP workers with this role. Two doors, one for each side, make a broker with two
    sockets.

    Raises:
        ConfigError: A setting is wrong.
    """

    protocol: str = field(default=MAJORDOMO, init=False)
    serves: str = field(default="both", kw_only=True)
    """``"both"``, ``"clients"`` or ``"workers"``."""
    group: str = field(default=MAJORDOMO, kw_only=True)
    """First part of the names of the groups of workers, which are a part of their identities."""
    services: tuple[MajordomoService, ...] = field(default=(), converter=_services, kw_only=True)
    """The terms of services. The longest name that matches counts; a service without terms has
    those of ``MajordomoService("*")``."""
    limit_bytes: int = field(default=256 << 20, kw_only=True)
    """Maximum number of bytes of all requests in progress. A request counts with its frames and
    512 bytes more, and the first request of a service with 4096 bytes more."""
    client_limit: int = field(default=100_000, kw_only=True)
    """Maximum number of requests of one connection."""
    heartbeat: float = field(default=2.5, converter=in_seconds, kw_only=True)
    """Seconds between two signs of life, from 0.01 to 60."""
    liveness: int = field(default=3, kw_only=True)
    """Number of heartbeats without a message after which a worker is forgotten."""
    busy: str = field(default="honest", kw_only=True)
    """``"honest"``: a worker may be silent while it has a request, as the workers of the guide are;
    ``"strict"``: its silence counts, too, as in 7/MDP."""
    busy_timeout: float | None = field(default=3600.0, converter=in_seconds, kw_only=True)
    """Seconds after which a request at a worker counts as lost; None for no limit. A later
    heartbeat of the worker shows that it takes requests again."""
    linger: float = field(default=10.0, converter=in_seconds, kw_only=True)
    """Seconds after which a service without workers is forgotten."""
    max_workers: int = field(default=10_000, kw_only=True)
    """Maximum number of workers. A service has 4096 at most: together they are one WMP worker,
    and it has so many jobs at a time."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        for name, value, known in (
            ("serves", self.serves, SIDES),
            ("busy", self.busy, BUSY_RULES),
        ):
            if value not in known:
                raise ConfigError(f"{name} is {value!r}; expected one of {', '.join(known)}")
        check_text("group", self.group, _LONGEST_GROUP, 1)
        if "/" in self.group:
            # The name of a group of workers is this part, a slash and the service.
            raise ConfigError(f"group is {self.group!r}; expected a name without a slash")
        names = []
        for service in self.services:
            if not isinstance(service, MajordomoService):
                raise ConfigError(f"a service is {service!r}; expected a MajordomoService")
            if service.name in names:
                raise ConfigError(f"the service {service.name!r} has terms twice; give them once")
            names.append(service.name)
        check_count("limit_bytes", self.limit_bytes, 1)
        check_count("client_limit", self.client_limit, 1)
        check_seconds("heartbeat", self.heartbeat)
        if not _MIN_BEAT <= self.heartbeat <= _LONGEST_BEAT:
            raise ConfigError(
                f"heartbeat is {self.heartbeat:g}; expected seconds from {_MIN_BEAT:g} to "
                f"{_LONGEST_BEAT:g}"
            )
        check_count("liveness", self.liveness, 1)
        if self.busy_timeout is not None:
            check_seconds("busy_timeout", self.busy_timeout, zero=False)
        check_seconds("linger", self.linger, zero=False)
        check_count("max_workers", self.max_workers, 1)

    @property
    def takes_clients(self) -> bool:
        """Whether clients connect to the door."""
        return self.serves != "workers"

    @property
    def takes_workers(self) -> bool:
        """Whether workers connect to the door."""
        return self.serves != "clients"

    def describe(self) -> str:
        """Return the services that have terms."""
        return f"terms {', '.join(service.name for service in self.services) or 'none'}"

    @classmethod
    def settings_of(cls, table: ConfigTable) -> dict[str, Any]:
        """Return the arguments of the class from a table of a TOML file, all but ``bind``."""
        services = [_service(service) for service in table.tables("services")]
        return {**table.values, "services": services}

    @classmethod
    def flags(cls) -> Sequence[DoorFlag]:
        """Return the flag of a broker."""
        help = "Address of a Majordomo broker (7/MDP), for its clients and workers."
        return [DoorFlag("--majordomo", ("ENDPOINT",), help, _broker)]

    def make(self, context: DoorContext) -> MajordomoDoorMachine:
        """Make the machine of the door."""
        services = [service.terms() for service in self.services]
        if all(service.name != "*" for service in services):
            services.append(MajordomoService("*").terms())
        settings = MajordomoDoorSettings(
            clients=self.takes_clients,
            workers=self.takes_workers,
            services=services,
            limit_bytes=self.limit_bytes,
            client_limit=self.client_limit,
            of_workers=WorkersTerms(
                epoch=context.epoch,
                group=self.group,
                heartbeat=self.heartbeat,
                max_silence=self.heartbeat * self.liveness,
                strict=self.busy == "strict",
                busy_timeout=self.busy_timeout,
                max_workers=self.max_workers,
                linger=self.linger,
                home=context.home,
            ),
        )
        return MajordomoDoorMachine(settings, context.job_numbers, context.offered)


def _broker(given: Sequence[str], count: int, opened: bool) -> list[Door]:
    return [MajordomoDoor(given, group=numbered(MAJORDOMO, count), open=opened)]


def _service(table: ConfigTable) -> MajordomoService:
    """Return the terms of a service; errors name their table."""
    table.only(attrs.fields_dict(MajordomoService))
    if "name" not in table.values:
        raise table.missing("name", "the name of a service, or its beginning and *")
    try:
        return MajordomoService(**table.values)
    except ConfigError as error:
        raise ConfigError(f"{table.file}: {table.name}: {error}") from error
