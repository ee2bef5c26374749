"""WMP workers in the registry of dispatchers, beside HTTP workers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.unit.dispatcher.dispatchers import Party, World
from tests.unit.dispatcher.http_net import FakeWorker, Net, dispatcher_on
from tests.unit.dispatcher.test_dispatcher_api import (
    JOBS,
    WORKER,
    WORKERS,
    Client,
    check_fields,
    serve,
)
from tests.unit.store.stores import Client as StoreClient
from wmp.dispatcher.descriptions import SCHEMAS
from wmp.dispatcher.job_document import id_text
from wmp.dispatcher.records import CrewRecord, crew_number
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.steps.crew import CrewMember, PublishCrew
from wmp.dispatcher.steps.job_steps import read_job
from wmp.dispatcher.steps.overview import capacity, list_workers
from wmp.dispatcher.steps.unserved import why_queued
from wmp.store.stored_job import StoredJobInput

PI = CrewMember("0a", "pi:7", ("resize", "crop"), 4, 3)


def workers(party: Party, *own: CrewMember) -> list[dict[str, Any]]:
    return party.store.transact(party.me, lambda store: list_workers(store, own))


@pytest.mark.rule("DSP-5.13")
def test_all_dispatchers_show_the_wmp_workers_of_each(world: World) -> None:
    first, second = world.party(), world.party()
    first.register()
    first.run(PublishCrew([PI]))
    for documents in (workers(first, PI), workers(second)):
        assert [document["kind"] for document in documents] == ["http", "wmp"]
        document = documents[1]
        check_fields(document, SCHEMAS["WorkerDocument"], "WorkerDocument")
        assert document["_id"] == id_text(crew_number("pi:7"))
        assert (document["label"], document["hostname"], document["port"]) == ("pi:7", "pi", None)
        assert (document["handlers"], document["maxJobs"]) == ({"crop": {}, "resize": {}}, 4)
    # A worker that is connected to both counts once.
    busy = CrewMember("0a", "pi:7", ("resize",), 4, 1)
    assert [document["maxJobs"] for document in workers(second, busy)] == [1, 4]
    totals = second.store.transact(second.me, lambda store: capacity(store, [busy]))
    assert totals["kinds"] == {
        "http": {"workers": 1, "maxJobs": 1, "free": 1},
        "wmp": {"workers": 1, "maxJobs": 4, "free": 1},
    }
    assert (totals["workers"], totals["maxJobs"], totals["free"]) == (2, 5, 2)
    assert totals["types"]["resize"] == {"maxJobs": 5, "free": 2, "queued": 0}
    first.run(PublishCrew([]))
    assert [document["kind"] for document in workers(second)] == ["http"]


@pytest.mark.rule("DSP-5.13")
def test_the_wmp_workers_of_an_ended_dispatcher_are_not_shown(world: World) -> None:
    first, second = world.party(), world.party()
    first.run(PublishCrew([PI]))
    world.die(first)
    assert workers(second) == []
    second.check()
    assert second.store.transact(second.me, CrewRecord.all) == []


@pytest.mark.rule("DSP-5.13")
def test_a_job_of_a_wmp_worker_names_its_document(world: World) -> None:
    party = world.party()
    job = party.create()
    manager = StoreClient(party.store, b"manager")
    manager.reserve(kind=manager.job(job).kind)
    assert party.document(job)["execution"]["worker_id"] is None
    manager.change(StoredJobInput.BEGIN, [job], [1], workers=["pi:7"], ages_ms=[500])
    (document,) = workers(party, PI)
    assert document["jobs"] == [id_text(job)]
    assert party.document(job)["execution"]["worker_id"] == document["_id"]
    manager.change(StoredJobInput.SUCCEED, [job], [1], payloads=[b"1"])
    assert party.document(job)["execution"]["worker_id"] == document["_id"]
    assert workers(party, PI)[0]["jobs"] == []


@pytest.mark.rule("DSP-5.13")
def test_a_job_of_an_http_worker_and_then_of_a_wmp_worker_names_the_last_one(world: World) -> None:
    party = world.party()
    party.register()
    job = party.create()
    party.place()
    assert party.finish(job, 1, "x")  # the worker stopped it
    manager = StoreClient(party.store, b"manager")
    manager.reserve(kind=manager.job(job).kind)
    manager.change(StoredJobInput.BEGIN, [job], [2], workers=["pi:7"], ages_ms=[0])
    execution = party.document(job)["execution"]
    assert (execution["worker"], execution["attempt"]) == ("pi:7", 2)
    assert execution["worker_id"] == id_text(crew_number("pi:7"))


@pytest.mark.rule("DSP-6.9")
def test_a_job_waits_for_a_free_slot_of_a_wmp_worker(world: World) -> None:
    party = world.party()
    job = party.create()

    def waits(*own: CrewMember) -> str | None:
        def read(store: Any) -> str | None:
            document = read_job(store, job)
            assert document is not None
            return why_queued(store, document, ("resize",), own)

        return party.store.transact(party.me, read)

    assert waits(PI) is None
    assert waits(CrewMember("0a", "pi:7", ("resize",), 4, 0)) == (
        "no worker that knows the type 'resize' has a free place; they have 4 places together"
    )


@pytest.mark.rule("DSP-5.13")
def test_a_dispatcher_publishes_its_wmp_workers_to_the_other_one(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        fast = DispatcherSettings(timer_interval=5)
        async with (
            dispatcher_on(net, 8091, tmp_path / "jobs.db", fast, crew=lambda: [PI]),
            net.client(8091) as other,
        ):
            own = (await other.get(WORKERS)).json()["workers"]
            assert [document["label"] for document in own] == ["pi:7"]
            while not (listed := (await client.get(WORKERS)).json()["workers"]):
                await asyncio.sleep(0)
            (document,) = listed
            path = f"{WORKERS}{document['_id']}"
            assert (await client.get(path)).json()["label"] == "pi:7"
            counts = (await client.get("/dispatcher/capacity")).json()
            check_fields(counts, SCHEMAS["Capacity"], "Capacity")
            assert counts["kinds"]["wmp"] == {"workers": 1, "maxJobs": 4, "free": 3}
            answer = await client.delete(path)
            assert answer.status_code == 409
            assert "stop its program with SIGTERM" in answer.json()["error"]
        while (await client.get(WORKERS)).json()["workers"]:
            await asyncio.sleep(0)

    serve(tmp_path, test)


@pytest.mark.rule("DSP-5.6")
def test_a_worker_resigns_by_its_hostname_and_port(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        first, second = FakeWorker(), FakeWorker()
        net.apps[8082], net.apps[8083] = first, second
        worker = (await client.put(WORKERS, json=WORKER)).json()
        await client.post(JOBS, json={"type": "resize"})
        given = await first.given.get()
        await client.put(WORKERS, json={**WORKER, "port": 8083})
        secret = {"Wmp-Worker-Secret": worker["secret"]}
        # The whole document of the registration, and the two names alone.
        for body in ({**worker, "pingInterval": 1}, {"hostname": "127.0.0.1", "port": 8082}):
            answer = await client.request("DELETE", WORKERS, json=body, headers=secret)
            assert answer.status_code == 200
            assert answer.json()["isResigned"] is True
            assert answer.json().get("ignored", []) == []
        assert (await second.given.get())["_id"] == given["_id"]
        missing = await client.request("DELETE", WORKERS, json={"hostname": "h", "port": 1})
        assert missing.status_code == 404
        assert "h:1" in missing.json()["error"]
        wrong = await client.request("DELETE", WORKERS, json={"hostname": "h"})
        assert (wrong.status_code, wrong.json()["field"]) == (400, "port")

    serve(tmp_path, test)
