"""Clients and servers of Freelance beside each other, and beside plain sockets as in the guide."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import zmq

import wmp
from tests.waiting import WAIT, WAIT_MS, wait_until
from wmp.errors import ClosedError, ConfigError, NoReply
from wmp.gateways import Agent, ClientDoor, Failover, FreelanceServer, Gateway, Shotgun
from wmp.gateways.freelance import aio

pytestmark = pytest.mark.interop

ANY = "tcp://127.0.0.1:*"
CLIENTS = {"failover": Failover, "shotgun": Shotgun, "agent": Agent}


def server(model, handler=bytes.upper, **settings):
    return FreelanceServer(ANY, handler=handler, model=model, **settings)


def unused(context):
    """Return an address at which nobody listens."""
    with context.socket(zmq.REP) as socket:
        return f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"


@pytest.mark.parametrize("model", CLIENTS)
def test_a_client_is_served_although_one_server_of_its_three_does_not_exist(model, context):
    # Each server has one try, and a server that exists may be late on a busy machine.
    settings = {"timeout": 4.0} if model == "failover" else {"timeout": WAIT}
    with server(model) as server_one, server(model) as two:
        endpoints = (unused(context), *server_one.endpoints, *two.endpoints)
        with CLIENTS[model](*endpoints, **settings) as client:
            assert client.request(b"hello") == b"HELLO"
            with ThreadPoolExecutor(8) as pool:
                bodies = [b"%d a" % number for number in range(200)]
                assert list(pool.map(client.request, bodies)) == [
                    server_one.upper() for server_one in bodies
                ]
            assert client.statistics().requests == 201


@pytest.mark.parametrize("model", CLIENTS)
def test_the_asyncio_names_are_the_same(model):
    async def ask():
        client = {"failover": aio.Failover, "shotgun": aio.Shotgun, "agent": aio.Agent}[model]
        async with aio.FreelanceServer(ANY, handler=bytes.upper, model=model) as server_node:
            asker = client(*server_node.endpoints, timeout=WAIT)
            async with asker:
                replies = await asyncio.gather(asker.request(b"a"), asker.request(b"b"))
        assert replies == [b"A", b"B"]

    asyncio.run(ask())


@pytest.mark.parametrize("model", CLIENTS)
def test_without_a_server_the_error_names_the_addresses_and_the_remedy(model, context):
    endpoint = unused(context)
    client = CLIENTS[model](endpoint, timeout=0.05)
    with client, pytest.raises(NoReply, match=rf"no reply from {endpoint}.* check that "):
        client.request(b"hello")
    with pytest.raises(ClosedError):
        client.request(b"hello")


def test_a_request_of_an_agent_goes_to_the_next_server_when_its_server_ends():
    begun, release = threading.Event(), threading.Event()

    def stuck(body):
        begun.set()
        release.wait(WAIT)
        return b"too late"

    with server("agent", stuck) as first, server("agent") as second:
        agent = Agent(*first.endpoints, *second.endpoints, timeout=WAIT)
        with agent:
            wait_until(lambda: len(agent.alive) == 2)
            with ThreadPoolExecutor(2) as pool:
                reply = pool.submit(agent.request, b"hello")
                assert begun.wait(WAIT)
                closing = pool.submit(first.close, 0.0)
                assert reply.result(WAIT) == b"HELLO"
                release.set()
                closing.result(WAIT)
            assert agent.alive == second.endpoints
            assert agent.statistics().resent == 1


def test_an_agent_gets_servers_while_it_runs():
    with Agent(timeout=WAIT) as agent, server("agent") as first, server("agent") as two:
        agent.connect(*first.endpoints)
        assert agent.request(b"hello") == b"HELLO"
        agent.connect(*two.endpoints)
        agent.connect(*two.endpoints)
        wait_until(lambda: agent.alive == (*first.endpoints, *two.endpoints))
        with pytest.raises(ConfigError):
            agent.connect("nonsense")


def test_an_agent_without_a_server_reports_that():
    with Agent(timeout=0.05) as agent, pytest.raises(NoReply, match=r"call connect\(\)"):
        agent.request(b"hello")


@pytest.mark.parametrize("model", CLIENTS)
def test_workers_of_wmp_serve_the_clients_of_each_model(model):
    protocol = "pirates" if model == "failover" else f"freelance-{model}"
    bodies = [b"%d a" % number for number in range(50)]
    with contextlib.ExitStack() as stack:
        door = ClientDoor(ANY, protocol=protocol)
        gateway = stack.enter_context(Gateway(door, bind=ANY))
        stack.enter_context(wmp.Worker(*gateway.endpoints, handlers=bytes.upper, slots=4))
        client = stack.enter_context(CLIENTS[model](*gateway.doors[0], timeout=WAIT))
        pool = stack.enter_context(ThreadPoolExecutor(4))
        assert list(pool.map(client.request, bodies)) == [body.upper() for body in bodies]


@pytest.mark.rule("FREE-5.4")
@pytest.mark.parametrize("name", ["", "tcp://localhost:5555"])
def test_an_agent_with_a_router_as_in_the_guide_reaches_our_server_by_its_name(context, name):
    with server("agent", name=name) as first, context.socket(zmq.ROUTER) as router:
        router.router_mandatory = True
        router.rcvtimeo = WAIT_MS
        router.connect(*first.endpoints)
        peer = (name or first.endpoints[0]).encode()

        def ping():
            try:
                router.send_multipart([peer, b"PING"])
            except zmq.ZMQError:
                return False  # the handshake is not done
            return True

        wait_until(ping)
        assert router.recv_multipart() == [peer, b"PONG"]
        for _ in range(3):  # the C client sends again and again
            router.send_multipart([peer, b"17", b"hello"])
        assert router.recv_multipart() == [peer, b"17", b"HELLO"]
        router.send_multipart([peer, b"PING"])
        replies = [router.recv_multipart()]
        while replies[-1] != [peer, b"PONG"]:
            replies.append(router.recv_multipart())
        assert first.statistics().requests == 1
        assert all(reply == [peer, b"17", b"HELLO"] for reply in replies[:-1])


@pytest.mark.rule("FREE-5.1")
def test_clients_of_the_guide_get_replies_of_our_servers_of_models_one_and_two(context):
    with server("failover") as first, context.socket(zmq.REQ) as req:
        req.rcvtimeo = WAIT_MS
        req.connect(*first.endpoints)
        req.send(b"hello world")
        assert req.recv_multipart() == [b"HELLO WORLD"]
    with server("shotgun") as first, server("shotgun") as two, context.socket(zmq.DEALER) as dealer:
        dealer.rcvtimeo = WAIT_MS
        for endpoint in (*first.endpoints, *two.endpoints):
            dealer.connect(endpoint)
        for _ in range(2):
            dealer.send_multipart([b"", b"1", b"hello"])
        assert [dealer.recv_multipart() for _ in range(2)] == [[b"", b"1", b"HELLO"]] * 2


def test_our_clients_get_replies_of_the_servers_of_the_guide(context):
    """The servers of the guide are REP sockets, and a ROUTER with its address as its name."""

    def serve(socket, answer):
        while True:
            frames = socket.recv_multipart()
            if frames[-1] == b"end":
                break
            socket.send_multipart(answer(frames))

    def flp(frames):
        peer, control, *_ = frames
        return [peer, b"PONG"] if control == b"PING" else [peer, control, b"OK"]

    kinds = {
        "failover": (zmq.REP, lambda frames: frames),
        "shotgun": (zmq.REP, lambda frames: [frames[0], b"OK"]),
        "agent": (zmq.ROUTER, flp),
    }
    for model, (kind, answer) in kinds.items():
        with context.socket(kind) as socket:
            port = socket.bind_to_random_port("tcp://127.0.0.1")
            thread = threading.Thread(target=serve, args=(socket, answer))
            thread.start()
            try:
                with CLIENTS[model](f"tcp://127.0.0.1:{port}", timeout=WAIT) as client:
                    assert client.request(b"hello") == (b"hello" if model == "failover" else b"OK")
            finally:
                ender = context.socket(zmq.REQ if kind == zmq.REP else zmq.DEALER)
                ender.connect(f"tcp://127.0.0.1:{port}")
                ender.send_multipart([b"x", b"end"])
                thread.join(WAIT)
                ender.close(0)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Failover(), "no endpoint is given"),
        (lambda: Shotgun("tcp://127.0.0.1:1", "tcp://127.0.0.1:1"), "is given twice"),
        (lambda: Agent("tcp://127.0.0.1:1", ping=3.0, ttl=2.0), "ttl is 2 s and ping is 3 s"),
        (lambda: server("third"), "model is 'third'; expected one of agent, shotgun, failover"),
        (lambda: server("shotgun", name="tcp://a:1"), 'settings of the model "agent"'),
        (lambda: Failover("tcp://127.0.0.1:1", tries=0), "tries is 0"),
        (lambda: ClientDoor(ANY, guide=True), 'settings of "freelance-agent", not of "pirates"'),
    ],
)
def test_wrong_settings_are_refused(make, text):
    with pytest.raises(ConfigError, match=text):
        make()
