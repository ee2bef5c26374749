"""The parts of the manager machine that doors for other protocols use."""

from __future__ import annotations

import pytest

from tests.unit.core.manager.managers import lease, resolved, submit
from wmp.actions import End
from wmp.events import Cancelled
from wmp.message import Command, Field, Outcome
from wmp.testing.peers.scripted_worker import sent


@pytest.mark.rule("WMP-6.10")
@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.CANCELLED])
def test_a_cancellation_of_what_has_not_begun_leaves_the_decision_to_the_worker(
    manager, worker, outcome
):
    submit(manager, b"waits")
    ended = manager.handle(Cancelled([1], unstarted=True), 0.0)
    assert resolved(ended) == [(1, End.CANCELLED, b"")]

    (take,) = sent([*submit(manager, b"leased"), *worker.give(1)], Command.TAKE)
    (cancel,) = sent(manager.handle(Cancelled([2], unstarted=True), 0.0), Command.CANCEL)
    assert cancel.fields[Field.UNSTARTED] is True
    payload = b"did" if outcome is Outcome.OK else b""
    end = End.OK if outcome is Outcome.OK else End.CANCELLED
    assert take.columns.ids == [2]
    assert resolved(worker.done([2], [payload], outcome=outcome)) == [(2, end, payload)]


@pytest.mark.rule("WMP-6.29")
@pytest.mark.parametrize("broken", [False, True])
def test_the_codec_of_a_result_is_reported_if_the_job_has_another(manager, worker, broken):
    lease(manager, worker, b"a", b"b")
    if broken:  # the jobs have records then
        manager.handle(Cancelled([3]), 0.0)
        manager._scheduler.ends.find(1)

    (resolve,) = worker.done([1], codec="frames")
    assert resolve.codecs == {1: "frames"}
    (resolve,) = worker.done([2])
    assert resolve.codecs is None
