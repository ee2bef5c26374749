"""Run the failed tests of a lane of `.ci/run` once more, each alone, and add up all lanes.

``python tests/rerun.py again FILE`` reads the outcomes of a run of pytest (``outcomes.py``). The
program runs each failed test once more, in a process of its own, and writes the new outcomes into
the file. The exit code is 0 if all these tests pass now, and 1 otherwise. A test that is skipped
now does not pass. If anything else than a test failed, or more tests than a busy machine explains,
the program runs no test, and the exit code is 1.

``python tests/rerun.py totals FOLDER`` adds up the files of all lanes. The tests that failed once
and then passed are named as unsteady.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

MOST = 20
"""Maximum of the failed tests that run once more. If more failed, the cause is a change, and not a
busy machine.
"""
ENDED_WITH_FAILED_TESTS = 1
"""The exit code of pytest after a whole run in which tests failed."""


def again(path: Path) -> int:
    """Run the failed tests of a file of outcomes once more; return the exit code."""
    if not path.exists():
        print("rerun: pytest left no outcomes: it did not run, or it crashed")
        return 1
    outcomes = json.loads(path.read_text(encoding="utf-8"))
    failed = [name for name, outcome in outcomes["tests"].items() if outcome == "failed"]
    if outcomes["errors"] or outcomes["status"] != ENDED_WITH_FAILED_TESTS or not failed:
        print(f"rerun: pytest ended with {outcomes['status']}, for another reason than a test")
        return 1
    if len(failed) > MOST:
        print(f"rerun: {len(failed)} tests failed; no more than {MOST} are run once more")
        return 1
    outcomes["unsteady"] = [name for name in failed if _passes_alone(name)]
    outcomes["tests"].update(dict.fromkeys(outcomes["unsteady"], "passed"))
    path.write_text(json.dumps(outcomes), encoding="utf-8")
    return int(outcomes["unsteady"] != failed)


def _passes_alone(name: str) -> bool:
    """Run a test alone and return whether it passed."""
    print(f"\n== rerun: {name}, alone", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "outcomes")
        # The first run has chosen by marks, and has the test in its table of the slowest tests.
        chosen = ("-n", "0", "-m", "", "--durations-min=1e9", name)
        subprocess.run(
            [sys.executable, "-m", "pytest", *chosen],
            env={**os.environ, "WMP_TEST_OUTCOMES": str(path)},
            check=False,
        )
        seen: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"tests": {}}
    outcome = seen["tests"].get(name, "not run")
    print(f"== rerun: {name}: {outcome}", flush=True)
    return bool(outcome == "passed")


def totals(folder: Path) -> str:
    """Return the totals of all lanes, after the names of unsteady tests."""
    counts: Counter[str] = Counter()
    unsteady: list[str] = []
    for path in sorted(folder.iterdir()):
        outcomes = json.loads(path.read_text(encoding="utf-8"))
        counts.update(outcomes["tests"].values())
        counts["failed"] += len(outcomes["errors"])
        unsteady += [f"{name} (lane {path.name})" for name in outcomes.get("unsteady", ())]
    lines = [f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"]
    if unsteady:
        lines = ["unsteady tests, which failed and then passed alone:", *unsteady, "", *lines]
    return "\n".join(lines)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["again", file]:
            sys.exit(again(Path(file)))
        case ["totals", directory]:
            print(totals(Path(directory)))
        case _:
            sys.exit(__doc__)
