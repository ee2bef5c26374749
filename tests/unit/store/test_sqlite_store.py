"""The store on SQLite, call by call."""

from __future__ import annotations

import os

import pytest

from tests.unit.store.stores import KIND, START, TERMS, Client
from wmp.errors import InstanceEnded
from wmp.message import Kind
from wmp.retry import Retry, exponential
from wmp.store.contract import JobFilter
from wmp.store.job_terms import StoredTerms
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.write_batch import JobChanges, NewJobs, Reservation, WriteBatch

State, Input = StoredJobState, StoredJobInput
NOW = int(START * 1000)


# -- instances -------------------------------------------------------------------------------


@pytest.mark.rule("STORE-1.1")
def test_epochs_grow_though_the_clock_goes_back(store, clock):
    first = store.begin(b"m", "one")
    clock.jump(-3600)
    second = store.begin(b"m", "two")
    clock.jump(7200)
    third = store.begin(b"other", "three")

    assert len(store.identity) == 16
    assert first.epoch == NOW
    assert second.epoch == first.epoch + 1
    assert third.epoch == NOW + 3_600_000
    assert len({first.number, second.number, third.number}) == 3


@pytest.mark.rule("STORE-1.2")
def test_an_instance_ends_when_it_has_not_written_for_its_validity(store, other, clock):
    silent, busy = Client(store), Client(other)
    clock.move(14.9)
    busy.sweep()
    silent.apply()
    clock.move(14.9)
    busy.sweep()
    silent.apply()
    clock.move(15.1)
    busy.sweep()
    with pytest.raises(InstanceEnded, match="begin a new one"):
        silent.apply()


@pytest.mark.rule("STORE-1.3")
def test_a_batch_of_an_ended_instance_changes_nothing(store, other):
    first, two = Client(store), Client(other)
    (id,) = two.add(b"x")
    store.end(first.me)
    store.end(first.me)
    with pytest.raises(InstanceEnded):
        first.apply(
            adds=[NewJobs(KIND, TERMS, [next(first.ids)], [b"y"])],
            changes=[JobChanges(Input.CANCEL, [id])],
        )
    assert [job.id for job in store.list()] == [id]
    assert two.job(id).state is State.QUEUED


@pytest.mark.rule("STORE-1.4", "STORE-1.5")
@pytest.mark.parametrize("how", ["end", "killed", "silent"])
def test_the_jobs_of_an_ended_instance_lapse_after_the_grace(store, other, clock, how):
    first, two = Client(store), Client(other)
    ids = two.add(b"a", b"b")
    assert first.reserve().ids == ids
    if how == "end":
        store.end(first.me)
    elif how == "killed":
        store._locks[first.me.number].close()  # the system closes it with the process
        two.sweep()
    else:
        clock.move(15.1)
        two.sweep()
    clock.move(9.9)
    two.sweep()
    assert [two.job(id).state for id in ids] == [State.RESERVED] * 2

    clock.move(0.2)
    assert two.sweep() == []
    reserved = two.reserve()
    assert (reserved.ids, reserved.attempts, reserved.lost) == (ids, [2, 2], [0, 0])


@pytest.mark.rule("STORE-1.5")
def test_no_job_lapses_before_workers_can_reach_an_instance_that_begins_late(store, other, clock):
    first = Client(store)
    ids = first.add(b"a")
    assert first.reserve().ids == ids
    store.end(first.me)
    clock.move(3600.0)
    two = Client(other)
    clock.move(9.9)
    assert two.sweep() == [] == two.reserve().ids
    clock.move(0.2)
    assert (two.sweep(), two.reserve().ids) == ([], ids)


@pytest.mark.rule("STORE-9.4")
def test_a_killed_process_is_noticed_at_once_and_a_living_one_is_left_alone(store, other, tmp_path):
    first, two = Client(store), Client(other)
    two.sweep()
    first.apply()
    store._locks[first.me.number].close()
    two.sweep()
    with pytest.raises(InstanceEnded):
        first.apply()
    assert os.listdir(tmp_path / "jobs.db-instances") == [str(two.me.number)]


# -- the lifecycle ---------------------------------------------------------------------------


