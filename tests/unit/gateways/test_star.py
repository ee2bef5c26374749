"""A node of a Binary Star, message by message."""

from __future__ import annotations

from itertools import product

import pytest

from tests.unit.gateways.foreign import Driven
from wmp.actions import Halt
from wmp.errors import ConfigError, StarConflict
from wmp.events import Closed, Ticked
from wmp.foreign import Arrived, Voted
from wmp.gateways.binary_star.claims import ClaimSeal
from wmp.gateways.binary_star.election import IGNORED, TRANSITIONS, StarInput, StarState
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


@pytest.mark.rule("STAR-2.4", "STAR-1.7")
@pytest.mark.parametrize(
    ("role", "before", "heard"),
    [
        ("primary", "ACTIVE", b"3"),
        ("backup", "PASSIVE", b"4"),
        ("primary", "PRIMARY", b"1"),
        ("backup", "BACKUP", b"2"),
        ("backup", "PASSIVE", b"2"),
    ],
)
def test_an_unproven_claim_ends_no_node(role, before, heard):
    node = Driven(StarMachine(ROLES[role], believed=False))
    node.feed(Ticked())
    node.machine.state = StarState[before]
    for _ in range(3):
        node.get(heard)
        assert (node.drops, node.machine.state.name) == (["unproven claim"], before)
    assert node.machine.statistics().dropped == {"unproven claim": 3}


@pytest.mark.rule("STAR-2.4", "STAR-2.3")
def test_an_unproven_claim_is_no_sign_of_life():
    node = Driven(StarMachine(StarRole.BACKUP, believed=False))
    node.feed(Ticked())
    node.get(b"3")
    assert node.machine.state is StarState.PASSIVE
    for _ in range(3):
        node.wait(0.9)
        node.get(b"4")
    node.feed(Voted())
    assert node.machine.active


KEY = b"a key of sixteen"


def sealed(role, nonce, key=KEY):
    return Driven(StarMachine(ROLES[role], believed=False, seal=ClaimSeal(key, nonce * 16)))


def heard(node, *states):
    """Let a node hear sealed states; return the reasons of the drops."""
    drops = []
    for frames in states:
        node.feed(Arrived(0, b"", frames))
        drops += node.drops
    return drops


@pytest.mark.rule("STAR-1.5", "STAR-1.6", "STAR-2.4")
def test_two_nodes_with_one_key_believe_each_other():
    primary, backup = sealed("primary", b"p"), sealed("backup", b"b")
    (first,) = primary.feed(Ticked()) and primary.sent
    assert tuple(map(len, first)) == (1, 32, 32, 16, 64)
    backup.feed(Ticked())
    assert heard(backup, first) == ["no answer"]
    (answer,) = backup.sent  # at once, so that the primary need not wait for the next heartbeat
    assert heard(primary, answer) == []
    assert primary.machine.active
    assert heard(backup, *primary.sent) == []
    assert backup.machine.state is StarState.PASSIVE
    backup.machine.state = StarState.ACTIVE
    backup.wait(1.0)
    primary.feed(Arrived(0, b"", backup.sent[0]))
    assert primary.machine.state is StarState.HALTED


@pytest.mark.rule("STAR-1.6")
def test_a_sealed_state_counts_once_and_for_one_process():
    primary, backup = sealed("primary", b"p"), sealed("backup", b"b")
    primary.feed(Ticked())
    backup.feed(Ticked())
    heard(backup, *primary.sent)
    heard(primary, *backup.sent)
    recorded = primary.sent
    assert heard(backup, *recorded) == []
    assert heard(backup, *recorded) == ["no answer"] * 2  # again
    assert heard(primary, *recorded) == ["no seal"] * 2  # reflected
    again = sealed("backup", b"c")  # the backup was started again
    again.feed(Ticked())
    assert heard(again, *recorded) == ["no answer"] * 2
    assert again.machine.state is StarState.BACKUP


@pytest.mark.rule("STAR-1.5")
def test_states_without_the_seal_are_dropped():
    node = sealed("primary", b"p")
    node.feed(Ticked())
    stranger = sealed("backup", b"s", key=b"another key, 16+")
    stranger.feed(Ticked())
    (forged,) = stranger.sent
    own = ClaimSeal(KEY, b"b" * 16).seal(b"2")
    changed = (b"3", *own[1:])
    for frames in [(b"2",), (b"3",), forged, changed, own[:4], (*own, b""), (b"",) * 5]:
        assert heard(node, frames) == ["no seal"]
    assert node.machine.state is StarState.PRIMARY
    with pytest.raises(ConfigError, match="has 15 bytes; expected at least 16"):
        ClaimSeal(b"x" * 15, b"n" * 16)


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
