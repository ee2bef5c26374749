"""A report of handwritten rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wmp.spark.journals.schema import PHASES, TABLES
from wmp.spark.reports.report_data import ReportData

BEGIN = 1_700_000_000_000_000
EVIL = "<img src=x onerror=document.title='taken'>"


def row(table: str, **values: Any) -> Mapping[str, Any]:
    """Return a row in which every column without a given value is null."""
    columns = [column.name for column in TABLES[table].columns]
    assert set(values) <= set(columns), set(values) - set(columns)
    return {name: values.get(name) for name in columns}


def node(name: str, kind: str, last: int, **values: Any) -> Mapping[str, Any]:
    """Return a process that lived from the beginning until ``last`` ms."""
    return row(
        "nodes", node=name, epoch=1, kind=kind, label=name, segments=1, lines=9, missing=0,
        first=BEGIN, last=BEGIN + last * 1000, clock=0, clock_error=0, **values,
    )  # fmt: skip


def story(n: int, who: str, what: str, command: str | None = None, **values: Any) -> Any:
    """Return a line of a story. The first line is at the beginning, each later line a ms later."""
    return row(
        "violation_events", violation="v1", place=n, node=who, epoch=1, n=n,
        time=BEGIN + n * 1000, what=what, command=command, **values,
    )  # fmt: skip


def example_report(**tables: list[Mapping[str, Any]]) -> ReportData:
    """Return a report: a manager, a device, two workers (one killed), two roles, one violation."""
    take = {"source": "m", "target": "w1", "ids": [7], "attempts": [1], "text": "number=1"}
    some: dict[str, list[Mapping[str, Any]]] = {
        "nodes": [
            node("m", "manager", 900, end="stop"),
            node("d", "device", 900, end="stop"),
            node("w1", "worker", 400),
            node(EVIL, "worker", 900, end="stop"),
        ],
        "utilisation": [
            row("utilisation", worker="w1", worker_epoch=1, resource="slots", have=2,
                time=BEGIN + at * 1000, length=100_000, busy=at * 400, share=at / 500)
            for at in range(0, 400, 100)
        ],
        "activity": [
            row("activity", role=role, time=BEGIN + at * 1000, length=100_000, submitted=5,
                ended=at // 100, failed=0, mean_total=1e4)
            for role in ("count", EVIL)
            for at in range(0, 900, 100)
        ],
        "histogram": [
            row("histogram", phase=phase, role=role, low=2.0**bar, high=2.0 ** (bar + 1), count=bar)
            for phase in PHASES
            for role in ("count", EVIL)
            for bar in range(8, 14)
        ],
        "latency": [
            row("latency", phase=phase, by="all", key="", count=114, mean=3e3, p50=2_000,
                p90=9_000, p95=9_500, p99=12_000, p999=16_000, most=16_384)
            for phase in PHASES
        ] + [
            row("latency", phase="total", by="role", key=role, count=57, mean=3e3, p50=2_000,
                p90=9_000, p95=9_500, p99=12_000, p999=16_000, most=16_384)
            for role in ("count", EVIL)
        ],
        **{
            which: [row("jobs", owner="m", owner_epoch=1, job=number, role=EVIL, submitted=BEGIN,
                        end="error", attempts=3, over=2, worker="w1", worker_epoch=1,
                        queue_wait=5_000, total=90_000)]
            for number, which in enumerate(("slowest", "failed", "requeued"))
        },
        "failed": [row("jobs", owner="m", owner_epoch=1, job=8, end="error", attempts=1)],
        "fairness": [
            row("fairness", by="workers of a manager", node="m", epoch=1, measure="jobs",
                parties=2, least=40, most=60, max_min=1.5, jain=0.96)
        ],
        "requeues": [
            row("requeues", cause="silence", role="count", worker="w1", worker_epoch=1, leases=3)
        ],
        "device_hops": [
            row("device_hops", device="d", direction="up", count=50, mean=1e3, p50=900, p90=1,
                p95=1, p99=1, p999=1, most=2_000, direct=400)
        ],
        "drops": [row("drops", node="m", epoch=1, reason="duplicate", lines=4)],
        "bad_lines": [row("bad_lines", file="w1.jsonl", reason="torn", lines=1, example="{")],
        "missing_nodes": [row("missing_nodes", node="m2", epoch=1, messages=11)],
        "findings": [
            row("findings", name="no stale result", text="a result is accepted", certain=True,
                violations=1)
        ],
        "violations": [
            row("violations", violation="v1", name="no stale result", text="a result is accepted",
                detail=EVIL, certain=True, node="m", epoch=1, owner="m", owner_epoch=1, job=7,
                time=BEGIN + 4000)
        ],
    }  # fmt: skip
    some.update(tables)
    numbers = {
        "lines": 36.0, "jobs": 100.0, "jobs ok": 100.0, "jobs per second": 111.1, "workers": 2.0,
        "managers": 1.0, "devices": 1.0, "leases over": 3.0, "leases handed back": 0.0,
        "seconds": 0.9, "violations": 1.0,
        "wakes": 10.0, "wakes wasted": 3.0, "locks": 9.0, "locks taken": 7.0, "bad lines": 1.0,
    }  # fmt: skip
    lines = [
        story(1, "m", "submitted", ids=[7], text=""),
        story(2, "m", "send", "TAKE", **take),
        story(3, "w1", "received", "TAKE", **take),
        story(4, "m", "resolve", ids=[7], attempts=[1], text="ends=[ok]"),
    ]
    return ReportData(("journal",), some, numbers, {"v1": lines})
