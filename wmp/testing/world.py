"""One seed, one world: the machines of a small fleet in virtual time, with faults.

Theory of operation. A :class:`World` is a :class:`~wmp.testing.network.Network` with an agenda:
a heap of things to do at a time, in which a number breaks ties. A step takes the earlier of
the agenda's first entry and the earliest deadline of a node. What goes wrong, what is asked
for, and how long messages take are drawn from streams of their own, so that one draw more in
one of them leaves the others as they were.

A world has two halves. Up to ``faults.until`` things go wrong. Then all that was broken is mended,
except what the nodes must find out themselves (half-open links), and everything that was
accepted must end in bounded time.

Nothing here depends on hashes, addresses or the real clock: equal seeds have equal traces in any
process.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from random import Random
from typing import Any

from attrs import define, evolve, field, frozen

from wmp import codec
from wmp.actions import End, Halt
from wmp.balance import least_recently_used
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import DeviceSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.errors import Superseded
from wmp.events import Connected, Drained, Submitted, Undelivered
from wmp.message import Frame, Message, Outcome, Peer
from wmp.testing.fault_injection import strike
from wmp.testing.faults import Fault, Faults, Strike, draw_faults
from wmp.testing.invariants import History, Violation
from wmp.testing.journals import Journals
from wmp.testing.network import Action, LinkQueue, Network, Pipe
from wmp.testing.observer import Observer
from wmp.testing.starvation_check import StarvationCheck
from wmp.testing.tables import check_tables
from wmp.testing.topology import Topology, draw_topology
from wmp.testing.trace import Trace
from wmp.testing.workload import SubmitBatch, Task, Wish, Workload, draw_batch, draw_workload

__all__ = ["BUDGET", "World", "WorldReport", "simulate"]

BUDGET = 30_000
"""Events after which a world counts as livelocked."""
_AT_ONCE = 4_000
"""Events without time moving on after which it does."""
_PARKED = 16
"""Messages that an end node keeps for a full pipe."""
_LOOK = 0.25
"""Seconds between two looks at a handler that hangs."""
_CHECK_EVERY = 24
"""Events between two looks into the machines."""


@frozen
class WorldReport:
    """How a world went."""

    seed: int
    violation: Violation | None
    digest: str
    hours: float
    """Virtual time that passed."""
    steps: int
    messages: int
    """Put on a connection, by any node."""
    jobs: int
    begun: int
    """Executions."""
    ends: dict[str, int]
    faults: dict[str, int]
    """How often each kind struck."""
    met: float
    """The longest that a job without faults waited for an idle worker, in seconds."""
    trace: tuple[str, ...] = ()
    """The last steps (of a violation) or all of them (when asked for), in words."""


@define(eq=False, kw_only=True)
class World(Network):
    """A seeded world.

    Args:
        seed: All of it.
        keep: How many steps of the trace can be told; None for all.
        journals: Where its nodes write what they do, if they do.
    """

    seed: int
    keep: int | None = 30
    journals: Journals | None = None
    budget: int = field(default=BUDGET, init=False)
    topology: Topology = field(init=False)
    faults: Faults = field(init=False)
    workload: Workload = field(init=False)
    history: History = field(factory=History, init=False)
    witness: Observer = field(init=False)
    meetings: StarvationCheck = field(factory=StarvationCheck, init=False)
    trace: Trace = field(init=False)
    counts: Counter[Fault] = field(factory=Counter, init=False)
    ends: Counter[End] = field(factory=Counter, init=False)
    begun: Counter[str] = field(factory=Counter, init=False)
    """Executions by worker."""
    newest: dict[bytes, str] = field(factory=dict, init=False)
    """Identity to the node of its newest epoch."""
    cut: dict[tuple[str, str], float] = field(factory=dict, init=False)
    """(sender, receiver) between which nothing passes, and until when."""
    stale: set[Pipe] = field(factory=set, init=False)
    """Pipes of connections that are dead and do not know."""
    full: dict[Pipe, list[list[Frame]]] = field(factory=dict, init=False)
    """Pipes that take nothing, and what is parked for them."""
    paused: dict[str, list[tuple[Callable[..., None], tuple[Any, ...]]]] = field(
        factory=dict, init=False
    )
    """Nodes that get no events, and what waits for them."""
    slow: dict[str, float] = field(factory=dict, init=False)
    """Workers whose handlers take that many times longer."""
    doomed: list[Strike] = field(factory=list, init=False)
    """Strikes that wait for a job to run."""
    hung: set[tuple[LinkQueue, int]] = field(factory=set, init=False)
    """Jobs, by lane and number, whose handlers do not return by themselves."""
    mended: bool = field(default=False, init=False)
    _tasks: dict[bytes, Task] = field(factory=dict, init=False)
    _submitted: dict[int, tuple[str, int, range]] = field(factory=dict, init=False)
    _agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = field(
        factory=list, init=False
    )
    _ties: int = field(default=0, init=False)
    _due: dict[str, float] = field(factory=dict, init=False)
    """The deadline of each node that has one, in the world's time."""
    _shown: dict[str, float] = field(factory=dict, init=False)
    """What each clock showed last: it never goes back."""
    _last: dict[Pipe, float] = field(factory=dict, init=False)
    """When the last message on each pipe arrives."""
    _held_up: float = field(default=0.0, init=False)
    """Seconds after the faults in which what they held up still arrives."""
    _latency: dict[str, float] = field(factory=dict, init=False)
    _epochs: Counter[bytes] = field(factory=Counter, init=False)
    _at_once: int = field(default=0, init=False)
    _net: Random = field(init=False)
    _weather: Random = field(init=False)
    _probes: Random = field(init=False)

    def __attrs_post_init__(self) -> None:
        def stream(name: str) -> Random:
            return Random(f"{self.seed}:{name}")

        self.trace = Trace(self.keep)
        self.witness = Observer(self.history)
        self._net, self._weather = stream("net"), stream("weather")
        self._probes = stream("probes")
        self.topology = draw_topology(stream("topology"))
        names = [*self.topology.managers, *self.topology.uplinks]
        self.faults = draw_faults(names, stream("faults"))
        self.workload = draw_workload(self.topology, self.faults.until, stream("workload"))

    # -- the whole of it

    def play(self) -> WorldReport:
        """Run the world to its end."""
        violation = None
        try:
            self._open()
            self._run(self.faults.until)
            self._mend()
            self._wait()
            if self._probes.random() < 0.1:
                self._run(self.calm)  # then the probes' jobs must start in the tight time
            self._probe()
            self._wait()
            self.history.finish()
            self._look_into()
        except Violation as error:
            violation = error
        except Exception as error:  # noqa: BLE001 - a machine's defect is what we look for
            violation = Violation("no crash", f"{type(error).__name__}: {error}")
            violation.__cause__ = error
        if self.journals is not None:
            self.journals.close(self.alive)
        told = violation is not None or self.keep is None
        return WorldReport(
            seed=self.seed,
            violation=violation,
            digest=self.trace.digest(),
            hours=self.now / 3600,
            steps=self.trace.steps,
            messages=self.sent.total(),
            jobs=len(self._tasks),
            begun=self.begun.total(),
            ends={end.value: count for end, count in self.ends.items()},
            faults={fault.value: count for fault, count in self.counts.items()},
            met=self.meetings.longest,
            trace=tuple(self.trace.lines()) if told else (),
        )

    def _open(self) -> None:
        topology, net = self.topology, self._net
        for name in topology.managers:
            self.uplinks[name] = ()
        self.uplinks.update(topology.uplinks)
        for name in self.uplinks:
            self.lanes[name] = {}
            self.down.add(name)
            self._latency[name] = topology.timers.latency * net.random()
        if self.faults.skew:
            self.counts[Fault.CLOCK_SKEW] = len(self.faults.skew)
        for name in self.uplinks:
            if not name.endswith("+"):
                self.at(net.choice((0.0, net.uniform(0, 1))), self.start, name)
        for number, batch in enumerate(self.workload.batches):
            self.at(batch.at, self.offer, batch, number)
        for wish in self.workload.wishes:
            self.at(wish.at, self._withdraw, wish)
        for leave in self.workload.leaves:
            self.at(leave.at, self.drain, leave.worker)
        for blow in self.faults.strikes:
            self.at(blow.at, strike, self, blow)

    def _mend(self) -> None:
        """All faults stop; what only a node can find out stays for it to find."""
        self.say("the faults stop")
        self.mended = True
        self.cut.clear()
        self.slow.clear()
        for pipe in tuple(self.full):
            self.flush(pipe)
        for name in tuple(self.paused):
            self.resume(name)
        for name in self.uplinks:
            if name in self.down and not (name.endswith("+") and name not in self.nodes):
                self.start(name)
            for link in range(len(self.uplinks[name])):
                self.attempt(name, link)
        self._held_up = max(0.0, max(self._last.values(), default=0.0) - self.now)

    def _wait(self) -> None:
        """Let everything end that must; raise when it takes longer than it may."""
        until = max(self.now, self.calm) + self._patience()
        while self.now < until and not self._settled():
            self._run(min(until, self.now + 0.1))
            if self.now >= self.calm:
                self.meetings.look(self)
        for identity, name in self.newest.items():
            for other in self.nodes:
                if self._identity(other) == identity and other != name and self.alive(other):
                    raise Violation("the newest epoch lives", f"{other} did not stop for {name}")
        if not self._settled():
            self.history.finish()

    @property
    def calm(self) -> float:
        """When all must have found each other again: connections that were held up are slow."""
        timers = self.topology.timers
        found = 4 * timers.ping + timers.backoff + max(timers.expire, 6.0) + 1.0
        freed = timers.hold + timers.lock_timeout + 2 * timers.resend
        return self.faults.until + self._held_up + 1.05 * (found + freed + 4 * timers.trip)

    def _patience(self) -> float:
        """How long everything that is left may take, one after the other, READY backed off."""
        work = sum(batch.tasks[0].takes * len(batch.tasks) for batch in self.workload.batches)
        running = [until for until, _, what, _ in self._agenda if what == self._finish]
        slow = max(0.0, max(running, default=0.0) - self.now)
        timers = self.topology.timers
        return 2 * work + slow + 10.0 + 2 * timers.backoff + len(self._tasks) * timers.trip

    def _settled(self) -> bool:
        if any(self.history.open.values()):
            return False
        return all(
            self.newest.get(self._identity(name), name) == name or not self.alive(name)
            for name in self.nodes
        )

    def _probe(self) -> None:
        """One more job for every manager, now that nothing is left to do."""
        for name in self.topology.managers:
            if self.alive(name):
                batch = draw_batch(self.topology, self.now, f"probe {name}", 1, self._probes)
                batch = evolve(batch, manager=name, timeout=None)
                kinds = self.topology.kinds(name)
                self.offer(evolve(batch, kind=self._probes.choice(kinds)))

    # -- time

    def at(self, when: float, what: Callable[..., None], *arguments: Any) -> None:
        """Do something at a time."""
        self._ties += 1
        heapq.heappush(self._agenda, (max(when, self.now), self._ties, what, arguments))

    def after(self, seconds: float, what: Callable[..., None], *arguments: Any) -> None:
        """Do something in a while."""
        self.at(self.now + seconds, what, *arguments)

    def _run(self, until: float) -> None:
        agenda, due = self._agenda, self._due
        while True:
            name = min(due, key=due.__getitem__) if due else ""
            tick = due[name] if due else float("inf")
            first = agenda[0][0] if agenda else float("inf")
            now = min(tick, first)
            if now > until:
                break
            if now > self.now:
                self.now, self._at_once = now, 0
            self._at_once += 1
            if self._at_once > _AT_ONCE or self.trace.steps > self.budget:
                detail = f"{self.trace.steps} events by {self.now:.3f} s"
                raise Violation("no livelock", f"{detail}, {self._at_once} of them at once")
            if tick <= first:
                self._ring(name)
            else:
                _, _, what, arguments = heapq.heappop(agenda)
                what(*arguments)
        self.now = max(self.now, until)

    def _ring(self, name: str) -> None:
        when = self.nodes[name].deadline()
        assert when is not None
        # The way there and back through a skewed clock may have rounded it off.
        self._shown[name] = max(self.local(name), when)
        try:
            self.tick(name)
        except AssertionError as error:
            if isinstance(error, Violation):
                raise
            raise Violation("no livelock", str(error)) from error

    def local(self, name: str) -> float:
        """What the clock of a node shows."""
        offset, rate = self.faults.skew.get(name, (0.0, 1.0))
        shown = max(offset + rate * self.now, self._shown.get(name, -inf))
        self._shown[name] = shown
        return shown

    def _plan(self, name: str) -> None:
        """Note when a node must be ticked."""
        when = self.nodes[name].deadline() if self.alive(name) else None
        if when is None or name in self.paused:
            self._due.pop(name, None)
        else:
            offset, rate = self.faults.skew.get(name, (0.0, 1.0))
            self._due[name] = max(self.now, (when - offset) / rate)

    # -- nodes

    def start(self, name: str) -> None:
        """Start a process of this node, with an epoch above every earlier one."""
        identity = self._identity(name)
        self._epochs[identity] += 1
        epoch = 1000 + self._epochs[identity]
        topology = self.topology
        if name in topology.managers:
            settings = topology.manager_settings(name, epoch)
            self.nodes[name] = ManagerMachine(settings, least_recently_used)
            self._last_id[name] = 0
            self.history.open[identity, epoch] = {}
        elif name in topology.workers:
            worker = evolve(topology.workers[name], epoch=epoch)
            self.nodes[name] = WorkerMachine(worker, len(self.uplinks[name]))
        else:
            upstreams = len(self.uplinks[name])
            device = DeviceSettings(identity=identity, epoch=epoch, upstreams=upstreams)
            self.nodes[name] = DeviceMachine(device)
        self.newest[identity] = name
        self.halted.pop(name, None)
        self.down.discard(name)
        self.say(f"{name} starts, epoch {epoch}")
        for below, link in self.connections(name):
            self.after(self._net.uniform(0, 0.1), self.attempt, below, link)

    def kill(self, name: str, *, silently: bool = False) -> None:
        """End a node's process; ``silently``: its peers' connections do not know."""
        self.say(f"{name} is killed" + (", its host too" if silently else ""))
        self.down.add(name)
        self.lanes[name].clear()
        self._due.pop(name, None)
        self.paused.pop(name, None)
        self._die(name)
        for below, link in self.connections(name):
            if silently and below != name:
                self.deaden(below, link)
            else:
                self.part(below, link)

    def pause(self, name: str, seconds: float) -> None:
        """Give a node no events for a while."""
        if name not in self.paused:
            self.say(f"{name} is paused for {seconds:.2f} s")
            self.paused[name] = []
            self._plan(name)
            self.after(seconds, self.resume, name, self.nodes[name])

    def resume(self, name: str, node: object = None) -> None:
        """Give a node all that has waited for it."""
        if name not in self.paused or (node is not None and self.nodes[name] is not node):
            return
        self.say(f"{name} goes on")
        for what, arguments in self.paused.pop(name):
            what(*arguments)
        self._plan(name)

    def drain(self, name: str) -> None:
        """Let a worker end in peace; it is started again later."""
        if name in self.nodes and self.alive(name):
            self.happen(name, Drained())

    def happen(self, name: str, event: object) -> None:
        """Give a node an event, or keep it for one that is paused."""
        if name in self.paused:
            self.paused[name].append((self.happen, (name, event)))
        else:
            Network.happen(self, name, event)

    def handled(self, name: str, event: object, actions: Sequence[Action]) -> None:
        """Record what a node did."""
        node = self.nodes[name]
        self.trace.step(self.now, name, event, actions)
        if self.journals is not None:
            self.journals.step(name, node.settings, event, actions, self._shown[name])
        if isinstance(node, ManagerMachine):
            if isinstance(event, Submitted):
                self._accepted(node, event)
            self.witness.manager_did(node.settings, event, actions, self._shown[name])
            for action in actions:
                ends = getattr(action, "ends", None)
                if ends is not None:
                    self.ends.update(ends)
        elif isinstance(node, WorkerMachine):
            self.witness.worker_did(self.peer(name), actions)
        if actions and isinstance(actions[-1], Halt):
            self._ended(name, actions[-1].error)
        self._plan(name)
        if self.trace.steps % _CHECK_EVERY == 0:
            self._look_into()

    def _ended(self, name: str, error: Exception | None) -> None:
        newest = self.newest[self._identity(name)]
        if error is not None and (not isinstance(error, Superseded) or newest == name):
            detail = f"{name} stopped ({error}); {newest} is the newest"
            raise Violation("the newest epoch lives", detail)
        self._due.pop(name, None)
        self._die(name)
        # What it sent last is still on its way.
        self.after(0.05 + self.topology.timers.latency, self._close, name, self.nodes[name])
        if error is None:
            self.after(0.5, self._again, name, self.nodes[name])

    def _close(self, name: str, node: object) -> None:
        if self.nodes[name] is node:
            for below, link in self.connections(name):
                self.part(below, link)

    def _again(self, name: str, node: object) -> None:
        if self.nodes[name] is node and self.newest[self._identity(name)] == name:
            self.start(name)

    def _die(self, name: str) -> None:
        if isinstance(self.nodes[name], ManagerMachine):
            self.witness.died(self.peer(name))

    def _identity(self, name: str) -> bytes:
        return name.rstrip("+").encode()

    def peer(self, name: str) -> Peer:
        """(identity, epoch) of a node's newest process."""
        settings = self.nodes[name].settings
        return settings.identity, settings.epoch

    def say(self, text: str) -> None:
        """Note in the trace what the world does itself."""
        self.trace.say(self.now, text)

    # -- connections

    def attempt(self, below: str, link: int) -> None:
        """Connect a link that is not connected, now or as soon as it can be."""
        above = self.uplinks[below][link]
        if (below, link) in self.pipes or not self.alive(below) or not self.alive(above):
            return  # a process that starts tries again
        if (below, above) in self.cut or (above, below) in self.cut:
            self.after(0.3, self.attempt, below, link)
            return
        self.join(below, link)
        if isinstance(self.nodes[below], WorkerMachine):
            self.happen(below, Connected(link))

    def part(self, name: str, link: int) -> None:
        """Break a connection; its ends know."""
        for pipe in ((name, link), self.far((name, link))):
            if pipe is not None:
                self.stale.discard(pipe)
                self.full.pop(pipe, None)
                self._last.pop(pipe, None)
        Network.part(self, name, link)

    def deaden(self, name: str, link: int) -> None:
        """Break a connection so that nobody knows."""
        far = self.far((name, link))
        if far is not None:
            self.stale.update(((name, link), far))
            if isinstance(self.nodes[name], DeviceMachine):
                # A device has no word for it: its socket's own heartbeats find out.
                self.after(1.0, self.rejoin, name, link, far)

    def rejoin(self, name: str, link: int, far: Pipe | None = None) -> None:
        """Break a connection openly and make it again."""
        if far is None or self.far((name, link)) == far:
            self.part(name, link)
            self.attempt(name, link)

    def reconnect(self, name: str, link: int) -> None:
        """A worker replaces the socket of a link."""
        self.part(name, link)
        self.after(self._net.uniform(0, 0.05), self.attempt, name, link)

    # -- messages

    def carry(self, pipe: Pipe, message: Message) -> None:
        """Put a message on its way, if there is one."""
        frames = codec.encode(message)
        self.trace.sent(pipe, frames)
        name, link = pipe
        receiver = self._far[pipe][0]
        if pipe in self.stale or (self.cut and (name, receiver) in self.cut):
            return
        parked = self.full.get(pipe) if self.full else None
        if parked is None:
            self._travel(pipe, frames)
        elif isinstance(self.nodes[name], DeviceMachine) or len(parked) >= _PARKED:
            self.happen(name, Undelivered(link, message))
        else:
            parked.append(frames)

    def flush(self, pipe: Pipe) -> None:
        """A full pipe takes messages again."""
        for frames in self.full.pop(pipe, ()):
            self._travel(pipe, frames)

    def _travel(self, pipe: Pipe, frames: list[Frame]) -> None:
        latency = self._latency[pipe[0]] * (0.5 + 0.5 * self._net.random())
        when = max(self.now + latency, self._last.get(pipe, 0.0))
        fault = None if self.mended else self._hit()
        if fault is Fault.DROP:
            return
        if fault is Fault.DUPLICATE or fault is Fault.REORDER:
            late = when + self._weather.uniform(0, 2)
            self.at(late, self._late, pipe, frames, self.far(pipe))
            if fault is Fault.REORDER:
                return
        elif fault is Fault.DELAY:
            when += self._weather.uniform(0.1, 3)
        self._last[pipe] = when
        self.pipes[pipe].append(frames)
        self.at(when, self._next, pipe)

    def _hit(self) -> Fault | None:
        """Whether a fault hits the message at hand, and which."""
        rates = self.faults.rates
        luck = self._weather.random() if rates else 1.0
        for fault, rate in rates.items():
            luck -= rate
            if luck < 0:
                self.counts[fault] += 1
                return fault
        return None

    def _next(self, pipe: Pipe) -> None:
        if self.pipes.get(pipe):
            self.deliver(pipe)

    def _late(self, pipe: Pipe, frames: list[Frame], far: Pipe) -> None:
        if self.far(pipe) == far:
            self.arrive(pipe, frames)

    # -- work

    def offer(self, batch: SubmitBatch, number: int | None = None) -> None:
        """Submit a batch, if its manager takes any."""
        name = batch.manager
        if not self.alive(name):
            return
        for task in batch.tasks:
            self._tasks[task.payload] = task
        payloads = [task.payload for task in batch.tasks]
        ids = self.submit(
            name,
            payloads,
            batch.kind,
            priority=batch.priority,
            timeout=batch.timeout,
            retries=batch.retries,
        )
        if number is not None:
            self._submitted[number] = (name, self.peer(name)[1], ids)

    def _accepted(self, manager: ManagerMachine, event: Submitted) -> None:
        owner: Peer = (manager.settings.identity, manager.settings.epoch)
        for id, payload in zip(event.ids, event.payloads, strict=True):
            task = self._tasks[bytes(payload)]
            end = End.ERROR if task.fails else End.OK
            self.history.accepted(owner, id, {end: task.result}, event.retries)

    def _withdraw(self, wish: Wish) -> None:
        name, epoch, ids = self._submitted.get(wish.batch, ("", 0, range(0)))
        if name and self.alive(name) and self.peer(name)[1] == epoch:
            self.cancel(name, [ids[row] for row in wish.rows])

    def begin(self, name: str, lane: LinkQueue) -> None:
        """A lane comes to its next job."""
        if lane.left[0] in lane.cancelled:
            self.after(0.0, self._finish, name, lane, lane.left[0], Outcome.CANCELLED)
            return
        id = lane.left[0]
        attempt = lane.run.attempts[list(lane.run.ids).index(id)]
        self.begun[name] += 1
        self.history.begun(self.peer(name), lane.run.manager, id, attempt)
        taken: Counter[str] = Counter()
        for other in self.lanes[name].values():
            taken.update(dict(other.run.kind.needs))
        self.history.booked(name, taken, self.topology.workers[name].resources)
        self.work(name, lane, id)

    def work(self, name: str, lane: LinkQueue, id: int) -> None:
        """A handler begins; somebody must see to its end."""
        task = self._tasks[lane.payload(id)]
        takes = task.takes * self.slow.get(name, 1.0)
        if self.doomed:
            self.after(takes / 2, strike, self, self.doomed.pop())
        self.after(takes, self._finish, name, lane, id, task.outcome)

    def hang(self, name: str, lane: LinkQueue, seconds: float) -> None:
        """Let the handler of a lane's first job not return."""
        id = lane.left[0]
        self.say(f"a handler of {name} hangs, in lane {lane.run.lane}")
        self.hung.add((lane, id))
        self._look_after(name, lane, id, self.now + seconds)

    def _look_after(self, name: str, lane: LinkQueue, id: int, until: float) -> None:
        """End a handler by force that nobody waits for any more, or that is at it too long."""
        if self.lanes[name].get(lane.run.lane) is not lane or lane.left[0] != id:
            self.hung.discard((lane, id))  # what ran it died, or its worker
            return
        due = dict(zip(lane.run.ids, lane.run.deadlines or (), strict=False)).get(id)
        unwanted = id in lane.cancelled or (due is not None and due <= self.local(name))
        if name in self.paused or (self.now < until and not unwanted):
            self.after(_LOOK, self._look_after, name, lane, id, until)
            return
        self.hung.remove((lane, id))
        self.bereave(name, lane)

    def _finish(self, name: str, lane: LinkQueue, id: int, outcome: Outcome) -> None:
        if (lane, id) in self.hung:
            return
        if name in self.paused:
            self.paused[name].append((self._finish, (name, lane, id, outcome)))
        elif self.lanes[name].get(lane.run.lane) is lane and lane.left[0] == id:
            task = self._tasks[lane.payload(id)]
            if id in lane.cancelled and task.heeds:
                outcome = Outcome.CANCELLED
            result = b"" if outcome is Outcome.CANCELLED else task.result
            self.end(name, lane, outcome, result)

    # -- looking

    def _look_into(self) -> None:
        """Hold the machines' tables and their own invariants against what is known."""
        jobs = sum(map(len, self.history.jobs.values()))
        peers = len(self.uplinks)
        for name, node in self.nodes.items():
            if not self.alive(name) or isinstance(node, DeviceMachine):
                continue
            if isinstance(node, WorkerMachine):
                try:
                    node.check_invariants()
                except AssertionError as error:
                    raise Violation("no crash", f"{name} breaks its own: {error}") from error
                check_tables(name, node, jobs, peers)
            elif (unended := self.history.open.get(self.peer(name))) is not None:
                check_tables(name, node, len(unended), peers)


def simulate(seed: int, *, keep: int | None = 30, journal: Path | None = None) -> WorldReport:
    """Play the world of a seed; its journals go into a folder of its own in ``journal``."""
    journals = None if journal is None else Journals(journal / f"seed-{seed}")
    return World(seed=seed, keep=keep, journals=journals).play()
