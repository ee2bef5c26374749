"""The report: one page that needs nothing else, made of what is shown of the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from wmp.spark import pictures
from wmp.spark.report_data import MOST_VIOLATIONS, ReportData, Row
from wmp.spark.schema import TABLES
from wmp.spark.sequence import sequence
from wmp.spark.style import STYLE
from wmp.spark.svg import amount, duration

__all__ = ["page"]

_MOST: Final = 200
"""Rows of a list."""

_HEAD: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    # Nothing is fetched from anywhere, whatever the names of nodes and roles say.
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">"
)
_ARROW: Final = (
    '<svg width="0" height="0" aria-hidden="true" style="position:absolute"><defs>'
    '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0 L8 4 L0 8 z" class="tip"/></marker></defs></svg>'
)


def page(shown: ReportData) -> str:
    """The whole page, as HTML."""
    title = "wmp report"
    parts = [
        f"{_HEAD}<title>{title}</title><style>{STYLE}</style></head><body>{_ARROW}<main>",
        _top(shown),
        _gaps(shown),
    ]
    if shown.number("lines"):
        parts += [
            _section("violations", "Violations", _violations(shown)),
            _section(
                "processes", "Processes", pictures.timeline(shown),
                "A row a process, for as long as it wrote; darker where more of a worker was "
                "taken. ✕: it was killed, or runs still. ▼: a violation was seen there.",
            ),
            _section(
                "roles", "Load", pictures.activity(shown),
                "A row a role; darker where more jobs ended. A line above: jobs were submitted. "
                "Red below: the share of those that did not end ok.",
            ),
            _section(
                "phases", "Where the time went", pictures.phases(shown),
                "Each phase from its beginning to its end, on one logarithmic axis. The thin line "
                "is where half of them are over, the red one where 99 of 100 are.",
            ),
            _section(
                "percentiles", "How long the slow ones take",
                _figures(pictures.curves(shown)),
                "To the right are ever fewer jobs: at 99 % one of a hundred takes longer.",
            ),
            "<div class=cards>",
            _section("handshakes", "Handshakes", _handshakes(shown)),
            _section("workers", "Workers", _workers(shown)),
            _section("requeues", "Leases over without a result", _requeues(shown)),
            _section("drops", "Messages ignored", _drops(shown)),
            _section("fairness", "Fairness", _fairness(shown),
                     "Jain's index: 1 is even, 1/parties is all to one."),
            _section("hops", "Devices", _hops(shown),
                     "From one neighbour of a device to the other, beside the median of "
                     "connections without one."),
            "</div>",
        ]  # fmt: skip
    parts += [_section("nodes", "Journals", _nodes(shown)), _foot(shown), "</main></body></html>"]
    return "".join(parts)


def _section(key: str, title: str, body: str, says: str = "") -> str:
    if not body:
        return ""
    note = f"<p class=says>{escape(says)}</p>" if says else ""
    return f'<section id="{key}"><h2>{escape(title)}</h2>{note}{body}</section>'


def _figures(body: str) -> str:
    return f"<div class=figures>{body}</div>" if body else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A list; the first ``left`` columns are words, the others numbers."""
    body = list(rows)
    if not body:
        return ""
    looks = ["" if place < left else " class=n" for place in range(len(heads))]
    top = "".join(f"<th{look}>{escape(h)}</th>" for h, look in zip(heads, looks, strict=True))
    lines = "".join(
        "<tr>" + "".join(f"<td{k}>{c}</td>" for c, k in zip(row, looks, strict=True)) + "</tr>"
        for row in body[:_MOST]
    )
    more = len(body) - _MOST
    note = f"<p class=note>{amount(more)} more are in the tables.</p>" if more > 0 else ""
    return f"<table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>{note}"


def _top(shown: ReportData) -> str:
    n = shown.number
    certain, uncertain = int(n("violations")), int(n("uncertain violations"))
    if not n("lines"):
        verdict = ("none", "The journal is empty", "there is no line in it that could be read")
    elif certain:
        verdict = ("bad", f"{amount(certain)} violation{'s' * (certain > 1)} found",
                   "each with its story below")  # fmt: skip
    elif uncertain:
        verdict = ("unsure", "No violation that is certain",
                   f"{amount(uncertain)} that gaps in the journals may explain")  # fmt: skip
    else:
        verdict = ("good", "No violation found",
                   "every job, lock and stream was held against the rules")  # fmt: skip
    look, word, more = verdict
    first = [row["first"] for row in shown.tables["nodes"] if row["first"] is not None]
    when = f"{datetime.fromtimestamp(min(first) / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC" if first else ""
    span = f", {duration(n('seconds') * 1e6)}" if first else ""
    latency = {row["phase"]: row for row in shown.tables["latency"]}.get("total")
    tiles = [
        (amount(n("jobs")), "jobs", f"{amount(n('jobs ok'))} ok"),
        (amount(n("jobs per second")), "jobs/s", "from first to last"),
        (
            duration(latency["p50"]) if latency else "–",
            "half of the jobs",
            f"99 of 100: {duration(latency['p99'])}" if latency else "",
        ),
        (amount(n("workers")), "workers", _counts(n("managers"), n("devices"))),
        (
            amount(n("leases over") - n("leases handed back")),
            "leases lost",
            _jobs_again(n("jobs tried again")),
        ),
        (amount(n("lines")), "lines read", f"{amount(n('bad lines'))} could not be"),
    ]  # fmt: skip
    shows = "".join(
        f"<div class=tile><b>{escape(a)}</b><span>{escape(b)}</span>"
        f"<small>{escape(c)}</small></div>"
        for a, b, c in tiles
    )
    names = ", ".join(shown.sources)
    return (
        f"<header><p class=of>wmp report · {escape(names)} · {when}{span}</p>"
        f'<h1 class="{look}" id="verdict">{escape(word)}</h1><p class=more>{escape(more)}</p>'
        f"<div class=tiles>{shows}</div></header>"
    )


