"""Each field that contradicts another line is found, in each kind of line at each node."""

from __future__ import annotations

import re
from random import Random

import pytest

from tests.spark.folds.changed_fields import FieldChange, field_changes, named, sound_fleets

ROUTE = "a process or device that wrote no journal may have sent the message so"
SEVERAL = "a peer may have several connections, and a message may come over each of them"
EVERYWHERE = "the message went over several connections, and the lines of the others explain it"
SOCKET = "an event of a socket, which no other line shows"
FOR_READERS = "the reason of this node for an ignored message is in no other line"

EXCEPTIONS = {
    r". start: (node|epoch)": "a process whose start line may be lost is never accused for certain",
    r". start: (at|wall)": "another thread writes the line, perhaps after younger lines",
    r". start: kind": "a kind of a later release",
    r". received \w+: link": SEVERAL,
    r". received \w+: (source|source_epoch|via)": ROUTE,
    r". received \w+: (reason|text)": FOR_READERS,
    r"[dw] send (READY|PING): (link|command)": EVERYWHERE,
    r"w (connected|disconnected|reconnect): link": SOCKET,
    r"d send ERROR: (link|text)": FOR_READERS,
    r". undelivered \w+: (link|command)": SOCKET,
    r"d undelivered \w+: reason": FOR_READERS,
    r"m undelivered \w+: reason|w drop: (reason|text|link)": FOR_READERS,
    r"w send STATUS: .*": "another sending of the message explains it",
    r"m note: (about_epoch|ids)": "a note about a lease that no other line shows is believed",
    r"w start: settings": "no line shows the settings of a worker",
    r"w beat: wall": "the wall clock is read anew",
    r"w note: .*": "a worker alone shows which jobs it forgets with the session of a manager",
    r"w received PONG: credit": "the manager sent the same PONG with this credit at another time",
    r"m submitted: priority": "the order in which jobs are granted depends on the workers, too",
    r"m submitted: (max_worker_losses|retries)": "no job was lost or tried so often",
}
"""The reason why no other line contradicts a change, by the pattern of its title."""


def is_excepted(title: str) -> bool:
    return any(re.fullmatch(pattern, title) for pattern in EXCEPTIONS)


@pytest.fixture(scope="module")
def fleets(tmp_path_factory):
    return sound_fleets(tmp_path_factory.mktemp("sound"))


def check(fleets: list[list[dict[str, object]]], changes: list[FieldChange], folder) -> None:
    """Check that each change is named, unless it is excepted, and that nobody else is accused."""
    named_rules = named(fleets, changes, folder)

    assert named_rules.pop("", set()) == set()
    assert [
        title for title, names in named_rules.items() if not names and not is_excepted(title)
    ] == []


def test_some_changed_fields_are_named(fleets, tmp_path):
    seed = Random().randrange(1 << 32)
    print("seed", seed)
    changes = [change for change in field_changes(fleets) if not is_excepted(change.title)]

    check(fleets, Random(seed).sample(changes, 24), tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize("part", range(8))
def test_each_changed_field_is_named(fleets, tmp_path, part):
    check(fleets, list(field_changes(fleets))[part::8], tmp_path)


def test_each_exception_is_about_a_field(fleets):
    titles = [change.title for change in field_changes(fleets)]

    for pattern in EXCEPTIONS:
        assert any(re.fullmatch(pattern, title) for title in titles), pattern
