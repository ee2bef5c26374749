"""Write the generated part of ``store.md``: the table of stored jobs.

``python specs/build_store.py`` writes it, ``--check`` exits 1 when it is stale.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from build_wmp import MEANINGS

from wmp.store import stored_job

PAGE = Path(__file__).parent / "store.md"

_PART = re.compile(r"(<!-- begin: stored -->\n).*?(<!-- end: stored -->)", re.DOTALL)


def table() -> Iterator[str]:
    """Yield the lines of the states, the inputs and the rows of the table."""
    meanings = MEANINGS[stored_job.__name__]
    yield from ("| state | | meaning |", "|---|---|---|")
    for state in stored_job.StoredJobState:
        number = "" if state is stored_job.StoredJobState.ABSENT else str(int(state))
        yield f"| {state.name} | {number} | {meanings[state.name]} |"
    yield from ("", "| input | meaning |", "|---|---|")
    for job_input in stored_job.StoredJobInput:
        yield f"| {job_input.name} | {meanings[job_input.name]} |"
    yield from ("", "| input | from | to | guards | effects |", "|---|---|---|---|---|")
    for job_input in stored_job.StoredJobInput:
        for row in stored_job.rows_of(job_input):
            ended = row.sources == stored_job.ENDED
            sources = "any ended" if ended else ", ".join(state.name for state in row.sources)
            guards = "; ".join(guard.value for guard in row.guards)
            effects = "; ".join(effect.value for effect in row.effects)
            yield f"| {job_input.name} | {sources} | {row.target.name} | {guards} | {effects} |"


def filled(text: str) -> str:
    """Return the page with its generated part up to date.

    Raises:
        ValueError: The page has not exactly one such part.
    """
    lines = "\n".join(table())
    text, count = _PART.subn(lambda match: f"{match[1]}\n{lines}\n\n{match[2]}", text)
    if count != 1:
        raise ValueError(f"store.md has {count} generated parts, expected one")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 when stale")
    check = parser.parse_args(arguments).check
    before = PAGE.read_text(encoding="utf-8")
    after = filled(before)
    if check and before != after:
        print(f"{PAGE} is stale; run python specs/build_store.py", file=sys.stderr)
        return 1
    if not check:
        PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
