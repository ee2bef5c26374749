"""The report of the pipeline: one page that needs no other file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Final

from attrs import frozen
from markupsafe import Markup

from wmp.pages.template import amount, duration, render
from wmp.spark import pictures
from wmp.spark.charts import MOST_ROLES, figures, plotly, script_hash, to_json
from wmp.spark.report_data import MOST_VIOLATIONS, ReportData, Row, name_of
from wmp.spark.schema import PHASES, TABLES
from wmp.spark.violation_diagram import violation_diagram

__all__ = ["page"]

_LIBRARY: Final = "<!-- plotly -->"
"""Stands for Plotly's script until the page is rendered; no text of a journal has this markup."""
_STARTER: Final = files("wmp.pages").joinpath("templates", "report.js").read_text("utf-8")
_MOST: Final = 200
"""Largest number of rows of a list."""

_Nodes = Mapping[tuple[str, int], Row]
"""The rows of ``nodes`` by (node, epoch)."""


@frozen
class _Cell:
    """A cell of a list with a tooltip, a class or a bar."""

    text: str
    title: str = ""
    """The tooltip."""
    share: float | None = None
    """A number from 0 to 1, which is drawn as a bar."""


@frozen
class _List:
    """A list of rows under headings; a list without rows is not shown."""

    heads: Sequence[str]
    all_rows: Sequence[Sequence[str | _Cell]] = ()
    left: int = 1
    """Number of columns with words, from the left; the other columns have numbers."""

    @property
    def rows(self) -> list[list[_Cell]]:
        """The rows that are shown."""
        return [
            [cell if isinstance(cell, _Cell) else _Cell(cell) for cell in row]
            for row in self.all_rows[:_MOST]
        ]

    @property
    def more(self) -> int:
        """Number of the rows that are not shown."""
        return max(len(self.all_rows) - _MOST, 0)


def page(data: ReportData) -> str:
    """Render the page, as HTML."""
    nodes = {(row["node"], row["epoch"]): row for row in data.tables["nodes"]}
    charts = figures(data)
    starter = _STARTER.strip()
    text = render(
        "report.html",
        empty=not data.number("lines"),
        sources=data.sources,
        began=_began(data),
        length=data.number("seconds") * 1e6,
        compared_with=", ".join(data.before.sources) if data.before is not None else "",
        verdict=_verdict(data),
        tiles=_tiles(data),
        gaps=_gaps(data),
        names=_names(data),
        violations=_violations(data, nodes),
        violations_left_out=sum(data.names.values()) - len(data.tables["violations"]),
        most_violations=MOST_VIOLATIONS,
        pictures=pictures,
        data=data,
        lists={
            "compared": _compared(data),
            "slowest": _jobs(data, "slowest"),
            "failed": _jobs(data, "failed"),
            "requeued": _jobs(data, "requeued"),
            "phases": _phases(data),
            "latency": _latency(data),
            "handshakes": _handshakes(data),
            "workers": _workers(data, nodes),
            "requeues": _requeues(data),
            "drops": _drops(data),
            "fairness": _fairness(data, nodes),
            "hops": _hops(data),
            "nodes": _nodes(data),
        },
        tables=TABLES,
        charts=charts,
        figures=Markup(to_json(charts)),
        library=Markup(_LIBRARY),
        starter=Markup(starter),
        scripts=Markup(f"{script_hash(plotly())} {script_hash(starter)}") if charts else "'none'",
        roles_left_out=max(len({r["role"] for r in data.tables["activity"]}) - MOST_ROLES, 0),
    )
    # Plotly has four megabytes, so it passes through no template.
    return str(text).replace(_LIBRARY, plotly(), 1) if charts else str(text)


def _began(data: ReportData) -> str:
    """Return the time of the first line; empty if no line has a time."""
    first = [row["first"] for row in data.tables["nodes"] if row["first"] is not None]
    return f"{datetime.fromtimestamp(min(first) / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC" if first else ""


