"""Write ``rfc/README.md``, the draft for the ZeroMQ RFC project.

The draft is made of ``wmp.md`` with the pages of its sections, ``issues.md``, ``wmp.cddl`` and
``rfc/template.md``. It has the same rules under the same numbers. ``python specs/build_rfc.py``
writes it, ``--check`` exits 1 when it is stale.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from build_rules import whole_spec

SPECS = Path(__file__).parent
DRAFT = SPECS / "rfc" / "README.md"

TEMPLATE = DRAFT.parent / "template.md"
"""The parts of the draft that no other file has, with places for the history, rules and grammar."""

_DIAGRAMS = (
    " [`machines/`](machines/locks.md) draws them as diagrams, and gives for each missing pair"
    " the reason why nothing happens."
)
WITHOUT = (
    " [`security.md`](security.md) lists the attacks that remain.",
    " [`values.md`](values.md) lists the values that codecs construct.",
    " [`values.md`](values.md) registers the names of codecs.",
    " [`reference.md`](reference.md) has the names that settings of jobs usually have.",
    " [`store.md`](store.md) has the rules of the store.",
    _DIAGRAMS,
)
"""Sentences of ``wmp.md`` that the draft leaves out: they are about files beside ``wmp.md``."""

_POINT = re.compile(r"^\*\*(\d+a?\. .+?)\*\*\s(.*?)(?=^\*\*\d|^## |\Z)", re.MULTILINE | re.DOTALL)
_RULE = re.compile(r"WMP-\d+\.\d+(?: to WMP-\d+\.\d+)?")


def history(issues: str) -> Iterator[str]:
    """Yield one item for each point that 14/WMP left open: the question, the choice, the rules."""
    for title, point in _POINT.findall(issues):
        question, _, decided = " ".join(point.split()).partition(" *Chosen:* ")
        choice, _, reason = decided.partition(" *Why:* ")
        rules = ", ".join(_RULE.findall((reason or choice).rpartition("(")[2]))
        choice = re.sub(r" \(WMP-[^)]*\)$", "", choice)
        yield f"- **{title}** {question} *Chosen:* {choice} *Rules:* {rules}."


def sections(spec: str) -> str:
    """Return words and sections of the specification, a heading level lower, without links."""
    words = spec[spec.index("| word | meaning |") : spec.index("## 1. ")]
    text = f"## Words\n\n{words}{spec[spec.index('## 1. ') :]}"
    for sentence in WITHOUT:
        if sentence not in text:
            raise ValueError(f"wmp.md has no sentence {sentence!r}; change WITHOUT")
        text = text.replace(sentence, "")
    return re.sub(r"<!-- (?:begin|end): [\w ]+ -->\n+", "", text)


def draft() -> str:
    """Return the text of the draft."""
    spec = whole_spec()
    issues = (SPECS / "issues.md").read_text(encoding="utf-8")
    grammar = (SPECS / "wmp.cddl").read_text(encoding="utf-8")
    text = TEMPLATE.read_text(encoding="utf-8")
    text = text.replace("{history}", "\n".join(history(issues)))
    text = text.replace("{sections}", sections(spec).rstrip())
    return text.replace("{grammar}", grammar)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the draft."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 when stale")
    check = parser.parse_args(arguments).check
    text = draft()
    if not check:
        DRAFT.parent.mkdir(exist_ok=True)
        DRAFT.write_text(text, encoding="utf-8")
    elif not DRAFT.exists() or DRAFT.read_text(encoding="utf-8") != text:
        print(f"{DRAFT} is stale; run python specs/build_rfc.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
