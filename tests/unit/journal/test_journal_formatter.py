"""One step of a machine as lines: the facts that are written, joined or left out."""

from __future__ import annotations

import json

import pytest

from wmp.actions import (
    Acknowledge,
    Answer,
    Decline,
    Drop,
    End,
    Halt,
    Interrupt,
    Note,
    Notify,
    Recall,
    Reconnect,
    Resolve,
    Run,
    Send,
    Write,
)
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.errors import DecodeError, Superseded
from wmp.events import (
    Begun,
    Cancelled,
    Closed,
    Connected,
    Disconnected,
    Drained,
    Finished,
    Forwarded,
    Garbled,
    InstanceBegun,
    Leased,
    Recalled,
    Received,
    Relieved,
    Reported,
    Resized,
    Retracted,
    Returned,
    StoreFilled,
    Submitted,
    Ticked,
    Undelivered,
    Woken,
    Written,
)
from wmp.journal.formatter import JournalFormatter
from wmp.journal.header import JournalHeader
from wmp.journal.json_fragments import WRITTEN_FIELDS, HeadFormatter
from wmp.journal.reader import whole
from wmp.journal.schema import LINES, name_of_file, name_of_peer, what_is_wrong
from wmp.message import Columns, Command, Field, ForwardedKind, Kind, Message, Outcome
from wmp.retry import Retry
from wmp.store.write_batch import BatchAnswer, WriteBatch

ME = ("w", 7)
PEER = (b"m", 5)
KIND = Kind("ocr", (("gpu", 1), ("slots", 2)), "cbor")
DONE = Message(
    Command.DONE,
    (5, b"m"),
    (b"w", 7, b"proxy", 3, b"\x00link"),
    {Field.NUMBER: 4, Field.SESSION: 1, Field.MANAGER: PEER},
    Columns([1, 2], [1, 1], outcomes=[0, 1], payloads=[b"abc", memoryview(b"de")]),
)

EVENTS = (
    Received(b"r", DONE),
    Garbled(0, DecodeError("bytes behind the head", code="malformed")),
    Undelivered(b"r", DONE),
    Ticked(),
    Drained(),
    Closed(),
    Submitted(range(1, 4), [b"x", b"yy", b"zzz"], KIND, 5, 2.5, 1, 2.0, 0.5, 1.0, Retry()),
    Forwarded([1 << 63], ForwardedKind(owner=PEER, passed=(b"f",)), [17], [2], [b"x"]),
    Retracted([1 << 63]),
    Cancelled((1, 2)),
    Connected(0),
    Disconnected(b"r"),
    Finished(3, [1, 2], [Outcome.OK, Outcome.LOST], [b"ab", b""]),
    Begun(3, 1),
    Recalled(3, []),
    Reported(3, 1, 0.5, "half of it"),
    Relieved(),
    Resized({"slots": 3}),
    InstanceBegun((4,)),
    Leased("ocr", [1, 2], [1, 1], (b"10.0.0.1:8082", 3)),
    Returned([1, 2], [1, 1], [Outcome.OK, Outcome.ERROR]),
    Written(1, BatchAnswer(0, False, (), (), (), (), None)),
    StoreFilled(2, "the disk is full"),
    Woken((), (5,), ()),
)
ACTIONS = (
    Send(0, DONE),
    Drop("gap", 0, DONE, "3 of 4"),
    Note("timeout", PEER, (4,)),
    Note("forget", PEER, owner=PEER, ids=[1, 2], attempts=[1, 2]),
    Halt(Superseded("started again")),
    Resolve((1, 2), (End.OK, End.LOST), (b"a", b""), (1, 4)),
    Answer([1 << 63], [Outcome.OK], [b"r"], [None], [None]),
    Notify(1, 0.5, "half of it"),
    Run(3, KIND, PEER, [1, 2], [1, 1], [None, 8.5], [b"a", b"b"], limits=[None, 0.5]),
    Recall(3, [1]),
    Interrupt(3, [1]),
    Reconnect(0),
    Write(1, WriteBatch()),
    Acknowledge((1, 2)),
    Decline((3,), "the disk is full"),
)


@pytest.fixture
def formatter() -> JournalFormatter:
    return JournalFormatter(JournalHeader(kind="worker", identity=b"w", epoch=7))


def lines(formatter: JournalFormatter, event: object, *actions: object) -> list[dict]:
    written = [json.loads(line) for line in formatter.step(event, actions, 1_000, 2_000)]
    assert not [wrong for line in written if (wrong := what_is_wrong(line))]
    return written


