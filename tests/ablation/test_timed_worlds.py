"""Safeguards around times and further attempts: without each, some timed world breaks.

See :mod:`tests.ablation.test_worlds`. No invariant covers run limits: the conformance kit
and the tests of rules notice that they are not kept.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.ablation import time_side
from wmp.testing.worlds.world import simulate

Switch = Callable[[pytest.MonkeyPatch], None]

TIMES, RETRIES = "times are kept", "retries are kept"

WORLDS: list[tuple[Switch, set[str], tuple[int, ...]]] = [
    (time_side.start_times, {TIMES}, (2, 4, 5)),
    (time_side.release, {"no livelock"}, (3, 4, 5)),
    (time_side.waits, {TIMES}, (3, 4, 7)),
    (time_side.tries, {RETRIES, TIMES}, (3, 4, 5)),
    (time_side.further_attempts, {RETRIES}, (3, 4, 6)),
    (time_side.expiry_in_the_queue, {TIMES}, (0, 3, 10)),
    (time_side.expiry_of_returned_jobs, {TIMES}, (3, 10, 37)),
    (time_side.expiry_at_the_worker, {TIMES}, (10, 56, 102)),
]
"""The switch, the invariants that may break with it, and seeds of timed worlds that break one."""


def broken(seed: int, switch: Switch) -> str:
    """Return the invariant that a timed world breaks without a safeguard; empty for none."""
    with pytest.MonkeyPatch.context() as patch:
        switch(patch)
        violation = simulate(seed, timed=True).violation
    return "" if violation is None else violation.name


@pytest.mark.parametrize("seed", sorted({seed for *_, seeds in WORLDS for seed in seeds}))
def test_with_every_safeguard_on_nothing_is_noticed(seed: int) -> None:
    assert simulate(seed, timed=True).violation is None


@pytest.mark.parametrize(
    ("switch", "invariants", "seeds"), WORLDS, ids=[row[0].__name__ for row in WORLDS]
)
def test_timed_worlds_notice_that_a_safeguard_is_off(
    switch: Switch, invariants: set[str], seeds: tuple[int, ...]
) -> None:
    violations = {}
    for seed in seeds:
        violations[seed] = broken(seed, switch)
        if violations[seed] in invariants:
            return
    pytest.fail(f"none of {sorted(invariants)} is broken: {violations}")
