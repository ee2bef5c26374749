"""A peer that claims the routing ids of later connections cannot stop a node."""

from __future__ import annotations

import platform
import sys
from time import monotonic

import pytest
import zmq

import wmp
from tests.interop.programs.forks import ForkedProgram, forks
from tests.waiting import WAIT
from wmp import codec
from wmp.message import Command, Message
from wmp.runtime.sockets.local_ids import LocalIds

pytestmark = pytest.mark.interop
glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the attack computes the rand() of glibc"
)

MANAGER = """
import sys
import wmp
from wmp.runtime.sockets import zmq_context as sockets

if sys.argv[1] == "unseeded":
    sockets._seed_routing_ids = lambda: None
with wmp.Manager("tcp://127.0.0.1:*") as manager:
    print(manager.endpoints[0], flush=True)
    sys.stdin.read()
"""

ATTACK = """
import ctypes, sys, zmq

rand = ctypes.CDLL(None).rand
ctypes.CDLL(None).srand(1)  # what every process begins with
context = zmq.Context()

def connect(identity=None):
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    if identity is not None:
        socket.routing_id = identity
    monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    socket.connect(sys.argv[1])
    return socket, monitor

def settled(connections):
    # The victim may be gone: then nothing more is to be done.
    for _, monitor in connections:
        monitor.poll(2000)

claims = []
for _ in range(24):
    low, high = rand(), rand()
    first = (low | high << 31) & 0xFFFFFFFF
    claims += [connect(b"\\0" + (first + n & 0xFFFFFFFF).to_bytes(4, "big")) for n in range(3)]
settled(claims)
settled([connect() for _ in range(4)])
"""


def survives(seeding: str) -> bool:
    """Return whether a manager still works after the attack."""
    with ForkedProgram(sys.executable, "-c", MANAGER, seeding) as manager:
        # The rand() of the fork begins as that of every process, because the parent of the fork
        # never calls it.
        attack = forks().run(sys.executable, "-c", ATTACK, manager.line())
        assert attack.returncode == 0, attack.stderr
        try:
            manager.end_input()
        except BrokenPipeError:
            pass
        return manager.ends() == 0


@glibc
def test_a_claimed_routing_id_does_not_stop_a_manager():
    assert survives("seeded")


@glibc
def test_without_the_seed_the_attack_would_stop_it():
    assert not survives("unseeded")


def local_ids_seen_above(context: zmq.Context, workers: int) -> list[int]:
    """Return the numbers by which a device names the workers' connections to a manager."""
    above = context.socket(zmq.ROUTER)
    below = [context.socket(zmq.DEALER) for _ in range(workers)]
    port = above.bind_to_random_port("tcp://127.0.0.1")
    peers: dict[bytes, int] = {}
    until = monotonic() + WAIT
    try:
        with wmp.Device(bind="tcp://127.0.0.1:*", connect=[f"tcp://127.0.0.1:{port}"]) as device:
            for socket in below:
                socket.connect(device.endpoints[0])
            while len(peers) < workers and monotonic() < until:
                # The device drops messages until its own connection is established.
                for number, socket in enumerate(below):
                    source = (b"w%d" % number, 1)
                    socket.send_multipart(codec.encode(Message(Command.PING, (), source)))
                while above.poll(200):
                    _, *frames = above.recv_multipart()
                    message = codec.decode(frames)
                    peers[message.sender[0]] = int.from_bytes(message.source[-1], "big")
    finally:
        for socket in (*below, above):
            socket.close(linger=0)
    assert len(peers) == workers
    return sorted(peers.values())


def in_a_row(numbers: list[int]) -> bool:
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@pytest.mark.rule("WMP-8.3")
def test_a_device_does_not_show_the_routing_ids_of_its_connections(context):
    assert not in_a_row(local_ids_seen_above(context, 5))


def test_without_local_ids_it_would_show_them(context, monkeypatch):
    monkeypatch.setattr(LocalIds, "local", lambda self, id: id)
    monkeypatch.setattr(LocalIds, "routing", lambda self, id: id)
    assert in_a_row(local_ids_seen_above(context, 5))
