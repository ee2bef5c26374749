"""The ledger: numbers, owners, room, and submissions that gather in columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from wmp.actions import End, Notify, Resolve
from wmp.errors import ClosedError, JobCancelled, JobTimeout, QueueFull, WorkerLost
from wmp.events import Cancelled, Submitted
from wmp.message import Frame, Kind
from wmp.runtime.submission.submissions import (
    Ended,
    JobTerms,
    Status,
    Submissions,
    error_of,
    pack,
    value_of,
)

ORDER = JobTerms(Kind(), 0, None, 3)


class Keeper:
    """An owner that remembers what it was told."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.ended: dict[int, Any] = {}
        self.reports: list[Status] = []

    def given(self, first: int, count: int) -> None:
        self.ids.extend(range(first, first + count))

    def succeed(self, ids: Sequence[int], payloads: Sequence[Frame]) -> None:
        self.ended.update(zip(ids, [(End.OK, bytes(data)) for data in payloads], strict=True))

    def settle(self, rows: Sequence[Ended]) -> None:
        for id, end, payload, attempts in rows:
            row = (end, bytes(payload), attempts)
            self.ended[id] = row[:2] if end is End.OK else row

    def progress(self, id: int, status: Status) -> None:
        self.reports.append(status)

    def fail(self, id: int, error: Exception) -> None:
        self.ended[id] = error


class Inbox(list[Any]):
    """What was posted; ``taken`` is what the driver would see."""

    def taken(self) -> list[Any]:
        entries = [entry() if callable(entry) else entry for entry in self]
        self.clear()
        return entries


def resolved(*ids: int, end: End = End.OK) -> Resolve:
    return Resolve(ids, [end] * len(ids), [b"r"] * len(ids), [1] * len(ids))


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


def test_equal_orders_share_an_event_until_it_is_taken(inbox: Inbox) -> None:
    ledger, keeper = Submissions(inbox.append, 100), Keeper()
    ledger.add(keeper, [b"a"], ORDER)
    ledger.add(keeper, [b"b", b"c"], ORDER)

    (first,) = inbox.taken()
    ledger.add(keeper, [b"d"], ORDER)
    (second,) = inbox.taken()

    assert (list(first.ids), list(first.payloads)) == ([1, 2, 3], [b"a", b"b", b"c"])
    assert (list(second.ids), list(second.payloads)) == ([4], [b"d"])
    assert keeper.ids == [1, 2, 3, 4]


def test_other_orders_and_cancellations_end_a_gathering(inbox: Inbox) -> None:
    ledger, keeper = Submissions(inbox.append, 100), Keeper()
    urgent = JobTerms(Kind(), 5, None, 3)
    ledger.add(keeper, [b"a"], ORDER)
    ledger.add(keeper, [b"b"], urgent)
    ledger.add(keeper, [b"c"], ORDER)
    ledger.cancel([1])
    ledger.add(keeper, [b"d"], ORDER)

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


def test_a_full_ledger_adds_nothing_of_what_does_not_fit(inbox: Inbox) -> None:
    ledger, keeper = Submissions(inbox.append, 2), Keeper()
    ledger.add(keeper, [b"a"], ORDER)

    with pytest.raises(QueueFull) as caught:
        ledger.add(keeper, [b"b", b"c"], ORDER)

    assert caught.value.limit == 2
    assert keeper.ids == [1]
    assert len(ledger) == 1


def test_who_waits_for_room_is_woken_once_for_each_place(inbox: Inbox) -> None:
    ledger, keeper = Submissions(inbox.append, 2), Keeper()
    ledger.add(keeper, [b"a", b"b"], ORDER)
    woken: list[str] = []
    ledger.when_room(lambda: woken.append("one"))
    ledger.when_room(lambda: woken.append("two"))
    assert woken == []

    ledger.resolve(resolved(1))
    assert woken == ["one"]
    ledger.resolve(resolved(2))
    assert woken == ["one", "two"]
    ledger.when_room(lambda: woken.append("at once"))
    assert woken[-1] == "at once"


