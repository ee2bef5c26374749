"""The frames of every message of Majordomo, written from the text of 7/MDP."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wmp.gateways.majordomo import wire
from wmp.gateways.majordomo.wire import AttendantCommand, BrokerCommand

EMPTY = b""
MDPC01 = b"\x4d\x44\x50\x43\x30\x31"  # six bytes, representing MDP/Client v0.1
MDPW01 = b"\x4d\x44\x50\x57\x30\x31"  # six bytes, representing MDP/Worker v0.1

CLIENT_REQUEST = (EMPTY, MDPC01, b"echo", b"Hello", b"world")
CLIENT_REPLY = (EMPTY, MDPC01, b"echo", b"Hello", b"world")
READY = (EMPTY, MDPW01, b"\x01", b"echo")
REQUEST = (EMPTY, MDPW01, b"\x02", b"client", EMPTY, b"Hello", b"world")
REPLY = (EMPTY, MDPW01, b"\x03", b"client", EMPTY, b"Hello", b"world")
HEARTBEAT = (EMPTY, MDPW01, b"\x04")
DISCONNECT = (EMPTY, MDPW01, b"\x05")


@pytest.mark.rule("MDP-1.6")
def test_every_message_has_the_frames_of_the_text():
    body = (b"Hello", b"world")
    assert wire.write_request(b"echo", body) == CLIENT_REQUEST
    assert wire.write_reply((EMPTY,), b"echo", body) == CLIENT_REPLY
    assert wire.write_ready(b"echo") == READY
    assert wire.write_run(b"client", body) == REQUEST
    assert wire.write_worker_reply(b"client", body) == REPLY
    assert wire.HEARTBEAT == HEARTBEAT
    assert wire.DISCONNECT == DISCONNECT


def test_a_broker_reads_the_messages_of_the_text():
    assert wire.find_header(CLIENT_REQUEST) == 1
    request = wire.read_client(CLIENT_REQUEST, 1)
    assert (request.envelope, request.service) == ((EMPTY,), b"echo")
    assert request.body == (b"Hello", b"world")
    ready, reply = wire.read_worker(READY), wire.read_worker(REPLY)
    assert (ready.command, ready.service) == (AttendantCommand.READY, b"echo")
    assert (reply.command, reply.address) == (AttendantCommand.REPLY, b"client")
    assert reply.body == (b"Hello", b"world")
    assert wire.read_worker(HEARTBEAT).command is AttendantCommand.HEARTBEAT
    assert wire.read_worker(DISCONNECT).command is AttendantCommand.DISCONNECT
    for frames in (REQUEST, REQUEST[:-1]):
        assert wire.read_worker(frames).command is AttendantCommand.UNEXPECTED


def test_a_client_and_a_worker_read_the_messages_of_the_text():
    assert wire.read_reply(CLIENT_REPLY) == (b"echo", (b"Hello", b"world"))
    request = wire.read_request(REQUEST)
    assert (request.command, request.address) == (BrokerCommand.REQUEST, b"client")
    assert request.body == (b"Hello", b"world")
    assert wire.read_request(HEARTBEAT).command is BrokerCommand.HEARTBEAT
    assert wire.read_request(DISCONNECT).command is BrokerCommand.DISCONNECT
    for frames in (READY, REPLY, REPLY[:-1]):
        assert wire.read_request(frames).command is BrokerCommand.UNEXPECTED


@pytest.mark.rule("MDP-1.6", "MDP-1.2")
@pytest.mark.parametrize(
    "frames",
    [
        (),
        (EMPTY,),
        (EMPTY, MDPW01),
        (EMPTY, MDPW01, EMPTY),
        (EMPTY, MDPW01, b"\x06"),
        (EMPTY, MDPW01, b"\x01"),
        (*READY, b"more"),
        (*HEARTBEAT, b"more"),
        (*DISCONNECT, EMPTY),
        (b"hop", *REPLY),
        (EMPTY, MDPW01, b"\x03", EMPTY, EMPTY, b"body"),
        (EMPTY, MDPW01, b"\x02", b"client", EMPTY),
    ],
    ids=lambda frames: f"{len(frames)} frames",
)
def test_other_frames_are_invalid(frames):
    assert wire.read_worker(frames).command is AttendantCommand.INVALID
    assert wire.read_request(frames).command is BrokerCommand.INVALID


@pytest.mark.rule("MDP-1.3", "MDP-1.2")
def test_the_protocol_stands_behind_the_first_empty_frame():
    assert wire.find_header((b"hop", b"hop", *CLIENT_REQUEST)) == 3
    assert wire.find_header((*(b"hop",) * 8, *CLIENT_REQUEST)) == 9
    assert wire.find_header((*(b"hop",) * 9, *CLIENT_REQUEST)) == 0
    assert wire.find_header((b"", b"")) == 1
    assert wire.find_header((b"",)) == 0
    assert wire.find_header((b"a", b"b")) == 0


@pytest.mark.rule("MDP-1.4")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"echo", "echo"),
        (b"a b", "a b"),
        ("größe".encode(), "größe"),
        (b"x" * 255, "x" * 255),
        (b"x" * 256, None),
        (b"", None),
        (b"\xff", "%FF"),
        (b"a\n", "a%0A"),
        (b"\x01", "%01"),
        (b"100%", "100%"),
        (b"%0a", "%0a"),
        (b"%0A", "%250A"),
        (b"%2\xff", "%2%FF"),
        (b"\xff" * 85, "%FF" * 85),
        (b"\xff" * 86, None),
    ],
)
def test_the_role_of_a_service_shows_its_name(name, text):
    assert wire.role_of(name) == text


@pytest.mark.rule("MDP-1.4")
@given(st.binary(min_size=1, max_size=80))
@example(b"%%41")
@example("\N{NO-BREAK SPACE}%41".encode())
def test_two_services_have_two_roles(name):
    role = wire.role_of(name)
    assert role is not None
    assert role.isprintable()
    assert wire.service_of(role) == name


def test_an_empty_body_is_one_empty_frame():
    assert wire.write_reply((EMPTY,), b"echo", ()) == (EMPTY, MDPC01, b"echo", EMPTY)
    assert wire.write_worker_reply(b"c", ()) == (EMPTY, MDPW01, b"\x03", b"c", EMPTY, EMPTY)


@pytest.mark.rule("MDP-1.6")
@pytest.mark.parametrize("body", [(b"",), (b"body",), (b"one", b"", b"two")])
def test_a_reply_without_the_empty_frame_is_tolerated(body):
    notice = wire.read_worker((EMPTY, MDPW01, b"\x03", b"client", *body))
    assert (notice.command, notice.address) == (AttendantCommand.REPLY, b"client")
    assert (notice.body, notice.tolerated) == (body, True)
    assert not wire.read_worker(REPLY).tolerated
