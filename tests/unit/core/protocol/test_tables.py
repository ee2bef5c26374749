"""The lifecycles: every pair of state and input is decided, and the diagrams are up to date."""

from __future__ import annotations

import importlib
import re
from itertools import product

import annotated_stories
import build_machines
import build_wmp
import pytest

from wmp.codec import decode, encode


@pytest.fixture(params=build_machines.MODULES.values())
def tables(request):
    return importlib.import_module(request.param)


def test_every_pair_is_decided_once(tables):
    state, what = next(iter(tables.TRANSITIONS))
    pairs = set(product(type(state), type(what)))

    assert pairs == tables.TRANSITIONS.keys() | tables.IGNORED.keys()
    assert not tables.TRANSITIONS.keys() & tables.IGNORED.keys()


def test_every_ignored_pair_has_a_reason(tables):
    assert all(reason.strip() for reason in tables.IGNORED.values())


def test_every_state_can_be_reached(tables):
    first = next(iter(tables.TRANSITIONS))[0]
    reached = {first, *getattr(tables, "STARTS", ())}
    while (
        more := {target for (state, _), target in tables.TRANSITIONS.items() if state in reached}
        - reached
    ):
        reached |= more
    assert reached == set(type(first))


def test_the_diagrams_are_drawn_from_the_tables():
    for path, text in build_machines.pages().items():
        assert path.read_text(encoding="utf-8") == text, "run python specs/build_machines.py"


@pytest.mark.parametrize(
    "page", [*build_wmp.STATES, build_wmp.CONVERSATIONS], ids=lambda page: page.name
)
def test_the_specification_has_the_tables_of_the_code_and_the_bytes_of_the_codec(page):
    text = page.read_text(encoding="utf-8")

    assert build_wmp.filled(text, page) == text, "run python specs/build_wmp.py"


def test_every_state_and_input_of_the_specification_has_a_meaning(tables):
    state, what = next(iter(tables.TRANSITIONS))
    names = {member.name for member in (*type(state), *type(what))}

    assert build_wmp.MEANINGS[tables.__name__].keys() == names


def test_the_bytes_of_the_conversation_are_read_by_the_codec():
    """The codec decodes the hex of each message in the specification to that message."""
    text = build_wmp.CONVERSATIONS.read_text(encoding="utf-8")
    shown = re.findall(r"```\n(?:worker|manager): (\w+)\n(.*?)```", text, re.DOTALL)
    sent = [message for _, message in build_wmp.conversation()]
    assert [command for command, _ in shown] == [message.command.name for message in sent]
    for (_, block), message in zip(shown, sent, strict=True):
        frames = [
            bytes.fromhex("".join(re.findall(r"^  ([0-9a-f]+) ", part, re.MULTILINE)))
            for part in block.split("  -- second frame\n")
        ]
        assert decode(frames) == decode(encode(message))


def test_the_stories_show_what_they_are_about():
    table = dict(annotated_stories.stories())

    lost, hop, claim = table["lost take"], table["device hop"], table["failed claim"]
    assert lost.index("(lost): TAKE") < lost.index("PING  again") < lost.index("ack 2")
    assert 'from ["w", 2000, "d", 3000, "c7"]' in hop
    assert "challenge 1" in claim
    assert 'ERROR  code superseded; about 1; about peer ["w", 9999]' in claim


def test_a_stale_specification_is_noticed(tmp_path, monkeypatch, capsys):
    stale = tmp_path / "wmp.md"
    stale.write_text(build_wmp.SPEC.read_text(encoding="utf-8").replace("WITHDRAWN", "GONE"))
    monkeypatch.setattr(build_wmp, "STATES", {stale: build_wmp.STATES[build_wmp.SPEC]})
    monkeypatch.setattr(build_wmp, "SPEC", stale)

    assert build_wmp.main(["--check"]) == 1
    assert "stale" in capsys.readouterr().err
    assert build_wmp.main([]) == 0
    assert build_wmp.main(["--check"]) == 0


def test_the_code_consults_the_tables(monkeypatch):
    """If a transition is removed from the table, it no longer happens."""
    from wmp.core.manager import job_lifecycle

    job = job_lifecycle.JobRecord(1, b"", None, 0, 3, None)
    smaller = dict(job_lifecycle.TRANSITIONS)
    del smaller[job_lifecycle.JobState.QUEUED, job_lifecycle.JobInput.GRANT]
    monkeypatch.setattr(job_lifecycle, "TRANSITIONS", smaller)
    assert not job.step(job_lifecycle.JobInput.GRANT)
    assert job.state is job_lifecycle.JobState.QUEUED
