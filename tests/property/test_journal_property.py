"""Journals with random messages: every valid message makes a line of the schema."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.journal_back import identity_of
from wmp.events import Received
from wmp.journal.formatter import JournalFormatter
from wmp.journal.header import JournalHeader
from wmp.journal.reader import whole
from wmp.journal.schema import name_of_peer, what_is_wrong
from wmp.message import Command, Field, Message
from wmp.testing.peers.strategies import identities, messages, names

NUMBERS = {
    Field.NUMBER: "number",
    Field.ACK: "ack",
    Field.SESSION: "session",
    Field.READY: "ready",
    Field.CREDIT: "credit",
    Field.WINDOW: "window",
    Field.COUNT: "count",
    Field.LOCK: "lock",
    Field.WANT: "want",
    Field.HOLD: "hold",
    Field.MAX_SILENCE: "max_silence",
    Field.AGAIN: "again",
    Field.MORE: "more",
    Field.UNSTARTED: "unstarted",
    Field.IDLE: "idle",
    Field.ROLE: "role",
    Field.CODEC: "codec",
    Field.NEEDS: "needs",
    Field.RESOURCES: "resources",
}


def spread(values: list, count: int) -> list:
    """Return a column with one entry for each job."""
    return values * count if len(values) == 1 else values


@given(identities() | names().map(str.encode))
def test_a_name_stands_for_one_identity(identity):
    assert identity_of(name_of_peer(identity)) == identity


@given(messages())
def test_every_message_makes_a_line_with_all_its_fields(message: Message):
    (text,) = JournalFormatter(JournalHeader(kind="manager", identity=b"m", epoch=1)).step(
        Received(b"r", message), (), 1, 2
    )

    line = json.loads(text)
    assert text.isascii()
    assert "\n" not in text
    assert what_is_wrong(line) is None
    line = whole(line)
    assert Command[line["command"]] is message.command
    for key, name in NUMBERS.items():
        assert line.get(name) == message.fields.get(key)
    if message.source:
        assert (identity_of(line["source"]), line["source_epoch"]) == message.sender
    assert line["hops"] == message.hops
    assert line.get("target") == (None if not message.to else name_of_peer(message.receiver))
    columns = message.columns
    if columns is None:
        assert "ids" not in line
        return
    count = len(columns.ids)
    assert line["ids"] == list(columns.ids)
    assert spread(line["attempts"], count) == list(columns.attempts)
    if columns.left_ms is not None:
        assert spread(line["left"], count) == list(columns.left_ms)
    for name in ("expires", "limits", "failed", "waits", "checksums"):
        values = getattr(columns, f"{name}_ms" if hasattr(columns, f"{name}_ms") else name)
        assert (name in line) == (values is not None)
        if values is not None:
            assert spread(line[name], count) == list(values)
    if columns.outcomes is not None:
        assert spread(line["outcomes"], count) == list(columns.outcomes)
    if columns.payloads is not None:
        assert line["bytes"] == sum(map(len, columns.payloads))


@given(st.lists(messages(), min_size=2, max_size=4))
def test_cached_parts_of_one_message_do_not_appear_in_another(several):
    """A formatter with a full cache and a new formatter write the same lines."""
    old = JournalFormatter(JournalHeader(kind="manager", identity=b"m", epoch=1))
    for message in several:
        new = JournalFormatter(old.header, lines=old.lines, steps=old.steps)
        event = Received(b"r", message)
        assert old.step(event, (), 1, 2) == new.step(event, (), 1, 2)
