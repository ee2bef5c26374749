"""A small world that can be copied, with a list of all possible next events.

Theory of operation. A :class:`Model` is a :class:`~wmp.testing.simulator.network.Network` whose
schedule comes from outside: :meth:`Model.moves` lists the possible events, :meth:`Model.make`
performs one of them, and :meth:`Model.snapshot` returns the state of the world. Copies share their
unchanged parts. A move mostly changes one machine, so only this machine is copied and outlined
again.

A :class:`Plan` states the submissions, the possible faults and the number of timers that may fire.
Time stands still except for timers: the earliest deadline of all nodes may fire at any moment,
before or after any message. So a message may be as slow as the remaining timers allow.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

from attrs import define, evolve, field

from wmp.actions import End, Halt
from wmp.balance import least_recently_used
from wmp.checks.canonical import Outline, Snapshot, canonical
from wmp.checks.job_history import History, Violation
from wmp.checks.observer import Observer, outline_of_observer
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import DeviceSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Received, Submitted
from wmp.message import Frame, Link, Message, Outcome, Peer
from wmp.runtime.executors.handlers import BEGAN
from wmp.testing.search.model_copy import copy_parts
from wmp.testing.search.plan import Cancel, ModelPlan, Submit
from wmp.testing.simulator.message_cache import MessageCache
from wmp.testing.simulator.network import Action, LinkQueue, Network, Pipe
from wmp.testing.state.clone import clone
from wmp.testing.state.snapshots import outline_of

Move = tuple[Hashable, ...]
"""A possible event: a word, and the node or pipe that it concerns."""

_QUIET: Final = 60.0
"""Seconds within which everything must end after the last fault."""


@define(eq=False, kw_only=True)
class Model(Network):
    """A world of a plan.

    Args:
        plan: The nodes, the submissions and the possible faults.
    """

    plan: ModelPlan
    done: int = field(default=0, init=False)
    """The number of finished steps of the plan's script."""
    ticks_left: int = field(init=False)
    faults_left: int = field(init=False)
    history: History = field(factory=History, init=False)
    observer: Observer = field(init=False)
    _epochs: dict[str, int] = field(factory=dict, init=False)
    _messages: MessageCache = field(factory=MessageCache, init=False)
    _own: set[str] = field(factory=set, init=False)
    """Nodes whose machine and lanes belong to this world alone."""
    _drawn: dict[str, Outline] = field(factory=dict, init=False)
    """Current outlines of machines."""

    def __attrs_post_init__(self) -> None:
        plan = self.plan
        self.observer = Observer(self.history)
        self.ticks_left, self.faults_left = 0, 0
        bound: dict[str, tuple[str, ...]] = {
            name: () for name in plan.managers if name not in plan.dials
        }
        for name, upstreams in {**bound, **plan.uplinks, **plan.dials}.items():
            self.add(name, self._node(name), upstreams)
        for name in (*plan.dials, *plan.workers):
            self.connect(name)
        if plan.settled:
            self.settle()
        self.ticks_left, self.faults_left = plan.ticks, plan.faults

    # -- copying

    def copy(self) -> Model:
        """Return an independent world in the same state."""
        new = copy_parts(self)
        new.history, new.observer = clone((self.history, self.observer))
        self._own.clear()  # from here on two worlds share all nodes
        return new

    def _take(self, name: str) -> None:
        """Copy a node for this world alone, before any event changes the node."""
        self._drawn.pop(name, None)
        if name not in self._own:
            self._own.add(name)
            self.nodes[name] = clone(self.nodes[name])
            self.lanes[name] = {
                number: LinkQueue(lane.run, list(lane.left), set(lane.cancelled))
                for number, lane in self.lanes[name].items()
            }

    # -- the state

    def snapshot(self, *, budgets: bool = True) -> Snapshot:
        """Return the canonical state of everything that decides about future events and violations.

        ``budgets``: whether the remaining faults are included.
        """
        drawn = self._drawn
        outlines = []
        for name, node in self.nodes.items():
            if name not in drawn:
                drawn[name] = outline_of(node)
            outlines.append(drawn[name])
        lanes = []
        numbers: list[tuple[tuple[Any, ...], tuple[int, ...]]] = []
        for name, running in self.lanes.items():
            if running:
                numbers.append((("lane", self.peer(name)), tuple(running)))
                lanes.append((name, tuple(map(_lane_shape, running.values()))))
        pipes = []
        outlines.append(outline_of_observer(self.observer))
        for pipe in sorted(self.pipes, key=_pipe_name):
            queue = self.pipes[pipe]
            pipes.append((pipe, len(queue)))
            outlines += [self._messages.outline(frames) for frames in queue]
        left = (self.ticks_left, self.faults_left, self.done) if budgets else ()
        shape = (tuple(lanes), tuple(pipes), tuple(sorted(self.down)), tuple(self.halted), left)
        outlines.append(Outline(shape, numbers=tuple(numbers)))
        return canonical(outlines, self.now)

    @property
    def waits(self) -> bool:
        """Return whether a job has not ended yet."""
        return any(self.history.open.values())

    @property
    def over(self) -> bool:
        """Whether the whole script is done and all jobs have ended."""
        return self.done == len(self.plan.script) and not self.waits

    def first(self, pipe: Pipe) -> Message:
        """Return the next message of a pipe."""
        return self._messages.message(self.pipes[pipe][0], peek=False)

    # -- moves

    def moves(self) -> list[Move]:
        """List all possible next events, in a fixed order."""
        moves: list[Move] = []
        busy = self.busy()
        kinds = self.plan.kinds if self.faults_left > 0 else ()
        over = self.over
        moves += [("deliver", *pipe) for pipe in busy]
        for name, lanes in self.lanes.items():
            for number, lane in lanes.items():
                moves.append(("finish", name, number))
                if lane.left[0] in lane.cancelled:
                    moves.append(("heed", name, number))
        if self.done < len(self.plan.script):
            moves.append(("step",))
        moves += [("start", name) for name in sorted(self.down)]
        if self.ticks_left > 0 and not over and (self.plan.slow or not busy):
            moves += [("tick", name) for name in self._first()]
        for kind in ("drop", "duplicate", "refuse"):
            if kind in kinds:
                # A worker ignores "undelivered", so this move would equal "drop".
                moves += [
                    (kind, *pipe)
                    for pipe in busy
                    if kind != "refuse" or not isinstance(self.nodes[pipe[0]], WorkerMachine)
                ]
        if "bereave" in kinds:
            moves += [("bereave", name, lane.run.lane) for name, lane in self.running()]
        if not over:
            for kind, names in (
                ("kill", self.plan.workers),
                ("restart device", self.plan.devices),
                ("restart manager", self.plan.managers),
            ):
                if kind in kinds:
                    moves += [(kind, name) for name in names if self.alive(name)]
        return moves

    def make(self, move: Move) -> None:
        """Perform a move.

        Raises:
            Violation: The move breaks an invariant.
        """
        try:
            self._make(move)
        except Violation:
            raise
        except Exception as error:
            raise Violation("no crash", f"{type(error).__name__}: {error}") from error

    def _make(self, move: Move) -> None:
        kind: Any
        kind, *rest = move
        name: Any = rest[0] if rest else ""
        match kind:
            case "deliver":
                self.deliver((name, rest[1]))  # type: ignore[arg-type]
            case "finish" | "heed":
                self._take(name)
                lane = self.lanes[name][rest[1]]  # type: ignore[index]
                self._finished(name, lane, heeds=kind == "heed")
            case "step":
                self._step()
            case "start":
                self._start(name)
            case "tick":
                self.ticks_left -= 1
                due = self.nodes[name].deadline()
                assert due is not None
                self.now = max(self.now, due)
                self.tick(name)
            case _:
                self.faults_left -= 1
                self._fault(kind, name, rest)

    def _fault(self, kind: str, name: str, rest: Sequence[Any]) -> None:
        match kind:
            case "drop":
                self.drop((name, rest[1]))
            case "duplicate":
                self.repeat((name, rest[1]))
            case "refuse":
                self.refuse((name, rest[1]))
            case "bereave":
                self._take(name)
                self.bereave(name, self.lanes[name][rest[1]])
            case "kill":
                self.down.add(name)
                self.lanes[name] = {}
                for below, link in self.connections(name):
                    self.part(below, link)
            case _:
                self._start(name)

    def _step(self) -> None:
        step = self.plan.script[self.done]
        self.done += 1
        match step:
            case Submit():
                self.submit(
                    step.manager,
                    [step.payload],
                    step.kind,
                    timeout=step.timeout,
                    max_worker_losses=step.max_worker_losses,
                )
            case Cancel(manager, id):
                self.cancel(manager, [id])

    def _start(self, name: str) -> None:
        """Start a node again, with a newer epoch."""
        if name in self.plan.managers:
            self.observer.died(self.peer(name))
            self.restart_ids(name)
        self.down.discard(name)
        self._own.add(name)
        self._drawn.pop(name, None)
        self.lanes[name] = {}
        self.replace(name, self._node(name))
        if name in self.plan.workers or name in self.plan.dials:
            self.connect(name)

    def _node(self, name: str) -> ManagerMachine | WorkerMachine | DeviceMachine:
        epoch = self._epochs[name] = self._epochs.get(name, 0) + 1
        plan = self.plan
        if name in plan.managers:
            settings = evolve(plan.manager, identity=name.encode(), epoch=epoch)
            self.history.open[settings.identity, epoch] = {}
            return ManagerMachine(settings, least_recently_used)
        links = len(plan.uplinks[name])
        if name in plan.workers:
            worker = evolve(plan.workers[name], identity=name.encode(), epoch=epoch)
            return WorkerMachine(worker, links)
        return DeviceMachine(DeviceSettings(identity=name.encode(), epoch=epoch, upstreams=links))

    def _first(self) -> list[str]:
        """List the nodes with the earliest deadline."""
        first: list[str] = []
        when = float("inf")
        for name, node in self.nodes.items():
            due = node.deadline() if self.alive(name) else None
            if due is not None and due <= when:
                first = [*first, name] if due == when else [name]
                when = due
        return first

    # -- the end without faults

    def close(self, known: set[int]) -> None:
        """Check that without further faults everything ends, and that new jobs end too.

        Args:
            known: Hashes of states from which everything ends; this method adds more.

        Raises:
            Violation: "every job ends", or another invariant.
        """
        self.ticks_left = self.faults_left = 0
        passed: list[int] = []
        try:
            for name in sorted(self.down):
                self._start(name)
            if self._quiet(known, passed, 1):
                return
            for name in self.plan.managers:
                if self.alive(name):
                    self.submit(name, [b"probe of " + name.encode()])
            self._quiet(known, passed, 2)
        except Violation:
            raise
        except Exception as error:
            raise Violation("no crash", f"{type(error).__name__}: {error}") from error
        known.update(passed)

    def _quiet(self, known: set[int], passed: list[int], phase: int) -> bool:
        """Run until nothing waits; True if a state that is known to be good is reached first."""
        until = self.now + _QUIET
        while True:
            self.settle(10_000)
            state = hash((phase, self.snapshot(budgets=False)))
            if state in known:
                return True
            passed.append(state)
            if not self.waits:
                return False
            due = self.deadline()
            if due is None or due > until:
                self.history.finish()
                return False
            self.advance(due)

    # -- overridden decisions of the schedule

    def happen(self, name: str, event: object) -> None:
        """Give a node an event; a node shared with other worlds is copied first."""
        self._take(name)
        Network.happen(self, name, event)

    def handled(self, name: str, event: object, actions: Sequence[Action]) -> None:
        """Record the event in the history."""
        node = self.nodes[name]
        self._drawn.pop(name, None)
        if isinstance(node, ManagerMachine):
            if isinstance(event, Submitted):
                owner = self.peer(name)
                for id, payload in zip(event.ids, event.payloads, strict=True):
                    result = {End.OK: b"did " + bytes(payload)}
                    self.history.accepted(owner, id, result, event.max_worker_losses)
            self.observer.manager_did(node.settings, event, actions, self.now)
        elif isinstance(node, WorkerMachine):
            self.observer.worker_did(self.peer(name), event, actions, self.now)
            try:
                node.check_invariants()
            except AssertionError as error:
                raise Violation("no crash", f"an invariant of {name} is broken: {error}") from error
        if actions and isinstance(actions[-1], Halt):
            raise Violation("one process for each identity", f"{name} stopped: {actions[-1].error}")

    def peer(self, name: str) -> Peer:
        """(identity, epoch) of a node."""
        settings = self.nodes[name].settings
        return settings.identity, settings.epoch

    def arrive(self, pipe: Pipe, frames: list[Frame]) -> None:
        """Let frames arrive; frames are read once for all worlds."""
        name, link = self._far[pipe]
        if self.alive(name):
            peek = isinstance(self.nodes[name], DeviceMachine)
            self.happen(name, Received(link, self._messages.message(frames, peek=peek)))

    def begin(self, name: str, lane: LinkQueue) -> None:
        """Begin the first job that is left in a lane."""
        id = lane.left[0]
        row = list(lane.run.ids).index(id)
        attempt, runs = lane.run.attempts[row], lane.run.runs_before(row)
        self.history.begun(self.peer(name), lane.run.manager, id, attempt, runs=runs)
        taken: dict[str, int] = {}
        for other in self.lanes[name].values():
            for what, amount in other.run.kind.needs:
                taken[what] = taken.get(what, 0) + amount
        self.history.booked(name, taken, self.plan.workers[name].resources)

    def _finished(self, name: str, lane: LinkQueue, *, heeds: bool) -> None:
        if heeds:
            self.end(name, lane, Outcome.CANCELLED, b"", BEGAN)
        else:
            self.end(name, lane, Outcome.OK, b"did " + lane.payload(lane.left[0]))


def _lane_shape(lane: LinkQueue) -> Hashable:
    run = lane.run
    return run.manager, tuple(run.ids), tuple(run.attempts), len(lane.left), tuple(lane.cancelled)


def _pipe_name(pipe: tuple[str, Link]) -> tuple[str, str]:
    return pipe[0], repr(pipe[1])
