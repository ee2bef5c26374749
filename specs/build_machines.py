"""Draw the lifecycles from the tables that the code consults, into ``specs/machines/``.

``python specs/build_machines.py`` writes them, ``--check`` exits 1 when one is stale.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from enum import Enum
from pathlib import Path
from types import ModuleType

MODULES = {
    "job_lifecycle": "wmp.core.manager.job_lifecycle",
    "locks": "wmp.core.worker.locks",
    "execution_lifecycle": "wmp.core.worker.execution_lifecycle",
    "worker_lifecycle": "wmp.gateways.common.worker_lifecycle",
    "request_lifecycle": "wmp.gateways.common.request_lifecycle",
    "stored_job": "wmp.store.stored_job",
    "attendance": "wmp.gateways.common.attendance",
    "star_election": "wmp.gateways.binary_star.election",
}
"""The module of each page."""
FOLDER = Path(__file__).parent / "machines"


def draw(module: ModuleType) -> str:
    """Return one page: the diagram, then the table of ignored inputs with the reasons."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, what), target in module.TRANSITIONS.items():
        arrows.setdefault((name(state), name(target)), []).append(name(what))
    title = (module.__doc__ or "").splitlines()[0]
    starts = getattr(module, "STARTS", [next(iter(module.TRANSITIONS))[0]])
    lines = [
        f"# {title.rstrip('.')}",
        "",
        f"Generated from the tables of `{module.__name__}` by `specs/build_machines.py`.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        *(f"    [*] --> {name(first)}" for first in starts),
        *(
            f"    {source} --> {target}: {', '.join(inputs)}"
            for (source, target), inputs in arrows.items()
        ),
        "```",
        "",
        "A pair of state and input that is not in the diagram changes nothing:",
        "",
        "| state | input | why nothing happens |",
        "|---|---|---|",
        *(
            f"| {name(state)} | {name(what)} | {reason} |"
            for (state, what), reason in module.IGNORED.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def name(member: Enum) -> str:
    """Return a state's or input's name as the diagrams show it."""
    return member.name


def pages() -> dict[Path, str]:
    """Return every page by its path."""
    return {
        FOLDER / f"{page}.md": draw(importlib.import_module(path)) for page, path in MODULES.items()
    }


def main() -> int:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 when stale")
    check = parser.parse_args().check
    FOLDER.mkdir(exist_ok=True)
    stale = [
        path
        for path, text in pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        if check:
            print(f"{path} is stale; run python specs/build_machines.py", file=sys.stderr)
        else:
            path.write_text(pages()[path], encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
