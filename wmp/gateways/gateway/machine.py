"""A gateway as a machine: doors for other protocols around a manager and WMP workers.

Theory of operation. A front door makes jobs of requests; they go to the gateway's manager. Each
group of workers behind a back door is one worker machine, with a slot for each foreign worker. The
worker machines serve the gateway's own manager, and, through a device machine, the managers to
which the gateway connects. Messages between these machines pass as values and are never encoded.

``handle`` gives an event to one machine and then works on a queue: each action that concerns
another machine of this gateway becomes an event of that machine. Ends of jobs and changed numbers
of workers wait for ``Settled``, so that each costs one step a turn. ``RepliesArrived`` before
``Settled`` lets the worker machines begin their next jobs first: their foreign workers need not
wait until the manager has taken the results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from attrs import define, field, frozen

from wmp.actions import Drop, Halt, Interrupt, Recall, Reconnect, Resolve, Run, Send
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.manager.statistics import ManagerStatistics
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.core.protocol.timers import Timers
from wmp.core.worker.statistics import WorkerStatistics
from wmp.events import (
    Cancelled,
    Closed,
    Connected,
    Disconnected,
    Drained,
    Finished,
    Garbled,
    Received,
    Relieved,
    Submitted,
    Ticked,
    Undelivered,
)
from wmp.foreign import (
    Arrived,
    Disband,
    Dismissed,
    Emit,
    Left,
    Of,
    RepliesArrived,
    Settled,
    Staff,
    Unsent,
)
from wmp.gateways.gateway.door_machine import DoorMachine
from wmp.gateways.gateway.worker_group import WorkerGroup
from wmp.message import Link

Record = Callable[[object, Sequence[object], float], None]
"""Records a step of a WMP machine: the event, the actions, the time."""


@frozen(kw_only=True)
class GatewaySettings:
    """The terms of a gateway."""

    identity: bytes
    epoch: int
    label: str = ""
    upstreams: int = 0
    """Number of managers or devices to which the gateway connects."""
    hold: float = 5.0
    """As for workers; see :class:`~wmp.core.protocol.settings.WorkerSettings`."""
    window: int | None = None
    ping: float = 1.0


@frozen
class GatewayStatistics:
    """Counts of a gateway; a snapshot."""

    doors: tuple[Any, ...]
    """Those of the doors, in their order."""
    manager: ManagerStatistics | None
    """Those of the gateway's own manager; None for a gateway without one."""
    groups: Mapping[str, WorkerStatistics]
    """Those of the worker machine of each group, by the name of the group."""
    dropped: Mapping[str, int] = field(factory=dict)
    """Number of messages that the sockets dropped, by reason."""


_GROUPS: Final = 10
"""Number of bits for the numbers of groups in their epochs.

Epochs are milliseconds. Without these bits, a gateway with many groups that starts again at once
could give a group the epoch that it had before, or a lower one.
"""

_MANAGER = "manager"
_DEVICE = "device"

_MachineKey = str | int
"""The manager, the device, the number of a door; or ``/`` and the name of a group."""


