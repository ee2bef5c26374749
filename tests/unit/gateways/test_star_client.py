"""The client of a Binary Star when its connection ends, message by message."""

from __future__ import annotations

import pytest

from wmp.actions import Reconnect
from wmp.events import Connected, Ticked
from wmp.foreign import Arrived, Emit, EndRequest, Left, Requested
from wmp.gateways.common.request_machine import LazyClientMachine


def sent_to(actions) -> list[int]:
    return [action.port for action in actions if isinstance(action, Emit)]


def client_with_request() -> LazyClientMachine:
    """Return a client that has sent a request to the first node."""
    client = LazyClientMachine(1.0, None, 2, 2.0)
    for link in (0, 1):
        client.handle(Connected(link), 0.0)
    assert sent_to(client.handle(Requested(1, (b"x",)), 10.0)) == [0]
    return client


@pytest.mark.rule("STAR-3.1")
def test_a_try_ends_soon_after_its_connection():
    client = client_with_request()
    assert client.handle(Left(0, b""), 10.1) == []
    assert client.deadline() == pytest.approx(10.35)
    assert Reconnect(0) in client.handle(Ticked(), 10.35)
    assert client.deadline() == pytest.approx(12.35)
    assert sent_to(client.handle(Ticked(), 12.35)) == [1]
    (end,) = client.handle(Arrived(1, b"", (b"", b"y")), 12.4)
    assert end == EndRequest(1, (b"y",), 2)


@pytest.mark.rule("STAR-3.1")
@pytest.mark.parametrize(("port", "at"), [(1, 10.1), (0, 10.9)])
def test_no_other_end_of_a_connection_makes_a_try_longer_or_shorter(port, at):
    client = client_with_request()
    client.handle(Left(port, b""), at)
    assert client.deadline() == pytest.approx(11.0)
