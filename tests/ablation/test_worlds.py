"""Each safeguard is switched off: some world notices, and names an invariant of the safeguard.

A search found the seeds. Every change of the messages that a machine sends may change which worlds
notice. So each safeguard has a few seeds, and one of them must notice. When none of them notices
any more, search for other seeds before you conclude that the safeguard is needless.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.ablation import manager_side, worker_side
from wmp.testing.worlds.world import simulate

Switch = Callable[[pytest.MonkeyPatch], None]

ENDS, MEET, CRASH = "every job ends", "they meet", "no crash"
STALE, CAUSE, TWICE = "no stale result", "leases are lost for a cause", "executions"
LOSSES = "worker losses are kept"
RUNS = "runs are counted"
RIVALS = "one process for each identity"
PAUSE = "a pause ends with a question"

WORLDS: list[tuple[Switch, set[str], tuple[int, ...]]] = [
    (manager_side.session_of_results, {CAUSE, ENDS}, (351, 395)),
    (manager_side.new_session, {STALE, ENDS}, (10, 160, 307, 329)),
    (manager_side.leases_of_the_old_session, {ENDS}, (133, 453, 11)),
    (manager_side.expiry, {STALE, ENDS}, (300, 372, 170)),
    (manager_side.reconnect_grace, {CAUSE}, (69, 186, 340)),
    (manager_side.older_epoch, {RIVALS, TWICE}, (62, 67, 139, 81, 31)),
    (manager_side.newer_epoch, {STALE, TWICE}, (55, 220, 289, 317, 386, 440)),
    (manager_side.lost_leases, {ENDS}, (8, 49, 68)),
    (manager_side.resend_by_manager, {ENDS, MEET}, (147, 200, 185)),
    (manager_side.lost_while_cancelling, {"cancelled stays cancelled"}, (160, 161, 170, 283)),
    (manager_side.ended_in_the_queue, {"cancelled stays cancelled"}, (6, 8, 12, 18, 28)),
    (manager_side.unbegun_leases, {RUNS}, (13, 15, 33, 44)),
    (manager_side.begun_runs, {RUNS}, (6, 10, 11, 15)),
    (manager_side.max_worker_losses, {LOSSES}, (29, 17, 57, 67)),
    (manager_side.leaving_again, {LOSSES}, (1833, 1928, 2390)),
    (manager_side.impatience, {LOSSES}, (6, 49, 57, 63)),
    (manager_side.lost_at_the_worker, {LOSSES}, (29, 17, 57, 70)),
    (manager_side.lease_bound, {"leases fit"}, (26, 10, 33)),
    (manager_side.handing_back, {"ends have a cause"}, (44, 314, 411, 486)),
    (manager_side.pong, {MEET, ENDS, RIVALS}, (19, 15, 25, 9)),
    (worker_side.stream_dedupe, {TWICE}, (28, 29, 80, 145, 17)),
    (worker_side.stream_order, {CAUSE}, (61, 26, 130, 178)),
    (worker_side.resources_check, {"no double booking"}, (7, 8, 10, 12, 6)),
    (worker_side.ready_by_pong, {MEET}, (47, 15, 113, 108)),
    (worker_side.old_session, {CRASH}, (27, 9, 29, 32)),
    (worker_side.forgotten_session, {ENDS}, (286,)),
    (worker_side.older_epoch, {ENDS, MEET}, (29,)),
    (worker_side.newer_epoch, {CAUSE}, (48, 211, 289, 296)),
    (manager_side.refusal, {RIVALS}, (19, 31, 29)),
    (manager_side.admission, {MEET, ENDS, CRASH}, (21, 68, 83)),
    (worker_side.every_refusal, {RIVALS}, (31, 19, 29)),
    (worker_side.silent_link, {MEET, RIVALS}, (29, 31, 24, 69)),
    (worker_side.late_start, {PAUSE}, (63, 300)),
]
"""The switch, the invariants that may break with it, and seeds of worlds in which one breaks."""

DEPTH: list[tuple[tuple[Switch, ...], set[str], tuple[int, ...]]] = [
    ((manager_side.reconciliation, worker_side.stream_order), {ENDS}, (509, 331, 544)),
    ((manager_side.replay_by_manager, manager_side.resend_by_manager), {ENDS}, (418,)),
    ((worker_side.replay_by_worker, worker_side.resend_by_worker), {ENDS}, (69, 286)),
    ((worker_side.held_already, worker_side.stream_dedupe), {TWICE, CRASH}, (8, 18, 27)),
    ((manager_side.expiry, manager_side.newer_epoch), {STALE, TWICE}, (11, 483, 660, 758)),
    (
        (
            manager_side.again_to_manager,
            worker_side.again_to_worker,
            manager_side.resend_by_manager,
        ),
        {ENDS},
        (103, 147),
    ),
]
"""Safeguards that repair the same fault: these worlds can miss one of them, but not all."""

SEEDS = sorted({seed for *_, seeds in [*WORLDS, *DEPTH] for seed in seeds})


def name(value: object) -> str:
    if isinstance(value, tuple):
        return " and ".join(map(name, value))
    module = getattr(value, "__module__", "").rpartition(".")[2].removesuffix("_side")
    return f"{module}'s {getattr(value, '__name__', value)}"


def broken(seed: int, *switches: Switch) -> str:
    """Return the invariant that a seed's world breaks without these safeguards; empty for none."""
    with pytest.MonkeyPatch.context() as patch:
        for switch in switches:
            switch(patch)
        violation = simulate(seed).violation
    return "" if violation is None else violation.name


@pytest.mark.parametrize(
    "seed",
    # The default run plays one world of eleven, the deep tests play all of them.
    [
        pytest.param(seed, marks=() if at % 11 == 0 else pytest.mark.deep)
        for at, seed in enumerate(SEEDS)
    ],
)
def test_with_every_safeguard_on_nothing_is_noticed(seed):
    assert simulate(seed).violation is None


@pytest.mark.parametrize(
    ("switch", "invariants", "seeds"), WORLDS, ids=[name(row[0]) for row in WORLDS]
)
def test_worlds_notice_that_a_safeguard_is_off(switch, invariants, seeds):
    violations = {}
    for seed in seeds:
        violations[seed] = broken(seed, switch)
        if violations[seed] in invariants:
            return
    pytest.fail(f"none of {sorted(invariants)} is broken: {violations}")


@pytest.mark.parametrize(
    ("switches", "invariants", "seeds"), DEPTH, ids=[name(row[0]) for row in DEPTH]
)
def test_worlds_need_one_of_several_safeguards(switches, invariants, seeds):
    """Worlds end well without one of the safeguards, and break without all of them."""
    violations = {}
    for seed in seeds:
        violations[seed] = [broken(seed, *switches)]
        if violations[seed][0] in invariants:
            violations[seed] += [broken(seed, switch) for switch in switches]
            if not any(violations[seed][1:]):
                return
    pytest.fail(f"no world needs just one of them: {violations}")
