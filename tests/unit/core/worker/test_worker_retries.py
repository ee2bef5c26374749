"""The worker machine: the texts and waits of errors in DONE (spec §6)."""

from __future__ import annotations

import pytest

from tests.unit.core.worker.test_worker_times import make_worker
from tests.unit.core.worker.workers import give, runs
from wmp.events import Begun, Finished, Ticked
from wmp.message import Command, Limits, Outcome
from wmp.testing.peers.scripted_worker import sent


def done(actions):
    (message,) = sent(actions, Command.DONE)
    return message.columns


def test_texts_and_waits_of_errors_are_columns_of_done():
    worker, manager = make_worker()
    (run,) = runs(give(manager, b"a", b"b", b"c"))
    event = Finished(
        run.lane,
        run.ids,
        [Outcome.ERROR, Outcome.OK, Outcome.ERROR],
        [b"x", b"y", b"z"],
        ["text", None, "other"],
        [500, None, None],
    )

    columns = done(worker.handle(event, 0.0))

    assert list(columns.texts) == ["text", None, "other"]
    assert list(columns.waits_ms) == [500, None, None]


def test_results_have_no_texts_and_waits():
    worker, manager = make_worker()
    (run,) = runs(give(manager))

    columns = done(worker.handle(Finished(run.lane, run.ids, [Outcome.OK], [b"x"]), 0.0))

    assert (columns.texts, columns.waits_ms) == (None, None)


def test_a_lane_is_handed_how_often_its_jobs_failed():
    worker, manager = make_worker()

    (run,) = runs(give(manager, b"a", b"b", b"c", failed=[2, 0, None]))

    assert list(run.failed) == [2, 0, None]
    worker.handle(Finished(run.lane, run.ids, [Outcome.OK] * 3, [b""] * 3), 0.0)
    (run,) = runs(give(manager))
    assert run.failed is None


@pytest.mark.rule("WMP-6.34")
def test_a_lane_is_handed_how_often_its_jobs_ran():
    worker, manager = make_worker()

    (run,) = runs(give(manager, b"a", b"b", attempt=4, begun=[0, None]))

    assert list(run.begun) == [0, None]
    assert [run.runs_before(0), run.runs_before(1)] == [0, 3]
    worker.handle(Finished(run.lane, run.ids, [Outcome.OK] * 2, [b""] * 2), 0.0)
    (run,) = runs(give(manager))
    assert (run.begun, run.runs_before(0)) == (None, 0)


@pytest.mark.rule("WMP-6.35")
def test_a_job_that_was_cancelled_after_it_began_has_a_text():
    worker, manager = make_worker()
    (run,) = runs(give(manager, b"a", b"b"))
    event = Finished(run.lane, run.ids, [Outcome.CANCELLED] * 2, [b""] * 2, ["begun", None], None)

    assert list(done(worker.handle(event, 0.0)).texts) == ["begun", None]


def test_a_long_text_is_cut_between_names():
    worker, manager = make_worker()
    (run,) = runs(give(manager))
    names = " ".join(f"package.module{number}.Error" for number in range(100))
    event = Finished(run.lane, run.ids, [Outcome.ERROR], [b"x"], ["ü" * 5000 + "\n" + names])

    (text,) = done(worker.handle(event, 0.0)).texts

    assert len(text.encode()) <= Limits.LONG_TEXT
    summary, _, kept = text.partition("\n")
    assert len(summary) == Limits.LONG_TEXT // 4
    assert set(kept.split()) < set(names.split())


def test_an_error_after_the_run_limit_asks_for_nothing():
    worker, manager = make_worker()
    (run,) = runs(give(manager, limits_ms=[500]))
    worker.handle(Begun(run.lane, 2), 0.0)
    worker.handle(Ticked(), 0.5)
    event = Finished(run.lane, run.ids, [Outcome.ERROR], [b"x"], ["text"], [100])

    columns = done(worker.handle(event, 0.6))

    assert (list(columns.outcomes), columns.waits_ms) == ([Outcome.OVERRUN], None)
