"""Beats: another connection keeps the leases of a worker that does not run (WMP-9.17 to 9.19)."""

from __future__ import annotations

import pytest

from tests.unit.core.manager.managers import lease, make
from wmp.actions import Drop, Note, Resolve
from wmp.core.protocol.outbound import MAX_RESENDS
from wmp.events import Received, Ticked
from wmp.message import Command, Field, Message
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent

KEY = 2**40
ASIDE = b"link of the beats"


@pytest.fixture
def manager():
    return make()


@pytest.fixture
def worker(manager):
    return announced(manager)


def announced(manager):
    """Return a worker that has named its beat key."""
    worker = ScriptedWorker(manager)
    worker.ping()
    worker.ping(beat_key=KEY)
    return worker


def beat(worker, now, **changes):
    """Let a beat for a worker arrive over another connection."""
    fields = {Field.SESSION: worker.session, Field.BEAT: KEY}
    fields |= {getattr(Field, name): value for name, value in changes.pop("fields", {}).items()}
    source = changes.get("source", (worker.identity, worker.epoch))
    message = Message(Command.PING, worker.to, source, fields)
    return worker.manager.handle(Received(ASIDE, message), now)


def lost(actions):
    return [action.reason for action in actions if isinstance(action, Note)]


def dropped(actions):
    return [action.reason for action in actions if isinstance(action, Drop)]


def stall(worker, until, since=0):
    """Let a beat arrive each second, and nothing else; return the reasons of lost leases."""
    reasons = []
    for now in range(since + 1, until + 1):
        reasons += lost(beat(worker, float(now)))
        reasons += lost(worker.manager.handle(Ticked(), float(now)))
    return reasons


@pytest.mark.rule("WMP-9.18")
def test_beats_keep_the_leases_of_a_worker_that_does_not_run(manager, worker):
    lease(manager, worker, b"a")
    assert stall(worker, 30) == []
    assert manager.statistics().leased == 1
    worker.now = 30.0
    assert [a for a in worker.done([1]) if isinstance(a, Resolve)]


@pytest.mark.rule("WMP-9.18")
def test_beats_keep_leases_for_a_bounded_time(manager, worker):
    lease(manager, worker, b"a")
    assert stall(worker, 64) == []
    assert stall(worker, 65, since=64) == ["silence"]
    assert manager.statistics().queued == 1


@pytest.mark.rule("WMP-9.18")
def test_beats_count_no_longer_than_the_jobs_may_run(manager, worker):
    lease(manager, worker, b"a", run_limit=8.0)
    assert stall(worker, 12) == []
    assert stall(worker, 13, since=12) == ["silence"]


@pytest.mark.rule("WMP-9.18")
def test_a_job_without_a_limit_may_run_for_the_whole_time(manager, worker):
    lease(manager, worker, b"a", run_limit=8.0)
    lease(manager, worker, b"b")
    assert stall(worker, 40) == []


@pytest.mark.rule("WMP-9.18")
@pytest.mark.parametrize(
    "changes",
    [
        {"fields": {"BEAT": KEY + 1}},
        {"fields": {"SESSION": 99}},
        {"source": (b"w1", 2)},
        {"source": (b"a stranger", 1)},
    ],
    ids=["key", "session", "epoch", "identity"],
)
def test_a_beat_of_another_counts_for_nobody(manager, worker, changes):
    lease(manager, worker, b"a")
    before = manager.statistics()
    actions = beat(worker, 3.0, **dict(changes))
    assert dropped(actions) == ["beat"]
    assert not sent(actions)
    assert len(manager.statistics().workers) == len(before.workers)
    assert lost(manager.handle(Ticked(), 6.0)) == ["silence"]


@pytest.mark.rule("WMP-9.18")
def test_no_beat_counts_for_a_worker_that_named_no_key(manager):
    worker = ScriptedWorker(manager)
    worker.ping()
    lease(manager, worker, b"a")
    assert dropped(beat(worker, 3.0)) == ["beat"]
    assert lost(manager.handle(Ticked(), 6.0)) == ["silence"]


@pytest.mark.rule("WMP-9.18")
def test_a_beat_is_no_claim_and_changes_no_route(manager, worker):
    lease(manager, worker, b"a")
    beat(worker, 1.0)
    actions = worker.ping()
    assert all(action.link == worker.link for action in actions if hasattr(action, "link"))
    assert not any(Field.CHALLENGE in message.fields for message in sent(actions))


@pytest.mark.rule("WMP-9.18")
def test_only_a_worker_with_a_key_learns_for_how_long_beats_count(manager):
    worker = ScriptedWorker(manager)
    (pong,) = sent(worker.ping(), Command.PONG)
    assert Field.MAX_STALL not in pong.fields
    (pong,) = sent(worker.ping(beat_key=KEY), Command.PONG)
    assert pong.fields[Field.MAX_STALL] == 60_000


@pytest.mark.rule("WMP-9.18")
def test_a_manager_may_count_no_beats():
    manager = make(max_stall=0.0)
    worker = announced(manager)
    lease(manager, worker, b"a")
    assert dropped(beat(worker, 1.0)) == ["beat"]
    assert all(Field.MAX_STALL not in pong.fields for pong in sent(worker.ping(), Command.PONG))


@pytest.mark.rule("WMP-9.19")
def test_a_beat_is_answered_over_the_route_of_the_worker(manager, worker):
    lease(manager, worker, b"a")
    actions = beat(worker, 1.0)
    assert [a.message.command for a in actions if a.link == worker.link] == [Command.PONG]
    assert not [action for action in actions if action.link == ASIDE]


@pytest.mark.rule("WMP-9.19")
def test_jobs_for_a_worker_that_does_not_run_are_not_refused_for_it(manager, worker):
    lease(manager, worker, b"a")
    assert 3.0 * (MAX_RESENDS + 2) < 55
    assert stall(worker, 55) == []
    assert manager.statistics().leased == 1
