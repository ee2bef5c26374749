"""Managers that dial in to a device (section 8)."""

from __future__ import annotations

from wmp.conformance.peers.conversations import DeviceConversation
from wmp.conformance.peers.neighbor import Neighbor
from wmp.conformance.script.case import case
from wmp.message import Command, ErrorCode

_SILENCE = 6.0
"""Units of silence after which a device forgets a manager that dialed in (section 11)."""
_ROUND = 0.2
"""Units between two announcements that the kit sends to find out whether a device listens."""
_CHURN = 20
"""Number of managers that come and go beside one that stays."""


def _come(
    talk: DeviceConversation, dialed: Neighbor, below: Neighbor, rule: str = "WMP-8.12"
) -> None:
    """Announce a manager until discovery reaches it: the device may not listen yet."""
    until = talk.now + max(talk.wire.grace, talk.wire.patience) + 1.0
    while True:
        dialed.send(Command.PONG, max_silence=6000)
        talk.wait(max(_ROUND, talk.wire.grace))
        below.send(Command.PING, label="who is there")
        if dialed.wait_for(Command.PING, within=max(_ROUND, talk.wire.grace)) is not None:
            break
        text = f"{dialed.name} announced itself by PONG, and received no PING of the worker below"
        talk.check(talk.now < until, text, rule)
    talk.settle()
    dialed.inbox.clear()
    below.inbox.clear()


def _announced(dialed: Neighbor) -> Neighbor:
    """Announce a manager again, so that a slow play is no silence (WMP-8.11); return it."""
    dialed.send(Command.PONG, max_silence=6000)
    dialed.clear()  # the device reads the announcement before a message of another connection
    return dialed


def _unknown(talk: DeviceConversation, dialed: Neighbor, below: Neighbor, what: str) -> None:
    """Check that discovery does not reach a connection."""
    below.send(Command.PING, label="anybody")
    dialed.never(Command.PING, what=what)


@case("WMP-8.12", "WMP-8.1", "WMP-8.3")
def a_manager_comes_by_its_message(talk: DeviceConversation) -> None:
    """A connection is that of a manager from its first message, and messages pass both ways."""
    below, _ = talk.joined()
    dialed = talk.dialed()
    talk.settle()
    _unknown(talk, dialed, below, "the connection has sent nothing, so it is not a manager's")
    _come(talk, dialed, below)
    down, up = talk.route(dialed, below)
    talk.check(
        isinstance(up[0], int),
        f"the local id of a manager that dialed in is {up[0]!r}; expected an integer",
        "WMP-8.3",
    )
    talk.check(
        down[1:3] == up[1:3],
        "the device's hop names two different identities or epochs on the way up and down",
        "WMP-8.3",
    )
    below.send(Command.BYE, to=up, session=1, ack=0)
    bye = dialed.expect(Command.BYE, rule="WMP-8.2")
    talk.check(
        bye.message.to == dialed.path[::-1],
        f"'to' of BYE arrives as {bye.message.to!r}; expected {dialed.path[::-1]!r}",
        "WMP-8.2",
    )


@case("WMP-8.1", "WMP-8.2", profile="dial-in")
def both_ways_up(talk: DeviceConversation) -> None:
    """Discovery goes over the DEALERs and to the managers that dialed in; the rest to one."""
    below, (above,) = talk.joined()
    dialed = talk.dialed()
    _come(talk, dialed, below, "WMP-8.1")
    above.inbox.clear()
    below.send(Command.READY, ready=1, credit=1, roles=["echo"], resources={"slots": 1})
    for manager in (above, dialed):
        manager.expect(Command.READY)
    _, up = talk.route(dialed, below)
    above.clear()
    below.send(Command.PING, to=up, label="to one")
    dialed.expect(Command.PING, label="to one", rule="WMP-8.2")
    above.never(Command.PING, rule="WMP-8.2", what="the message was for the manager that dialed in")


