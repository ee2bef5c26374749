"""How each fault that strikes at a time is done to a world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.worker.machine import WorkerMachine
from wmp.testing.faults import Fault, Strike
from wmp.testing.network import LinkQueue, Pipe
from wmp.testing.workload import SubmitBatch, Task

if TYPE_CHECKING:
    from wmp.testing.world import World

__all__ = ["strike"]

_HERD = 8
"""Jobs that each manager gets at once."""

_T = TypeVar("_T")


def strike(world: World, blow: Strike) -> None:
    """Do a fault to whom it hits, and count it if there is anybody."""
    if world.mended:
        return
    world.say(f"fault: {blow.fault.value}")
    if _STRIKES[blow.fault](world, blow):
        world.counts[blow.fault] += 1


def _one(among: Sequence[_T], blow: Strike) -> _T | None:
    return among[int(blow.pick * len(among))] if among else None


def _nodes(world: World, *kinds: type) -> list[str]:
    """Nodes of these kinds that run, and are the newest of their identity."""
    return [
        name
        for name, node in world.nodes.items()
        if world.alive(name) and isinstance(node, kinds) and name not in world.paused
    ]


def _heal(world: World, pairs: list[tuple[str, str]], until: float) -> None:
    for pair in pairs:
        if world.cut.get(pair) == until:
            del world.cut[pair]


def _separate(world: World, pairs: list[tuple[str, str]], seconds: float) -> None:
    until = world.now + seconds
    for pair in pairs:
        world.cut[pair] = until
    world.say(f"nothing passes {', '.join(f'{a} → {b}' for a, b in pairs)} for {seconds:.2f} s")
    world.after(seconds, _heal, world, pairs, until)


def _neighbours(world: World, name: str) -> list[str]:
    found: dict[str, None] = {}
    for below, link in world.connections(name):
        above = world.uplinks[below][link]
        found[above if below == name else below] = None
    return list(found)


def _one_way(world: World, blow: Strike) -> bool:
    pairs = [(below, above) for below, ups in world.uplinks.items() for above in ups]
    pair = _one(pairs, blow)
    if pair is None:
        return False
    if blow.twist < 0.5:
        pair = pair[1], pair[0]
    _separate(world, [pair], 0.2 + 4 * blow.lasts)
    return True


def _two_way(world: World, blow: Strike) -> bool:
    name = _one(_nodes(world, ManagerMachine, WorkerMachine, DeviceMachine), blow)
    if name is None:
        return False
    others = _neighbours(world, name)
    if blow.twist < 0.4:
        others = others[: max(1, len(others) // 2)]
    _separate(
        world, [pair for o in others for pair in ((name, o), (o, name))], 0.2 + 4 * blow.lasts
    )
    return True


def _connected(world: World) -> list[Pipe]:
    return [pipe for pipe in world.pipes if isinstance(pipe[1], int)]


def _half_open(world: World, blow: Strike) -> bool:
    pipe = _one(_connected(world), blow)
    if pipe is None or not isinstance(pipe[1], int):
        return False
    world.say(f"{pipe[0]}'s link {pipe[1]} dies unnoticed")
    world.deaden(pipe[0], pipe[1])
    return True


def _full(world: World, blow: Strike) -> bool:
    pipe = _one([pipe for pipe in world.pipes if pipe not in world.full], blow)
    if pipe is None:
        return False
    world.say(f"{pipe[0]}'s pipe {pipe[1]!r} is full")
    world.full[pipe] = []
    world.after(0.1 + 3 * blow.lasts, world.flush, pipe)
    return True


def _kill(world: World, blow: Strike, kind: type) -> bool:
    name = _one(_nodes(world, kind), blow)
    if name is None:
        return False
    world.kill(name, silently=blow.twist < 0.5)
    return True


def _kill_worker(world: World, blow: Strike) -> bool:
    return _kill(world, blow, WorkerMachine)


def _kill_manager(world: World, blow: Strike) -> bool:
    return _kill(world, blow, ManagerMachine)


def _pause(world: World, blow: Strike) -> bool:
    name = _one(_nodes(world, ManagerMachine, WorkerMachine, DeviceMachine), blow)
    if name is None:
        return False
    world.pause(name, 0.9 * blow.lasts * world.topology.timers.expire)
    return True


def _with_memory(world: World, blow: Strike) -> bool:
    name = _one(_nodes(world, ManagerMachine, WorkerMachine), blow)
    if name is None:
        return False
    world.pause(name, (1.1 + blow.lasts) * world.topology.timers.expire)
    return True


def _restart(world: World, blow: Strike, *kinds: type) -> bool:
    name = _one(_nodes(world, *kinds), blow)
    if name is None:
        return False
    world.kill(name, silently=blow.twist < 0.3)
    world.after(0.5 * blow.lasts, _start, world, name, world.nodes[name])
    return True


def _start(world: World, name: str, node: object) -> None:
    if name in world.down and world.nodes[name] is node:
        world.start(name)


def _without_memory(world: World, blow: Strike) -> bool:
    return _restart(world, blow, ManagerMachine, WorkerMachine)


def _device(world: World, blow: Strike) -> bool:
    return _restart(world, blow, DeviceMachine)


def _slow(world: World, blow: Strike) -> bool:
    name = _one(_nodes(world, WorkerMachine), blow)
    if name is None:
        return False
    world.say(f"{name} is slow")
    world.slow[name] = 2 + 10 * blow.twist
    world.after(4 * blow.lasts, _quicken, world, name)
    return True


def _quicken(world: World, name: str) -> None:
    world.slow.pop(name, None)


def _at_work(world: World, blow: Strike) -> tuple[str, LinkQueue] | None:
    """A job that runs, with its worker; while there is none, the next one that begins is hit."""
    workers = _nodes(world, WorkerMachine)
    found = _one([(name, lane) for name, lane in world.running() if name in workers], blow)
    if found is None:
        world.doomed.append(blow)
    return found


def _kill_handler(world: World, blow: Strike) -> bool:
    found = _at_work(world, blow)
    if found is None:
        return False
    name, lane = found
    world.say(f"what runs lane {lane.run.lane} of {name} dies")
    world.bereave(name, lane)
    return True


def _hang(world: World, blow: Strike) -> bool:
    found = _at_work(world, blow)
    if found is None:
        return False
    world.hang(*found, 0.5 + 4 * blow.lasts)
    return True


def _collision(world: World, blow: Strike) -> bool:
    double = world.topology.double
    if double is None or f"{double}+" in world.nodes or not world.alive(double):
        return False
    world.start(f"{double}+")
    return True


def _herd(world: World, blow: Strike) -> bool:
    for name, link in _connected(world):
        if isinstance(link, int) and isinstance(world.nodes[name], WorkerMachine):
            world.rejoin(name, link)
    for name in _nodes(world, ManagerMachine):
        kinds = world.topology.kinds(name)
        if not kinds:
            continue
        tasks = tuple(
            Task(f"{name} herd {world.now:.6f}.{row} ".encode(), 0.002, fails=False, heeds=True)
            for row in range(_HERD)
        )
        kind = kinds[int(blow.twist * len(kinds))]
        world.offer(SubmitBatch(world.now, name, kind, tasks))
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
