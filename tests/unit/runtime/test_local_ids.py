"""Local ids: each routing id has one of its own, libzmq's ids do not reveal it, and tables are
bounded.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from wmp.runtime.sockets.local_ids import _MAX_CACHED, LocalIds


@given(st.binary(min_size=1, max_size=255))
def test_every_id_comes_back(id):
    ids = LocalIds()
    assert ids.routing(ids.local(id)) == id
    assert ids.local(ids.routing(id)) == id


def test_numbers_in_a_row_do_not_look_like_it():
    ids = LocalIds()
    row = [b"\0" + number.to_bytes(4, "big") for number in range(1000, 2000)]
    local = [ids.local(id) for id in row]

    assert len(set(local)) == len(row)
    assert not set(local) & set(row)
    assert all(len(id) == 5 and id[0] == 0 for id in local), "another id cannot be taken for one"
    numbers = [int.from_bytes(id, "big") for id in local]
    assert len({after - before for before, after in pairwise(numbers)}) > 900


def test_two_devices_disguise_an_id_differently():
    assert LocalIds().local(b"\0abcd") != LocalIds().local(b"\0abcd")


def test_an_id_that_the_peer_chose_stays():
    assert LocalIds().local(b"mine") == b"mine"


def test_connections_that_come_and_go_cost_no_memory():
    ids = LocalIds()
    for number in range(2 * _MAX_CACHED + 1):
        id = b"\0" + number.to_bytes(4, "big")
        assert ids.routing(ids.local(id)) == id
    assert max(len(ids._local), len(ids._routing)) <= _MAX_CACHED
