"""Reports as one page of HTML that needs nothing beside itself: rules and who keeps them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Final

from wmp.conformance.badge import badge, verdict_in_words
from wmp.conformance.case import Verdict
from wmp.conformance.diagram import sequence_diagram
from wmp.conformance.report import ConformanceReport, ReportEntry, Said
from wmp.conformance.rules import RULES

__all__ = ["page"]

_Numbers = dict[tuple[int, str], int]
"""(column, case) to the number of its conversation."""

_SECTIONS: Final = {
    1: "Peers and sockets",
    2: "Messages",
    3: "READY and WAKE",
    4: "GIVE, TAKE, NO: locks",
    5: "Held GIVE",
    6: "Jobs and leases",
    7: "Numbered streams",
    8: "Devices",
    9: "Liveness, epochs, goodbye",
    10: "Errors",
    11: "Timers",
    12: "Security",
}
_MARKS: Final = {
    Verdict.OK: "✓",
    Verdict.NON_STRICT: "~",
    Verdict.UNIMPLEMENTED: "–",
    Verdict.INFORMATIONAL: "i",
    Verdict.FAILED: "✗",
    Verdict.UNCLEAN: "!",
}
_MEANINGS: Final = {
    Verdict.OK: "the rule holds",
    Verdict.FAILED: "the rule is broken",
    Verdict.UNCLEAN: "the case passed, but the testee did not end as it should",
    Verdict.NON_STRICT: "a SHOULD does not hold",
    Verdict.INFORMATIONAL: "the rule allows several ways; this says which one was seen",
    Verdict.UNIMPLEMENTED: "the testee says, or shows, that it does not do this",
}


def page(reports: Sequence[ConformanceReport]) -> str:
    """Make the page.

    Args:
        reports: One column each; of several kinds of testee, too.
    """
    style = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    script = resources.files(__package__).joinpath("page.js").read_text(encoding="utf-8")
    numbers = _numbers(reports)
    title = "WMP/1 conformance: " + ", ".join(report.name for report in reports)
    sections = [
        _section(number, at, report, entry)
        for number, (at, report, entry) in enumerate(
            (at, report, entry)
            for at, report in enumerate(reports)
            for entry in report.entries
            if entry.told
        )
    ]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>WMP/1 conformance</h1>
<p>Rules of the Worker-Manager Protocol, and who keeps them.</p>
</header>
<main>
<section id="summary">
{"".join(_summary(at, report, numbers) for at, report in enumerate(reports))}
</section>
<section id="rules">
<h2>Rules</h2>
{_legend()}
<div class="wide">{_matrix(reports, numbers)}</div>
</section>
<section id="conversations">
<h2>Conversations</h2>
{"".join(sections) or "<p>Every case just passed: there is nothing to tell.</p>"}
</section>
</main>
<footer>Made by wmp-conformance {escape(reports[0].kit if reports else "")}.</footer>
<script>
{script}</script>
</body>
</html>
"""


def _summary(at: int, report: ConformanceReport, numbers: _Numbers) -> str:
    counts = "".join(
        f'<li class="{_class(verdict)}"><b>{count}</b> {verdict.value}</li>'
        for verdict in _MEANINGS
        if (count := report.count(verdict))
    )
    unwell = "".join(
        f'<li><a href="#conversation-{numbers[at, entry.case]}">'
        f"{escape(', '.join(entry.breaks) or entry.rules[0])}</a> in {escape(entry.case)}</li>"
        for entry in report.entries
        if entry.unwell
    )
    what = report.command or report.endpoint or ""
    good = "good" if report.conforms else "bad"
    return f"""<article class="implementation {good}" id="implementation-{at}">
<h2>{escape(report.name)} <small>{report.testee}</small></h2>
<p class="verdict">{escape(verdict_in_words(report))}{" (strict)" if report.strict else ""}</p>
<p>{badge(report).strip().replace('"r"', f'"r{at}"').replace("#r)", f"#r{at})")}</p>
<ul class="counts">{counts}</ul>
{f'<ul class="unwell">{unwell}</ul>' if unwell else ""}
<dl><dt>command</dt><dd><code>{escape(what)}</code></dd>
<dt>profiles</dt><dd>{escape(", ".join(report.profiles))}</dd>
<dt>played</dt><dd>{len(report.entries)} cases{"" if report.whole else ", not all there are"};
unit {report.unit} ms, seed {report.seed}, {report.examples} conversations drawn;
{escape(report.began)}, {report.seconds:.0f} s</dd></dl>
</article>
"""


def _legend() -> str:
    shown = "".join(
        f'<label class="{_class(verdict)}" title="{escape(meaning)}">'
        f'<input type="checkbox" checked data-shows="{_class(verdict)}"> '
        f"<b>{_MARKS[verdict]}</b> {verdict.value}</label>"
        for verdict, meaning in _MEANINGS.items()
    )
    unseen = (
        '<label class="unseen" title="nothing shows it from outside, or no case was played">'
        '<input type="checkbox" checked data-shows="unseen"> <b>·</b> not seen</label>'
    )
    return f'<form id="legend">{shown}{unseen}</form>'


