"""Workers that registered without a token prove themselves before they get many jobs."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest

from tests.unit.dispatcher.dispatchers import SETTINGS, Party, World
from wmp.dispatcher.registration import Registrant
from wmp.dispatcher.steps.refusals import RefusedPost, TakeBack

HOG = 100_000
REFUSED = RefusedPost("POST http://127.0.0.1:8082/jobs/ was answered by 404", counts=True)


def stranger(party: Party, port: int, places: int, peer: str = "loopback") -> int:
    """Register a worker without a token that has answered its first health check."""
    by = Registrant(address="127.0.0.1", peer=peer, trusted=False, confirmed=True)
    return party.register(port, places, by=by)


def credit(party: Party, worker: int) -> int:
    record = party.worker(worker)
    assert record is not None
    return record.credit


def give(party: Party, count: int) -> Counter[int]:
    """Create jobs and place them; return the number of jobs of each worker."""
    for _ in range(count):
        party.create()
    given: Counter[int] = Counter()
    while assignments := party.place().assignments:
        given.update(assignment.worker.id for assignment in assignments)
    return given


def prove(party: Party, worker: int, count: int) -> None:
    """Have a worker complete jobs, one after the other, while it is alone."""
    for _ in range(count):
        job = party.create()
        (given,) = party.place().assignments
        assert given.worker.id == worker
        assert party.finish(job, given.attempt)


@pytest.mark.rule("DSP-3.16")
def test_a_worker_that_claims_many_places_gets_no_job_beside_a_proven_one(world: World) -> None:
    party = world.party()
    honest = stranger(party, 8082, 4)
    prove(party, honest, 4)
    hog = stranger(party, 8083, HOG)
    for _ in range(10):
        job = party.create()
        (given,) = party.place().assignments
        assert given.worker.id == honest
        assert party.finish(job, given.attempt)
    assert give(party, 4) == {honest: 4}
    assert credit(party, hog) == 0


@pytest.mark.rule("DSP-3.16")
def test_a_worker_with_a_token_need_not_prove_itself(world: World) -> None:
    party = world.party()
    trusted = party.register(8082, 3)
    hog = stranger(party, 8083, HOG)
    assert give(party, 3) == {trusted: 3}
    assert give(party, 2) == {hog: 2}


@pytest.mark.rule("DSP-3.16")
def test_the_credit_grows_with_each_completion(world: World) -> None:
    party = world.party()
    first, second = stranger(party, 8082, 9), stranger(party, 8083, HOG)
    prove_one = party.create()
    (given,) = party.place().assignments
    assert party.finish(prove_one, given.attempt)
    winner = given.worker.id
    other = second if winner == first else first
    # One job within the credit; the further ones are shared evenly.
    assert give(party, 1) == {winner: 1}
    assert give(party, 1) == {other: 1}
    assert give(party, 2) == {winner: 1, other: 1}
    for id in range(2, 6):
        document = party.document(id)
        party.finish(id, document["execution"]["attempt"])
    assert (credit(party, winner), credit(party, other)) == (3, 2)


@pytest.mark.rule("DSP-3.16")
def test_a_fresh_deployment_uses_all_places(world: World) -> None:
    party = world.party()
    workers = [stranger(party, port, 8) for port in range(8082, 8086)]
    # Jobs are shared evenly although nobody has proven anything.
    assert give(party, 20) == dict.fromkeys(workers, 5)
    assert give(party, 12) == dict.fromkeys(workers, 3)


@pytest.mark.rule("DSP-3.16")
def test_workers_without_credit_share_evenly_whatever_they_claim(world: World) -> None:
    party = world.party()
    honest, hog = stranger(party, 8082, 4), stranger(party, 8083, HOG)
    assert give(party, 8) == {honest: 4, hog: 4}


@pytest.mark.rule("DSP-3.16")
def test_the_strangers_of_one_address_have_few_jobs_together(world: World) -> None:
    party = world.party(attrs.evolve(SETTINGS, max_unproven=10))
    honest = stranger(party, 8082, 2, peer="10.0.0.1")
    hogs = [stranger(party, port, HOG) for port in range(8083, 8093)]
    given = give(party, 30)
    assert given[honest] == 2
    assert sum(given[hog] for hog in hogs) == 10
    # The jobs that are left are done by the one that does them.
    assert given.total() == 12
    jobs = [
        id for id in range(1, 31) if party.document(id)["execution"]["worker"] == "127.0.0.1:8082"
    ]
    for id in jobs:
        party.finish(id, party.document(id)["execution"]["attempt"])
    assert {assignment.worker.id for assignment in party.place().assignments} == {honest}


@pytest.mark.rule("DSP-3.16")
@pytest.mark.parametrize("loss", ["refusal", "death", "expiry"])
def test_a_lost_job_halves_the_credit(world: World, loss: str) -> None:
    party = world.party()
    worker = stranger(party, 8082, 9)
    prove(party, worker, 8)
    job = party.create(timeout=3000)
    (given,) = party.place().assignments
    if loss == "refusal":
        party.run(TakeBack(party.settings, job, given.attempt, REFUSED))
    elif loss == "death":
        for _ in range(3):
            party.pinged(worker, 0, error="refused")
        party.check()
    else:
        world.clock.move(3.1)
        party.check()
    assert credit(party, worker) == 4


@pytest.mark.rule("DSP-3.16", "DSP-3.7")
def test_a_hog_counts_little_beside_requests_of_wmp_workers(world: World) -> None:
    party = world.party()
    hog = stranger(party, 8083, HOG)
    for _ in range(6):
        party.create()
    placed = party.place(wants={"resize": [5]})
    assert [given.worker.id for given in placed.assignments] == [hog]
    assert placed.left == 5
