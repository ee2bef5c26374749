"""A pair of managers on hosts of its own, in network namespaces, with links that are cut.

The cases are those of ``specs/binary-star.md``. The hosts ``a`` and ``b`` have the managers, and
``c`` and ``d`` have a worker and a client each.
"""

from __future__ import annotations

import contextlib

import pytest
import zmq

from tests.interop.pairs.network_hosts import Hosts, missing
from tests.interop.pairs.pair_peers import CLIENTS, WORKERS
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(missing() != "", reason=missing() or "-"),
]

ROLES = {"a": "primary", "b": "backup"}
OTHER = {"a": "b", "b": "a"}


class Pair:
    """The programs on the hosts.

    Args:
        hosts: The hosts a, b, c and d.
        stack: Ends the programs.
    """

    def __init__(self, hosts, stack):
        self.hosts, self._stack = hosts, stack
        self._keys = ",".join(key.decode() for key in zmq.curve_keypair())
        self.managers = {}
        for name in ROLES:
            self.start(name)
        self.managers["a"].wait_for_line("active (was primary)")
        self.managers["b"].wait_for_line("passive (was backup)")
        self.clients = {}
        for name in "cd":
            for kind, port in (("worker", WORKERS), ("client", CLIENTS)):
                ends = [f"tcp://{hosts.address(peer, name)}:{port}" for peer in ROLES]
                host_process = self._run(name, kind, *ends)
                if kind == "client":
                    self.clients[name] = host_process

    def _run(self, name, *words):
        program = self.hosts.start(name, "-m", "tests.interop.pairs.pair_peers", self._keys, *words)
        return self._stack.enter_context(program)

    def start(self, name):
        """Start a manager, as a unit does it."""
        other = self.hosts.address(OTHER[name], name)
        self.managers[name] = self._run(name, "manager", ROLES[name], f"orders-{name}", other)

    def replies(self, name):
        """Return the number of replies at the client of a host."""
        return self.clients[name].stdout.count(b"reply")

    def served(self, names="cd"):
        """Wait for further replies at the clients of these hosts."""
        aims = {name: self.replies(name) + 20 for name in names}
        wait_until(
            lambda: all(self.replies(name) >= aim for name, aim in aims.items()),
            f"replies at {', '.join(names)}",
        )

    def code(self, name):
        """Return the exit code of a manager; None while it runs."""
        return self.managers[name].process.poll()

    def recovers(self):
        """Wait until a manager has ended because both were active, and one serves all clients.

        A manager that has ended is started again, as a unit does it. If the states of both
        managers cross, both end.
        """
        wait_until(lambda: 3 in map(self.code, ROLES), "exit code 3")
        before = {name: self.replies(name) for name in self.clients}

        def recovered():
            for name in ROLES:
                if self.code(name) is not None:
                    assert self.code(name) == 3
                    self.managers[name].wait_for_line("both nodes of this Binary Star are active")
                    self.start(name)
            states = sorted(_state(program) for program in self.managers.values())
            served = all(self.replies(name) >= before[name] + 20 for name in self.clients)
            return served and states == ["active", "passive"]

        wait_until(recovered, "one active manager that serves all clients")


@pytest.fixture
def pair():
    with Hosts("abcd") as hosts, contextlib.ExitStack() as stack:
        pair = Pair(hosts, stack)
        pair.served()
        yield pair


def _state(program):
    """Return the state that a manager logged last."""
    changes = [line for line in program.stderr.splitlines() if line.startswith("binary star (")]
    words = [line.split(": ")[1].split()[0] for line in changes if "(was" in line]
    return words[-1] if words else ""


@pytest.mark.rule("STAR-2.4", "STAR-4.2", "STAR-4.5")
def test_a_partition_with_clients_on_both_sides(pair):
    for first, other in ("ab", "ad", "bc", "cd"):
        pair.hosts.cut(first, other)
    # Both managers serve, each the clients on its side. This is the case "partition" of the page.
    pair.managers["b"].wait_for_line("active (was passive)")
    pair.served("c")
    pair.served("d")
    assert [pair.code(name) for name in ROLES] == [None, None]
    pair.hosts.mend()
    pair.recovers()


@pytest.mark.deep
@pytest.mark.rule("STAR-2.4", "STAR-4.2")
def test_states_of_the_active_manager_are_lost(pair):
    # Only the states are lost. The clients, the workers and the other direction are as before.
    pair.hosts.cut("a", "b", both=False)
    pair.managers["b"].wait_for_line("active (was passive)")
    pair.hosts.mend()
    pair.recovers()


@pytest.mark.deep
@pytest.mark.rule("STAR-3.1")
def test_the_host_of_the_active_manager_is_cut_off(pair):
    for other in "bcd":
        pair.hosts.cut("a", other)
    pair.managers["b"].wait_for_line("active (was passive)")
    pair.served()
    pair.hosts.mend()
    pair.recovers()


@pytest.mark.deep
def test_a_cut_between_clients_and_the_passive_manager_changes_nothing(pair):
    for other in "cd":
        pair.hosts.cut("b", other)
    pair.served()
    pair.served()
    assert _state(pair.managers["a"]) == "active"
    assert _state(pair.managers["b"]) == "passive"
