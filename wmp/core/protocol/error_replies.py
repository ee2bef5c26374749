"""ERROR messages: the answer of all three machines to messages that they may not act on.

Spec §10. An ERROR is never answered (WMP-10.3) and needs a route back (WMP-10.2): the reversed
``from`` when it can be read, else the neighbour on the same link.
"""

from __future__ import annotations

from typing import Any

from wmp.actions import Send
from wmp.errors import DecodeError
from wmp.message import VERSION, Command, ErrorCode, Field, Limits, Link, Message, Path, Peer


def refusal(
    me: Peer, link: Link, message: Message, code: str, text: str, peer: Peer | None = None
) -> list[Send]:
    """Answer ``message`` with ERROR ``code``; an ERROR is not answered.

    Args:
        me: (identity, epoch) of the node that answers.
        link: Link of the message and of the answer.
        message: The refused message.
        code: A word of :class:`~wmp.message.ErrorCode`.
        text: The value seen and the value expected.
        peer: The peer that the error is about, if it is not about the message as such.
    """
    if message.command is Command.ERROR:
        return []
    number = message.fields.get(Field.NUMBER, message.fields.get(Field.LOCK))
    return [_error(me, link, message.answer_to, code, text, message.command, number, peer)]


def garbled(me: Peer, link: Link, error: DecodeError) -> list[Send]:
    """Answer frames that are not a message. An ERROR gets no answer.

    The answer names the session and number of a numbered message, so that its sender can send
    another message under the number (WMP-10.7). A device also names the receiver.
    """
    if error.command == Command.ERROR:
        return []
    to, mine = error.to, error.to == me[::-1]
    number = session = None
    peer: Peer | None = None
    if error.number and (mine or len(to) > 2):
        number, session = error.number, error.session
        peer = None if mine else _end(to)
    elif error.code == ErrorCode.SUPERSEDED:
        peer = _end(error.source[::-1])
    text = str(error)
    path, code = error.source[::-1], error.code
    return [_error(me, link, path, code, text, error.command, number, peer, session)]


def superseded(me: Peer, link: Link, to: Path, command: Command, text: str, peer: Peer) -> Send:
    """Report to ``peer`` that another process holds its identity (WMP-15.5)."""
    return _error(me, link, to, ErrorCode.SUPERSEDED, text, command, None, peer)


def about(message: Message) -> Peer | None:
    """Return the peer that a received ERROR is about, None if the ERROR names none."""
    peer = message.fields.get(Field.ABOUT_PEER)
    return None if peer is None else (peer[0], peer[1])


def whom(message: Message) -> Peer | None:
    """Return the peer that ``to`` names, None if ``to`` names none."""
    return _end(message.to)


def _end(to: Path) -> Peer | None:
    match to:
        case (*_, int(epoch), bytes(identity)):
            return identity, epoch
    return None


def _error(
    me: Peer,
    link: Link,
    to: Path,
    code: str,
    text: str,
    command: int | None,
    number: int | None,
    peer: Peer | None,
    session: int | None = None,
) -> Send:
    # The keys ascend, so the codec need not sort them.
    fields: dict[int | str, Any] = {} if session is None else {Field.SESSION: session}
    fields[Field.CODE] = code
    fields[Field.TEXT] = text.encode()[: Limits.LONG_TEXT].decode(errors="ignore")
    if command is not None:
        fields[Field.ABOUT] = int(command)
    if number is not None:
        fields[Field.ABOUT_NUMBER] = number
    if peer is not None:
        fields[Field.ABOUT_PEER] = peer
    if code == ErrorCode.VERSION:
        fields[Field.VERSIONS] = (VERSION,)  # WMP-18.1
    return Send(link, Message(Command.ERROR, to, me, fields))
