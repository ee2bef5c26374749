"""Gateways: clients and workers of other protocols, and WMP nodes, serve each other."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import stat
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import zmq

import wmp
from tests.interop.gateways.foreign_workers import WORKERS
from tests.waiting import WAIT, WAIT_MS, wait_until
from wmp.errors import ClosedError, ConfigError, NoReply, TransportError
from wmp.gateways import (
    ClientDoor,
    Gateway,
    LazyClient,
    ParanoidWorker,
    PingPongWorker,
    SimpleWorker,
    WorkerDoor,
)
from wmp.gateways.aio import LazyClient as AsyncLazyClient
from wmp.gateways.aio import SimpleWorker as AsyncSimpleWorker
from wmp.gateways.common.attendance import Attendance
from wmp.gateways.gateway import aio as aio_gateway
from wmp.gateways.gateway.control import ControlSocket, ask

pytestmark = pytest.mark.interop

ANY = "tcp://127.0.0.1:*"

OURS = {
    "simple-pirate": SimpleWorker,
    "paranoid-pirate": ParanoidWorker,
    "ping-pong": PingPongWorker,
}


def shout(body):
    return [part.upper() for part in body] if isinstance(body, list) else body.upper()


def together(count):
    """Return a maker of handlers; the first calls of all handlers wait for each other."""
    barrier = threading.Barrier(count, timeout=WAIT)

    def make():
        met = []

        def work(body):
            if not met:
                met.append(body)
                barrier.wait()
            return shout(body)

        return work

    return make


@pytest.fixture(params=OURS)
def protocol(request):
    return request.param


def queue_of(protocol, **settings):
    """Return a gateway in the place of a queue or broker."""
    return Gateway(ClientDoor(ANY), WorkerDoor(ANY, protocol=protocol, **settings))


def front(gateway):
    return gateway.doors[0][0]


def back(gateway):
    return gateway.doors[-1][0]


def places(gateway):
    """Return the number of foreign workers that wait for a request or have one."""
    states = [state for ids in gateway.workers().values() for state in ids.values()]
    return states.count(Attendance.IDLE) + states.count(Attendance.BUSY)


@pytest.mark.parametrize("other", [False, True], ids=["ours", "plain"])
def test_a_gateway_stands_in_the_place_of_a_queue_or_broker(protocol, other, context):
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(queue_of(protocol))
        make = WORKERS[protocol] if other else lambda at: OURS[protocol](at, shout)
        workers = [stack.enter_context(make(back(gateway))) for _ in range(2)]
        wait_until(lambda: places(gateway) == 2)
        client = stack.enter_context(LazyClient(front(gateway), timeout=WAIT))
        req = context.socket(zmq.REQ)
        req.set(zmq.REQ_CORRELATE, 1)
        req.rcvtimeo = WAIT_MS
        req.connect(front(gateway))
        for number in range(20):
            req.send(b"q%d" % number)
            assert client.request(b"r%d" % number) == b"R%d" % number
            assert req.recv() == b"Q%d" % number
        req.close(linger=0)
        assert client.request([b"several", b"", b"frames"]) == [b"SEVERAL", b"", b"FRAMES"]
        seen = gateway.statistics()
        if other:
            assert sum(worker.done for worker in workers) == 41
            assert min(worker.done for worker in workers) >= 18
    assert (seen.doors[0].replies, seen.doors[1].replies) == (41, 41)
    assert seen.manager.dropped == {}


def test_a_reply_may_have_more_frames_than_its_request(protocol):
    with (
        queue_of(protocol) as gateway,
        WORKERS[protocol](back(gateway), lambda body: [*body, b"", b"more"]),
        LazyClient(front(gateway), timeout=WAIT) as client,
    ):
        assert client.request(b"one") == [b"one", b"", b"more"]


@pytest.mark.rule("VALUE-2.6")
def test_a_worker_of_wmp_answers_one_frame_with_several():
    with (
        Gateway(ClientDoor(ANY, role="fetch"), bind=ANY) as gateway,
        wmp.Worker(*gateway.endpoints, handlers={"fetch": lambda body: [b"200", body]}),
        LazyClient(front(gateway), timeout=WAIT) as client,
    ):
        assert client.request(b"page") == [b"200", b"page"]


@pytest.mark.rule("VALUE-2.6")
def test_our_worker_behind_a_foreign_queue_answers_one_frame_with_several(protocol):
    with (
        queue_of(protocol) as gateway,
        OURS[protocol](back(gateway), lambda body: [b"200", body]),
        LazyClient(front(gateway), timeout=WAIT) as client,
    ):
        assert client.request(b"page") == [b"200", b"page"]


def test_a_client_of_a_pirate_queue_is_served_by_workers_of_wmp_behind_a_device():
    with (
        Gateway(ClientDoor(ANY, role="shout"), bind=ANY) as gateway,
        wmp.Device(bind=ANY, connect=gateway.endpoints) as device,
        wmp.Worker(*device.endpoints, handlers={"shout": shout}),
        LazyClient(front(gateway), timeout=WAIT) as client,
    ):
        for number in range(10):
            assert client.request(b"r%d" % number) == b"R%d" % number


def test_a_manager_of_wmp_is_served_by_paranoid_pirates_and_ping_pong_workers():
    shout_together = together(4)
    with contextlib.ExitStack() as stack:
        manager = stack.enter_context(wmp.Manager())
        gateway = stack.enter_context(
            Gateway(
                WorkerDoor(ANY, protocol="paranoid-pirate"),
                WorkerDoor(ANY, protocol="ping-pong"),
                connect=manager.endpoints,
            )
        )
        workers = [
            stack.enter_context(WORKERS[protocol](*bound, shout_together()))
            for protocol, bound in zip(("paranoid-pirate", "ping-pong"), gateway.doors, strict=True)
            for _ in range(2)
        ]
        wait_until(lambda: places(gateway) == 4)
        manager.wait_for_workers(2, timeout=WAIT)
        results = list(manager.map([b"j%d" % n for n in range(200)]))
        assert results == [b"J%d" % n for n in range(200)]
        assert sum(worker.done for worker in workers) == 200
        assert min(worker.done for worker in workers) > 0
        labels = {row.label.rpartition("/")[2] for row in manager.statistics().workers}
    assert labels == {"paranoid-pirate", "ping-pong"}


def test_workers_of_both_worlds_do_the_requests_of_one_door():
    shout_together = together(2)
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(
            Gateway(ClientDoor(ANY), WorkerDoor(ANY, protocol="simple-pirate"), bind=ANY)
        )
        foreign = stack.enter_context(WORKERS["simple-pirate"](back(gateway), shout_together()))
        done = []
        first = shout_together()

        def shout_too(body):
            done.append(body)
            return first(body)

        native = wmp.Worker(*gateway.endpoints, handlers=shout_too)
        stack.enter_context(native)
        wait_until(lambda: len(gateway.statistics().manager.workers) == 2)
        clients = [stack.enter_context(LazyClient(front(gateway), timeout=WAIT)) for _ in range(4)]
        pool = stack.enter_context(ThreadPoolExecutor(4))
        wrong = pool.map(ask_in_turn, clients, [b"a", b"b", b"c", b"d"], [50] * 4)
        assert list(wrong) == [0, 0, 0, 0]
        assert foreign.done + len(done) == 200
        assert min(foreign.done, len(done)) > 0


@pytest.mark.rule("PIRATE-7.3", "PING-4.6")
def test_a_foreign_worker_that_ends_loses_its_request_to_another(protocol, context):
    plain = WORKERS[protocol]
    held = context.socket(plain.kind)
    held.rcvtimeo = WAIT_MS
    with (
        queue_of(protocol) as gateway,
        LazyClient(front(gateway), timeout=WAIT) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        held.connect(back(gateway))
        held.send_multipart(plain.ready)
        wait_until(lambda: places(gateway) == 1)
        reply = pool.submit(client.request, b"x")
        while b"x" not in held.recv_multipart():
            pass  # signs of life
        with plain(back(gateway)) as other:
            wait_until(lambda: places(gateway) == 2)
            held.close(linger=0)
            assert reply.result() == b"X"
        assert other.done == 1
        assert gateway.statistics().doors[1].lost == 1


def ask_in_turn(client, name, count):
    """Return how many of these requests got the reply of another request."""
    bodies = [b"%s-%d" % (name, number) for number in range(count)]
    return sum(client.request(body) != body.upper() for body in bodies)


@pytest.mark.parametrize(
    "count",
    [50, pytest.param(25_000, marks=[pytest.mark.deep, pytest.mark.timeout(1800)])],
)
def test_many_cycles_of_four_clients_are_counted_and_compared(protocol, count):
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(queue_of(protocol))
        for _ in range(4):
            stack.enter_context(OURS[protocol](back(gateway), bytes.upper, pool="inline"))
        clients = [stack.enter_context(LazyClient(front(gateway), timeout=WAIT)) for _ in range(4)]
        pool = stack.enter_context(ThreadPoolExecutor(4))
        names = [b"a", b"b", b"c", b"d"]
        assert list(pool.map(ask_in_turn, clients, names, [count] * 4)) == [0, 0, 0, 0]
        seen = gateway.statistics()
        assert [row.replies for row in seen.doors] == [4 * count] * 2


@pytest.mark.parametrize(
    "count",
    [25, pytest.param(12_500, marks=[pytest.mark.deep, pytest.mark.timeout(1800)])],
)
def test_many_cycles_on_one_loop(protocol, count):
    async def main():
        async with contextlib.AsyncExitStack() as stack:
            doors = (ClientDoor(ANY), WorkerDoor(ANY, protocol=protocol))
            gateway = await stack.enter_async_context(aio_gateway.Gateway(*doors))
            (at,), (below,) = gateway.doors
            for _ in range(4):
                worker = OURS[protocol](below, bytes.upper, pool="inline")._inner
                await stack.enter_async_context(worker)

            async def ask_all(name):
                async with AsyncLazyClient(at, timeout=WAIT) as client:
                    bodies = [b"%s-%d" % (name, n) for n in range(count)]
                    return sum([await client.request(b) != b.upper() for b in bodies])

            wrong = await asyncio.gather(*(ask_all(b"%d" % n) for n in range(8)))
            return wrong, gateway.statistics().doors[0].replies

    assert asyncio.run(main()) == ([0] * 8, 8 * count)


def test_a_gateway_that_drains_answers_the_requests_in_progress():
    begun, go_on = threading.Event(), threading.Event()

    def slow(body):
        begun.set()
        assert go_on.wait(WAIT)
        return [b"done"]

    with (
        queue_of("simple-pirate") as gateway,
        WORKERS["simple-pirate"](back(gateway), slow),
        LazyClient(front(gateway), timeout=WAIT) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        reply = pool.submit(client.request, b"one")
        assert begun.wait(WAIT)
        with pytest.raises(TimeoutError, match="requests are still in progress after 0"):
            gateway.drain(0.01)
        go_on.set()
        gateway.drain(40)
        assert reply.result() == b"done"


@pytest.mark.parametrize("ends", ["with a worker", "without a worker"])
def test_a_gateway_that_drains_logs_what_it_waits_for_and_why(ends, caplog):
    caplog.set_level(logging.INFO, "wmp")
    limit = 60 if ends == "with a worker" else 0.2

    async def main():
        async with contextlib.AsyncExitStack() as stack:
            gateway = aio_gateway.Gateway(
                ClientDoor(ANY), WorkerDoor(ANY, protocol="simple-pirate")
            )
            await stack.enter_async_context(gateway)
            served = asyncio.create_task(gateway.run(limit))
            door = gateway.doors[0][0]
            client = await stack.enter_async_context(AsyncLazyClient(door, timeout=WAIT, tries=1))
            reply = asyncio.create_task(client.request(b"one"))
            while not gateway.statistics().manager.queued:
                await asyncio.sleep(0.01)
            gateway.interrupt()
            request = f"1 request at the door {door}"
            cause = "1 request of the role 'default': no worker is connected"
            assert (
                f"gateway: draining; waiting for at most {limit} s for {request}; a second signal "
                "stops the gateway at once"
            ) in caplog.messages
            assert (
                f"gateway: no connected worker can do requests that wait ({cause}); the gateway "
                "waits, because a worker may still connect"
            ) in caplog.messages
            if ends == "with a worker":
                await stack.enter_async_context(AsyncSimpleWorker(gateway.doors[1][0], shout))
                assert await reply == b"ONE"
                await served
                return
            with pytest.raises(TimeoutError, match=f"ended with {re.escape(request)}$"):
                await served
            assert (
                f"gateway: the drain timeout of 0.2 s ended with {request} ({cause}); stopping; "
                "requests in progress get no reply"
            ) in caplog.messages
            reply.cancel()

    asyncio.run(main())


def test_a_gateway_without_requests_drains_without_a_cause(caplog):
    caplog.set_level(logging.INFO, "wmp")

    async def main():
        gateway = aio_gateway.Gateway(ClientDoor(ANY), WorkerDoor(ANY, protocol="simple-pirate"))
        async with gateway:
            gateway.interrupt()
            await gateway.run()

    asyncio.run(main())
    assert caplog.messages == [
        "gateway: draining; a second signal stops the gateway at once",
    ]


def test_a_gateway_that_drains_names_the_jobs_of_other_managers(caplog):
    caplog.set_level(logging.INFO, "wmp")
    begun, go_on = threading.Event(), threading.Event()

    def slow(body):
        begun.set()
        assert go_on.wait(WAIT)
        return b"done"

    async def main():
        async with (
            wmp.aio.Manager(ANY) as manager,
            aio_gateway.Gateway(
                WorkerDoor(ANY, protocol="simple-pirate"), connect=manager.endpoints
            ) as gateway,
            AsyncSimpleWorker(gateway.doors[0][0], slow),
        ):
            job = await manager.submit(b"one")
            await asyncio.to_thread(begun.wait, 40)
            gateway.interrupt()
            go_on.set()
            assert await job == b"done"
            await gateway.run()

    asyncio.run(main())
    assert (
        "gateway: draining; waiting for 1 job of other managers; a second signal stops the gateway "
        "at once"
    ) in caplog.messages


def test_a_request_without_a_reply_within_its_timeout_ends():
    with (
        Gateway(ClientDoor(ANY, timeout=0.1), WorkerDoor(ANY, protocol="simple-pirate")) as gateway,
        ThreadPoolExecutor(1) as pool,
    ):
        # The client stays until the time has passed: a request of a client that left is forgotten.
        with LazyClient(front(gateway), timeout=WAIT, tries=1) as client:
            reply = pool.submit(client.request, b"one")
            wait_until(lambda: gateway.statistics().doors[0].unanswered == {"timeout": 1})
            assert not reply.done()
        with pytest.raises(ClosedError):
            reply.result()


def test_a_gateway_logs_once_why_requests_wait(caplog):
    with (
        queue_of("paranoid-pirate") as gateway,
        LazyClient(front(gateway), timeout=WAIT) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        reply = pool.submit(client.request, b"one")
        expected = "gateway: jobs of role 'default' wait (1 job): no worker is connected"
        wait_until(lambda: expected in caplog.messages)
        with ParanoidWorker(back(gateway), shout):
            assert reply.result() == b"ONE"
    assert caplog.messages.count(expected) == 1


@pytest.mark.rule("PING-4.8")
def test_a_ping_pong_broker_answers_full_and_refuses_control_words():
    with (
        Gateway(
            ClientDoor(ANY, protocol="ping-pong", limit=1),
            WorkerDoor(ANY, protocol="ping-pong"),
        ) as gateway,
        LazyClient(front(gateway), timeout=WAIT) as client,
        LazyClient(front(gateway), timeout=WAIT) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        with (
            LazyClient(front(gateway), timeout=0.5, tries=1) as wrong,
            pytest.raises(NoReply),
        ):
            wrong.request(b"EXIT")
        reply = pool.submit(client.request, b"one")
        wait_until(lambda: gateway.statistics().doors[0].waiting == 1)
        assert other.request(b"two") == b"FULL"
        with WORKERS["ping-pong"](back(gateway)):
            assert reply.result() == b"ONE"


def test_an_operator_ends_a_ping_pong_worker_by_the_control_socket(tmp_path):
    path = tmp_path / "control"

    async def main():
        doors = (ClientDoor(ANY), *(WorkerDoor(ANY, protocol=p) for p in WORKERS))
        async with aio_gateway.Gateway(*doors) as gateway, ControlSocket(path, gateway):
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            ids = {}
            with contextlib.ExitStack() as stack:
                bound = dict(zip(WORKERS, gateway.doors[1:], strict=True))
                workers = {
                    name: stack.enter_context(make(*bound[name])) for name, make in WORKERS.items()
                }
                while len(ids) < 3:
                    answer = await asyncio.to_thread(ask, path, {"do": "workers"})
                    ids = {row["group"]: row["id"] for row in answer["workers"]}
                kill = {"do": "kill", "id": ids["ping-pong"]}
                assert await asyncio.to_thread(ask, path, kill) == {"killed": ids["ping-pong"]}
                await asyncio.to_thread(workers["ping-pong"]._thread.join, 40)
                assert workers["ping-pong"].extra[-1] == [b"", b"EXIT"]
                for id, text in (
                    (ids["simple-pirate"], "know no EXIT"),
                    (ids["ping-pong"], "there is no worker"),
                    ("zz", "hexadecimal"),
                ):
                    with pytest.raises(TransportError, match=text):
                        await asyncio.to_thread(ask, path, {"do": "kill", "id": id})
            with pytest.raises(ConfigError, match="already in use"):
                async with ControlSocket(path, gateway):
                    pass

    asyncio.run(main())
    assert not path.exists()
    with pytest.raises(ConfigError, match="cannot reach a gateway"):
        ask(path, {"do": "workers"})


def test_a_control_socket_replaces_no_other_file(tmp_path):
    jobs, link, kept = (tmp_path / name for name in ("jobs.db", "link", "kept"))
    jobs.write_text("precious")
    link.symlink_to(jobs)

    async def main():
        async with aio_gateway.Gateway(
            ClientDoor(ANY), WorkerDoor(ANY, protocol="ping-pong")
        ) as gateway:
            for path, kind in ((jobs, "a file"), (link, "a symbolic link"), (tmp_path, "a folder")):
                with pytest.raises(ConfigError, match=f"is {kind}"):
                    await ControlSocket(path, gateway).__aenter__()
            async with ControlSocket(kept, gateway):
                kept.unlink()
                kept.write_text("of another program")

    asyncio.run(main())
    assert jobs.read_text() == "precious"
    assert link.is_symlink()
    assert kept.read_text() == "of another program"


@pytest.mark.parametrize(
    ("doors", "settings", "text"),
    [
        ((), {}, "has no door"),
        ((ClientDoor(ANY),), {}, "no worker could do the requests"),
        ((WorkerDoor(ANY, protocol="ping-pong"),), {}, "would get no jobs"),
        (
            (WorkerDoor(ANY, protocol="ping-pong"),),
            {"connect": "tcp://127.0.0.1:9", "bind": ANY},
            "has no jobs for them",
        ),
        ((ClientDoor(ANY),), {"bind": ANY, "connect": "tcp://127.0.0.1:9"}, "has no workers"),
        ((ClientDoor(ANY), *[WorkerDoor(ANY, protocol="ping-pong")] * 2), {}, "a group of its own"),
        ((ClientDoor("tcp://0.0.0.0:9"),), {"bind": ANY}, "without keys"),
        ((ClientDoor("tcp://127.0.0.1:9"),), {"bind": "tcp://127.0.0.1:9"}, "listed twice"),
        ((ClientDoor(ANY, keys=True),), {"bind": ANY}, "needs keys"),
        ((ClientDoor,), {"bind": ANY}, "expected a value such as ClientDoor"),
    ],
)
def test_doors_that_do_not_fit_together_are_refused(doors, settings, text):
    with pytest.raises(ConfigError, match=text):
        Gateway(*doors, **settings)


def test_a_door_is_open_to_the_network_only_if_it_says_so():
    Gateway(ClientDoor("tcp://0.0.0.0:9", open=True), bind=ANY)


@pytest.mark.parametrize(
    "settings",
    [
        {"protocol": "pirate"},
        {"protocol": "ping-pong", "heartbeat": 0.001},
        {"protocol": "ping-pong", "heartbeat": 31},
        {"protocol": "ping-pong", "liveness": 0},
        {"protocol": "ping-pong", "roles": ()},
        {"protocol": "ping-pong", "group": ""},
        {"protocol": "ping-pong", "busy_timeout": 0},
        {"protocol": "ping-pong", "max_workers": 0},
        {"protocol": "ping-pong", "max_workers": 4097},
        {"protocol": "ping-pong", "open": "yes"},
        {"protocol": "ping-pong", "heartbeats": "two-way"},
        {"protocol": "simple-pirate", "heartbeats": "one-way"},
    ],
)
def test_settings_of_a_door_for_workers_are_checked(settings):
    with pytest.raises(ConfigError):
        WorkerDoor(ANY, **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"protocol": "simple-pirate"},
        {"role": ""},
        {"max_worker_losses": -1},
        {"timeout": 0},
        {"limit": 0},
        {"key": "header"},
        {"priority": "high"},
        {"needs": {"slots": -1}},
        {"as_list": 1},
    ],
)
def test_settings_of_a_door_for_clients_are_checked(settings):
    with pytest.raises(ConfigError):
        ClientDoor(ANY, **settings)


def test_the_journals_of_a_gateway_are_those_of_nodes(tmp_path):
    with (
        Gateway(
            ClientDoor(ANY), WorkerDoor(ANY, protocol="simple-pirate"), journal=tmp_path
        ) as gateway,
        WORKERS["simple-pirate"](back(gateway)),
        LazyClient(front(gateway), timeout=WAIT) as client,
    ):
        assert client.request(b"one") == b"ONE"
    answers = {}
    for path in tmp_path.iterdir():
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        answers[lines[0]["kind"]] = [line["what"] for line in lines]
    assert {"submitted", "resolve"} <= set(answers["manager"])
    assert {"resized", "run", "finished"} <= set(answers["worker"])
