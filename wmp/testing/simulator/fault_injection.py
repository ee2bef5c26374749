"""Injection of the faults that happen at a set time (strikes) into a world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from attrs import define, field

from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.worker.machine import WorkerMachine
from wmp.testing.simulator.agenda import Agenda
from wmp.testing.simulator.faults import Fault, Strike
from wmp.testing.simulator.faulty_connections import FaultyConnections
from wmp.testing.simulator.fleet import SimulatedFleet
from wmp.testing.simulator.lane_runner import LaneRunner
from wmp.testing.simulator.network import LinkQueue, Network, Pipe
from wmp.testing.simulator.trace import Trace
from wmp.testing.simulator.workload import SimulatedTask, SubmitBatch

_HERD = 8
"""Number of jobs that each manager gets at once in the fault ``wake herd``."""

_T = TypeVar("_T")


@define(eq=False)
class FaultInjector:
    """Injects faults into the parts of a world while the injector is active.

    Args:
        network: Has the nodes, pipes and lanes that a fault may hit.
        agenda: Ends each fault in time.
        connections: Cuts, breaks and fills connections.
        fleet: Kills, pauses and starts nodes.
        runner: Hangs, ends and slows handlers.
        trace: Records every fault.
        counts: The number of strikes of each fault.
    """

    network: Network
    agenda: Agenda
    connections: FaultyConnections
    fleet: SimulatedFleet
    runner: LaneRunner
    trace: Trace
    counts: Counter[Fault]
    offer: Callable[[SubmitBatch], None] = field(init=False)
    """Submits a batch of jobs."""
    active: bool = field(default=True, init=False)
    doomed: list[Strike] = field(factory=list, init=False)
    """Strikes that wait for a running job."""

    def strike(self, blow: Strike) -> None:
        """Inject a fault into the node that it hits; count the fault if there is such a node."""
        if not self.active:
            return
        self.note(f"fault: {blow.fault.value}")
        if _STRIKES[blow.fault](self, blow):
            self.counts[blow.fault] += 1

    def job_begun(self, takes: float) -> None:
        """Let a waiting strike hit while the job that has begun runs."""
        if self.doomed:
            self.agenda.after(takes / 2, self.strike, self.doomed.pop())

    def note(self, text: str) -> None:
        """Record a fault in the trace."""
        self.trace.note(self.agenda.now, text)


def _picked(among: Sequence[_T], blow: Strike) -> _T | None:
    return among[int(blow.pick * len(among))] if among else None


def _nodes(world: FaultInjector, *kinds: type) -> list[str]:
    """Return the running nodes of these kinds that are the newest of their identity."""
    return [
        name
        for name, node in world.network.nodes.items()
        if world.network.alive(name) and isinstance(node, kinds) and name not in world.fleet.paused
    ]


def _heal(world: FaultInjector, pairs: list[tuple[str, str]], until: float) -> None:
    for pair in pairs:
        if world.connections.cut.get(pair) == until:
            del world.connections.cut[pair]


def _separate(world: FaultInjector, pairs: list[tuple[str, str]], seconds: float) -> None:
    until = world.agenda.now + seconds
    for pair in pairs:
        world.connections.cut[pair] = until
    world.note(f"no message passes {', '.join(f'{a} → {b}' for a, b in pairs)} for {seconds:.2f} s")
    world.agenda.after(seconds, _heal, world, pairs, until)


def _neighbours(world: FaultInjector, name: str) -> list[str]:
    names: dict[str, None] = {}
    for below, link in world.network.connections(name):
        above = world.network.uplinks[below][link]
        names[above if below == name else below] = None
    return list(names)


def _one_way(world: FaultInjector, blow: Strike) -> bool:
    pairs = [(below, above) for below, ups in world.network.uplinks.items() for above in ups]
    pair = _picked(pairs, blow)
    if pair is None:
        return False
    if blow.twist < 0.5:
        pair = pair[1], pair[0]
    _separate(world, [pair], 0.2 + 4 * blow.lasts)
    return True


def _two_way(world: FaultInjector, blow: Strike) -> bool:
    name = _picked(_nodes(world, ManagerMachine, WorkerMachine, DeviceMachine), blow)
    if name is None:
        return False
    others = _neighbours(world, name)
    if blow.twist < 0.4:
        others = others[: max(1, len(others) // 2)]
    _separate(
        world, [pair for o in others for pair in ((name, o), (o, name))], 0.2 + 4 * blow.lasts
    )
    return True


def _connected(world: FaultInjector) -> list[Pipe]:
    uplinks = world.network.uplinks
    return [
        (name, link)
        for name, link in world.network.pipes
        if isinstance(link, int) and link < len(uplinks[name])
    ]


def _half_open(world: FaultInjector, blow: Strike) -> bool:
    pipe = _picked(_connected(world), blow)
    if pipe is None or not isinstance(pipe[1], int):
        return False
    world.note(f"{pipe[0]}: link {pipe[1]} breaks, and no end is notified")
    world.connections.deaden(pipe[0], pipe[1])
    return True


def _full(world: FaultInjector, blow: Strike) -> bool:
    pipe = _picked(
        [pipe for pipe in world.network.pipes if pipe not in world.connections.full], blow
    )
    if pipe is None:
        return False
    world.note(f"{pipe[0]}'s pipe {pipe[1]!r} is full")
    world.connections.full[pipe] = []
    world.agenda.after(0.1 + 3 * blow.lasts, world.connections.flush, pipe)
    return True


def _kill(world: FaultInjector, blow: Strike, kind: type) -> bool:
    name = _picked(_nodes(world, kind), blow)
    if name is None:
        return False
    world.fleet.kill(name, silently=blow.twist < 0.5)
    return True


def _kill_worker(world: FaultInjector, blow: Strike) -> bool:
    return _kill(world, blow, WorkerMachine)


def _kill_manager(world: FaultInjector, blow: Strike) -> bool:
    return _kill(world, blow, ManagerMachine)


def _pause(world: FaultInjector, blow: Strike) -> bool:
    name = _picked(_nodes(world, ManagerMachine, WorkerMachine, DeviceMachine), blow)
    if name is None:
        return False
    world.fleet.pause(name, 0.9 * blow.lasts * world.fleet.topology.timers.max_silence)
    return True


def _with_memory(world: FaultInjector, blow: Strike) -> bool:
    name = _picked(_nodes(world, ManagerMachine, WorkerMachine), blow)
    if name is None:
        return False
    world.fleet.pause(name, (1.1 + blow.lasts) * world.fleet.topology.timers.max_silence)
    return True


def _restart(world: FaultInjector, blow: Strike, *kinds: type) -> bool:
    name = _picked(_nodes(world, *kinds), blow)
    if name is None:
        return False
    world.fleet.kill(name, silently=blow.twist < 0.3)
    world.fleet.restart(name, 0.5 * blow.lasts)
    return True


def _without_memory(world: FaultInjector, blow: Strike) -> bool:
    return _restart(world, blow, ManagerMachine, WorkerMachine)


def _device(world: FaultInjector, blow: Strike) -> bool:
    return _restart(world, blow, DeviceMachine)


def _slow(world: FaultInjector, blow: Strike) -> bool:
    name = _picked(_nodes(world, WorkerMachine), blow)
    if name is None:
        return False
    world.note(f"{name} is slow")
    world.runner.slow[name] = 2 + 10 * blow.twist
    world.agenda.after(4 * blow.lasts, _quicken, world, name)
    return True


def _quicken(world: FaultInjector, name: str) -> None:
    world.runner.slow.pop(name, None)


def _at_work(world: FaultInjector, blow: Strike) -> tuple[str, LinkQueue] | None:
    """Return a running job with its worker.

    Without a running job the strike waits for the next job.
    """
    workers = _nodes(world, WorkerMachine)
    running = _picked(
        [(name, lane) for name, lane in world.network.running() if name in workers], blow
    )
    if running is None:
        world.doomed.append(blow)
    return running


def _kill_handler(world: FaultInjector, blow: Strike) -> bool:
    running = _at_work(world, blow)
    if running is None:
        return False
    name, lane = running
    world.note(f"the process of lane {lane.run.lane} of {name} dies")
    world.runner.bereave(name, lane)
    return True


def _hang(world: FaultInjector, blow: Strike) -> bool:
    running = _at_work(world, blow)
    if running is None:
        return False
    world.runner.hang(*running, 0.5 + 4 * blow.lasts)
    return True


def _collision(world: FaultInjector, blow: Strike) -> bool:
    double = world.fleet.topology.double
    if double is None or f"{double}+" in world.network.nodes or not world.network.alive(double):
        return False
    world.fleet.start(f"{double}+")
    return True


def _herd(world: FaultInjector, blow: Strike) -> bool:
    for name, link in _connected(world):
        if isinstance(link, int) and isinstance(world.network.nodes[name], WorkerMachine):
            world.connections.rejoin(name, link)
    for name in _nodes(world, ManagerMachine):
        kinds = world.fleet.topology.kinds(name)
        if not kinds:
            continue
        tasks = tuple(
            SimulatedTask(
                f"{name} herd {world.agenda.now:.6f}.{row} ".encode(),
                0.002,
                fails=False,
                heeds=True,
            )
            for row in range(_HERD)
        )
        kind = kinds[int(blow.twist * len(kinds))]
        world.offer(SubmitBatch(world.agenda.now, name, kind, tasks))
    return True


_STRIKES = {
    Fault.ONE_WAY_PARTITION: _one_way,
    Fault.TWO_WAY_PARTITION: _two_way,
    Fault.HALF_OPEN: _half_open,
    Fault.FULL_PIPE: _full,
    Fault.KILL_WORKER: _kill_worker,
    Fault.KILL_MANAGER: _kill_manager,
    Fault.PAUSE: _pause,
    Fault.RESTART_WITH_MEMORY: _with_memory,
    Fault.RESTART_WITHOUT_MEMORY: _without_memory,
    Fault.RESTART_DEVICE: _device,
    Fault.SLOW_WORKER: _slow,
    Fault.IDENTITY_COLLISION: _collision,
    Fault.WAKE_HERD: _herd,
    Fault.KILL_HANDLER: _kill_handler,
    Fault.HANG: _hang,
}
