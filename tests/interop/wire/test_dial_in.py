"""Managers that dial in to devices, over real sockets (spec §8)."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
import zmq
from attrs import evolve

import wmp
from tests.interop.programs.forks import wmp_device
from tests.interop.wire.peers import SocketWorker
from tests.waiting import WAIT, WAIT_MS, wait_until
from wmp import codec
from wmp.message import Command, Field, Message

QUICK = wmp.Transport(reconnect=0.01, reconnect_max=0.02)


def local(**options: Any) -> wmp.Device:
    options.setdefault("bind_managers", "tcp://127.0.0.1:*")
    return wmp.Device(bind="tcp://127.0.0.1:*", **options)


@pytest.mark.rule("WMP-1.2", "WMP-1.4", "WMP-8.11")
@pytest.mark.parametrize("scheme", ["tcp", "ipc", "inproc"])
def test_jobs_of_a_manager_that_dials_in_are_done(
    scheme: str, tmp_path: Path, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    above = {"tcp": "tcp://127.0.0.1:*", "ipc": f"ipc://{tmp_path}/up", "inproc": "inproc://up"}
    shared: Any = context if scheme == "inproc" else None
    below = "inproc://down" if shared else "tcp://127.0.0.1:*"
    with wmp.Device(bind=below, bind_managers=above[scheme], context=shared) as device:
        known = len(context.made)
        with (
            wmp.Manager(connect=device.manager_endpoints, context=shared) as manager,
            wmp.Worker(*device.endpoints, handlers=bytes.upper, context=shared),
        ):
            assert manager.endpoints == ()
            if shared:
                kinds = [socket.type for socket in context.made[known:]]
                assert zmq.ROUTER not in kinds
            assert list(manager.map([b"a" * 5000] * 30)) == [b"A" * 5000] * 30
            assert device.statistics().managers == 1


def test_managers_of_all_kinds_share_the_workers_of_a_device() -> None:
    with (
        wmp.Manager() as bound,
        local(connect=bound.endpoints) as device,
        wmp.Manager(connect=device.manager_endpoints[0]) as dialed,
        wmp.Manager("tcp://127.0.0.1:*", connect=device.manager_endpoints) as both,
        wmp.Worker(*device.endpoints, handlers=lambda payload: payload + b" below"),
        wmp.Worker(*both.endpoints, handlers={"own": bytes.upper}),
    ):
        for manager in (bound, dialed, both):
            assert manager.submit(b"a").result(WAIT) == b"a below"
        assert both.submit(b"b", role="own").result(WAIT) == b"B"


@pytest.mark.rule("WMP-8.11", "WMP-8.12")
def test_a_manager_comes_back_after_a_restart_of_its_device(tmp_path: Path) -> None:
    where: Any = {"bind": f"ipc://{tmp_path}/down", "bind_managers": f"ipc://{tmp_path}/up"}
    device = wmp.Device(**where)
    device.start()
    manager = wmp.Manager(connect=where["bind_managers"], transport=QUICK)
    worker = wmp.Worker(where["bind"], handlers=bytes.upper, transport=QUICK, ping=0.05)
    try:
        with manager, worker:
            assert manager.submit(b"a").result(WAIT) == b"A"
            device.close()
            job = manager.submit(b"b")
            device = wmp.Device(**where)
            device.start()
            assert job.result(WAIT) == b"B"
            assert device.statistics().managers == 1
        wait_until(lambda: device.statistics().managers == 0, "the manager's goodbye arrives")
    finally:
        device.close()


@pytest.mark.rule("WMP-8.12")
def test_the_end_of_a_connection_ends_its_manager(context: Any) -> None:
    with local() as device:
        managers = [Dialer(context, device.manager_endpoints[0], b"m%d" % i) for i in range(3)]
        wait_until(lambda: device.statistics().managers == 3, "three managers are known")
        managers[0].close()
        wait_until(lambda: device.statistics().managers == 2, "one manager has gone")
        with SocketWorker(device.endpoints[0]) as worker:
            worker.ping()
            for manager in managers[1:]:
                assert manager.receive().command is Command.PING
        for manager in managers[1:]:
            manager.close()
        wait_until(lambda: device.statistics().managers == 0, "all managers have gone")


class Dialer:
    """A manager of bare sockets that dials in."""

    def __init__(self, context: Any, endpoint: str, name: bytes, **options: Any) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        for option, value in options.items():
            setattr(self.socket, option, value)
        self.socket.connect(endpoint)
        self.me = name, 7
        self.send(Message(Command.PONG, (), self.me, {Field.MAX_SILENCE: 6000}))

    def send(self, message: Message) -> None:
        self.socket.send_multipart(codec.encode(message))

    def receive(self) -> Message:
        assert self.socket.poll(WAIT_MS)
        return codec.decode(self.socket.recv_multipart())

    def close(self) -> None:
        self.socket.close()


@pytest.mark.rule("WMP-8.12", "WMP-8.13")
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="there is no /proc")
@pytest.mark.parametrize(
    ("rounds", "room"), [(6, None), pytest.param(600, 3 << 19, marks=pytest.mark.deep)]
)
def test_a_device_does_not_grow(
    context: Any, tmp_path: Path, rounds: int, room: int | None
) -> None:
    below, above = f"ipc://{tmp_path}/down", f"ipc://{tmp_path}/up"
    with (
        wmp_device("--bind", below, "--bind-managers", above) as device,
        SocketWorker(below) as worker,
    ):
        used = []
        for number in range(rounds):
            used.append(memory(device.process.pid))
            managers = [Dialer(context, above, b"m%d.%d" % (number, i)) for i in range(50)]
            for manager in managers:
                manager.send(Message(Command.PONG, (), manager.me, {Field.MAX_SILENCE: 6000}))
            for manager in managers:
                while not manager.socket.poll(50):
                    worker.ping()  # it reaches every manager that the device knows
            for index, manager in enumerate(managers):
                assert manager.receive().command is Command.PING
                if index % 2:
                    manager.send(Message(Command.BYE, (), manager.me, {}))
                manager.close()
        # The memory varies by megabytes, and grows at first. The least values of two parts of the
        # run differ little. An entry of a table for each of 10,000 managers would be over 2 MB.
        third = rounds // 3
        grown = min(used[2 * third :]) - min(used[third : 2 * third])
        assert room is None or grown < room


def memory(pid: int) -> int:
    """Return the bytes of memory that a process uses."""
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.rule("WMP-8.13")
def test_a_device_refuses_managers_above_its_limit_and_serves_the_others(
    context: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wmp")
    with (
        local(max_managers=1) as device,
        wmp.Manager(connect=device.manager_endpoints) as manager,
        wmp.Worker(*device.endpoints, handlers=bytes.upper),
    ):
        assert manager.submit(b"a").result(WAIT) == b"A"
        other = Dialer(context, device.manager_endpoints[0], b"other")
        error = other.receive()
        assert error.fields[Field.CODE] == "limit"
        assert "1 manager has dialed in" in error.fields[Field.TEXT]
        assert manager.submit(b"b").result(WAIT) == b"B"
        with wmp.Manager(connect=device.manager_endpoints) as refused:
            wait_until(lambda: "device full" in refused.statistics().dropped, "the refusal arrives")
        other.close()
    assert any("raise max_managers of the device" in r.getMessage() for r in caplog.records)


@pytest.mark.rule("WMP-8.9")
def test_nodes_at_the_wrong_side_of_a_device_are_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "wmp")
    with local() as device:
        with (
            wmp.Worker(*device.manager_endpoints, handlers=bytes.upper),
            wmp.Manager(connect=device.endpoints) as manager,
        ):
            wait_until(lambda: "wrong side" in manager.statistics().dropped, "it is refused")
            for peers in ("workers connect to the address for workers (--bind)",
                          "managers connect to the address for managers"):  # fmt: skip
                wait_until(lambda peers=peers: _warned(caplog, peers), f"the log says {peers}")
        assert device.statistics().managers == 0


def _warned(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    records = [record for record in caplog.records if record.levelno > logging.INFO]
    return any(text in record.getMessage() for record in records)


def test_a_manager_with_a_routing_id_of_its_own_is_refused(
    context: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with local() as device:
        dialer = Dialer(context, device.manager_endpoints[0], b"m", routing_id=b"mine")
        wait_until(lambda: "routing id" in device.statistics().dropped, "it is refused")
        assert device.statistics().managers == 0
        dialer.close()
    assert any("leave the routing id of its DEALER to ZeroMQ" in line for line in caplog.messages)


def test_garbage_at_the_upper_router_is_answered_and_harms_no_manager(context: Any) -> None:
    with (
        local() as device,
        wmp.Manager(connect=device.manager_endpoints) as manager,
        wmp.Worker(*device.endpoints, handlers=bytes.upper),
    ):
        stranger = context.socket(zmq.DEALER)
        stranger.linger = 0
        stranger.connect(device.manager_endpoints[0])
        for _ in range(500):
            stranger.send_multipart([b"garbage", b"more"])
        assert stranger.poll(WAIT_MS)
        error = codec.decode(stranger.recv_multipart())
        assert (error.command, error.fields[Field.CODE]) == (Command.ERROR, "malformed")
        wait_until(lambda: "ignored" in device.statistics().dropped, "it is ignored")
        assert manager.submit(b"a").result(WAIT) == b"A"
        assert device.statistics().managers == 1
        stranger.close()


@pytest.mark.rule("WMP-15.1", "WMP-8.14")
def test_a_stranger_with_the_identity_of_a_manager_gets_no_place_and_no_result(
    context: Any,
) -> None:
    with (
        local() as device,
        wmp.Manager(connect=device.manager_endpoints, identity="m") as manager,
        wmp.Worker(*device.endpoints, handlers=bytes.upper, ping=0.05),
    ):
        assert manager.submit(b"a").result(WAIT) == b"A"
        thief = Dialer(context, device.manager_endpoints[0], b"m")
        thief.me = b"m", 2**62
        code = "unreachable"
        while code == "unreachable":  # the worker may have replaced its socket meanwhile
            ping = thief.receive()  # a search of the worker, which reaches every manager
            while ping.command is not Command.PING:
                ping = thief.receive()
            pong = {Field.MAX_SILENCE: 6000, Field.SESSION: 9}
            thief.send(Message(Command.PONG, ping.answer_to, thief.me, pong))
            answer = thief.receive()
            while answer.command is not Command.ERROR:
                assert answer.command in (Command.PING, Command.READY)
                answer = thief.receive()
            code = answer.fields[Field.CODE]
        assert code == "superseded"
        assert manager.submit(b"b").result(WAIT) == b"B"
        thief.close()


# -- keys


def keys(server: wmp.Security | None = None) -> wmp.Security:
    return wmp.Security.generate(server_key=server.public_key if server is not None else None)


@pytest.mark.rule("WMP-12.4")
def test_the_keys_of_managers_and_workers_admit_to_their_own_side_only() -> None:
    server = keys()
    worker, manager, both = keys(server), keys(server), keys(server)
    guarded = evolve(
        server,
        allowed={worker.public_key, both.public_key},
        managers={manager.public_key, both.public_key},
    )
    with local(security=guarded) as device:
        below, above = device.endpoints, device.manager_endpoints
        with (
            wmp.Manager(connect=above, security=manager) as good,
            wmp.Worker(*below, handlers=bytes.upper, security=worker),
        ):
            assert good.submit(b"a").result(WAIT) == b"A"
            refused = device.statistics().dropped.get("not allowed", 0)
            with wmp.Manager(connect=above, security=worker):
                wait_until(
                    lambda: device.statistics().dropped.get("not allowed", 0) > refused,
                    "the key of a worker is refused above",
                )
                assert device.statistics().managers == 1
            refused = device.statistics().dropped["not allowed"]
            with wmp.Worker(*below, handlers=bytes.upper, security=manager):
                wait_until(
                    lambda: device.statistics().dropped["not allowed"] > refused,
                    "the key of a manager is refused below",
                )
            with wmp.Manager(connect=above, security=both) as second:
                assert second.submit(b"b").result(WAIT) == b"B"


@pytest.mark.rule("WMP-12.4")
def test_a_device_with_an_allow_list_needs_one_for_managers_too() -> None:
    worker = keys()
    guarded = wmp.Security.generate(allowed=[worker.public_key])
    with pytest.raises(wmp.ConfigError, match="add their public keys as managers="):
        local(security=guarded)


def test_an_identity_of_a_manager_is_believed_only_from_the_key_that_holds_it(
    context: Any,
) -> None:
    server = keys()
    owner, thief = keys(server), keys(server)
    guarded = evolve(server, managers={owner.public_key, thief.public_key})
    with (
        local(security=guarded) as device,
        wmp.Manager(connect=device.manager_endpoints, identity="m", security=owner),
    ):
        wait_until(lambda: device.statistics().managers == 1, "the owner has dialed in")
        stolen = Dialer(
            context,
            device.manager_endpoints[0],
            b"m",
            curve_publickey=thief.public_key,
            curve_secretkey=thief.secret_key,
            curve_serverkey=server.public_key,
        )
        assert stolen.receive().fields[Field.CODE] == "superseded"
        assert device.statistics().managers == 1
        stolen.close()


# -- errors


def test_an_address_with_a_name_is_refused_with_the_right_form() -> None:
    text = "a manager has no setting 'bind'; give its addresses first and without a name"
    with pytest.raises(wmp.ConfigError, match=text):
        wmp.Manager(bind="tcp://127.0.0.1:1")


def test_a_device_needs_managers_on_one_way_or_the_other() -> None:
    with pytest.raises(wmp.ConfigError, match="at least one in connect= or bind_managers="):
        wmp.Device(bind="tcp://127.0.0.1:*")
