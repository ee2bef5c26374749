"""A peer that claims the routing ids of connections to come cannot stop a node."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        platform.libc_ver()[0] != "glibc", reason="the attack computes the rand() of glibc"
    ),
]

MANAGER = """
import sys
import wmp
from wmp.runtime import sockets

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
    """Whether a manager is alive after the attack."""
    manager = subprocess.Popen(
        [sys.executable, "-c", MANAGER, seeding],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert manager.stdin is not None
    assert manager.stdout is not None
    with manager:
        endpoint = manager.stdout.readline().strip()
        subprocess.run([sys.executable, "-c", ATTACK, endpoint], check=True, timeout=50)
        try:
            manager.stdin.close()
        except BrokenPipeError:
            pass
        return manager.wait(timeout=20) == 0


def test_a_claimed_routing_id_does_not_stop_a_manager():
    assert survives("seeded")


def test_without_the_seed_the_attack_would_stop_it():
    assert not survives("unseeded")