@pytest.mark.rule("STORE-2.2", "STORE-2.3")
def test_a_result_counts_in_the_current_attempt_whoever_reserved_the_job(store, other):
    first, two = Client(store), Client(other)
    (id,) = first.add(b"x")
    assert first.reserve().attempts == [1]

    assert two.change(Input.SUCCEED, [id], [2], payloads=[b"no"]) == [State.RESERVED]
    assert two.job(id).result is None
    assert two.change(Input.SUCCEED, [id], [1], payloads=[b"yes"]) == [State.OK]
    assert first.change(Input.FAIL, [id], [1], payloads=[b"late"]) == [State.OK]
    assert first.job(id).result == b"yes"


@pytest.mark.rule("STORE-2.2")
def test_the_answer_has_the_state_of_each_job_also_when_some_changed(store):
    client = Client(store)
    ids = client.add(*[b"x"] * 4)
    client.reserve(3)
    client.change(Input.SUCCEED, ids[:1], [1], payloads=[b"r"])
    changes = JobChanges(Input.RELEASE, [*ids, 999], [1, 1, 7, 1, 1])
    answer = client.apply(changes=[changes]).changes[0]

    expected = [State.OK, State.QUEUED, State.RESERVED, State.QUEUED, State.ABSENT]
    assert (answer.states, answer.attempts) == (expected, [1, 0, 1, 0, 0])


@pytest.mark.rule("STORE-2.5")
def test_one_failure_that_comes_twice_counts_once(store, other):
    first, two = Client(store), Client(other)
    (id,) = first.add(b"x")
    first.reserve()
    assert first.change(Input.AGAIN, [id], [1], waits_ms=[500]) == [State.QUEUED]
    assert two.change(Input.AGAIN, [id], [1], waits_ms=[500]) == [State.QUEUED]
    assert two.change(Input.FAIL, [id], [1], payloads=[b"e"]) == [State.QUEUED]
    job = two.job(id)
    assert (job.failed, job.due, job.attempt) == (1, NOW + 500, 1)


@pytest.mark.rule("STORE-2.6")
@pytest.mark.parametrize("what", [Input.REPEAT, Input.RELEASE, Input.SPEND, Input.AGAIN])
def test_a_cancelled_job_ends_where_another_would_be_queued(store, what):
    client = Client(store)
    (id,) = client.add(b"x")
    client.reserve()
    assert client.change(Input.CANCEL, [id]) == [State.CANCELLING]
    assert client.change(what, [id], [1]) == [State.CANCELLED]
    assert client.reserve().ids == []


def test_a_queued_job_is_cancelled_at_once_and_a_result_may_come_before_the_answer(store):
    client = Client(store)
    first, second = client.add(b"x", b"y")
    client.reserve(1)
    assert client.change(Input.CANCEL, [first, second]) == [State.CANCELLING, State.CANCELLED]
    assert client.change(Input.SUCCEED, [first], [1], payloads=[b"r"]) == [State.OK]


def test_an_instance_keeps_or_releases_an_attempt_that_is_over(store):
    client = Client(store)
    (id,) = client.add(b"x")
    client.reserve()
    assert client.change(Input.REPEAT, [id], [1], costs=[1]) == [State.RESERVED]
    assert client.change(Input.REPEAT, [id], [1], costs=[1]) == [State.RESERVED]
    assert (client.job(id).attempt, client.job(id).lost) == (2, 1)
    assert client.change(Input.RELEASE, [id], [2], costs=[1], waits_ms=[1000]) == [State.QUEUED]
    assert client.job(id).lost == 2
    reserved = client.reserve()
    assert (reserved.ids, reserved.next_due) == ([], NOW + 1000)
    assert client.change(Input.SPEND, [id], [2], costs=[1]) == [State.QUEUED]


def test_a_spent_job_is_a_dead_letter_with_its_cause(store):
    client = Client(store)
    (id,) = client.add(b"x")
    client.reserve()
    assert client.change(Input.SPEND, [id], [1], costs=[1], payloads=[b"w\nsilence"]) == [
        State.LOST
    ]
    assert (client.job(id).result, client.job(id).lost) == (b"w\nsilence", 1)


