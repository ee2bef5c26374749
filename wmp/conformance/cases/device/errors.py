"""Messages that a device must refuse and survive (sections 2 and 10)."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from wmp import codec
from wmp.conformance.peers.conversations import DeviceConversation
from wmp.conformance.script.case import case
from wmp.conformance.wire.bad_messages import NOISE, bad_heads, too_much
from wmp.message import Command, ErrorCode, Field, Message

_ANY = (Command.READY, Command.PING)


def _ready() -> Message:
    fields: dict[int | str, Any] = {Field.READY: 1, Field.CREDIT: 1}
    fields |= {Field.ROLES: ["r"], Field.RESOURCES: {"slots": 1}}
    return Message(Command.READY, (), (b"below", 5000), fields)


def _refused(talk: DeviceConversation, rule: str) -> None:
    below, (above,) = talk.joined()
    for bad in (*bad_heads(_ready()), *too_much(_ready())):
        if bad.rule != rule:
            continue
        below.refusal(bad, rule)
    above.never(*_ANY, rule=rule, what="a device must not pass on a message that it refuses")


@case("WMP-2.1", profile="device")
def no_head(talk: DeviceConversation) -> None:
    """A message whose head is not an array of five is refused."""
    _refused(talk, "WMP-2.1")


@case("WMP-2.2", profile="device")
def no_plain_cbor(talk: DeviceConversation) -> None:
    """Tags, indefinite lengths, duplicate keys, deep nesting and surplus bytes are refused."""
    _refused(talk, "WMP-2.2")


@case("WMP-2.4", profile="device")
def wrong_types(talk: DeviceConversation) -> None:
    """A registered key with a value of the wrong type is malformed."""
    _refused(talk, "WMP-2.4")


@case("WMP-2.5", profile="device")
def no_path(talk: DeviceConversation) -> None:
    """A message whose ``from`` is not a path is refused."""
    _refused(talk, "WMP-2.5")


@case("WMP-2.6", profile="device")
def no_receiver(talk: DeviceConversation) -> None:
    """A message without its required ``to`` is refused."""
    below, (above,) = talk.joined()
    below.raw(*codec.encode(Message(Command.BYE, (), below.path, {})))
    below.error(ErrorCode.MALFORMED, "WMP-2.6")
    above.never(Command.BYE, what="the message lacks its receiver")


@case("WMP-2.10", profile="device")
def above_the_limits(talk: DeviceConversation) -> None:
    """A message beyond the limits is refused."""
    _refused(talk, "WMP-2.10")


@case("WMP-1.1", profile="device")
def long_identities(talk: DeviceConversation) -> None:
    """An identity above 255 bytes is refused."""
    _refused(talk, "WMP-1.1")


@case("WMP-1.5", "WMP-1.8", profile="device")
def a_connection_is_no_identity(talk: DeviceConversation) -> None:
    """Two workers behind one connection pass, each under its own identity."""
    below, (above,) = talk.joined()
    ready = _ready()
    for name in (b"one", b"two"):
        below.raw(*codec.encode(evolve(ready, source=(name, 1))))
        received = above.expect(Command.READY)
        talk.check(
            received.message.source[0] == name,
            f"'from' is {received.message.source!r}; expected identity {name!r} first",
        )


@case("WMP-10.1", "WMP-10.2", profile="device")
def garbage(talk: DeviceConversation) -> None:
    """The device survives noise from both sides, and answers with ERROR where it can."""
    below, (above,) = talk.joined()
    for side in (below, above):
        for frames in NOISE:
            side.raw(*frames)
            error = side.expect(Command.ERROR, rule="WMP-10.2")
            talk.check(
                not error.message.to,
                "ERROR in answer to noise has a receiver; expected none",
                "WMP-10.2",
            )


@case("WMP-10.3", profile="device")
def errors_are_not_answered(talk: DeviceConversation) -> None:
    """No ERROR is answered by ERROR."""
    below, (above,) = talk.joined()
    for side in (below, above):
        side.send(Command.ERROR, code=ErrorCode.MALFORMED)
        side.send(Command.ERROR, to=(1, b"somebody"), code=ErrorCode.MALFORMED)
        side.send(Command.ERROR, to=(b"\x00", 1, b"another", 1, b"x"), code="unknown")
        side.raw(b"\x85\x01\x0c\x80\x80\xa0")
        side.never(Command.ERROR, what="no ERROR may be answered by ERROR")


@case("WMP-10.6", profile="device")
def unknown_codes_pass(talk: DeviceConversation) -> None:
    """An ERROR with an unknown code passes like any other."""
    below, (above,) = talk.joined()
    down, up = talk.route(above, below)
    above.send(Command.ERROR, to=down, code="of a later version")
    below.error("of a later version")
    below.send(Command.ERROR, to=up, code="of a later version")
    above.error("of a later version")


@case("WMP-10.7", profile="device")
def place_of_a_refused_message(talk: DeviceConversation) -> None:
    """ERROR about a numbered message above a limit names its session, number and receiver."""
    below, (above,) = talk.joined()
    down, _ = talk.route(above, below)
    above.send(Command.NO, to=down, number=7, session=3, lock=1, label="l" * 1025)
    error = above.expect(Command.ERROR, code=ErrorCode.LIMIT)
    subject = error["session"], error["about"], error["about_number"], error["about_peer"]
    expected = 3, int(Command.NO), 7, (down[-1], down[-2])
    text = f"ERROR names (session, about, about number, about peer) {subject}; expected {expected}"
    talk.check(subject == expected, text)


@case("WMP-12.3", profile="device")
def nothing_is_evaluated(talk: DeviceConversation) -> None:
    """Tags that would construct something are refused."""
    _refused(talk, "WMP-12.3")


@case("WMP-10.2", profile="device")
def errors_find_their_way(talk: DeviceConversation) -> None:
    """ERROR follows the reversed ``from`` if ``from`` is readable."""
    below, _ = talk.joined()
    path = (*below.path, b"before", 3, b"\x00\x01")
    below.send(Command.BYE, to=(1, b"somebody"), source=path)
    error = below.expect(Command.ERROR)
    talk.check(
        error.message.to == path[::-1],
        f"ERROR goes to {error.message.to!r}; expected {path[::-1]!r}",
    )


@case("WMP-2.3", profile="device")
def unknown_keys(talk: DeviceConversation) -> None:
    """Keys that the device does not know are passed on."""
    below, (above,) = talk.joined()
    ready = _ready()
    fields: dict[int | str, Any] = {**ready.fields, 1000: [1, {"a": 2.5}], "own": b"x"}
    below.raw(*codec.encode(evolve(ready, fields=fields)))
    received = above.expect(Command.READY)
    passed = {key: received.message.fields.get(key) for key in (1000, "own")}
    talk.check(
        passed == {1000: [1, {"a": 2.5}], "own": b"x"},
        f"the unknown keys arrive as {passed}; expected them unchanged",
    )


@case("WMP-18.1", "WMP-10.4", profile="device")
def versions(talk: DeviceConversation) -> None:
    """ERROR version names the versions that the device reads, and is of version 1."""
    below, above = talk.joined()
    for neighbor in (below, above[0]):
        neighbor.raw(b"\x85\x02\x09\x80\x82\x41x\x01\xa0")
        error = neighbor.expect(Command.ERROR, rule="WMP-10.2")
        text = f"ERROR has code {error['code']!r}; expected 'version'"
        talk.check(error["code"] == ErrorCode.VERSION, text, "WMP-10.4")
        named = list(error["versions"] or ())
        talk.check(
            named == sorted(set(named)) and 1 in named and 2 not in named,
            f"ERROR names the versions {named}; expected an ascending list with 1 and without 2",
        )
