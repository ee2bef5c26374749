"""A job that has ended, in whatever way, is forgotten wholly."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.runtime.submission.test_submissions import TERMS, Inbox, Keeper, resolved
from wmp.actions import Acknowledge, Decline
from wmp.errors import ClosedError, JobFailed, StoreFull
from wmp.message import Kind
from wmp.runtime.driver.inbox import JobTerms
from wmp.runtime.submission.submissions import Submissions
from wmp.store.job_terms import StoredTerms

STORED = JobTerms(Kind(), 0, None, 3, stored=StoredTerms(3))
LARGE = b"x" * 1000


def failed() -> JobFailed:
    return JobFailed("E", "gone")


ENDS: dict[str, Callable[[Submissions], object]] = {
    "resolve": lambda s: s.resolve(resolved(1)),
    "abandon": lambda s: s.abandon([1], failed),
    "fail": lambda s: s.fail(ClosedError("closed")),
}
"""The ends of a job, stored or not."""


def remembered(submissions: Submissions) -> dict[str, object]:
    """Return what is not empty or 0 in the table of the jobs."""
    table = submissions._table
    names = ("jobs", "tracked", "sizes", "bytes", "keys")
    return {name: value for name in names if (value := getattr(table, name))}


@pytest.mark.parametrize("end", ENDS)
def test_a_job_in_memory_is_forgotten(end: str) -> None:
    submissions, keeper = Submissions(Inbox().append, 100), Keeper()
    submissions.add(keeper, [LARGE], TERMS, key="k")
    assert {"jobs", "tracked", "sizes", "bytes", "keys"} == {*remembered(submissions)}
    submissions.stop(1)
    assert {"jobs", "tracked", "sizes", "bytes"} == {*remembered(submissions)}

    ENDS[end](submissions)

    assert remembered(submissions) == {}
    assert list(keeper.ended) == [1]


@pytest.fixture
def joined() -> tuple[Submissions, list[Keeper]]:
    """Return submissions of which the second joined the first job, and the owners of both."""
    submissions, owners = Submissions(Inbox().append, 100, stored=True), [Keeper(), Keeper()]
    submissions.provide(range(1, 10_000))
    submissions.add(owners[0], [LARGE], STORED)
    submissions.add(owners[1], [LARGE], STORED, key="k")
    submissions.acknowledge(Acknowledge([1, 2], {2: 1}))
    assert {"jobs", "tracked", "sizes", "bytes", "keys"} == {*remembered(submissions)}
    submissions.stop(1)
    assert {"jobs", "tracked", "sizes", "bytes"} == {*remembered(submissions)}
    return submissions, owners


@pytest.mark.parametrize("end", ENDS)
def test_a_job_that_others_joined_is_forgotten_and_ends_for_all(
    end: str, joined: tuple[Submissions, list[Keeper]]
) -> None:
    submissions, owners = joined

    ENDS[end](submissions)

    assert remembered(submissions) == {}
    assert [list(owner.ended) for owner in owners] == [[1], [1]]


def test_a_joined_job_keeps_its_key() -> None:
    submissions, first, second = Submissions(Inbox().append, 100, stored=True), Keeper(), Keeper()
    submissions.provide(range(100, 10_000))
    submissions.add(first, [LARGE], STORED, key="k")
    submissions.acknowledge(Acknowledge([100], {100: 7}))

    assert submissions.add(second, [LARGE], STORED, key="k") is first
    submissions.resolve(resolved(7))
    assert remembered(submissions) == {}
    assert submissions.add(second, [LARGE], STORED, key="k") is second


def test_nobody_joins_a_job_that_is_being_cancelled() -> None:
    submissions, first, second = Submissions(Inbox().append, 100), Keeper(), Keeper()
    submissions.add(first, [LARGE], TERMS, key="k")
    submissions.stop(1)

    assert submissions.add(second, [LARGE], TERMS, key="k") is second
    submissions.resolve(resolved(1))
    assert submissions.add(first, [LARGE], TERMS, key="k") is second


def test_a_declined_job_is_forgotten() -> None:
    submissions, keeper = Submissions(Inbox().append, 100, stored=True), Keeper()
    submissions.provide(range(1, 10_000))
    submissions.add(keeper, [LARGE], STORED, key="k")
    submissions.stop(1)

    submissions.decline(Decline([1], "full"))

    assert remembered(submissions) == {}
    assert isinstance(keeper.ended[1], StoreFull)


def test_a_key_is_free_again_after_its_job_was_abandoned() -> None:
    submissions, first, second = Submissions(Inbox().append, 100), Keeper(), Keeper()
    submissions.add(first, [b""], TERMS, key="k")
    submissions.abandon([1], failed)

    assert submissions.add(second, [b""], TERMS, key="k") is second


@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_a_job_wakes_the_waiters_for_the_store(end: str) -> None:
    submissions, keeper, woken = Submissions(Inbox().append, 100, stored=True), Keeper(), []
    submissions.provide(range(1, 10_000))
    submissions.add(keeper, [b""], STORED)
    assert submissions.when_stored(1, lambda: woken.append(list(keeper.ended)))

    ENDS[end](submissions)

    assert woken == [[1]], "the owner must know the end before the waiter goes on"
    assert not submissions.when_stored(1, lambda: None)


def test_jobs_of_several_sizes_are_counted_and_forgotten_together() -> None:
    submissions, keeper = Submissions(Inbox().append, 100), Keeper()
    submissions.add(keeper, [b"", LARGE, b"small", LARGE], TERMS)
    assert submissions._table.bytes == 2005

    submissions.resolve(resolved(1, 2, 3, 4))

    assert remembered(submissions) == {}
    assert sorted(keeper.ended) == [1, 2, 3, 4]
