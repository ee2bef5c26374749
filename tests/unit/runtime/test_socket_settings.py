"""The socket options: written once, shown by every constructor, and passed on as one value."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import zmq

import wmp
from wmp import aio, blocking, gateways
from wmp.errors import ConfigError
from wmp.gateways import aio as aio_gateways
from wmp.runtime.sockets.socket_settings import SocketOptions, SocketSettings
from wmp.runtime.sockets.transport import Transport

WITHOUT_SOCKETS = {"ClientDoor", "MajordomoDoor", "RoundRobinDoor", "WorkerDoor", "Job"}
"""Public classes that only describe sockets, or use those of another object."""

OPENERS = {
    f"{module.__name__}.{name}": member
    for module in (aio, blocking, gateways, aio_gateways)
    for name in module.__all__
    if inspect.isclass(member := getattr(module, name))
    and hasattr(member, "start")
    and name not in WITHOUT_SOCKETS
}


@pytest.mark.parametrize("name", OPENERS)
def test_each_class_that_opens_sockets_shows_the_socket_options(name: str) -> None:
    parameters = inspect.signature(OPENERS[name]).parameters

    for option, annotation in SocketOptions.__annotations__.items():
        assert parameters[option].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[option].default is None
        assert parameters[option].annotation == annotation.__forward_arg__
    assert "options" not in parameters


def test_the_socket_options_are_described_in_one_place() -> None:
    text = inspect.getdoc(wmp.SocketOptions) or ""

    for option in SocketOptions.__annotations__:
        assert f"{option}: " in text


def test_an_unknown_option_is_refused_with_a_suggestion() -> None:
    given: Any = {"secruity": None}
    with pytest.raises(TypeError, match="'secruity'; did you mean 'security'"):
        aio_gateways.LazyClient("tcp://127.0.0.1:5555", **given)
    with pytest.raises(TypeError, match="'colour'; the others are context, security, transport"):
        SocketSettings.of({"colour": 1})  # type: ignore[typeddict-unknown-key]


def test_missing_options_and_none_mean_the_defaults() -> None:
    assert SocketSettings.of({}) == SocketSettings.of({"transport": None, "security": None})
    assert SocketSettings().transport == Transport()


def test_the_options_reach_the_node() -> None:
    context: Any = zmq.Context()
    security, transport = wmp.Security.generate(server_key=b"k" * 40), Transport(linger=0.25)
    try:
        client = aio_gateways.LazyClient(
            "tcp://127.0.0.1:5555", security=security, context=context, transport=transport
        )
        assert client.node.sockets == SocketSettings(
            security=security, context=context, transport=transport
        )
    finally:
        context.destroy(linger=0)


def test_a_longer_queue_leaves_the_other_settings() -> None:
    settings = SocketSettings(transport=Transport(high_water_mark=10, linger=0.25))

    longer = settings.with_queue(5)

    assert longer.transport == Transport(high_water_mark=15, linger=0.25)
    assert settings.transport.high_water_mark == 10
    with pytest.raises(ConfigError, match="high_water_mark"):
        settings.with_queue(2**31)
