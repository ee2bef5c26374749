"""Titanic on real sockets and a store on SQLite, with processes killed at every step."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import threading

import pytest
import zmq

from tests.interop.gateways.majordomo_peers import GuideBroker, GuideWorker
from tests.interop.programs.programs import WMP, Program
from tests.waiting import WAIT, WAIT_MS, wait_until
from wmp.gateways import (
    Gateway,
    MajordomoClient,
    MajordomoDoor,
    MajordomoWorker,
    Titanic,
    TitanicLimits,
)
from wmp.gateways.titanic import aio as titanic_aio

pytestmark = pytest.mark.interop

ANY = "tcp://127.0.0.1:*"


def store_request(client, *frames):
    status, id = client.request("titanic.request", [b"shout", *frames])
    assert status == b"200"
    assert len(id) == 32
    return id


def read_reply(client, id):
    """Return the reply to a stored request, when it is there."""
    requests = []

    def there():
        reply = client.request("titanic.reply", id)
        requests[:] = [reply] if isinstance(reply, bytes) else reply
        return requests[0] == b"200"

    wait_until(there, "the reply")
    return requests[1:]


@pytest.mark.rule("MDP-8.1", "MDP-8.2", "MDP-8.3", "MDP-8.4")
@pytest.mark.parametrize("whose", ["ours", pytest.param("guide", marks=pytest.mark.deep)])
def test_stored_requests_are_done_when_a_worker_comes(whose, tmp_path):
    with contextlib.ExitStack() as stack:
        if whose == "ours":
            broker = stack.enter_context(Gateway(MajordomoDoor(ANY)))
            address = broker.doors[0][0]
        else:
            address = stack.enter_context(GuideBroker(0.2)).endpoint
        stack.enter_context(Titanic(address, store=tmp_path / "store", heartbeat=0.2))
        client = stack.enter_context(MajordomoClient(address, timeout=WAIT))
        first = store_request(client, b"a", b"")
        second = store_request(client, b"b")
        assert client.request("titanic.reply", first) == b"300"
        assert client.request("titanic.close", second) == b"200"
        stack.enter_context(GuideWorker(address, b"shout", 0.2))
        assert read_reply(client, first) == read_reply(client, first) == [b"A", b""]
        for _ in range(2):
            assert client.request("titanic.close", first) == b"200"
            assert client.request("titanic.reply", first) == b"400"
        assert client.request("titanic.reply", second) == b"400"
        assert client.request("titanic.reply", [first, first]) == b"400"
        assert client.request("titanic.request", b"shout")[:3] == b"500"


@pytest.mark.rule("MDP-7.2", "MDP-8.1", "MDP-8.3", "MDP-8.4")
def test_the_messages_have_the_frames_of_the_texts(tmp_path):
    # From 8/MMI and 9/TSP, in the messages of a client of 7/MDP.
    ok, pending, unknown, error = b"200", b"300", b"400", b"500"

    def call(service, *body):
        client.send_multipart([b"", b"MDPC01", service, *body])
        empty, header, name, *reply = client.recv_multipart()
        assert (empty, header, name) == (b"", b"MDPC01", service)
        return reply

    with contextlib.ExitStack() as stack:
        (address,) = stack.enter_context(Gateway(MajordomoDoor(ANY))).doors[0]
        stack.enter_context(Titanic(address, store=tmp_path / "store", heartbeat=0.2))
        client = stack.enter_context(stack.enter_context(zmq.Context()).socket(zmq.DEALER))
        client.linger, client.rcvtimeo = 0, WAIT_MS
        client.connect(address)
        assert call(b"mmi.service", b"shout") == [b"404"]
        assert call(b"mmi.discovery", b"shout") == [b"501"]
        status, id = call(b"titanic.request", b"shout", b"a", b"b")
        assert status == ok
        assert re.fullmatch(rb"[0-9A-Fa-f]{32}", id)
        assert call(b"titanic.reply", id) == [pending]
        stack.enter_context(GuideWorker(address, b"shout", 0.2))
        wait_until(lambda: call(b"titanic.reply", id.upper()) != [pending], "the reply")
        assert call(b"mmi.service", b"shout") == [b"200"]
        assert call(b"titanic.reply", id) == [ok, b"A", b"B"]
        assert call(b"titanic.close", id) == call(b"titanic.close", id) == [ok]
        assert call(b"titanic.reply", id) == call(b"titanic.reply", b"no id") == [unknown]
        assert [frame[:3] for frame in call(b"titanic.request", b"shout")] == [error]


@pytest.mark.rule("MDP-8.10")
def test_a_nested_request_is_refused_and_stores_nothing(tmp_path):
    with contextlib.ExitStack() as stack:
        (address,) = stack.enter_context(Gateway(MajordomoDoor(ANY))).doors[0]
        titanic = stack.enter_context(Titanic(address, store=tmp_path / "store", heartbeat=0.2))
        client = stack.enter_context(MajordomoClient(address, timeout=WAIT))
        for depth in (1, 100):
            nested = [b"titanic.request"] * depth
            reply = client.request("titanic.request", [*nested, b"shout", b"x"])
            assert reply == b"500 a service titanic.* is not for stored requests; ask it directly"
        seen = titanic.statistics()
        assert (seen.stored, seen.refused) == (0, 2)


@pytest.mark.rule("MDP-8.11")
def test_a_client_that_fills_its_share_leaves_room_for_others(tmp_path):
    with contextlib.ExitStack() as stack:
        (address,) = stack.enter_context(Gateway(MajordomoDoor(ANY))).doors[0]
        limits = TitanicLimits(limit=40)
        store = tmp_path / "store"
        stack.enter_context(Titanic(address, store=store, heartbeat=0.2, limits=limits))
        stack.enter_context(GuideWorker(address, b"shout", 0.2))
        hog = stack.enter_context(MajordomoClient(address, timeout=WAIT))
        answers = [hog.request("titanic.request", [b"shout", b"x"]) for _ in range(30)]
        assert sum(isinstance(answer, list) for answer in answers) == 20
        assert answers[-1].startswith(b"500 this ")
        other = stack.enter_context(MajordomoClient(address, timeout=WAIT))
        status, id = other.request("titanic.request", [b"upper", b"y"])
        assert status == b"200"
        stack.enter_context(MajordomoWorker(address, "upper", bytes.upper, heartbeat=0.2))
        assert read_reply(other, id) == [b"Y"]


@pytest.mark.rule("MDP-8.11")
def test_many_services_without_workers_delay_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(titanic_aio, "_LOOKUPS", 32)
    with contextlib.ExitStack() as stack:
        (address,) = stack.enter_context(Gateway(MajordomoDoor(ANY))).doors[0]
        titanic = stack.enter_context(Titanic(address, store=tmp_path / "store", heartbeat=0.2))
        hog = stack.enter_context(MajordomoClient(address, timeout=WAIT))
        for number in range(150):
            hog.request("titanic.request", [b"nobody%d" % number, b"x"])
        stack.enter_context(GuideWorker(address, b"shout", 0.2))
        client = stack.enter_context(MajordomoClient(address, timeout=WAIT))
        assert read_reply(client, store_request(client, b"a")) == [b"A"]
        assert titanic.statistics().stored == 151


@pytest.mark.rule("MDP-8.7")
def test_requests_and_replies_outlive_their_server(tmp_path):
    with Gateway(MajordomoDoor(ANY)) as broker, MajordomoClient(broker.doors[0][0]) as client:
        (address,) = broker.doors[0]
        with Titanic(address, store=tmp_path / "store", heartbeat=0.2):
            id = store_request(client, b"x")
        with Titanic(address, store=tmp_path / "store", heartbeat=0.2) as titanic:
            with MajordomoWorker(address, "shout", bytes.upper):
                assert read_reply(client, id) == [b"X"]
            # The reply can be read as soon as the store has it, and is counted after that.
            wait_until(lambda: titanic.statistics().replied == 1)
        with Titanic(address, store=tmp_path / "store", heartbeat=0.2):
            assert read_reply(client, id) == [b"X"]


@pytest.mark.rule("MDP-8.9")
def test_a_service_does_not_wait_for_all_requests_of_another(tmp_path):
    gate = threading.Semaphore(0)

    def slow(body):
        gate.acquire()
        return body

    with contextlib.ExitStack() as stack:
        (address,) = stack.enter_context(Gateway(MajordomoDoor(ANY))).doors[0]
        store = tmp_path / "store"
        stack.enter_context(Titanic(address, store=store, heartbeat=0.2, in_flight=2))
        client = stack.enter_context(MajordomoClient(address, timeout=WAIT))
        begun = [
            stack.enter_context(MajordomoWorker(address, "a", slow, heartbeat=0.2))
            for _ in range(2)
        ]
        for _ in range(6):
            client.request("titanic.request", [b"a", b"x"])
        wait_until(lambda: all(titanic.statistics().requests for titanic in begun), "two of them")
        stack.callback(gate.release, 6)
        stack.enter_context(MajordomoWorker(address, "b", bytes.upper, heartbeat=0.2))
        wait_until(lambda: client.has("b"), "the worker of b")
        _, id = client.request("titanic.request", [b"b", b"y"])
        gate.release()
        assert read_reply(client, id) == [b"Y"]


@pytest.mark.rule("MDP-8.7")
def test_a_gateway_that_ends_does_not_wait_for_the_requests_of_its_titanic(tmp_path):
    address, journal = f"ipc://{tmp_path}/broker", tmp_path / "journal"
    program = (*WMP, "gateway", "--majordomo", address, "--titanic", str(tmp_path / "store"))
    program += ("--journal", str(journal))
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(Program(*program))
        gateway.wait_for_line("clients and workers of majordomo connect to")
        client = stack.enter_context(MajordomoClient(address, timeout=WAIT))
        with MajordomoWorker(address, "shout", heartbeat=0.2) as worker:
            wait_until(lambda: client.has("shout"), "the worker")
            id = store_request(client, b"x")
            assert worker.recv(timeout=WAIT) == b"x"
        # The request waits at the broker for another worker, for a minute.
        gateway.signal(signal.SIGTERM)
        assert gateway.ends() == 0
        assert "lost the connection" not in gateway.stderr
        segments = [path.read_text(encoding="utf-8") for path in journal.iterdir()]
        assert [text.splitlines()[-1].count('"stop"') for text in segments] == [1] * len(segments)
        (own,) = (text for text in segments if '"label":"titanic ' in text)
        assert own.count('"what":"submitted"') == own.count('"what":"leased"') == 1
        again = stack.enter_context(Program(*program))
        again.wait_for_line("clients and workers of majordomo connect to")
        stack.enter_context(MajordomoWorker(address, "shout", bytes.upper, heartbeat=0.2))
        assert read_reply(client, id) == [b"X"]


# -- every process is killed, at every step ------------------------------------------------

STEPS = ("request", "take", "finish", "reply", "close_request", "renew")

SERVER = """
import os, signal, sys
from wmp.gateways.titanic import requests as titanic_requests
from wmp.gateways import Titanic