@pytest.mark.parametrize(
    ("ids", "ids_column", "last"),
    [
        ([], [], None),
        ([7], [7], None),
        ((7, 8, 9), [7, 8, 9], None),
        (range(7, 11), [7], 10),
        ([7, 8, 9, 10], [7], 10),
        ((7, 8, 9, 10), [7], 10),
        ([7, 9, 8, 10], [7, 9, 8, 10], None),
        ([7, 7, 9, 10], [7, 7, 9, 10], None),
        ([10, 9, 8, 7], [10, 9, 8, 7], None),
        (range(7, 15, 2), [7, 9, 11, 13], None),
    ],
)
def test_consecutive_jobs_are_written_as_first_and_last(formatter, ids, ids_column, last):
    (line,) = lines(formatter, Cancelled(ids))

    assert (line["ids"], line.get("last")) == (ids_column, last)
    assert whole(line)["ids"] == list(ids)
    assert "last" not in line


def test_there_is_a_sample_of_every_event_and_action():
    samples = {type(sample).__name__.lower() for sample in (*EVENTS, *ACTIONS)}

    assert samples == LINES.keys() - {"start", "beat", "lost", "stop"}


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_makes_a_line_of_its_name(formatter, event):
    line, other = lines(formatter, event, Halt())

    assert line["what"] == type(event).__name__.lower()
    assert other["what"] == "halt"


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: type(action).__name__)
def test_every_action_makes_a_line_of_its_name(formatter, action):
    _, line = lines(formatter, Ticked(), action)

    assert line["what"] == type(action).__name__.lower()


def test_lines_are_numbered_and_those_of_a_step_have_its_number(formatter):
    assert lines(formatter, Ticked()) == []
    written = [*lines(formatter, Connected(0), Send(0, DONE)), *lines(formatter, Drained())]

    assert [(line["n"], line["step"]) for line in written] == [(1, 1), (2, 1), (3, 2)]
    assert {(line["node"], line["epoch"], line["at"], line["wall"]) for line in written} == {
        (*ME, 1_000, 2_000)
    }


def test_the_line_of_a_message_has_its_head_route_and_columns(formatter):
    line, _ = lines(formatter, Received(b"\x00r", DONE), Halt())

    for name in ("v", "node", "epoch", "n", "step", "at", "wall"):
        del line[name]
    assert line == {
        "what": "received",
        "link": "0x0072",
        "command": "DONE",
        "hops": 1,
        "source": "w",
        "source_epoch": 7,
        "target": "m",
        "target_epoch": 5,
        "via": ["proxy"],
        "number": 4,
        "session": 1,
        "owner": "m",
        "owner_epoch": 5,
        "ids": [1, 2],
        "attempts": [1],
        "outcomes": [0, 1],
        "bytes": 5,
    }


def test_every_field_of_a_head_is_written():
    known = {value for name, value in vars(Field).items() if name.isupper()}

    assert known == WRITTEN_FIELDS


def test_a_device_writes_the_whole_route_of_a_message(formatter):
    to = (b"l", 3, b"second", 0, 9, b"first", 5, b"m")
    message = Message(Command.BYE, to, (b"w", 7, b"zeroth", 1, b"r"), frames=(b"12", b"345"))

    line, _ = lines(formatter, Received(b"r", message), Send(0, message))

    assert line["via"] == ["zeroth", "second", "first"]
    assert (line["target"], line["target_epoch"], line["hops"], line["bytes"]) == ("m", 5, 1, 5)


def test_the_reason_of_an_ignored_message_is_written_once_on_its_line(formatter):
    first, second = lines(
        formatter,
        Received(b"r", DONE),
        Drop("unknown", b"r", DONE, "job 9"),
        Drop("stale", b"r", DONE),
    )

    assert (first["what"], first["reason"], first["text"]) == ("received", "unknown", "job 9")
    assert (second["what"], second["reason"], second["number"]) == ("drop", "stale", 4)


def test_the_reason_of_another_message_is_not_written_on_a_line(formatter):
    other = Message(Command.BYE, (), (b"x", 1))

    line, drop = lines(formatter, Received(b"r", DONE), Drop("gap", b"r", other))

    assert "reason" not in line
    assert drop["command"] == "BYE"


def test_the_end_of_jobs_names_the_sender_of_the_message(formatter):
    resolve = Resolve((1, 2), (End.OK, End.OK), (b"a", b"b"), (1, 2))

    by_message = lines(formatter, Received(b"r", DONE), resolve)[1]
    by_itself = lines(formatter, Ticked(), resolve)[1]

    assert (by_message["source"], by_message["source_epoch"]) == ME
    assert "source" not in by_itself
    assert (by_message["ends"], by_message["attempts"]) == (["ok"], [1, 2])