@define(eq=False)
class GatewayMachine:
    """Sans-I/O gateway.

    Args:
        terms: Identity and times.
        doors: The doors, by the numbers of their sockets.
        fronts: Numbers of the doors that make jobs.
        manager: The gateway's own manager; None for a gateway that only connects to managers.
    """

    terms: GatewaySettings
    doors: Sequence[DoorMachine]
    fronts: Sequence[int]
    manager: ManagerMachine | None = None
    recorder_of: Callable[[ManagerSettings | WorkerSettings | DeviceSettings], Record] | None = None
    """Begins the journal of a WMP machine; None for no journal."""
    settings: None = field(default=None, init=False)  # each machine inside has its own
    device: DeviceMachine | None = field(default=None, init=False)
    groups: dict[str, WorkerGroup] = field(factory=dict, init=False)
    _by_number: dict[int, WorkerGroup] = field(factory=dict, init=False)
    _group_count: int = field(default=0, init=False)
    """Number of groups so far."""
    _again: dict[str, tuple[Staff, int]] = field(factory=dict, init=False)
    """The newest reports about groups that are ending, with their doors."""
    _ends: tuple[_MachineKey, ...] = field(default=(), init=False)
    """The machine at the end of each link of a group: the manager's is always the first."""
    _queue: deque[tuple[_MachineKey, object]] = field(factory=deque, init=False)
    _out: list[Any] = field(factory=list, init=False)
    _busy: dict[str, WorkerGroup] = field(factory=dict, init=False)
    """Groups with facts that wait for ``Settled``."""
    _timers: Timers[_MachineKey] = field(factory=Timers, init=False)
    _due: dict[_MachineKey, float | None] = field(factory=dict, init=False)
    _stepped: dict[_MachineKey, Any] = field(factory=dict, init=False)
    """The machines that got an event since their deadlines were noted."""
    _stirred: dict[int, None] = field(factory=dict, init=False)
    """The doors that got an event from outside since ``Settled``."""
    _records: dict[_MachineKey, Record] = field(factory=dict, init=False)
    _unrecorded: dict[_MachineKey, ManagerSettings | WorkerSettings | DeviceSettings] = field(
        factory=dict, init=False
    )
    """Settings of the machines whose journals begin with their first step."""
    _open: set[_MachineKey] = field(factory=set, init=False)
    """The machines that have not ended."""
    _up: set[int] = field(factory=set, init=False)
    """Numbers of the upstream links that are connected."""
    _draining: bool = field(default=False, init=False)
    _refusing: bool = field(default=False, init=False)
    """Whether the front doors take no further requests."""
    _ending: set[_MachineKey] = field(factory=set, init=False)
    """The machines that were asked to end."""
    _halted: bool = field(default=False, init=False)
    _error: Exception | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        terms = self.terms
        self._open.update(range(len(self.doors)))
        ends: list[_MachineKey] = []
        if self.manager is not None:
            ends.append(_MANAGER)
            self._add(_MANAGER, self.manager.settings)
        if terms.upstreams:
            ends.append(_DEVICE)
            settings = DeviceSettings(
                identity=terms.identity + b"/device",
                epoch=terms.epoch,
                upstreams=terms.upstreams,
                label=terms.label,
            )
            self.device = DeviceMachine(settings)
            self._add(_DEVICE, settings)
        self._ends = tuple(ends)

    # -- the two members of every machine

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""
        if self._halted:
            return None
        if self._stepped:
            self._note_deadlines()
        return self._timers.next()

    def handle(self, event: object, now: float) -> list[Any]:
        """Take one event; return the actions to perform now, in order."""
        if self._halted:
            return []
        if type(event) is Arrived:
            self._stirred[event.port] = None
            self._at_door(event.port, event, now)
        elif type(event) is RepliesArrived:
            # Messages of the worker machines to their managers wait for the next event.
            self._settle_groups(now)
            return self._end_step(now)
        else:
            self._take(event, now)
        if self._queue:
            self._work(now)
        return self._end_step(now)

    def _take(self, event: object, now: float) -> None:
        """Take any event but ``Arrived``."""
        if self._queue:
            self._work(now)
        match event:
            case Settled():
                stirred, self._stirred = self._stirred, {}
                for number in stirred:
                    if number in self.fronts:
                        self._at_door(number, event, now)
            case Unsent(port) | Left(port) | Dismissed(port):
                self._stirred[port] = None
                self._at_door(port, event, now)
            case Received(link) | Garbled(link) | Undelivered(link):
                self._queue.append((_MANAGER if isinstance(link, bytes) else _DEVICE, event))
            case Disconnected() | Relieved():
                self._queue.append((_MANAGER, event))
            case Connected(int(link)):
                self._connected(link, now)
            case Ticked():
                self._ticked(now)
            case Drained():
                self._draining = True
            case Closed():
                self._close(now)
            case _:
                raise TypeError(f"a gateway takes no event {type(event).__name__}")
        self._work(now)
        self._settle(now)

    @property
    def has_replies(self) -> bool:
        """Return whether ``RepliesArrived`` would let workers begin further jobs."""
        return bool(self._busy)

    def _end_step(self, now: float) -> list[Any]:
        """Return the actions of this step."""
        if self._draining:
            self._wind_up(now)
        actions, self._out = self._out, []
        return actions

    def _note_deadlines(self) -> None:
        """Note the deadlines of the machines that got an event."""
        due_of = self._due
        for key, machine in self._stepped.items():
            due = machine.deadline()
            if due != due_of.get(key):
                due_of[key] = due
                if due is None:
                    self._timers.clear(key)
                else:
                    self._timers.set(key, due)
        self._stepped.clear()

    def statistics(self) -> GatewayStatistics:
        """Return a snapshot for people and programs."""
        manager = None if self.manager is None else self.manager.statistics()
        groups = {name: group.worker.statistics() for name, group in self.groups.items()}
        return GatewayStatistics(tuple(door.statistics() for door in self.doors), manager, groups)

    # -- the machines

    def _add(
        self, key: _MachineKey, settings: ManagerSettings | WorkerSettings | DeviceSettings
    ) -> None:
        self._open.add(key)
        if self.recorder_of is not None:
            self._unrecorded[key] = settings

    def _group(self, staff: Staff, door: int, now: float) -> WorkerGroup:
        """Return the group that a door reports; make its worker machine at the first report."""
        group = self.groups.get(staff.group)
        if group is None:
            terms, number = self.terms, self._group_count
            self._group_count += 1
            settings = WorkerSettings(
                identity=terms.identity + b"/" + staff.group.encode(),
                epoch=(terms.epoch << _GROUPS) + number,
                label=f"{terms.label}/{staff.group}",
                roles=staff.roles,
                resources={"slots": 0},
                lane_max=staff.lane_jobs,
                lane_time=staff.lane_time,
                window=terms.window,
                hold=terms.hold,
                ping=self._ping,
            )
            group = WorkerGroup(staff.group, door, number, settings, len(self._ends))
            self.groups[staff.group] = self._by_number[number] = group
            self._add(group.key, settings)
            for link, end in enumerate(self._ends):
                if end != _DEVICE or self._up:
                    self._step(group.key, *group.connect(link, now), now)
        return group

    @property
    def _ping(self) -> float:
        """Seconds between two signs of life of a group.

        Inside a gateway no message is lost, so that a thousand groups cost little.
        """
        if self.manager is None or self.terms.upstreams:
            return self.terms.ping
        return min(2 * self.terms.ping, self.manager.settings.max_silence / 3)

    def _at_door(self, number: int, event: object, now: float) -> None:
        """Give one event to one door."""
        if number not in self._open:
            return
        door = self._stepped[number] = self.doors[number]
        for action in door.handle(event, now):
            self._from_door(number, action, now)

    def _give(self, key: _MachineKey, event: Any, now: float) -> None:
        """Give one event to one machine."""
        if type(key) is int:
            self._at_door(key, event, now)
        elif key not in self._open:
            return
        elif key == _MANAGER:
            assert self.manager is not None
            self._step(key, event, self.manager.handle(event, now), now)
        elif key == _DEVICE:
            assert self.device is not None
            self._step(key, event, self.device.handle(event, now), now)
        else:
            assert isinstance(key, str)
            group = self.groups[key[1:]]
            self._step(key, event, group.worker.handle(event, now), now)

    def _step(self, key: _MachineKey, event: object, actions: Sequence[Any], now: float) -> None:
        """Record a step of one WMP machine, and pass its actions on."""
        if self.recorder_of is not None:
            if key in self._unrecorded:
                self._records[key] = self.recorder_of(self._unrecorded.pop(key))
            if (record := self._records.get(key)) is not None:
                record(event, actions, now)
        if key == _MANAGER:
            self._stepped[key] = self.manager
            for action in actions:
                self._from_manager(action, now)
        elif key == _DEVICE:
            for action in actions:
                self._from_device(action)
        else:
            assert isinstance(key, str)
            group = self.groups[key[1:]]
            self._stepped[key] = group.worker
            for action in actions:
                self._from_group(group, action, now)

    def _work(self, now: float) -> None:
        queue = self._queue
        while queue:
            key, event = queue.popleft()
            self._give(key, event, now)

    def _settle(self, now: float) -> None:
        """Give the worker machines what waits for the end of a turn."""
        while self._busy:
            self._settle_groups(now)
            self._work(now)

    def _settle_groups(self, now: float) -> None:
        busy, self._busy = self._busy, {}
        for group in busy.values():
            if not group.halted:
                for event, actions in group.settle(now):
                    self._step(group.key, event, actions, now)

    # -- actions

    def _from_door(self, number: int, action: Any, now: float) -> None:
        kind = type(action)
        if kind is Emit or kind is Drop:
            self._out.append(action)
        elif kind is Of:
            group, what = self.groups.get(action.group), action.what
            if group is None:
                return  # The group ended a moment ago.
            if type(what) is Finished:
                group.finished.append(what)
                self._busy[group.key] = group
            else:
                self._queue.append((group.key, what))
        elif kind is Submitted or kind is Cancelled or kind is Relieved:
            self._queue.append((_MANAGER, action))
        elif kind is Staff:
            group = self._group(action, number, now)
            if group.disbanded:
                self._again[group.name] = (action, number)
                return
            group.places = action.places
            self._busy[group.key] = group
        elif kind is Disband:
            group = self.groups.get(action.group)
            if group is not None and not group.disbanded:
                group.disbanded = True
                self._ending.add(group.key)
                self._queue.append((group.key, Drained()))
        elif kind is Halt:
            self._ended(number, action.error)
        else:
            raise TypeError(f"a door gave the action {kind.__name__}")

    def _from_manager(self, action: Any, now: float) -> None:
        kind = type(action)
        if kind is Send:
            link, message = action.link, action.message
            if isinstance(link, int):
                to = self._by_number.get(link)
                if to is not None:
                    self._queue.append((to.key, Received(0, message)))
            else:
                self._out.append(action)
        elif kind is Resolve:
            # Each door knows the numbers of its own jobs.
            for number in self.fronts:
                self._at_door(number, action, now)
        elif kind is Halt:
            self._ended(_MANAGER, action.error)
        elif kind is Drop:
            self._out.append(action)

    def _from_device(self, action: Any) -> None:
        kind = type(action)
        if kind is Send:
            link: Link = action.link
            if isinstance(link, int):
                self._out.append(action)
                return
            group = self.groups.get(link.decode("utf-8", "replace"))
            if group is not None:
                arrived = Received(len(self._ends) - 1, action.message)
                self._queue.append((group.key, arrived))
        elif kind is Halt:
            self._ended(_DEVICE, action.error)
        elif kind is Drop:
            self._out.append(action)

    def _from_group(self, group: WorkerGroup, action: Any, now: float) -> None:
        kind = type(action)
        if kind is Send:
            end = self._ends[action.link]
            link: Link = group.number if end == _MANAGER else group.name.encode()
            self._queue.append((end, Received(link, action.message)))
        elif kind is Run or kind is Recall or kind is Interrupt:
            # At once: a foreign worker waits for the job.
            self._at_door(group.door, Of(group.name, action), now)
        elif kind is Reconnect:
            # Inside a gateway no connection can break.
            self._queue.append((group.key, Connected(action.link)))
        elif kind is Halt:
            group.halted = True
            self._ended(group.key, action.error)
            if group.disbanded:
                self._forget(group, now)
        elif kind is Drop:
            self._out.append(action)

    # -- links and time

    def _connected(self, link: int, now: float) -> None:
        """Let all groups search for managers behind a link that was connected."""
        self._up.add(link)
        for group in tuple(self._by_number.values()):
            if not group.halted:
                self._step(group.key, *group.connect(len(self._ends) - 1, now), now)

    def _ticked(self, now: float) -> None:
        self._note_deadlines()
        due = self._timers.due(now)
        for key in due:
            self._due[key] = None
        # After a pause of this process the signs of life of the groups must come before the manager
        # looks for them.
        for key in sorted(due, key=_order):
            self._give(key, Ticked(), now)
            self._work(now)

    # -- the end

    def _forget(self, group: WorkerGroup, now: float) -> None:
        """Forget a group that was disbanded; make it anew if it has workers again."""
        del self.groups[group.name], self._by_number[group.number]
        self._timers.clear(group.key)
        for table in (self._due, self._stepped, self._records, self._unrecorded):
            table.pop(group.key, None)
        self._ending.discard(group.key)
        again = self._again.pop(group.name, None)
        if again is not None:
            staff, door = again
            new_group = self._group(staff, door, now)
            new_group.places = staff.places
            self._busy[new_group.key] = new_group

    def _ended(self, key: _MachineKey, error: Exception | None) -> None:
        self._open.discard(key)
        if error is not None and self._error is None:
            self._error = error
            self._draining = True

    def _wind_up(self, now: float) -> None:
        """End the machines in turn: front doors, the manager, the groups, back doors (WMP-9.10).

        Requests that were accepted are still done, also by the foreign workers of this gateway.
        """
        if self._error is not None:
            self._close(now)
            return
        if not self._refusing:
            self._refusing = True
            for number in self.fronts:
                self._give(number, Drained(), now)
                self._work(now)
        self._settle(now)
        if any(
            number in self._open and self.doors[number].open_requests() for number in self.fronts
        ):
            return
        stages: tuple[set[_MachineKey], ...] = (
            self._open & {_MANAGER},
            {key for key in self._open if isinstance(key, str) and key.startswith("/")},
            {key for key in self._open if isinstance(key, int)},
        )
        for stage in stages:
            for key in sorted(stage - self._ending, key=str):
                self._ending.add(key)
                self._give(key, Drained(), now)
                self._work(now)
            self._settle(now)
            if stage & self._open:
                return
        self._halt()

    def _close(self, now: float) -> None:
        """End all machines at once; the groups send BYE to their managers."""
        for key in sorted(self._open, key=_order):
            self._give(key, Closed(), now)
            self._work(now)
        self._halt()

    def _halt(self) -> None:
        if not self._halted:
            self._halted = True
            self._out.append(Halt(self._error))


def _order(key: _MachineKey) -> int:
    """Return the place of a machine: groups, doors, the manager, the device."""
    if isinstance(key, int):
        return 1
    return 0 if key.startswith("/") else 2 if key == _MANAGER else 3
