"""The nodes of a world: managers, devices and workers, with their abilities and connections.

A topology is drawn from one random stream, independent of faults and jobs.
"""

from __future__ import annotations

from random import Random

from attrs import evolve, field, frozen

from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.message import Kind

KINDS = (
    Kind(),
    Kind("default", (("slots", 2),)),
    Kind("default", (("gpu", 1), ("slots", 1))),
    Kind("cook"),
    Kind("default", codec="json"),
)
"""The possible needs of jobs."""


@frozen
class TimerSettings:
    """The timers of all nodes of a world, in seconds; see the settings with the same names."""

    max_silence: float
    ping: float
    wake_timeout: float
    lock_timeout: float
    hold: float
    resend: float
    backoff: float
    """The longest backoff of READY and of new connections."""
    latency: float
    """The longest time that a message takes on one connection without a fault."""

    @property
    def trip(self) -> float:
        """The longest round trip of a message: three connections each way."""
        return 6 * self.latency


@frozen
class Topology:
    """Names, connections and settings.

    The name of a second process with a node's identity ends in ``+``.
    """

    timers: TimerSettings
    managers: tuple[str, ...]
    uplinks: dict[str, tuple[str, ...]]
    """The upper ends of the links of devices and workers.

    Devices are listed before the nodes below them.
    """
    workers: dict[str, WorkerSettings]
    double: str | None
    """The manager or worker that may get a second process of the same identity."""
    dials: dict[str, tuple[str, ...]] = field(factory=dict)
    """The devices to which managers dial in, by manager."""
    pair: tuple[str, ...] = ()
    """The managers that are a pair; empty for none."""
    forwarder: tuple[str, str] | None = None
    """The manager side and the worker side of the forwarding manager; None for none."""

    def reaches(self, name: str) -> list[str]:
        """Return the managers whose jobs a worker gets, also through the forwarding manager."""
        managers = self.above(name)
        if self.forwarder is not None and self.forwarder[0] in managers:
            managers += self.above(self.forwarder[1])
        return managers

    def above(self, name: str) -> list[str]:
        """Return the managers that a worker reaches, second processes included."""
        managers: dict[str, None] = {}
        for upstream in self.uplinks.get(name, ()):
            if upstream in self.uplinks:
                managers.update(dict.fromkeys(self.above(upstream)))
            else:
                managers[upstream] = None
        managers.update(
            {manager: None for manager, devices in self.dials.items() if name in devices}
        )
        return list(managers)

    def kinds(self, manager: str) -> list[Kind]:
        """Return the kinds of jobs that the workers of a manager can do."""
        return [
            kind
            for kind in KINDS
            if any(
                manager in self.reaches(name) and can(settings, kind)
                for name, settings in self.workers.items()
            )
        ]

    def manager_settings(self, name: str, epoch: int) -> ManagerSettings:
        """Settings of a manager for one epoch."""
        return ManagerSettings(
            identity=name.rstrip("+").encode(),
            epoch=epoch,
            label=name,
            max_silence=self.timers.max_silence,
            wake_timeout=self.timers.wake_timeout,
            resend=self.timers.resend,
            bundle=4,
            announce=self.timers.ping,
        )

    def device_settings(self, identity: bytes, epoch: int, upstreams: int) -> DeviceSettings:
        """Settings of a device for one epoch."""
        return DeviceSettings(
            identity=identity, epoch=epoch, upstreams=upstreams, max_silence=self.timers.max_silence
        )


def can(settings: WorkerSettings, kind: Kind) -> bool:
    """Return whether a worker with these settings can do jobs of ``kind``."""
    have = settings.resources
    return kind.role in settings.roles and all(have.get(n, 0) >= a for n, a in kind.needs)


def draw_topology(draw: Random) -> Topology:
    """Draw a world's nodes."""
    timers = draw_timers(draw)
    managers = tuple(f"m{i + 1}" for i in range(draw.choice((1, 1, 1, 2, 2, 3))))
    uplinks: dict[str, tuple[str, ...]] = {}
    for i in range(draw.choice((0, 0, 1, 1, 2))):
        above = [*managers, *uplinks, *uplinks]  # draw chains of devices more often
        few = draw.choice((1, 1, 2))
        uplinks[f"d{i + 1}"] = tuple(dict.fromkeys(draw.choice(above) for _ in range(few)))
    devices = tuple(uplinks)
    workers: dict[str, WorkerSettings] = {}
    for i in range(draw.choice((1, 1, 2, 2, 3, 4))):
        name = f"w{i + 1}"
        few = draw.choice((1, 1, 1, 2, 2, 3))
        above = [*managers, *devices, *devices]
        uplinks[name] = tuple(dict.fromkeys(draw.choice(above) for _ in range(few)))
        workers[name] = _draw_worker(name, timers, draw)
    topology = Topology(timers, managers, uplinks, workers, None)
    for manager in managers:
        # A manager without workers would be of no use in a test.
        if not any(manager in topology.above(name) for name in workers):
            name = draw.choice(list(workers))
            uplinks[name] = (*uplinks[name], manager)
    double = draw.choice((None, draw.choice(managers), draw.choice(list(workers))))
    if double in workers:
        workers[f"{double}+"] = workers[double]
        uplinks[f"{double}+"] = uplinks[double]
    elif double is not None:
        # A node with one endpoint may also get the other endpoint.
        for name, upstreams in uplinks.items():
            if double in upstreams:
                uplinks[name] = (*upstreams, f"{double}+")
        managers = (*managers, f"{double}+")
    return Topology(timers, managers, uplinks, workers, double)


