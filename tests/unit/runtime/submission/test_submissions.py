"""Pending jobs: numbers, owners, limits, and submissions that are collected in columns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from wmp import codec
from wmp.actions import End, Notify, Resolve
from wmp.errors import ClosedError, ConfigError, JobCancelled, JobTimeout, QueueFull, WorkerLost
from wmp.events import Cancelled, Submitted
from wmp.message import Frame, Kind
from wmp.runtime.codecs.payload_codecs import pack
from wmp.runtime.driver.inbox import JobTerms, OpenSubmission
from wmp.runtime.submission.results import Ended, Status, error_of, result_of
from wmp.runtime.submission.submissions import Submissions
from wmp.runtime.submission.time_limits import TimeLimits

TERMS = JobTerms(Kind(), 0, None, 3)


class Keeper:
    """An owner that records its notifications."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.ended: dict[int, Any] = {}
        self.undelivered: dict[int, BaseException] = {}
        self.reports: list[Status] = []

    def _given(self, first: int, count: int) -> None:
        self.ids.extend(range(first, first + count))

    def _succeed(self, ids: Sequence[int], payloads: Sequence[Frame]) -> None:
        self.ended.update(zip(ids, [(End.OK, bytes(data)) for data in payloads], strict=True))

    def _settle(self, rows: Sequence[Ended]) -> None:
        for id, end, payload, attempts in rows:
            row = (end, bytes(payload), attempts)
            self.ended[id] = end if isinstance(end, Exception) else row[: 3 - (end is End.OK)]

    def _undelivered(self, ids: Sequence[int], error: BaseException) -> None:
        self.undelivered.update(dict.fromkeys(ids, error))

    def _progress(self, id: int, status: Status) -> None:
        self.reports.append(status)


class Inbox(list[Any]):
    """Records posted items; ``taken`` returns them as the driver would get them."""

    def taken(self) -> list[Any]:
        entries = [entry.seal() if isinstance(entry, OpenSubmission) else entry for entry in self]
        self.clear()
        return entries


def resolved(*ids: int, end: End = End.OK) -> Resolve:
    return Resolve(ids, [end] * len(ids), [b"r"] * len(ids), [1] * len(ids))


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


def test_equal_orders_share_an_event_until_it_is_taken(inbox: Inbox) -> None:
    submissions, keeper = Submissions(inbox.append, 100), Keeper()
    submissions.add(keeper, [b"a"], TERMS)
    submissions.add(keeper, [b"b", b"c"], TERMS)

    (first,) = inbox.taken()
    submissions.add(keeper, [b"d"], TERMS)
    (second,) = inbox.taken()

    assert (list(first.ids), list(first.payloads)) == ([1, 2, 3], [b"a", b"b", b"c"])
    assert (list(second.ids), list(second.payloads)) == ([4], [b"d"])
    assert keeper.ids == [1, 2, 3, 4]


def test_each_job_keeps_the_time_at_which_its_submitter_called(inbox: Inbox) -> None:
    submissions, keeper = Submissions(inbox.append, 100), Keeper()
    submissions.add(keeper, [b"a"], TERMS, called=1.5)
    submissions.add(keeper, [b"b", b"c"], TERMS, called=2.5)
    before = time.monotonic()
    submissions.add(keeper, [b"d"], TERMS)

    (event,) = inbox.taken()

    assert event.called[:3] == [1.5, 2.5, 2.5]
    assert before <= event.called[3] <= time.monotonic()
    submissions.add(keeper, [b"e"], TERMS, called=9.0)
    assert inbox.taken()[0].called == [9.0]


def test_other_orders_and_cancellations_end_a_gathering(inbox: Inbox) -> None:
    submissions, keeper = Submissions(inbox.append, 100), Keeper()
    urgent = JobTerms(Kind(), 5, None, 3)
    submissions.add(keeper, [b"a"], TERMS)
    submissions.add(keeper, [b"b"], urgent)
    submissions.add(keeper, [b"c"], TERMS)
    submissions.cancel([1])
    submissions.add(keeper, [b"d"], TERMS)

    events = inbox.taken()

    assert [type(event) for event in events] == [
        Submitted,
        Submitted,
        Submitted,
        Cancelled,
        Submitted,
    ]
    assert [list(event.ids) for event in events] == [[1], [2], [3], [1], [4]]
    assert [event.priority for event in events if isinstance(event, Submitted)] == [0, 5, 0, 0]


