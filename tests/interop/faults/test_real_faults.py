"""No job is lost while real processes are killed, stopped and started again, and links are cut.

``WMP_REAL_KILLS=500 WMP_REAL_PEERS=100000`` makes a longer run. ``WMP_SEED`` repeats an order of
faults; the exact moment of each fault differs from run to run.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

import wmp
import wmp.aio
from tests.interop.faults.fault_handlers import digest
from tests.interop.faults.faults import Part, Wire, Words, descriptors
from tests.waiting import RUN, WAIT, children, gone, wait_until
from wmp import codec
from wmp.balance import least_recently_used
from wmp.core.manager.machine import ManagerMachine as Machine
from wmp.core.protocol.settings import ManagerSettings
from wmp.events import Ticked
from wmp.message import Command, Field, Message
from wmp.testing.peers.scripted_worker import ScriptedWorker
from wmp.testing.worlds.memory_bounds import sizes

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks processes up in /proc"),
]

KILLS = int(os.environ.get("WMP_REAL_KILLS", "24"))
PEERS = int(os.environ.get("WMP_REAL_PEERS", "5000"))
SEED = int(os.environ.get("WMP_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)

MAX_SILENCE, PING, JITTER = 1.5, 0.3, 0.25
HOSTS = {"one": ("a",), "two": ("b", "c")}
"""Submitting processes, and the managers of each."""
WORKERS = ("direct", "behind", "wired", "pooled")
"""The endpoints of each worker: the managers, the device, wires, and the device with child
processes.
"""
MANAGER_OPTIONS = {"max_silence": MAX_SILENCE, "resend": 1.0}
WORKER_OPTIONS = {"ping": PING, "resend": 1.0, "slots": 2}


def ipc(name: str) -> str:
    """Return an address in the folder in which all parts of a test run."""
    return f"ipc://{name}"


def manager_config(*names: str) -> dict[str, Any]:
    """Return the configuration of a part that runs these managers."""
    return {
        "managers": [
            {
                "bind": [ipc(name), "tcp://127.0.0.1:*"],
                "options": {**MANAGER_OPTIONS, "identity": name, "label": name},
            }
            for name in names
        ]
    }


def begun(folder: Path) -> list[tuple[str, ...]]:
    """Return the begun jobs: generation, index, manager, id, attempt, process, time."""
    text = (folder / "log").read_text() if (folder / "log").exists() else ""
    return [tuple(line.split()) for line in text.splitlines()]


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Callable[..., Part]]:
    """A maker of parts; it kills all parts at the end, stopped parts as well."""
    parts: list[Part] = []

    def make(kind: str, receive: Callable[[Words], None] | None = None) -> Part:
        parts.append(Part(kind, tmp_path, receive))
        return parts[-1]

    yield make
    for part in parts:
        part.kill()


class Storm:
    """All parts, the submitted jobs, and their results."""

    def __init__(
        self, folder: Path, make: Callable[..., Part], wires: dict[str, Wire], fed: int
    ) -> None:
        self.folder = folder
        self.random = random.Random(SEED)
        self.wires = wires
        self.fed = fed
        """Jobs submitted before each fault; half of them end before the next fault."""
        self.lock = threading.Lock()
        self.inputs: dict[str, list[int]] = {name: [] for name in "abc"}
        self.rows: dict[int, list[tuple[Any, ...]]] = {}
        self.count = 0
        self.struck: Counter[str] = Counter()
        self.again = 0
        self.requeued: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.broken: list[str] = []
        self.late: list[Callable[[], object]] = []
        """Those that were killed and stay away for a while."""
        self.hosts: dict[str, Part] = {}
        for name in HOSTS:
            self.hosts[name] = host = make("manager")
            # A default keeps this host: the loop gives the name another value.
            host._receive = lambda words, host=host: self._done(host.generation, words["done"])
        self.device = make("device")
        self.workers = {name: make("worker") for name in WORKERS}

    # -- starting

    def start(self) -> None:
        for name in HOSTS:
            self.start_host(name)
        self.start_device()
        for name in WORKERS:
            self.start_worker(name)

    def start_host(self, name: str) -> None:
        """Start a submitting process; jobs without a result are submitted again."""
        bound = self.hosts[name].start(**manager_config(*HOSTS[name]))["bound"]
        for manager, endpoints in zip(HOSTS[name], bound, strict=True):
            if manager in self.wires:
                self.wires[manager].target = endpoints[1]
            left = [index for index in self.inputs[manager] if index not in self.rows]
            self.again += len(left)
            self.submit(manager, left)

    def start_device(self) -> None:
        options = {"bind": ipc("d"), "connect": [ipc(name) for name in "abc"], "identity": "d"}
        self.device.start(options=options)

    def start_worker(self, name: str) -> None:
        connect = {
            "direct": [ipc(manager) for manager in "abc"],
            "wired": [*(wire.endpoint for wire in self.wires.values()), ipc("c")],
        }.get(name, [ipc("d")])
        pool = "process" if name == "pooled" else "thread"
        options = {**WORKER_OPTIONS, "identity": name, "label": name, "pool": pool}
        self.workers[name].start(connect=connect, options=options, log=str(self.folder / "log"))

    # -- jobs

    def submit(self, manager: str, indices: list[int]) -> None:
        host = next(name for name, managers in HOSTS.items() if manager in managers)
        number = HOSTS[host].index(manager)
        self.hosts[host].tell(manager=number, submit=indices, role="work")

    def feed(self) -> None:
        """Submit more jobs, a third of them to each manager."""
        for manager in "abc":
            indices = list(range(self.count, self.count + self.fed // 3))
            self.count += len(indices)
            self.inputs[manager] += indices
            self.submit(manager, indices)

    def _done(self, generation: int, rows: list[list[Any]]) -> None:
        with self.lock:
            for index, *row in rows:
                self.rows.setdefault(index, []).append((generation, *row))

    @property
    def left(self) -> int:
        """Return the number of inputs without a result."""
        return self.count - len(self.rows)

    # -- faults

    def strike(self, what: str) -> None:
        """Perform one fault while jobs run."""
        for come_back in self.late:
            come_back()
        self.late.clear()
        self.feed()
        assert self.left >= self.fed // 2, "jobs are under way"
        getattr(self, "_" + what.split()[0])(*what.split()[1:])
        self.struck[what.split()[0]] += 1
        wait_until(lambda: self.left <= self.fed // 2, f"jobs end after {what}")

    def wait_busy(self, holds: Callable[[], bool], what: str) -> None:
        """Wait, and submit jobs while waiting."""

        def look() -> bool:
            if self.left < self.fed // 2:
                self.feed()
            return holds()

        wait_until(look, what)

    def _kill(self, name: str) -> None:
        if name in HOSTS:
            self.look(self.hosts[name])
            self.hosts[name].kill()
            self.start_host(name)
        elif name == "device":
            self.device.kill()
            self.start_device()
        elif name == "child":
            worker = self.workers["pooled"].process
            assert worker is not None
            self.wait_busy(lambda: bool(self.lanes(worker.pid)), "the pool has children")
            os.kill(self.random.choice(sorted(self.lanes(worker.pid))), signal.SIGKILL)
        else:
            self.workers[name].kill()
            if self.random.random() < 0.5:
                # The newer epoch ends the leases of the killed worker at once.
                self.start_worker(name)
            else:
                # The worker starts later, so the manager must notice its silence.
                self.late.append(lambda: self.start_worker(name))

    def lanes(self, pid: int) -> set[int]:
        """Return the pool's children that have begun a job; other children belong to Python."""
        known = {who.split(":")[1] for *_, who, _ in begun(self.folder)[-2000:]}
        return {child for child in children(pid) if str(child) in known}

    def _stop(self, name: str) -> None:
        """Stop a process until its peers have given it up, then let it continue."""
        part = {**self.hosts, **self.workers, "device": self.device}[name]
        part.signal(signal.SIGSTOP)
        try:
            if name in HOSTS:
                worker = self.workers["direct"]
                self.wait_busy(
                    lambda: not set(HOSTS[name]) & set(worker.ask()["managers"]), f"{name} gone"
                )
            else:
                away = {"behind", "pooled"} if name == "device" else {name}
                self.wait_busy(lambda: not away & self.known("one", 0), f"{name} given up")
        finally:
            part.signal(signal.SIGCONT)

    def _cut(self, manager: str) -> None:
        self.wires[manager].cut()

    def _half(self, manager: str) -> None:
        self.wires[manager].half_close()

    def _stall(self, manager: str) -> None:
        host = next(name for name, managers in HOSTS.items() if manager in managers)
        number = HOSTS[host].index(manager)
        with self.wires[manager].stalled():
            self.wait_busy(lambda: "wired" not in self.known(host, number), "given up")

    def known(self, host: str, number: int) -> set[str]:
        """Return the labels of the workers that a manager knows."""
        return set(self.hosts[host].ask()["workers"][number])

    # -- the end

    def look(self, host: Part) -> Words:
        """Record the state of a submitting process."""
        words = host.ask()
        self.broken += words["broken"]
        for requeued, dropped in zip(words["requeued"], words["dropped"], strict=True):
            self.requeued.update(requeued)
            self.dropped.update(dropped)
        return words

    def finish(self) -> None:
        """Wait until all jobs have ended."""
        for come_back in self.late:
            come_back()
        self.late.clear()
        wait_until(lambda: self.left == 0, "all jobs end")
        for host in self.hosts.values():
            words = self.look(host)
            assert not any(words["left"]), words
            assert not words["waits"], words

    def check(self) -> Words:
        """Compare the results with the log of begun jobs; return the counts."""
        assert not self.broken, self.broken[:5]
        executions: dict[tuple[str, ...], list[str]] = {}
        newest: Counter[tuple[str, ...]] = Counter()
        for generation, index, owner, id, attempt, who, _ in begun(self.folder):
            executions.setdefault((generation, index, owner, id, attempt), []).append(who)
            job = (generation, index, owner, id)
            newest[job] = max(newest[job], int(attempt))
        twice = {key: whos for key, whos in executions.items() if len(whos) > 1}
        assert not twice, f"begun twice in one attempt: {twice}"

        owners = {index: name for name, indices in self.inputs.items() for index in indices}
        lost, duplicate, stale, attempts = [], [], [], Counter[int]()
        for index, owner in owners.items():
            rows = self.rows.get(index, [])
            if not rows or rows[0][2] is None:
                lost.append((index, rows))
                continue
            if len(rows) > 1:
                duplicate.append((index, rows))
            generation, id, text = rows[0]
            maker, attempt, who = text.split()
            job = (str(generation), str(index), owner, str(id))
            attempts[int(attempt)] += 1
            # The result belongs to this input and this attempt, and no later attempt had begun.
            if (
                maker != digest(f"{generation} {index}".encode())
                or who not in executions.get((*job, attempt), ())
                or newest[job] != int(attempt)
            ):
                stale.append((index, rows, newest[job]))
        assert (lost, duplicate, stale) == ([], [], [])
        return {
            "jobs": len(owners),
            "begun": sum(map(len, executions.values())),
            "by attempt": dict(attempts),
            "handed in again": self.again,
        }