def _counts(managers: float, devices: float) -> str:
    one = "manager" if managers == 1 else "managers"
    return f"{amount(managers)} {one}, {amount(devices)} device{'s' * (devices != 1)}"


def _jobs_again(count: float) -> str:
    return f"{amount(count)} {'job' if count == 1 else 'jobs'} tried again"


def _gaps(shown: ReportData) -> str:
    """What could not be read, or was not there: it makes all else less sure."""
    parts = []
    reasons: Counter[str] = Counter()
    for row in shown.tables["bad_lines"]:
        reasons[row["reason"]] += row["lines"]
    if reasons:
        rows = [(escape(reason), amount(lines)) for reason, lines in reasons.most_common()]
        parts.append("<h3>Lines that could not be read</h3>" + _table(("reason", "lines"), rows))
    if missing := shown.tables["missing_nodes"]:
        told = sorted(missing, key=lambda row: -row["messages"])
        gone = [(escape(r["node"]), str(r["epoch"]), amount(r["messages"])) for r in told]
        parts.append(
            "<h3>Processes that left no journal</h3>"
            + _table(("node", "epoch", "lines of others that name it"), gone)
        )
    torn = [row for row in shown.tables["nodes"] if row["missing"] or row["kind"] is None]
    if torn:
        rows = [
            (_name(row), amount(row["missing"]) if row["missing"] else "its start") for row in torn
        ]
        parts.append("<h3>Lines that are missing</h3>" + _table(("node", "lines"), rows))
    if not parts:
        return ""
    inside = "".join(f"<div>{part}</div>" for part in parts)
    return f"<section id=gaps class=gaps><h2>Gaps</h2><div class=beside>{inside}</div></section>"


def _violations(shown: ReportData) -> str:
    if not shown.names:
        return ""
    nodes = {(row["node"], row["epoch"]): row for row in shown.tables["nodes"]}
    rows = [
        (escape(name), escape(says), "yes" if certain else "no", amount(count))
        for (name, says, certain), count in shown.names.items()
    ]
    parts = [_table(("name", "what it says", "certain", "violations"), rows, left=3)]
    told: set[str] = set()
    for row in shown.tables["violations"]:
        story = shown.stories.get(row["violation"], [])
        job = f", job {row['job']} of {row['owner']}" if row["job"] is not None else ""
        lock = f", lock {row['lock']}" if row["lock"] is not None else ""
        node = nodes.get((row["node"], row["epoch"]))
        at = _name(node) if node else escape(str(row["node"]))
        unsure = "" if row["certain"] else " <em>gaps may explain it</em>"
        parts.append(
            f'<details class=violation id="v-{escape(row["violation"])}"'
            f"{'' if row['name'] in told else ' open'}><summary><b>{escape(row['name'])}</b> "
            f"{escape(row['detail'] or '')}<small>at {at}{escape(job)}{lock}{unsure}</small>"
            f"</summary>{sequence(row, story, nodes)}</details>"
        )
        told.add(row["name"])
    more = sum(shown.names.values()) - len(shown.tables["violations"])
    if more > 0:
        parts.append(
            f"<p class=note>The first {MOST_VIOLATIONS} are drawn; {amount(more)} more are in the "
            "table <code>violations</code>.</p>"
        )
    return "".join(parts)


def _handshakes(shown: ReportData) -> str:
    n = shown.number

    def part(name: str, whole: str) -> tuple[str, str, str]:
        share = f"{n(name) / n(whole):.1%}" if n(whole) else "–"
        return escape(name), amount(n(name)), share

    if not n("wakes") and not n("locks"):
        return ""
    rows = [
        ("WAKEs received", amount(n("wakes")), ""),
        ("no job came of it", *part("wakes wasted", "wakes")[1:]),
        ("GIVEs sent", amount(n("locks")), ""),
        ("answered TAKE", *part("locks taken", "locks")[1:]),
        ("answered NO", *part("locks refused", "locks")[1:]),
        ("never answered", *part("locks timed out", "locks")[1:]),
        ("jobs that came too late", amount(n("jobs late")), ""),
    ]
    return _table(("", "how many", "share"), rows)


