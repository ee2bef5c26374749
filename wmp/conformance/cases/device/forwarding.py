"""Messages that pass a device, and messages that do not (section 8)."""

from __future__ import annotations

from typing import Any

from wmp import codec
from wmp.conformance.peers.conversations import DeviceConversation
from wmp.conformance.peers.neighbor import Neighbor
from wmp.conformance.script.case import case
from wmp.message import Columns, Command, ErrorCode, Message, Path


def _device(path: Path) -> tuple[Any, Any, Any]:
    """Return the hop that the device has appended to a ``from``: identity, epoch, local id."""
    return path[-3], path[-2], path[-1]


def _pair(talk: DeviceConversation) -> tuple[Neighbor, Neighbor, Path, Path]:
    below, (above, *_) = talk.joined()
    down, up = talk.route(above, below)
    return below, above, down, up


@case("WMP-1.4", links=2)
def a_socket_for_each_upstream(talk: DeviceConversation) -> None:
    """Each upstream has a connection of its own, over which the device receives and sends."""
    below, above = talk.joined(2, "WMP-1.4")
    for upstream in above:
        below.send(Command.PING, label=upstream.name)
        received = upstream.expect(
            Command.PING,
            where=lambda received, name=upstream.name: received["label"] == name,  # type: ignore[misc]
        )
        upstream.send(Command.PONG, to=received.message.answer_to, max_silence=6000, session=1)
        below.expect(Command.PONG)


@case("WMP-1.6", "WMP-8.8", profile="device")
def nobody_else_is_affected(talk: DeviceConversation) -> None:
    """A message that cannot be sent to one peer is reported; other peers get their messages."""
    below, above, down, _ = _pair(talk)
    gone = talk.below("gone")
    lost, _ = talk.route(above, gone)
    assert gone.connection is not None
    talk.wire.hang_up(gone.connection)
    talk.wait(2 * talk.wire.grace)
    for to in (lost, down, lost, down):
        above.send(Command.PONG, to=to, max_silence=6000, session=1)
    for _ in range(2):
        above.error(ErrorCode.UNREACHABLE)
        below.expect(Command.PONG)


@case("WMP-8.1", links=2)
def discovery_goes_everywhere(talk: DeviceConversation) -> None:
    """READY and PING without ``to`` from below go to every upstream."""
    below, above = talk.joined(2)
    below.send(Command.READY, ready=1, credit=1, roles=["echo"], resources={"slots": 1})
    for upstream in above:
        received = upstream.expect(Command.READY)
        talk.check(
            received.message.source[:2] == below.path,
            f"'from' is {received.message.source!r}; expected {below.path!r} first",
        )


@case("WMP-8.1", "WMP-8.9")
def discovery_from_above(talk: DeviceConversation) -> None:
    """READY and PING from above are of the wrong direction."""
    below, (above,) = talk.joined()
    ready: dict[str, Any] = {"ready": 1, "credit": 1, "roles": ["r"], "resources": {"slots": 1}}
    commands: dict[Command, dict[str, Any]] = {Command.PING: {}, Command.READY: ready}
    for command, fields in commands.items():
        above.send(command, **fields)
        above.error(ErrorCode.DIRECTION, "WMP-10.4")
        below.never(
            command, what="PING and READY are for managers, and this one came from a manager"
        )


@case("WMP-8.2", "WMP-8.3", "WMP-2.5")
def there_and_back(talk: DeviceConversation) -> None:
    """A message follows its ``to``, where the device's hop is removed; ``from`` gains this hop."""
    below, (above,) = talk.joined()
    below.send(Command.PING, label="up")
    ping = above.expect(Command.PING, rule="WMP-8.1")
    source = ping.message.source
    talk.check(
        len(source) == 5,
        f"'from' is {source!r}; expected the sender and one hop of three items",
        "WMP-8.3",
    )
    talk.check(
        source[:2] == below.path,
        f"'from' begins with {source[:2]!r}; expected the sender {below.path!r}",
        "WMP-8.3",
    )
    talk.check(
        isinstance(source[4], bytes),
        f"the local id of a ROUTER's connection is {source[4]!r}; expected bytes",
        "WMP-8.3",
    )
    above.send(Command.PONG, to=ping.message.answer_to, max_silence=6000, session=1)
    pong = below.expect(Command.PONG)
    talk.check(
        pong.message.to == below.path[::-1],
        f"'to' of PONG arrives as {pong.message.to!r}; expected {below.path[::-1]!r}",
    )
    back = pong.message.source
    talk.check(
        len(back) == 5 and back[:2] == above.path,
        f"'from' of PONG is {back!r}; expected the sender and one hop",
        "WMP-8.3",
    )
    talk.check(
        isinstance(back[4], int),
        f"the local id of a DEALER is {back[4]!r}; expected an integer",
        "WMP-8.3",
    )
    talk.check(
        _device(back)[:2] == _device(source)[:2],
        "the device's hop names two different identities or epochs on the way up and down",
        "WMP-8.3",
    )
    below.send(Command.BYE, to=back[::-1], session=1, ack=0)
    bye = above.expect(Command.BYE)
    talk.check(
        bye.message.to == above.path[::-1],
        f"'to' of BYE arrives as {bye.message.to!r}; expected {above.path[::-1]!r}",
    )


