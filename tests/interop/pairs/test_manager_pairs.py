"""Two managers as a pair: one serves, the other is on standby and takes over.

``WMP_SEED`` repeats an order of kills; the exact moments differ from run to run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import threading
import time

import pytest

import wmp
import wmp.aio
from tests.interop.pairs.pair_clients import PairClients
from tests.interop.pairs.test_star_gateways import knows_standby
from tests.interop.programs.forks import ForkedProgram
from tests.waiting import WAIT, wait_until
from wmp.errors import ClosedError, ConfigError, NoReply, OnStandby, StarConflict, StoreError
from wmp.gateways import BinaryStar, FrontDoor, StarClient
from wmp.gateways.binary_star import aio
from wmp.gateways.binary_star.election import StarState

pytestmark = pytest.mark.interop

SEED = int(os.environ.get("WMP_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
PROGRAM = (sys.executable, "-m", "tests.interop.pairs.pair_program")
OTHER = {"a": "b", "b": "a"}
ROLES = {"a": "primary", "b": "backup"}
MANAGERS = ("ipc://wmp-a", "ipc://wmp-b")
DOORS = ("ipc://door-a", "ipc://door-b")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Return the folder of the sockets, which is the working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(own, *, star=BinaryStar, manager=wmp.Manager, role=None, heartbeat=0.5, **settings):
    node = star(
        role or ROLES[own],
        local=f"ipc://state-{own}",
        remote=f"ipc://state-{OTHER[own]}",
        heartbeat=heartbeat,
    )
    return manager(f"ipc://wmp-{own}", identity=f"orders-{own}", star=node, **settings)


def worker(handler=bytes.upper, **settings):
    return wmp.Worker(*MANAGERS, handlers=handler, **settings)


def result_of(results, key):
    """Wait for the result of a stored job."""
    wait_until(lambda: results.get(key=key, default=None) is not None, key)
    return results.get(key=key)


@pytest.mark.rule("STAR-4.1", "STAR-4.2", "STAR-4.3", "STAR-4.6")
def test_one_manager_serves_and_the_other_takes_over():
    first, second = make("a"), make("b")
    with worker(), second:
        with first:
            first.wait_active(WAIT)
            assert first.submit(b"one").result(WAIT) == b"ONE"
            assert (first.active, second.active) == (True, False)
            for submit in (second.submit, second.submit_nowait, lambda body: second.map([body])):
                with pytest.raises(OnStandby, match="the other manager of its pair may serve"):
                    list(submit(b"two"))
            with pytest.raises(TimeoutError, match=r"still on standby after 0\.01 s"):
                second.wait_active(0.01)
        second.wait_active(WAIT)  # the PING of the worker was the vote
        assert second.submit(b"three").result(WAIT) == b"THREE"
        again = make("a")
        with again:
            wait_until(lambda: again._inner.standby.star.state is StarState.PASSIVE)
            again.wait_for_workers(timeout=WAIT)
            assert (again.active, second.active) == (False, True)
            assert second.submit(b"four").result(WAIT) == b"FOUR"
    assert not second.active
    with pytest.raises(ClosedError):
        second.wait_active()


def test_a_pair_for_asyncio():
    async def play():
        kinds = {"star": aio.BinaryStar, "manager": wmp.aio.Manager}
        async with wmp.aio.Worker(*MANAGERS, handlers=bytes.upper), make("b", **kinds) as second:
            async with make("a", **kinds) as first:
                await first.wait_active(WAIT)
                assert await (await first.submit(b"one")) == b"ONE"
                with pytest.raises(OnStandby):
                    await second.submit(b"two")
            await second.wait_active(WAIT)
            assert await (await second.submit(b"two")) == b"TWO"

    asyncio.run(play())


def test_a_manager_without_a_pair_is_active_while_it_serves():
    with wmp.Manager() as manager:
        manager.wait_active(0)
        assert manager.active
    assert not manager.active


def test_a_wait_ends_with_the_manager():
    for end in (wmp.Manager.close, wmp.Manager.drain):
        with make("b") as manager:
            ended = []

            def wait(manager=manager, ended=ended):
                try:
                    manager.wait_active()
                except ClosedError as error:
                    ended.append(error)

            waiting = threading.Thread(target=wait)
            waiting.start()
            end(manager)
            waiting.join(WAIT)
            assert ended


def test_the_other_manager_takes_over_from_one_that_drained():
    first, second = make("a"), make("b")
    with worker(), second, first:
        first.wait_active(WAIT)
        wait_until(lambda: second._inner.standby.star.state is StarState.PASSIVE)
        first.drain()
        second.wait_active(WAIT)
        assert second.submit(b"one").result(WAIT) == b"ONE"


def test_a_manager_on_standby_is_closed_and_drained(folder):
    for settings in ({}, {"store": folder / "jobs.db"}):
        for end in (wmp.Manager.close, wmp.Manager.drain):
            with make("b", **settings) as manager:
                end(manager)


@pytest.mark.rule("STAR-4.2")
def test_a_request_at_a_door_is_a_vote():
    manager = make("a")
    # There is no worker yet: the request alone decides, and its job waits for the worker.
    with manager, FrontDoor("ipc://door", manager=manager) as door:
        with StarClient("ipc://door", "ipc://nobody", timeout=WAIT) as client:
            replies = []
            wait_until(lambda: manager._inner.standby.star._machine._silent_at < time.monotonic())
            asker = threading.Thread(target=lambda: replies.append(client.request(b"one")))
            asker.start()
            manager.wait_active(WAIT)
            with worker():
                asker.join(WAIT)
        assert replies == [b"ONE"]
        assert door.statistics().requests == 1


@pytest.mark.rule("STAR-4.2")
def test_a_request_at_the_door_of_a_manager_on_standby_is_dropped():
    first, second = make("a"), make("b")
    with worker(), first, second:
        first.wait_active(WAIT)
        wait_until(lambda: second._inner.standby.star.state is StarState.PASSIVE)
        with (
            FrontDoor("ipc://door", manager=second) as door,
            StarClient("ipc://door", "ipc://nobody", timeout=0.1, settle=0.1, tries=1) as client,
        ):
            with pytest.raises(NoReply):
                client.request(b"one")
            assert door.statistics().requests == 0


@pytest.mark.rule("STAR-4.4")
def test_the_survivor_goes_on_with_the_queue_of_a_shared_store(folder):
    store = folder / "jobs.db"
    first, second = make("a", store=store), make("b", store=store)
    with second:
        with first:
            with worker({"nothing": bytes.upper}):
                first.wait_active(WAIT)
            for number in range(20):
                first.submit(b"%d" % number, key=f"job {number}")
            first.close(0)  # as if its process had ended: there was no worker for these jobs
        with worker(), wmp.results(store) as results:
            second.wait_active(WAIT)
            for number in range(20):
                assert result_of(results, f"job {number}") == b"%d" % number


@pytest.mark.rule("STAR-4.4")
def test_a_store_is_opened_at_the_start_and_an_instance_begins_at_the_takeover(folder):
    (folder / "file").write_text("no folder")
    with pytest.raises((ConfigError, StoreError)), make("a", store=folder / "file" / "jobs.db"):
        pass
    store = wmp.SqliteStore(folder / "jobs.db")
    began = []
    begin = store.begin
    store.begin = lambda *arguments: began.append(arguments) or begin(*arguments)
    first, second = make("a"), make("b", store=store)
    with worker(), second:
        with first:
            first.wait_active(WAIT)
            wait_until(lambda: second._inner.standby.star.state is StarState.PASSIVE)
            assert began == []
        second.wait_active(WAIT)
        assert len(began) == 1


@pytest.mark.rule("STAR-4.5")
def test_a_manager_ends_with_its_pair(folder):
    go_on = threading.Event()
    store = folder / "jobs.db"
    with worker(lambda body: go_on.wait(WAIT) and body, slots=2), contextlib.ExitStack() as stack:
        manager = stack.enter_context(make("a", store=store))
        manager.wait_active(WAIT)
        memory = manager.submit(b"one", stored=False)
        stored = manager.submit(b"two", key="two")
        wait_until(lambda: manager.statistics().leased == 2)
        # The other half of a partition: a node that is active, too.
        other = aio.BinaryStar("backup", local="ipc://state-b", remote="ipc://none", heartbeat=0.05)
        other._machine.state = StarState.ACTIVE

        async def meet():
            async with other:
                await asyncio.to_thread(manager.wait_ended)

        with pytest.raises(StarConflict, match=r"both nodes .* are active"):
            asyncio.run(meet())
        for job in (memory, stored):
            with pytest.raises(ClosedError, match=r"both nodes .* are active") as caught:
                job.result(WAIT)
            assert isinstance(caught.value.__cause__, StarConflict)
        assert not manager.active
        with pytest.raises(ClosedError, match="accepts no more jobs"):
            manager.submit(b"three")
        with pytest.raises(StarConflict):
            manager.wait_active()
        manager.close()
        go_on.set()
        with (
            wmp.Manager("ipc://wmp-b", store=store) as next_one,
            wmp.results(store) as results,
        ):
            wait_until(lambda: results.get(key="two", default=None) == b"two")
            assert next_one.active


@pytest.mark.rule("STAR-2.4")
def test_two_managers_of_one_role_end():
    with make("a") as first, make("b", role="primary") as second:

        def ended():
            return [manager for manager in (first, second) if not manager._inner._node.running]

        wait_until(ended)
        with pytest.raises(ConfigError, match="have the role primary"):
            ended()[0].wait_active()


@pytest.mark.rule("STAR-2.4")
def test_exit_codes_of_programs_with_a_pair():
    with (
        ForkedProgram(*PROGRAM, "a", "primary") as first,
        ForkedProgram(*PROGRAM, "b", "primary") as two,
    ):
        wait_until(lambda: 2 in (first.process.poll(), two.process.poll()))
    with (
        ForkedProgram(*PROGRAM, "a", "primary") as first,
        ForkedProgram(*PROGRAM, "b", "backup") as two,
        worker(),
    ):
        two.wait_for_line("passive")
        first.process.send_signal(signal.SIGSTOP)
        two.wait_for_line("active", on="stdout")
        first.process.send_signal(signal.SIGCONT)
        wait_until(lambda: 3 in (first.process.poll(), two.process.poll()))


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("rounds", "stored"),
    [
        (2, True),
        pytest.param(50, True, marks=pytest.mark.deep),
        pytest.param(50, False, marks=pytest.mark.deep),
    ],
)
def test_the_active_manager_is_killed_under_load(folder, rounds, stored):
    """Clients ask without end, and a submitter stores jobs; no reply and no stored job is lost."""
    print(f"WMP_SEED={SEED}")
    draw = random.Random(SEED)
    store = [str(folder / "jobs.db")] if stored else []
    with contextlib.ExitStack() as stack:

        def start(own):
            process = stack.enter_context(ForkedProgram(*PROGRAM, own, ROLES[own], *store))
            process.wait_for_line("serves", on="stdout")
            return process

        programs = {own: start(own) for own in ROLES}
        idle = stack.enter_context(worker(slots=4))

        clients = stack.enter_context(PairClients(DOORS, tries=100))
        clients.wait_for_replies()
        active, submitted, longest = "a", 0, []
        for _ in range(rounds):
            programs[active].wait_for_line("active", on="stdout")
            if stored:
                for _ in range(10):
                    submitted += 1
                    programs[active].feed(b"job %d\n" % submitted)
                programs[active].wait_for_line(f"submitted job {submitted}", on="stdout")
            clients.waits.clear()
            programs[active].process.kill()
            programs[active].process.wait(WAIT)
            clients.wait_for_replies()
            longest.append(max(clients.waits))
            if draw.random() < 0.5:
                wait_until(lambda: clients.replies % 7 == 0)  # another moment
            programs[active] = start(active)
            programs[active].wait_for_line("passive")
            wait_until(lambda: knows_standby(idle), "the worker knows the standby")
            clients.wait_for_replies()
            active = OTHER[active]
        print(f"takeovers: {sorted(round(seconds, 2) for seconds in longest)} s")
        clients.end()
        assert clients.wrong == []
        if stored:
            with wmp.results(store[0]) as results:
                for number in range(1, submitted + 1):
                    assert result_of(results, f"job {number}") == b"JOB %d" % number