def _matrix(reports: Sequence[ConformanceReport], numbers: _Numbers) -> str:
    seen = [report.rules() for report in reports]
    heads = "".join(
        f'<th scope="col"><a href="#implementation-{at}">{escape(report.name)}</a>'
        f"<small>{report.testee}</small></th>"
        for at, report in enumerate(reports)
    )
    many = ' class="many"' if len(reports) > 2 else ""  # marks alone: there is no room for words
    rows, section = [], 0
    for rule in RULES.values():
        if not any(rule.id in found for found in seen):
            continue
        if rule.order[0] != section:
            section = rule.order[0]
            name = escape(_SECTIONS.get(section, ""))
            rows.append(
                f'<tr class="section"><th colspan="{2 + len(reports)}" scope="colgroup">'
                f"{section}. {name}</th></tr>"
            )
        cells = [
            _cell(at, found[rule.id], numbers) if rule.id in found else '<td class="none"></td>'
            for at, found in enumerate(seen)
        ]
        rows.append(
            f'<tr class="rule" id="{rule.id}"><th scope="row"><a href="#{rule.id}">{rule.id}</a>'
            f"<small>{rule.profile}</small></th><td>{_words(rule.text)}</td>{''.join(cells)}</tr>"
        )
    return (
        f'<table{many}><thead><tr><th scope="col">rule</th><th scope="col">what it says</th>{heads}'
        f"</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _numbers(reports: Sequence[ConformanceReport]) -> _Numbers:
    told = [
        (at, entry.case)
        for at, report in enumerate(reports)
        for entry in report.entries
        if entry.told
    ]
    return {key: number for number, key in enumerate(told)}


def _cell(at: int, seen: tuple[Verdict | None, str], numbers: _Numbers) -> str:
    verdict, by = seen
    if verdict is None:
        return f'<td class="unseen" title="{escape(by)}">·</td>'
    label = f"{_MARKS[verdict]} <span>{verdict.value}</span>"
    number = numbers.get((at, by))
    if number is not None:
        label = f'<a href="#conversation-{number}">{label}</a>'
    return f'<td class="{_class(verdict)}" title="{verdict.value}: {escape(by)}">{label}</td>'


def _words(text: str) -> str:
    text = re.sub("`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"\b(MUST(?: NOT)?|SHOULD(?: NOT)?|MAY)\b", r"<b>\1</b>", text)


def _section(number: int, at: int, report: ConformanceReport, entry: ReportEntry) -> str:
    rules = entry.breaks or entry.rules[:1]
    links = ", ".join(f'<a href="#{rule}">{rule}</a>' for rule in rules)
    broken = entry.text if entry.unwell else ""
    quotes = "".join(
        f"<blockquote>{_words(RULES[rule].text)}</blockquote>" for rule in entry.breaks
    )
    stderr = (
        f"<details><summary>what it wrote on stderr</summary><pre>{escape(entry.stderr)}</pre>"
        "</details>"
        if entry.stderr
        else ""
    )
    is_open = " open" if entry.unwell else ""
    kind = _class(entry.verdict)
    return f"""<details class="conversation {kind}" id="conversation-{number}"{is_open}>
<summary><b class="{kind}">{entry.verdict.value}</b> {escape(entry.case)}
<small>{escape(report.name)}: {_words(entry.about)}</small></summary>
<p>{links}: {escape(entry.text)}</p>{quotes}
<p>Play it again:</p><pre class="command">{escape(report.replay(entry))}</pre>
<div class="wide">{sequence_diagram(entry.lines, report.testee, broken=broken)}</div>
<details class="frames"><summary>frames in hexadecimal</summary>
<div class="wide">{_frames(entry.lines, report.testee)}</div></details>
{stderr}</details>
"""


def _frames(lines: Sequence[Said], testee: str) -> str:
    rows = []
    for line in lines:
        if line.way == "#":
            continue
        who = f"{line.who} → {testee}" if line.way == ">" else f"{testee} → {line.who or '?'}"
        frames = "<br>".join(
            f"<code>{frame.hex or '(empty)'}</code>"
            + (f" … {frame.size} bytes" if frame.size * 2 > len(frame.hex) else "")
            for frame in line.frames
        )
        rows.append(
            f"<tr><td>{line.at:.3f}</td><td>{escape(who)}</td><td>{escape(line.text)}</td>"
            f"<td>{frames}</td></tr>"
        )
    return (
        "<table><thead><tr><th>units</th><th>who</th><th>what</th><th>frames</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _class(verdict: Verdict) -> str:
    return verdict.value.lower()