step, moment, marker = sys.argv[3:6]
if step != "none":
    act = getattr(titanic_requests.TitanicRequests, step)
    def end():
        if not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
    def dying(self, *arguments):
        if moment == "before":
            end()
        found = act(self, *arguments)
        if moment == "after" and (step != "take" or found):
            end()
        return found
    setattr(titanic_requests.TitanicRequests, step, dying)
with Titanic(sys.argv[1], store=sys.argv[2], heartbeat=0.2, timeout=3.0) as titanic:
    print("ready", flush=True)
    signal.pause()
"""


class Crew:
    """A broker, a worker and a server of Titanic in processes, which are started again."""

    def __init__(self, stack, folder, step, moment):
        self._stack, self._folder = stack, folder
        self._ending = (step, moment, str(folder / "died"))
        self.address = f"ipc://{folder}/broker"
        self.broker = self.start_broker()
        self.worker = self.start_worker()
        self.server = self.start_server()
        self.ended = threading.Event()
        self.again = threading.Thread(target=self._start_again)
        self.again.start()
        stack.callback(self.end)

    def start_broker(self):
        process = self._stack.enter_context(Program(*WMP, "gateway", "--majordomo", self.address))
        process.wait_for_line("clients and workers of majordomo connect to")
        return process

    def start_worker(self):
        module = (
            "-m",
            "tests.interop.gateways.majordomo_peers",
            "worker",
            self.address,
            "shout",
            "0.2",
        )
        return self._stack.enter_context(Program(sys.executable, *module))

    def start_server(self):
        arguments = (self.address, str(self._folder / "store"), *self._ending)
        return self._stack.enter_context(Program(sys.executable, "-c", SERVER, *arguments))

    def _start_again(self):
        while not self.ended.wait(0.05):
            if self.server.process.poll() is not None:
                self.server = self.start_server()

    def end(self):
        self.ended.set()
        self.again.join(WAIT)


@pytest.mark.deep
@pytest.mark.rule("MDP-8.7")
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_the_server_is_killed_at_every_step(step, moment, tmp_path):
    with contextlib.ExitStack() as stack:
        crew = Crew(stack, tmp_path, step, moment)
        client = stack.enter_context(MajordomoClient(crew.address, timeout=2.0, tries=20))
        ids = {store_request(client, b"%d" % number): b"%d" % number for number in range(3)}
        for id, body in ids.items():
            assert read_reply(client, id) == [body]
            assert client.request("titanic.close", id) == b"200"
            assert client.request("titanic.reply", id) == b"400"
        wait_until(lambda: (tmp_path / "died").exists(), f"the end at {step}")


@pytest.mark.deep
@pytest.mark.rule("MDP-8.7")
def test_no_stored_request_is_lost_while_everything_is_killed(tmp_path):
    with contextlib.ExitStack() as stack:
        crew = Crew(stack, tmp_path, "none", "none")
        client = stack.enter_context(MajordomoClient(crew.address, timeout=2.0, tries=60))
        ids = {}
        for number in range(30):
            ids[store_request(client, b"x%d" % number)] = b"X%d" % number
            if number % 5 == 4:
                for program in (crew.broker, crew.worker, crew.server):
                    program.process.send_signal(signal.SIGKILL)
                    program.process.wait(WAIT)
                crew.broker, crew.worker = crew.start_broker(), crew.start_worker()
        for id, body in ids.items():
            assert read_reply(client, id) == [body]
