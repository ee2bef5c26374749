"""Jobs over tcp, ipc and inproc; errors of bind and connect; CURVE."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.auth
from attrs import evolve

import wmp
from tests.interop.faults.faults import Part
from tests.interop.wire.peers import SocketWorker
from tests.waiting import WAIT, wait_until
from wmp.message import Command
from wmp.runtime.sockets.socket_settings import SocketSettings
from wmp.runtime.sockets.zmq_context import dealer


@contextlib.contextmanager
def listener() -> Iterator[int]:
    """A port that another socket has bound."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


@pytest.mark.parametrize("scheme", ["tcp", "ipc", "inproc"])
def test_jobs_go_over_every_transport(
    scheme: str, tmp_path: Path, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    endpoint = {
        "tcp": "tcp://127.0.0.1:*",
        "ipc": f"ipc://{tmp_path}/wmp",
        "inproc": "inproc://wmp",
    }[scheme]
    shared: Any = context if scheme == "inproc" else None
    with (
        wmp.Manager(endpoint, context=shared) as manager,
        wmp.Worker(*manager.endpoints, handlers=bytes.upper, context=shared) as worker,
    ):
        assert manager.endpoints[0].startswith(f"{scheme}://")
        assert list(manager.map([b"a" * 5000] * 300)) == [b"A" * 5000] * 300
        assert worker.statistics() is not None


def test_devices_work_over_inproc(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    with (
        wmp.Manager("inproc://top", context=context) as manager,
        wmp.Device(bind="inproc://middle", connect="inproc://top", context=context) as device,
        wmp.Worker(*device.endpoints, handlers=bytes.upper, context=context),
    ):
        assert manager.submit(b"a").result(WAIT) == b"A"


@pytest.mark.rule("WMP-1.4")
def test_a_device_has_one_router_and_a_dealer_for_each_manager_above(context: Any) -> None:
    with (
        wmp.Manager("inproc://one", context=context) as manager,
        wmp.Manager("inproc://two", context=context) as two,
    ):
        known = len(context.made)
        above = [*manager.endpoints, *two.endpoints]
        with wmp.Device(bind="inproc://middle", connect=above, context=context) as device:
            kinds = [opened.type for opened in context.made[known:]]
            assert (kinds.count(zmq.ROUTER), kinds.count(zmq.DEALER)) == (1, 2)
            with wmp.Worker(*device.endpoints, handlers=bytes.upper, context=context):
                assert manager.submit(b"a").result(WAIT) == b"A"
                assert two.submit(b"b").result(WAIT) == b"B"


def test_a_manager_binds_to_several_endpoints(tmp_path: Path) -> None:
    with wmp.Manager("tcp://127.0.0.1:*", f"ipc://{tmp_path}/wmp") as manager:
        assert len(manager.endpoints) == 2
        for endpoint in manager.endpoints:
            with SocketWorker(endpoint) as peer:
                peer.ping()
                assert peer.receive().command is Command.PONG


@pytest.mark.parametrize("node", ["manager", "device"])
def test_a_port_in_use_is_one_clear_line(node: str) -> None:
    with listener() as port:
        endpoint = f"tcp://127.0.0.1:{port}"
        opened: Any
        if node == "manager":
            opened = wmp.Manager(endpoint)
        else:
            opened = wmp.Device(bind=endpoint, connect="tcp://127.0.0.1:1")
        with pytest.raises(wmp.ConfigError, match=f"{port}: address already in use; choose"):
            opened.start()
        with pytest.raises(wmp.ClosedError):
            opened.start()


def test_a_served_ipc_path_is_not_taken_away(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/wmp"
    with wmp.Manager(endpoint) as manager:
        with pytest.raises(wmp.ConfigError, match="already in use"):
            wmp.Manager(endpoint).start()
        with wmp.Worker(*manager.endpoints, handlers=bytes.upper):
            assert manager.submit(b"a").result(WAIT) == b"A"
    with wmp.Manager(endpoint):
        pass


def test_an_ipc_path_of_another_file_is_refused(tmp_path: Path) -> None:
    store, link, folder = tmp_path / "orders.db", tmp_path / "link", tmp_path / "folder"
    store.write_text("precious")
    link.symlink_to(store)
    folder.mkdir()
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nothing")

    for path, kind in (
        (store, "a file that is not a socket"),
        (link, "a symbolic link"),
        (dangling, "a symbolic link"),
        (folder, "a folder"),
    ):
        with pytest.raises(wmp.ConfigError, match=f"{path} is {kind}, which the socket would"):
            wmp.Manager(f"ipc://{path}").start()
        with pytest.raises(wmp.ConfigError, match=f"is {kind}"):
            wmp.Device(bind=f"ipc://{path}", connect="tcp://127.0.0.1:9").start()
    assert store.read_text() == "precious"
    assert link.is_symlink()
    assert dangling.is_symlink()


def test_an_ipc_path_whose_process_is_too_busy_to_accept_is_not_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "busy"
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(str(path))
        server.listen(0)
        # The queue of the server is full, so the kernel accepts no further connection.
        while True:
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            if client.connect_ex(str(path)):
                break
        with pytest.raises(wmp.ConfigError, match="already in use"):
            wmp.Manager(f"ipc://{path}").start()
        assert path.is_socket()


@pytest.mark.parametrize(
    ("endpoint", "text"),
    [
        ("tcp://192.0.2.1:5555", "does not have that address"),
        ("ipc:///nowhere/at/all", "cannot bind"),
    ],
)
def test_an_address_that_cannot_be_bound_is_one_clear_line(endpoint: str, text: str) -> None:
    security = wmp.Security.generate()
    with pytest.raises(wmp.ConfigError, match=text):
        wmp.Manager(endpoint, security=security).start()


@pytest.mark.rule("WMP-12.1")
def test_binding_to_the_network_needs_keys() -> None:
    with pytest.raises(wmp.ConfigError, match=r"Security\.generate"):
        wmp.Manager("tcp://*:*")


@pytest.mark.parametrize(
    ("endpoint", "longest"),
    [("tcp://127.0.0.1:9", 100), ("ipc:///tmp/wmp-nobody", 100), ("tcp://192.0.2.1:9", 1000)],
)
def test_an_address_of_this_machine_is_tried_again_sooner(
    context: zmq.Context[zmq.Socket[bytes]], endpoint: str, longest: int
) -> None:
    port = dealer(SocketSettings(context=context), 0, endpoint)
    assert port.socket.reconnect_ivl == 50
    assert port.socket.reconnect_ivl_max == longest
    port.close(0)


def test_a_missing_manager_is_logged_once_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "wmp")
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    endpoint = f"tcp://127.0.0.1:{port}"
    transport = wmp.Transport(reconnect=0.01, reconnect_max=0.02)
    heard = Heard(f"no answer from {endpoint}")
    logging.getLogger("wmp").addHandler(heard)
    try:
        with wmp.Worker(endpoint, handlers=bytes.upper, transport=transport):
            assert heard.wait(WAIT)
            with wmp.Manager(endpoint) as manager:
                assert manager.submit(b"a").result(WAIT) == b"A"
                lines = [record.getMessage() for record in caplog.records]
    finally:
        logging.getLogger("wmp").removeHandler(heard)

    assert sum("no answer from" in line for line in lines) == 1
    assert any(f"connected to {endpoint}" in line for line in lines)


def test_a_peer_that_ends_during_its_handshake_is_not_blamed_for_keys(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with wmp.Manager("tcp://127.0.0.1:*") as manager:
        host, _, port = manager.endpoints[0].removeprefix("tcp://").rpartition(":")
        with socket.create_connection((host, int(port))) as peer:
            assert peer.recv(1)  # the greeting of the manager
            # The end of the connection is a reset.
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_until(lambda: "a peer closed its connection during the handshake" in caplog.text)
    assert "Connection reset by peer" not in caplog.text


def test_a_manager_that_was_there_has_gone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "wmp")
    transport = wmp.Transport(reconnect=0.01, reconnect_max=0.02)
    with wmp.Manager() as manager:
        (endpoint,) = manager.endpoints
        heard = Heard(f"lost the connection to the manager at {endpoint}; retrying")
        logging.getLogger("wmp").addHandler(heard)
        worker = wmp.Worker(endpoint, handlers=bytes.upper, transport=transport, ping=0.05)
        worker.start()
        try:
            assert manager.submit(b"a").result(WAIT) == b"A"
            wait_until(lambda: not worker.statistics().unacknowledged, "all is acknowledged")
            manager.close()
            assert heard.wait(WAIT)
            # The line is logged once, even if the socket is replaced many times.
            dealers = worker._inner._node.driver._sockets.dealers
            first = dealers[0]
            known = {first}

            def replaced() -> bool:
                known.add(dealers.get(0, first))
                return len(known) == 3

            wait_until(replaced, "its socket is replaced twice")
        finally:
            logging.getLogger("wmp").removeHandler(heard)
            worker.close()

    assert not any("no answer from" in record.getMessage() for record in caplog.records)
    # The worker has ended without an error: every message was answered.
    assert {record.levelno for record in caplog.records} == {logging.INFO}
    assert sum("lost the connection" in record.getMessage() for record in caplog.records) == 1


def test_a_manager_that_goes_with_a_job_under_way_is_a_warning(tmp_path: Path) -> None:
    manager = Part("manager", tmp_path)
    bind = {"bind": ["tcp://127.0.0.1:*"], "options": {"identity": "m", "max_silence": 0.5}}
    begun, end = threading.Event(), threading.Event()

    def work(payload: bytes) -> bytes:
        begun.set()
        end.wait(WAIT)
        return payload

    try:
        ((endpoint,),) = manager.start(managers=[bind])["bound"]
        heard = Heard(f"lost the connection to the manager at {endpoint}; retrying")
        logging.getLogger("wmp").addHandler(heard)
        transport = wmp.Transport(reconnect=0.01, reconnect_max=0.02)
        with wmp.Worker(endpoint, handlers=work, transport=transport):
            manager.tell(manager=0, submit=[1], role="default")
            assert begun.wait(WAIT)
            manager.kill()
            assert heard.wait(WAIT)
            end.set()
        assert heard.level == logging.WARNING
    finally:
        end.set()
        logging.getLogger("wmp").removeHandler(heard)
        manager.kill()


def test_a_node_removes_only_its_own_ipc_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with wmp.Manager("ipc://one", "ipc://two", f"ipc://{tmp_path / 'three'}"):
        assert sorted(os.listdir()) == ["one", "three", "two"]
        # Another process has replaced the file; the manager leaves the new file alone.
        os.unlink("two")
        Path("two").touch()
        monkeypatch.chdir("/")

    assert os.listdir(tmp_path) == ["two"]


class Heard(logging.Handler):
    """Waits for a line in the log."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self.level = logging.NOTSET
        self._event = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self.level = record.levelno
            self._event.set()

    def wait(self, timeout: float) -> bool:
        return self._event.wait(timeout)


def stop_loop(node: wmp.Worker, paused: threading.Event, resumed: threading.Event) -> None:
    """Keep the loop of a node busy until ``resumed`` is set; set ``paused`` at the beginning."""

    def pause() -> None:
        paused.set()
        resumed.wait(WAIT)

    loop = node._portal._loop
    assert loop is not None
    loop.call_soon_threadsafe(pause)


def secured(*allowed: wmp.Security, server: wmp.Security | None = None) -> wmp.Security:
    return wmp.Security.generate(
        server_key=server.public_key if server is not None else None,
        allowed=[key.public_key for key in allowed] if allowed else None,
    )


@pytest.mark.rule("WMP-12.1")
def test_curve_admits_peers_on_the_allow_list_only() -> None:
    server = secured()
    friend, stranger = secured(server=server), secured(server=server)
    guarded = wmp.Security(
        public_key=server.public_key,
        secret_key=server.secret_key,
        allowed={friend.public_key},
    )
    with wmp.Manager("tcp://127.0.0.1:*", security=guarded) as manager:
        with wmp.Worker(*manager.endpoints, handlers=lambda _: b"stranger", security=stranger):
            job = manager.submit(b"a")
            with wmp.Worker(*manager.endpoints, handlers=lambda _: b"friend", security=friend):
                assert job.result(WAIT) == b"friend"
            assert list(manager.statistics().workers) == []
        assert manager.statistics().dropped["not allowed"] >= 1


@pytest.mark.parametrize("through_device", [False, True])
def test_an_identity_in_use_is_believed_only_from_the_key_that_holds_it(
    through_device: bool,
) -> None:
    server = secured()
    owner, thief = secured(server=server), secured(server=server)
    keys = {owner.public_key, thief.public_key, server.public_key}
    guarded = evolve(server, server_key=server.public_key, allowed=keys)
    caught: list[BaseException] = []

    def run(second: wmp.Worker) -> None:
        try:
            second.run()
        except wmp.Superseded as error:
            caught.append(error)

    with contextlib.ExitStack() as stack:
        manager = stack.enter_context(wmp.Manager("tcp://127.0.0.1:*", security=guarded))
        endpoints = manager.endpoints
        if through_device:
            device = wmp.Device(bind="tcp://127.0.0.1:*", connect=endpoints, security=guarded)
            endpoints = stack.enter_context(device).endpoints
        paused = threading.Event()
        resumed = threading.Event()

        worker = wmp.Worker(*endpoints, handlers=bytes.upper, identity="w", security=owner)
        stack.enter_context(worker)
        manager.wait_for_workers(timeout=WAIT)
        # The owner does not answer challenges for some seconds, as if its process were paused.
        stop_loop(worker, paused, resumed)
        paused.wait(WAIT)
        second = wmp.Worker(
            *endpoints, handlers=lambda _: b"stolen", identity="w", security=thief, ping=0.1
        )
        thread = threading.Thread(target=run, args=(second,))
        thread.start()
        thread.join(WAIT)
        resumed.set()
        assert not thread.is_alive()
        assert "another process has this identity" in str(caught[0])
        assert manager.submit(b"a").result(WAIT) == b"A"


def test_curve_keeps_out_peers_without_keys() -> None:
    server = secured()
    mine = secured(server=server)
    with (
        wmp.Manager("tcp://127.0.0.1:*", security=server) as manager,
        SocketWorker(manager.endpoints[0]) as plain,
        wmp.Worker(*manager.endpoints, handlers=bytes.upper, security=mine),
    ):
        # After a refused handshake libzmq accepts no further bytes from the peer.
        plain.socket.sndtimeo = 100
        with contextlib.suppress(zmq.Again):
            plain.ready(credit=100)
        assert manager.submit(b"a").result(WAIT) == b"A"
        assert len(manager.statistics().workers) == 1


def test_keys_hold_for_ipc_too(tmp_path: Path) -> None:
    server = secured()
    endpoint = f"ipc://{tmp_path / 'x'}"
    with (
        wmp.Manager(endpoint, security=server) as manager,
        wmp.Worker(endpoint, handlers=bytes.upper, security=secured(server=server)),
    ):
        assert manager.submit(b"a").result(WAIT) == b"A"


def test_a_device_does_not_connect_to_itself() -> None:
    with pytest.raises(wmp.ConfigError, match="a device cannot connect to itself"):
        wmp.Device(bind="tcp://127.0.0.1:5571", connect=["tcp://h:1", "tcp://127.0.0.1:5571"])


def test_connecting_with_keys_needs_the_server_key() -> None:
    worker = wmp.Worker("tcp://127.0.0.1:5555", handlers=bytes.upper, security=secured())
    with pytest.raises(wmp.ConfigError, match="server_key"):
        worker.start()


@pytest.mark.skipif(os.name != "posix", reason="files have no modes")
def test_a_secret_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    _, secret = map(Path, zmq.auth.create_certificates(tmp_path, "node"))
    secret.chmod(0o640)
    with pytest.raises(wmp.ConfigError, match=r"mode 0640\); run: chmod 600"):
        wmp.Security.load(secret)
    secret.chmod(0o600)
    assert wmp.Security.load(secret).secret_key


def test_a_wrong_server_key_is_named_at_both_ends(caplog: pytest.LogCaptureFixture) -> None:
    server = secured()
    lost = secured(server=secured())
    with (
        wmp.Manager("tcp://127.0.0.1:*", security=server) as manager,
        wmp.Worker(*manager.endpoints, handlers=bytes.upper, security=lost),
    ):
        wait_until(
            lambda: len([r for r in caplog.records if "handshake:" in r.getMessage()]) >= 2,
            "both ends to report the handshake",
        )
    text = caplog.text
    assert "check that the connecting peer names" in text
    assert "the server key here is the public key of the node at that address" in text
    assert "broken pipe" not in text.lower()


def test_keys_are_read_from_certificates(tmp_path: Path) -> None:
    _, server = zmq.auth.create_certificates(tmp_path, "server")
    public, mine = zmq.auth.create_certificates(tmp_path, "mine")
    os.chmod(mine, 0o600)
    security = wmp.Security.load(mine, server=server, allowed=tmp_path)

    assert security.server_key is not None
    assert security.allowed is not None
    assert len(security.allowed) == 2
    with pytest.raises(wmp.ConfigError, match="no secret key"):
        wmp.Security.load(public)
    with pytest.raises(wmp.ConfigError, match="there is no"):
        wmp.Security.load(tmp_path / "missing")


@pytest.mark.rule("WMP-1.7")
def test_sockets_have_limits_and_heartbeats(context: Any) -> None:
    with (
        wmp.Manager("inproc://x", context=context),
        wmp.Worker("inproc://x", handlers=bytes.upper, context=context),
    ):
        sockets = [s for s in context.made if s.type in (zmq.ROUTER, zmq.DEALER)]
        assert {s.type for s in sockets} == {zmq.ROUTER, zmq.DEALER}
        for opened in sockets:
            assert 0 < opened.get(zmq.SNDHWM) < 100_000
            assert 0 < opened.get(zmq.RCVHWM) < 100_000
            assert opened.get(zmq.MAXMSGSIZE) > 0
            # A ROUTER sends no heartbeats, because each connection would add to their cost.
            asks = opened.type == zmq.DEALER
            assert (opened.get(zmq.HEARTBEAT_IVL) > 0) is asks
            assert (opened.get(zmq.HEARTBEAT_TTL) > 0) is asks
            assert 0 <= opened.get(zmq.LINGER) < 10_000
