"""The manager machine: where jobs stand that are queued again (spec §6)."""

from __future__ import annotations

import pytest

from tests.unit.core.manager.managers import submit
from wmp.message import Command, Outcome
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent


def granted(worker, want):
    """Return the ids of the jobs that the worker gets for a GIVE."""
    return [id for take in sent(worker.give(want), Command.TAKE) for id in take.columns.ids]


def another(manager):
    return ScriptedWorker(manager, identity=b"w2", link=b"link-2")


@pytest.mark.rule("WMP-6.28")
def test_lost_jobs_stand_first_in_the_order_of_their_submission(manager, worker):
    submit(manager, b"1", b"2", b"3", b"4")
    assert granted(worker, 3) == [1, 2, 3]

    worker.bye()

    assert granted(another(manager), 4) == [1, 2, 3, 4]


@pytest.mark.rule("WMP-6.28")
@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.CANCELLED, Outcome.LOST])
def test_jobs_of_one_done_keep_the_order_of_their_submission(manager, worker, outcome):
    submit(manager, b"1", b"2", b"3", b"4", max_worker_losses=3)
    assert granted(worker, 3) == [1, 2, 3]

    worker.done([3, 1, 2], outcome=outcome)

    assert granted(another(manager), 4) == [1, 2, 3, 4]


@pytest.mark.rule("WMP-6.28")
def test_a_lost_job_stands_behind_jobs_of_higher_priority(manager, worker):
    submit(manager, b"1")
    assert granted(worker, 1) == [1]
    submit(manager, b"2")
    submit(manager, b"3", priority=5)

    worker.bye()

    assert granted(another(manager), 3) == [3, 1, 2]
