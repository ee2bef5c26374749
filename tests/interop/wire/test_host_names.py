"""Host names in addresses are looked up beside ZeroMQ's thread, with name servers of the tests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

import wmp
from tests.waiting import WAIT, wait_until
from wmp.gateways import LazyClient, LazyServer
from wmp.runtime.sockets import host_names

pytestmark = pytest.mark.interop

SLOW = "slow.example"
NAME = "managers.example"


class NameServer:
    """Answers with the addresses that a test sets; the name SLOW has no answer until ``let_go``."""

    def __init__(self) -> None:
        self.addresses: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self.threads: set[threading.Thread] = set()
        self._go = threading.Event()

    def resolve(self, host: str) -> list[str]:
        self.asked.append(host)
        self.threads.add(threading.current_thread())
        if host == SLOW:
            self._go.wait(WAIT)
        if host not in self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.addresses[host]

    def let_go(self) -> None:
        self._go.set()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    server = NameServer()
    monkeypatch.setattr(host_names, "resolve", server.resolve)
    monkeypatch.setattr(host_names, "_SLOW", 0.05)
    yield server
    server.let_go()
    for thread in server.threads:
        thread.join(WAIT)


def port_of(endpoint: str) -> str:
    return endpoint.rpartition(":")[2]


def echo(payload: bytes) -> bytes:
    return payload


def test_a_name_without_an_answer_stalls_no_other_manager(
    names: NameServer, caplog: pytest.LogCaptureFixture
) -> None:
    slow = f"tcp://{SLOW}:5570"
    with (
        wmp.Manager() as manager,
        wmp.Worker(slow, *manager.endpoints, handlers=echo),
    ):
        manager.wait_for_workers(1, timeout=WAIT)
        for number in range(50):
            assert manager.submit(b"%d" % number).result(timeout=WAIT) == b"%d" % number
        wait_until(lambda: f"looking up the host of {slow}" in caplog.text)
        assert names.asked.count(SLOW) == 1, "one thread for each address"


def test_a_name_without_an_answer_stalls_no_other_side_of_a_device(names: NameServer) -> None:
    with (
        wmp.Manager() as manager,
        wmp.Device(
            bind="tcp://127.0.0.1:*", connect=[f"tcp://{SLOW}:5570", *manager.endpoints]
        ) as device,
        wmp.Worker(*device.endpoints, handlers=echo),
    ):
        manager.wait_for_workers(1, timeout=WAIT)
        assert manager.submit(b"through").result(timeout=WAIT) == b"through"
        assert SLOW in names.asked


def test_a_manager_that_dials_in_by_name_is_served_by_its_other_device(names: NameServer) -> None:
    with (
        wmp.Device(bind="tcp://127.0.0.1:*", bind_managers="tcp://127.0.0.1:*") as device,
        wmp.Worker(*device.endpoints, handlers=echo),
        wmp.Manager(connect=[f"tcp://{SLOW}:5570", *device.manager_endpoints]) as manager,
    ):
        assert manager.submit(b"dialed").result(timeout=WAIT) == b"dialed"
        assert SLOW in names.asked


def test_the_log_names_the_address_and_the_cause_once(
    names: NameServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_names, "_PAUSE", 0.01)
    with wmp.Worker(f"tcp://{NAME}:5570", handlers=echo):
        wait_until(lambda: names.asked.count(NAME) > 3)
    text = f"cannot look up the host of tcp://{NAME}:5570: Name or service not known; trying again"
    assert caplog.text.count(text) == 1


def test_a_name_that_is_known_later_is_found(
    names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_names, "_PAUSE", 0.01)
    with (
        wmp.Manager("tcp://127.0.0.1:*") as manager,
        wmp.Worker(f"tcp://{NAME}:{port_of(manager.endpoints[0])}", handlers=echo),
    ):
        wait_until(lambda: names.asked.count(NAME) > 2)
        names.addresses[NAME] = ["127.0.0.1"]
        assert manager.submit(b"found").result(timeout=WAIT) == b"found"


def test_the_next_address_of_a_name_is_tried_when_the_first_does_not_answer(
    names: NameServer,
) -> None:
    names.addresses[NAME] = ["127.0.0.2", "127.0.0.1"]
    with (
        wmp.Manager("tcp://127.0.0.1:*") as manager,
        wmp.Worker(f"tcp://{NAME}:{port_of(manager.endpoints[0])}", handlers=echo),
    ):
        assert manager.submit(b"second").result(timeout=WAIT) == b"second"


def test_a_name_is_looked_up_again_when_its_connection_ended(names: NameServer) -> None:
    names.addresses[NAME] = ["127.0.0.1"]
    with wmp.Manager("tcp://127.0.0.1:*") as first:
        port = port_of(first.endpoints[0])
        worker = wmp.Worker(f"tcp://{NAME}:{port}", handlers=echo)
        worker.start()
        first.wait_for_workers(1, timeout=WAIT)
        names.addresses[NAME] = ["127.0.0.2"]
    with worker, wmp.Manager(f"tcp://127.0.0.2:{port}") as second:
        assert second.submit(b"moved").result(timeout=WAIT) == b"moved"


def test_localhost_may_be_either_of_its_addresses(names: NameServer) -> None:
    names.addresses["localhost"] = ["127.0.0.1", "::1"]
    try:
        manager = wmp.Manager("tcp://[::1]:*")
        manager.start()
    except wmp.ConfigError:
        pytest.skip("this machine has no ::1")
    with manager, wmp.Worker(f"tcp://localhost:{port_of(manager.endpoints[0])}", handlers=echo):
        assert manager.submit(b"six").result(timeout=WAIT) == b"six"


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_numeric_address_is_not_looked_up(names: NameServer, host: str) -> None:
    with wmp.Worker(f"tcp://{host}:5570", handlers=echo):
        pass
    assert names.asked == []


def test_nodes_of_other_protocols_look_names_up_too(names: NameServer) -> None:
    names.addresses[NAME] = ["127.0.0.1"]
    with (
        LazyServer("tcp://127.0.0.1:*", handler=lambda request: request) as server,
        LazyClient(f"tcp://{NAME}:{port_of(server.endpoints[0])}") as client,
    ):
        assert client.request(b"lazy")
    assert NAME in names.asked


def test_a_node_that_ends_waits_for_no_name_server(names: NameServer) -> None:
    with wmp.Worker(f"tcp://{SLOW}:5570", handlers=echo):
        wait_until(lambda: SLOW in names.asked)
    # The thread of the lookup still waits here.
    assert any(thread.is_alive() for thread in names.threads)


def test_the_system_answers_with_ipv4_first() -> None:
    addresses = host_names.resolve("localhost")
    assert "127.0.0.1" in addresses
    assert addresses[0].count(":") == 0
