"""The report of the pipeline: one page that needs no other file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from attrs import frozen
from markupsafe import Markup

from wmp.pages.svg import clip
from wmp.pages.template import amount, duration, moment, render
from wmp.spark.charts import MOST_ROLES, figures, plotly, script_hash, to_json
from wmp.spark.facts import ALWAYS
from wmp.spark.pictures import timeline
from wmp.spark.report_data import GROUPED, ReportData, Row, name_of
from wmp.spark.schema import PHASES, TABLES
from wmp.spark.violation_diagram import violation_diagram

__all__ = ["page"]

_LIBRARY: Final = "<!-- plotly -->"
"""Stands for Plotly's script until the page is rendered; no text of a journal has this markup."""
_STARTER: Final = files("wmp.pages").joinpath("templates", "report.js").read_text("utf-8").strip()
_MOST: Final = 200
"""Largest number of rows of a list."""


@frozen
class _Cell:
    """A cell of a list with a tooltip or a bar."""

    text: str
    title: str = ""
    """The tooltip."""
    share: float | None = None
    """A number from 0 to 1, which is drawn as a bar."""


@frozen
class _ListColumn:
    """A column of a list: its heading, and the cell of a row."""

    head: str
    cell: Callable[[Row], _Cell]
    is_number: bool = False


@frozen
class _List:
    """A list of rows; a list without rows is not shown."""

    columns: Sequence[_ListColumn]
    rows: Sequence[Row]


def _text(
    head: str, key: str = "", words: Callable[[Any], str] = str, absent: str = "–"
) -> _ListColumn:
    """Make a column of words; the key is the heading if it is not given."""

    def cell(row: Row) -> _Cell:
        value = row.get(key or head)
        return _Cell(absent if value is None else words(value))

    return _ListColumn(head, cell)


def _number(head: str, key: str = "", words: Callable[[Any], str] = amount) -> _ListColumn:
    return _ListColumn(head, lambda row: _Cell(words(row.get(key or head))), is_number=True)


def _time(head: str, key: str = "") -> _ListColumn:
    return _number(head, key, duration)


def page(data: ReportData) -> str:
    """Render the page, as HTML."""
    charts = figures(data)
    text = render(
        "report.html",
        data=data,
        always=ALWAYS,
        gaps=_gaps(data),
        node=_node("", data).cell,
        owner=_node("", data, "owner").cell,
        rule=_rule,
        unfolded={row["name"]: row for row in reversed(data.tables["violations"])},
        diagram=lambda row: violation_diagram(row, data),
        timeline=timeline(data),
        most_rows=_MOST,
        lists=_lists(data),
        tables=TABLES,
        charts=charts,
        figures=Markup(to_json(charts)),
        library=Markup(_LIBRARY),
        starter=Markup(_STARTER),
        scripts=Markup(f"{script_hash(plotly())} {script_hash(_STARTER)}") if charts else "'none'",
        roles_left_out=max(len({row["role"] for row in data.tables["activity"]}) - MOST_ROLES, 0),
    )
    # Plotly has five megabytes, so it passes through no template.
    return str(text).replace(_LIBRARY, plotly(), 1) if charts else str(text)


def _sums(rows: Iterable[Row], by: Sequence[str], *columns: str) -> list[Row]:
    """Add up columns of the rows with the same values in ``by``, and count these rows.

    The other columns are those of the last of these rows.
    """
    sums: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row[name] for name in by)
        old = sums.get(key, {})
        totals = {name: old.get(name, 0) + row[name] for name in columns}
        sums[key] = {**row, **totals, "rows": old.get("rows", 0) + 1}
    return sorted(sums.values(), key=lambda row: -row[columns[0]])


def _gaps(data: ReportData) -> Mapping[str, _List]:
    """List missing and unreadable lines, which make all other results less certain."""
    lists = {
        "Lines that could not be read": _List(
            (_text("reason"), _number("lines")),
            _sums(data.tables["bad_lines"], ["reason"], "lines"),
        ),
        "Processes without a journal": _List(
            (_text("node"), _number("epoch", words=str),
             _number("lines of other journals that name it", "messages")),
            sorted(data.tables["missing_nodes"], key=lambda row: -row["messages"]),
        ),
        "Lines that are missing": _List(
            (_node("node", data),
             _number("lines", "missing", lambda lines: amount(lines) if lines else "its start")),
            [row for row in data.tables["nodes"] if row["missing"] or row["kind"] is None],
        ),
    }  # fmt: skip
    return {title: one for title, one in lists.items() if one.rows}