def _verdict(data: ReportData) -> Mapping[str, str]:
    certain, uncertain = int(data.number("violations")), int(data.number("uncertain violations"))
    if not data.number("lines"):
        words = "none", "The journal is empty", "the journal has no readable line"
    elif certain:
        headline = f"{_plural(certain, 'violation')} found"
        words = "bad", headline, "the section Violations shows what happened"
    elif uncertain:
        detail = f"{_plural(uncertain, 'possible violation')} may be due to gaps in the journals"
        words = "unsure", "No certain violation", detail
    else:
        detail = "every job, lock and stream was checked against the rules"
        words = "good", "No violation found", detail
    return dict(zip(("look", "headline", "detail"), words, strict=True))


def _tiles(data: ReportData) -> list[tuple[str, str, str]]:
    """Return (number, its meaning, detail) of each tile."""
    n = data.number
    latency = {row["phase"]: row for row in data.tables["latency"]}.get("total")
    half, slow = (latency["p50"], latency["p99"]) if latency else (None, None)
    lost = n("leases over") - n("leases handed back") - n("leases refused")
    again, managers, devices = n("jobs tried again"), n("managers"), n("devices")
    return [
        (amount(n("jobs")), "jobs", f"{amount(n('jobs ok'))} ok"),
        (amount(n("jobs per second")), "jobs/s", "from the first submission to the last end"),
        (duration(half), "p50 of a job", f"p99: {duration(slow)}" if latency else ""),
        (
            amount(n("workers")),
            "workers",
            f"{_plural(managers, 'manager')}, {_plural(devices, 'device')}",
        ),
        (amount(lost), "leases lost", f"{_plural(again, 'job')} tried again"),
        (amount(n("lines")), "lines read", f"{amount(n('bad lines'))} unreadable"),
    ]


def _plural(count: float, noun: str) -> str:
    return f"{amount(count)} {noun}{'s' * (count != 1)}"


def _gaps(data: ReportData) -> dict[str, _List]:
    """List missing and unreadable lines, which make all other results less certain."""
    reasons: Counter[str] = Counter()
    for row in data.tables["bad_lines"]:
        reasons[row["reason"]] += row["lines"]
    unread = [(reason, amount(lines)) for reason, lines in reasons.most_common()]
    gone = [
        (row["node"], str(row["epoch"]), amount(row["messages"]))
        for row in sorted(data.tables["missing_nodes"], key=lambda row: -row["messages"])
    ]
    torn = [
        (_name(row), amount(row["missing"]) if row["missing"] else "its start")
        for row in data.tables["nodes"]
        if row["missing"] or row["kind"] is None
    ]
    lists = {
        "Lines that could not be read": _List(("reason", "lines"), unread),
        "Processes without a journal": _List(
            ("node", "epoch", "lines of other journals that name it"), gone
        ),
        "Lines that are missing": _List(("node", "lines"), torn),
    }
    return {title: one for title, one in lists.items() if one.all_rows}


def _names(data: ReportData) -> _List:
    rows = [
        (name, meaning, "yes" if certain else "no", amount(count))
        for (name, meaning, certain), count in data.names.items()
    ]
    return _List(("name", "rule", "certain", "violations"), rows, left=3)


def _violations(data: ReportData, nodes: _Nodes) -> list[Mapping[str, Any]]:
    """List the violations that are drawn; the first violation of each name is unfolded."""
    drawn: list[Mapping[str, Any]] = []
    names: set[str] = set()
    for row in data.tables["violations"]:
        story = data.stories.get(row["violation"], [])
        drawn.append(
            {
                "row": row,
                "at": _name_at(nodes, row["node"], row["epoch"]),
                "diagram": violation_diagram(row, story, nodes),
                "open": row["name"] not in names,
            }
        )
        names.add(row["name"])
    return drawn