def _workers(shown: ReportData) -> str:
    taken: dict[tuple[str, int, str], list[int]] = {}
    for row in shown.tables["utilisation"]:
        sums = taken.setdefault((row["worker"], row["worker_epoch"], row["resource"]), [0, 0, 0])
        sums[0] += row["busy"]
        sums[1] += row["length"] * row["have"]
        sums[2] = row["have"]
    nodes = {(row["node"], row["epoch"]): row for row in shown.tables["nodes"]}
    rows = []
    for (worker, epoch, resource), (busy, room, have) in sorted(taken.items()):
        share = busy / room if room else 0.0
        bar = f'<i class=meter><i style="width:{min(share, 1):.1%}"></i></i>{share:.1%}'
        node = nodes.get((worker, epoch))
        rows.append((_name(node) if node else escape(worker), escape(resource), bar, amount(have)))
    return _table(("worker", "resource", "taken", "has"), rows, left=3)


def _fairness(shown: ReportData) -> str:
    nodes = {(row["node"], row["epoch"]): row for row in shown.tables["nodes"]}
    rows = []
    for row in sorted(
        shown.tables["fairness"], key=lambda r: (r["by"], r["measure"] != "jobs", r["node"])
    ):
        if row["parties"] < 2 or row["node"] is None:
            continue
        say = duration if row["measure"] == "handler" else amount
        node = nodes.get((row["node"], row["epoch"]))
        measure = "time in handlers" if row["measure"] == "handler" else row["measure"]
        rows.append(
            (
                escape(row["by"]), _name(node) if node else escape(row["node"]), escape(measure),
                amount(row["parties"]), say(row["least"]), say(row["most"]),
                f"{row['jain']:.3f}" if row["jain"] is not None else "–",
            )
        )  # fmt: skip
    heads = ("among the", "of", "measure", "parties", "least", "most", "Jain's index")
    return _table(heads, rows, left=3)


def _requeues(shown: ReportData) -> str:
    causes: Counter[tuple[str, str]] = Counter()
    for row in shown.tables["requeues"]:
        causes[row["cause"], row["role"] or "–"] += row["leases"]
    rows = [(escape(cause), escape(role), amount(n)) for (cause, role), n in causes.most_common()]
    return _table(("cause", "role", "leases"), rows, left=2)


def _hops(shown: ReportData) -> str:
    rows = [
        (
            escape(row["device"]), escape(row["direction"]), amount(row["count"]),
            duration(row["p50"]), duration(row["p99"]), duration(row["most"]),
            duration(row["direct"]),
        )
        for row in sorted(shown.tables["device_hops"], key=lambda r: (r["device"], r["direction"]))
    ]  # fmt: skip
    heads = ("device", "direction", "messages", "half", "99 of 100", "longest", "without: half")
    return _table(heads, rows, left=2)


def _drops(shown: ReportData) -> str:
    reasons: Counter[str] = Counter()
    by: dict[str, set[tuple[str, int]]] = {}
    for row in shown.tables["drops"]:
        reasons[row["reason"]] += row["lines"]
        by.setdefault(row["reason"], set()).add((row["node"], row["epoch"]))
    rows = [(escape(r), amount(n), amount(len(by[r]))) for r, n in reasons.most_common()]
    return _table(("reason", "messages", "processes"), rows)


def _nodes(shown: ReportData) -> str:
    rows = []
    for row in sorted(
        shown.tables["nodes"], key=lambda r: (r["kind"] or "", r["label"] or r["node"], r["epoch"])
    ):
        end = row["end"] or "killed, or runs still"
        error = (
            "own wall clock" if row["clock_error"] is None else f"± {duration(row['clock_error'])}"
        )
        rows.append(
            (
                _name(row), escape(row["kind"] or "?"), escape(row["host"] or "–"),
                escape(f"{end}{': ' + row['reason'] if row['reason'] else ''}"),
                amount(row["segments"]), amount(row["lines"]), error,
            )
        )  # fmt: skip
    heads = ("node", "kind", "host", "ended", "segments", "lines", "clock")
    return _table(heads, rows, left=4)


def _name(row: Row) -> str:
    label = pictures.name_of(row["node"], row["label"])
    return f'<span title="{escape(row["node"])} {row["epoch"]}">{escape(label)}</span>'


def _foot(shown: ReportData) -> str:
    names = "".join(
        f"<li><code>{escape(name)}</code> {escape(table.row)}</li>"
        for name, table in TABLES.items()
    )
    return (
        "<section id=tables><h2>Tables</h2><p class=says>Beside this page, as Parquet; any program "
        "that reads it can ask on.</p><pre>spark.read.parquet(&quot;attempts&quot;)"
        ".createOrReplaceTempView(&quot;attempts&quot;)\nspark.sql(&quot;select worker, count(*), "
        "percentile(handler, 0.99) from attempts group by worker&quot;).show()</pre>"
        f"<details><summary>All of them</summary><ul class=tables>{names}</ul></details></section>"
    )
