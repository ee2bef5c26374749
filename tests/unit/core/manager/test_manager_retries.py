"""The manager machine: jobs whose attempt failed are tried again (spec §6)."""

from __future__ import annotations

import pytest

from tests.unit.core.manager.test_manager import resolved, submit
from wmp.actions import End, Resolve
from wmp.events import Cancelled, Ticked
from wmp.message import Columns, Command, Outcome
from wmp.retry import Retry
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent

REFUSED = "ConnectionError: refused\nbuiltins.ConnectionError builtins.OSError builtins.Exception"
FIXED = Retry(times=2, on=OSError, backoff=1.0, jitter=False)
ERROR = b"payload of the error"


def leased(manager, worker, **options):
    submit(manager, b"job", **options)
    return take(worker)


def take(worker):
    (message,) = sent(worker.give(1), Command.TAKE)
    return message


def fail(worker, attempt=1, text=REFUSED, wait=None, outcome=Outcome.ERROR, ids=(1,)):
    return worker.done(
        ids,
        [ERROR] * len(ids),
        outcome=outcome,
        attempt=attempt,
        texts=[text] * len(ids),
        waits_ms=None if wait is None else [wait] * len(ids),
    )


def due(manager, worker):
    """Advance to the next timer; return its time."""
    worker.now = manager.deadline()
    manager.handle(Ticked(), worker.now)
    return worker.now


@pytest.mark.rule("WMP-6.26", "WMP-6.27")
def test_a_job_with_settings_is_tried_again_after_its_wait(manager, worker):
    message = leased(manager, worker, retry=FIXED)
    assert list(message.columns.failed) == [None]

    worker.now = 5.0
    assert resolved(fail(worker)) == []

    assert manager.statistics().delayed == 1
    assert manager.statistics().leased == 0
    assert manager.statistics().requeued == {"tried again": 1}
    assert [m.command for m in sent(worker.give(1))] == [Command.NO]
    assert due(manager, worker) == 6.0
    assert list(take(worker).columns.attempts) == [2]


def test_jobs_that_failed_together_are_granted_together_again(manager, worker):
    submit(manager, b"1", b"2", b"3", retry=FIXED)
    worker.give(3)

    assert resolved(fail(worker, ids=(1, 2, 3))) == []

    assert manager.statistics().requeued == {"tried again": 3}
    due(manager, worker)
    (message,) = sent(worker.give(3), Command.TAKE)
    assert sorted(message.columns.ids) == [1, 2, 3]
    manager.check_invariants()


@pytest.mark.rule("WMP-6.26")
def test_a_job_is_tried_again_as_often_as_its_settings_allow(manager, worker):
    leased(manager, worker, retry=FIXED)
    for attempt in (1, 2):
        assert resolved(fail(worker, attempt)) == []
        due(manager, worker)
        take(worker)

    assert resolved(fail(worker, 3)) == [(1, End.ERROR, ERROR)]
    manager.check_invariants()


@pytest.mark.rule("WMP-6.26")
@pytest.mark.parametrize(
    ("text", "again"),
    [
        (REFUSED, True),
        ("ValueError: no\nbuiltins.ValueError builtins.Exception", False),
        ("Reject: no\n", False),
        (None, False),
    ],
)
def test_settings_choose_by_the_names_of_the_types(manager, worker, text, again):
    leased(manager, worker, retry=FIXED)

    assert (resolved(fail(worker, text=text)) == []) == again


def test_an_error_without_a_text_suits_settings_for_every_exception(manager, worker):
    leased(manager, worker, retry=Retry())

    assert resolved(fail(worker, text=None)) == []


@pytest.mark.rule("WMP-6.26")
def test_a_job_without_settings_is_tried_again_when_its_worker_asks(manager, worker):
    message = leased(manager, worker)
    assert message.columns.failed is None

    assert resolved(fail(worker, wait=2500)) == []
    assert due(manager, worker) == 2.5
    message = take(worker)
    assert list(message.columns.failed) == [1]
    assert resolved(fail(worker, 2)) == [(1, End.ERROR, ERROR)]


