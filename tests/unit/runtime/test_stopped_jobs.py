"""The manager logs a job whose handler goes on after its stop."""

from __future__ import annotations

from typing import Any

import pytest

from wmp.core.manager.job_lifecycle import JobState
from wmp.runtime.manager.stopped_jobs import StoppedJobs
from wmp.runtime.submission.submissions import Submissions


class Machine:
    """Knows the states of jobs."""

    def __init__(self) -> None:
        self.states: dict[int, JobState] = {}

    def state(self, id: int) -> JobState:
        return self.states.get(id, JobState.ENDED)


def test_a_job_that_goes_on_after_its_stop_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    machine: Any = Machine()
    submissions = Submissions(lambda entry: None, 100)
    jobs = StoppedJobs(machine, submissions)
    machine.states = dict.fromkeys(range(1, 10), JobState.CANCELLING)
    submissions.stopping.update(range(1, 10))

    jobs.look("tcp://a:1", 2.0)
    assert not caplog.messages
    machine.states[2] = JobState.ENDED
    jobs.look("tcp://a:1", 2.0)
    jobs.look("tcp://a:1", 2.0)

    (message,) = caplog.messages
    assert message.startswith(
        "manager at tcp://a:1: 8 jobs were stopped more than 2 s ago, and the handler goes on "
        "(1, 3, 4, 5, 6 and 3 more): a handler in a thread cannot be ended"
    )
    assert not submissions.stopping


def test_a_job_that_ends_after_its_stop_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    machine: Any = Machine()
    submissions = Submissions(lambda entry: None, 100)
    jobs = StoppedJobs(machine, submissions)
    submissions.stopping.add(1)
    for _ in range(3):
        jobs.look("tcp://a:1", 2.0)

    assert not caplog.messages