def _lists(data: ReportData) -> Mapping[str, _List]:
    """Return the other lists by their names in the template."""
    tables, latency = data.tables, data.latency()
    compared, compared_phases = _compared(data)
    spread = (
        _number("samples", "count"), _time("p50"), _time("p90"), _time("p99"),
        _time("longest", "most"),
    )  # fmt: skip
    groups = (
        _number("jobs"),
        *(_time(f"{phase}, {share}") for phase in GROUPED for share in ("p50", "p99")),
    )
    job = (
        _text("job"), _node("manager", data, "owner"), _text("role"), _text("end", absent="open"),
        _node("last worker", data, "worker"), _text("submitted", words=moment),
        _number("leases", "attempts"), _number("without result", "over"),
        _time("queue wait", "queue_wait"), _time("total"),
    )  # fmt: skip
    return {
        "findings": _List(
            (_text("name"), _text("rule", "text", _rule),
             _text("certain", words=lambda certain: "yes" if certain else "no"),
             _number("violations")),
            sorted(
                tables["findings"],
                key=lambda row: (not row["certain"], -row["violations"], row["name"]),
            ),
        ),
        "compared": _List(
            (_text(""), _number("before"), _number("now"), _ratio()), compared
        ),
        "compared phases": _List(
            (_text("phase"),
             _time("p50 before"), _time("p50 now"), _ratio("p50 "),
             _time("p99 before"), _time("p99 now"), _ratio("p99 ")),
            compared_phases,
        ),
        **{name: _List(job, tables[name]) for name in ("slowest", "failed", "requeued")},
        "phases": _List(
            (_text("phase"), *spread, _text("measured", "phase", PHASES.__getitem__)),
            [latency[phase] for phase in PHASES if phase in latency],
        ),
        "by role": _List((_text("role", "key"), *groups), _grouped(data, "role")),
        "by worker": _List((_node("worker", data), *groups), _grouped(data, "worker")),
        "by hour": _List((_text("hour (UTC)", "key"), *groups), _grouped(data, "hour")),
        "workers": _List(
            (_node("worker", data, "worker"), _text("resource"), _ListColumn("taken", _taken),
             _number("has", "have")),
            _workers(data),
        ),
        "requeues": _List(
            (_text("cause"), _text("role"), _number("leases")),
            _sums(tables["requeues"], ["cause", "role"], "leases"),
        ),
        "drops": _List(
            (_text("reason"), _number("messages", "lines"), _number("processes", "rows")),
            _sums(tables["drops"], ["reason"], "lines"),
        ),
        "fairness": _List(
            (_text("among the", "by"), _node("of", data),
             _text("measure", words=lambda one: "time in handlers" if one == "handler" else one),
             _number("parties"), _share("least"), _share("most"),
             _number("Jain's index", "jain", lambda jain: "–" if jain is None else f"{jain:.3f}")),
            sorted(
                (row for row in tables["fairness"] if row["parties"] > 1 and row["node"]),
                key=lambda row: (row["by"], row["measure"] != "jobs", row["node"]),
            ),
        ),
        "hops": _List(
            (_text("device"), _text("direction"), _number("messages", "count"), _time("p50"),
             _time("p99"), _time("longest", "most"), _time("without: p50", "direct")),
            sorted(tables["device_hops"], key=lambda row: (row["device"], row["direction"])),
        ),
        "nodes": _List(
            (_node("node", data), _text("identity", "node", lambda name: clip(name, 40)),
             _text("kind", absent="?"), _text("host"),
             _ListColumn("ended", lambda row: _Cell(": ".join(filter(None, (
                 row["end"] or "killed or still running", row["reason"]))))),
             _number("segments"), _number("lines"),
             _number("clock", "clock_error",
                     lambda us: "own wall clock" if us is None else f"± {duration(us)}")),
            sorted(
                tables["nodes"],
                key=lambda row: (row["kind"] or "", row["label"] or row["node"], row["epoch"]),
            ),
        ),
    }  # fmt: skip