@pytest.mark.rule("STORE-2.4")
def test_an_attempt_is_adopted_only_when_its_instance_has_ended(store, other, clock):
    first, two = Client(store), Client(other)
    ids = first.add(b"x", b"y", b"z")
    first.reserve(2)
    two.change(Input.CANCEL, ids[1:2])
    assert two.change(Input.ADOPT, ids, [1, 1, 1]) == [
        State.RESERVED,
        State.CANCELLING,
        State.QUEUED,
    ]
    assert {two.job(id).instance for id in ids} == {first.me.number, None}
    store.end(first.me)
    two.change(Input.ADOPT, ids[:2], [1, 1])
    assert [two.job(id).instance for id in ids[:2]] == [two.me.number] * 2
    assert [two.job(id).attempt for id in ids[:2]] == [1, 1]
    # After the lapse too, as long as nobody has reserved the job anew.
    three = Client(other)
    other.end(two.me)
    clock.move(11)
    three.sweep()
    assert three.change(Input.ADOPT, ids[:2], [1, 1]) == [State.RESERVED, State.CANCELLED]


@pytest.mark.rule("STORE-2.7")
def test_jobs_are_reserved_by_priority_then_time_then_number(store, clock):
    client = Client(store)
    low = client.add(b"a", b"b")
    late = client.add(b"c", delay_ms=2000)
    client.add(b"d", expires_in_ms=1000)
    client.add(b"e", timeout_ms=1000)
    clock.move(1)
    soon = client.add(b"f", delay_ms=500)
    high = client.add(b"g", priority=5)
    other_kind = client.add(b"h", kind=Kind("wc"))
    clock.move(2)
    reserved = client.reserve()
    assert reserved.ids == [*high, *low, *soon, *late]
    assert reserved.priorities == [5, 0, 0, 0, 0]
    assert client.reserve(kind=Kind("wc")).ids == other_kind
    assert client.reserve(kind=Kind("never")).ids == []
    client.change(Input.RELEASE, [*soon, *low], [1, 1, 1])
    assert client.reserve().ids == [*low, *soon]


# -- batches ---------------------------------------------------------------------------------


@pytest.mark.rule("STORE-3.2")
def test_the_parts_of_a_batch_take_effect_in_their_order(store):
    client = Client(store)
    first, second = client.add(b"a", b"b")
    client.reserve(1)
    answer = client.apply(
        reservations=[Reservation(KIND, 9, 999)],
        changes=[
            JobChanges(Input.RELEASE, [first], [1]),
            JobChanges(Input.CANCEL, [second]),
            JobChanges(Input.FORGET, [second]),
        ],
        adds=[NewJobs(KIND, TERMS, [50, 51], [b"c", b"d"])],
        block=True,
    )
    assert answer.reserved[0].ids == [first, 50, 51]
    assert answer.changes[2].states == [State.ABSENT]
    assert answer.block is not None
    assert answer.block[0] > client.me.block[-1]


@pytest.mark.rule("STORE-3.3", "STORE-3.4")
def test_a_batch_that_is_given_again_is_answered_and_not_applied(store, other):
    client, two = Client(store), Client(other)
    (running,) = client.add(b"r", keys=["k"])
    client.reserve()
    batch = WriteBatch(
        adds=[NewJobs(KIND, TERMS, [5, 6, 7], [b"a", b"b", b"c"], keys=[None, "k", "new"])],
        changes=[JobChanges(Input.AGAIN, [running], [1])],
        reservations=[Reservation(KIND, 9, 999)],
        block=True,
    )
    first = store.apply(client.me, 3, batch)
    two.change(Input.CANCEL, [7])
    again = store.apply(client.me, 3, batch)

    assert (first.repeated, again.repeated) == (False, True)
    assert (first.adds[0].ids, again.adds[0].ids) == ([5, running, 7], [5, running, 7])
    assert again.adds[0].states == [State.RESERVED, State.RESERVED, State.CANCELLING]
    assert again.changes[0].attempts == [2]
    assert (again.reserved, again.block) == ((), None)
    assert client.job(running).failed == 1
    held = store.list(JobFilter(instance=client.me.number))
    assert [job.id for job in held] == first.reserved[0].ids == [running, 5, 7]


