"""How a worker follows a manager from session to session, and its numbers in one (spec §7)."""

from __future__ import annotations

from enum import Enum

from wmp.core.protocol.stream import Arrival, Stream
from wmp.core.worker.links import LinkState
from wmp.core.worker.outbound import WorkerOutbound
from wmp.core.worker.remote_manager import RemoteManager
from wmp.message import Command, Field, Message

__all__ = ["SessionEntry", "enter", "in_order"]


class SessionEntry(Enum):
    """What a message's session means to the worker."""

    KNOWN = "known"
    """The current one, one just entered, or none named: act on the message."""
    NEWER = "newer"
    """The manager has begun another: lose the old one, then act (WMP-7.6)."""
    DROP = "drop"
    """An old session, or one that cannot be entered."""


def enter(
    board: WorkerOutbound, upstream: RemoteManager, link: LinkState, message: Message, now: float
) -> SessionEntry:
    """Follow the manager into the session that ``message`` names (WMP-7.6, 7.8).

    A session that this worker does not know may be one that it has forgotten, in which
    numbers were used. It is entered only where both sides begin at 1: at number 1 with
    nothing acknowledged, and at the answer to a PING that admits to knowing none. That PING
    may be lost and the PONG answer another one, so what was forgotten is remembered by number.
    """
    fields, stream = message.fields, upstream.stream
    session, number = fields.get(Field.SESSION), fields.get(Field.NUMBER)
    if session is not None and stream is not None:
        if session < stream.session:
            board.drop("old session", link.index, message)
            return SessionEntry.DROP
        return SessionEntry.KNOWN if session == stream.session else SessionEntry.NEWER
    if session is not None and session > upstream.forgotten:
        begins = number == 1 and not fields.get(Field.ACK, 0)
        if begins or (message.command is Command.PONG and upstream.asked):
            upstream.stream = Stream(session)
    if upstream.stream is not None:
        return SessionEntry.KNOWN
    if not upstream.asked or (
        number is not None and now - upstream.pinged >= board.interval(upstream)
    ):
        board.ping(upstream, now)
    if number is None:
        return SessionEntry.KNOWN
    board.drop("unknown session", link.index, message)
    return SessionEntry.DROP


def in_order(
    board: WorkerOutbound, upstream: RemoteManager, link: LinkState, message: Message, now: float
) -> bool:
    """Whether a numbered message is the next; a gap is asked for once (WMP-7.1)."""
    assert upstream.stream is not None
    arrival = upstream.stream.arrive(message.fields[Field.NUMBER])
    if arrival is Arrival.NEXT:
        return True
    board.drop(arrival.value, link.index, message)
    if arrival is Arrival.GAP:
        board.ping(upstream, now, again=True)
    return False
