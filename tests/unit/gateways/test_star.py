"""A node of a Binary Star, message by message."""

from __future__ import annotations

from itertools import product

import pytest

from tests.unit.gateways.foreign import Driven
from wmp.actions import Halt
from wmp.errors import ConfigError, StarConflict
from wmp.events import Closed, Ticked
from wmp.foreign import Voted
from wmp.gateways.binary_star.lifecycle import IGNORED, TRANSITIONS, StarInput, StarState
from wmp.gateways.binary_star.machine import StarMachine, StarRole

ROLES = {"primary": StarRole.PRIMARY, "backup": StarRole.BACKUP}


def make(role, state=None):
    """Return a node that has started; its peer is not silent."""
    node = Driven(StarMachine(ROLES[role]))
    node.feed(Ticked())
    if state is not None:
        node.machine.state = StarState[state]
    return node


def test_every_pair_of_state_and_input_is_decided():
    assert TRANSITIONS.keys() | IGNORED.keys() == set(product(StarState, StarInput))
    assert not TRANSITIONS.keys() & IGNORED.keys()


@pytest.mark.rule("STAR-1.3", "STAR-2.1")
@pytest.mark.parametrize(("role", "code"), [("primary", b"1"), ("backup", b"2")])
def test_a_node_reports_its_state_every_heartbeat_from_its_start(role, code):
    node = Driven(StarMachine(ROLES[role]))
    node.feed(Ticked())
    assert node.sent == [(code,)]
    for _ in range(3):
        node.wait(0.9)
        assert node.sent == []
        node.wait(0.1)
        assert node.sent == [(code,)]


@pytest.mark.rule("STAR-2.1", "STAR-1.3")
@pytest.mark.parametrize(
    ("role", "before", "heard", "after"),
    [
        ("primary", "PRIMARY", b"2", "ACTIVE"),
        ("primary", "PRIMARY", b"3", "PASSIVE"),
        ("primary", "PRIMARY", b"4", "PRIMARY"),
        ("backup", "BACKUP", b"1", "BACKUP"),
        ("backup", "BACKUP", b"3", "PASSIVE"),
        ("backup", "BACKUP", b"4", "BACKUP"),
        ("primary", "ACTIVE", b"2", "ACTIVE"),
        ("primary", "ACTIVE", b"4", "ACTIVE"),
        ("backup", "ACTIVE", b"1", "ACTIVE"),
        ("primary", "PASSIVE", b"2", "ACTIVE"),
        ("backup", "PASSIVE", b"1", "ACTIVE"),
        ("backup", "PASSIVE", b"3", "PASSIVE"),
    ],
)
def test_a_node_follows_the_table_and_reports_a_change_at_once(role, before, heard, after):
    node = make(role, before)
    node.get(heard)
    assert node.machine.state.name == after
    assert node.sent == ([] if before == after else [(b"%d" % StarState[after],)])


@pytest.mark.rule("STAR-2.4")
@pytest.mark.parametrize(
    ("role", "before", "heard", "error", "text"),
    [
        ("primary", "ACTIVE", b"3", StarConflict, "both nodes of this Binary Star are active"),
        ("backup", "PASSIVE", b"4", StarConflict, "both nodes of this Binary Star are passive"),
        ("primary", "PRIMARY", b"1", ConfigError, "have the role primary"),
        ("backup", "BACKUP", b"2", ConfigError, "have the role backup"),
        ("backup", "PASSIVE", b"2", ConfigError, "have the role backup"),
    ],
)
def test_a_pair_that_cannot_go_on_ends_with_the_cause(role, before, heard, error, text):
    node = make(role, before)
    node.get(heard)
    (halt,) = [action for action in node.actions if isinstance(action, Halt)]
    assert type(halt.error) is error
    assert text in str(halt.error)
    assert (node.machine.state, node.machine.deadline()) == (StarState.HALTED, None)
    assert node.feed(Voted()) == node.get(b"4") == []


@pytest.mark.rule("STAR-2.6")
@pytest.mark.parametrize(("role", "heard"), [("primary", b"1"), ("backup", b"2")])
def test_an_active_node_does_not_end_because_its_peer_was_started_wrongly(role, heard):
    node = make(role, "ACTIVE")
    node.get(heard)
    assert (node.machine.active, node.drops) == (True, ["same role"])
    assert node.machine.statistics().dropped == {"same role": 1}


@pytest.mark.rule("STAR-2.2", "STAR-2.3", "STAR-2.5")
@pytest.mark.parametrize(
    ("role", "state", "served", "after_silence"),
    [
        ("primary", "PRIMARY", False, True),
        ("backup", "BACKUP", False, False),
        ("primary", "ACTIVE", True, True),
        ("backup", "PASSIVE", False, True),
    ],
)
def test_a_request_is_a_vote_when_the_peer_is_silent(role, state, served, after_silence):
    node = make(role, state)
    node.feed(Voted())
    assert node.machine.active is served
    node.get(b"4" if state == "ACTIVE" else b"3" if state == "PASSIVE" else b"4")
    node.wait(1.9)
    node.feed(Voted())
    assert node.machine.active is served

    node.wait(0.2)
    assert node.machine.active is served  # silence alone changes nothing
    node.feed(Voted())
    assert node.machine.active is after_silence
    refused = [served, served, after_silence].count(False)
    assert node.machine.statistics().refused == refused


@pytest.mark.rule("STAR-2.3")
@pytest.mark.parametrize("first", [Ticked(), Voted()])
def test_seconds_in_which_a_node_did_not_run_are_no_silence_of_its_peer(first):
    node = make("backup", "PASSIVE")
    node.wait(0.5)
    node.now += 60.0  # the process is stopped
    node.feed(first)
    node.feed(Voted())
    assert not node.machine.active
    node.wait(1.1)  # 0.5 s before, 0.5 s until the state was due, and 1.1 s since
    node.feed(Voted())
    assert node.machine.active


@pytest.mark.rule("STAR-1.4")
def test_a_node_that_was_stopped_for_expire_receives_before_it_reports():
    node = make("primary", "ACTIVE")
    node.wait(0.5)
    node.now += 1.4  # the state is 0.9 s late
    node.feed(Ticked())
    assert node.sent == [(b"3",)]
    node.now += 2.0
    assert node.feed(Ticked()) == []
    node.wait(0.2)
    assert node.sent == []
    node.wait(0.1)
    assert node.sent == [(b"3",)]

    node.now += 2.0
    assert node.feed(Ticked()) == []
    node.get(b"3")
    assert (node.machine.state, node.sent) == (StarState.HALTED, [])  # the peer stays


@pytest.mark.rule("STAR-1.1")
@pytest.mark.parametrize("frames", [(), (b"",), (b"0",), (b"5",), (b"33",), (b"3", b"3"), (b"x",)])
def test_other_messages_change_nothing(frames):
    node = make("backup", "PASSIVE")
    node.wait(1.9)
    node.get(*frames)
    assert (node.drops, node.machine.state) == (["invalid"], StarState.PASSIVE)
    node.wait(0.2)
    node.feed(Voted())
    assert node.machine.active  # the message was no sign of life


def test_a_node_that_is_closed_is_silent():
    node = make("primary")
    node.feed(Closed())
    assert node.halted
    assert node.wait(5.0) == []
