"""Write the generated parts of ``smallest-worker.md`` and ``smallest-manager.md``.

The rules are those of the profile ``core`` that bind the peer, as they stand in ``wmp.md``, without
the rules and sentences of ``LEFT_OUT``. The tables have the rows that such a peer sends or reads.
``python specs/build_smallest.py`` writes the parts, ``--check`` exits 1 when one is stale.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from build_rules import Rule, parse_rules, whole_spec

SPECS = Path(__file__).parent
PAGES: Mapping[str, Path] = {
    "worker": SPECS / "smallest-worker.md",
    "manager": SPECS / "smallest-manager.md",
}
"""The page of each peer."""

LEFT_OUT: Mapping[str, Mapping[str, str]] = {
    "WMP-1.1": {"It is too low if the clock": "reliable"},
    "WMP-1.3": {"A DEALER that is connected": "optional"},
    "WMP-1.5": {"ZeroMQ makes new": "optional"},
    "WMP-1.6": {"When the pipe to one peer": "device"},
    "WMP-1.7": {"a ROUTER has ROUTER_MANDATORY": "manager", "a DEALER has ZMTP": "worker"},
    "WMP-1.8": {"The route of a peer": "reliable"},
    "WMP-2.1": {
        "The version is checked first": "secure",
        "A version that is not": "secure",
        "Then the five items": "secure",
        "A longer encoding": "secure",
    },
    "WMP-2.2": {
        "A receiver MAY accept": "optional",
        "A receiver MUST refuse": "secure",
        "tags, indefinite lengths": "secure",
        "text that is not UTF-8": "secure",
        "maps with other keys": "secure",
        "duplicate keys": "secure",
        "bytes behind the value": "secure",
        "nesting deeper": "secure",
    },
    "WMP-2.3": {"A key of another type": "secure", "There are fewer than": "secure"},
    "WMP-2.5": {"An array of another form": "secure", "A local id is": "device"},
    "WMP-2.6": {"So have an ERROR": "secure"},
    "WMP-2.7": {
        "The final receiver is": "secure",
        "The end node MUST answer": "secure",
        "with ERROR `superseded`": "secure",
        "else with ERROR `misrouted`": "secure",
    },
    "WMP-3.1": {"The needs of the next": "optional", "A worker without `slots`": "optional"},
    "WMP-3.2": {
        "The content is credit": "optional",
        "Every other READY": "optional",
    },
    "WMP-3.5": {"Each time that": "liveness", "The bound returns": "liveness"},
    "WMP-3.6": {"The manager chooses": "optional"},
    "WMP-3.7": {"": "optional"},
    "WMP-3.8": {
        "Jobs with empty `needs`": "optional",
        "So a worker whose": "optional",
        "Such a job starts": "optional",
    },
    "WMP-3.9": {"The age of a WAKE": "reliable"},
    "WMP-3.10": {"With M managers": "columns", "The order of managers": "optional"},
    "WMP-3.11": {
        "So is a held GIVE": "held-give",
        "A GIVE without `hold` is": "held-give",
        "A worker need not report": "optional",
        "The report MUST leave": "columns",
        "DONEs of jobs that never": "columns",
    },
    "WMP-3.12": {"": "optional"},
    "WMP-3.13": {"Every PONG that": "liveness"},
    "WMP-3.15": {"": "optional"},
    "WMP-3.16": {"": "optional"},
    "WMP-3.17": {"": "optional"},
    "WMP-4.2": {"": "optional"},
    "WMP-4.5": {"A manager that forgets": "reliable"},
    "WMP-4.7": {"The owner is the manager": "successor"},
    "WMP-4.9": {"A TAKE with `more`": "columns"},
    "WMP-4.12": {"When the lock is gone": "optional"},
    "WMP-4.13": {"": "secure"},
    "WMP-4.16": {"A GIVE that wants more": "columns"},
    "WMP-4.18": {"": "optional"},
    "WMP-4.19": {"": "optional"},
    "WMP-6.2": {"A STATUS of such": "status-cancel", "For stored jobs": "successor"},
    "WMP-6.5": {"A job that a worker refuses again": "optional"},
    "WMP-6.6": {
        "The exceptions are": "reliable",
        "a second entry": "status-cancel",
        "no entry, when": "reliable",
        "for stored jobs": "successor",
    },
    "WMP-6.28": {"Jobs that one message": "reliable", "The jobs of two": "reliable"},
    "WMP-9.2": {"A manager MAY send": "optional"},
    "WMP-10.3": {"": "secure"},
    "WMP-10.6": {"": "secure"},
}
"""The sentences of each core rule that the pages leave out, by their first words, with the reason.

