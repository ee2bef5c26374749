"""Write the generated parts of ``smallest-worker.md`` and ``smallest-manager.md``.

The rules are those of the profile ``core`` that bind the peer, word for word as in ``wmp.md``. The
tables have the rows that such a peer sends or reads. ``python specs/build_smallest.py`` writes the
parts, ``--check`` exits 1 when one is stale.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from build_rules import parse_rules, whole_spec

SPECS = Path(__file__).parent
PAGES: Mapping[str, Path] = {
    "worker": SPECS / "smallest-worker.md",
    "manager": SPECS / "smallest-manager.md",
}
"""The page of each peer."""

FIELDS: Mapping[str, str] = {
    "worker": "number ack session again ready credit window roles resources count role needs lock"
    " want hold more manager codec max_silence idle",
    "manager": "number ack session again ready credit window roles resources count role needs lock"
    " want hold more manager codec max_silence label idle",
}
"""The fields that the peer sends or reads."""

COLUMNS = "ids attempts outcomes payloads"
COMMANDS: Mapping[str, str] = {
    "worker": "READY WAKE GIVE TAKE NO DONE PING PONG",
    "manager": "READY WAKE GIVE TAKE NO DONE PING PONG",
}

_PART = r"(<!-- begin: {} -->\n).*?(<!-- end: {} -->)"


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


def rules(testee: str) -> Iterator[str]:
    """Yield the lines of the rules, under the titles of their sections."""
    spec = whole_spec()
    texts, title = bodies(spec), ""
    for rule in parse_rules(spec):
        if rule.profile != "core" or rule.who not in (testee, "end", "all"):
            continue
        if rule.title != title:
            title = rule.title
            yield f"\n### {title}\n"
        yield texts[rule.id]


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


def tables(testee: str) -> Iterator[str]:
    """Yield the tables of commands, fields and columns."""
    yield from rows("| number | command |", COMMANDS[testee])
    yield ""
    yield from rows("| key | name |", FIELDS[testee])
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
