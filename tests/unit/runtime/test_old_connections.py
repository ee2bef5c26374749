"""Which descriptor belongs to a peer of ZMTP 1 or 2, by the bytes that connections received."""

from __future__ import annotations

from wmp.runtime.sockets.old_connections import OldConnections


def test_the_only_connection_is_that_of_the_peer() -> None:
    old = OldConnections({7: 20}.get)
    assert old.came(b"a", [7]) == (7, [])
    assert not old.candidates


def test_a_connection_that_received_nothing_is_not_that_of_the_peer() -> None:
    counts = {7: 20, 8: 0}
    assert OldConnections(counts.get).came(b"a", [7, 8]) == (7, [])


def test_a_further_message_leaves_the_connections_that_grew() -> None:
    counts = {7: 20, 8: 64}
    old = OldConnections(counts.get)
    assert old.came(b"a", [7, 8]) == (None, [])
    counts[7] = 30
    # The second message may have arrived with the first.
    assert old.came(b"a", [7, 8]) == (None, [])
    old.emptied()
    counts[7] = 40
    assert old.came(b"a", [7, 8]) == (7, [])


def test_the_end_of_a_connection_with_one_candidate_is_that_of_the_peer() -> None:
    counts = {7: 20, 8: 64}
    old = OldConnections(counts.get)
    old.came(b"a", [7, 8])
    assert old.ended(8, old=False) == []  # a connection of ZMTP 3
    assert old.ended(7, old=True) == [b"a"]
    assert not old.candidates


def test_of_two_peers_the_one_that_goes_on_shows_which_has_ended() -> None:
    counts = {7: 20, 8: 20}
    old = OldConnections(counts.get)
    old.came(b"a", [7, 8])
    old.came(b"b", [7, 8])
    assert old.ended(7, old=True) == []
    old.emptied()
    counts[8] = 30
    assert old.came(b"b", [8]) == (8, [b"a"])
    assert not old.candidates


def test_a_peer_whose_connection_proves_to_be_another_one_has_ended() -> None:
    counts = {7: 20, 8: 64}
    old = OldConnections(counts.get)
    old.came(b"a", [7, 8])
    assert old.ended(7, old=False) == []
    assert old.learned(8) == [b"a"]


def test_connections_without_counts_stay_candidates() -> None:
    old = OldConnections(lambda descriptor: None)
    assert old.came(b"a", [7, 8]) == (None, [])
    assert old.came(b"b", [7]) == (7, [])