@case("WMP-8.2")
def each_to_its_own(talk: DeviceConversation) -> None:
    """A message for one connection arrives at this connection only."""
    below, above, down, _ = _pair(talk)
    other = talk.below("other")
    theirs, _ = talk.route(above, other)
    above.send(Command.PONG, to=theirs, max_silence=6000, session=7)
    received = other.expect(Command.PONG)
    talk.check(received["session"] == 7, "another PONG arrived; expected the one of session 7")
    below.never(Command.PONG, what="the message was for another connection")
    above.send(Command.PONG, to=down, max_silence=6000, session=8)
    below.expect(Command.PONG)


@case("WMP-8.2", "WMP-8.3", links=2)
def each_upstream_its_own(talk: DeviceConversation) -> None:
    """A message for one upstream arrives at this upstream only."""
    below, above = talk.joined(2)
    ups = [talk.route(upstream, below)[1] for upstream in above]
    for upstream in above:
        talk.settle()
        upstream.inbox.clear()
    for index, up in enumerate(ups):
        below.send(Command.PING, to=up, label=f"to {index}")
        received = above[index].expect(Command.PING)
        talk.check(
            received["label"] == f"to {index}",
            f"{above[index].name} received PING {received['label']!r}; expected 'to {index}'",
        )
        above[1 - index].never(Command.PING, what="the message was for the other upstream")


@case("WMP-8.3", "WMP-12.2")
def a_hop_is_not_believed(talk: DeviceConversation) -> None:
    """The hop names the socket over which the message came, whatever the message claims."""
    below, above, down, _ = _pair(talk)
    forged = (b"somebody", 1, b"before", 2, b"\x00forged")
    below.send(Command.PING, source=forged, label="forged")
    received = above.expect(Command.PING)
    source = received.message.source
    talk.check(source[:5] == forged, f"'from' is {source!r}; expected all forged hops at its start")
    talk.check(
        source[5:] == (down[2], down[1], down[0]),
        f"the device's own hop is {source[5:]!r}; expected {down[2::-1]!r}, as before",
        "WMP-12.2",
    )
    above.send(Command.PONG, to=received.message.answer_to, max_silence=6000, session=1)
    back = below.expect(Command.PONG, rule="WMP-12.2")
    talk.check(
        back.message.to == forged[::-1],
        f"'to' of PONG arrives as {back.message.to!r}; expected {forged[::-1]!r}",
        "WMP-8.2",
    )


@case("WMP-8.4", "WMP-2.3", profile="device")
def nothing_is_changed(talk: DeviceConversation) -> None:
    """Fields, columns and payloads pass unchanged, known or unknown."""
    below, above, down, up = _pair(talk)
    fields: dict[int | str, Any] = {
        0: 9,
        2: 1,
        10: "echo",
        11: {"slots": 1},
        12: 4,
        16: (b"owner", 3),
        1000: [1, {"a": b"b"}],
        "x": 2.5,
    }
    columns = Columns([1, 2], [1, 1], payloads=[b"small", bytes(5000)])
    for side, to, receiver, command in (
        (above, down, below, Command.TAKE),
        (below, up, above, Command.DONE),
    ):
        frames = codec.encode(Message(command, to, side.path, fields, columns))
        more = [frames[0], b"\xa1\x17\x01", b"not", b"read"]
        for sent in (frames, more):
            side.raw(*sent)
            received = receiver.expect(command)
            head = codec.peek(received.frames)
            same = dict(head.fields) == dict(codec.peek(sent).fields)
            talk.check(same, f"the fields arrive as {dict(head.fields)!r}; expected them unchanged")
            behind = [bytes(frame) for frame in received.frames[1:]]
            talk.check(
                behind == [bytes(frame) for frame in sent[1:]],
                "the frames behind the head arrive changed",
            )


@case("WMP-8.5")
def loops_end(talk: DeviceConversation) -> None:
    """A message that has passed this device, or 16 devices, is dropped with ERROR loop."""
    below, above, down, _ = _pair(talk)
    device = (down[2], down[1], b"\x00earlier")
    below.send(Command.PING, source=(*below.path, *device), label="round")
    below.error(ErrorCode.LOOP, "WMP-8.5")
    hops = tuple(item for n in range(16) for item in (b"d%d" % n, 1, b"\x00"))
    below.send(Command.PING, source=(*below.path, *hops), label="too far")
    below.error(ErrorCode.LOOP, "WMP-8.5")
    above.never(
        Command.PING, what="the device must drop a message that passed it, or passed 16 devices"
    )
    below.send(Command.PING, source=(*below.path, *hops[:-3]), label="far")
    above.expect(Command.PING)


