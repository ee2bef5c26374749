"""What a registration takes, and the secret that ties jobs to the worker that has them."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.unit.dispatcher.dispatchers import SETTINGS, Party, World
from tests.unit.dispatcher.http_net import FakeWorker, Net, dispatcher_on, worker_on
from tests.unit.dispatcher.test_dispatcher_api import JOBS, WORKER, WORKERS, Client, serve
from wmp.dispatcher.registration import SECRET_HEADER, Registrant, secret_digest
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.steps.refusals import RefusedPost, TakeBack
from wmp.dispatcher.steps.worker_steps import Resign

FAST = DispatcherSettings(timer_interval=5, ping_interval=20)
URL = "http://127.0.0.1:8081"
DONE = {"attempt": 1, "status": "s", "result": 1}


def shows(secret: str) -> dict[str, str]:
    return {SECRET_HEADER: secret}


async def given_job(client: Client, worker: FakeWorker) -> str:
    created = await client.post(JOBS, json={"type": "resize"})
    id = str(created.json()["_id"])
    assert (await worker.given.get())["_id"] == id
    return id


# -- the secret ---------------------------------------------------------------------------------


@pytest.mark.rule("DSP-10.1")
def test_only_the_answer_to_a_registration_has_the_secret(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        net.apps[8082] = FakeWorker()
        registered = (await client.put(WORKERS, json=WORKER)).json()
        secret = registered["secret"]
        assert len(secret) == 32
        again = (await client.put(WORKERS, json=WORKER, headers=shows(secret))).json()
        assert again["secret"] == secret
        other = (await client.put(WORKERS, json={**WORKER, "port": 8083})).json()
        assert other["secret"] != secret
        for path in (WORKERS, f"{WORKERS}{registered['_id']}", JOBS):
            text = (await client.get(path)).text
            assert secret not in text
            assert secret_digest(secret) not in text
        assert secret.encode() not in (tmp_path / "jobs.db").read_bytes()

    serve(tmp_path, test)


@pytest.mark.rule("DSP-10.2", "DSP-3.10")
def test_a_completion_counts_with_the_secret_of_the_worker_only(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        net.apps[8082] = worker = FakeWorker()
        net.apps[8083] = FakeWorker()
        secret = (await client.put(WORKERS, json=WORKER)).json()["secret"]
        thief = {**WORKER, "port": 8083, "handlers": {"other": True}}
        stolen = (await client.put(WORKERS, json=thief)).json()["secret"]
        id = await given_job(client, worker)
        path = f"{JOBS}{id}/completion"
        for headers in ({}, shows(stolen), shows("x" * 32)):
            answer = await client.post(path, json={**DONE, "result": "forged"}, headers=headers)
            assert (answer.status_code, answer.json()["field"]) == (403, SECRET_HEADER)
            assert (await client.get(f"{JOBS}{id}")).json()["status"] == "r"
        answer = await client.post(path, json=DONE, headers=shows(secret))
        assert answer.json() == {"accepted": True}
        assert (await client.get(f"{JOBS}{id}")).json()["result"] == 1

    serve(tmp_path, test)


@pytest.mark.rule("DSP-10.2", "DSP-5.6")
def test_nobody_resigns_another_worker(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        net.apps[8082] = FakeWorker()
        registered = (await client.put(WORKERS, json=WORKER)).json()
        named = {"hostname": "127.0.0.1", "port": 8082}
        path = f"{WORKERS}{registered['_id']}"
        for headers in ({}, shows("x" * 32)):
            assert (await client.delete(path, headers=headers)).status_code == 403
            answer = await client.request("DELETE", WORKERS, json=named, headers=headers)
            assert answer.status_code == 403
        assert not (await client.get(path)).json()["isResigned"]
        right = shows(registered["secret"])
        answer = await client.request("DELETE", WORKERS, json=named, headers=right)
        assert answer.json()["isResigned"]

    serve(tmp_path, test)


@pytest.mark.rule("DSP-10.2")
def test_an_open_dispatcher_accepts_workers_without_secrets_until_they_show_one(
    tmp_path: Path,
) -> None:
    async def test(net: Net, client: Client) -> None:
        net.apps[8082] = worker = FakeWorker()
        first = (await client.put(WORKERS, json=WORKER)).json()
        assert (await client.put(WORKERS, json=WORKER)).status_code == 200
        id = await given_job(client, worker)
        path = f"{JOBS}{id}/completion"
        assert (await client.post(path, json=DONE, headers=shows("wrong"))).status_code == 403
        assert (await client.post(path, json=DONE)).status_code == 200
        second = (await client.put(WORKERS, json=WORKER)).json()
        answer = await client.put(WORKERS, json=WORKER, headers=shows(second["secret"]))
        assert answer.status_code == 200
        assert (await client.put(WORKERS, json=WORKER)).status_code == 409
        assert (await client.delete(f"{WORKERS}{first['_id']}")).status_code == 403
        id = await given_job(client, worker)
        assert (await client.post(f"{JOBS}{id}/completion", json=DONE)).status_code == 403

    serve(tmp_path, test, open_registration=True)


@pytest.mark.rule("DSP-3.10")
def test_an_id_is_no_proof_for_a_job_that_no_http_worker_has(world: World) -> None:
    party = world.party()
    job = party.create()
    assert not party.finish(job, 0)
    assert party.status(job) == "q"


# -- replacing an entry -------------------------------------------------------------------------


@pytest.mark.rule("DSP-10.3")
def test_a_stranger_replaces_no_living_entry(tmp_path: Path) -> None:
    async def test() -> None:
        net = Net()
        async with (
            dispatcher_on(net, 8081, tmp_path / "jobs.db", FAST),
            worker_on(net, 8082, {"resize": lambda job: "honest"}, 2, URL),
            net.client(8081) as client,
        ):
            while not (await client.get(WORKERS)).json()["workers"]:
                pass
            robbing = {**WORKER, "maxJobs": 1, "handlers": {}}
            for hostname in ("127.0.0.1", "127.0.0.2", "localhost", "::1"):
                for more in ({}, {"nonce": "n" * 16}):
                    body = {**robbing, **more, "hostname": hostname}
                    assert (await client.put(WORKERS, json=body)).status_code == 409, hostname
            (worker,) = (await client.get(WORKERS)).json()["workers"]
            assert (worker["maxJobs"], worker["handlers"]) == (2, {"resize": True})
            id = (await client.post(JOBS, json={"type": "resize"})).json()["_id"]
            while (document := (await client.get(f"{JOBS}{id}")).json())["status"] != "s":
                pass
            assert document["result"] == "honest"

    asyncio.run(test())


@pytest.mark.rule("DSP-10.3", "DSP-10.6")
def test_a_worker_that_was_restarted_registers_again(tmp_path: Path) -> None:
    async def test() -> None:
        net = Net()
        async with (
            dispatcher_on(net, 8081, tmp_path / "jobs.db", DispatcherSettings(timer_interval=5)),
            net.client(8081) as client,
        ):
            for number in (1, 2):
                # The first process ends without a resignation.
                async with contextlib.AsyncExitStack() as stack:
                    worker = await stack.enter_async_context(
                        worker_on(net, 8082, {"resize": lambda job: number}, 1, URL)  # noqa: B023
                    )
                    id = (await client.post(JOBS, json={"type": "resize"})).json()["_id"]
                    while (document := (await client.get(f"{JOBS}{id}")).json())["status"] != "s":
                        pass
                    assert document["result"] == number
                    worker.alone.set()

    asyncio.run(test())


@pytest.mark.rule("DSP-10.3")
def test_a_confirmed_registration_ends_other_names_of_its_server(world: World) -> None:
    party = world.party()
    by = Registrant(address="127.0.0.1", peer="loopback", trusted=False, required=True, new="s")
    squatter = party.registered(8082, 9, by=by).worker.id

    def register(by: Registrant) -> Any:
        from wmp.dispatcher.steps.worker_steps import Register

        return party.run(Register(SETTINGS, "localhost", 8082, 1, {"resize": True}, by))

    other = attrs.evolve(by, address="::1", new="t")
    assert register(other).taken
    assert register(attrs.evolve(other, confirmed=True)).secret == "t"
    record = party.worker(squatter)
    assert record is not None
    assert record.resigned


@pytest.mark.rule("DSP-10.3")
def test_a_dead_entry_is_replaced_without_its_credit(world: World) -> None:
    party = world.party()
    by = Registrant(address="127.0.0.1", peer="loopback", trusted=False, required=True, new="s")
    worker = party.register(8082, 1, by=attrs.evolve(by, confirmed=True))
    job = party.create()
    (given,) = party.place().assignments
    assert party.finish(job, given.attempt)
    assert party.registered(8082, 1, by=by).taken
    for _ in range(3):
        party.pinged(worker, 0, error="refused")
    assert party.registered(8082, 1, by=by).secret == "s"
    record = party.worker(worker)
    assert record is not None
    assert (record.credit, record.answered) == (0, False)


# -- bounds -------------------------------------------------------------------------------------


def claim(party: Party, port: int, peer: str = "loopback", **more: Any) -> Any:
    by = Registrant(address="127.0.0.1", peer=peer, trusted=False, required=True, new="s", **more)
    return party.registered(port, 9, by=by)


@pytest.mark.rule("DSP-10.4")
def test_a_network_address_has_few_registrations(world: World) -> None:
    party = world.party(attrs.evolve(SETTINGS, max_per_address=3))
    kept = [claim(party, port, confirmed=True).worker.id for port in (1, 2, 3)]
    jobs = [party.create() for _ in range(3)]
    for given in party.place().assignments:
        party.finish(given.id, given.attempt)
    assert all(party.status(job) == "s" for job in jobs)
    full = claim(party, 4).full
    assert full == (
        "loopback has 3 registrations, the maximum (workers.max_per_address), and each of them "
        "answers; resign some of them"
    )
    # Other addresses, and workers with a token, have their own places.
    assert claim(party, 4, peer="10.0.0.1").worker is not None
    assert party.registered(5).worker is not None
    party.run(Resign(SETTINGS, kept[0]))
    assert claim(party, 1).full is None


@pytest.mark.rule("DSP-10.4")
def test_entries_that_do_no_jobs_make_way(world: World) -> None:
    party = world.party(attrs.evolve(SETTINGS, max_per_address=3))
    honest = claim(party, 1, confirmed=True).worker.id
    job = party.create()
    (given,) = party.place().assignments
    party.finish(job, given.attempt)
    for port in range(2, 300):
        world.clock.move(0.01)
        assert claim(party, port).worker is not None
    assert party.worker(honest) is not None
    # One that failed its check makes way before a newcomer that waits for its first.
    claimed = []
    for port in (400, 401):
        world.clock.move(0.01)
        claimed.append(claim(party, port).worker.id)
    failed, waiting = claimed
    party.pinged(failed, 0, error="refused")
    claim(party, 402)
    assert party.worker(failed) is None
    assert party.worker(waiting) is not None


@pytest.mark.rule("DSP-10.4")
def test_a_store_has_a_bounded_number_of_workers(world: World) -> None:
    party = world.party(attrs.evolve(SETTINGS, max_workers=3))
    for port in (1, 2):
        party.register(port)
    stranger = claim(party, 3, peer="10.0.0.1").worker.id
    party.register(4)
    assert party.worker(stranger) is None
    assert "workers.max_workers" in party.registered(5).full


@pytest.mark.rule("DSP-10.4")
def test_long_handlers_and_too_many_registrations_are_refused(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        long = {**WORKER, "handlers": {"resize": "x" * 9000}}
        answer = await client.put(WORKERS, json=long)
        assert (answer.status_code, answer.json()["field"]) == (400, "handlers")
        assert "workers.max_handlers" in answer.json()["error"]
        net.apps[8082] = worker = FakeWorker()
        registered = (await client.put(WORKERS, json=WORKER)).json()
        id = await given_job(client, worker)
        right = shows(registered["secret"])
        await client.post(f"{JOBS}{id}/completion", json=DONE, headers=right)
        answer = await client.put(WORKERS, json={**WORKER, "port": 8083})
        assert answer.status_code == 429

    serve(tmp_path, test, DispatcherSettings(max_per_address=1))


# -- ports at which nobody listens --------------------------------------------------------------


@pytest.mark.rule("DSP-10.5")
def test_a_port_that_never_answers_gets_no_job(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        closed = range(9000, 9060)
        for port in closed:
            await client.put(WORKERS, json={**WORKER, "port": port, "maxJobs": 100_000})
        net.apps[8082] = worker = FakeWorker()
        secret = (await client.put(WORKERS, json=WORKER)).json()["secret"]
        for _ in range(20):
            id = await given_job(client, worker)
            await client.post(f"{JOBS}{id}/completion", json=DONE, headers=shows(secret))
        assert not any(f"POST {port}" in line for port in closed for line in net.seen)
        # Registering again does not multiply the checks.
        checks = sum(f"GET {closed[0]}/" in line for line in net.seen)
        for _ in range(50):
            await client.put(WORKERS, json={**WORKER, "port": closed[0]})
        assert sum(f"GET {closed[0]}/" in line for line in net.seen) <= checks + 1

    serve(tmp_path, test)


@pytest.mark.rule("DSP-10.5")
def test_an_entry_that_never_answered_is_removed_soon(world: World) -> None:
    party = world.party()
    worker = claim(party, 9).worker.id
    for left in (2, 1, 0):
        assert party.worker(worker) is not None
        party.pinged(worker, 0, error="refused")
        assert (party.worker(worker) is not None) == bool(left)


@pytest.mark.rule("DSP-10.5")
def test_a_stranger_that_is_not_there_is_checked_before_its_next_job(world: World) -> None:
    party = world.party()
    worker = claim(party, 9, confirmed=True).worker.id
    job = party.create()
    (given,) = party.place().assignments
    gone = RefusedPost("http://127.0.0.1:9/jobs/ cannot be reached", answered=False)
    party.run(TakeBack(party.settings, job, given.attempt, gone))
    world.clock.move(5)
    assert party.place().assignments == []
    ((pinged, began),) = party.pings()
    assert party.pinged(pinged, began).changed
    assert [given.worker.id for given in party.place().assignments] == [worker]
