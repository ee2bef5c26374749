"""Addresses, keys and counts are checked before anything is opened."""

from __future__ import annotations

import logging

import pytest

import wmp
from wmp.errors import ClosedError, ConfigError
from wmp.runtime.common.counters import Counters
from wmp.runtime.node.node import make_identity, new_epoch
from wmp.runtime.sockets.endpoints import check_endpoints
from wmp.runtime.sockets.security import Security, is_local


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("tcp://127.0.0.1:5555", True),
        ("tcp://127.8.9.1:5555", True),
        ("tcp://localhost:5555", True),
        ("tcp://[::1]:5555", True),
        ("ipc:///run/x", True),
        ("inproc://x", True),
        ("tcp://*:5555", False),
        ("tcp://0.0.0.0:5555", False),
        ("tcp://[::]:5555", False),
        ("tcp://10.0.0.1:5555", False),
        ("tcp://eth0:5555", False),
        ("tcp://localhost.example:5555", False),
    ],
)
def test_an_endpoint_is_local_if_only_this_machine_reaches_it(
    endpoint: str, expected: bool
) -> None:
    assert is_local(endpoint) is expected


@pytest.mark.rule("WMP-12.1")
def test_the_network_needs_security() -> None:
    with pytest.raises(ConfigError, match=r"Security\.generate\(\)"):
        check_endpoints(["tcp://*:5555"], bind=True, security=None)

    check_endpoints(["tcp://*:5555"], bind=True, security=Security.generate())
    check_endpoints(["tcp://10.0.0.1:5555"], bind=False, security=None)


@pytest.mark.parametrize(
    ("endpoint", "text"),
    [
        ("127.0.0.1:5555", "expected tcp://HOST:PORT"),
        ("udp://127.0.0.1:5555", "expected tcp://HOST:PORT"),
        ("tcp://127.0.0.1", "expected tcp://HOST:PORT"),
        ("tcp://:5555", "expected tcp://HOST:PORT"),
        ("tcp://127.0.0.1:http", "expected tcp://HOST:PORT"),
        ("tcp://127.0.0.1:70000", "above 65535"),
        ("ipc://", "expected tcp://HOST:PORT"),
        ("ipc:///" + 120 * "x", "shorter"),
    ],
)
@pytest.mark.parametrize("bind", [True, False])
def test_the_error_of_a_malformed_endpoint_names_the_expected_form(
    endpoint: str, text: str, bind: bool
) -> None:
    with pytest.raises(ConfigError, match=text):
        check_endpoints([endpoint], bind=bind, security=None)


def test_a_port_must_be_named_to_connect() -> None:
    with pytest.raises(ConfigError, match="the port is missing"):
        check_endpoints(["tcp://127.0.0.1:*"], bind=False, security=None)


def test_an_endpoint_is_named_once() -> None:
    with pytest.raises(ConfigError, match="twice"):
        check_endpoints(2 * ["tcp://127.0.0.1:5555"], bind=False, security=None)


def test_keys_are_checked_and_the_secret_is_not_shown() -> None:
    security = Security.generate()

    assert security.secret_key.decode() not in repr(security)
    with pytest.raises(ConfigError, match="40 characters"):
        Security(public_key="short", secret_key=security.secret_key)
    other = Security.generate()
    with pytest.raises(ConfigError, match="does not belong to the secret key"):
        Security(public_key=other.public_key, secret_key=security.secret_key)
    with pytest.raises(ConfigError, match="not a Z85-encoded CURVE key"):
        Security(public_key=security.public_key, secret_key=40 * " ")
    with pytest.raises(ConfigError, match="collection"):
        Security.generate(allowed=security.public_key)  # type: ignore[arg-type]


@pytest.mark.rule("WMP-1.1")
def test_identities_are_1_to_255_bytes_and_16_random_ones_by_default() -> None:
    assert len(make_identity(None)) == 16
    assert make_identity(None) != make_identity(None)
    assert make_identity("ä") == "ä".encode()
    for wrong in (b"", 256 * b"x"):
        with pytest.raises(ConfigError, match="1 to 255"):
            make_identity(wrong)


@pytest.mark.rule("WMP-1.1")
def test_epochs_grow_even_within_a_millisecond() -> None:
    epochs = [new_epoch() for _ in range(1000)]

    assert epochs == sorted(set(epochs))


def test_drops_after_a_restart_are_logged_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "wmp")
    tally = Counters("manager")
    for reason in ("misrouted", "superseded", "other session", "repeated READY"):
        tally.count(reason, "this manager is not the receiver", now=0.0)
    tally.count("direction", "WAKE does not come from below", now=0.0)

    *usual, wrong = caplog.records
    assert {record.levelno for record in usual} == {logging.DEBUG}
    assert all("no action is needed" in record.getMessage() for record in usual)
    assert wrong.levelno == logging.WARNING
    assert tally.counts()["misrouted"] == 1


def test_a_log_line_has_no_control_characters_of_a_peer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "wmp")
    Counters("manager").count("malformed", "the peer's \x1b[31mtext\r\n", now=0.0)

    assert caplog.messages == ["manager: malformed: the peer's \\x1b[31mtext\\r\\n"]


def test_every_drop_is_counted_and_few_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "wmp")
    tally = Counters("manager")
    for step in range(1000):
        tally.count("malformed", "not CBOR", now=step / 1000)
    tally.count("malformed", "not CBOR", now=6.0)

    assert tally.counts() == {"malformed": 1001}
    assert len(caplog.records) == 2
    assert "999 more" in caplog.records[1].getMessage()


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:*", "tcp://127.0.0.1:0", "ipc://*"])
def test_endpoints_that_the_system_chooses_are_refused_before_the_start(endpoint: str) -> None:
    for node in (
        wmp.Manager(endpoint),
        wmp.Device(bind=endpoint, connect="tcp://127.0.0.1:1"),
    ):
        with pytest.raises(ClosedError, match=r"no address yet.*call start\(\) first"):
            _ = node.endpoints


def test_fixed_endpoints_are_known_before_the_start() -> None:
    assert wmp.Manager("tcp://127.0.0.1:5570").endpoints == ("tcp://127.0.0.1:5570",)