def _jobs(data: ReportData, which: str) -> _List:
    labels = {(row["node"], row["epoch"]): row["label"] for row in data.tables["nodes"]}
    rows = []
    for row in data.tables[which]:
        owner = (row["owner"], row["owner_epoch"])
        name = _Cell(name_of(row["owner"], labels.get(owner)), f"{owner[0]} {owner[1]}")
        rows.append((
            str(row["job"]), name, row["role"] or "–", row["end"] or "open",
            name_of(row["worker"]) if row["worker"] else "–", _clock(row["submitted"]),
            amount(row["attempts"]), amount(row["over"]), duration(row["queue_wait"]),
            duration(row["total"]),
        ))  # fmt: skip
    heads = (
        "job", "manager", "role", "end", "last worker", "submitted", "leases", "without result",
        "queue wait", "total",
    )  # fmt: skip
    return _List(heads, rows, left=6)


def _clock(micros: int | None) -> str:
    """Return a time of day in UTC."""
    if micros is None:
        return "–"
    return f"{datetime.fromtimestamp(micros / 1e6, UTC):%H:%M:%S.%f}"[:-3]


def _phases(data: ReportData) -> _List:
    latency = {row["phase"]: row for row in data.tables["latency"]}
    rows: list[tuple[str | _Cell, ...]] = []
    for phase, meaning in PHASES.items():
        if (row := latency.get(phase)) is not None:
            times = [duration(row[name]) for name in ("p50", "p90", "p99", "most")]
            rows.append((_Cell(phase, meaning), amount(row["count"]), *times))
    return _List(("phase", "samples", "p50", "p90", "p99", "longest"), rows)


def _latency(data: ReportData) -> _List:
    order = ("role", "worker", "hour")
    rows = [
        (row["phase"], row["by"], row["key"], amount(row["count"]),
         *(duration(row[name]) for name in ("p50", "p90", "p99", "most")))
        for row in sorted(
            data.tables["grouped"],
            key=lambda row: (row["phase"], order.index(row["by"]), row["key"]),
        )
    ]  # fmt: skip
    return _List(("phase", "by", "", "samples", "p50", "p90", "p99", "longest"), rows, left=3)


def _compared(data: ReportData) -> _List:
    """Compare the numbers of two reports."""
    if data.before is None:
        return _List(())
    rows: list[tuple[str, str, str, str]] = []

    def add(title: str, old: float | None, new: float | None, words: Callable[..., str]) -> None:
        ratio = f"{new / old:.2f} ×" if old and new is not None else "–"
        rows.append((title, words(old), words(new), ratio))

    for name in ("jobs", "jobs ok", "jobs per second", "leases over", "violations", "seconds"):
        add(name, data.before.number(name), data.number(name), amount)
    latest = {row["phase"]: row for row in data.tables["latency"]}
    for row in data.before.tables["latency"]:
        now = latest.get(row["phase"])
        for share in ("p50", "p99"):
            add(
                f"{row['phase']}, {share}",
                row[share],
                None if now is None else now[share],
                duration,
            )
    return _List(("", "before", "now", "now / before"), rows)


def _handshakes(data: ReportData) -> _List:
    n = data.number
    if not n("wakes") and not n("locks"):
        return _List(())

    def counted(title: str, name: str, whole: str = "") -> tuple[str, str, str]:
        share = (f"{n(name) / n(whole):.1%}" if n(whole) else "–") if whole else ""
        return title, amount(n(name)), share

    rows = [
        counted("WAKEs received", "wakes"),
        counted("brought no job", "wakes wasted", "wakes"),
        counted("GIVEs sent", "locks"),
        counted("answered TAKE", "locks taken", "locks"),
        counted("answered NO", "locks refused", "locks"),
        counted("never answered", "locks timed out", "locks"),
        counted("jobs that came after their lock had closed", "jobs late"),
    ]
    return _List(("", "number", "share"), rows)


