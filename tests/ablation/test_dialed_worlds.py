"""Safeguards around managers that dial in: without each, some world with such managers breaks.

See :mod:`tests.ablation.test_worlds`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from wmp.core.device import DeviceMachine
from wmp.core.manager.announcements import Announcements
from wmp.core.manager.timers import AnnounceTimer
from wmp.message import Link, Message
from wmp.testing.worlds.world import simulate

Patch = pytest.MonkeyPatch
Switch = Callable[[Patch], None]


def repetition(patch: Patch) -> None:
    """WMP-8.11: a manager announces itself when the DEALER connects, and never again."""
    announce = Announcements.announce

    def once(self: Announcements, link: int, now: float) -> None:
        announce(self, link, now)
        self.outbound.timers.clear(AnnounceTimer(link))

    patch.setattr(Announcements, "announce", once)


def announcement(patch: Patch) -> None:
    """WMP-8.11: a manager that dials in does not announce itself."""
    patch.setattr(Announcements, "connected", lambda *_: None)


def discovery(patch: Patch) -> None:
    """WMP-8.1: READY and PING go to no connection of the upper ROUTER."""
    received = DeviceMachine._received

    def dealers_only(
        self: DeviceMachine, link: Link, message: Message, now: float, *others: Any
    ) -> Any:
        actions = received(self, link, message, now, *others)
        if message.to or isinstance(link, int):
            return actions
        last = self.settings.upstreams
        return [
            action
            for action in actions
            if not (isinstance(action.link, int) and action.link >= last)
        ]

    patch.setattr(DeviceMachine, "_received", dealers_only)


MEET = "they meet"
WORLDS: list[tuple[Switch, tuple[int, ...]]] = [
    (repetition, (26, 30, 38)),
    (announcement, (0, 3, 5)),
    (discovery, (0, 3, 5)),
]
"""The switch, and seeds of worlds in which jobs and idle workers then wait for each other."""


def broken(seed: int, switch: Switch) -> str:
    """Return the invariant that a world breaks without a safeguard; empty for none."""
    with pytest.MonkeyPatch.context() as patch:
        switch(patch)
        violation = simulate(seed, dialed=True).violation
    return "" if violation is None else violation.name


@pytest.mark.parametrize("seed", sorted({seed for _, seeds in WORLDS for seed in seeds}))
def test_with_every_safeguard_on_nothing_is_noticed(seed: int) -> None:
    assert simulate(seed, dialed=True).violation is None


@pytest.mark.rule("WMP-8.1", "WMP-8.11")
@pytest.mark.parametrize(("switch", "seeds"), WORLDS, ids=[row[0].__name__ for row in WORLDS])
def test_dialed_worlds_notice_that_a_safeguard_is_off(
    switch: Switch, seeds: tuple[int, ...]
) -> None:
    violations = {}
    for seed in seeds:
        violations[seed] = broken(seed, switch)
        if violations[seed] == MEET:
            return
    pytest.fail(f"{MEET!r} is not broken: {violations}")
