"""With an allow list, an identity in use is believed only from the key that holds the identity."""

from __future__ import annotations

from wmp.core.protocol import error_replies
from wmp.message import Command, ErrorCode, Field, Message
from wmp.runtime.sockets.identity_holders import IdentityHolders, taken

WORKER = (b"w", 1)
BEHIND = (b"w", 1, b"d", 1, b"local")


def test_another_key_cannot_use_an_identity_in_use() -> None:
    holders = IdentityHolders()
    assert holders.admits(b"honest", b"a", WORKER, 0.0)
    assert not holders.admits(b"thief", b"b", (b"w", 2**63 - 1), 9.9)
    assert holders.admits(b"honest", b"a", WORKER, 9.9)
    assert not holders.admits(b"thief", b"b", WORKER, 19.8)


def test_a_device_with_another_key_cannot_claim_it_either() -> None:
    holders = IdentityHolders()
    assert holders.admits(b"honest", b"a", WORKER, 0.0)
    assert not holders.admits(b"thief", b"b", BEHIND, 1.0)


def test_refused_messages_do_not_keep_the_holder() -> None:
    holders = IdentityHolders()
    assert holders.admits(b"honest", b"a", WORKER, 0.0)
    assert not holders.admits(b"other", b"b", WORKER, 9.9)
    assert holders.admits(b"other", b"b", WORKER, 10.0)
    assert not holders.admits(b"honest", b"a", WORKER, 10.1)


def test_the_same_key_may_use_another_connection_and_another_epoch() -> None:
    holders = IdentityHolders()
    assert holders.admits(b"honest", b"a", WORKER, 0.0)
    assert holders.admits(b"honest", b"b", (b"w", 2), 0.1)
    holders.forget(b"a")  # the identity is in use over the other connection
    assert not holders.admits(b"thief", b"c", WORKER, 0.2)


def test_the_end_of_a_connection_frees_its_identities() -> None:
    holders = IdentityHolders()
    for name in (b"u", b"v", b"w"):
        assert holders.admits(b"device", b"a", (name, 1, b"d", 1, b"local"), 0.0)
    holders.forget(b"a")
    assert holders.admits(b"other", b"b", WORKER, 0.1)
    assert holders.admits(b"third", b"c", (b"u", 1), 0.1)


def test_the_identities_of_one_key_are_bounded_and_others_stay(monkeypatch) -> None:
    monkeypatch.setattr("wmp.runtime.sockets.identity_holders._MAX", 100)
    holders = IdentityHolders()
    assert holders.admits(b"honest", b"a", WORKER, 0.0)
    for number in range(1000):
        assert holders.admits(b"flood", b"b", (b"%d" % number, 1), 0.0)
    assert len(holders._holders) == 101
    assert not holders.admits(b"flood", b"b", WORKER, 0.1)


def test_the_holder_over_another_route_gets_no_report() -> None:
    holders = IdentityHolders()
    assert holders.admits(b"honest", b"a", WORKER, 0.0)
    assert not holders.admits(b"device", b"b", BEHIND, 0.1)
    assert not holders.is_other_process(BEHIND)
    assert holders.is_other_process((b"w", 2))


def test_the_error_names_the_refused_peer() -> None:
    error = taken(Message(Command.READY, (), (b"w", 7), {}))
    (answer,) = error_replies.garbled((b"m", 1), b"link", error)
    assert answer.message.to == (7, b"w")
    assert answer.message.fields[Field.CODE] == ErrorCode.SUPERSEDED
    assert answer.message.fields[Field.ABOUT_PEER] == (b"w", 7)
