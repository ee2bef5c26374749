"""A connection with too many unfinished bytes is closed; other connections stay open."""

from __future__ import annotations

import pytest

from wmp.runtime.sockets import connections
from wmp.runtime.sockets.connections import Connections

MB = 1 << 20


class Kernel:
    """A fake kernel with counters for one test."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.memory = 100 * MB
        self.received: dict[int, int] = {}
        self.looks = 0
        self.closed: list[int] = []
        self.reasons: list[str] = []
        patch.setattr(connections, "_memory", lambda: self.memory)
        patch.setattr(connections, "_bytes_received", self._bytes_received)
        patch.setattr(connections, "_shut", self._shut)

    def make(self, *descriptors: int, **limits: int) -> Connections:
        chosen = {"max_message": 10 * MB, "max_open": 30 * MB, "max_silent": 5, **limits}
        kernel_connections = Connections(
            **chosen, closed=lambda reason, _: self.reasons.append(reason)
        )
        for descriptor in descriptors:
            kernel_connections.opened(descriptor)
            kernel_connections.learn(b"%d" % descriptor, descriptor)
            self.received[descriptor] = 0
        kernel_connections.look()
        return kernel_connections

    def grow(self, *descriptors: int, size: int) -> None:
        """Let connections receive bytes that stay in memory."""
        for descriptor in descriptors:
            self.received[descriptor] += size
        self.memory += 20 * MB

    def _bytes_received(self, descriptor: int) -> int:
        self.looks += 1
        return self.received[descriptor]

    def _shut(self, descriptor: int) -> bool:
        self.closed.append(descriptor)
        return True


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def test_a_connection_with_a_message_without_end_is_closed(kernel: Kernel) -> None:
    kernel_connections = kernel.make(3, 4)
    for _ in range(3):
        kernel.grow(3, 4, size=4 * MB)
        kernel_connections.look()
        kernel_connections.active.add(b"4")
        kernel_connections.emptied()

    assert kernel.closed == [3]
    assert kernel.reasons == ["unfinished message"]


def test_nothing_counts_before_the_socket_was_found_empty(kernel: Kernel) -> None:
    kernel_connections = kernel.make(3)
    kernel.grow(3, size=50 * MB)
    kernel_connections.look()
    assert kernel_connections.pending
    assert kernel.closed == []

    kernel_connections.active.add(b"3")  # a whole message of this size had waited to be read
    kernel_connections.emptied()
    assert kernel.closed == []


def test_a_socket_that_is_never_empty_is_counted_in_the_end(kernel: Kernel) -> None:
    kernel_connections = kernel.make(3)
    kernel.grow(3, size=50 * MB)
    for _ in range(25):
        kernel_connections.look()
    assert kernel.closed == [3]


def test_above_the_limit_of_all_connections_the_largest_is_closed(kernel: Kernel) -> None:
    kernel_connections = kernel.make(3, 4, 5, 6)
    for descriptor, size in ((3, 7), (4, 9), (5, 8), (6, 8)):
        kernel.grow(descriptor, size=size * MB)
    kernel_connections.look()
    kernel_connections.emptied()

    assert kernel.closed == [4]


def test_the_kernel_is_asked_only_when_memory_grows(kernel: Kernel) -> None:
    kernel_connections = kernel.make(3)
    for _ in range(100):
        kernel_connections.look()
    assert kernel.looks == 0


def test_after_an_attack_the_kernel_is_asked_although_memory_does_not_grow(kernel: Kernel) -> None:
    kernel_connections = kernel.make(3, 4)
    kernel.grow(3, size=50 * MB)
    kernel_connections.look()
    kernel_connections.emptied()
    kernel_connections.gone(3)
    kernel.received[4] = 50 * MB
    kernel_connections.look()
    kernel_connections.emptied()
    assert kernel.closed == [3, 4]


def test_the_oldest_of_too_many_silent_connections_is_closed(kernel: Kernel) -> None:
    kernel_connections = kernel.make(max_silent=2)
    for descriptor in (7, 8, 9):
        kernel_connections.opened(descriptor)
    assert kernel.closed == [7]
    kernel_connections.gone(7)

    kernel_connections.learn(b"8", 8)
    kernel_connections.opened(10)
    assert kernel.closed == [7]
    assert kernel.reasons == ["silent"]


def test_a_connection_is_closed_by_its_key_and_forgotten_when_it_is_gone(kernel: Kernel) -> None:
    kernel_connections = kernel.make(3)
    kernel_connections.close(b"stranger", "why", "")
    kernel_connections.close(b"3", "why", "")
    kernel_connections.gone(3)
    kernel_connections.close(b"3", "why", "")

    assert kernel.closed == [3]
    assert len(kernel_connections) == 0
    assert b"3" not in kernel_connections.descriptors


def test_a_connection_is_useless_without_a_message_or_with_frames_that_are_none(
    kernel: Kernel,
) -> None:
    kernel_connections = kernel.make(3, 4)
    kernel_connections.opened(5)
    assert kernel_connections.spoil(b"4")
    assert kernel_connections.spoil(
        b"6"
    )  # without a descriptor nothing is known about a connection

    assert [kernel_connections.useless(descriptor) for descriptor in (3, 4, 5)] == [
        False,
        True,
        True,
    ]
    assert [kernel_connections.is_garbled(descriptor) for descriptor in (3, 4, 5)] == [
        False,
        True,
        False,
    ]
    kernel_connections.gone(4)
    kernel_connections.opened(4)
    kernel_connections.learn(b"4", 4)
    assert not kernel_connections.useless(4)
    kernel_connections.opened(6)
    kernel_connections.learn(b"6", 6)
    assert not kernel_connections.useless(6)


def test_a_connection_that_ended_before_its_frames_were_read_is_not_open(kernel: Kernel) -> None:
    kernel_connections = kernel.make(3)
    kernel_connections.learn(b"gone", 9)
    assert not kernel_connections.spoil(b"gone")
    for number in range(3000):
        kernel_connections.learn(b"%d" % number, 9)
    assert len(kernel_connections._ended) <= 1000