@case("WMP-8.12")
def a_goodbye_ends_it(talk: DeviceConversation) -> None:
    """After BYE without ``to`` the connection is not a manager's, until its next message."""
    below, _ = talk.joined()
    dialed = talk.dialed()
    _come(talk, dialed, below)
    _, up = talk.route(dialed, below)
    dialed.send(Command.BYE)
    talk.settle()
    _unknown(talk, dialed, below, "the manager has sent BYE")
    below.send(Command.PING, to=up)
    below.error(ErrorCode.UNREACHABLE)
    dialed.never(Command.PING, what="the manager has sent BYE")
    _come(talk, dialed, below)


@case("WMP-8.12")
def silence_ends_it(talk: DeviceConversation) -> None:
    """A manager that sends nothing for ``max_silence`` is forgotten; one that announces stays."""
    below, _ = talk.joined()
    dialed, lively = talk.dialed("silent"), talk.dialed("lively")
    for manager in (dialed, lively):
        _come(talk, manager, below)
    dialed.send(Command.PONG, max_silence=6000)
    _, up = talk.route(dialed, below)
    for _ in range(int(_SILENCE) + 1):
        lively.send(Command.PONG, max_silence=6000)
        talk.wait(1.0)
    talk.settle()
    for manager in (dialed, lively):
        manager.inbox.clear()
    below.send(Command.PING, label="anybody")
    lively.expect(Command.PING)
    dialed.never(Command.PING, what=f"the manager has sent nothing for {_SILENCE:g} units")
    below.send(Command.PING, to=up)
    below.error(ErrorCode.UNREACHABLE)
    _come(talk, dialed, below)


@case("WMP-8.13")
def no_manager_is_pushed_out(talk: DeviceConversation) -> None:
    """A manager is not forgotten because others come and go."""
    below, _ = talk.joined()
    first = talk.dialed("first")
    _come(talk, first, below)
    _, up = talk.route(first, below)
    for number in range(_CHURN):
        first.send(Command.PONG, max_silence=6000)
        other = talk.dialed(f"other-{number}")
        other.send(Command.PONG, max_silence=6000)
        other.send(Command.BYE)
        talk.settle()
        assert other.connection is not None
        talk.wire.hang_up(other.connection)
    talk.settle()
    first.inbox.clear()
    below.send(Command.PING, label="still there")
    first.expect(Command.PING, label="still there")
    below.send(Command.PING, to=up, label="by the old path")
    first.expect(Command.PING, label="by the old path")


@case("WMP-8.14", "WMP-8.3")
def connections_stay_apart(talk: DeviceConversation) -> None:
    """Two connections are two, though their managers claim one identity and epoch."""
    below, _ = talk.joined()
    first, second = talk.dialed("one", b"same"), talk.dialed("other", b"same")
    for dialed in (first, second):
        _come(talk, dialed, below, "WMP-8.14")
    _, to_first = talk.route(_announced(first), below)
    second.clear()
    _, to_second = talk.route(_announced(second), below)
    talk.check(
        to_first[0] != to_second[0],
        f"both connections have the local id {to_first[0]!r}; expected an id for each",
    )
    for dialed in (first, second):
        _announced(dialed)
    below.send(Command.PING, to=to_first, label="for one")
    first.expect(Command.PING, label="for one")
    second.never(Command.PING, what="the message was for the other connection")
    below.send(Command.PING, to=to_second, label="for the other")
    second.expect(Command.PING, label="for the other")
    first.never(Command.PING, what="the message was for the other connection")


@case("WMP-8.9", profile="dial-in")
def the_upper_router_is_above(talk: DeviceConversation) -> None:
    """A worker that connects to the address for managers is refused."""
    below, (above,) = talk.joined()
    lost = talk.dialed("lost worker")
    manager = talk.dialed("manager")
    _come(talk, manager, below)
    lost.send(Command.READY, ready=1, credit=1, roles=["echo"], resources={"slots": 1})
    lost.error(ErrorCode.DIRECTION)
    for neighbor in (above, below, manager):
        neighbor.never(Command.READY, what="READY is a command of workers, and came from above")
    below.send(Command.PING, label="anybody")
    lost.never(Command.PING, rule="WMP-8.12", what="each message over the connection was refused")