@pytest.mark.rule("WMP-6.26")
def test_the_wait_of_a_worker_counts_for_a_job_with_settings_within_their_times(manager, worker):
    leased(manager, worker, retry=Retry(times=1, on=OSError))
    assert resolved(fail(worker, text="RetryLater: x\nwmp.errors.RetryLater", wait=4000)) == []
    assert due(manager, worker) == 4.0
    take(worker)

    assert [end for _, end, _ in resolved(fail(worker, 2, wait=4000))] == [End.ERROR]


@pytest.mark.rule("WMP-6.22", "WMP-6.26")
def test_an_overrun_is_tried_again_as_a_job_timeout(manager, worker):
    leased(manager, worker, retry=Retry(times=1, on=TimeoutError, backoff=0.0), run_limit=1.0)
    assert resolved(fail(worker, outcome=Outcome.OVERRUN, text=None)) == []
    due(manager, worker)
    take(worker)

    (row,) = resolved(fail(worker, 2, outcome=Outcome.OVERRUN, text=None))
    assert row == (1, End.TIMEOUT, ERROR)


@pytest.mark.rule("WMP-6.27")
@pytest.mark.parametrize("limit", [{"timeout": 1.5}, {"expires": 1.5}])
def test_a_job_ends_with_its_error_when_no_time_is_left(manager, worker, limit):
    leased(manager, worker, retry=FIXED, **limit)
    worker.now = 0.6

    assert resolved(fail(worker)) == [(1, End.ERROR, ERROR)]
    manager.check_invariants()


@pytest.mark.rule("WMP-6.27")
def test_failures_and_lost_leases_are_counted_apart(manager, worker):
    leased(manager, worker, retry=FIXED, max_worker_losses=1)
    fail(worker)
    due(manager, worker)
    take(worker)
    assert resolved(worker.done([1], [b"died"], outcome=Outcome.LOST, attempt=2)) == []
    take(worker)
    assert resolved(fail(worker, 3)) == []
    due(manager, worker)
    take(worker)

    ((_, end, _),) = resolved(worker.done([1], [b"died"], outcome=Outcome.LOST, attempt=4))
    assert end is End.LOST


@pytest.mark.rule("WMP-6.27")
def test_a_job_that_waits_for_another_attempt_can_be_cancelled_and_times_out(manager, worker):
    leased(manager, worker, retry=FIXED)
    fail(worker)
    assert resolved(manager.handle(Cancelled([1]), 0.5)) == [(1, End.CANCELLED, b"")]
    manager.check_invariants()

    submit(manager, b"job", retry=FIXED, timeout=3.0)
    take(worker)
    fail(worker, ids=(2,), wait=2000)
    worker.now = 2.5
    manager.handle(Ticked(), 2.5)
    assert [end for _, end, _ in resolved(manager.handle(Ticked(), 3.0))] == [End.TIMEOUT]
    manager.check_invariants()


def test_a_job_that_is_cancelled_is_not_tried_again(manager, worker):
    leased(manager, worker, retry=FIXED)
    manager.handle(Cancelled([1]), 0.1)

    assert resolved(fail(worker)) == [(1, End.ERROR, ERROR)]


def test_a_job_that_is_tried_again_stands_behind_those_that_wait(manager, worker):
    leased(manager, worker, retry=Retry(backoff=0.0))
    submit(manager, b"b", b"c")
    fail(worker)
    due(manager, worker)

    (message,) = sent(worker.give(3), Command.TAKE)
    assert list(message.columns.ids) == [2, 3, 1]


def test_a_job_that_is_tried_again_is_passed_over_by_a_worker_that_refused_it(manager, worker):
    leased(manager, worker, retry=Retry(backoff=0.0))
    fail(worker)
    due(manager, worker)
    take(worker)
    worker.done([1], [b"no"], outcome=Outcome.REFUSED, attempt=2)
    submit(manager, b"b", now=worker.now)

    other = ScriptedWorker(manager, b"w2", link=b"l2", now=worker.now)
    (message,) = sent(other.give(2), Command.TAKE)
    assert list(message.columns.ids) == [1, 2]