The empty text stands for the whole rule. The reason is the profile that needs the sentence;
``optional``, when it is about a choice that the smallest peers do not make; or the kind of peer
that the sentence binds alone.
"""

FIELDS: Mapping[str, str] = {
    "worker": "number ack session ready credit roles resources count role needs lock want manager"
    " max_silence idle",
    "manager": "number ack session ready credit window roles resources count role needs lock want"
    " more manager max_silence",
}
"""The fields that the peer sends or reads."""

COLUMNS = "ids attempts outcomes payloads"
COMMANDS = "READY WAKE GIVE TAKE NO DONE PING PONG"
_OTHERS = re.compile(r"(?:; | )(?:CANCEL|STATUS|ERROR)\b(?: \(WMP-[\d.]+\))?")
"""Commands in the table of fields that the smallest peers neither send nor read."""

_PART = r"(<!-- begin: {} -->\n).*?(<!-- end: {} -->)"
_SENTENCE = re.compile(r"(?<=[.:])\s+(?=[A-Z`])")
_WIDTH = 140


def bodies(spec: str) -> dict[str, str]:
    """Return each rule as it stands in the specification, with its list, by its number."""
    items = re.split(
        r"^(?=- \*\*WMP-|## |\| (?:key|column|number|commands|ERROR) \|)", spec, flags=re.M
    )
    texts = {}
    for item in items:
        if match := re.match(r"- \*\*(WMP-[\d.]+)\*\*", item):
            texts[match[1]] = item.partition("\n\n")[0].rstrip()
    return texts


def paragraphs(body: str) -> list[list[str]]:
    """Return the sentences of a rule: those of its first paragraph, then those of each item."""
    text = re.sub(r"^- \*\*WMP-[\d.]+\*\* \(\w+\) ", "", body)
    return [
        _SENTENCE.split(" ".join(part.split())) for part in re.split(r"^  - ", text, flags=re.M)
    ]


def shortened(testee: str, id: str, body: str) -> Iterator[str]:
    """Yield the lines of a rule without the sentences that the page of a peer leaves out.

    Raises:
        ValueError: A text of ``LEFT_OUT`` does not begin exactly one sentence of the rule.
    """
    left_out = LEFT_OUT.get(id, {})
    if "" in left_out:
        return
    sentences = [sentence for part in paragraphs(body) for sentence in part]
    for start in left_out:
        if sum(sentence.startswith(start) for sentence in sentences) != 1:
            raise ValueError(f"{id} has not one sentence that begins with {start!r}")
    starts = tuple(start for start, reason in left_out.items() if reason != testee)
    for index, part in enumerate(paragraphs(body)):
        kept = " ".join(sentence for sentence in part if not sentence.startswith(starts))
        if kept:
            mark, indent = ("  - ", " " * 4) if index else (f"- **{id}** ", " " * 2)
            yield from textwrap.wrap(
                kept,
                _WIDTH,
                initial_indent=mark,
                subsequent_indent=indent,
                break_on_hyphens=False,
                break_long_words=False,
            )


def core(testee: str, spec: str) -> list[Rule]:
    """Return the rules of the profile ``core`` that bind a peer."""
    binds = (testee, "end", "all")
    return [rule for rule in parse_rules(spec) if rule.profile == "core" and rule.who in binds]


def rules(testee: str) -> Iterator[str]:
    """Yield the lines of the rules, under the titles of their sections."""
    spec = whole_spec()
    texts, title = bodies(spec), ""
    for rule in core(testee, spec):
        lines = list(shortened(testee, rule.id, texts[rule.id]))
        if lines and rule.title != title:
            title = rule.title
            yield f"\n### {title}\n"
        yield from lines


def rows(header: str, names: str) -> Iterator[str]:
    """Yield a table of the specification with the rows of these names."""
    lines = iter((SPECS / "wmp.md").read_text("utf-8").splitlines())
    yield next(line for line in lines if line.startswith(header))
    yield next(lines)
    missing = names.split()
    for line in lines:
        if not line.startswith("|"):
            break
        if (name := line.split(" | ")[1]) in missing:
            missing.remove(name)
            yield line
    if missing:
        raise ValueError(f"wmp.md has no rows {missing} in the table {header!r}")


def without(column: int, lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a table without one of its columns."""
    for line in lines:
        cells = line.strip("|").split("|")
        yield "|" + "|".join(cells[:column] + cells[column + 1 :]) + "|"


def tables(testee: str) -> Iterator[str]:
    """Yield the tables of commands, fields and columns."""
    yield from without(2, rows("| number | command |", COMMANDS))
    yield ""
    for line in rows("| key | name |", FIELDS[testee]):
        yield _OTHERS.sub("", line)
    yield ""
    yield from rows("| column | name |", COLUMNS)


def page(testee: str) -> str:
    """Return the page of a peer with new generated parts."""
    text = PAGES[testee].read_text("utf-8")
    for name, lines in (("tables", tables(testee)), ("rules", rules(testee))):
        part = re.compile(_PART.format(name, name), re.DOTALL)
        new = "\n".join(lines).strip("\n")
        text, count = part.subn(lambda match, new=new: f"{match[1]}\n{new}\n\n{match[2]}", text)  # type: ignore[misc]
        if count != 1:
            raise ValueError(f"{PAGES[testee].name} has {count} parts {name!r}; expected 1")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 when stale")
    check = parser.parse_args(arguments).check
    stale = False
    for testee, path in PAGES.items():
        text = page(testee)
        if not check:
            path.write_text(text, "utf-8")
        elif path.read_text("utf-8") != text:
            print(f"{path} is stale; run python specs/build_smallest.py", file=sys.stderr)
            stale = True
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
