"""Workers that leave with their jobs, once or repeatedly, and the worker losses that this costs."""

from __future__ import annotations

import pytest

from tests.unit.core.manager.test_manager import resolved, submit
from wmp.actions import End
from wmp.events import Ticked
from wmp.message import Command, Outcome
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent

LEAVING = {
    "BYE": lambda worker: worker.bye(),
    "a newer epoch": lambda worker: None,
    "a new session": lambda worker: worker.ping(session=None, ack=None),
    "an empty list": lambda worker: worker.ping(idle=True),
}


def comes_back(worker):
    """Start the worker again."""
    worker.epoch += 1
    worker.number = worker.lock = worker.ready_number = worker.session = worker.received = 0


@pytest.mark.rule("WMP-6.23")
@pytest.mark.parametrize("how", LEAVING)
def test_a_worker_that_takes_jobs_and_leaves_is_one_worker_loss_of_each_job(manager, how):
    submit(manager, b"a", b"b", max_worker_losses=1)
    thief = ScriptedWorker(manager, b"thief", link=b"1")
    for _ in range(3):
        (take,) = sent(thief.give(2), Command.TAKE)
        assert take.columns.ids == [1, 2]
        LEAVING[how](thief)
        comes_back(thief)
        thief.ready(0)
    assert manager.statistics().queued == 2

    other = ScriptedWorker(manager, b"other", link=b"2")
    other.give(2)
    ends = resolved(other.bye())
    assert [end for _, end, _ in ends] == [End.LOST, End.LOST]


@pytest.mark.rule("WMP-6.23")
def test_a_job_that_its_worker_takes_away_again_and_again_is_given_ever_later(manager):
    submit(manager, b"a", max_worker_losses=1)
    thief = ScriptedWorker(manager, b"thief", link=b"1")
    for reports in (1, 1, 1, 1, 2, 4, 8, 16, 32, 64, 64):
        answers = [sent(thief.give(1), Command.TAKE, Command.NO)[-1] for _ in range(reports)]
        assert [answer.command for answer in answers] == [Command.NO] * (reports - 1) + [
            Command.TAKE
        ]
        thief.bye()
        comes_back(thief)


@pytest.mark.rule("WMP-6.23")
def test_silence_and_done_lost_are_a_worker_loss_each_time(manager, worker):
    submit(manager, b"a", max_worker_losses=2)
    for attempt in (1, 2):
        worker.give(1)
        assert resolved(worker.done([1], [b"died"], outcome=Outcome.LOST, attempt=attempt)) == []
    worker.give(1)
    assert [end for _, end, _ in resolved(manager.handle(Ticked(), 6.0))] == [End.LOST]