def plan(kills: int, draw: random.Random) -> list[str]:
    """Return a list of faults: kills of each process in turn, and other faults in between."""
    victims = (*WORKERS, "device", "child", *HOSTS)
    faults = [f"kill {victims[number % len(victims)]}" for number in range(kills)]
    others = ("stop direct", "stop device", "stop two", "stall a", "half a", "half b", "cut b")
    faults += [others[number % len(others)] for number in range(max(kills // 3, len(others)))]
    draw.shuffle(faults)
    return faults


@pytest.mark.timeout(600 + 6 * KILLS)
@pytest.mark.rule("WMP-6.1", "WMP-6.2", "WMP-6.3", "WMP-8.7", "WMP-9.7")
@pytest.mark.parametrize(
    ("kills", "fed"), [(8, 24), pytest.param(KILLS, 300, marks=pytest.mark.deep)]
)
def test_nothing_is_lost_while_everything_is_killed_in_turn(
    tmp_path: Path,
    parts: Callable[..., Part],
    kills: int,
    fed: int,
    record_property: Callable[[str, str], None],
) -> None:
    print(f"WMP_SEED={SEED} WMP_REAL_KILLS={kills}")
    began = time.monotonic()
    with Wire() as a, Wire() as b:
        storm = Storm(tmp_path, parts, {"a": a, "b": b}, fed)
        try:
            storm.start()
            storm.feed()
            for fault in plan(kills, storm.random):
                storm.strike(fault)
            storm.finish()
            counts = storm.check()
        except AssertionError as error:
            error.add_note(f"WMP_SEED={SEED}; {storm.left} left; struck {dict(storm.struck)}")
            for part in (*storm.hosts.values(), *storm.workers.values()):
                error.add_note(f"{part.ask() if part.alive else 'it does not run'}"[:1000])
            error.add_note(next(iter(storm.hosts.values())).complaints())
            raise
        assert storm.struck["kill"] >= kills
        for part in (*storm.hosts.values(), *storm.workers.values(), storm.device):
            part.kill()
    # Children of killed workers end too.
    pids = {int(who.split(":")[1]) for *_, who, _ in begun(tmp_path)}
    wait_until(lambda: all(map(gone, pids)), "all processes have ended")
    print(f"{time.monotonic() - began:.1f} s; {dict(storm.struck)}; {counts}")
    print(f"leases lost {dict(storm.requeued)}; dropped {dict(storm.dropped)}")
    figures = {"struck": dict(storm.struck), **counts, "leases lost": dict(storm.requeued)}
    for name, figure in {**figures, "lost": 0, "duplicate": 0, "stale": 0}.items():
        record_property(name, json.dumps(figure))


@pytest.mark.rule("WMP-9.1", "WMP-9.7", "WMP-9.12")
@pytest.mark.parametrize("known", [True, False], ids=["the same identity", "another identity"])
def test_an_idle_worker_works_within_three_intervals_of_its_managers_return(
    tmp_path: Path, parts: Callable[..., Part], known: bool
) -> None:
    config = manager_config("m")
    rows: dict[int, str] = {}
    manager = parts("manager", lambda words: rows.update({r[0]: r[2] for r in words["done"]}))
    worker = parts("worker")
    manager.start(**config)
    options = {**WORKER_OPTIONS, "label": "w"}
    worker.start(connect=[ipc("m")], options=options, log=str(tmp_path / "log"))
    took = []
    for index in range(1):
        wait_until(lambda: manager.ask()["workers"] == [["w"]], "the worker is there, idle")
        manager.kill()
        if not known:
            # The worker must also not wait until the `max_silence` of the old manager is over.
            config["managers"][0]["options"] |= {"identity": f"m{index}", "max_silence": 60.0}
        back = manager.start(**config)["at"]
        manager.tell(manager=0, submit=[index], role="work")
        wait_until(lambda index=index: index in rows, "the job is done")
        works = float(begun(tmp_path)[-1][-1])
        # The worker counts the intervals by its own clock, and they are longer on a slow machine. A
        # PING that comes sooner is no heartbeat: the worker sends such a PING on a new connection.
        beats, last = 0, back
        for at in worker.ask()["pinged"]:
            if last + (1 - JITTER) * PING <= at < works:
                beats, last = beats + 1, at
        took.append((round(works - back, 3), beats))
    print(f"seconds and heartbeats from the manager's return until its worker works: {took}")
    assert max(beats for _, beats in took) <= 3, took


@pytest.mark.rule("WMP-9.3")
def test_another_worker_runs_the_job_of_a_killed_worker_within_expire_and_a_second(
    tmp_path: Path, parts: Callable[..., Part]
) -> None:
    rows: dict[int, str] = {}
    manager = parts("manager", lambda words: rows.update({r[0]: r[2] for r in words["done"]}))
    config = manager_config("m")
    # Only the end of the connection may tell the manager in time, and no silence on a busy machine.
    config["managers"][0]["options"]["max_silence"] = expire = 3 * WAIT
    manager.start(**config)
    workers = {name: parts("worker") for name in ("x", "y")}
    for name, worker in workers.items():
        options = {**WORKER_OPTIONS, "label": name}
        worker.start(connect=[ipc("m")], options=options, log=str(tmp_path / "log"))
    manager.tell(manager=0, submit=[7], role="hang")
    wait_until(lambda: len(begun(tmp_path)) == 1, "the job has begun")
    victim = begun(tmp_path)[0][5].split(":")[0]
    killed = time.monotonic()
    workers[victim].kill()
    wait_until(lambda: 7 in rows, "the job ends")
    first, second = begun(tmp_path)
    assert (first[4], second[4]) == ("1", "2")
    assert second[5].split(":")[0] != victim
    print(f"runs elsewhere after {float(second[6]) - killed:.2f} s")
    assert float(second[6]) - killed <= expire + 1.0
    assert manager.ask()["requeued"] == [{"the connection ended": 1}]


def lost_in_blocking_code(begin: Callable[[wmp.Manager], None], end: Callable[[], None]) -> Any:
    """Return the error of a job whose worker was killed."""
    with wmp.Manager(identity="m", **MANAGER_OPTIONS) as manager:
        begin(manager)
        job = manager.submit("1 7", role="hang", max_worker_losses=0)
        end()
        return job.exception(WAIT)


def lost_in_asyncio(begin: Callable[[wmp.aio.Manager], None], end: Callable[[], None]) -> Any:
    async def submit() -> Any:
        async with wmp.aio.Manager(identity="m", **MANAGER_OPTIONS) as manager:
            await asyncio.to_thread(begin, manager)
            job = await manager.submit("1 7", role="hang", max_worker_losses=0)
            await asyncio.to_thread(end)
            async with asyncio.timeout(WAIT):
                with contextlib.suppress(wmp.WorkerLost):
                    await job
            return job.exception()

    return asyncio.run(submit())


@pytest.mark.rule("WMP-6.15", "WMP-9.3")
@pytest.mark.parametrize("submit", [lost_in_blocking_code, lost_in_asyncio])
def test_the_error_of_a_lost_job_names_the_worker_and_the_cause(
    tmp_path: Path, parts: Callable[..., Part], submit: Callable[..., Any]
) -> None:
    worker = parts("worker")

    def begin(manager: Any) -> None:
        options = {**WORKER_OPTIONS, "label": "pi-4:worker"}
        worker.start(connect=list(manager.endpoints), options=options, log=str(tmp_path / "log"))

    def end() -> None:
        wait_until(lambda: len(begun(tmp_path)) == 1, "the job has begun")
        worker.kill()

    error = submit(begin, end)
    assert isinstance(error, wmp.WorkerLost)
    assert isinstance(error, wmp.JobError)
    assert (error.cause, error.host, error.attempts) == ("the connection ended", "pi-4:worker", 1)
    assert str(error).endswith(
        "lost after 1 attempt, the last at worker pi-4:worker: the connection ended"
    )


@pytest.mark.rule("WMP-6.2")
def test_a_result_that_was_on_its_way_for_too_long_is_not_taken(
    tmp_path: Path, parts: Callable[..., Part]
) -> None:
    rows: dict[int, str] = {}
    manager = parts("manager", lambda words: rows.update({r[0]: r[2] for r in words["done"]}))
    far, near = parts("worker"), parts("worker")
    log = str(tmp_path / "log")
    with Wire() as wire:
        wire.target = manager.start(**manager_config("m"))["bound"][0][1]
        far.start(connect=[wire.endpoint], options={**WORKER_OPTIONS, "label": "far"}, log=log)
        manager.tell(manager=0, submit=[7], role="gate")
        wait_until(lambda: len(begun(tmp_path)) == 1, "the job has begun")
        with wire.stalled():
            (tmp_path / "go-1").touch()
            wait_until(lambda: far.ask()["running"] == 0, "the result is in the wire")
            near.start(connect=[ipc("m")], options={**WORKER_OPTIONS, "label": "near"}, log=log)
            wait_until(lambda: len(begun(tmp_path)) == 2, "it has begun elsewhere")
        # The late result arrives while another worker has the lease.
        wait_until(lambda: manager.ask()["heard"] == [1], "the late result arrives")
        assert manager.ask()["left"] == [1]
        assert rows == {}
        (tmp_path / "go-2").touch()
        wait_until(lambda: 7 in rows, "the job ends")
    maker, attempt, who = rows[7].split()
    assert (maker, attempt) == (digest(b"1 7"), "2")
    assert who.startswith("near:")
    assert manager.ask()["broken"] == []


def come_and_go(peers: int) -> list[int]:
    """Let workers come and go; return the blocks of memory after each 20,000 workers."""
    machine = Machine(
        ManagerSettings(identity=b"m", epoch=1, max_silence=MAX_SILENCE), least_recently_used
    )
    now, maximum = 0.0, 500
    nothing = sizes(machine)
    marks = []
    for batch in range(peers // maximum):
        workers = []
        for number in range(maximum):
            name = b"%d" % (batch * maximum + number)
            worker = ScriptedWorker(machine, identity=name, link=name, now=now)
            # Some workers also send a held GIVE, and later another message.
            worker.ready()
            if number % 3 == 0:
                worker.give(hold=5.0)
                worker.ping()
            workers.append(worker)
        assert len(machine._workers) == maximum
        for worker in workers[::2]:
            worker.bye()
        # The other workers end without BYE.
        now += MAX_SILENCE
        machine.handle(Ticked(), now)
        table = sizes(machine)
        # Cancelled timers stay in the heap until they are due. So their number is bounded, but not
        # zero.
        assert table.pop("heap") <= 64 + 4 * maximum
        assert table == {key: size for key, size in nothing.items() if key != "heap"}
        now += 10.0
        machine.handle(Ticked(), now)
        if batch % 40 == 39:
            gc.collect()
            marks.append(sys.getallocatedblocks())
    # The manager remembers the epochs of ten thousand workers that have gone.
    assert len(machine._gone) == min(peers, 10_000)
    return marks


@pytest.mark.rule("WMP-9.3", "WMP-9.11")
def test_thousands_of_peers_that_come_and_go_leave_the_tables_empty() -> None:
    assert come_and_go(5_000) == []


@pytest.mark.deep
@pytest.mark.rule("WMP-9.3", "WMP-9.11")
def test_thousands_of_peers_that_come_and_go_leave_the_machine_flat() -> None:
    """A process of its own: threads and objects of earlier tests would count too."""
    script = f"from {__name__} import come_and_go; print(*come_and_go(100_000))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=RUN,
    )
    assert done.returncode == 0, done.stderr
    marks = [int(word) for word in done.stdout.split()]
    print(f"blocks of memory after each 20,000 peers: {marks}")
    assert len(marks) == 5
    assert marks[-1] - marks[0] < 2_000, marks


@pytest.mark.timeout(600 + PEERS / 100)
@pytest.mark.rule("WMP-9.3", "WMP-9.11")
@pytest.mark.parametrize("count", [1_000, pytest.param(PEERS, marks=pytest.mark.deep)])
def test_thousands_of_real_peers_that_come_and_go_leave_the_process_flat(
    tmp_path: Path, count: int, record_property: Callable[[str, str], None]
) -> None:
    maximum = 250
    endpoint = f"ipc://{tmp_path}/m"
    marks: list[int] = []
    opened: list[int] = []
    with wmp.Manager(endpoint, max_silence=0.4) as manager:
        machine = manager._inner._machine
        nothing = sizes(machine)
        with zmq.Context() as context:
            context.max_sockets = 2 * maximum
            # ZeroMQ itself keeps descriptors open, so count after the first connection has been
            # opened and closed.
            for batch in range(count // maximum + 1):
                peers = [context.socket(zmq.DEALER) for _ in range(maximum)]
                for number, peer in enumerate(peers):
                    peer.linger = 1000
                    peer.connect(endpoint)
                    ready = {
                        Field.READY: 1,
                        Field.CREDIT: 1,
                        Field.ROLES: ["work"],
                        Field.RESOURCES: {"slots": 1},
                    }
                    me = (b"%d %d" % (batch, number), 1)
                    peer.send_multipart(codec.encode(Message(Command.READY, (), me, ready, None)))
                # The first worker may have expired by then, but each worker has had a session.
                known = maximum * (batch + 1)
                wait_until(lambda known=known: machine._sessions == known, "all are known")
                for number, peer in enumerate(peers):
                    if number % 2:
                        me = (b"%d %d" % (batch, number), 1)
                        to = (machine.settings.epoch, machine.settings.identity)
                        peer.send_multipart(codec.encode(Message(Command.BYE, to, me, {}, None)))
                    peer.close()
                wait_until(lambda: not machine._workers, "all are forgotten")
                if not marks:
                    opened.append(descriptors())
                wait_until(lambda: descriptors() <= opened[0], "descriptors are given back")
                table = sizes(machine)
                assert table.pop("heap") <= 64 + 4 * maximum
                assert table == {key: size for key, size in nothing.items() if key != "heap"}
                gc.collect()
                marks.append(sys.getallocatedblocks())
    print(f"{count} peers; descriptors {opened[0]}; blocks of memory {marks[0]} to {marks[-1]}")
    record_property("peers", json.dumps(maximum * len(marks)))
    record_property("descriptors", json.dumps(opened))
    record_property("blocks of memory", json.dumps([marks[0], marks[-1]]))
    # Only the epochs of workers that have left remain, ten thousand at most.
    assert marks[-1] - marks[0] < 4 * min(count, 10_000) + 6_000
