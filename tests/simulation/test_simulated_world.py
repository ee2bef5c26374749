"""Users' handlers in simulated worlds: the number of calls, killed processes, and results."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import wmp
from wmp.checks.job_history import Violation
from wmp.errors import ConfigError, JobCancelled, JobFailed, JobTimeout, WorkerLost
from wmp.testing import SimulatedWorld, simulate
from wmp.testing.handlers.handler_run import CrashPoint, HandlerCrash
from wmp.testing.handlers.simulated import parse_faults
from wmp.testing.simulator.faults import Fault

ORDERS = [b"order-%d" % number for number in range(6)]


def upper(payload):
    return payload.upper()


# -- effects of worlds on handlers


def test_without_faults_a_handler_is_called_once_a_job():
    for seed in range(8):
        world = SimulatedWorld(seed, faults=())
        world.worker(upper, slots=2, count=2)
        assert list(world.map(ORDERS)) == [order.upper() for order in ORDERS]
        world.run()
        assert {job.runs for job in world.jobs} == {1}
        assert not world.struck


def test_with_faults_every_job_has_its_result_and_equal_seeds_are_equal():
    again = 0
    for seed in range(25):
        accounts = []
        for _ in range(2):
            world = SimulatedWorld(seed)
            world.worker(upper, slots=2, count=2)
            assert list(world.map(ORDERS)) == [order.upper() for order in ORDERS], seed
            world.run()
            accounts.append(world.account())
        assert accounts[0] == accounts[1]
        assert world.struck
        again += any(job.runs > 1 for job in world.jobs)
    assert again > 4, "faults must make handlers run again"


@pytest.mark.parametrize(
    "faults", ["kill worker", "kill manager", "kill handler", "restart without memory"]
)
def test_each_fault_that_kills_makes_handlers_run_again(faults):
    struck = again = 0
    for seed in range(25):
        world = SimulatedWorld(seed, [faults])
        world.worker(upper, takes=(0.1, 1.0))
        list(world.map(ORDERS))
        world.run()
        assert set(world.struck) <= {faults}
        struck += bool(world.struck)
        again += any(job.runs > 1 for job in world.jobs)
    assert struck >= 20
    assert again > 3


def test_a_handler_is_ended_between_any_two_of_its_lines():
    steps = Counter()

    def handle(payload):
        steps["begun"] += 1
        steps["half"] += 1
        steps["done"] += 1
        return payload

    for seed in range(50):
        world = SimulatedWorld(seed, ["kill handler"])
        world.worker(handle)
        list(world.map(ORDERS))
    assert steps["begun"] > steps["half"] > steps["done"] > 50 * len(ORDERS)


def calls_of(faults, handler):
    """Return how often a handler of two steps reached each step, over many worlds."""
    for seed in range(20):
        world = SimulatedWorld(seed, faults)
        world.worker(handler)
        yield world, list(world.map(ORDERS))


def test_a_handler_that_catches_everything_is_killed_nevertheless():
    caught = Counter()

    def stubborn(payload):
        try:
            caught["tried"] += 1
        except BaseException:
            caught["caught"] += 1
        return payload

    for world, results in calls_of(["kill handler"], stubborn):
        assert results == ORDERS
        assert world.jobs[0].runs >= 1
    assert caught["caught"]
    # Each job had one call that returned; calls that were killed come in addition.
    assert caught["tried"] + caught["caught"] >= 20 * len(ORDERS)


def test_a_killed_coroutine_runs_again():
    steps = Counter()

    async def handle(payload, job):
        steps["begun"] += 1
        await asyncio.sleep(0)
        steps["done"] += 1
        return payload + b"%d" % job.attempt

    for _, results in calls_of(["kill worker", "kill handler"], handle):
        assert [result[: len(order)] for result, order in zip(results, ORDERS, strict=True)] == (
            ORDERS
        )
    assert steps["begun"] > steps["done"] > 20 * len(ORDERS)


def test_the_handler_of_a_factory_dies_with_its_process():
    def paid_twice(by):
        twice = False
        for seed in range(15):
            paid = Counter()

            def remembering(paid=paid):
                seen = set()

                def pay(order):
                    if order not in seen:
                        seen.add(order)
                        paid[order] += 1
                    return order

                return pay

            world = SimulatedWorld(seed, ["kill worker"])
            world.worker(**{by: remembering if by == "factory" else remembering()}, takes=0.5)
            list(world.map(ORDERS))
            twice = twice or max(paid.values()) > 1
        return twice

    assert not paid_twice("handlers")
    assert paid_twice("factory")


def test_a_handler_that_outlives_its_job_is_waited_for():
    """The first worker is cut off, and another worker does its job.

    The first handler still runs to its end.
    """
    late = 0
    for seed in range(25):
        world = SimulatedWorld(seed, ["two-way partition"])
        called = []
        world.worker(called.append, count=2, takes=(5.0, 10.0))
        world.submit(b"one")
        world.run()
        late += len(called) > 1
    assert late


# -- what a handler can see


def test_a_handler_is_given_its_job():
    seen = []

    def handle(payload, job):
        seen.append((job.id, job.attempt, job.role, job.deadline, job.cancelled))
        job.report(0.5, "half of it")
        return payload

    world = SimulatedWorld(1, ())
    world.worker({"cook": handle})
    job = world.submit(b"egg", role="cook", timeout=100.0)
    assert job.status() is None
    assert job.result() == b"egg"
    ((id, attempt, role, deadline, cancelled),) = seen
    assert (id, attempt, role, cancelled) == (1, 1, "cook", False)
    assert 90.0 < deadline < 100.0
    assert (job.status().fraction, job.status().text) == (0.5, "half of it")


def test_time_left_is_simulated_time():
    left = []

    def handle(payload, job):
        left.append(job.deadline)

    world = SimulatedWorld(3, ())
    world.worker(handle, takes=(20.0, 20.0))
    world.submit(b"first")
    world.submit(b"second", timeout=1000.0)
    world.run()
    assert 950.0 < left[1] < 985.0


def test_an_error_of_a_handler_reaches_the_submitter():
    def handle(payload):
        raise {b"value": ValueError, b"exit": SystemExit}[payload]("no")

    world = SimulatedWorld(1, ())
    world.worker(handle)
    for name, type_name in ((b"value", "ValueError"), (b"exit", "SystemExit")):
        with pytest.raises(JobFailed, match=f"{type_name}: no"):
            world.submit(name).result()
        assert f"calls the handler, attempt 1: it raises {type_name}: no\n" in world.account()


def test_an_interrupt_in_a_handler_ends_the_test():
    def handle(payload):
        raise KeyboardInterrupt

    world = SimulatedWorld(1, ())
    world.worker(handle)
    world.submit(b"")
    with pytest.raises(KeyboardInterrupt):
        world.run()


def test_a_result_that_cannot_travel_is_an_error_of_the_job():
    world = SimulatedWorld(1, ())
    world.worker(lambda payload: {"a": 1})
    with pytest.raises(JobFailed, match="expected bytes, str or None"):
        world.submit(b"").result()


def test_values_travel_with_the_codec():
    world = SimulatedWorld(2, codec="cbor")
    world.worker(lambda numbers: {"sum": sum(numbers)})
    assert list(world.map([[1, 2], [3, 4]])) == [{"sum": 3}, {"sum": 7}]
    with pytest.raises(TypeError, match="cannot be encoded by codec 'cbor'"):
        world.submit(object())


def test_a_worker_of_the_library_is_taken_as_it_is():
    worker = wmp.Worker("tcp://127.0.0.1:5555", slots=3, resources={"gpu": 2})

    @worker.handler("shout")
    def shout(payload):
        return payload.upper()

    world = SimulatedWorld(5, "kill")
    world.worker(worker, count=2)
    needs = {"slots": 3, "gpu": 2}
    assert world.submit(b"hey", role="shout", needs=needs).result() == b"HEY"
    with pytest.raises(ConfigError, match="no worker of this world can do that"):
        world.submit(b"hey", role="shout", needs={"gpu": 3}).result()


# -- what a submitter can see


def test_cancelling_ends_in_a_definite_answer():
    ends = Counter()
    for seed in range(20):
        world = SimulatedWorld(seed)
        world.worker(upper, takes=(0.5, 2.0))
        jobs = [world.submit(order) for order in ORDERS]
        world.run(1.0)
        cancelled = [job.cancel() for job in jobs]
        world.run()
        for job, open_ in zip(jobs, cancelled, strict=True):
            assert job.done()
            assert open_ or not job.cancelled()
            ends["cancelled" if job.cancelled() else "ok"] += 1
            if job.cancelled():
                with pytest.raises(JobCancelled):
                    job.result()
    assert ends["cancelled"] > 10
    assert ends["ok"] > 10


def test_time_runs_out():
    world = SimulatedWorld(0, ())
    world.worker(upper, takes=50.0)
    with pytest.raises(JobTimeout):
        world.submit(b"slow", timeout=5.0).result()
    assert 5.0 <= world.now < 100.0


def test_a_job_that_survives_no_worker_loss_may_be_lost():
    lost = 0
    for seed in range(20):
        world = SimulatedWorld(seed, ["kill worker", "kill handler"])
        world.worker(upper, takes=(0.1, 1.0))
        jobs = [world.submit(order, max_worker_losses=0) for order in ORDERS]
        world.run()
        lost += sum(isinstance(job.exception(), WorkerLost) for job in jobs)
    assert lost


def test_a_key_finds_the_job_in_progress():
    world = SimulatedWorld(0, ())
    world.worker(upper)
    job = world.submit(b"one", key="a")
    assert world.submit(b"one", key="a") is job
    world.run()
    assert world.submit(b"one", key="a") is not job


def test_one_may_go_on_after_the_end():
    for seed in range(8):
        world = SimulatedWorld(seed)
        world.worker(upper)
        for _ in range(3):
            assert list(world.map(ORDERS)) == [order.upper() for order in ORDERS]
        world.worker(upper)
        assert world.submit(b"more").result() == b"MORE"


# -- wrong use, and a violation, are reported


def test_arguments_that_cannot_be_are_refused():
    world = SimulatedWorld(0)
    with pytest.raises(ConfigError, match="there is no fault 'kil'; expected one of: drop,"):
        SimulatedWorld(0, ["kil"])
    with pytest.raises(ConfigError, match="codec is 'xml'"):
        SimulatedWorld(0, codec="xml")
    with pytest.raises(ConfigError, match="handlers or a factory"):
        world.worker()
    with pytest.raises(ConfigError, match=r"expected f\(payload\) or f\(payload, job\)"):
        world.worker(lambda: None)
    with pytest.raises(ConfigError, match="takes is"):
        world.worker(upper, takes=(2.0, 1.0))
    with pytest.raises(ConfigError, match="without a handler"):
        world.worker({})
    world.submit(b"")
    with pytest.raises(ConfigError, match=r"call world.worker\(\)"):
        world.run()


def test_a_handler_cannot_run_its_own_world():
    world = SimulatedWorld(0, ())
    world.worker(lambda payload: world.run())
    with pytest.raises(JobFailed, match="a handler must not run its own world"):
        world.submit(b"").result()


def test_faults_are_found_by_name_and_by_part_of_the_name():
    assert parse_faults(None) == frozenset(Fault)
    assert parse_faults("kill worker") == parse_faults([Fault.KILL_WORKER])
    assert parse_faults(["kill", "drop"]) == {
        Fault.KILL_WORKER,
        Fault.KILL_MANAGER,
        Fault.KILL_HANDLER,
        Fault.DROP,
    }


def test_a_broken_invariant_is_reported_as_a_defect_of_wmp():
    world = SimulatedWorld(0, ())
    text = world.account(Violation("executions", "twice"))
    assert "is a promise of wmp, so the defect is in wmp" in text


# -- the fuse: it ends a handler after a number of lines


def test_a_fuse_burns_line_by_line_and_spares_libraries():
    done = []

    def inner():
        done.append("inner")

    def handle():
        done.append(1)
        inner()
        Counter("a library has lines too")
        done.append(2)

    errors = []
    for lines in range(7):
        done.clear()
        crash = CrashPoint(handle, lines)
        try:
            with crash:
                handle()
        except HandlerCrash:
            assert ", in handle()" in crash.stopped_at or ", in inner()" in crash.stopped_at
        else:
            assert not crash.stopped_at
        errors.append(list(done))
    whole = [1, "inner", 2]
    assert errors == [[], [1], [1], [1, "inner"], [1, "inner"], whole, whole]


# -- the decorator, without pytest


def test_a_decorated_test_plays_its_worlds_and_names_the_failed_one():
    played = []

    @simulate(seeds=[4, 7, 9], faults=["drop"])
    def a_test(value, world):
        played.append((value, world.seed))
        world.worker(upper)
        world.submit(b"")
        world.run()
        assert world.seed != 7

    with pytest.raises(AssertionError) as raised:
        a_test("x")
    assert played == [("x", 4), ("x", 7)]
    (note,) = raised.value.__notes__
    assert note.startswith("seed 7 of a_test: 1 job, ")
    assert "the last steps:" in note


def test_the_first_world_has_no_faults():
    errors = []

    @simulate(seeds=4)
    def a_test(world):
        world.worker(upper)
        list(world.map(ORDERS))
        world.run()
        errors.append(bool(world.struck))

    a_test()
    assert errors == [False, True, True, True]


def test_tests_that_cannot_be_simulated_are_refused():
    with pytest.raises(ConfigError, match="has no parameter 'world'"):
        simulate(lambda: None)

    async def a_test(world): ...

    with pytest.raises(ConfigError, match="is not a plain `def`"):
        simulate(a_test)
    with pytest.raises(ConfigError, match="there is no fault 'x'"):
        simulate(faults="x")
    with pytest.raises(ConfigError, match="seeds is empty"):
        simulate(seeds=[])


# -- worlds in which the observer once reported a violation although the machines were correct


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(6915, id="messages are held up for longer than all else takes"),
        pytest.param(10664, id="the last message of a worker is an error"),
    ],
)
def test_worlds_that_were_accused_wrongly(seed):
    def handle(payload, job):
        job.report(0.5)
        if payload == b"bad":
            raise ValueError("no")
        return payload.upper()

    async def other(payload):
        return payload

    world = SimulatedWorld(seed)
    world.worker({"default": handle, "a": other}, slots=2)
    world.worker(handle, count=2)
    jobs = [world.submit(b"x%d" % number) for number in range(5)]
    world.submit(b"bad")
    world.submit(b"c", role="a")
    world.submit(b"d", timeout=3.0)
    unwanted = world.submit(b"e")
    world.run(0.5)
    unwanted.cancel()
    world.run()
    jobs += [world.submit(b"y%d" % number) for number in range(5)]
    world.run()
    assert all(job.result() for job in jobs)
