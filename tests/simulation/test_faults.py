"""A changed history breaks each invariant; each fault has the effect that its name states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from wmp.actions import End
from wmp.checks.job_history import INVARIANTS, History, Violation
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.worker.machine import WorkerMachine
from wmp.errors import Superseded
from wmp.events import Submitted
from wmp.message import Kind, Outcome
from wmp.testing.simulator.faults import MESSAGE_FAULTS, STRIKES, Fault, Faults, Strike
from wmp.testing.simulator.network import LinkQueue
from wmp.testing.simulator.workload import SimulatedTask, SubmitBatch
from wmp.testing.worlds.memory_bounds import check_tables
from wmp.testing.worlds.world import World

M = (b"m1", 1)
A, B = (b"a", 1), (b"b", 1)


def history(*, attempts: int = 1, max_worker_losses: int = 3) -> History:
    """A history of job 1 of M: leased to A, and leased again if ``attempts`` are more."""
    story = History()
    story.accepted(M, 1, {End.OK: b"did it"}, max_worker_losses)
    for attempt in range(1, attempts + 1):
        if attempt > 1:
            story.lost(M, 1, attempt - 1)
        story.granted(M, 1, attempt, A)
    return story


def ended(end: End = End.OK) -> History:
    story = history()
    story.resolved(M, 1, end, b"did it", 1, A)
    return story


def no_end() -> None:
    history().finish()


def two_ends() -> None:
    ended().resolved(M, 1, End.OK, b"did it", 1, A)


def begun_twice() -> None:
    story = history()
    story.begun(A, M, 1, 1)
    story.begun(A, M, 1, 1)


def begun_more_often_than_leased() -> None:
    story = history()
    story.begun(A, M, 1, 1)
    story.begun(B, M, 1, 2)


def begun_with_too_few_runs() -> None:
    story = history(attempts=2)
    story.begun(A, M, 1, 1, runs=0)
    story.begun(A, M, 1, 2, runs=0)


def begun_with_a_lease_that_was_handed_back() -> None:
    story = history()
    story.lost(M, 1, 1, counts=False, unbegun=True)
    story.granted(M, 1, 2, B)
    story.begun(B, M, 1, 2, runs=1)


def granted_while_leased() -> None:
    history().granted(M, 1, 2, B)


def too_many_slots() -> None:
    History().booked("w1", Counter(slots=2), {"slots": 1})


def more_leases_than_capacity() -> None:
    history().leased(M, A, "slots", 5, 4)


def result_of_an_old_attempt() -> None:
    history(attempts=2).resolved(M, 1, End.OK, b"did it", 1, A)


def result_of_another_worker() -> None:
    history().resolved(M, 1, End.OK, b"did it", 1, B)


def result_of_a_lost_lease() -> None:
    story = history()
    story.lost(M, 1, 1)
    story.resolved(M, 1, End.OK, b"did it", 1, A)


def begun_after_the_answer_cancelled() -> None:
    story = history()
    story.answered(A, M, 1, 1, Outcome.CANCELLED)
    story.begun(A, M, 1, 1)


def granted_after_its_submitter_saw_it_cancelled() -> None:
    story = history()
    story.lost(M, 1, 1)
    story.cancelled(M, 1)
    story.resolved(M, 1, End.CANCELLED, b"", 1, A)
    story.granted(M, 1, 2, B)


def given_up_too_early() -> None:
    story = history(attempts=2, max_worker_losses=3)
    story.lost(M, 1, 2)
    story.resolved(M, 1, End.LOST, b"", 2, None)


def given_up_for_refusals() -> None:
    story = history(max_worker_losses=0)
    story.lost(M, 1, 1, counts=False)
    story.resolved(M, 1, End.LOST, b"", 1, None)


def never_given_up() -> None:
    history(attempts=3, max_worker_losses=1)


def begun_after_its_expiry() -> None:
    story = history()
    story.begin_by(A, M, 1, 1, 5.0)
    story.begun(A, M, 1, 1, 5.001)


def tried_again_without_retry_settings() -> None:
    history().failed(M, 1, 1, 0.0, None)


def cancelled_and_nobody_asked() -> None:
    history().resolved(M, 1, End.CANCELLED, b"", 1, A)


def timed_out_without_a_deadline() -> None:
    history().resolved(M, 1, End.TIMEOUT, b"", 1, None, 1e9)


def timed_out_too_early() -> None:
    story = history()
    story.limited(M, 1, 5.0)
    story.resolved(M, 1, End.TIMEOUT, b"", 1, None, 4.999)


def another_result() -> None:
    history().resolved(M, 1, End.OK, b"did it ", 1, A)


def an_end_of_nothing() -> None:
    history().resolved(M, 2, End.TIMEOUT, b"", 0, None)


DOCTORED: list[tuple[str, Callable[[], None]]] = [
    ("every job ends", no_end),
    ("one end for each job", two_ends),
    ("runs are counted", begun_with_too_few_runs),
    ("runs are counted", begun_with_a_lease_that_was_handed_back),
    ("executions", begun_twice),
    ("executions", begun_more_often_than_leased),
    ("leases are lost for a cause", granted_while_leased),
    ("no double booking", too_many_slots),
    ("leases fit", more_leases_than_capacity),
    ("no stale result", result_of_an_old_attempt),
    ("no stale result", result_of_another_worker),
    ("no stale result", result_of_a_lost_lease),
    ("cancelled stays cancelled", begun_after_the_answer_cancelled),
    ("cancelled stays cancelled", granted_after_its_submitter_saw_it_cancelled),
    ("worker losses are kept", given_up_too_early),
    ("worker losses are kept", given_up_for_refusals),
    ("worker losses are kept", never_given_up),
    ("times are kept", begun_after_its_expiry),
    ("retries are kept", tried_again_without_retry_settings),
    ("ends have a cause", cancelled_and_nobody_asked),
    ("ends have a cause", timed_out_without_a_deadline),
    ("ends have a cause", timed_out_too_early),
    ("exact results", another_result),
    ("exact results", an_end_of_nothing),
]


@pytest.mark.parametrize(("name", "doctored"), DOCTORED, ids=[f.__name__ for _, f in DOCTORED])
def test_a_doctored_history_is_found_out(name, doctored):
    with pytest.raises(Violation) as caught:
        doctored()
    assert caught.value.name == name


def test_allowed_histories_break_no_invariant():
    story = ended()
    story.finish()
    story = history(attempts=3)
    for attempt, worker in ((1, A), (2, B), (3, A)):
        story.begun(worker, M, 1, attempt)
    story.resolved(M, 1, End.OK, b"did it", 3, A)
    story.finish()
    story = history()
    story.limited(M, 1, 5.0)
    story.resolved(M, 1, End.TIMEOUT, b"", 1, None, 5.0)
    story = history(attempts=2, max_worker_losses=1)
    story.lost(M, 1, 2)
    story.resolved(M, 1, End.LOST, b"", 2, None)
    story = history()
    story.cancelled(M, 1)
    story.cancelled(M, 99)  # no such job, as after a restart of the manager
    story.resolved(M, 1, End.CANCELLED, b"", 1, A)
    story = history()
    story.died(M)  # jobs end with the process of their manager
    story.finish()


def quiet(seed: int = 2, **faults: object) -> World:
    """Return a world with the named faults only."""
    world = World(seed=seed)
    world.faults = Faults(until=3.0, **faults)
    return world


def test_a_worker_that_takes_nothing_never_meets_its_jobs(monkeypatch):
    """A world finds this fault too: by "they meet", or at the latest by "every job ends"."""
    handle = WorkerMachine.handle

    def deaf(self, event, now):
        return [] if type(event).__name__ == "Received" else handle(self, event, now)

    monkeypatch.setattr(WorkerMachine, "handle", deaf)
    report = quiet().play()
    assert report.violation is not None
    assert report.violation.name in ("they meet", "every job ends")


def test_a_manager_that_sits_on_jobs_does_not_let_them_meet(monkeypatch):
    monkeypatch.setattr("wmp.core.manager.scheduler.Scheduler.offer", lambda self, queue, now: None)
    monkeypatch.setattr("wmp.core.manager.scheduler.Scheduler._fill", lambda self, give: [])
    names = set()
    for seed in range(5):
        world = quiet(seed)
        world.workload = type(world.workload)(world.workload.batches, (), ())
        report = world.play()
        assert report.violation is not None
        names.add(report.violation.name)
    assert "they meet" in names


def test_a_table_that_only_grows_is_found(monkeypatch):
    world = quiet()
    world.play()
    nodes = world.simulation.network.nodes.values()
    manager = next(node for node in nodes if isinstance(node, ManagerMachine))
    check_tables("m", manager, 0, 9)
    for number in range(100):
        manager._timers.set(("leak", number), 1e9)
    with pytest.raises(Violation, match=r"tables are bounded: m has \d+ timers"):
        check_tables("m", manager, 0, 9)


def test_a_machine_that_never_lets_time_pass_is_livelocked(monkeypatch):
    monkeypatch.setattr(WorkerMachine, "deadline", lambda self: 0.0)
    report = quiet().play()
    assert report.violation is not None
    assert report.violation.name == "no livelock"


def test_a_budget_that_is_used_up_is_livelock():
    world = quiet()
    world.simulation.budget = 20
    report = world.play()
    assert report.violation is not None
    assert report.violation.name == "no livelock"


def test_a_machine_that_raises_is_a_crash(monkeypatch):
    def broken(self, event, now):
        raise KeyError("gone")

    monkeypatch.setattr(ManagerMachine, "handle", broken)
    report = quiet().play()
    assert report.violation is not None
    assert report.violation.name == "no crash"
    assert "KeyError" in report.violation.detail


def test_a_second_process_that_does_not_stop_is_found(monkeypatch):
    """The second of two processes receives no ERROR superseded."""
    monkeypatch.setattr("wmp.core.protocol.claims.Claims._refuse", lambda *rest: None)
    seed = next(s for s in range(100) if World(seed=s).topology.double in ("w1", "w2"))
    strike = Strike(1.0, Fault.IDENTITY_COLLISION, 0.5, 0.5, 0.5)
    world = quiet(seed, strikes=(strike,))
    report = world.play()
    assert report.violation is not None
    assert report.violation.name == "one process for each identity"


def test_every_invariant_is_broken_by_some_test():
    here = {name for name, _ in DOCTORED} | {
        "they meet",
        "tables are bounded",
        "no livelock",
        "one process for each identity",
        "no crash",
    }
    in_pairs = {"standby is kept", "a pair serves"}  # tests/ablation/test_standby_safeguards.py
    in_worlds = {"a pause ends with a question"}  # tests/ablation/test_worlds.py
    assert here | in_pairs | in_worlds == set(INVARIANTS)


# -- what the faults do


@pytest.mark.parametrize("fault", STRIKES, ids=lambda fault: fault.value)
def test_each_kind_strikes_alone_and_nothing_is_broken_by_it(fault):
    struck = 0
    for seed in range(6):
        blow = Strike(1.0, fault, 0.7, (seed * 0.37) % 1, (seed * 0.61) % 1)
        world = quiet(seed, strikes=(blow,))
        report = world.play()
        assert report.violation is None, (seed, report.violation)
        assert set(report.faults) <= {fault.value}
        struck += report.faults.get(fault.value, 0)
    assert struck >= 2


@pytest.mark.parametrize("fault", MESSAGE_FAULTS, ids=lambda fault: fault.value)
def test_each_message_fault_hits_alone_and_nothing_is_broken_by_it(fault):
    hits = 0
    for seed in range(4):
        report = quiet(seed, rates={fault: 0.3}).play()
        assert report.violation is None, (seed, report.violation)
        hits += report.faults.get(fault.value, 0)
    assert hits > 10


def test_a_killed_node_receives_nothing_until_it_restarts():
    world = quiet()
    world.open()
    simulation, network = world.simulation, world.simulation.network
    simulation.run(1.0)
    simulation.fleet.kill("m1")
    before = network.nodes["m1"]
    network.happen("m1", Submitted([99], [b"x"], Kind()))
    assert network.nodes["m1"].statistics().queued == before.statistics().queued
    assert not any("m1" in (pipe[0], network.far(pipe)[0]) for pipe in network.pipes)
    simulation.fleet.start("m1")
    assert network.nodes["m1"].settings.epoch > before.settings.epoch


def test_a_paused_node_gets_everything_afterwards_in_order():
    world = quiet()
    world.open()
    simulation, network = world.simulation, world.simulation.network
    simulation.run(1.0)
    simulation.fleet.pause("m1", 2.0)
    network.happen("m1", Submitted([1], [b"a"], Kind()))
    world.driver.tasks.update({b"a": None, b"b": None})
    steps = []
    network.watchers[:] = [lambda name, event, actions: steps.append(event)]
    network.happen("m1", Submitted([2], [b"b"], Kind()))
    assert steps == []
    simulation.fleet.resume("m1")
    assert [event.ids for event in steps if isinstance(event, Submitted)] == [[1], [2]]


def test_a_half_open_link_loses_messages_without_a_notice():
    world = quiet()
    world.open()
    simulation, network = world.simulation, world.simulation.network
    connections = simulation.connections
    simulation.run(1.5)
    name, link = next(
        p
        for p in network.pipes
        if isinstance(p[1], int) and isinstance(network.nodes[p[0]], WorkerMachine)
    )
    connections.deaden(name, link)
    far = network.far((name, link))
    before = network.nodes[far[0]]
    simulation.run(1.5 + 0.9 * world.topology.timers.ping)
    assert (name, link) in connections.stale
    assert network.nodes[far[0]] is before
    # Only the worker can notice the fault, and only by the silence.
    simulation.run(simulation.now + 8 * world.topology.timers.ping + world.topology.timers.backoff)
    assert far not in network.pipes
    assert (name, link) in network.pipes


def at_work(task: SimulatedTask) -> tuple[World, str, LinkQueue]:
    """Return a world without faults in which one job runs, and the worker of the job."""
    world = quiet()
    world.workload = type(world.workload)((), (), ())
    world.open()
    simulation, network = world.simulation, world.simulation.network
    simulation.run(1.5)
    world.driver.offer(SubmitBatch(1.5, "m1", Kind(), (task,), timeout=10.0))
    while not (lanes := list(network.running())):
        simulation.run(simulation.now + 0.01)
    return world, *lanes[0]


LONG = SimulatedTask(b"long", 60.0, fails=False, heeds=False)


def test_a_job_is_tried_again_after_its_process_died():
    world, name, lane = at_work(LONG)
    simulation, network = world.simulation, world.simulation.network
    assert list(lane.run.attempts) == [1]
    simulation.runner.bereave(name, lane)
    simulation.run(simulation.now + 1.0)
    (again,) = (lane for _, lane in network.running())
    assert list(again.run.attempts) == [2]
    assert network.alive(name)


def test_a_hanging_handler_is_ended_when_its_result_is_not_wanted():
    for ask, left in ((True, 0.5), (False, 10.5)):
        world, name, lane = at_work(LONG)
        simulation, network = world.simulation, world.simulation.network
        simulation.runner.hang(name, lane, 1000.0)
        if ask:
            network.cancel("m1", [1])
        simulation.run(simulation.now + left)
        assert not network.lanes[name]
        assert not simulation.runner.hung
        ended = End.CANCELLED if ask else End.TIMEOUT
        assert simulation.checks.ends == {ended: 1}
        simulation.history.finish()


def test_of_two_nodes_of_one_identity_one_goes_on():
    """The second worker stops as superseded. The operator ends one of two managers.

    Two workers continue if each of them was the first at some managers.
    """
    stopped = {"m": 0, "w": 0}
    for seed in range(30):
        if World(seed=seed).topology.double is None:
            continue
        blow = Strike(1.0, Fault.IDENTITY_COLLISION, 0.5, 0.5, 0.5)
        world = quiet(seed, strikes=(blow,))
        report = world.play()
        assert report.violation is None, (seed, report.violation)
        first = world.topology.double
        if report.faults:
            network, second = world.simulation.network, f"{first}+"
            running = [name for name in (first, second) if network.alive(name)]
            if len(running) == 2:  # each of them serves other managers
                assert world.simulation.fleet.unserved() == []
                continue
            (ended,) = {first, second}.difference(running)
            if first in world.topology.workers:
                # A world may end, and drain its nodes, before three intervals are over.
                assert isinstance(network.halted[ended], Superseded | None)
            stopped[first[0]] += 1
    assert min(stopped.values()) > 2


def test_a_device_of_a_full_pipe_reports_and_an_end_node_parks():
    seed = next(s for s in range(50) if "d1" in World(seed=s).topology.uplinks)
    world = quiet(seed)
    world.open()
    simulation, network = world.simulation, world.simulation.network
    connections = simulation.connections
    simulation.run(2.0)
    for pipe in network.pipes:
        connections.full[pipe] = []
    simulation.run(3.0)
    parked = {pipe[0] for pipe, waiting in connections.full.items() if waiting}
    assert parked
    assert not any(isinstance(network.nodes[name], DeviceMachine) for name in parked)
    for pipe in tuple(connections.full):
        connections.flush(pipe)
    assert not connections.full
