"""Every order of events in small worlds keeps the invariants; planted faults are found."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from random import Random

import pytest
from attrs import evolve

from wmp.checks import canonical
from wmp.core.manager import machine as manager_module
from wmp.core.manager.announcements import Announcements
from wmp.core.manager.job_ends import JobEnds
from wmp.core.manager.machine import ManagerMachine
from wmp.core.manager.scheduler import Scheduler
from wmp.core.protocol.outbound import Arrival, Stream
from wmp.core.protocol.resources import Resources
from wmp.core.protocol.settings import ManagerSettings
from wmp.core.worker.locks import Locks
from wmp.message import Field
from wmp.testing.search.counterexample import replay
from wmp.testing.search.explore import describe, main
from wmp.testing.search.model import Model
from wmp.testing.search.plan import PLANS, Cancel, ModelPlan, Submit
from wmp.testing.search.search import SearchBounds, SearchOrder, SearchResult, explore
from wmp.testing.state.snapshots import outline_of

deep = pytest.mark.deep


@pytest.mark.rule("WMP-4.1", "WMP-6.1", "WMP-6.2", "WMP-6.3", "WMP-6.4", "WMP-6.12")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("name", "minimum"),
    [
        pytest.param("heirs", 2_000, marks=deep),
        pytest.param("tiny", 20_000, marks=deep),
        pytest.param("pair", 5_000, marks=deep),
        pytest.param("meeting", 5_000, marks=deep),
        pytest.param("cancel", 5_000, marks=deep),
        pytest.param("device", 8_000, marks=deep),
        pytest.param("dial", 8_000, marks=deep),
    ],
)
def test_every_state_of_a_small_world_keeps_the_invariants(name, minimum):
    explored = explore(PLANS[name])
    assert explored.violation is None, describe(name, PLANS[name], explored)
    assert explored.emptied
    assert explored.states >= minimum
    assert explored.leaves > 10


@pytest.mark.rule("WMP-4.1", "WMP-6.1", "WMP-6.2", "WMP-6.3", "WMP-6.4", "WMP-6.12")
@pytest.mark.parametrize(
    ("name", "states", "order"),
    [
        *((name, 250, SearchOrder.MIXED) for name in PLANS),
        ("small", 250, SearchOrder.BREADTH),
        pytest.param("small", 10_000, SearchOrder.MIXED, marks=deep),
        pytest.param("small", 10_000, SearchOrder.BREADTH, marks=deep),
    ],
)
def test_many_states_of_every_world_keep_the_invariants(name, states, order):
    explored = explore(PLANS[name], SearchBounds(states=states, order=order))
    assert explored.violation is None, describe(name, PLANS[name], explored)
    assert explored.states >= states
    assert not explored.emptied
    assert (explored.leaves > states / 1_000) == (order is SearchOrder.MIXED)


# -- what the explorer finds


def find_violation(plan: ModelPlan, order: SearchOrder = SearchOrder.BREADTH) -> SearchResult:
    explored = explore(plan, SearchBounds(states=60_000, order=order))
    assert explored.violation is not None, f"nothing found in {explored.states} states"
    assert not explored.emptied
    assert replay(plan, explored.moves)[1].name == explored.violation.name
    return explored


def test_a_lock_that_is_never_released_is_found(monkeypatch):
    remove = Locks._remove

    def leak(self, manager, lock):
        lock.reserved = 0  # the resources of the lock are never free again
        remove(self, manager, lock)

    monkeypatch.setattr(Locks, "_remove", leak)
    explored = find_violation(PLANS["pair"])
    assert explored.violation.name == "no crash"
    assert "an invariant of w1 is broken" in explored.violation.detail


def test_a_worker_that_books_twice_is_found(monkeypatch):
    monkeypatch.setattr(Resources, "fits", lambda self, needs: 4)
    monkeypatch.setattr(Resources, "take", lambda self, needs, count=1: None)
    monkeypatch.setattr(Resources, "release", lambda self, needs, count=1: None)
    monkeypatch.setattr("wmp.core.worker.machine.check_worker", lambda *parts: None)
    explored = find_violation(PLANS["pair"])
    assert explored.violation.name == "no double booking"


def test_a_worker_that_takes_repeated_messages_is_found(monkeypatch):
    arrive = Stream.arrive

    def always(self, number):
        return Arrival.NEXT if number <= self.received else arrive(self, number)

    monkeypatch.setattr(Stream, "arrive", always)
    explored = find_violation(evolve(PLANS["meeting"], settled=True, kinds=("duplicate",)))
    assert explored.violation.name == "executions"


@pytest.mark.rule("WMP-8.11")
def test_a_manager_that_announces_itself_once_is_found(monkeypatch):
    connected = Announcements.connected

    def once(self, link, now):
        if link not in self._connected:
            connected(self, link, now)

    monkeypatch.setattr(Announcements, "connected", once)
    rarely = ManagerSettings(identity=b"m", epoch=1, announce=1e6)
    explored = find_violation(evolve(PLANS["dial"], kinds=("restart device",), manager=rarely))
    assert explored.violation.name == "every job ends"


@deep
def test_a_manager_that_forgets_leases_is_found(monkeypatch):
    monkeypatch.setattr(Scheduler, "lose_leases", lambda self, worker, jobs, *cause: None)
    explored = find_violation(PLANS["heirs"])
    assert explored.violation.name == "every job ends"


def test_a_manager_that_accepts_a_stale_attempt_is_found(monkeypatch):
    done, numbered = Scheduler.done, ManagerMachine._numbered

    def gullible(self, worker, columns, *others):
        for id, attempt in zip(columns.ids, columns.attempts, strict=True):
            if (job := self.leases.record(id)) is not None:
                worker.leases[id], job.holder, job.attempt = job, worker.identity, attempt
        return done(self, worker, columns, *others)

    def careless(self, worker, fields, now):
        return numbered(self, worker, {**fields, Field.SESSION: worker.stream.session}, now)

    monkeypatch.setattr(Scheduler, "done", gullible)
    monkeypatch.setattr(ManagerMachine, "_numbered", careless)
    monkeypatch.setattr(manager_module, "is_late", lambda message: False)
    hasty = ManagerSettings(identity=b"m", epoch=1, max_silence=0.3, wake_timeout=9.0)
    plan = evolve(PLANS["meeting"], manager=hasty, kinds=("drop",))
    explored = find_violation(plan)
    assert explored.violation.name == "no stale result"


def test_a_manager_that_grants_a_cancelled_job_is_found(monkeypatch):
    cancel = JobEnds.cancel

    def keep(self, ids, now, **options):
        jobs = {id: job for id in ids if (job := self.leases.record(id)) is not None}
        cancel(self, ids, now, **options)
        for id, job in jobs.items():
            if self.leases.record(id) is None:
                self.leases._parts[id] = job
                job.state = job.state.QUEUED
                self.queues.get(job.kind).put_back(job)

    monkeypatch.setattr(JobEnds, "cancel", keep)
    explored = find_violation(PLANS["cancel"], SearchOrder.MIXED)
    assert explored.violation.name in ("cancelled stays cancelled", "one end for each job")


# -- what the explorer reports


@pytest.fixture
def broken(monkeypatch):
    monkeypatch.setattr(Scheduler, "lose_leases", lambda self, worker, jobs, *cause: None)


def test_a_violation_is_described_and_can_be_replayed(broken, monkeypatch, capsys):
    monkeypatch.setitem(PLANS, "heirs", evolve(PLANS["heirs"], ticks=0))
    assert main(["heirs"]) == 1
    text = capsys.readouterr().out
    assert "every job ends: job 1 of m1:1 did not end" in text
    assert "Submit(manager='m1'" in text
    assert re.search(r"deliver \w+ from m1 to w\d", text)
    assert "kill w" in text
    assert "m1: got" in text
    *_, again = text.splitlines()
    assert again.startswith("replay with: python -m wmp.testing.search.explore heirs --replay ")

    assert main(["heirs", "--replay", again.split()[-1]]) == 1
    text = capsys.readouterr().out
    assert "kill w" in text
    assert "every job ends" in text.splitlines()[-1]


@deep
def test_every_order_finds_a_short_way(broken):
    shortest = find_violation(PLANS["heirs"])
    for order in (SearchOrder.DEPTH, SearchOrder.MIXED):
        other = find_violation(PLANS["heirs"], order)
        assert len(shortest.moves) <= 2 * len(other.moves)
        assert len(other.moves) <= 3 * len(shortest.moves)


def test_an_end_that_no_move_reaches_is_no_violation():
    lines, violation = replay(PLANS["tiny"], [])
    assert violation is None
    assert "no further faults" in lines[-1]


def test_the_report_is_json(capsys):
    assert main(["tiny", "--states", "200", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["world"] == "tiny"
    assert report["emptied"] is False
    assert report["states"] >= 200
    assert report["violation"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--replay", "first,second"], "write numbers, such as 3,0,7"),
        (["--replay", "0,999"], "after 1 move there is no move 999; the state has "),
        (["--replay=-1"], "after 0 moves there is no move -1; the state has "),
        (["--states", "0"], "'0' is not a number of states; expected 1 or more"),
    ],
)
def test_wrong_usage_is_reported(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["tiny", *arguments])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_an_interrupted_search_is_reported_and_does_not_pass(monkeypatch, capsys):
    moves = Model.moves

    def interrupted(self):
        if self.now > 0:
            raise KeyboardInterrupt
        return moves(self)

    monkeypatch.setattr(Model, "moves", interrupted)
    assert main(["tiny"]) == 130
    assert capsys.readouterr().err.startswith("interrupted")


# -- the explorer can be trusted


def test_the_order_of_hashes_does_not_matter():
    seen = []
    for seed in ("1", "2"):
        run = subprocess.run(
            [
                sys.executable,
                "-m",
                "wmp.testing.search.explore",
                "small",
                "--states",
                "100",
                "--json",
            ],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        report = json.loads(run.stdout)
        del report["seconds"]
        seen.append(report)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("order", [SearchOrder.DEPTH, SearchOrder.MIXED])
def test_every_order_sees_the_same_states(order):
    plan = evolve(PLANS["tiny"], faults=1, ticks=0)
    broad, other = explore(plan), explore(plan, SearchBounds(order=order))
    for explored in (broad, other):
        assert explored.emptied
    assert other.states == broad.states
    assert other.transitions == broad.transitions
    assert other.leaves == broad.leaves
    assert other.depth >= broad.depth


def test_copies_go_their_own_ways():
    """A move on a copy leaves the original unchanged, and has the same effect as on a new world."""
    plan = PLANS["cancel"]
    model, way = Model(plan=plan), []
    for turn in range(25):
        moves = model.moves()
        if not moves:
            break
        before = model.snapshot()
        for move in moves:
            copy = model.copy()
            copy.make(move)
            assert model.snapshot() == before
            assert model.copy().snapshot() == before
        again = Model(plan=plan)
        for move in way:
            again.make(move)
        assert again.snapshot() == before
        way.append(moves[turn * 7 % len(moves)])
        model.make(way[-1])
    assert len(way) > 8


def test_more_bounds_reach_more_states():
    plan = evolve(PLANS["tiny"], faults=0, ticks=0)
    none, fault, tick = (
        explore(evolve(plan, **more)).states for more in ({}, {"faults": 1}, {"ticks": 1})
    )
    assert none < fault
    assert none < tick


def test_a_script_may_submit_and_cancel():
    plan = evolve(
        PLANS["tiny"],
        script=(Submit("m1", b"a"), Cancel("m1", 1), Submit("m1", b"b")),
        faults=0,
        ticks=0,
    )
    explored = explore(plan)
    assert explored.violation is None
    assert explored.emptied


def futures(model: Model) -> list[int]:
    """Return the hashes of the states that are one move away."""
    violations = []
    for move in model.moves():
        after = model.copy()
        after.make(move)
        violations.append(hash(after.snapshot()))
    return sorted(violations)


def as_it_is(model: Model) -> object:
    """Return the numbers and times that a snapshot normalises."""
    outlines = [outline_of(node) for node in model.nodes.values()]
    return [(o.numbers, o.times, o.past, o.ahead) for o in outlines]


# With these seeds ten comparisons take the fewest states.
ALIKE = [
    ("tiny", {"faults": 1, "ticks": 2}, 4),
    ("meeting", {"ticks": 0}, 2),
    ("cancel", {"faults": 1}, 1),
    ("heirs", {"ticks": 1}, 3),
    ("pair", {"kinds": ("drop", "duplicate", "restart manager")}, 5),
]


def compared(
    name: str, bounds: dict[str, object], seed: int, maximum: int
) -> tuple[int, list[str]]:
    """Compare states that look different and have equal snapshots, until ``most`` are compared.

    The comparison ends earlier if two states with equal snapshots have different futures.

    Returns:
        The number of such states, and the differences between the futures of two such states.
    """
    plan = evolve(PLANS[name], **bounds)
    draw = Random(f"{name}{seed}")
    first = Model(plan=plan)
    known = {first.snapshot(): (as_it_is(first), first)}
    waiting, count, wrong = [first], 0, []
    while waiting and count < maximum and len(known) < 3_000 and not wrong:
        model = waiting.pop(draw.randrange(len(waiting)) if draw.random() < 0.1 else -1)
        moves = model.moves()
        for move in draw.sample(moves, len(moves)):
            after = model.copy()
            after.make(move)
            state, looks = after.snapshot(), as_it_is(after)
            if state not in known:
                known[state] = (looks, after)
                waiting.append(after)
            elif known[state][0] != looks:
                count += 1
                if futures(after) != futures(known[state][1]):
                    wrong.append(f"after {move}")
    return count, wrong


@pytest.mark.parametrize("maximum", [4, pytest.param(150, marks=deep)])
@pytest.mark.parametrize(("name", "bounds", "seed"), ALIKE)
def test_states_with_equal_snapshots_have_equal_futures(name, bounds, seed, maximum):
    """This property allows the search to continue from only one of the states."""
    count, wrong = compared(name, bounds, seed, maximum)
    assert wrong == []
    assert count >= min(maximum, 10)


def test_snapshots_that_do_not_see_numbers_are_noticed(monkeypatch):
    """A patch omits the numbers of streams from snapshots: sent, received, to be acknowledged."""
    places = canonical._ranks

    def fewer(series, numbers):
        stream = series[0] in (canonical.UP, canonical.DOWN)
        return dict.fromkeys(numbers, 0) if stream else places(series, numbers)

    monkeypatch.setattr(canonical, "_ranks", fewer)
    assert compared("cancel", {"faults": 1}, seed=13, maximum=1_000)[1]


def test_snapshots_that_do_not_see_times_are_noticed(monkeypatch):
    monkeypatch.setattr(canonical, "round", lambda time: 0, raising=False)
    assert compared("tiny", {"faults": 1, "ticks": 2}, seed=8, maximum=1_000)[1]
