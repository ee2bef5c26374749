"""Jobs that workers do not accept, and workers that forget jobs: every job gets another turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.unit.dispatcher.dispatchers import SETTINGS, Party, World
from tests.unit.dispatcher.http_net import FakeWorker, Net
from tests.unit.dispatcher.test_dispatcher_api import JOBS, WORKER, WORKERS, Client, ended, serve
from wmp.dispatcher.job_document import date_text
from wmp.dispatcher.records import WorkerRecord
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.steps.job_steps import read_job
from wmp.dispatcher.steps.overview import history
from wmp.dispatcher.steps.placing import Assign
from wmp.dispatcher.steps.refusals import NoteAccepted, RefusedPost, TakeBack
from wmp.dispatcher.steps.unserved import why_queued
from wmp.dispatcher.steps.worker_steps import NotePing, Resign

MISSING = RefusedPost("POST http://127.0.0.1:8082/jobs/ was answered by 404", counts=True)
BROKEN = RefusedPost(
    "POST http://127.0.0.1:8082/jobs/ was answered by 500", counts=True, begun=True
)
FULL = RefusedPost("POST http://127.0.0.1:8082/jobs/ was answered by 503")


def worker_of(party: Party, id: int) -> WorkerRecord:
    worker = party.worker(id)
    assert worker is not None
    return worker


def refuse(party: Party, job: int, attempt: int, refusal: RefusedPost = MISSING) -> Any:
    return party.run(TakeBack(party.settings, job, attempt, refusal))


def attempts(party: Party, job: int) -> list[dict[str, Any]]:
    document = party.store.transact(party.me, lambda store: history(store, job))
    assert document is not None
    return list(document["attempts"])


def waits(party: Party, job: int) -> str | None:
    def read(store: Any) -> str | None:
        document = read_job(store, job)
        assert document is not None
        return why_queued(store, document, ())

    return party.store.transact(party.me, read)


@pytest.mark.rule("DSP-3.14")
def test_a_refused_job_is_queued_with_its_history(world: World) -> None:
    party = world.party()
    party.register()
    job = party.create()
    party.place()
    taken = refuse(party, job, 1)
    assert party.status(job) == "q"
    (entry,) = attempts(party, job)
    assert (entry["attempt"], entry["worker"], entry["error"]) == (
        1,
        "127.0.0.1:8082",
        MISSING.text,
    )
    assert taken.line == (
        f"{MISSING.text}; job {party.document(job)['_id']} was not accepted: it is queued again, "
        "and worker 127.0.0.1:8082 gets no job for 1 s"
    )
    assert taken.cancellation is None


@pytest.mark.rule("DSP-3.14")
def test_a_worker_that_may_have_begun_gets_a_cancellation(world: World) -> None:
    party = world.party()
    party.register()
    jobs = [party.create()]
    party.place()
    cancellation = refuse(party, jobs[0], 1, BROKEN).cancellation
    assert (cancellation.id, cancellation.attempt, cancellation.awaited) == (jobs[0], 1, False)

    def unbegun(store: Any) -> int:
        document = read_job(store, jobs[0])
        assert document is not None
        return document.unbegun

    assert party.store.transact(party.me, unbegun) == 0
    world.clock.move(1.1)
    party.place()
    refuse(party, jobs[0], 2, MISSING)
    assert party.store.transact(party.me, unbegun) == 1


@pytest.mark.rule("DSP-3.14")
def test_a_job_survives_a_number_of_refusals_and_waits_longer_after_each(world: World) -> None:
    party = world.party(attrs.evolve(SETTINGS, max_refusals=3))
    job = party.create()
    pauses = []
    for attempt in (1, 2, 3, 4):
        party.register(8000 + attempt)  # each time a worker that is not out of turn
        party.place()
        assert party.status(job) == "r"
        refuse(party, job, attempt)
        if attempt < 4:
            assert party.status(job) == "q"
            text = waits(party, job) or ""
            pauses.append(text.startswith("the job is due at"))
            if attempt > 1:
                assert text.endswith(
                    f"; attempt {attempt} ended at {attempts(party, job)[-1]['worker']}: "
                    f"{MISSING.text}"
                )
            world.clock.move(2.1)
            party.check()
    assert pauses == [False, True, True]
    document = party.document(job)
    assert document["status"] == "f"
    assert document["result"] == {
        "error": "Refused",
        "message": f"4 refusals; the last: {MISSING.text}",
    }
    assert [entry["attempt"] for entry in attempts(party, job)] == [1, 2, 3, 4]


def test_a_job_without_a_place_keeps_the_count_of_its_refusals(world: World) -> None:
    cool = attrs.evolve(SETTINGS, cooldown_period=2000, max_refusals=1)
    party = world.party(cool)
    worker, job = party.register(), party.create()
    party.place()
    party.run(Assign(cool, [(job, 1)]))
    refuse(party, job, 1)
    world.clock.move(1.1)
    (cooling,) = party.place().cooling
    party.run(Resign(cool, worker))
    party.run(Assign(cool, [cooling]))
    assert party.status(job) == "q"
    party.register(9)
    (cooling,) = party.place().cooling
    party.run(Assign(cool, [cooling]))
    refuse(party, job, cooling[1])
    assert party.status(job) == "f"


@pytest.mark.rule("DSP-3.15")
def test_a_worker_is_out_of_turn_for_longer_each_time_until_it_accepts(world: World) -> None:
    party = world.party()
    worker = party.register(places=9)
    job = party.create()
    lengths = []
    for _ in range(8):
        (given,) = party.place().assignments
        refuse(party, job, given.attempt, FULL)
        pause = worker_of(party, worker).pause_until - round(world.clock.wall * 1000)
        lengths.append(pause)
        while worker_of(party, worker).pause_until > world.clock.wall * 1000:
            assert party.place().assignments == []
            world.clock.move(min(pause / 1000, 10))
            party.check()
    assert lengths == [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]
    assert party.document(job)["status"] == "q"
    assert attempts(party, job) == []
    party.register(places=9)
    assert worker_of(party, worker).refusals == 8
    party.place()
    party.run(NoteAccepted(worker))
    assert (worker_of(party, worker).refusals, worker_of(party, worker).refusal) == (0, None)


@pytest.mark.rule("DSP-3.15")
def test_refusals_of_jobs_that_were_sent_together_are_one_time(world: World) -> None:
    party = world.party()
    worker = party.register(places=3)
    jobs = [party.create() for _ in range(3)]
    party.place()
    lines = [refuse(party, job, 1).line for job in jobs]
    assert [line is None for line in lines] == [False, True, True]
    assert worker_of(party, worker).refusals == 1


@pytest.mark.rule("DSP-3.15")
def test_a_worker_that_refused_gets_one_job_at_a_time_until_it_completes_one(world: World) -> None:
    party = world.party()
    worker = party.register(places=3)
    jobs = [party.create() for _ in range(3)]
    party.place()
    for job in jobs:
        refuse(party, job, 1)
    world.clock.move(1.1)
    (given,) = party.place().assignments
    party.run(NoteAccepted(worker))
    assert party.place().assignments == []
    text = waits(party, next(job for job in jobs if job != given.id))
    assert text == (
        "no worker that knows the type 'resize' gets a job now; 127.0.0.1:8082 gets one job at a "
        "time until it completes one: it did not complete its last jobs"
    )
    assert party.finish(given.id, given.attempt)
    assert len(party.place().assignments) == 2


@pytest.mark.rule("DSP-6.9")
def test_a_job_of_workers_out_of_turn_states_their_refusals(world: World) -> None:
    party = world.party()
    worker = party.register(places=2)
    job = party.create()
    party.place()
    assert waits(party, job) is None
    refuse(party, job, 1)
    until = date_text(worker_of(party, worker).pause_until)
    assert waits(party, job) == (
        "no worker that knows the type 'resize' gets a job now; 127.0.0.1:8082 is out of turn "
        f"until {until}: {MISSING.text}"
    )
    world.clock.move(1.1)
    party.check()
    assert waits(party, job) is None


@pytest.mark.rule("DSP-4.8")
def test_a_worker_that_names_no_jobs_keeps_one_for_a_bounded_time(world: World) -> None:
    party = world.party(attrs.evolve(SETTINGS, unnamed_timeout=8_000))
    worker = party.register(places=2)
    job = party.create()
    party.place()
    began = round(world.clock.wall * 1000)

    def ping(*jobs: Any, named: bool) -> None:
        party.run(NotePing(party.settings, worker, began, None, jobs if named else None))

    world.clock.move(9)
    assert party.check().cancellations == []  # no health check yet
    ping((job, 1), named=True)
    assert party.check().cancellations == []
    ping(named=False)
    assert party.check().cancellations == []  # the worker named the job once
    ping((job, 1), named=True)

    other = party.create()
    party.place()
    ping(named=False)
    world.clock.move(7.9)
    assert party.check().cancellations == []
    world.clock.move(0.2)
    (cancellation,) = party.check().cancellations
    assert (cancellation.id, cancellation.worker.id) == (other, worker)
    assert [party.status(number) for number in (job, other)] == ["r", "q"]
    (entry,) = attempts(party, other)
    cause = (
        "no completion came in 8 s (jobs.unnamed_timeout), and the health checks of the worker "
        "name no jobs"
    )
    assert entry["error"] == cause
    assert worker_of(party, worker).refusal == cause
    assert worker_of(party, worker).suspect


@pytest.mark.rule("DSP-3.14", "DSP-3.15")
@pytest.mark.parametrize(("code", "cancelled"), [(404, False), (500, True), (302, True)])
def test_an_answer_that_is_no_acceptance_gives_the_job_to_another_worker(
    code: int, cancelled: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(net: Net, client: Client) -> None:
        wrong, right = FakeWorker(), FakeWorker()
        wrong.code = code
        net.apps[8082], net.apps[8083] = wrong, right
        registered = (await client.put(WORKERS, json={**WORKER, "maxJobs": 9})).json()
        job = (await client.post(JOBS, json={"type": "resize"})).json()
        await wrong.given.get()
        path = f"{JOBS}{job['_id']}/history"
        while not (entries := (await client.get(path)).json()["attempts"]):
            await asyncio.sleep(0)
        url = "http://127.0.0.1:8082/jobs/"
        answer = f'POST {url} was answered by {code}, expected 202: {{"jobs": []}}'
        assert [entry["error"] for entry in entries] == [answer]
        if cancelled:
            await wrong.cancelled.get()
        else:
            assert wrong.cancelled.empty()
        document = (await client.get(f"{WORKERS}{registered['_id']}")).json()
        assert document["lastError"] == answer
        second = (await client.put(WORKERS, json={**WORKER, "port": 8083})).json()
        given = await right.given.get()
        assert (given["_id"], given["execution"]["attempt"]) == (job["_id"], 2)
        done = {"attempt": 2, "status": "s", "result": 1}
        secret = {"Wmp-Worker-Secret": second["secret"]}
        await client.post(f"{JOBS}{job['_id']}/completion", json=done, headers=secret)
        assert (await ended(client, job["_id"]))["status"] == "s"

    serve(tmp_path, test)
    assert sum("was not accepted: it is queued again" in line for line in caplog.messages) == 1


@pytest.mark.rule("DSP-3.15", "DSP-5.3")
def test_a_health_check_leaves_the_refusal_in_the_document(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        net.apps[8082] = worker = FakeWorker()
        worker.code = 404
        registered = (await client.put(WORKERS, json=WORKER)).json()
        path = f"{WORKERS}{registered['_id']}"
        await client.post(JOBS, json={"type": "resize"})
        while "404" not in str((await client.get(path)).json()["lastError"]):
            await asyncio.sleep(0)
        checks = net.seen.count("GET 8082/health_check/")
        while net.seen.count("GET 8082/health_check/") < checks + 3:
            await asyncio.sleep(0)
        assert "404" in str((await client.get(path)).json()["lastError"])

    fast = DispatcherSettings(ping_interval=5, timer_interval=5, pause=60_000)
    serve(tmp_path, test, fast)
