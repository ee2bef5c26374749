"""Write the tables of ``specs/journal.md`` from the schema in the code.

``python specs/build_journal.py`` writes them, ``--check`` exits 1 when they are stale.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wmp.journal.schema import COLUMNS, LINES, VERSION

PAGE = Path(__file__).parent / "journal.md"
MARK = "<!-- What follows is made by specs/build_journal.py from wmp/journal/schema.py. -->\n"


def page() -> str:
    """Return the page: its own text, and new tables."""
    words, _, _ = PAGE.read_text("utf-8").partition(MARK)
    assert words.startswith(f"# The journal of a node, schema {VERSION}\n"), "the title's number"
    return words + MARK + tables()


def tables() -> str:
    """Return the tables of columns and of kinds of lines."""
    lines = ["", "## Columns", "", "| column | type | on | meaning |", "|---|---|---|---|"]
    lines += [f"| {c.name} | {c.type.value} | {c.on} | {c.doc} |" for c in COLUMNS]
    lines += [
        "",
        "## Kinds of lines",
        "",
        "| what | columns that a line of this kind always has, besides the first eight columns |",
        "|---|---|",
    ]
    lines += [f"| {what} | {' '.join(columns)} |" for what, columns in LINES.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write or check the page; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    text = page()
    if parser.parse_args().check:
        if text != PAGE.read_text("utf-8"):
            print("specs/journal.md is stale; run python specs/build_journal.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
