"""Conversations in which something goes wrong or takes a longer way, for ``conversations.md``.

The machines of the reference implementation speak, and :class:`Stage` carries, loses or shows their
messages. Each story is a list of lines: remarks for readers, and messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from attrs import define, field

from wmp.actions import Run, Send
from wmp.balance import least_recently_used
from wmp.codec.message_tables import COLUMN_ATTRIBUTES, COLUMN_NAMES
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Connected, Finished, Received, Submitted
from wmp.message import FIELD_NAMES, Command, Field, Kind, Link, Message, Outcome

Wires = dict[tuple[str, Link], tuple[str, Link]]
"""The other end of each connection: node and link to node and link."""

_TIMELESS = frozenset({Field.LABEL, Field.TEXT, Field.MAX_SILENCE})
"""Fields that the lines leave out, because no story is about them."""


def _shown(value: Any) -> str:
    match value:
        case bytes():
            return f'"{value.decode()}"'
        case list() | tuple():
            return f"[{', '.join(map(_shown, value))}]"
        case dict():
            return "{" + ", ".join(f"{key}: {_shown(entry)}" for key, entry in value.items()) + "}"
    return str(value)


@define
class Stage:
    """Machines by their names, and the connections between them."""

    machines: dict[str, Any]
    wires: Wires
    paths: bool = False
    """Whether the lines show ``to`` and ``from``."""
    lines: list[str] = field(factory=list)
    runs: list[Run] = field(factory=list)

    def say(self, remark: str) -> None:
        """Add a remark."""
        self.lines.append(f"  # {remark}")

    def play(
        self, name: str, event: Any, loses: Callable[[Message], bool] = lambda message: False
    ) -> None:
        """Let an event happen at a node, and carry all messages that follow."""
        todo: list[tuple[str, Any]] = [(name, event)]
        while todo:
            node, what = todo.pop(0)
            for action in self.machines[node].handle(what, 0.0):
                if isinstance(action, Run):
                    self.runs.append(action)
                if not isinstance(action, Send):
                    continue
                other, link = self.wires[node, action.link]
                lost = loses(action.message)
                self.show(node, other, action.message, lost=lost)
                if not lost and other in self.machines:
                    todo.append((other, Received(link, action.message)))

    def show(self, node: str, other: str, message: Message, *, lost: bool = False) -> None:
        """Add the line of a message."""
        parts = []
        if self.paths:
            parts += [f"to {_shown(message.to)}", f"from {_shown(message.source)}"]
        for key, value in message.fields.items():
            if key not in _TIMELESS:
                name = FIELD_NAMES[key].replace("_", " ")
                parts.append(name if value is True else f"{name} {_shown(value)}")
        if message.columns is not None:
            columns = (
                (name, getattr(message.columns, COLUMN_ATTRIBUTES[key]))
                for key, name in COLUMN_NAMES.items()
            )
            shown = [
                f"{name} {_shown(list(column))}" for name, column in columns if column is not None
            ]
            parts.append(f"columns: {', '.join(shown)}")
        way = f"{node} -> {other}{' (lost)' if lost else ''}"
        self.lines.append(f"{way}: {message.command.name}  {'; '.join(parts)}")

    @property
    def text(self) -> str:
        """The lines, one under the other, as a block of code."""
        return "\n".join(["```", *self.lines, "```"])


def _worker(epoch: int = 2000, slots: int = 1, links: int = 1) -> WorkerMachine:
    resources = {"slots": slots}
    settings = WorkerSettings(
        identity=b"w", epoch=epoch, roles=("add",), resources=resources, hold=0.0, window=0
    )
    return WorkerMachine(settings, links)


def _manager() -> ManagerMachine:
    return ManagerMachine(ManagerSettings(identity=b"m", epoch=1000), least_recently_used)


def _pair(slots: int) -> Stage:
    wires: Wires = {("worker", 0): ("manager", b"w"), ("manager", b"w"): ("worker", 0)}
    return Stage({"worker": _worker(slots=slots), "manager": _manager()}, wires)


def lost_take() -> str:
    """Return the story of a TAKE that is lost: the next number shows the gap."""
    stage = _pair(slots=2)
    stage.play("worker", Connected(0))
    stage.lines.clear()
    stage.say("Job 1 is submitted. Its TAKE is lost on the way.")
    submitted = Submitted([1], [b"2+3"], Kind("add"))
    stage.play("manager", submitted, lambda message: message.command is Command.TAKE)
    stage.say("Job 2 is submitted. Number 2 shows the worker that number 1 is missing (WMP-7.1).")
    stage.say("The worker drops it, and asks by `again`. The manager sends all again (WMP-7.3).")
    stage.play("manager", Submitted([2], [b"4+5"], Kind("add")))
    stage.say("The worker has done job 1. `ack` 2 acknowledges both TAKEs (WMP-7.2).")
    run = stage.runs[0]
    stage.play("worker", Finished(run.lane, [1], [Outcome.OK], [b"5"]))
    return stage.text


def device_hop() -> str:
    """Return the story of a handshake over a device, with the paths of each message."""
    wires: Wires = {
        ("worker", 0): ("device", b"c7"),
        ("device", b"c7"): ("worker", 0),
        ("device", 0): ("manager", b"d"),
        ("manager", b"d"): ("device", 0),
    }
    device = DeviceMachine(DeviceSettings(identity=b"d", epoch=3000, upstreams=1))
    machines = {"worker": _worker(), "manager": _manager(), "device": device}
    stage = Stage(machines, wires, paths=True)
    stage.say("READY and PING without `to` go to every upstream (WMP-8.1). The device appends its")
    stage.say('hop to `from`: identity "d", epoch 3000, and the connection "c7" (WMP-8.3).')
    stage.say("An answer goes to the reversed `from`. The device takes its hop off `to` (WMP-8.2),")
    stage.say("and appends the hop that leads back: DEALER 0.")
    stage.play("worker", Connected(0))
    return stage.text


def failed_claim() -> str:
    """Return the story of a stranger that uses the identity of a worker."""
    stage = _pair(slots=1)
    stage.play("worker", Connected(0))
    stage.wires["manager", b"x"] = ("stranger", 0)
    stage.lines.clear()
    stage.say('A stranger sends READY over another connection, as "w" with a greater epoch. It is')
    stage.say("a claim: the manager drops the READY, and asks the holder (WMP-15.3).")
    fields: dict[int | str, Any] = {
        Field.READY: 1,
        Field.CREDIT: 9,
        Field.ROLES: ("add",),
        Field.RESOURCES: {"slots": 9},
    }
    ready = Message(Command.READY, (), (b"w", 9999), fields)
    stage.show("stranger", "manager", ready)
    stage.say("The holder answers over its route (WMP-15.4), so the claim has failed. The stranger")
    stage.say("learns that by ERROR (WMP-15.5). Sessions, locks and leases of the holder stay.")
    stage.play("manager", Received(b"x", ready))
    return stage.text


def stories() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each story."""
    scenarios: Sequence[tuple[str, Callable[[], str]]] = (
        ("lost take", lost_take),
        ("device hop", device_hop),
        ("failed claim", failed_claim),
    )
    for name, scenario in scenarios:
        yield name, scenario()
