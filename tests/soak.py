"""The long run: ``python tests/soak.py``, or ``tox -e soak``. pytest does not collect this file.

The run has four parts; each can run alone: ``tox -e soak -- schedules``. A long run can be split:
each piece appends its figures to the file of ``--into``, and ``report`` prints the totals.

    python tests/soak.py schedules --seeds 0:50000 --into soak.jsonl
    python tests/soak.py schedules --seeds 50000:100000 --into soak.jsonl
    python tests/soak.py report --into soak.jsonl

Exit status: 0 no violation, 1 a violation, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from attrs import evolve

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from wmp.testing.__main__ import parse_seeds  # noqa: E402 - this very tree
from wmp.testing.search.explore import describe  # noqa: E402
from wmp.testing.search.plan import PLANS, ModelPlan  # noqa: E402
from wmp.testing.search.search import SearchBounds, SearchOrder, explore  # noqa: E402
from wmp.testing.worlds.campaign import CampaignResult, replay_command, reports  # noqa: E402

Figures = dict[str, Any]

WANTED = {
    "schedules": 100_000,
    "strikes of the rarest fault": 1_000,
    "states": 1_000_000,
    "kills": 500,
    "peers": 100_000,
}
"""The figures that a whole run must reach."""

WORLDS: dict[str, tuple[ModelPlan, SearchBounds]] = {
    **{name: (plan, SearchBounds()) for name, plan in PLANS.items() if name != "small"},
    **{
        f"{name}, 2 faults": (
            evolve(PLANS[name], faults=2),
            SearchBounds(states=250_000, order=SearchOrder.MIXED),
        )
        for name in ("device", "cancel", "pair", "meeting")
    },
    "small": (PLANS["small"], SearchBounds(states=150_000, order=SearchOrder.MIXED)),
}
"""Worlds of the explorer; a world without a number of states is searched completely."""

FAULTS = "tests/interop/faults/test_real_faults.py"
KILLS = f"{FAULTS}::test_nothing_is_lost_while_everything_is_killed_in_turn"
PEERS = f"{FAULTS}::test_thousands_of_real_peers_that_come_and_go_leave_the_process_flat"


def say(text: str) -> None:
    """Print progress to stderr; figures go to stdout."""
    print(text, file=sys.stderr, flush=True)


# -- the parts -------------------------------------------------------------------------------


def schedules(options: argparse.Namespace) -> Figures:
    """Play seeded worlds in virtual time."""
    tally, reported = CampaignResult(), time.monotonic()
    until = reported + 60 * options.minutes
    for report in reports(options.seeds, processes=options.jobs):
        tally.add(report)
        if report.violation is not None:
            say(f"seed {report.seed}: {report.violation}; {replay_command(report)}")
        if time.monotonic() - reported > 30:
            reported = time.monotonic()
            say(f"{tally.schedules} of {len(options.seeds)} worlds")
        if time.monotonic() > until:
            break
    figures = tally.as_dict()
    failed = figures.pop("failed")
    del figures["longest_wait"]
    seeds = f"{options.seeds.start}:{options.seeds.start + tally.schedules}"
    return {"seeds": [seeds], **figures, "broken": [failure["replay"] for failure in failed]}


def _explored(name: str, seconds: float) -> tuple[str, Figures, str | None]:
    plan, how = WORLDS[name]
    explored = explore(plan, evolve(how, seconds=seconds))
    figures = {
        "states": explored.states,
        "transitions": explored.transitions,
        "ends": explored.leaves,
        "emptied": explored.emptied,
    }
    broken = None if explored.violation is None else describe(name, plan, explored)
    return name, figures, broken


def states(options: argparse.Namespace) -> Figures:
    """Visit the states of small worlds."""
    worlds, broken = {}, []
    exploration = partial(_explored, seconds=60 * options.minutes)
    with contextlib.ExitStack() as stack:
        if options.jobs > 1:
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(options.jobs))
            explored = pool.imap_unordered(exploration, options.worlds)
        else:
            explored = map(exploration, options.worlds)
        for name, figures, wrong in explored:
            worlds[name] = figures
            say(f"{name}: {figures}")
            if wrong is not None:
                broken.append(wrong)
    return {"worlds": worlds, "broken": broken}


def _tested(test: str, **environment: object) -> Figures:
    """Run one deep test with pytest; return the figures that the test recorded."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-n0", "-m", "deep"),
            *("-o", "junit_family=xunit1"),
        ]
        done = subprocess.run(
            [*command, f"--junitxml={report}", test],
            cwd=ROOT,
            env={**os.environ, **{name: str(value) for name, value in environment.items()}},
            stdout=sys.stderr,
            check=False,
        )
        figures: Figures = {}
        if report.exists():
            for element in ElementTree.parse(report).iter("property"):
                figures[element.attrib["name"]] = json.loads(element.attrib["value"])
    words = " ".join(f"{name}={value}" for name, value in environment.items())
    return {
        **figures,
        "broken": [f"{words} {' '.join(command[1:])} {test}"] * bool(done.returncode),
    }


def kills(options: argparse.Namespace) -> Figures:
    """Kill, stop and restart real processes, and cut their links, while they work."""
    say(f"seed {options.seed}")
    figures = _tested(KILLS, WMP_REAL_KILLS=options.kills, WMP_SEED=options.seed)
    return {"seeds": [options.seed], **figures}


def peers(options: argparse.Namespace) -> Figures:
    """Connect and remove thousands of real peers over ipc."""
    return _tested(PEERS, WMP_REAL_PEERS=options.peers)


PARTS: dict[str, Callable[[argparse.Namespace], Figures]] = {
    "schedules": schedules,
    "states": states,
    "kills": kills,
    "peers": peers,
}