def _workers(data: ReportData, nodes: _Nodes) -> _List:
    sums: dict[tuple[str, int, str], list[int]] = {}
    for row in data.tables["utilisation"]:
        one = sums.setdefault((row["worker"], row["worker_epoch"], row["resource"]), [0, 0, 0])
        one[0] += row["busy"]
        one[1] += row["length"] * row["have"]
        one[2] = row["have"]
    rows = []
    for (worker, epoch, resource), (busy, available, have) in sorted(sums.items()):
        share = busy / available if available else 0.0
        taken = _Cell(f"{share:.1%}", share=min(share, 1.0))
        rows.append((_name_at(nodes, worker, epoch), resource, taken, amount(have)))
    return _List(("worker", "resource", "taken", "has"), rows, left=3)


def _fairness(data: ReportData, nodes: _Nodes) -> _List:
    rows = []
    for row in sorted(
        data.tables["fairness"], key=lambda r: (r["by"], r["measure"] != "jobs", r["node"])
    ):
        if row["parties"] < 2 or row["node"] is None:
            continue
        timed = row["measure"] == "handler"
        words = duration if timed else amount
        rows.append(
            (
                row["by"],
                _name_at(nodes, row["node"], row["epoch"]),
                "time in handlers" if timed else row["measure"],
                amount(row["parties"]),
                words(row["least"]),
                words(row["most"]),
                f"{row['jain']:.3f}" if row["jain"] is not None else "–",
            )
        )
    heads = ("among the", "of", "measure", "parties", "least", "most", "Jain's index")
    return _List(heads, rows, left=3)


def _requeues(data: ReportData) -> _List:
    causes: Counter[tuple[str, str]] = Counter()
    for row in data.tables["requeues"]:
        causes[row["cause"], row["role"] or "–"] += row["leases"]
    rows = [(cause, role, amount(count)) for (cause, role), count in causes.most_common()]
    return _List(("cause", "role", "leases"), rows, left=2)


def _hops(data: ReportData) -> _List:
    rows = [
        (
            row["device"],
            row["direction"],
            amount(row["count"]),
            *(duration(row[name]) for name in ("p50", "p99", "most", "direct")),
        )
        for row in sorted(data.tables["device_hops"], key=lambda r: (r["device"], r["direction"]))
    ]
    heads = ("device", "direction", "messages", "p50", "p99", "longest", "without: p50")
    return _List(heads, rows, left=2)


def _drops(data: ReportData) -> _List:
    reasons: Counter[str] = Counter()
    by: dict[str, set[tuple[str, int]]] = {}
    for row in data.tables["drops"]:
        reasons[row["reason"]] += row["lines"]
        by.setdefault(row["reason"], set()).add((row["node"], row["epoch"]))
    rows = [(one, amount(count), amount(len(by[one]))) for one, count in reasons.most_common()]
    return _List(("reason", "messages", "processes"), rows)


def _nodes(data: ReportData) -> _List:
    rows = []
    for row in sorted(
        data.tables["nodes"], key=lambda r: (r["kind"] or "", r["label"] or r["node"], r["epoch"])
    ):
        end = row["end"] or "killed or still running"
        error = row["clock_error"]
        rows.append(
            (
                _name(row),
                row["kind"] or "?",
                row["host"] or "–",
                f"{end}: {row['reason']}" if row["reason"] else end,
                amount(row["segments"]),
                amount(row["lines"]),
                "own wall clock" if error is None else f"± {duration(error)}",
            )
        )
    heads = ("node", "kind", "host", "ended", "segments", "lines", "clock")
    return _List(heads, rows, left=4)


def _name(row: Row) -> _Cell:
    """Return the name of a node with identity and epoch in a tooltip."""
    return _Cell(name_of(row["node"], row["label"]), f"{row['node']} {row['epoch']}")


def _name_at(nodes: _Nodes, node: str, epoch: int) -> _Cell:
    row = nodes.get((node, epoch))
    return _name(row) if row else _Cell(str(node))
