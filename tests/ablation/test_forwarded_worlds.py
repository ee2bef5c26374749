"""Safeguards of a forwarding manager: without each, some world with such a manager breaks.

See :mod:`tests.ablation.test_worlds`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from wmp.core.manager import forwarded_jobs
from wmp.core.manager.job_lifecycle import JobInput, JobRecord
from wmp.core.manager.requeue import Requeue
from wmp.core.relay import LeaseRelay
from wmp.testing.worlds.world import simulate

Patch = pytest.MonkeyPatch
Switch = Callable[[Patch], None]


def one_lease(patch: Patch) -> None:
    """WMP-19.4: a forwarding manager grants a lost job again by itself."""

    def again(self: Requeue, worker: Any, job: JobRecord, text: str, **others: bool) -> None:
        job.step(JobInput.LOSE)
        job.reserved = True
        self.queues.get(job.kind).put_back(job)

    patch.setattr(Requeue, "_lose_forwarded", again)


def answers_of_lost_leases(patch: Patch) -> None:
    """WMP-19.4: a lost lease is not answered above."""

    def forget(self: Requeue, worker: Any, job: JobRecord, text: str, **others: bool) -> None:
        job.step(JobInput.SPEND)
        self.leases.forget(job)
        self.leases.forwarded -= 1

    patch.setattr(Requeue, "_lose_forwarded", forget)


def jobs_handed_back(patch: Patch) -> None:
    """WMP-19.4: a job that never began is not handed back above."""
    answered = LeaseRelay._answered

    def keep(self: LeaseRelay, answer: Any) -> Any:
        events = answered(self, answer)
        return [event for event in events if type(event).__name__ != "Recalled"]

    patch.setattr(LeaseRelay, "_answered", keep)


def counted_runs(patch: Patch) -> None:
    """WMP-19.3: `begun` of the TAKE from above is not passed on."""
    records = forwarded_jobs._records

    def all_begun(*arguments: Any) -> list[JobRecord]:
        jobs = records(*arguments)
        for job in jobs:
            job.unbegun = 0
        return jobs

    patch.setattr(forwarded_jobs, "_records", all_begun)


ENDS, RUNS, EXECUTIONS = "every job ends", "runs are counted", "executions"
WORLDS: list[tuple[Switch, str, tuple[int, ...]]] = [
    (one_lease, EXECUTIONS, (391, 504)),
    (answers_of_lost_leases, ENDS, (391, 125)),
    (jobs_handed_back, ENDS, (4, 10)),
    (counted_runs, RUNS, (10, 12)),
]
"""The switch, the invariant that breaks without it, and seeds of worlds in which it does."""


def broken(seed: int, switch: Switch) -> str:
    """Return the invariant that a world breaks without a safeguard; empty for none."""
    with pytest.MonkeyPatch.context() as patch:
        switch(patch)
        violation = simulate(seed, forwarded=True).violation
    return "" if violation is None else violation.name


@pytest.mark.parametrize("seed", sorted({seed for _, _, seeds in WORLDS for seed in seeds}))
def test_with_every_safeguard_on_nothing_is_noticed(seed: int) -> None:
    assert simulate(seed, forwarded=True).violation is None


@pytest.mark.rule("WMP-19.3", "WMP-19.4")
@pytest.mark.parametrize(
    ("switch", "invariant", "seeds"), WORLDS, ids=[row[0].__name__ for row in WORLDS]
)
def test_forwarded_worlds_notice_that_a_safeguard_is_off(
    switch: Switch, invariant: str, seeds: tuple[int, ...]
) -> None:
    violations = {}
    for seed in seeds:
        violations[seed] = broken(seed, switch)
        if violations[seed] == invariant:
            return
    pytest.fail(f"{invariant!r} is not broken: {violations}")