def test_results_and_errors_of_one_message_are_told_apart(manager, worker):
    submit(manager, b"a", b"b", b"c", retry=FIXED)
    worker.give(3)
    columns = Columns(
        [1, 2, 3],
        [1, 1, 1],
        outcomes=[0, 1, 0],
        payloads=[b"x", ERROR, b"y"],
        texts=[None, REFUSED, None],
    )

    actions = worker.send(worker.numbered(Command.DONE, columns))

    assert [(id, end) for id, end, _ in resolved(actions)] == [(1, End.OK), (3, End.OK)]
    assert manager.statistics().delayed == 1
    manager.check_invariants()


def test_the_history_names_each_attempt_that_failed_or_was_lost(manager, worker):
    leased(manager, worker, retry=FIXED, max_worker_losses=5)
    fail(worker)
    due(manager, worker)
    take(worker)
    worker.now = 3.0
    worker.done([1], [b"killed\nby a signal"], outcome=Outcome.LOST, attempt=2)
    take(worker)
    fail(worker, 3)
    due(manager, worker)
    take(worker)

    actions = fail(worker, 4)

    (action,) = [entry for entry in actions if isinstance(entry, Resolve)]
    rows = [(entry.attempt, entry.at, entry.error) for entry in action.histories[1]]
    assert rows == [
        (1, 0.0, "ConnectionError: refused"),
        (2, 3.0, "lost: killed"),
        (3, 3.0, "ConnectionError: refused"),
        (4, 4.0, "ConnectionError: refused"),
    ]


def test_the_error_of_a_job_names_the_settings_that_do_not_suit(manager, worker):
    leased(manager, worker, retry=Retry(on=("requests.ConnectionError",)))
    text = "ConnectionError: no\nrequests.exceptions.ConnectionError builtins.Exception"

    (action,) = [entry for entry in fail(worker, text=text) if isinstance(entry, Resolve)]

    assert list(action.ends) == [End.ERROR]
    (attempt,) = action.histories[1]
    assert attempt.error == (
        "ConnectionError: no; not tried again, because on= names requests.ConnectionError and the "
        "error is a requests.exceptions.ConnectionError"
    )


@pytest.mark.parametrize("settings", [FIXED, Retry(times=0), None])
def test_no_other_error_names_settings(manager, worker, settings):
    leased(manager, worker, retry=settings)

    text = "Reject: no\n" if settings is FIXED else REFUSED
    (action,) = [entry for entry in fail(worker, text=text) if isinstance(entry, Resolve)]

    assert not action.histories


def test_a_history_is_bounded(manager, worker):
    leased(manager, worker, retry=Retry(times=100, backoff=0.0))
    for attempt in range(1, 101):
        fail(worker, attempt)
        due(manager, worker)
        take(worker)

    (action,) = [entry for entry in fail(worker, 101) if isinstance(entry, Resolve)]
    attempts = [entry.attempt for entry in action.histories[1]]
    assert (len(attempts), attempts[0], attempts[-1]) == (32, 1, 101)


@pytest.mark.rule("WMP-6.34")
def test_take_has_the_number_of_earlier_runs(manager, worker):
    assert leased(manager, worker, max_worker_losses=9).columns.begun is None
    runs = []
    for attempt, (outcome, text) in enumerate(
        (
            (Outcome.REFUSED, None),
            (Outcome.CANCELLED, None),
            (Outcome.LOST, None),
            (Outcome.CANCELLED, "the job had begun"),
            (Outcome.REFUSED, None),
        ),
        1,
    ):
        fail(worker, attempt, text, outcome=outcome)
        worker.ready(1)
        (message,) = sent(worker.give(1), Command.TAKE)
        assert list(message.columns.attempts) == [attempt + 1]
        runs += message.columns.begun
    assert runs == [0, 0, 1, 2, 2]


@pytest.mark.rule("WMP-6.34")
def test_a_run_that_failed_counts_without_a_column(manager, worker):
    leased(manager, worker, retry=FIXED)
    fail(worker)
    due(manager, worker)
    message = take(worker)
    assert (list(message.columns.attempts), message.columns.begun) == ([2], None)
