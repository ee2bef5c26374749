"""The transactions of dispatchers, on SQLite and on the store in memory."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from tests.unit.dispatcher.dispatchers import SETTINGS, World
from tests.unit.store.stores import Client
from wmp.dispatcher.job_document import date_text, handler_input, id_text, number_of
from wmp.dispatcher.records import WorkerRecord, worker_number
from wmp.dispatcher.settings import settings_of
from wmp.dispatcher.steps.callback_steps import EndCallback, Sweep, TakeCallbacks
from wmp.dispatcher.steps.checking import EndCancelled
from wmp.dispatcher.steps.job_steps import CancelJob, read_job
from wmp.dispatcher.steps.placing import Assign, share
from wmp.dispatcher.steps.refusals import RefusedPost, TakeBack
from wmp.dispatcher.steps.unserved import LookForUnserved, why_queued
from wmp.dispatcher.steps.worker_steps import Resign
from wmp.errors import ConfigError, InstanceEnded
from wmp.store.stored_job import StoredJobInput

COOL = attrs.evolve(SETTINGS, cooldown_period=2000)


@pytest.mark.rule("DSP-3.1", "DSP-3.2", "DSP-3.3", "DSP-2.1")
def test_the_first_dispatcher_that_saves_d_wins(world: World) -> None:
    first, second = world.party(COOL), world.party(COOL)
    assert first.me.number != second.me.number
    first.register()
    job = first.create()
    assert first.status(job) == "q"
    assert first.place().cooling == [(job, 1)]
    assert second.place().cooling == []
    assert first.status(job) == "d"
    assert first.document(job)["dispatched_by"] == first.me.number
    assert second.run(Assign(COOL, [(job, 1)])).assignments == []
    (given,) = first.run(Assign(COOL, [(job, 1)])).assignments
    assert (given.id, given.attempt) == (job, 1)
    assert first.status(job) == "r"
    assert first.run(Assign(COOL, [(job, 1)])).assignments == []


def test_a_job_in_d_that_was_queued_again_is_not_dispatched_by_its_first_dispatcher(
    world: World,
) -> None:
    first, second = world.party(COOL), world.party(COOL)
    first.register()
    job = first.create()
    first.place()
    world.die(first)
    second.check()
    assert second.status(job) == "q"
    with pytest.raises(InstanceEnded):
        first.run(Assign(COOL, [(job, 1)]))


@pytest.mark.rule("DSP-3.4")
def test_the_transaction_chooses_the_worker_with_the_most_free_places(world: World) -> None:
    party = world.party()
    small, large = party.register(1, 1), party.register(2, 3)
    other = party.register(3, 9, "other")
    for _ in range(6):
        party.create()
    given = [assignment.worker.id for assignment in party.place().assignments]
    assert given.count(large) == 3
    assert given.count(small) == 1
    assert given[:2] == [large, large]
    assert other not in given
    assert party.place().assignments == []


@pytest.mark.rule("DSP-3.4")
def test_two_dispatchers_together_never_exceed_max_jobs(world: World) -> None:
    first, second = world.party(COOL), world.party(COOL)
    worker = first.register(places=2)
    for _ in range(4):
        first.create()
    mine, others = first.place().cooling, second.place().cooling
    assert len(mine) == len(others) == 2
    first.run(Assign(COOL, mine))
    assert second.run(Assign(COOL, others)).assignments == []
    assert len(first.worker(worker).jobs) == 2  # type: ignore[union-attr]


@pytest.mark.rule("DSP-3.5")
def test_a_job_without_a_place_is_queued_at_no_cost(world: World) -> None:
    party = world.party(COOL)
    worker = party.register()
    job = party.create()
    party.place()
    party.run(Resign(COOL, worker))
    assert party.run(Assign(COOL, [(job, 1)])).assignments == []
    assert party.status(job) == "q"
    party.register(9)
    assert party.place().cooling == [(job, 1)]


@pytest.mark.rule("DSP-3.6")
def test_a_job_that_is_d_for_too_long_is_queued(world: World) -> None:
    party = world.party(COOL)
    party.register()
    job = party.create()
    party.place()
    party.check()
    assert party.status(job) == "d"
    for _ in range(3):  # the instance stays valid
        world.clock.move(10.5)
        party.check()
    assert party.status(job) == "q"


@pytest.mark.rule("DSP-3.7")
@pytest.mark.parametrize(
    ("count", "free", "wants", "expected"),
    [
        (5, [2, 1], [], 3),
        (1, [2], [3], 0),
        (1, [3], [3], 1),
        (4, [3], [2], 3),
        (9, [3], [2, 2], 3),
        (2, [], [1], 0),
    ],
)
def test_a_waiting_request_counts_as_free_places(
    count: int, free: list[int], wants: list[int], expected: int
) -> None:
    assert share(count, free, wants) == expected


@pytest.mark.rule("DSP-3.9")
def test_a_refused_job_is_queued_and_its_worker_pauses(world: World) -> None:
    party = world.party()
    worker = party.register()
    job = party.create()
    party.place()
    party.run(TakeBack(SETTINGS, job, 1, RefusedPost("503")))
    assert party.status(job) == "q"
    assert party.place().assignments == []
    world.clock.move(1.1)
    (given,) = party.place().assignments
    assert (given.worker.id, given.attempt) == (worker, 2)
    assert not party.finish(job, 1)
    assert party.finish(job, 2)


@pytest.mark.rule("DSP-3.10")
def test_a_completion_counts_at_any_dispatcher_once(world: World) -> None:
    first, second = world.party(), world.party()
    worker = first.register()
    job = first.create()
    first.place()
    assert not second.finish(job, 2)
    assert second.finish(job, 1, "s", json.dumps({"ok": 1}).encode())
    assert not first.finish(job, 1)
    assert first.document(job)["result"] == {"ok": 1}
    assert first.status(job) == "s"
    assert first.worker(worker).jobs == ()  # type: ignore[union-attr]


@pytest.mark.rule("DSP-4.1")
def test_a_dispatcher_takes_over_what_a_dead_one_had_running(world: World) -> None:
    first, second = world.party(), world.party()
    first.register()
    job = first.create()
    first.place()
    world.die(first)
    second.check()
    assert second.status(job) == "r"
    assert second.document(job)["dispatched_by"] == second.me.number
    assert second.finish(job, 1)


@pytest.mark.rule("DSP-4.2")
def test_a_job_that_left_the_list_is_put_back_if_the_worker_confirms(world: World) -> None:
    party = world.party()
    worker = party.register(places=2)
    jobs = [party.create(), party.create()]
    party.place()

    def forget(store: Any) -> None:
        record = WorkerRecord.read(store, worker)
        assert record is not None
        attrs.evolve(record, jobs=()).write(store)

    party.store.transact(party.me, forget)
    world.clock.move(6)
    party.store.transact(party.me, lambda store: None)
    began = round(world.clock.wall * 1000)
    party.pinged(worker, began, (jobs[0], 1))
    party.check()
    assert [party.status(job) for job in jobs] == ["r", "q"]
    assert party.worker(worker).jobs == (jobs[0],)  # type: ignore[union-attr]


@pytest.mark.rule("DSP-4.3")
def test_a_job_unknown_to_its_worker_twice_running_is_queued(world: World) -> None:
    party = world.party()
    worker = party.register()
    job = party.create()
    party.place()
    now = round(world.clock.wall * 1000)
    for began, status in ((now, "r"), (now, "r"), (now + 5000, "r"), (now + 6000, "q")):
        party.pinged(worker, began)
        party.check()
        assert party.status(job) == status
    assert party.place().assignments[0].attempt == 2


@pytest.mark.rule("DSP-4.3")
def test_a_health_check_that_names_the_job_begins_the_count_anew(world: World) -> None:
    party = world.party()
    worker = party.register()
    job = party.create()
    party.place()
    now = round(world.clock.wall * 1000)
    party.pinged(worker, now + 5000)
    party.pinged(worker, now + 6000, (job, None))
    party.pinged(worker, now + 7000)
    party.check()
    assert party.status(job) == "r"


@pytest.mark.rule("DSP-4.4")
def test_stale_entries_are_removed_and_stale_jobs_cancelled(world: World) -> None:
    party = world.party()
    worker = party.register()
    job = party.create()
    party.place()

    def add_entry(store: Any) -> None:
        record = WorkerRecord.read(store, worker)
        assert record is not None
        attrs.evolve(record, jobs=(*record.jobs, 77)).write(store)

    party.store.transact(party.me, add_entry)
    party.check()
    assert party.worker(worker).jobs == (job,)  # type: ignore[union-attr]
    noted = party.pinged(worker, 0, (job, 1), (99, 4))
    assert [(cancellation.id, cancellation.attempt) for cancellation in noted.cancellations] == [
        (99, 4)
    ]


@pytest.mark.rule("DSP-4.5")
def test_a_job_beyond_its_expiry_fails_and_is_cancelled(world: World) -> None:
    party = world.party()
    worker = party.register()
    job = party.create(timeout=3000)
    party.place()
    world.clock.move(3.1)
    (cancellation,) = party.check().cancellations
    assert (cancellation.worker.id, cancellation.id, cancellation.awaited) == (worker, job, False)
    assert party.status(job) == "f"
    assert party.document(job)["result"]["error"] == "Timeout"
    assert not party.finish(job, 1)


@pytest.mark.rule("DSP-3.12", "DSP-6.9")
def test_a_type_that_no_worker_knows_is_found_with_the_cause(world: World) -> None:
    party = world.party()

    def unserved(*offers: str) -> dict[str, tuple[int, str]]:
        rows = party.run(LookForUnserved(offers))
        return {row.role: (row.count, row.unserved) for row in rows}

    def waits(job: int, *offers: str) -> str | None:
        def read(store: Any) -> str | None:
            document = read_job(store, job)
            assert document is not None
            return why_queued(store, document, offers)

        return party.store.transact(party.me, read)

    jobs = [party.create("render") for _ in range(2)]
    nobody = "no worker is registered or connected"
    assert unserved() == {"render": (2, nobody)}
    assert waits(jobs[0]) == nobody
    assert unserved("render") == {}
    assert waits(jobs[0], "render") is None
    unlike = "no worker knows the type 'render'; the workers know"
    assert unserved("resize") == {"render": (2, f"{unlike} 'resize'")}

    worker = party.register(8082, 1, "rendr")
    assert waits(jobs[0]) == f"{unlike} 'rendr'; did you mean 'rendr'?"
    party.register(8082, 1, "render")
    assert unserved() == {}
    assert waits(jobs[0]) is None
    party.place()
    assert unserved() == {}
    taken = "no worker that knows the type 'render' has a free place; they have 1 place together"
    assert [waits(job) for job in jobs] == [None, taken]

    for _ in range(3):
        party.pinged(worker, 0, error="refused")
    # A job of the type runs, as far as known: perhaps at a WMP worker of another dispatcher.
    assert unserved() == {}
    party.check()
    dead = "the workers that know the type 'render' are dead or have resigned"
    assert unserved() == {"render": (2, dead)}


@pytest.mark.rule("DSP-3.12", "DSP-6.9")
def test_a_delayed_job_of_an_unknown_type_waits_for_its_time(world: World) -> None:
    party = world.party()
    due = round(world.clock.wall * 1000) + 60_000
    job = party.create("render", due=due)

    def read(store: Any) -> str | None:
        document = read_job(store, job)
        assert document is not None
        return why_queued(store, document, ())

    assert party.store.transact(party.me, read) == f"the job is due at {date_text(due)}"
    assert party.run(LookForUnserved()) == []


@pytest.mark.rule("DSP-4.6", "DSP-5.4")
def test_jobs_of_a_dead_worker_are_queued_and_in_the_end_lost(world: World) -> None:
    party = world.party(attrs.evolve(SETTINGS, max_worker_losses=1))
    worker = party.register()
    job = party.create()
    for status in ("q", "f"):
        party.place()
        for _ in range(3):
            party.pinged(worker, 0, error="refused")
        assert party.worker(worker).dead  # type: ignore[union-attr]
        party.check()
        assert party.status(job) == status
        party.register()
    assert "dead" in party.document(job)["result"]["message"]


@pytest.mark.rule("DSP-4.7")
def test_a_cancelled_job_ends_when_its_worker_has_answered(world: World) -> None:
    first, second = world.party(), world.party()
    first.register()
    job = first.create()
    first.place()
    second.run(CancelJob(job))
    assert second.status(job) == "k"
    assert second.check().cancellations == []
    (cancellation,) = first.check().cancellations
    assert cancellation.awaited
    first.run(EndCancelled(job, 1))
    assert first.status(job) == "x"
    waiting = first.create()
    assert first.run(CancelJob(waiting))[0]["status"] == "x"


@pytest.mark.rule("DSP-4.7")
def test_a_cancelled_job_in_d_ends_at_once(world: World) -> None:
    party = world.party(COOL)
    party.register()
    job = party.create()
    party.place()
    assert party.run(CancelJob(job))[0]["status"] == "x"
    assert party.run(Assign(COOL, [(job, 1)])).assignments == []


@pytest.mark.rule("DSP-5.1", "DSP-1.3", "DSP-5.5")
def test_a_worker_that_registers_again_replaces_its_entry(world: World) -> None:
    first, second = world.party(), world.party()
    worker = first.register(places=1)
    job = first.create()
    first.place()
    for _ in range(3):
        first.pinged(worker, 0, error="refused")
    assert second.register(places=4) == worker == worker_number("127.0.0.1", 8082)
    record = first.worker(worker)
    assert record is not None
    assert (record.max_jobs, record.dead, record.failed_pings) == (4, False, 0)
    assert record.jobs == (job,)
    for _ in range(3):
        first.pinged(worker, 0, error="refused")
    first.pinged(worker, 0)
    assert not first.worker(worker).dead  # type: ignore[union-attr]


@pytest.mark.rule("DSP-5.2")
def test_dispatchers_share_the_health_checks(world: World) -> None:
    first, second = world.party(), world.party()
    worker = first.register()
    assert [number for number, _ in first.pings()] == [worker]
    assert second.pings() == []
    world.clock.move(10)
    first.check()
    second.check()
    world.clock.move(10)
    first.check()
    second.check()
    world.clock.move(10)
    assert [number for number, _ in second.pings()] == [worker]


@pytest.mark.rule("DSP-5.4")
def test_a_dead_worker_is_checked_more_slowly_and_then_removed(world: World) -> None:
    party = world.party(attrs.evolve(SETTINGS, dead_worker_max_failed_checks=2))
    worker = party.register()
    for _ in range(4):
        party.pinged(worker, 0, error="refused")
    record = party.worker(worker)
    assert record is not None
    assert record.next_ping == round(world.clock.wall * 1000) + 60_000
    party.pinged(worker, 0, error="refused")
    assert party.worker(worker) is None


@pytest.mark.rule("DSP-5.6")
def test_a_resignation_queues_the_jobs_of_the_worker(world: World) -> None:
    first, second = world.party(), world.party()
    worker = first.register()
    job = first.create()
    first.place()
    second.run(Resign(SETTINGS, worker))
    second.check()
    assert first.status(job) == "r"  # the dispatcher that has the job acts
    first.check()
    assert first.status(job) == "q"
    assert not first.finish(job, 1)
    assert first.place().assignments == []
    for _ in range(6):
        world.clock.move(10.5)
        first.check()
    assert first.pings() == []
    assert first.worker(worker) is None


@pytest.mark.rule("DSP-6.4")
def test_two_creates_with_one_key_are_one_job(world: World) -> None:
    first, second = world.party(), world.party()
    assert first.create(key="a") == second.create(key="a") != first.create(key="b")


@pytest.mark.rule("DSP-7.1", "DSP-7.2")
def test_the_end_of_a_job_leads_to_one_callback(world: World) -> None:
    first, second = world.party(), world.party()
    first.register()
    callback = {"hostname": "h", "port": 1, "path": "/p", "method": "POST", "headers": {}}
    job = first.create(callback=callback)
    first.place()
    second.finish(job, 1)
    for party in (first, second):
        party.run(Sweep())
    (due,) = second.run(TakeCallbacks())
    assert first.run(TakeCallbacks()) == []
    assert second.run(TakeCallbacks(frozenset([due.id]))) == []
    assert second.run(TakeCallbacks()) == [due]  # after a step of unknown outcome
    assert due.document["status"] == "s"
    second.run(EndCallback(SETTINGS, due.id, due.attempt, "refused"))
    assert first.run(TakeCallbacks()) == []
    world.clock.move(1.1)
    (again,) = first.run(TakeCallbacks())
    first.run(EndCallback(SETTINGS, again.id, again.attempt, None))
    assert first.document(job)["callback"]["didCallbackSuccessfully"] is True


@pytest.mark.rule("DSP-7.2")
def test_a_callback_is_given_up_after_its_retries(world: World) -> None:
    party = world.party(attrs.evolve(SETTINGS, callback_retries=1))
    party.register()
    callback = {"hostname": "h", "port": 1, "path": "/p", "method": "GET", "headers": {}}
    job = party.create(callback=callback)
    party.place()
    party.finish(job, 1)
    for _ in range(2):
        (due,) = party.run(TakeCallbacks())
        party.run(EndCallback(party.settings, due.id, due.attempt, "500"))
        world.clock.move(3)
    assert party.run(TakeCallbacks()) == []
    assert party.document(job)["callback"]["didCallbackSuccessfully"] is False


def test_records_of_purged_jobs_are_removed(world: World) -> None:
    party = world.party(attrs.evolve(SETTINGS, result_ttl=1000))
    party.register()
    job = party.create()
    party.place()
    party.finish(job, 1)
    assert party.dispatch(job) is not None
    world.clock.move(2)
    party.run(Sweep())
    assert party.dispatch(job) is None


@pytest.mark.rule("DSP-2.2", "DSP-2.1")
def test_documents_name_worker_and_times_of_running_and_ended_jobs(world: World) -> None:
    party = world.party()
    party.register()
    job = party.create()
    assert party.document(job)["execution"]["worker"] is None
    party.place()
    begun = date_text(int(world.clock.wall * 1000))
    running = party.document(job)
    world.clock.move(2)
    party.finish(job, 1)
    ended = party.document(job)
    for document in (running, ended):
        execution = document["execution"]
        assert execution["worker"] == "127.0.0.1:8082"
        assert (execution["started"], execution["progress"]) == (begun, None)
    assert (running["status"], ended["status"]) == ("r", "s")
    assert ended["execution"]["ended"] == date_text(int(world.clock.wall * 1000))


@pytest.mark.rule("DSP-2.1", "STORE-6.7")
def test_documents_show_jobs_and_progress_of_wmp_workers(world: World) -> None:
    party = world.party()
    job = party.create()
    manager = Client(party.store, b"manager")
    kind = manager.job(job).kind
    manager.reserve(kind=kind)
    assert party.document(job)["status"] == "d"
    manager.change(
        StoredJobInput.BEGIN,
        [job],
        [1],
        workers=["pi:7"],
        ages_ms=[500],
        fractions=[0.5],
        notes=["half"],
    )
    document = party.document(job)
    assert document["status"] == "r"
    begun = date_text(int(world.clock.wall * 1000) - 500)
    assert document["execution"]["worker"] == "pi:7"
    assert document["execution"]["started"] == begun
    assert document["execution"]["progress"] == {"fraction": 0.5, "text": "half"}
    manager.change(StoredJobInput.SUCCEED, [job], [1], payloads=[b"1"])
    execution = party.document(job)["execution"]
    assert (execution["worker"], execution["started"]) == ("pi:7", begun)


@pytest.mark.rule("DSP-1.2", "DSP-1.5")
def test_the_handler_gets_one_object_with_the_run(world: World) -> None:
    party = world.party()
    party.register()
    job = party.create(workflow="nightly", run=4)
    (given,) = party.place().assignments
    document = json.loads(given.document)
    expected = {"_id": id_text(job), "type": "resize", "workflow": "nightly", "run": 4}
    assert {name: document[name] for name in expected} == expected
    assert document["execution"]["attempt"] == 1
    plain = handler_input((5, "resize", b'"x"'))
    assert plain == {
        "_id": id_text(5),
        "type": "resize",
        "workflow": None,
        "run": None,
        "payload": "x",
    }
    assert number_of(id_text(job)) == job
    assert number_of("F" * 24) is None


@pytest.mark.rule("DSP-1.1")
def test_dates_have_milliseconds_and_the_letter_z() -> None:
    assert date_text(1_800_000_000_007) == "2027-01-15T08:00:00.007Z"


@pytest.mark.rule("DSP-8.1")
@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"jobs.cooldown": 1}, "jobs.cooldown"),
        ({"workers.max_failed_checks": 0}, "workers.max_failed_checks"),
        ({"workers.max_retries": 3}, "it was renamed; write workers.max_failed_checks"),
        (
            {"workers.dead_worker_max_retries": 3},
            "it was renamed; write workers.dead_worker_max_failed_checks",
        ),
        ({"callbacks.max_retries": 3}, "it was renamed; write callbacks.retries"),
        ({"jobs.retries": 3}, "it was renamed; write jobs.max_worker_losses"),
        ({"jobs.keep": 3}, "it was renamed; write jobs.result_ttl"),
        ({"jobs.cooldown_period": 40_000}, "jobs.dispatch_timeout"),
    ],
)
def test_a_wrong_setting_is_named(given: dict[str, int], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        settings_of(given)
