"""The broker, the clients and the workers of Majordomo on real sockets, beside the guide's."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import zmq

import wmp
from tests.interop.gateways.majordomo_peers import GuideBroker, GuideWorker, ask
from tests.waiting import WAIT, WAIT_MS, wait_until
from wmp.errors import ClosedError, ConfigError, NoReply
from wmp.gateways import (
    Gateway,
    MajordomoClient,
    MajordomoDoor,
    MajordomoPipelinedClient,
    MajordomoService,
    MajordomoWorker,
)
from wmp.gateways import aio as aio_majordomo
from wmp.gateways.gateway import aio as aio_gateway

pytestmark = pytest.mark.interop

ANY = "tcp://127.0.0.1:*"


def shout(body):
    return [part.upper() for part in body] if isinstance(body, list) else body.upper()


def worker(endpoint, handler=shout, service="shout", **settings):
    settings = {"heartbeat": 0.5, "reconnect": 0.1, **settings}
    return MajordomoWorker(endpoint, service, handler, **settings)


@pytest.fixture
def broker():
    with Gateway(MajordomoDoor(ANY, heartbeat=0.5)) as gateway:
        yield gateway


@pytest.fixture
def endpoint(broker):
    return broker.doors[0][0]


def test_our_peers_and_those_of_the_guide_serve_each_other_at_our_broker(endpoint):
    with (
        worker(endpoint),
        GuideWorker(endpoint, b"shout", 0.2),
        MajordomoClient(endpoint) as client,
    ):
        wait_until(lambda: client.has("shout"), "a worker")
        for number in range(20):
            assert ask(endpoint, b"shout", b"a%d" % number, b"", b"b") == [
                b"A%d" % number,
                b"",
                b"B",
            ]
            assert client.request("shout", b"x%d" % number) == b"X%d" % number
        assert client.request("shout", [b"a", b"b"]) == [b"A", b"B"]
        assert client.request("mmi.other", b"") == b"501"
        assert not client.has("other")
        with ThreadPoolExecutor(8) as pool:
            bodies = [b"body %d" % number for number in range(200)]
            replies = list(pool.map(lambda body: client.request("shout", body), bodies))
        assert replies == [body.upper() for body in bodies]


def test_our_client_and_worker_at_the_broker_of_the_guide():
    with (
        GuideBroker(1.0) as broker,
        worker(broker.endpoint, heartbeat=1.0),
        MajordomoClient(broker.endpoint) as client,
        MajordomoPipelinedClient(broker.endpoint) as stream,
    ):
        assert client.request("shout", b"hello") == b"HELLO"
        assert client.has("shout")
        for number in range(50):
            stream.send("shout", b"x%d" % number)
        assert [stream.recv(WAIT) for _ in range(50)] == [("shout", b"X%d" % n) for n in range(50)]
        assert broker.disconnected == 0


def test_a_worker_receives_requests_one_by_one(endpoint):
    with MajordomoWorker(endpoint, "count") as counter, MajordomoClient(endpoint) as client:
        with pytest.raises(ConfigError, match="no request waits"):
            counter.recv(b"early")
        with pytest.raises(TimeoutError):
            counter.recv(timeout=0.01)
        with ThreadPoolExecutor(1) as pool:
            for number in range(3):
                future = pool.submit(client.request, "count", b"%d" % number)
                body = counter.recv(None if number == 0 else reply, timeout=WAIT)  # noqa: F821
                assert body == b"%d" % number
                with pytest.raises(ConfigError, match="needs the reply"):
                    counter.recv()
                reply = [b"got", body]
                if number == 2:
                    with pytest.raises(TimeoutError):
                        counter.recv(reply, timeout=0.01)
                    assert future.result(WAIT) == [b"got", b"2"]
    with pytest.raises(ClosedError):
        counter.recv()


def test_a_worker_that_ends_gives_the_request_up_that_it_received(endpoint):
    with MajordomoClient(endpoint, tries=1, timeout=WAIT) as client, ThreadPoolExecutor(1) as pool:
        with MajordomoWorker(endpoint, "shout") as receiver:
            future = pool.submit(client.request, "shout", b"x")
            assert receiver.recv(timeout=WAIT) == b"x"
            with pytest.raises(TimeoutError):
                receiver.drain(0.01)
        assert receiver.statistics().failed == 1
        with worker(endpoint):
            assert future.result(WAIT) == b"X"


def test_a_worker_with_a_handler_does_not_receive(endpoint):
    with worker(endpoint) as worker_node, pytest.raises(ConfigError, match="has a handler"):
        worker_node.recv()


def test_a_handler_that_fails_is_a_worker_loss(endpoint):
    seen = []

    def fail_twice(body):
        seen.append(body)
        if len(seen) < 3:
            raise ValueError("not yet")
        return b"third time"

    with worker(endpoint, fail_twice), MajordomoClient(endpoint, tries=1) as client:
        assert client.request("shout", b"x") == b"third time"


@pytest.mark.rule("MDP-2.2")
def test_the_log_of_the_broker_has_the_error_of_a_handler_of_wmp(caplog):
    def fail(body):
        raise ValueError("no such seat")

    with (
        Gateway(MajordomoDoor(ANY), bind=ANY) as broker,
        wmp.Worker(*broker.endpoints, handlers={"book": fail}),
        MajordomoPipelinedClient(broker.doors[0][0]) as client,
    ):
        client.send("book", b"x")
        text = "no reply: a request for the service 'book': the handler failed: ValueError: no such"
        wait_until(lambda: text in caplog.text, "the line of the log")


def test_the_classes_for_asyncio():
    async def play():
        async with (
            aio_gateway.Gateway(MajordomoDoor(ANY)) as broker,
            aio_majordomo.MajordomoWorker(broker.doors[0][0], "shout", shout) as shouter,
            aio_majordomo.MajordomoClient(broker.doors[0][0], sockets=4) as client,
            aio_majordomo.MajordomoPipelinedClient(broker.doors[0][0], limit=3) as stream,
        ):
            bodies = [b"body %d" % number for number in range(30)]
            replies = await asyncio.gather(*(client.request("shout", text) for text in bodies))
            assert replies == [body.upper() for body in bodies]
            assert await client.has("shout")
            for body in bodies:
                await stream.send("shout", body)
            assert [(await stream.recv())[1] for _ in bodies] == replies
            assert list(broker.workers()) == ["majordomo/shout"]
            assert shouter.statistics().replies == 60
            assert client.statistics().replies == 31

    asyncio.run(play())


@pytest.mark.rule("MDP-6.6")
def test_a_client_whose_broker_started_again_unnoticed_gets_no_reply_of_another_request(tmp_path):
    address = f"ipc://{tmp_path}/broker"

    async def echo(router):
        last, held = None, []
        while True:
            while not router.poll(0):
                await asyncio.sleep(0.001)
            message = router.recv_multipart()
            if message == last:
                held.append(message)  # the reply to a second copy comes late
                continue
            for frame in (*held, message):
                router.send_multipart(frame)
            last, held = message, []

    async def play(first, second, connections):
        first.bind(address)
        async with aio_majordomo.MajordomoClient(address, timeout=WAIT) as client:
            served = asyncio.create_task(echo(first))
            assert await client.request("echo", b"1") == b"1"
            served.cancel()
            # The loop does not run until the socket of the client is connected again.
            first.close(0)
            second.bind(address)
            assert connections.poll(WAIT_MS)
            served = asyncio.create_task(echo(second))
            for number in (b"2", b"3", b"4"):
                assert await client.request("echo", number) == number
            served.cancel()

    with (
        zmq.Context() as context,
        context.socket(zmq.ROUTER) as first,
        context.socket(zmq.ROUTER) as second,
        second.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED) as connections,
    ):
        asyncio.run(play(first, second, connections))
        second.disable_monitor()


def test_a_worker_survives_messages_behind_disconnect():
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.rcvtimeo = WAIT_MS
        port = router.bind_to_random_port("tcp://127.0.0.1")
        with worker(f"tcp://127.0.0.1:{port}", reconnect=0.01):
            first, *ready = router.recv_multipart()
            router.send_multipart([first, b"", b"MDPW01", b"\x04"])
            for _ in range(3):
                router.send_multipart([first, b"", b"MDPW01", b"\x05"])
            while True:
                peer, *frames = router.recv_multipart()
                if frames == ready and peer != first:
                    break
            router.send_multipart([peer, b"", b"MDPW01", b"\x02", b"c", b"", b"x"])
            while (message := router.recv_multipart())[3] != b"\x03":
                pass
            assert message[4:] == [b"c", b"", b"X"]


def test_a_client_names_the_service_without_a_worker(endpoint):
    with (
        MajordomoClient(endpoint, timeout=0.05, tries=2) as client,
        pytest.raises(NoReply, match=r"service 'nobody' from tcp.* in 2 tries of 0\.05 s"),
    ):
        client.request("nobody", b"x")
    with pytest.raises(ConfigError, match="printable"):
        MajordomoWorker(endpoint, "")


def test_a_stream_client_reports_lost_requests():
    with zmq.Context() as context, context.socket(zmq.ROUTER) as deaf:
        port = deaf.bind_to_random_port("tcp://127.0.0.1")
        with MajordomoPipelinedClient(f"tcp://127.0.0.1:{port}", timeout=0.2) as stream:
            with pytest.raises(NoReply, match=r"within 0\.01 s"):
                stream.recv(0.01)
            stream.send("shout", b"1")
            stream.send("shout", b"2")
            for _ in range(2):
                with pytest.raises(NoReply, match="send the request again"):
                    stream.recv(WAIT)
            assert stream.statistics().lost == 2


@pytest.mark.parametrize("way", ["directly", "through a device"])
def test_majordomo_clients_are_served_by_both_kinds_of_workers(way):
    served = {"wmp": 0, "majordomo": 0}
    both = threading.Barrier(2, timeout=WAIT)

    def handler(kind):
        def work(body):
            both.wait()  # each kind has a request at this moment
            served[kind] += 1
            return shout(body)

        return work

    door = MajordomoDoor(ANY, services=[MajordomoService("shout", max_worker_losses=0)])
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(Gateway(door, bind=ANY))
        below = broker.endpoints[0]
        if way == "through a device":
            device = stack.enter_context(wmp.Device(bind=ANY, connect=below))
            below = device.endpoints[0]
        stack.enter_context(wmp.Worker(below, handlers={"shout": handler("wmp")}))
        (address,) = broker.doors[0]
        client = stack.enter_context(MajordomoClient(address, tries=1, timeout=WAIT))
        wait_until(lambda: client.has("shout"), "a WMP worker")
        stack.enter_context(worker(address, handler("majordomo")))
        # Without this worker the other one would get both of the first requests.
        wait_until(lambda: broker.workers().get("majordomo/shout"), "a worker of Majordomo")
        with ThreadPoolExecutor(2) as pool:
            bodies = [b"a", b"b", b"c", b"d"]
            replies = list(pool.map(lambda body: client.request("shout", body), bodies))
        assert replies == [b"A", b"B", b"C", b"D"]
    assert served == {"wmp": 2, "majordomo": 2}


def test_majordomo_workers_do_the_jobs_of_managers():
    with (
        wmp.Manager(ANY) as manager,
        Gateway(MajordomoDoor(ANY, serves="workers"), connect=manager.endpoints[0]) as broker,
        worker(broker.doors[0][0]),
        worker(broker.doors[0][0], lambda body: body[::-1], "reverse"),
    ):
        jobs = [manager.submit(b"abc", role=role) for role in ("shout", "reverse") * 5]
        assert [job.result(WAIT) for job in jobs] == [b"ABC", b"cba"] * 5


def test_clients_and_workers_may_have_a_socket_each():
    doors = (MajordomoDoor(ANY, serves="clients"), MajordomoDoor(ANY, serves="workers", group="w"))
    with Gateway(*doors) as broker:
        (front,), (back,) = broker.doors
        with worker(back), MajordomoClient(front) as client:
            assert client.request("shout", b"x") == b"X"
            assert client.has("shout")


def test_a_broker_that_starts_again_finds_its_workers_and_loses_no_request(tmp_path):
    address = f"ipc://{tmp_path}/broker"
    door = MajordomoDoor(address, heartbeat=0.2)
    with contextlib.ExitStack() as stack:
        stack.enter_context(worker(address))
        stack.enter_context(GuideWorker(address, b"shout", 0.2))
        client = stack.enter_context(MajordomoClient(address, timeout=0.5, tries=20))
        for _ in range(2):
            with Gateway(door) as broker:
                for number in range(5):
                    assert client.request("shout", b"x%d" % number) == b"X%d" % number
                wait_until(
                    lambda: len(broker.workers().get("majordomo/shout", ())) == 2, "both workers"
                )
