"""An error between the end of a job and its future still ends the future."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.unit.runtime.submission.test_submissions import TERMS, Inbox, Keeper, resolved
from wmp import aio
from wmp.actions import Decline, End, Resolve
from wmp.blocking.job import Job
from wmp.errors import ClosedError, JobCancelled, JobFailed, StoreFull
from wmp.message import Frame, Kind
from wmp.runtime.codecs import payload_codecs
from wmp.runtime.driver.driver import Driver
from wmp.runtime.driver.inbox import Inbox as DriverInbox
from wmp.runtime.driver.inbox import JobTerms
from wmp.runtime.node.portal import Portal
from wmp.runtime.sockets.transport import Transport
from wmp.runtime.submission.map_pipeline import MapPipeline
from wmp.runtime.submission.results import Ended
from wmp.runtime.submission.submissions import Submissions
from wmp.runtime.submission.unordered_map import UnorderedMap

ERRORS = [ValueError("broken"), MemoryError(), KeyboardInterrupt("Ctrl-C"), SystemExit(3)]


class Faulty(Keeper):
    """An owner that takes no end."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def _succeed(self, ids: Sequence[int], payloads: Sequence[Frame]) -> None:
        raise self.error

    def _settle(self, rows: Sequence[Ended]) -> None:
        raise self.error


@pytest.fixture
def submissions() -> Submissions:
    return Submissions(Inbox().append, 100)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("alone", [True, False])
def test_a_delivery_that_raises_ends_its_jobs_and_delivers_the_others(
    submissions: Submissions, error: BaseException, alone: bool
) -> None:
    faulty, keeper = Faulty(error), Keeper()
    submissions.add(faulty, [b"a", b"b"], TERMS)
    if not alone:
        submissions.add(keeper, [b"c"], TERMS)
    woken: list[bool] = []
    submissions.limit = len(submissions)
    submissions.when_free(lambda: woken.append(True))

    with pytest.raises(type(error)):
        submissions.resolve(resolved(1, 2) if alone else resolved(1, 2, 3))

    assert faulty.undelivered == {1: error, 2: error}
    assert keeper.ended == ({} if alone else {3: (End.OK, b"r")})
    assert woken == [True]


def test_an_end_that_cannot_be_read_ends_every_job_of_its_message(
    submissions: Submissions,
) -> None:
    keeper = Keeper()
    submissions.add(keeper, [b"a", b"b"], TERMS)

    with pytest.raises(ValueError, match="zip"):
        submissions.resolve(Resolve([1, 2], [End.OK, End.ERROR], [b"r"], [1, 1]))

    assert keeper.undelivered.keys() == {1, 2}


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_owner_that_raises_keeps_no_other_job_from_its_end(
    submissions: Submissions, error: BaseException
) -> None:
    def act(end: Callable[[], object]) -> None:
        if isinstance(error, Exception):
            end()
        else:
            with pytest.raises(type(error)):
                end()

    for end, kind in (
        (lambda: submissions.decline(Decline([1, 2], "full")), StoreFull),
        (lambda: submissions.abandon([3, 4], lambda: ClosedError("over")), ClosedError),
        (lambda: submissions.fail(ClosedError("closed")), ClosedError),
    ):
        faulty, keeper = Faulty(error), Keeper()
        submissions.add(faulty, [b"a"], TERMS)
        submissions.add(keeper, [b"b"], TERMS)
        act(end)
        assert list(faulty.undelivered.values()) == [error]
        assert [type(ended) for ended in keeper.ended.values()] == [kind]
    assert not len(submissions)


# -- the owners --------------------------------------------------------------------------------