@pytest.mark.rule("STORE-3.4")
@pytest.mark.parametrize("number", [0, 1, 4])
def test_a_batch_with_a_wrong_number_is_an_error_of_the_caller(store, number):
    client = Client(store)
    client.apply()
    client.apply()
    with pytest.raises(ValueError, match="expected 2 again, or 3"):
        store.apply(client.me, number, WriteBatch())


@pytest.mark.parametrize("what", [Input.ADD, Input.RESERVE, Input.LAPSE, Input.EXPIRE, Input.PURGE])
def test_a_batch_has_no_changes_that_the_store_makes_itself(store, what):
    client = Client(store)
    with pytest.raises(ValueError, match=what.name):
        client.change(what, [1])


@pytest.mark.rule("STORE-3.5")
def test_a_reservation_is_bounded_by_jobs_and_bytes(store):
    client = Client(store)
    ids = client.add(b"x" * 10, b"y" * 2000, b"z" * 10)
    first = client.reserve(3, 100)
    assert (first.ids, first.payloads, first.more) == (ids[:1], [b"x" * 10], True)
    second = client.reserve(3, 100)
    assert (second.ids, second.payloads) == (ids[1:2], [b"y" * 2000])
    third = client.reserve(1)
    assert (third.ids, third.more, third.next_due) == (ids[2:], False, None)
    client.add(b"x", b"y")
    assert client.reserve(1).more
    client.add(b"later", delay_ms=700)
    assert client.reserve(1).next_due == NOW + 700


def test_jobs_are_reserved_with_their_add_if_none_of_the_kind_waits(store):
    client = Client(store)
    assert client.add(b"a", reserve=True, delay_ms=5) == [1]
    ids = client.add(b"b", b"c", reserve=True)
    assert [client.job(id).state for id in ids] == [State.RESERVED] * 2
    assert [client.job(id).attempt for id in ids] == [1, 1]
    client.add(b"d")
    (waiting,) = client.add(b"e", reserve=True)
    assert client.job(waiting).state is State.QUEUED


# -- times -----------------------------------------------------------------------------------


@pytest.mark.rule("STORE-4.1", "STORE-4.4")
def test_times_of_a_delayed_job_count_from_its_start(store, clock):
    client = Client(store)
    (id,) = client.add(b"x", delay_ms=1000, timeout_ms=3000, expires_in_ms=2000)
    job = client.job(id)
    assert (job.created, job.due) == (NOW, NOW + 1000)
    assert (job.deadline_ms, job.expires_at_ms) == (NOW + 4000, NOW + 3000)
    clock.move(1)
    reserved = client.reserve()
    assert (reserved.deadlines_ms, reserved.expires_at_ms) == ([NOW + 4000], [NOW + 3000])


@pytest.mark.rule("STORE-4.5")
def test_a_sweep_ends_jobs_whose_time_has_passed(store, clock):
    client = Client(store)
    (expired,) = client.add(b"a", expires_in_ms=1000)
    (overdue,) = client.add(b"b", timeout_ms=1000)
    begun, running = client.add(b"c", b"d", timeout_ms=1000, expires_in_ms=500, priority=1)
    client.reserve(2)
    client.change(Input.SUCCEED, [begun], [1], payloads=[b""])
    clock.move(0.9)
    assert client.sweep() == []
    clock.move(0.2)
    swept = client.sweep()
    assert {(job.id, job.state) for job in swept} == {
        (id, State.TIMEOUT) for id in (expired, overdue, running)
    }
    assert client.job(begun).state is State.OK


@pytest.mark.rule("STORE-4.5")
def test_the_deadline_of_a_reserved_job_belongs_to_its_instance_while_that_lives(
    store, other, clock
):
    first, two = Client(store), Client(other)
    ids = two.add(b"a", b"b", timeout_ms=1000)
    first.reserve(1)
    clock.move(2)
    assert [job.id for job in two.sweep()] == ids[1:]
    assert two.job(ids[0]).state is State.RESERVED
    assert [job.id for job in first.sweep()] == ids[:1]


