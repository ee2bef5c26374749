"""Collected by ``pytest --pyargs wmp.conformance``; see :mod:`wmp.conformance.plugin`."""

from __future__ import annotations

import pytest
from attrs import evolve

from wmp.conformance.engine.run import KitRun, RunPlan
from wmp.conformance.report.report import ConformanceReport
from wmp.conformance.script.case import Verdict
from wmp.conformance.script.transcript import conversation


def test_peer(wmp_case: str, wmp_plan: RunPlan, request: pytest.FixtureRequest) -> None:
    """Play one case with one peer."""
    cases = [case for case in wmp_plan.cases if case.id == wmp_case]
    plan = evolve(wmp_plan, cases=cases, examples=0 if cases else wmp_plan.examples)
    (entry,) = KitRun(plan)
    live = plan.live
    report = ConformanceReport(
        live.testee,
        live.testee,
        live.command,
        live.endpoint,
        live.own_unit,
        request.config.getoption("--wmp-strict"),
        plan.seed,
        plan.examples,
        entries=(entry,),
    )
    if report.bad:
        rules = ", ".join(entry.breaks or entry.rules[:1])
        pytest.fail(
            f"{entry.verdict.value} {rules}: {entry.text}\n"
            f"in {entry.case}: {entry.about}\n"
            f"{conversation(entry.lines, live.testee)}\n{entry.stderr}\n"
            f"play it again: {report.replay(entry)}",
            pytrace=False,
        )
    if entry.verdict in (Verdict.UNIMPLEMENTED, Verdict.VOID):
        pytest.skip(f"{entry.verdict.value}: {entry.text}")