def _interrupted(data: bytes) -> Any:
    raise KeyboardInterrupt("in the decoder")


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register a codec whose decoder is interrupted."""
    monkeypatch.setattr(payload_codecs, "_registered", {})
    payload_codecs.register_codec("interrupted", bytes, _interrupted)


TERMS_OF_BROKEN = JobTerms(Kind(codec="interrupted"), 0, None, 3)


def test_the_future_of_a_result_whose_decoder_is_interrupted_ends(interrupted: None) -> None:
    submissions = Submissions(Inbox().append, 100, "interrupted")
    job = submissions.add(Job(submissions, Portal("manager")), [b"a"], TERMS_OF_BROKEN)
    called: list[object] = []
    job._portal.call_user = lambda fn, job: fn(job)  # type: ignore[method-assign]
    job.add_done_callback(called.append)

    with pytest.raises(KeyboardInterrupt):
        submissions.resolve(resolved(1))

    assert called == [job]
    with pytest.raises(JobFailed, match=r"KeyboardInterrupt: .* raised an error") as info:
        job.result(0)
    assert isinstance(info.value.__cause__, KeyboardInterrupt)


def test_the_job_of_asyncio_whose_decoder_is_interrupted_ends(interrupted: None) -> None:
    async def main() -> None:
        submissions = Submissions(Inbox().append, 100, "interrupted")
        job = submissions.add(aio.Job(submissions), [b"a"], TERMS_OF_BROKEN)

        async def wait() -> Any:
            return await job

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        with pytest.raises(KeyboardInterrupt):
            submissions.resolve(resolved(1))
        with pytest.raises(JobFailed, match="KeyboardInterrupt"):
            await waiting

    asyncio.run(main())


def test_other_code_may_have_cancelled_the_future() -> None:
    submissions = Submissions(Inbox().append, 100)
    job = submissions.add(Job(submissions, Portal("manager")), [b"a"], TERMS)
    assert concurrent.futures.Future.cancel(job)

    with pytest.raises(concurrent.futures.InvalidStateError):
        submissions.resolve(resolved(1))

    assert concurrent.futures.wait([job], 0).done == {job}
    with pytest.raises(JobCancelled):
        job.result(0)


def test_other_code_may_have_declared_the_future_as_running() -> None:
    submissions = Submissions(Inbox().append, 100)
    job = submissions.add(Job(submissions, Portal("manager")), [b"a"], TERMS)
    job.set_running_or_notify_cancel()

    submissions.resolve(resolved(1, end=End.CANCELLED))

    with pytest.raises(JobCancelled):
        job.result(0)


class FailingSignal:
    """A signal that cannot be set once."""

    def __init__(self) -> None:
        self.failures = 1

    def set(self) -> None:
        if self.failures:
            self.failures -= 1
            raise MemoryError

    def clear(self) -> None:
        pass


@pytest.mark.parametrize("kind", [MapPipeline, UnorderedMap])
@pytest.mark.parametrize("arrived", [True, False])
def test_a_map_goes_on_after_a_delivery_that_raised(
    kind: type[MapPipeline], arrived: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(ids: object, payloads: object) -> None:
        raise MemoryError

    submissions, signal = Submissions(Inbox().append, 100), FailingSignal()
    pipeline = kind(
        submissions, [b"a", b"b"], TERMS, codec="bytes", in_flight=10, signal=signal, lenient=True
    )
    pipeline.fill()
    if not arrived:
        signal.failures = 0
        monkeypatch.setattr(pipeline, "_succeed", fail)

    with pytest.raises(MemoryError):
        submissions.resolve(resolved(1, 2))

    values = pipeline.take()
    if arrived:
        assert values == [b"r", b"r"]
    else:
        assert [type(value) for value in values] == [JobFailed, JobFailed]
    assert pipeline.finished


def test_actions_behind_one_that_is_interrupted_are_performed() -> None:
    done: list[Resolve] = []
    actions = [resolved(1), resolved(2), resolved(3)]

    class Machine:
        settings = None

        def handle(self, event: object, now: float) -> list[Resolve]:
            return actions

        def deadline(self) -> float | None:
            return None

    class Submitters:
        def resolve(self, action: Resolve) -> None:
            done.append(action)
            if action is actions[1]:
                raise KeyboardInterrupt

        def notify(self, action: object) -> None:
            pass

    async def main() -> None:
        inbox = DriverInbox()
        driver = Driver(
            Machine(),
            inbox,
            [],
            transport=Transport(),
            name="test",
            halted=lambda error: None,
            submitters=Submitters(),
        )
        driver.start()
        try:
            inbox.entries.append(Decline([], ""))  # type: ignore[arg-type] # any event
            with pytest.raises(KeyboardInterrupt):
                driver._turn()
            assert driver.running
            assert inbox.scheduled
            driver._halt(None)
        finally:
            driver.stop()

    asyncio.run(main())
    assert done == actions