def draw_dials(topology: Topology, draw: Random) -> Topology:
    """Turn connections of devices to managers around: the managers dial in.

    A world without such a connection gets a device between its managers and workers.
    """
    uplinks = dict(topology.uplinks)
    devices = [name for name in uplinks if name not in topology.workers]
    edges = [(d, up) for d in devices for up in uplinks[d] if up in topology.managers]
    if not edges:
        uplinks = {"d1": (), **dict.fromkeys(topology.workers, ("d1",))}
        edges = [("d1", manager) for manager in topology.managers]
        turned = edges
    else:
        turned = [edge for edge in edges if draw.random() < 0.6] or [draw.choice(edges)]
    dials: dict[str, tuple[str, ...]] = {}
    for device, manager in turned:
        uplinks[device] = tuple([up for up in uplinks[device] if up != manager])
        dials[manager] = (*dials.get(manager, ()), device)
    return evolve(topology, uplinks=uplinks, dials=dials)


def with_pair(topology: Topology) -> Topology:
    """Let two managers be a pair in place of all managers, each with all connections."""
    pair = ("m1", "m2")
    uplinks = {
        name: tuple(
            dict.fromkeys(
                above for up in ups for above in (pair if up in topology.managers else (up,))
            )
        )
        for name, ups in topology.uplinks.items()
    }
    double = topology.double if topology.double in topology.workers else None
    return evolve(topology, managers=pair, uplinks=uplinks, double=double, pair=pair)


def with_forwarder(topology: Topology, draw: Random) -> Topology:
    """Put a forwarding manager between the managers and some of their workers.

    No node has a second process of its identity.
    """
    lower, upper, timers = "f1", "f1^", topology.timers
    managers = tuple(name for name in topology.managers if not name.endswith("+"))
    workers = {name: w for name, w in topology.workers.items() if not name.endswith("+")}
    uplinks = {
        name: tuple(up for up in ups if not up.endswith("+"))
        for name, ups in topology.uplinks.items()
        if not name.endswith("+")
    }
    for number, name in enumerate(workers):
        alone = draw.random() < 0.5
        if not number or draw.random() < 0.7:
            uplinks[name] = (lower,) if alone else (*uplinks[name], lower)
    direct = evolve(topology, managers=managers, uplinks=uplinks, workers=workers, double=None)
    above = tuple(name for name in managers if not direct.kinds(name) or draw.random() < 0.6)
    side = WorkerSettings(
        identity=upper.encode(),
        epoch=0,
        label=upper,
        roles=(),
        resources={"slots": 0},
        hold=draw.choice((0.0, timers.hold)),
        lock_timeout=timers.lock_timeout,
        ping=timers.ping,
        ready_backoff_max=timers.backoff,
        reconnect_backoff_max=timers.backoff,
        resend=timers.resend,
    )
    return evolve(
        direct,
        managers=(*managers, lower),
        uplinks={**uplinks, upper: above or managers[:1]},
        workers={**workers, upper: side},
        forwarder=(lower, upper),
    )


def draw_timers(draw: Random) -> TimerSettings:
    """Draw a world's timers."""
    max_silence = draw.choice((1.5, 3.0, 6.0))
    return TimerSettings(
        max_silence=max_silence,
        ping=max_silence / 3 * draw.choice((0.5, 1.0)),
        wake_timeout=draw.choice((0.05, 0.25)),
        lock_timeout=draw.choice((0.5, 2.0, 5.0)),
        hold=draw.choice((0.0, 1.0, 5.0)),
        resend=draw.choice((0.5, 3.0)),
        backoff=draw.choice((2.0, 8.0)),
        latency=draw.choice((0.0, 0.001, 0.02, 0.1)),
    )


def _draw_worker(name: str, timers: TimerSettings, draw: Random) -> WorkerSettings:
    resources = {"slots": draw.choice((1, 1, 2, 3))}
    if draw.random() < 0.3:
        resources["gpu"] = 1
    return WorkerSettings(
        identity=name.encode(),
        epoch=0,
        label=name,
        roles=draw.choice((("default",), ("cook", "default"))),
        resources=resources,
        window=draw.choice((None, None, 0, 1, 3)),
        hold=draw.choice((0.0, timers.hold)),
        lock_timeout=timers.lock_timeout,
        ping=timers.ping,
        ready_backoff_max=timers.backoff,
        reconnect_backoff_max=timers.backoff,
        resend=timers.resend,
        unacked_bytes=draw.choice((64 << 20, 64 << 20, 2000)),
    )
