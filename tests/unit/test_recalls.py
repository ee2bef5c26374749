"""Jobs that wait behind a slow one are asked back for who would start them (WMP-6.18)."""

from __future__ import annotations

import pytest

from wmp.events import Cancelled, Submitted, Ticked
from wmp.message import Command, Field, Kind, Outcome
from wmp.testing.scripted import ScriptedWorker, sent

pytestmark = pytest.mark.rule("WMP-6.18")


def submit(manager, count, now=0.0, kind=None):
    first = manager._dispatch.last_id + 1
    ids = range(first, first + count)
    return manager.handle(Submitted(ids, [b"x"] * count, kind or Kind()), now)


@pytest.fixture
def slow(manager):
    """Has one slot, and ten jobs of which it ends none."""
    slow = ScriptedWorker(manager, b"slow", link=b"slow", resources={"slots": 1})
    slow.ready(0)
    submit(manager, 10)
    assert len(sent(slow.give(10, window=9), Command.TAKE)[0].columns.ids) == 10
    slow.ping()  # which acknowledges them
    return slow


@pytest.fixture
def other(manager, slow):
    """Is there, and busy until it says otherwise."""
    other = ScriptedWorker(manager, b"other", link=b"other", resources={"slots": 1})
    other.ready(0)
    return other


def tick(manager, times=1):
    """Let it look so often; what it sent at the last one."""
    actions = []
    for _ in range(times):
        now = manager.deadline()
        actions = manager.handle(Ticked(), now)
    return now, actions


def asked(actions):
    return [
        (message.receiver, list(message.columns.ids), message.fields.get(Field.UNSTARTED))
        for message in sent(actions, Command.CANCEL)
    ]


def test_the_youngest_are_asked_back_for_who_has_room_and_go_there(manager, slow, other):
    other.ready(4)
    assert asked(tick(manager)[1]) == [], "a whole period must pass in which none ended"
    now, actions = tick(manager)
    assert now == pytest.approx(2 * manager.settings.recall)
    assert asked(actions) == [(b"slow", [7, 8, 9, 10], True)]

    slow.now = other.now = now
    slow.note(actions)
    wake = slow.done([7, 8, 9, 10], [b""] * 4, outcome=Outcome.CANCELLED)
    (wake,) = sent(wake, Command.WAKE)
    assert (wake.receiver, wake.fields[Field.COUNT]) == (b"other", 4)
    (take,) = sent(other.give(4), Command.TAKE)
    assert (list(take.columns.ids), list(take.columns.attempts)) == ([7, 8, 9, 10], [2] * 4)


def test_what_it_has_begun_is_not_asked_back(manager, slow, other):
    other.ready(100)
    assert asked(tick(manager, 2)[1]) == [(b"slow", list(range(2, 11)), True)]


def test_nothing_is_asked_back_for_nobody(manager, slow, other):
    assert asked(tick(manager, 3)[1]) == []
    other.ready(1)
    assert asked(tick(manager)[1]) == [(b"slow", [10], True)], "as soon as somebody has room"


def test_who_ends_jobs_keeps_those_that_wait(manager, slow, other):
    other.ready(100)
    for id in range(1, 9):
        slow.now, actions = tick(manager)
        assert asked(actions) == []
        slow.done([id])


def test_handing_back_is_not_ending(manager, slow, other):
    other.ready(2)
    now, actions = tick(manager, 2)
    slow.note(actions)
    slow.now = now
    slow.done([9, 10], [b"", b""], outcome=Outcome.CANCELLED)
    other.now = now
    other.give(2)
    other.done([9, 10], attempt=2)
    other.ready(3)
    assert asked(tick(manager)[1]) == [(b"slow", [6, 7, 8], True)], "one period later, not two"


def test_who_did_not_hear_it_is_asked_once(manager, slow, other):
    other.ready(4)
    _, actions = tick(manager, 2)
    assert len(asked(actions)) == 1
    assert asked(tick(manager, 2)[1]) == []
    slow.note(actions)
    slow.ping()
    assert len(asked(tick(manager)[1])) == 1, "it has heard it, and jobs wait there still"


def test_those_that_the_submitter_cancelled_are_not_asked_back(manager, slow, other):
    slow.note(manager.handle(Cancelled([9, 10]), 0.0))
    slow.ping()
    other.ready(4)
    assert asked(tick(manager, 2)[1]) == [(b"slow", [7, 8], True)]


def test_others_of_its_kind_that_wait_at_the_manager_come_first(manager, slow, other):
    submit(manager, 3)
    assert asked(tick(manager, 2)[1]) == []
    other.ready(4)
    (take,) = sent(other.give(3), Command.TAKE)
    assert list(take.columns.ids) == [11, 12, 13]


def test_only_who_could_do_them_counts(manager, slow):
    ScriptedWorker(manager, b"else", link=b"else", roles=("else",)).ready(5)
    ScriptedWorker(manager, b"poor", link=b"poor", resources={"gpu": 1}).ready(5)
    assert asked(tick(manager, 3)[1]) == []


def test_who_is_stuck_gets_none_to_wait_that_others_have_room_for(manager, slow, other):
    slow.now, _ = tick(manager, 2)
    assert sent(slow.give(30, window=30, hold=5.0)) == []
    other.ready(30, window=29)

    actions = submit(manager, 40, slow.now)

    assert sent(actions, Command.TAKE) == []
    (wake,) = sent(actions, Command.WAKE)
    assert (wake.receiver, wake.fields[Field.COUNT]) == (b"other", 20)
    (take,) = sent(slow.done([1]), Command.TAKE)
    assert list(take.columns.ids) == list(range(11, 22)), "it has ended one: 20 are its share"


def test_who_is_stuck_gets_what_nobody_else_has_room_for(manager, slow, other):
    slow.now, _ = tick(manager, 2)
    slow.give(30, window=30, hold=5.0)

    (take,) = sent(submit(manager, 40, slow.now), Command.TAKE)

    assert list(take.columns.ids) == list(range(11, 21)), "and no more than its share"


def test_who_is_stuck_gets_what_it_would_start(manager, slow, other):
    other.ready(30, window=29)
    slow.now, _ = tick(manager, 2)
    slow.give(20, window=19, hold=5.0)

    (take,) = sent(submit(manager, 40, slow.now), Command.TAKE)

    assert list(take.columns.ids) == [11]


def test_who_asks_to_be_answered_now_is_answered_as_ever(manager, slow, other):
    """Its NO would be followed by READY, WAKE, GIVE and NO for as long as others are silent."""
    slow.now, _ = tick(manager, 2)
    other.ready(30, window=29)
    submit(manager, 40, slow.now)

    (take,) = sent(slow.give(30, window=30), Command.TAKE)

    assert len(take.columns.ids) == 10


def test_whose_jobs_are_lost_begins_anew(manager, slow, other):
    tick(manager, 2)
    assert manager._workers[b"slow"].stuck
    slow.ping(session=None)
    remembered = manager._workers[b"slow"]
    assert (remembered.stuck, remembered.moved) == (False, True)


def test_nobody_is_looked_at_where_nothing_waits(manager):
    worker = ScriptedWorker(manager, b"wide", link=b"wide", resources={"slots": 8})
    worker.ready(0)
    submit(manager, 8)
    worker.give(8)
    worker.ping()
    assert manager.deadline() == manager.settings.expire