# -- totals ----------------------------------------------------------------------------------


def added(first: Any, other: Any) -> Any:
    """Add two figures of the same name."""
    if isinstance(first, dict):
        return {
            key: added(first[key], other[key])
            if key in first and key in other
            else first.get(key, other.get(key))
            for key in {**first, **other}
        }
    if isinstance(first, bool) or not isinstance(first, int | float | list):
        return other
    return first + other


def totals(pieces: Sequence[Figures]) -> Figures:
    """Return the totals of all pieces, part by part."""
    sums: Figures = {}
    for piece in pieces:
        figures = {key: value for key, value in piece.items() if key != "part"}
        part = piece["part"]
        if part in sums:
            # Two complete searches of one world find the same states, so the numbers are not added.
            worlds = {**sums[part].get("worlds", {}), **figures.get("worlds", {})}
            sums[part] = added(sums[part], figures)
            if worlds:
                sums[part]["worlds"] = worlds
        else:
            sums[part] = figures
    return sums


def reached(figures: Figures) -> dict[str, int]:
    """Return the value of each figure that a whole run needs."""
    faults = figures.get("schedules", {}).get("faults", {})
    worlds = figures.get("states", {}).get("worlds", {})
    return {
        "schedules": figures.get("schedules", {}).get("schedules", 0),
        "strikes of the rarest fault": min(faults.values(), default=0),
        "states": sum(world["states"] for world in worlds.values()),
        "kills": figures.get("kills", {}).get("struck", {}).get("kill", 0),
        "peers": figures.get("peers", {}).get("peers", 0),
    }


def tell_all(parts: Figures) -> None:
    """Print the figures as text."""
    for part, figures in parts.items():
        print(part)
        for name, value in figures.items():
            if isinstance(value, dict) and value:
                print(f"  {name}")
                width = max(map(len, value), default=0)
                for key, count in sorted(value.items(), key=_by_count):
                    print(f"    {key:<{width}}  {_plain(count)}")
            elif name != "broken":
                print(f"  {name:<26}{_plain(value)}")
    print("in all")
    for name, count in reached(parts).items():
        short = "" if count >= WANTED[name] else f"  (a whole run: {WANTED[name]:,})"
        print(f"  {name:<28}{count:>12,}{short}")
    broken = [text for figures in parts.values() for text in figures["broken"]]
    print(f"  {'broken':<28}{len(broken):>12,}")
    for text in broken:
        print(text)


def _by_count(row: tuple[str, Any]) -> tuple[int, str]:
    return (-row[1] if isinstance(row[1], int) else 0, row[0])


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(figure)}" for key, figure in value.items()) or "none"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


# -- the program -----------------------------------------------------------------------------


def _worlds(text: str) -> list[str]:
    names = [name.strip() for name in text.split(";") if name.strip()]
    wrong = [name for name in names if name not in WORLDS]
    if wrong or not names:
        raise argparse.ArgumentTypeError(
            f"{', '.join(wrong) or text!r} is no world; there are: {'; '.join(WORLDS)}"
        )
    return names


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python tests/soak.py",
        description="Run the long tests, print their figures.",
        epilog="exit status: 0 nothing was broken, 1 something was, 2 wrong usage",
    )
    add = parser.add_argument
    choices = [*PARTS, "report"]
    add("parts", nargs="*", metavar="PART", help=f"{', '.join(choices)} (default: all but report)")
    add(
        "--seeds",
        type=parse_seeds,
        default=range(WANTED["schedules"]),
        help="seeds of the schedules",
    )
    add(
        "--minutes",
        type=float,
        default=inf,
        help="stop after this time: all schedules together, and each world",
    )
    add(
        "--worlds",
        type=_worlds,
        default=list(WORLDS),
        help=f"worlds whose states are visited: {'; '.join(WORLDS)}",
    )
    add("--kills", type=_count, default=WANTED["kills"], help="number of kills")
    add("--seed", type=_count, default=None, help="seed of the order of kills (default: random)")
    add("--peers", type=_count, default=WANTED["peers"], help="number of peers")
    add(
        "--jobs",
        type=_count,
        default=os.cpu_count() or 1,
        help="number of processes that run at once",
    )
    add("--into", type=Path, metavar="FILE", help="add the figures to those of earlier pieces")
    add("--json", action="store_true", help="print the figures as one JSON object")
    return parser


def commit() -> str:
    """Return the commit of the running code; empty outside a clone."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    command_line = parser()
    options = command_line.parse_args(arguments)
    parts = options.parts or list(PARTS)
    if wrong := [part for part in parts if part not in {*PARTS, "report"}]:
        command_line.error(f"no part {', '.join(wrong)}; there are {', '.join(PARTS)} and report")
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1, 1 << 32)
    pieces: list[Figures] = []
    if options.into is not None and options.into.exists():
        pieces = [json.loads(line) for line in options.into.read_text().splitlines()]
    for part in parts:
        if part == "report":
            continue
        say(f"{part} …")
        begin = time.monotonic()
        figures = PARTS[part](options)
        figures["seconds"] = round(time.monotonic() - begin, 1)
        figures["commits"] = [commit()]
        pieces.append({"part": part, **figures})
        if options.into is not None:
            with options.into.open("a") as file:
                file.write(json.dumps(pieces[-1]) + "\n")
    sums = totals(pieces)
    for figures in sums.values():
        figures["commits"] = sorted(set(figures["commits"]))
    if options.json:
        print(json.dumps({**sums, "in all": reached(sums)}, indent=2))
    else:
        tell_all(sums)
    return 1 if any(figures["broken"] for figures in sums.values()) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("interrupted: only parts that were whole are in the figures")
        sys.exit(130)