def test_no_payload_and_no_progress_text_gets_into_a_line(formatter):
    secret = b"cf3d0a81"
    jobs = Columns([1], [1], left_ms=[5], payloads=[secret])
    take = Message(Command.TAKE, (7, b"w"), PEER, {}, jobs)
    status = Columns([1], [1], fractions=[0.5], texts=[secret.decode()])
    written = [
        *formatter.step(Submitted([1], [secret], KIND), [Send(b"r", take)], 0, 0),
        *formatter.step(Finished(1, [1], [Outcome.OK], [secret]), [], 0, 0),
        *formatter.step(Reported(1, 1, 0.5, secret.decode()), [], 0, 0),
        *formatter.step(Received(0, Message(Command.STATUS, (), PEER, {}, status)), [], 0, 0),
        *formatter.step(Ticked(), [Resolve([1], [End.OK], [secret], [1])], 0, 0),
        *formatter.step(Ticked(), [Notify(1, 0.5, secret.decode())], 0, 0),
        *formatter.step(Ticked(), [Run(1, KIND, PEER, [1], [1], None, [secret])], 0, 0),
    ]

    assert not [line for line in written if secret.decode() in line]


def test_text_for_people_is_cut_and_names_are_not(formatter):
    role, text = "r" * 255, "t" * 1000
    fields = {Field.ROLE: role, Field.TEXT: text, Field.CODE: "malformed"}

    line, _ = lines(formatter, Received(0, Message(Command.ERROR, (), PEER, fields)), Halt())

    assert (len(line["role"]), len(line["text"])) == (255, 200)


def test_an_error_about_an_unknown_command_is_written(formatter):
    fields = {Field.CODE: "command", Field.ABOUT: 77, Field.ABOUT_PEER: (b"\xff", 3)}

    line, _ = lines(formatter, Received(0, Message(Command.ERROR, (), PEER, fields)), Halt())

    assert (line["about"], line["about_peer"], line["about_epoch"]) == ("77", "0xff", 3)


def test_an_error_about_a_numbered_message_names_its_session_and_number(formatter):
    fields = {Field.SESSION: 3, Field.CODE: "limit", Field.ABOUT: 6, Field.ABOUT_NUMBER: 12}

    line, _ = lines(formatter, Received(0, Message(Command.ERROR, (), PEER, fields)), Halt())

    assert (line["session"], line["about"], line["about_number"]) == (3, "DONE", 12)
    assert "number" not in line


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        (ManagerSettings(identity=b"x", epoch=3), "manager"),
        (WorkerSettings(identity=b"x", epoch=3, window=None), "worker"),
        (DeviceSettings(identity=b"x", epoch=3, upstreams=2), "device"),
    ],
)
def test_a_segment_begins_with_a_line_about_its_writer(settings, kind):
    header = JournalHeader.of(settings, host="h", pid=9, endpoints=("tcp://127.0.0.1:1",))

    line = json.loads(header.start(4, 1, 2))

    assert what_is_wrong(line) is None
    assert (line["kind"], line["segment"], line["n"], line["epoch"]) == (kind, 4, 0, 3)
    assert "identity" not in line["settings"]
    if kind == "worker":
        assert (line["roles"], line["resources"]) == (["default"], {"slots": 1})
        assert line["settings"]["lock_timeout"] == 5.0


def test_names_of_files_sort_by_number_and_are_one_to_one():
    identities = [b"w1", b"\x00" * 16, b"a:b", b"a_b", b"long" * 60, b"long" * 61, b"..", b"."]

    files = [name_of_file(identity, 5, 1) for identity in identities]

    assert len(set(files)) == len(files)
    assert all(len(name) < 130 and "/" not in name and ":" not in name for name in files)
    assert name_of_file(b"w", 5, 9) < name_of_file(b"w", 5, 10)
    assert name_of_peer(b"0x00") == "0x30783030"


def test_the_key_of_beats_is_a_secret_and_gets_into_no_line():
    key = 2**62 + 12345
    settings = WorkerSettings(identity=b"w", epoch=1, beat_key=key)
    assert "beat_key" not in JournalHeader.of(settings).settings
    assert str(key) not in repr(settings)
    text = HeadFormatter().text({Field.SESSION: 3, Field.BEAT_KEY: key, Field.BEAT: key})
    assert text == ',"session":3,"beat_key":true,"beat":true'


def test_a_submission_has_the_time_since_its_call(formatter):
    def since(*called):
        event = Submitted([1, 2], [b"", b""], KIND, called=called or None)
        return json.loads(formatter.step(event, [], 5_000_000, 0)[0]).get("since_call")

    assert since(4.75, 4.9) == [250_000, 100_000]
    assert since(4.75, 4.75) == [250_000]
    assert since(5.25, 5.25) == [0]  # the step began before the call
    assert since() is None


def test_workers_of_other_protocols_are_named(formatter):
    leased, returned = (
        json.loads(formatter.step(event, [], 0, 0)[0])
        for event in (
            Leased("ocr", [7], [2], (b"10.0.0.1:8082", 3)),
            Returned([7], [2], [Outcome.ERROR], (b"10.0.0.1:8082", 3)),
        )
    )

    who = {"about_peer": "10.0.0.1:8082", "about_epoch": 3, "ids": [7], "attempts": [2]}
    assert {"role": "ocr", **who}.items() <= leased.items()
    assert {"outcomes": [1], **who}.items() <= returned.items()
