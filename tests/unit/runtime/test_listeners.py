"""A node accepts no connections for a moment after many useless connections."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator

import pytest

from wmp.runtime.sockets import listeners
from wmp.runtime.sockets.listeners import PAUSE, Listeners

linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux has filters of sockets"
)


class Kernel:
    """Records which descriptors have a filter."""

    def __init__(self) -> None:
        self.filtered: set[int] = set()

    def filter(self, descriptor: int, *, on: bool) -> bool:
        (self.filtered.add if on else self.filtered.discard)(descriptor)
        return True


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    monkeypatch.setattr(listeners, "_filter", kernel.filter)
    return kernel


def make(limit: int = 2) -> Listeners:
    open_listeners = Listeners(limit)
    open_listeners.opened(3)
    open_listeners.opened(4)
    return open_listeners


def test_a_pause_begins_when_the_budget_is_used_up(kernel: Kernel) -> None:
    open_listeners = make()
    assert [open_listeners.useless(0.0) for _ in range(12)] == [False] * 10 + [True, False]
    assert open_listeners.paused
    assert kernel.filtered == {3, 4}


def test_a_pause_ends_and_the_next_pause_begins_some_time_later(kernel: Kernel) -> None:
    open_listeners = make()
    while not open_listeners.useless(0.0):
        pass
    open_listeners.resume(PAUSE)
    assert not open_listeners.paused
    assert kernel.filtered == set()
    assert not any(open_listeners.useless(1.9 * PAUSE) for _ in range(100))
    assert open_listeners.useless(2.1 * PAUSE)


def test_few_useless_connections_a_second_cause_no_pause(kernel: Kernel) -> None:
    open_listeners = make()
    assert not any(open_listeners.useless(second / 2) for second in range(100))
    assert kernel.filtered == set()


def test_after_a_flood_the_budget_grows_again(kernel: Kernel) -> None:
    open_listeners = make()
    for _ in range(10_000):
        open_listeners.useless(0.0)
    open_listeners.resume(PAUSE)
    assert [open_listeners.useless(100.0) for _ in range(11)] == [False] * 10 + [True]


def test_descriptors_that_listen_no_more_get_no_filter(kernel: Kernel) -> None:
    open_listeners = make()
    open_listeners.closed(3)
    while not open_listeners.useless(0.0):
        pass
    open_listeners.opened(5)  # opened during the pause
    assert kernel.filtered == {4, 5}


def test_there_is_no_pause_where_the_kernel_has_no_filters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listeners, "_filter", lambda descriptor, *, on: False)
    open_listeners = make()
    assert not any(open_listeners.useless(0.0) for _ in range(100))
    assert not open_listeners.paused


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@linux
def test_the_kernel_accepts_nothing_while_the_filter_is_attached(server: socket.socket) -> None:
    address = server.getsockname()
    assert listeners._filter(server.fileno(), on=True)
    with pytest.raises(TimeoutError):
        socket.create_connection(address, 0.1)
    assert listeners._filter(server.fileno(), on=False)
    with contextlib.closing(socket.create_connection(address, 10)):
        pass


@linux
def test_only_descriptors_that_listen_get_a_filter(server: socket.socket) -> None:
    with socket.create_connection(server.getsockname(), 10) as stream:
        assert not listeners._filter(stream.fileno(), on=True)
    with open("/dev/null") as file:
        assert not listeners._filter(file.fileno(), on=True)
