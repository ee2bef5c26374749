"""A worker with a fault for the kit to find: it ignores NO, so that its locks stay (WMP-4.10).

The arguments are those of ``python -m wmp.conformance.testee worker``. The worker writes the number
of its process into the file PIDS.
"""

import os
import sys
from pathlib import Path

from wmp.conformance import testee
from wmp.core.worker.locks import Locks

if file := os.environ.get("PIDS"):
    with Path(file).open("a") as pids:
        pids.write(f"{os.getpid()}\n")
if "--good" in sys.argv:
    sys.argv.remove("--good")
else:
    Locks.no = lambda *_: None  # type: ignore[method-assign]
sys.stderr.write("here I am\n")
sys.exit(testee.main(["worker", *sys.argv[1:]]))
