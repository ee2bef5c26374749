"""Every door with every client and worker of the zoo (tests/peers), while workers are killed."""

from __future__ import annotations

import pytest

from tests.interop.gateways.zoo import CLIENTS, DOORS, compiled, in_c, pairs, play

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("zoo"))


PAIRS = list(pairs())


def _few():
    """Yield some workers of each door, and each client at least once."""
    drawn = 0
    for offset, (door, workers) in enumerate(DOORS.items()):
        for worker in workers[offset % 3 :: 3]:
            clients = [client for at, client, of in PAIRS if (at, of) == (door, worker)]
            yield door, clients[drawn % len(clients)], worker
            drawn += door != "round-robin"


@pytest.mark.parametrize(("door", "client", "worker"), list(_few()))
def test_workers_of_the_zoo_are_served_beside_kills(door, client, worker, program):
    _check(door, client, worker, program, requests=200, kills=2)


@pytest.mark.deep
@pytest.mark.parametrize(("door", "client", "worker"), PAIRS)
def test_no_request_of_the_zoo_is_wrong_or_stuck(door, client, worker, program):
    _check(door, client, worker, program, requests=2000, kills=10)


def test_the_few_pairs_have_each_client_and_programs_in_c():
    few = list(_few())
    assert {client for _, client, _ in few} == set(CLIENTS)
    assert {door for door, _, _ in few} == set(DOORS)
    assert any(in_c("req", worker) for _, _, worker in few)


def _check(door, client, worker, program, *, requests, kills):
    if program is None and in_c(client, worker):
        pytest.skip("needs a C compiler, for example gcc")
    result = play(
        door, client, worker, requests=requests, kills=kills, seed=requests, program=program
    )
    assert (result.wrong, result.stuck) == ([], 0)
    # The last kills may come too late on a busy machine.
    assert 0 < result.kills <= kills
