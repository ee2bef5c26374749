"""Our clients, servers and workers of other protocols beside plain pyzmq programs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import zmq

from tests.interop.gateways.foreign_queues import ParanoidQueue, PingPongBroker, SimpleQueue
from tests.waiting import WAIT, WAIT_MS, wait_until
from wmp.errors import ClosedError, ConfigError, NoReply, Reject
from wmp.gateways import LazyClient, LazyServer, ParanoidWorker, PingPongWorker, SimpleWorker
from wmp.gateways.ping_pong import aio as aio_ping_pong
from wmp.gateways.pirates import aio as aio_pirates

pytestmark = pytest.mark.interop

ANY = "tcp://127.0.0.1:*"


def shout(body):
    return [part.upper() for part in body] if isinstance(body, list) else body.upper()


def simple(endpoint, handler=shout, **settings):
    return SimpleWorker(endpoint, handler, **settings)


def paranoid(endpoint, handler=shout, **settings):
    return ParanoidWorker(endpoint, handler, heartbeat=0.4, reopen=0.1, **settings)


def ping_pong(endpoint, handler=shout, **settings):
    return PingPongWorker(endpoint, handler, ping=0.4, broker_timeout=0.8, **settings)


def paranoid_queue(**addresses):
    return ParanoidQueue(0.4, **addresses)


def ping_pong_broker(**addresses):
    return PingPongBroker(1.2, **addresses)


PROTOCOLS = {
    "simple": (SimpleQueue, simple),
    "paranoid": (paranoid_queue, paranoid),
    "ping-pong": (ping_pong_broker, ping_pong),
}


@pytest.fixture(params=PROTOCOLS)
def protocol(request):
    return PROTOCOLS[request.param]


# Client and server ----------------------------------------------------------------------


def test_a_client_and_a_plain_rep_server(context):
    rep = context.socket(zmq.REP)
    port = rep.bind_to_random_port("tcp://127.0.0.1")

    def serve():
        for _ in range(3):
            rep.send_multipart([b"OK", *rep.recv_multipart()])
        rep.close(linger=1000)

    thread = threading.Thread(target=serve)
    thread.start()
    with LazyClient(f"tcp://127.0.0.1:{port}", timeout=WAIT) as client:
        assert client.request(b"one") == [b"OK", b"one"]
        assert client.request("two") == [b"OK", b"two"]
        assert client.request([b"", b"three"]) == [b"OK", b"", b"three"]
    thread.join()


@pytest.mark.parametrize("correlate", [0, 1])
def test_a_server_and_plain_req_clients(context, correlate):
    with LazyServer(ANY, handler=shout, slots=2) as server:
        clients = [context.socket(zmq.REQ) for _ in range(3)]
        for client in clients:
            client.set(zmq.REQ_CORRELATE, correlate)
            client.rcvtimeo = WAIT_MS
            client.connect(server.endpoints[0])
        for number, client in enumerate(clients):
            client.send_multipart([b"body", b"%d" % number])
        for number, client in enumerate(clients):
            assert client.recv_multipart() == [b"BODY", b"%d" % number]
            client.close(linger=0)


def test_a_request_is_sent_again_on_a_new_connection_and_then_given_up(context):
    router = context.socket(zmq.ROUTER)
    router.rcvtimeo = WAIT_MS
    port = router.bind_to_random_port("tcp://127.0.0.1")
    replies = []

    def serve():
        first = router.recv_multipart()
        second = router.recv_multipart()
        router.send_multipart([*second[:-1], b"reply"])
        replies.extend([first, second, *(router.recv_multipart() for _ in range(2))])

    thread = threading.Thread(target=serve)
    thread.start()
    with LazyClient(f"tcp://127.0.0.1:{port}", timeout=1.0, tries=2) as client:
        assert client.request(b"one") == b"reply"
        with pytest.raises(NoReply, match=rf"no reply from tcp://127.0.0.1:{port} in 2 tries of 1"):
            client.request(b"two")
        seen = client.statistics()
    thread.join()
    router.close(linger=0)
    assert (seen.requests, seen.replies, seen.resent, seen.abandoned) == (2, 1, 2, 1)
    assert [frames[1:] for frames in replies] == [[b"", b"one"]] * 2 + [[b"", b"two"]] * 2
    assert len({frames[0] for frames in replies}) == 3


def test_a_client_without_a_server_reports_the_address_and_goes_on():
    with LazyServer(ANY, handler=shout) as server:
        (endpoint,) = server.endpoints
    with LazyClient(endpoint, timeout=0.1) as client:
        with pytest.raises(NoReply, match="check that the server at this address runs"):
            client.request(b"one")
        with LazyServer(endpoint, handler=shout):
            while True:
                try:
                    assert client.request(b"one") == b"ONE"
                    break
                except NoReply:
                    continue


def test_requests_of_several_threads_each_get_their_own_reply():
    replies: dict[bytes, object] = {}
    with (
        LazyServer(ANY, handler=shout, slots=4) as server,
        LazyClient(server.endpoints[0], timeout=WAIT) as client,
    ):

        def ask(body):
            replies[body] = client.request(body)

        threads = [threading.Thread(target=ask, args=(b"r%d" % n,)) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert replies == {b"r%d" % n: b"R%d" % n for n in range(20)}


def test_a_closed_client_ends_its_requests():
    client = LazyClient("tcp://127.0.0.1:9", timeout=WAIT)
    with pytest.raises(ClosedError):
        client.request(b"early")
    client.start()
    errors = []

    def ask():
        try:
            client.request(b"one")
        except ClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: client.statistics().requests == 1)
    client.close()
    thread.join()
    assert len(errors) == 1
    with pytest.raises(ClosedError):
        client.request(b"late")


@pytest.mark.parametrize("body", [None, 3, [], ["text"], {b"a": 1}])
def test_a_body_is_bytes_text_or_a_list_of_frames(body):
    with LazyClient("tcp://127.0.0.1:9") as client, pytest.raises(TypeError, match="a body is"):
        client.request(body)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LazyClient("tcp://127.0.0.1:9", tries=0),
        lambda: LazyClient("127.0.0.1:9"),
        lambda: LazyServer("tcp://0.0.0.0:9", handler=shout),
        lambda: LazyServer(ANY, handler=shout, pool="fork"),
        lambda: SimpleWorker("tcp://127.0.0.1:9", lambda: None),
        lambda: ParanoidWorker("tcp://127.0.0.1:9", shout, liveness=0),
        lambda: PingPongWorker("tcp://127.0.0.1:9", shout, ping=0),
    ],
)
def test_wrong_settings_are_refused_at_once(make):
    with pytest.raises(ConfigError):
        make()


# Workers --------------------------------------------------------------------------------


def test_workers_serve_the_clients_of_a_plain_queue(protocol):
    make_queue, make_worker = protocol
    with (
        make_queue() as queue,
        make_worker(queue.back) as first,
        make_worker(queue.back) as other,
        LazyClient(queue.front, timeout=WAIT) as client,
    ):
        wait_until(lambda: queue.idle == 2)
        for number in range(50):
            assert client.request(b"r%d" % number) == b"R%d" % number
        assert client.request([b"several", b"", b"frames"]) == [b"SEVERAL", b"", b"FRAMES"]
        counts = [worker.statistics().replies for worker in (first, other)]
        if isinstance(queue, SimpleQueue):
            assert queue.readys == 2  # a second READY would count the worker twice
    assert sum(counts) == 51
    assert min(counts) >= 20


def test_workers_return_when_their_queue_was_started_again(protocol):
    make_queue, make_worker = protocol
    with contextlib.ExitStack() as stack:
        with make_queue() as queue:
            addresses = {"front": queue.front, "back": queue.back}
            stack.enter_context(make_worker(queue.back))
            client = stack.enter_context(LazyClient(queue.front, timeout=0.5, tries=40))
            assert client.request(b"one") == b"ONE"
        with make_queue(**addresses):
            assert client.request(b"two") == b"TWO"


@pytest.mark.parametrize(
    ("error", "lines"), [(ValueError("not today"), True), (Reject("not today"), False)]
)
def test_a_failed_request_is_logged_and_sent_again_by_its_client(protocol, caplog, error, lines):
    make_queue, make_worker = protocol
    calls = []

    def fail_once(body):
        calls.append(body)
        if len(calls) == 1:
            raise error
        return body

    with (
        make_queue() as queue,
        make_worker(queue.back, fail_once) as worker,
        LazyClient(queue.front, timeout=0.5, tries=40) as client,
        caplog.at_level(logging.ERROR, "wmp"),
    ):
        assert client.request(b"one") == b"one"
        assert worker.statistics().failed == 1
    assert len(calls) >= 2  # a client sends a request again whose reply is late
    (record,) = [logged for logged in caplog.records if "gets no reply" in logged.getMessage()]
    assert f"{type(error).__name__}: not today" in record.getMessage()
    assert ("Traceback" in record.getMessage()) == lines


def test_a_busy_worker_gets_one_request_at_a_time_and_keeps_its_connection(protocol):
    """The handler runs for longer than all times of silence."""
    make_queue, make_worker = protocol
    begun, go_on = threading.Semaphore(0), threading.Semaphore(0)

    def slow(body):
        begun.release()
        assert go_on.acquire(timeout=WAIT)
        return body

    with (
        make_queue() as queue,
        make_worker(queue.back, slow) as worker,
        LazyClient(queue.front, timeout=WAIT) as lazy,
        LazyClient(queue.front, timeout=WAIT) as other,
    ):
        replies = []
        threads = [
            threading.Thread(target=lambda client=client: replies.append(client.request(b"x")))
            for client in (lazy, other)
        ]
        for thread in threads:
            thread.start()
        assert begun.acquire(timeout=WAIT)
        assert not begun.acquire(timeout=2.0)
        assert worker.statistics().requests == 1
        go_on.release()
        assert begun.acquire(timeout=WAIT)
        go_on.release()
        for thread in threads:
            thread.join()
        assert replies == [b"x", b"x"]
        assert worker.statistics().reopened == 0
        assert len(queue.workers_seen) == 1


def test_a_worker_replaces_its_socket_when_its_queue_is_silent():
    with paranoid_queue() as queue, paranoid(queue.back) as worker:
        wait_until(lambda: queue.idle == 1)
        queue.mute = True
        wait_until(lambda: worker.statistics().reopened >= 2)
        queue.mute = False
        with LazyClient(queue.front, timeout=0.5, tries=40) as client:
            assert client.request(b"one") == b"ONE"
    assert len(queue.workers_seen) >= 3


def test_a_ping_pong_worker_sends_its_words_and_obeys_exit():
    with ping_pong_broker() as broker:
        worker = ping_pong(broker.back, disconnect=True)
        thread = threading.Thread(target=worker.run)
        thread.start()
        wait_until(lambda: broker.words.count(b"PING") >= 2)
        assert broker.words[0] == b"READY"
        (known,) = broker.ready
        broker.exit_to = known
        thread.join(WAIT)
        assert not thread.is_alive()
        wait_until(lambda: broker.words[-1] == b"DISCONNECT")


def test_the_queue_is_named_in_the_log_when_it_does_not_answer(caplog):
    with caplog.at_level(logging.INFO, "wmp"):
        with SimpleQueue() as queue:
            worker = simple(queue.back)
            worker.start()
            wait_until(lambda: queue.idle == 1)
        wait_until(lambda: f"lost the connection to {queue.back}; retrying" in caplog.text)
        worker.close()


def ask_in_turn(client, name, count):
    """Return how many of these requests got the reply of another request."""
    bodies = [b"%s-%d" % (name, number) for number in range(count)]
    return sum(client.request(body) != body.upper() for body in bodies)


@pytest.mark.parametrize(
    "count",
    [100, pytest.param(25_000, marks=[pytest.mark.deep, pytest.mark.timeout(1800)])],
)
@pytest.mark.parametrize(
    ("make_queue", "make_worker"),
    [
        # With their usual times: a peer that a busy machine keeps silent for a longer time than
        # that may lose a request.
        (SimpleQueue, SimpleWorker),
        (ParanoidQueue, ParanoidWorker),
        (PingPongBroker, PingPongWorker),
    ],
    ids=PROTOCOLS,
)
def test_many_cycles_of_four_clients_are_counted_and_compared(make_queue, make_worker, count):
    with contextlib.ExitStack() as stack:
        queue = stack.enter_context(make_queue())
        workers = [stack.enter_context(make_worker(queue.back, bytes.upper)) for _ in range(4)]
        clients = [stack.enter_context(LazyClient(queue.front, timeout=WAIT)) for _ in range(4)]
        pool = stack.enter_context(ThreadPoolExecutor(4))
        names = [b"a", b"b", b"c", b"d"]
        assert list(pool.map(ask_in_turn, clients, names, [count] * 4)) == [0, 0, 0, 0]
        assert [client.statistics().resent for client in clients] == [0, 0, 0, 0]
        assert sum(worker.statistics().replies for worker in workers) == 4 * count


# asyncio --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make_queue", "make_worker"),
    [
        (SimpleQueue, aio_pirates.SimpleWorker),
        (paranoid_queue, aio_pirates.ParanoidWorker),
        (PingPongBroker, aio_ping_pong.PingPongWorker),
    ],
)
def test_workers_and_clients_on_a_loop(make_queue, make_worker):
    async def shout_later(body):
        await asyncio.sleep(0)
        return body.upper()

    async def ask(front, back):
        async with make_worker(back, shout_later), make_worker(back, shout):
            clients = [aio_pirates.LazyClient(front, timeout=WAIT) for _ in range(4)]
            async with contextlib.AsyncExitStack() as stack:
                for client in clients:
                    await stack.enter_async_context(client)
                return await asyncio.gather(
                    *(clients[n % 4].request(b"r%d" % n) for n in range(40))
                )

    with make_queue() as queue:
        replies = asyncio.run(ask(queue.front, queue.back))

    assert replies == [b"R%d" % number for number in range(40)]


def test_a_request_that_its_caller_gives_up_does_not_reach_the_next():
    async def main():
        slow = asyncio.Event()

        async def echo(body):
            if body == b"slow":
                await slow.wait()
            return body

        async with (
            aio_pirates.LazyServer(ANY, handler=echo, slots=2) as server,
            aio_pirates.LazyClient(server.endpoints[0], timeout=WAIT) as client,
        ):
            request = asyncio.create_task(client.request(b"slow"))
            while server.statistics().running == 0:
                await asyncio.sleep(0.01)
            request.cancel()
            fast = await client.request(b"fast")
            slow.set()
            return fast, await client.request(b"next"), request.cancelled()

    assert asyncio.run(main()) == (b"fast", b"next", True)


def test_the_progress_of_a_handler_does_not_disturb_its_worker_or_server():
    def work(body, job):
        job.report(0.5, "half of it")
        return body

    with (
        SimpleQueue() as queue,
        simple(queue.back, work),
        LazyServer(ANY, handler=work) as server,
        LazyClient(queue.front, timeout=WAIT) as through_queue,
        LazyClient(server.endpoints[0], timeout=WAIT) as direct,
    ):
        for client in (through_queue, direct):
            assert [client.request(b"one"), client.request(b"two")] == [b"one", b"two"]
