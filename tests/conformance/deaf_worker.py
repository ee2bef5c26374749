"""A worker with a fault for the kit to find: it ignores NO, so that its locks stay (WMP-4.10).

It is the worker of ``examples/independent``, which starts sooner than the worker of the library.
With ``--good`` it has no fault. It writes the number of its process into the file PIDS.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "independent"))

from node import run
from worker import Worker


class Deaf(Worker):  # type: ignore[misc]
    """A worker that ignores NO."""

    def no(self, manager: Any, message: Any) -> None:
        """Ignore the message."""


def make(given: argparse.Namespace, unit: float) -> Worker:
    """Return the worker for the given arguments."""
    return (Worker if given.good else Deaf)([given.connect], given.slots, None, unit)


if file := os.environ.get("PIDS"):
    with Path(file).open("a") as pids:
        pids.write(f"{os.getpid()}\n")
parser = argparse.ArgumentParser()
parser.add_argument("--good", action="store_true")
parser.add_argument("--connect", required=True)
parser.add_argument("--slots", type=int, default=1)
print("here I am", file=sys.stderr, flush=True)
run(parser, make)