def test_a_waiter_that_gives_up_passes_its_turn_on(inbox: Inbox) -> None:
    ledger, keeper = Submissions(inbox.append, 1), Keeper()
    ledger.add(keeper, [b"a"], ORDER)
    woken: list[str] = []

    def first() -> None:
        woken.append("first")

    ledger.when_room(first)
    ledger.when_room(lambda: woken.append("second"))
    ledger.resolve(resolved(1))
    ledger.forget_waiter(first)

    assert woken == ["first", "second"]


def test_a_job_ends_once_and_strangers_are_ignored(inbox: Inbox) -> None:
    ledger, keeper = Submissions(inbox.append, 9), Keeper()
    ledger.add(keeper, [b"a"], ORDER)

    ledger.resolve(resolved(1, 77))
    ledger.resolve(resolved(1, end=End.LOST))

    assert keeper.ended == {1: (End.OK, b"r")}
    assert len(ledger) == 0
    assert ledger.cancel([1]) is False


def test_progress_reaches_the_owner(inbox: Inbox) -> None:
    ledger, keeper = Submissions(inbox.append, 9), Keeper()
    ledger.add(keeper, [b"a"], ORDER)

    ledger.notify(Notify(1, 0.5, "half"))
    ledger.notify(Notify(2, 0.5, "nobody's"))

    assert keeper.reports == [Status(0.5, "half")]


def test_closing_ends_jobs_and_waiters_and_takes_no_more(inbox: Inbox) -> None:
    ledger, keeper = Submissions(inbox.append, 1), Keeper()
    ledger.add(keeper, [b"a"], ORDER)
    woken: list[bool] = []
    ledger.when_room(lambda: woken.append(True))

    cause = RuntimeError("superseded by another")
    assert ledger.fail(cause) == [1]

    assert woken == [True]
    assert isinstance(keeper.ended[1], ClosedError)
    assert keeper.ended[1].__cause__ is cause
    with pytest.raises(ClosedError, match="superseded by another"):
        ledger.add(keeper, [b"b"], ORDER)


def test_bytes_payloads_are_bytes_or_text() -> None:
    assert pack(b"a", "bytes") == b"a"
    assert pack(bytearray(b"a"), "bytes") == b"a"
    assert pack("ä", "bytes") == "ä".encode()
    with pytest.raises(TypeError, match="codec='cbor'"):
        pack({"a": 1}, "bytes")


def test_cbor_payloads_are_values() -> None:
    value = {"a": [1, 2.5, None, b"x", "ä", True]}

    assert value_of(pack(value, "cbor"), "cbor") == value
    with pytest.raises(TypeError, match="not a CBOR value"):
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
    assert str(lost) == "job 3 was given up after 4 attempts, the last one at node-7:812: silence"


def test_a_key_in_progress_hands_in_nothing_until_it_has_ended(inbox: Inbox) -> None:
    ledger, first, second = Submissions(inbox.append, 100), Keeper(), Keeper()

    assert ledger.add(first, [b"a"], ORDER, key="k") is first
    assert ledger.add(second, [b"b"], ORDER, key="k") is first
    assert ledger.add(second, [b"c"], ORDER, key="other") is second
    assert [list(event.payloads) for event in inbox.taken()] == [[b"a", b"c"]]

    ledger.resolve(resolved(1))
    assert ledger.add(second, [b"d"], ORDER, key="k") is second
    assert [list(event.payloads) for event in inbox.taken()] == [[b"d"]]
    assert first.ended == {1: (End.OK, b"r")}


def test_keys_are_forgotten_with_their_jobs(inbox: Inbox) -> None:
    ledger, keeper = Submissions(inbox.append, 100), Keeper()
    ledger.add(keeper, [b"a"], ORDER, key="k")
    ledger.fail(ClosedError("closed"))
    assert not ledger._keys
    assert not ledger._key_of
