"""The golden messages, and the grammar (CDDL) of messages."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import build_vectors
import invalid_messages
import pytest

from wmp.codec import decode, encode, peek
from wmp.codec.message_tables import COLUMN_NAMES
from wmp.errors import DecodeError
from wmp.message import FIELD_NAMES, Command, Message

SPECS = Path(build_vectors.__file__).parent


def load(name: str) -> list[dict[str, Any]]:
    vectors = json.loads((SPECS / "vectors" / name).read_text(encoding="utf-8"))
    assert vectors
    return vectors


def frames_of(vector: dict[str, Any]) -> list[bytes]:
    return [bytes.fromhex(frame) for frame in vector["frames"]]


def test_the_files_are_what_the_generator_makes(capsys):
    assert build_vectors.main(["--check"]) == 0, capsys.readouterr().err


def test_a_stale_file_is_noticed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(build_vectors, "VECTORS", tmp_path)

    assert build_vectors.main(["--check"]) == 1
    assert build_vectors.main([]) == 0
    assert build_vectors.main(["--check"]) == 0
    assert "valid.json" in capsys.readouterr().out


@pytest.mark.rule("WMP-2.1", "WMP-2.2", "WMP-2.5", "WMP-2.8", "WMP-2.9")
def test_a_valid_message_is_read_and_made_again():
    for vector in load("valid.json"):
        name, frames = vector["name"], frames_of(vector)
        message = decode(frames)

        assert build_vectors.readable_message(message) == vector["message"], name
        assert encode(message) == frames, name
        assert peek(frames).frames == tuple(frames[1:]), name
        assert frames[0][:3] == bytes((0x85, 1, Command[vector["message"]["command"]])), name


def test_every_step_of_a_conversation_is_a_message():
    for vector in load("conversations.json"):
        name, peer = vector["name"], vector["peer"]
        sent = [step for step in vector["steps"] if "frames" in step]

        assert {peer} < {step["by"] for step in sent} | {step["to"] for step in sent}, name
        for step in sent:
            frames = frames_of(step)
            message = peek(frames) if peer == "device" else decode(frames)
            assert build_vectors.readable_message(message) == step["message"], name


def test_an_odd_message_is_read():
    for vector in load("tolerated.json"):
        message = build_vectors.readable_message(decode(frames_of(vector)))
        assert message == vector["message"], vector["name"]


def refusal(vector: dict[str, Any]) -> DecodeError:
    try:
        decode(frames_of(vector))
    except DecodeError as error:
        return error
    return pytest.fail(f"{vector['name']} is not refused")


@pytest.mark.rule("WMP-2.4", "WMP-2.6", "WMP-2.8", "WMP-2.9", "WMP-2.10", "WMP-10.4", "WMP-12.3")
def test_an_invalid_message_is_refused():
    for vector in load("invalid.json"):
        name = vector["name"]
        error = refusal(vector)
        assert vector["error"] == error.code, name
        assert vector["command"] == error.command, name
        assert vector["from"] == build_vectors.readable(error.source), name


def test_there_are_vectors_of_everything():
    valid = [message for _, message in build_vectors.valid()]
    commands = Counter(message.command for message in valid)
    hops = {message.hops for message in valid}

    assert set(Command) == set(commands)
    assert min(commands.values()) >= 2
    assert {0, 1, 2, 3} == hops
    names = [name for name, *_ in invalid_messages.invalid()]
    assert len(names) == len(set(names)) >= 40


def test_invalid_vectors_have_one_fault_each():
    # The base of each vector is a valid message: only the change makes it invalid.
    for frames in (
        invalid_messages.wake(),
        invalid_messages.take(),
        invalid_messages.done(invalid_messages.DONE_COLUMNS),
    ):
        assert isinstance(decode(frames), Message)


def test_the_grammar_has_every_registered_field_and_column():
    grammar = (SPECS / "wmp.cddl").read_text(encoding="utf-8")
    fields = re.findall(r"^  \? (\d+): .*; ([a-z ]+)", grammar, re.M)
    registered = {str(number): name.replace("_", " ") for number, name in FIELD_NAMES.items()}

    assert registered == dict(fields)
    columns = re.findall(r"(\d+): (\w+)[ ,]", grammar[grammar.index("take-columns") :])
    assert {(str(number), name) for number, name in COLUMN_NAMES.items()} == set(columns)


def test_the_grammar_and_the_codec_have_the_same_commands():
    grammar = (SPECS / "wmp.cddl").read_text(encoding="utf-8")
    heads = re.findall(
        r"^(\w+) += \[1, (\d+), to(?:( / \[\])|.* / \[1, \d+, (\[\]))?", grammar, re.M
    )

    assert {(c.name.lower(), str(c.value)) for c in Command} == {head[:2] for head in heads}
    empty = {name for name, _, *empty in heads if any(empty)}
    assert empty == {"ready", "ping", "pong", "bye", "error"}


def test_the_grammar_is_cddl():
    # The tool only parses the grammar: it cannot match the repeated groups of arrays such as paths.
    pycddl = pytest.importorskip("pycddl", reason="pycddl is not installed")
    grammar = (SPECS / "wmp.cddl").read_text(encoding="utf-8")

    assert pycddl.Schema("start = head\n" + grammar) is not None
    with pytest.raises(ValueError):
        pycddl.Schema("start = head\n" + grammar.replace("[identity, epoch]", "[identity,"))
