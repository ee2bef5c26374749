"""Two nodes of a Binary Star, their clients, and plain sockets as in the guide."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
import zmq

from tests.waiting import WAIT_MS, wait_until
from wmp.errors import ClosedError, ConfigError, NoReply, Reject, StarConflict
from wmp.gateways import BinaryStar, LazyServer, StarClient
from wmp.gateways.binary_star import aio
from wmp.gateways.binary_star.aio import _is_private as is_private
from wmp.gateways.binary_star.election import StarState

pytestmark = pytest.mark.interop


@pytest.fixture
def addresses(tmp_path):
    """Return addresses of two nodes."""
    return f"ipc://{tmp_path}/a", f"ipc://{tmp_path}/b"


def pair(addresses, roles=("primary", "backup"), **settings):
    first, two = addresses
    # Each node must hear the other in time, on a busy machine too.
    settings = {"heartbeat": 0.5, **settings}
    return (
        BinaryStar(roles[0], local=first, remote=two, **settings),
        BinaryStar(roles[1], local=two, remote=first, **settings),
    )


@pytest.mark.rule("STAR-1.2")
def test_the_primary_becomes_active_the_backup_takes_over_and_nothing_falls_back(addresses):
    seen = []
    primary, backup = pair(addresses, on_active=lambda: seen.append("active"))
    with backup:
        with primary:
            wait_until(lambda: backup.state is StarState.PASSIVE)
            assert (primary.active, backup.active) == (True, False)
            assert (primary.vote(), backup.vote()) == (True, False)
        # Silence alone changes nothing; a request decides.
        wait_until(backup.vote)
        assert backup.active
        again, _ = pair(addresses)
        with again:
            wait_until(lambda: again.state is StarState.PASSIVE)
            assert (again.vote(), backup.vote()) == (False, True)
    assert seen == ["active", "active"]
    with pytest.raises(ClosedError):
        backup.vote()


def test_a_callback_reads_the_node(addresses):
    # The callback runs on the loop's thread, where a wait for the loop would never end.
    seen = []

    def read():
        seen.append((primary.active, primary.state, primary.statistics().state))

    primary, backup = pair(addresses, on_active=read)
    with backup, primary:
        wait_until(lambda: backup.state is StarState.PASSIVE)
    assert seen == [(True, StarState.ACTIVE, StarState.ACTIVE)]


@pytest.mark.rule("STAR-2.4")
@pytest.mark.parametrize("role", ["primary", "backup"])
def test_a_node_whose_peer_has_its_role_ends_with_the_cause(addresses, role):
    nodes = pair(addresses, roles=(role, role))
    with nodes[0], nodes[1]:
        wait_until(lambda: any(node.state is StarState.HALTED for node in nodes))
        ended = [node for node in nodes if node.state is StarState.HALTED]
        for node in ended:
            with pytest.raises(ConfigError, match=f"both nodes .* have the role {role}"):
                node.vote()
            with pytest.raises(ConfigError, match=f"both nodes .* have the role {role}"):
                node.wait_ended()


@pytest.mark.rule("STAR-2.4")
def test_two_active_nodes_end_when_they_meet(addresses):
    # Two halves of a partition: each node waits for an address at which nobody is.
    async def play():
        first = aio.BinaryStar("primary", local=addresses[0], remote=addresses[1], heartbeat=0.05)
        async with first:
            while not first.vote():
                await asyncio.sleep(0.01)
            two = aio.BinaryStar("backup", local=addresses[1], remote=addresses[0], heartbeat=0.05)
            two._machine.state = StarState.ACTIVE
            async with two:
                runs = [asyncio.create_task(node.wait_ended()) for node in (first, two)]
                ended, going = await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
                for run in ended:
                    with pytest.raises(StarConflict, match=r"both nodes of .* are active"):
                        run.result()
                for run in going:
                    run.cancel()

    asyncio.run(play())


@pytest.mark.rule("STAR-2.4", "STAR-1.7")
def test_a_stranger_at_the_address_of_the_peer_ends_no_node(context):
    with context.socket(zmq.PUB) as pub:
        port = pub.bind_to_random_port("tcp://127.0.0.1")
        node = BinaryStar(
            "primary", local="tcp://127.0.0.1:*", remote=f"tcp://127.0.0.1:{port}", heartbeat=0.05
        )
        with node:
            wait_until(node.vote)

            def refused():
                pub.send(b"3")
                return node.statistics().dropped.get("unproven claim", 0) >= 3

            wait_until(refused)
            assert node.vote()


@pytest.mark.rule("STAR-1.5", "STAR-2.4")
def test_two_active_nodes_with_one_key_end_over_tcp(tmp_path):
    key = tmp_path / "star.key"
    key.write_bytes(b"0123456789abcdef\n")
    key.chmod(0o600)
    with contextlib.ExitStack() as stack:
        reserved = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        addresses = [f"tcp://127.0.0.1:{server.getsockname()[1]}" for server in reserved]
    first, two = (
        BinaryStar(role, local=local, remote=remote, key=key, heartbeat=0.5)
        for role, local, remote in (
            ("primary", *addresses),
            ("backup", *reversed(addresses)),
        )
    )
    with first, two:
        wait_until(lambda: two.state is StarState.PASSIVE)
        two._inner._machine.state = StarState.ACTIVE
        wait_until(lambda: StarState.HALTED in (first.state, two.state))


def test_a_key_that_others_can_read_is_refused(tmp_path):
    key = tmp_path / "star.key"
    key.write_bytes(b"0123456789abcdef")
    key.chmod(0o644)
    places = {"local": "ipc://a", "remote": "ipc://b"}
    with pytest.raises(ConfigError, match="can be read by other users"):
        BinaryStar("primary", **places, key=key)
    with pytest.raises(ConfigError, match="cannot be read: no such file"):
        BinaryStar("primary", **places, key=tmp_path / "none")


@pytest.mark.rule("STAR-1.7")
def test_a_private_folder_proves_the_peer(tmp_path):
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    assert is_private(f"ipc://{private}/a")
    assert not is_private("tcp://127.0.0.1:5555")
    assert not is_private("ipc://@name")
    private.chmod(0o770)
    assert not is_private(f"ipc://{private}/a")
    inner = private / "inner"
    inner.mkdir(mode=0o700)
    assert not is_private(f"ipc://{inner}/a")  # others can replace the inner folder
    private.chmod(0o1777)
    assert is_private(f"ipc://{inner}/a")


@pytest.mark.rule("STAR-1.1")
def test_a_node_understands_a_peer_of_the_guide(addresses, context):
    with context.socket(zmq.PUB) as pub, context.socket(zmq.SUB) as sub:
        pub.bind(addresses[1])
        sub.subscribe(b"")
        sub.rcvtimeo = WAIT_MS
        sub.connect(addresses[0])
        node = BinaryStar("primary", local=addresses[0], remote=addresses[1], heartbeat=0.05)
        with node:
            assert sub.recv_multipart() == [b"1"]

            def active():
                pub.send(b"2")
                return node.active

            wait_until(active)
            while (heard := sub.recv_multipart()) == [b"1"]:
                pass
            assert heard == [b"3"]


@pytest.mark.rule("STAR-3.1", "STAR-3.2", "STAR-3.3")
def test_a_client_moves_to_the_node_that_took_over(addresses, tmp_path):
    primary, backup = pair(addresses)
    doors = [f"ipc://{tmp_path}/door-a", f"ipc://{tmp_path}/door-b"]

    def serve(node, name):
        """Return a handler that drops requests that are not for its node."""

        def handle(body):
            if not node.vote():
                raise Reject("passive")
            return body + b" from " + name

        return handle

    first = LazyServer(doors[0], handler=serve(primary, b"the primary"))
    second = LazyServer(doors[1], handler=serve(backup, b"the backup"))
    with primary, backup, first, second:
        wait_until(lambda: backup.state is StarState.PASSIVE)
        with StarClient(*doors, timeout=0.6, settle=0.2) as client:
            assert client.request(b"one") == b"one from the primary"
            first.close()
            primary.close()
            assert client.request(b"two") == b"two from the backup"
            assert client.request(b"three") == b"three from the backup"
            assert client.statistics().resent >= 1
            second.close()
        client = StarClient(*doors, timeout=0.05, settle=0.01, tries=3)
        with client, pytest.raises(NoReply, match=r"in 3 tries of 0\.05 s; check that one of"):
            client.request(b"four")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: BinaryStar("third", local="tcp://127.0.0.1:1", remote="tcp://127.0.0.1:2"),
            "role",
        ),
        (
            lambda: BinaryStar("backup", local="tcp://127.0.0.1:1", remote="tcp://127.0.0.1:1"),
            "expected the addresses of two nodes",
        ),
        (
            lambda: BinaryStar(
                "backup", local="tcp://127.0.0.1:1", remote="tcp://127.0.0.1:2", max_silence=0.5
            ),
            "expected more than one heartbeat",
        ),
        (lambda: StarClient("tcp://127.0.0.1:1", "tcp://127.0.0.1:1"), "two nodes"),
        (lambda: StarClient("tcp://127.0.0.1:1", "tcp://127.0.0.1:2", tries=0), "tries is 0"),
    ],
)
def test_wrong_settings_are_refused(make, text):
    with pytest.raises(ConfigError, match=text):
        make()
