"""A small world: its nodes, its submissions and the bounds of its faults."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from wmp.core.protocol.settings import ManagerSettings, WorkerSettings
from wmp.message import Kind

FAULTS: Mapping[str, str] = {
    "drop": "a message is lost",
    "duplicate": "a message arrives twice, the second time behind all messages on the way",
    "refuse": "a message of a manager or device is reported as undeliverable",
    "kill": "a worker's process ends; the worker may start again at any time, with a newer epoch",
    "bereave": "the process of a job dies before the job has an outcome",
    "restart device": "a device starts again; the messages on its connections are lost",
    "restart manager": "a manager starts again; its jobs end with its process",
}
"""Kinds of faults."""


@frozen
class Submit:
    """Submit a job to a manager."""

    manager: str
    payload: bytes
    kind: Kind = Kind()  # noqa: RUF009 - a value
    timeout: float | None = None
    max_worker_losses: int = 9


@frozen
class Cancel:
    """Cancel the manager's job of that number."""

    manager: str
    id: int


@frozen(kw_only=True)
class ModelPlan:
    """A small world and its bounds."""

    managers: tuple[str, ...]
    uplinks: Mapping[str, tuple[str, ...]]
    """The upper ends of the links of devices and workers; devices come first."""
    dials: Mapping[str, tuple[str, ...]] = field(factory=dict)
    """The devices to which managers dial in, by manager."""
    workers: Mapping[str, WorkerSettings]
    script: tuple[Submit | Cancel, ...]
    manager: ManagerSettings = ManagerSettings(identity=b"m", epoch=1)  # noqa: RUF009 - a value
    kinds: tuple[str, ...] = tuple(FAULTS)
    """The kinds of faults that may occur."""
    faults: int = 2
    """The maximum number of faults that may occur."""
    ticks: int = 3
    """The maximum number of timers that may fire while a job waits for its end."""
    slow: bool = True
    """Whether timers may fire while messages are on the way."""
    settled: bool = False
    """Whether nodes are connected and known to each other at the start."""
    devices: tuple[str, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        devices = tuple(name for name in self.uplinks if name not in self.workers)
        object.__setattr__(self, "devices", devices)


def _worker(**options: object) -> WorkerSettings:
    # Without jitter and window, states differ only in numbers with a meaning.
    settings = {"hold": 0.0, "window": 0, "lane_max": 1, "jitter": 0.0, **options}
    return WorkerSettings(identity=b"w", epoch=1, **settings)  # type: ignore[arg-type]


_MESSAGES = ("drop", "duplicate", "refuse")

PLANS: Mapping[str, ModelPlan] = {
    "tiny": ModelPlan(
        managers=("m1",),
        uplinks={"w1": ("m1",)},
        workers={"w1": _worker(hold=5.0)},
        script=(Submit("m1", b"a"),),
        ticks=1,
        settled=True,
    ),
    "meeting": ModelPlan(
        managers=("m1",),
        uplinks={"w1": ("m1",)},
        workers={"w1": _worker()},
        script=(Submit("m1", b"a"),),
        faults=1,
        ticks=1,
    ),
    "cancel": ModelPlan(
        managers=("m1",),
        uplinks={"w1": ("m1",)},
        workers={"w1": _worker()},
        script=(Submit("m1", b"a", timeout=2.0), Cancel("m1", 1)),
        faults=1,
        ticks=1,
        settled=True,
    ),
    "pair": ModelPlan(
        managers=("m1", "m2"),
        uplinks={"w1": ("m1", "m2")},
        workers={"w1": _worker()},
        script=(Submit("m1", b"a"), Submit("m2", b"b")),
        kinds=(*_MESSAGES, "kill"),
        faults=1,
        ticks=0,
        settled=True,
    ),
    "heirs": ModelPlan(
        managers=("m1",),
        uplinks={"w1": ("m1",), "w2": ("m1",)},
        workers={"w1": _worker(), "w2": _worker()},
        script=(Submit("m1", b"a"),),
        kinds=("kill",),
        faults=1,
        ticks=2,
        slow=False,
        settled=True,
    ),
    "device": ModelPlan(
        managers=("m1",),
        uplinks={"d1": ("m1",), "w1": ("d1",)},
        workers={"w1": _worker()},
        script=(Submit("m1", b"a"),),
        faults=1,
        ticks=1,
        settled=True,
    ),
    "dial": ModelPlan(
        managers=("m1",),
        uplinks={"d1": (), "w1": ("d1",)},
        dials={"m1": ("d1",)},
        workers={"w1": _worker()},
        script=(Submit("m1", b"a"),),
        faults=1,
        ticks=1,
        settled=True,
    ),
    "small": ModelPlan(
        managers=("m1", "m2"),
        uplinks={"d1": ("m1", "m2"), "w1": ("m1", "m2"), "w2": ("d1",)},
        workers={"w1": _worker(), "w2": _worker()},
        script=(Submit("m1", b"a"), Submit("m2", b"b")),
        settled=True,
    ),
}
"""The worlds by name."""
