"""A node that drops many messages rests, unless honest messages would wait in the same pipe."""

from __future__ import annotations

import pytest

from wmp.errors import DecodeError
from wmp.message import Command, Message
from wmp.runtime.common.counters import Counters
from wmp.runtime.driver.refusals import Refusals
from wmp.runtime.driver.throttle import Throttle

DIRECT = (b"w", 1)
BELOW_A_DEVICE = (b"w", 1, b"d", 1, b"local")


class Drops:
    """Refused messages of one link, a thousandth of a second apart, and the rests."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rests: list[float] = []
        counters = Counters("manager")
        throttle = Throttle(chatter=10, refused=4)
        self.refusals = Refusals(throttle, counters, lambda: self.now, self.rests.append)

    def flood(self, source: tuple[bytes | int, ...]) -> None:
        message = Message(Command.PING, (), source)
        for _ in range(1000):
            self.now += 0.001
            self.refusals.flooded(b"l", message, self.now)

    def garble(self, source: tuple[bytes | int, ...]) -> None:
        error = DecodeError("head: no CBOR", source=source)
        for _ in range(2000):
            self.now += 0.0001
            self.refusals.garbled(b"l", error, self.now)


@pytest.mark.parametrize("drop", [Drops.flood, Drops.garble])
def test_a_node_rests_after_many_messages_of_a_direct_connection(drop):
    drops = Drops()
    drop(drops, DIRECT)
    assert drops.rests


@pytest.mark.parametrize("drop", [Drops.flood, Drops.garble])
def test_messages_through_a_device_cause_no_rest(drop):
    drops = Drops()
    drop(drops, BELOW_A_DEVICE)
    assert drops.rests == []