@case("WMP-8.6")
def wrong_hops(talk: DeviceConversation) -> None:
    """A hop of another device is misrouted; a hop of an older epoch is unreachable."""
    below, above, down, up = _pair(talk)
    for side, to in ((above, down), (below, up)):
        command, fields = _one_message(side)
        side.send(command, to=(to[0], to[1], b"another", *to[3:]), **fields)
        side.error(ErrorCode.MISROUTED, "WMP-8.6")
        side.send(command, to=to[3:], **fields)
        side.error(ErrorCode.MISROUTED, "WMP-8.6")
        side.send(command, to=(to[0], _older(to[1]), *to[2:]), **fields)
        side.error(ErrorCode.UNREACHABLE, "WMP-8.6")


def _older(epoch: Any) -> int:
    older: int = epoch - 1
    return older


def _one_message(side: Neighbor) -> tuple[Command, dict[str, Any]]:
    if side.side == "taken":
        return Command.PONG, {"max_silence": 6000, "session": 1}
    return Command.BYE, {}


@case("WMP-8.7")
def nothing_is_remembered(talk: DeviceConversation) -> None:
    """A message follows its ``to`` after any other messages, even when DONE comes first."""
    below, above, down, up = _pair(talk)
    done = Columns([5], [1], outcomes=[0], payloads=[b"r"])
    owner = (b"owner", 3)
    for _ in range(2):
        below.send(Command.DONE, done, to=up, number=1, session=1, manager=owner)
        above.expect(Command.DONE, rule="WMP-8.7")
    above.send(Command.NO, to=down, number=4, session=1, lock=99)
    below.expect(Command.NO, rule="WMP-8.7")
    below.send(Command.BYE, to=up)
    above.expect(Command.BYE, rule="WMP-8.7")
    above.send(Command.PONG, to=down, max_silence=6000, session=1)
    below.expect(Command.PONG, rule="WMP-8.7")


@case("WMP-8.8")
def what_cannot_be_passed_on(talk: DeviceConversation) -> None:
    """A message for a closed connection is answered by ERROR unreachable."""
    _, above, _, _ = _pair(talk)
    gone = talk.below("gone")
    down, _ = talk.route(above, gone)
    assert gone.connection is not None
    talk.wire.hang_up(gone.connection)
    talk.wait(2 * talk.wire.grace)
    above.send(Command.PONG, to=down, max_silence=6000, session=1)
    error = above.error(ErrorCode.UNREACHABLE, "WMP-8.8")
    talk.check(
        error.message.to == above.path[::-1],
        f"ERROR goes to {error.message.to!r}; expected {above.path[::-1]!r}",
        "WMP-8.8",
    )
    above.send(Command.ERROR, to=down, code="unknown")
    above.never(Command.ERROR, rule="WMP-10.3", what="no ERROR may be answered by ERROR")


@case("WMP-8.9")
def sides(talk: DeviceConversation) -> None:
    """A local id of the wrong side is misrouted: no message leaves on the side of its arrival."""
    below, above, down, up = _pair(talk)
    other = talk.below("other")
    theirs, _ = talk.route(above, other)
    below.send(Command.BYE, to=(theirs[0], *up[1:3], *theirs[3:]))
    below.error(ErrorCode.MISROUTED, "WMP-8.9")
    other.never(Command.BYE, what="no message leaves on the side on which it arrived")
    above.send(Command.PONG, to=(up[0], *down[1:]), max_silence=6000, session=1)
    above.error(ErrorCode.MISROUTED, "WMP-8.9")
    above.never(Command.PONG, what="no message leaves on the side on which it arrived")


@case("WMP-10.4", profile="device")
def directions(talk: DeviceConversation) -> None:
    """Commands of managers from below, and commands of workers from above, are refused."""
    below, above, down, up = _pair(talk)
    below.send(Command.PONG, to=up, max_silence=6000, session=1)
    below.error(ErrorCode.DIRECTION, "WMP-10.4")
    above.never(Command.PONG, what="PONG is a command of managers, and this one came from a worker")
    above.send(Command.BYE, to=down)
    above.error(ErrorCode.DIRECTION, "WMP-10.4")
    below.never(Command.BYE, what="BYE is a command of workers, and this one came from a manager")
    for frames, code in (
        (b"\x85\x02\x09\x80\x82\x41x\x01\xa0", ErrorCode.VERSION),
        (b"\x85\x01\x18\x63\x80\x82\x41x\x01\xa0", ErrorCode.COMMAND),
    ):
        below.raw(frames)
        below.error(code, "WMP-10.4")