def _rule(text: str) -> str:
    """Return the text of a rule, which has words of the protocol in backticks, for people."""
    return re.sub("`(.*?)`", r"“\1”", text)


def _share(head: str) -> _ListColumn:
    """Make a column of shares, which are jobs or times."""

    def cell(row: Row) -> _Cell:
        return _Cell((duration if row["measure"] == "handler" else amount)(row[head]))

    return _ListColumn(head, cell, is_number=True)


def _ratio(prefix: str = "") -> _ListColumn:
    def cell(row: Row) -> _Cell:
        before, now = row[f"{prefix}before"], row[f"{prefix}now"]
        ratio = now / before if before and now is not None else None
        small = ratio is not None and 0 < ratio < 0.01
        return _Cell("–" if ratio is None else "< 0.01 ×" if small else f"{amount(ratio)} ×")

    return _ListColumn(f"{prefix}now / before", cell, is_number=True)


def _compared(data: ReportData) -> tuple[list[Row], list[Row]]:
    """Return the numbers and the phases of two reports."""
    old = data.before
    if old is None:
        return [], []
    failed = [
        name
        for name in ("jobs error", "jobs cancelled", "jobs timeout", "jobs lost")
        if old.number(name) or data.number(name)
    ]
    names = (
        "jobs", "jobs ok", *failed, "jobs per second", "leases lost", "violations", "seconds",
    )  # fmt: skip
    before, now = old.latency(), data.latency()
    return (
        [{"": name, "before": old.number(name), "now": data.number(name)} for name in names],
        [
            {
                "phase": phase,
                **{f"{share} before": before[phase][share] for share in ("p50", "p99")},
                **{f"{share} now": now.get(phase, {}).get(share) for share in ("p50", "p99")},
            }
            for phase in PHASES
            if phase in before
        ],
    )


def _grouped(data: ReportData, by: str) -> list[Row]:
    """Return the latency of each role, worker or hour: the slowest first, or the first hour."""
    epochs = dict(data.nodes.keys())
    rows: dict[str, dict[str, Any]] = {}
    for one in data.tables["latency"]:
        if one["by"] == by and (phase := one["phase"]) in GROUPED:
            key = one["key"]
            row = rows.setdefault(key, {"key": key, "node": key, "epoch": epochs.get(key)})
            row |= {f"{phase}, p50": one["p50"], f"{phase}, p99": one["p99"]}
            if phase == "total":
                row["jobs"] = one["count"]
    if by == "hour":
        return sorted(rows.values(), key=lambda row: row["key"])
    return sorted(rows.values(), key=lambda row: (-row.get("total, p99", 0), row["key"]))


def _workers(data: ReportData) -> list[Row]:
    """Add up the use of each resource of each worker."""
    rows = ({**row, "had": row["length"] * row["have"]} for row in data.tables["utilisation"])
    by = ("worker", "worker_epoch", "resource")
    return sorted(
        _sums(rows, by, "busy", "had"),
        key=lambda row: (_label(data, row["worker"], row["worker_epoch"]), *map(row.get, by)),
    )


def _taken(row: Row) -> _Cell:
    share = row["busy"] / row["had"] if row["had"] else 0.0
    return _Cell(f"{share:.1%}", share=min(share, 1.0))


def _label(data: ReportData, node: str, epoch: int) -> str:
    return name_of(node, data.nodes.get((node, epoch)))


def _node(head: str, data: ReportData, column: str = "node") -> _ListColumn:
    """Make a column of processes: names with identity and epoch in a tooltip."""
    column_of_epoch = "epoch" if column == "node" else f"{column}_epoch"

    def cell(row: Row) -> _Cell:
        node, epoch = row[column], row[column_of_epoch]
        if node is None:
            return _Cell("–")
        return _Cell(_label(data, node, epoch), f"{node} {epoch}")

    return _ListColumn(head, cell)
