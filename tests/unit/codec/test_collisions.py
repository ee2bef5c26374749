"""Payloads whose keys collide are refused before a dict or a set is built from them."""

from __future__ import annotations

from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmp.codec import collisions, pack_value, unpack_value
from wmp.codec.collisions import SAFE_BYTES, CostlyKeys, check_keys, check_members
from wmp.errors import DecodeError
from wmp.runtime.codecs.tagged_values import pack_tagged, unpack_tagged

HASH_MODULUS = 2**61 - 1
"""Whole numbers that differ by a multiple of this number have one hash (sys.hash_info)."""

COUNT = 4000

COLLIDING = [HASH_MODULUS * number for number in range(1, COUNT + 1)]


def tagged(name: str, items: list[int]) -> cbor2.CBORTag:
    return cbor2.CBORTag(27, [name, items])


MEMBERS: dict[str, list[Any]] = {
    "whole numbers": COLLIDING,
    "UUIDs": [cbor2.CBORTag(37, number.to_bytes(16, "big")) for number in COLLIDING],
    "decimal numbers": [cbor2.CBORTag(4, [0, number]) for number in COLLIDING],
    "fractions": [cbor2.CBORTag(30, [number, 1]) for number in COLLIDING],
    "tuples": [tagged("tuple", [number]) for number in COLLIDING],
    "frozensets": [tagged("frozenset", [number]) for number in COLLIDING],
}


@pytest.mark.rule("VALUE-1.6")
@pytest.mark.parametrize("kind", MEMBERS)
def test_a_set_of_members_with_one_hash_is_refused(kind: str) -> None:
    payload = cbor2.dumps(cbor2.CBORTag(258, MEMBERS[kind]))
    with pytest.raises(DecodeError, match="collide"):
        unpack_tagged(payload)


@pytest.mark.rule("VALUE-1.6")
@pytest.mark.parametrize("around", [lambda bomb: bomb, lambda bomb: [1, {"a": [bomb]}]])
def test_a_map_of_keys_with_one_hash_is_refused(around: Any) -> None:
    payload = cbor2.dumps(around(dict.fromkeys(COLLIDING, 0)))
    with pytest.raises(DecodeError, match="collide"):
        unpack_tagged(payload)


def chosen_keys(slots: int) -> list[int]:
    """Return keys of 64 bits with different hashes that nevertheless meet in a dict.

    The first of them fill a chain of slots. Each of the others passes through used slots only,
    until it follows this chain.
    """
    mask = slots - 1
    chain, slot = [], 0
    for _ in range(slots * 45 // 100):
        chain.append(slot)
        slot = (5 * slot + 1) & mask
    used = set(chain)
    others: list[int] = []
    # The lowest 44 bits are zero, so the first jumps follow the chain from slot 0.
    for number in range(1 << 44, 1 << 60, 1 << 44):
        rest, slot = number, 0
        while rest and slot in used:
            rest >>= 5
            slot = (5 * slot + 1 + rest) & mask
        if not rest and slot in used:
            others.append(number)
        if len(others) == slots // 8:
            break
    return chain + others


@pytest.mark.rule("VALUE-1.6")
def test_keys_with_different_hashes_that_meet_in_a_dict_are_refused() -> None:
    payload = pack_value(dict.fromkeys(chosen_keys(1 << 13), 0))
    for unpack in (unpack_value, unpack_tagged):
        with pytest.raises(DecodeError, match="collide"):
            unpack(payload)


@pytest.mark.rule("VALUE-1.6")
@pytest.mark.parametrize(
    "key", [cbor2.CBORTag(37, bytes(16)), 1.5, None, cbor2.CBORTag(4, [0, 1])], ids=repr
)
def test_a_large_map_has_no_other_keys_than_numbers_text_and_bytes(key: Any) -> None:
    items = b"".join(cbor2.dumps(number) + b"\0" for number in range(100))
    payload = b"\xb9" + (101).to_bytes(2, "big") + items + cbor2.dumps(key) + b"\0"
    with pytest.raises(CostlyKeys, match="not integers, text or bytes"):
        check_keys(payload)


@pytest.mark.parametrize("step", [1, -7, 1 << 22, 1 << 32, 1 << 44, 1000])
@pytest.mark.parametrize("unpack", [unpack_value, unpack_tagged])
def test_usual_keys_are_accepted(unpack: Any, step: int) -> None:
    value = {number * step: "" for number in range(5000)}
    payload = pack_value(value)
    assert len(payload) > SAFE_BYTES
    assert unpack(payload) == value
    assert unpack_tagged(pack_tagged(set(value))) == set(value)


VALUES = st.recursive(
    st.integers(-(2**70), 2**70) | st.text(max_size=3) | st.binary(max_size=3) | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.integers(-(2**70), 2**70) | st.text(max_size=3), inner, max_size=4)
        | st.sets(st.integers(-(2**70), 2**70), max_size=4)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_a_large_payload_is_decoded_as_a_small_one(value: Any) -> None:
    large = [value, b"x" * SAFE_BYTES, dict.fromkeys(range(70), value)]
    assert unpack_tagged(pack_tagged(large)) == large


@given(st.binary(max_size=60))
def test_the_check_leaves_malformed_bytes_to_the_decoder(data: bytes) -> None:
    check_keys(data)


def test_deep_nesting_is_left_to_the_decoder() -> None:
    check_keys(b"\x81" * 100_000)


@pytest.mark.parametrize("linear", [0, 9])
def test_the_count_of_steps_grows_with_the_square_of_colliding_keys(linear: int) -> None:
    def steps(count: int) -> int:
        table = collisions._HashTable(linear)
        for _ in range(count):
            table.add(5)
        return table.steps

    assert steps(140) > 3 * steps(70)


def test_texts_need_no_check() -> None:
    check_members([str(number) for number in range(100_000)])