def test_jobs_that_do_not_all_fit_are_not_added_at_all(inbox: Inbox) -> None:
    submissions, keeper = Submissions(inbox.append, 2), Keeper()
    submissions.add(keeper, [b"a"], TERMS)

    with pytest.raises(QueueFull) as caught:
        submissions.add(keeper, [b"b", b"c"], TERMS)

    assert caught.value.limit == 2
    assert keeper.ids == [1]
    assert len(submissions) == 1


def test_the_bytes_of_payloads_are_bounded_and_free_again_when_jobs_end(inbox: Inbox) -> None:
    submissions, keeper = Submissions(inbox.append, 100, max_bytes=3000), Keeper()
    submissions.add(keeper, [bytes(2000), bytes(10)], TERMS)
    # This job is accepted, because the earlier jobs have fewer bytes than the limit.
    submissions.add(keeper, [bytes(5000)], TERMS)
    woken: list[str] = []

    with pytest.raises(QueueFull, match=r"holds 3000 bytes, .* raise max_bytes"):
        submissions.add(keeper, [b"tiny"], TERMS)
    assert submissions.free == 0
    submissions.when_free(lambda: woken.append("now"))
    submissions.resolve(resolved(1, 2))
    assert not woken
    submissions.resolve(resolved(3))
    assert woken == ["now"]
    assert submissions.free == 100


def test_small_payloads_count_as_jobs_alone(inbox: Inbox) -> None:
    submissions, keeper = Submissions(inbox.append, 100, max_bytes=1), Keeper()
    for _ in range(50):
        submissions.add(keeper, [bytes(512)], TERMS)
    assert submissions.free == 50


def test_one_waiting_submitter_is_woken_for_each_free_place(inbox: Inbox) -> None:
    submissions, keeper = Submissions(inbox.append, 2), Keeper()
    submissions.add(keeper, [b"a", b"b"], TERMS)
    woken: list[str] = []
    submissions.when_free(lambda: woken.append("one"))
    submissions.when_free(lambda: woken.append("two"))
    assert woken == []

    submissions.resolve(resolved(1))
    assert woken == ["one"]
    submissions.resolve(resolved(2))
    assert woken == ["one", "two"]
    submissions.when_free(lambda: woken.append("at once"))
    assert woken[-1] == "at once"


def test_a_waiter_that_gives_up_passes_its_turn_on(inbox: Inbox) -> None:
    submissions, keeper = Submissions(inbox.append, 1), Keeper()
    submissions.add(keeper, [b"a"], TERMS)
    woken: list[str] = []

    def first() -> None:
        woken.append("first")

    submissions.when_free(first)
    submissions.when_free(lambda: woken.append("second"))
    submissions.resolve(resolved(1))
    submissions.forget_waiter(first)

    assert woken == ["first", "second"]


def test_a_job_ends_once_and_strangers_are_ignored(inbox: Inbox) -> None:
    submissions, keeper = Submissions(inbox.append, 9), Keeper()
    submissions.add(keeper, [b"a"], TERMS)

    submissions.resolve(resolved(1, 77))
    submissions.resolve(resolved(1, end=End.LOST))

    assert keeper.ended == {1: (End.OK, b"r")}
    assert len(submissions) == 0
    assert submissions.cancel([1]) is False


def test_progress_reaches_the_owner(inbox: Inbox) -> None:
    submissions, keeper = Submissions(inbox.append, 9), Keeper()
    submissions.add(keeper, [b"a"], TERMS)

    submissions.notify(Notify(1, 0.5, "half"))
    submissions.notify(Notify(2, 0.5, "nobody's"))

    assert keeper.reports == [Status(0.5, "half")]


def test_closing_ends_jobs_and_waiters_and_takes_no_more(inbox: Inbox) -> None:
    submissions, keeper = Submissions(inbox.append, 1), Keeper()
    submissions.add(keeper, [b"a"], TERMS)
    woken: list[bool] = []
    submissions.when_free(lambda: woken.append(True))

    cause = RuntimeError("superseded by another")
    assert submissions.fail(cause) == [1]

    assert woken == [True]
    assert isinstance(keeper.ended[1], ClosedError)
    assert keeper.ended[1].__cause__ is cause
    with pytest.raises(ClosedError, match="superseded by another"):
        submissions.add(keeper, [b"b"], TERMS)


