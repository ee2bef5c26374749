"""A manager gives a worker up a short time after its direct connection ended (WMP-9.16)."""

from __future__ import annotations

import pytest

from tests.unit.core.manager.managers import lease
from wmp.actions import Note
from wmp.core.manager.requeue import CONNECTION_ENDED
from wmp.events import Disconnected, Ticked, Undelivered
from wmp.message import Command
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent


def lost(actions):
    return [(action.reason, *action.ids) for action in actions if isinstance(action, Note)]


def refuse_newest_message(manager, worker, now):
    (pong,) = sent(worker.ping(), Command.PONG)
    manager.handle(Undelivered(worker.link, pong), now)


@pytest.mark.rule("WMP-9.16")
@pytest.mark.rule("WMP-6.4")
def test_a_job_is_queued_again_when_the_connection_does_not_return(manager, worker):
    lease(manager, worker, b"a")
    manager.handle(Disconnected(worker.link), 1.0)

    assert lost(manager.handle(Ticked(), 1.9)) == []
    assert lost(manager.handle(Ticked(), 2.0)) == [(CONNECTION_ENDED, 1)]
    assert manager.statistics().queued == 1
    other = ScriptedWorker(manager, b"other", link=b"other")
    (take,) = sent(other.give(1), Command.TAKE)
    assert list(take.columns.attempts) == [2]


@pytest.mark.rule("WMP-9.16")
def test_a_worker_that_returns_in_time_keeps_its_jobs(manager, worker):
    lease(manager, worker, b"a")
    manager.handle(Disconnected(worker.link), 1.0)
    worker.link = b"its new connection"
    worker.ping()

    assert lost(manager.handle(Ticked(), 2.5)) == []
    assert manager.statistics().leased == 1


@pytest.mark.rule("WMP-9.16")
def test_each_end_of_the_connection_gives_the_whole_grace(manager, worker):
    lease(manager, worker, b"a")
    manager.handle(Disconnected(worker.link), 1.0)
    worker.link = b"its new connection"
    worker.ping()
    refuse_newest_message(manager, worker, 4.0)
    manager.handle(Disconnected(worker.link), 4.0)

    assert lost(manager.handle(Ticked(), 4.9)) == []
    assert lost(manager.handle(Ticked(), 5.0)) == [(CONNECTION_ENDED, 1)]


@pytest.mark.rule("WMP-9.16")
def test_a_worker_that_no_message_reaches_is_given_up_too(manager, worker):
    lease(manager, worker, b"a")
    refuse_newest_message(manager, worker, 1.0)
    manager.handle(Disconnected(worker.link), 1.0)

    assert lost(manager.handle(Ticked(), 2.0)) == [(CONNECTION_ENDED, 1)]


@pytest.mark.rule("WMP-9.16")
@pytest.mark.rule("WMP-15.6")
def test_a_worker_whose_claim_over_a_device_was_admitted_has_no_direct_connection(manager, worker):
    lease(manager, worker, b"a")
    behind = ScriptedWorker(manager, worker.identity, link=b"device", hops=(b"d", 1, b"c"))
    behind.ping(to=False)
    (_, pong) = sent(manager.handle(Disconnected(worker.link), 1.0))
    assert pong.to[0] == b"c"
    manager.handle(Undelivered(b"device", pong), 1.5)

    assert lost(manager.handle(Ticked(), 5.0)) == []


@pytest.mark.rule("WMP-9.16")
def test_the_end_of_another_connection_changes_nothing(manager, worker):
    lease(manager, worker, b"a")
    manager.handle(Disconnected(b"another"), 1.0)

    assert lost(manager.handle(Ticked(), 3.0)) == []


@pytest.mark.rule("WMP-9.16")
def test_a_worker_behind_a_device_is_given_up_after_expire_only(manager):
    worker = ScriptedWorker(manager, b"w", link=b"device", hops=(b"d", 1, b"c"))
    lease(manager, worker, b"a")
    manager.handle(Disconnected(b"device"), 1.0)

    assert lost(manager.handle(Ticked(), 5.0)) == []
    assert lost(manager.handle(Ticked(), 6.5)) == [("silence", 1)]