@pytest.mark.rule("STORE-4.5")
def test_a_sweep_has_a_limit(store, clock):
    client = Client(store)
    client.add(*[b"x"] * 5, timeout_ms=1)
    clock.move(1)
    assert len(client.sweep(3)) == 3
    assert len(client.sweep(3)) == 2


@pytest.mark.rule("STORE-4.2", "STORE-4.3")
@pytest.mark.parametrize("jump", [3600, -3600])
def test_a_jump_of_the_clock_ends_no_living_instance(store, other, clock, jump):
    first, two = Client(store), Client(other)
    ids = first.add(b"x", b"y")
    first.reserve(1)
    clock.jump(jump)
    two.sweep()
    clock.move(14)
    first.apply()
    two.sweep()
    assert two.reserve().ids == ids[1:]
    assert first.change(Input.SUCCEED, ids[:1], [1], payloads=[b"r"]) == [State.OK]
    # After that time the validity counts again.
    clock.move(16)
    two.sweep()
    with pytest.raises(InstanceEnded):
        first.apply()


# -- numbers, kinds, terms -------------------------------------------------------------------


@pytest.mark.rule("STORE-5.1")
def test_blocks_of_numbers_do_not_overlap(store, other):
    blocks = [Client(part).me.block for part in (store, other, store)]
    client = Client(other)
    block = client.apply(block=True).block
    assert block is not None
    blocks_seen = [*blocks, client.me.block, block]
    assert [len(part) for part in blocks_seen] == [65_536] * 5
    assert len({part.start for part in blocks_seen}) == 5


@pytest.mark.rule("STORE-5.2")
def test_an_add_whose_number_is_stored_changes_nothing(store):
    client = Client(store)
    (id,) = client.add(b"old", b"x")[:1]
    for payload in (b"new", b"n" * 1000):
        new = NewJobs(KIND, TERMS, [id, 70], [payload, b"y"])
        answer = client.apply(adds=[new])
        assert list(answer.adds[0].ids) == [id, 70]
    assert client.job(id).payload == b"old"


@pytest.mark.rule("STORE-5.3")
def test_kinds_and_terms_are_given_back_equal(store, other):
    kinds = [
        Kind("a"),
        Kind("a", (("gpu", 2), ("slots", 1)), "cbor", checksum=True),
        Kind("", (), "x"),
    ]
    terms = [
        StoredTerms(),
        StoredTerms(9, 1.5, Retry(2, on=("a.B", ValueError), backoff=exponential(1, 9, 3)), 1, 2),
    ]
    client = Client(store)
    for kind in kinds:
        for term in terms:
            client.add(b"x", kind=kind, terms=term)
    jobs = other.list()
    assert [job.kind for job in jobs] == [kind for kind in kinds for _ in terms]
    plain, special = jobs[0].terms, jobs[1].terms
    assert plain == StoredTerms()
    assert (
        special.max_worker_losses,
        special.run_limit,
        special.keep_ms,
        special.keep_dead_ms,
    ) == (
        9,
        1.5,
        1,
        2,
    )
    assert special.retry is not None
    assert special.retry.names == {"a.B", "builtins.ValueError"}
    assert special.retry.backoff == exponential(1, 9, 3)
    again = Client(other)
    again.add(b"x", kind=kinds[1], terms=special)
    assert other.list()[-1].terms == special


@pytest.mark.rule("STORE-5.4")
def test_payloads_results_and_keys_are_given_back_byte_for_byte(store, other):
    payloads = [b"", b"\x00\xff", b"x" * 512, b"y" * 513, bytes(100_000)]
    client = Client(store)
    ids = client.add(*payloads, keys=["", "\u00e4 \x01", "k" * 300, None, "K"])
    reserved = client.reserve()
    assert reserved.payloads == payloads
    client.change(
        Input.SUCCEED, ids, [1] * 5, payloads=[memoryview(payload) for payload in payloads]
    )
    jobs = other.list(payloads=True)
    assert [job.payload for job in jobs] == [job.result for job in jobs] == payloads
    assert [job.key for job in jobs] == ["", "\u00e4 \x01", "k" * 300, None, "K"]