def test_bytes_payloads_are_bytes_or_text() -> None:
    assert pack(b"a", "bytes") == b"a"
    assert pack(bytearray(b"a"), "bytes") == b"a"
    assert pack("ä", "bytes") == "ä".encode()
    with pytest.raises(TypeError, match="codec='cbor'"):
        pack({"a": 1}, "bytes")


def test_cbor_payloads_are_values() -> None:
    value = {"a": [1, 2.5, None, b"x", "ä", True]}

    assert result_of(1, pack(value, "cbor"), "cbor") == (value, None)
    with pytest.raises(TypeError, match="cannot be encoded by codec 'cbor'"):
        pack(object(), "cbor")


def test_ends_become_the_errors_of_their_names() -> None:
    cancelled = error_of(3, End.CANCELLED, b"", 1)
    lost = error_of(3, End.LOST, b"node-7:812\nsilence", 4)

    assert isinstance(cancelled, JobCancelled)
    assert cancelled.may_have_started
    assert isinstance(error_of(3, End.TIMEOUT, b"", 0), JobTimeout)
    assert isinstance(lost, WorkerLost)
    assert (lost.attempts, lost.host, lost.cause) == (4, "node-7:812", "silence")
    assert lost.job_id == 3
    assert str(lost) == "job 3 was lost after 4 attempts, the last at worker node-7:812: silence"


def test_the_text_of_a_workers_exception_keeps_its_lines_and_no_control_characters() -> None:
    payload = codec.pack_error("E\x1b[1m", "one\n\ttwo\x07", "Traceback\n  \x9b2J")
    failed = error_of(3, End.ERROR, payload, 1)

    assert str(failed) == "E\\x1b[1m: one\n\ttwo\\x07"
    assert failed.__notes__ == ["at the worker:\nTraceback\n  \\x9b2J"]


def test_a_key_in_progress_hands_in_nothing_until_it_has_ended(inbox: Inbox) -> None:
    submissions, first, second = Submissions(inbox.append, 100), Keeper(), Keeper()

    assert submissions.add(first, [b"a"], TERMS, key="k") is first
    assert submissions.add(second, [b"b"], TERMS, key="k") is first
    assert submissions.add(second, [b"c"], TERMS, key="other") is second
    assert [list(event.payloads) for event in inbox.taken()] == [[b"a", b"c"]]

    submissions.resolve(resolved(1))
    assert submissions.add(second, [b"d"], TERMS, key="k") is second
    assert [list(event.payloads) for event in inbox.taken()] == [[b"d"]]
    assert first.ended == {1: (End.OK, b"r")}


def test_keys_are_forgotten_with_their_jobs(inbox: Inbox) -> None:
    submissions, keeper = Submissions(inbox.append, 100), Keeper()
    submissions.add(keeper, [b"a"], TERMS, key="k")
    submissions.fail(ClosedError("closed"))
    assert not submissions._table.keys


def test_a_start_time_is_seconds_from_now() -> None:
    soon = time.time() + 100

    assert 99 < TimeLimits(start_at=soon).wait() <= 100
    assert 99 < TimeLimits(start_at=datetime.fromtimestamp(soon, UTC)).wait() <= 100
    assert TimeLimits(start_at=soon - 200).wait() == 0.0
    assert TimeLimits(delay=5).wait() == 5


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ({"delay": -1}, "delay is .*; expected a number of seconds"),
        ({"delay": 1, "start_at": 5}, "give one of them"),
        ({"start_at": True}, "start_at is True; expected a datetime or seconds since 1970"),
        ({"start_at": float("nan")}, "start_at is nan"),
        ({"start_at": "now"}, "start_at is 'now'; expected a datetime"),
        ({"start_at": 1e300}, "the time until start_at is .*; expected a number of seconds"),
        ({"expires": 0}, "expires is 0; expected a number of seconds, more than 0"),
    ],
)
def test_a_wrong_time_is_refused(times: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        TimeLimits(**times).check()
