"""A whole conversation of the machines without access to sockets, loops and clocks."""

from __future__ import annotations

import subprocess
import sys

from tests.waiting import RUN

CONVERSATION = """
import builtins, sys

# Nobody at all may load these.
for name in ("zmq", "asyncio"):
    sys.modules[name] = None

# The standard library reads clocks as it likes; our own modules may not.
BLOCKED = {"time", "random", "threading", "socket", "logging", "os", "datetime", "uuid"}
real = builtins.__import__

def guarded(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "")
    if importer.split(".")[0] == "wmp" and name.split(".")[0] in BLOCKED:
        raise ImportError(f"{importer} imports {name}")
    return real(name, globals, locals, fromlist, level)

builtins.__import__ = guarded

from wmp.balance import least_recently_used
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.testing.simulator.network import Network

network = Network()
network.add("m", ManagerMachine(ManagerSettings(identity=b"m", epoch=1), least_recently_used))
network.add("d", DeviceMachine(DeviceSettings(identity=b"d", epoch=1, upstreams=1)), ["m"])
network.add("w", WorkerMachine(WorkerSettings(identity=b"w", epoch=1), 1), ["d"])
network.connect("w")
network.submit("m", [b"one", b"two"])
network.run(until=30.0)
print(sorted((id, end.value, payload) for (_, id), (end, payload) in network.results.items()))
"""


def test_a_conversation_needs_no_socket_loop_or_clock():
    done = subprocess.run(
        [sys.executable, "-c", CONVERSATION], capture_output=True, text=True, timeout=RUN
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[(1, 'ok', b'did one'), (2, 'ok', b'did two')]"
