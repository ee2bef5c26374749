"""The front door: clients of the Pirate patterns are served by WMP workers."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import zmq

import wmp
from tests.waiting import WAIT, WAIT_MS, wait_until
from wmp.errors import ClosedError, ConfigError, NoReply
from wmp.gateways import FrontDoor, LazyClient
from wmp.gateways.aio import FrontDoor as AsyncFrontDoor
from wmp.gateways.aio import LazyClient as AsyncLazyClient

pytestmark = pytest.mark.interop

ANY = "tcp://127.0.0.1:*"


def shout(body):
    return [part.upper() for part in body] if isinstance(body, list) else body.upper()


def test_lazy_clients_and_plain_req_sockets_are_served_by_workers_of_wmp(context):
    with (
        wmp.Manager() as manager,
        wmp.Worker(*manager.endpoints, handlers={"shout": shout}, slots=2),
        FrontDoor(ANY, manager=manager, role="shout") as door,
        LazyClient(*door.endpoints, timeout=WAIT) as client,
    ):
        req = context.socket(zmq.REQ)
        req.set(zmq.REQ_CORRELATE, 1)
        req.rcvtimeo = WAIT_MS
        req.connect(door.endpoints[0])
        for number in range(20):
            req.send(b"q%d" % number)
            assert client.request(b"r%d" % number) == b"R%d" % number
            assert req.recv() == b"Q%d" % number
        req.close(linger=0)
        assert client.request([b"several", b"", b"frames"]) == [b"SEVERAL", b"", b"FRAMES"]
        seen = door.statistics()
    assert (seen.requests, seen.replies, seen.waiting, seen.dropped) == (41, 41, 0, {})


def test_many_clients_at_once_each_get_their_own_replies():
    async def main():
        async with (
            wmp.aio.Manager() as manager,
            wmp.aio.Worker(*manager.endpoints, handlers=shout, slots=4),
            AsyncFrontDoor(ANY, manager=manager) as door,
        ):

            async def ask(name):
                async with AsyncLazyClient(*door.endpoints, timeout=WAIT) as client:
                    return [await client.request(f"{name}-{n}") for n in range(10)]

            replies = await asyncio.gather(*(ask(name) for name in "abcdefgh"))
            return replies, door.statistics().requests

    replies, requests = asyncio.run(main())
    assert replies == [[f"{name}-{n}".upper().encode() for n in range(10)] for name in "abcdefgh"]
    assert requests == 80


def test_a_failed_job_and_a_job_without_a_worker_get_no_reply():
    def fail(body):
        raise ValueError("no")

    def ask(door, unanswered):
        # The client stays until the end of its job: a request of a client that left is forgotten.
        with LazyClient(*door.endpoints, timeout=WAIT, tries=1) as client:
            reply = pool.submit(client.request, b"one")
            wait_until(lambda: door.statistics().unanswered == unanswered)
            assert not reply.done()
        with pytest.raises(ClosedError):
            reply.result()

    with wmp.Manager() as manager, ThreadPoolExecutor(1) as pool:
        with FrontDoor(ANY, manager=manager, timeout=0.1) as door:
            ask(door, {"timeout": 1})
        with (
            FrontDoor(ANY, manager=manager) as door,
            wmp.Worker(*manager.endpoints, handlers=fail),
        ):
            ask(door, {"error": 1})


@pytest.mark.rule("PIRATE-7.8")
def test_the_waiting_jobs_of_a_client_that_left_are_cancelled_and_running_jobs_go_on():
    begun, go_on = threading.Semaphore(0), threading.Semaphore(0)
    done = []

    def slow(body):
        begun.release()
        assert go_on.acquire(timeout=WAIT)
        done.append(body)
        return body

    with (
        wmp.Manager() as manager,
        wmp.Worker(*manager.endpoints, handlers=slow, window=0),
        FrontDoor(ANY, manager=manager) as door,
    ):
        clients = [LazyClient(*door.endpoints, timeout=WAIT) for _ in range(2)]
        threads = []

        def ask(client, body):
            with pytest.raises(ClosedError):
                client.request(body)

        for client, body in zip(clients, (b"one", b"two"), strict=True):
            client.start()
            threads.append(threading.Thread(target=ask, args=(client, body)))
            threads[-1].start()
            if body == b"one":
                assert begun.acquire(timeout=WAIT)
        wait_until(lambda: door.statistics().requests == 2)
        for client, thread in zip(clients, threads, strict=True):
            client.close()
            thread.join()
        wait_until(lambda: door.statistics().waiting == 0)
        wait_until(lambda: manager.statistics().queued == 0)
        go_on.release()
        wait_until(lambda: manager.statistics().leased == 0)
        assert done == [b"one"]
        assert door.statistics().dropped == {"client left": 2}


@pytest.mark.rule("PING-4.8")
def test_a_request_above_the_limit_is_answered_if_the_door_has_an_answer():
    with (
        wmp.Manager() as manager,
        FrontDoor(ANY, manager=manager, limit=1, full=b"FULL") as door,
        LazyClient(*door.endpoints, timeout=WAIT) as client,
        LazyClient(*door.endpoints, timeout=WAIT) as other,
    ):
        replies = []
        thread = threading.Thread(target=lambda: replies.append(client.request(b"one")))
        thread.start()
        wait_until(lambda: door.statistics().waiting == 1)
        assert other.request(b"two") == b"FULL"
        with wmp.Worker(*manager.endpoints, handlers=shout):
            thread.join()
    assert replies == [b"ONE"]


def test_settings_of_a_door_are_checked():
    for settings in (
        {"full": "FULL"},
        {"limit": 0},
        {"max_worker_losses": -1},
        {"timeout": 0},
        {"role": ""},
    ):
        with pytest.raises(ConfigError):
            FrontDoor(ANY, manager=wmp.Manager(), **settings)


@pytest.mark.rule("PIRATE-7.10")
def test_a_request_that_is_sent_again_joins_its_job():
    calls = []
    go_on = threading.Event()

    def slow(body):
        calls.append(body)
        assert go_on.wait(WAIT)
        return body

    with (
        wmp.Manager() as manager,
        wmp.Worker(*manager.endpoints, handlers=slow, slots=4),
        FrontDoor(ANY, manager=manager, join=True) as door,
        LazyClient(*door.endpoints, timeout=0.3, tries=100) as client,
    ):
        replies = []
        thread = threading.Thread(target=lambda: replies.append(client.request(b"one")))
        thread.start()
        wait_until(lambda: door.statistics().requests >= 3)
        wait_until(lambda: calls)
        now = manager.statistics()
        assert (now.queued + now.leased, calls) == (1, [b"one"])
        # A reply that crosses the end of a try is lost, and the next try is another job.
        go_on.set()
        thread.join()
    assert replies == [b"one"]


def test_a_door_of_a_manager_that_ended_or_is_not_started(caplog):
    with pytest.raises(ClosedError), FrontDoor(ANY, manager=wmp.Manager()):
        pass
    manager = wmp.Manager()
    with manager, FrontDoor(ANY, manager=manager) as door:
        manager.close()
        with (
            LazyClient(*door.endpoints, timeout=0.2, tries=1) as client,
            pytest.raises(NoReply),
        ):
            client.request(b"one")
        assert door.statistics().unanswered == {"lost": 1}
    cause = "the job was lost: the manager accepts no more jobs: the manager is closed"
    line = f"front door: no reply: a request for the role 'default': {cause}"
    assert line in caplog.messages
