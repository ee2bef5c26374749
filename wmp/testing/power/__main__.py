"""``python -m wmp.testing.power``: cut the power of a store on SQLite everywhere.

The program runs a real store, records its system calls with strace, and replays them up to each
call. Each write that was not synced is lost, survives, or survives in part and in another order.
After each cut it opens the store, and compares the store with the log of acknowledgements.

Exit status: 0 the store kept its word, 1 it did not, 2 wrong usage or no strace.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from wmp.errors import ConfigError
from wmp.testing.power.crash_matrix import CrashMatrix

_SHOWN: Final = 5
"""Power cuts that are shown with their faults."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m wmp.testing.power",
        description=(
            "Record the system calls of a real store on SQLite with strace. Cut the power after "
            "each call, with lost, torn and reordered writes, and compare the store with the log "
            "of acknowledgements."
        ),
        epilog="exit status: 0 the store kept its word, 1 it did not, 2 wrong usage or no strace",
    )
    add = parser.add_argument
    add("--batches", type=int, default=20, help="adding batches of the program (default: 20)")
    add("--seed", type=int, help="number from which all is drawn (default: a new one)")
    add("--cut", type=int, metavar="CALL", help="cut the power after this call only")
    add("--cuts", type=int, metavar="NUMBER", help="cut the power after drawn calls only")
    add(
        "--durability",
        choices=("power", "process"),
        default="power",
        help="durability of the store; process may lose acknowledged jobs (default: power)",
    )
    add("--json", action="store_true", help="print the result as one JSON object")
    return parser


def _complain(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    options = _parser().parse_args(arguments)
    if options.batches < 1:
        _complain(f"--batches is {options.batches}; expected at least 1")
        return 2
    if options.cuts is not None and options.cuts < 1:
        _complain(f"--cuts is {options.cuts}; expected at least 1")
        return 2
    seed = random.randrange(1 << 30) if options.seed is None else options.seed
    begun = time.monotonic()
    try:
        matrix = CrashMatrix.recorded(options.batches, seed, options.durability)
    except ConfigError as error:
        _complain(f"python -m wmp.testing.power: {error}")
        return 2
    again = (
        f"python -m wmp.testing.power --batches {options.batches} --seed {seed} --durability "
        f"{options.durability}"
    )
    cuts: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    chosen: Sequence[int] | None = None if options.cut is None else (options.cut,)
    if options.cuts is not None:
        chosen = matrix.drawn_calls(options.cuts)
    for cut in matrix.cuts(chosen):
        cuts[cut.kind] += 1
        if cut.fault:
            faults[cut.fault] += 1
            if faults.total() <= _SHOWN:
                _complain(
                    f"call {cut.call}, {cut.kind} survived: {cut.fault}: {cut.detail}\n"
                    f"  play it again: {again} --cut {cut.call}"
                )
    summary = {
        "seed": seed,
        "calls": len(matrix.calls),
        "acknowledged batches": matrix.batches(),
        "power cuts": cuts.total(),
        "by what survived": dict(cuts),
        "faults": dict(faults),
        "seconds": round(time.monotonic() - begun, 1),
    }
    if options.json:
        sys.stdout.write(f"{json.dumps(summary, indent=2)}\n")
    else:
        for name, value in summary.items():
            shown = value
            if isinstance(value, dict):
                shown = ", ".join(f"{count} {what}" for what, count in value.items()) or 0
            sys.stdout.write(f"{name:<22}{shown}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
