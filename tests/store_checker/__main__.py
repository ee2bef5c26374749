"""``python -m tests.store_checker --acks 2000 --faults 40 [--store postgres] [--seed N]``.

The environment needs the extras ``cli``, ``dispatcher`` and ``postgres``.

Two submitters, a pair of managers with a client, a dispatcher with a client, and two workers share
one store. The checker kills all of them in the first start of the store. Then it kills and stops
them, fills the disk, restores backups, cuts connections after COMMIT, kills the server, sets clocks
and replays power cuts. In the end it compares the store with the logs of the submitters: lost,
twice, wrong, stuck. The logs are synced files of the submitters, and not of the library. Only what
was acknowledged after a backup that was restored may be lost.

A full disk needs a mount namespace (``unshare -m``). Without one there are no full disks.

Exit status: 0 nothing is lost, twice, wrong or stuck; 1 something is.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time

from tests.store_checker.checker import StoreChecker
from tests.store_checker.comparison import FAULTS
from tests.store_checker.small_mount import enter_namespace


def main() -> int:
    """Run the checker; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.store_checker", description=__doc__)
    parser.add_argument("--acks", type=int, default=2000)
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    given = parser.parse_args()
    enter_namespace(["-m", "tests.store_checker", *sys.argv[1:]])
    checker = StoreChecker(given.store, given.acks, given.faults, given.seed)
    bad = True
    try:
        began = time.monotonic()
        goes_on = checker.run()
        report = checker.report(goes_on)
        bad = any(report[kind] for kind in FAULTS)
        report = {"seed": given.seed, "store": given.store, **report}
        report["seconds"] = round(time.monotonic() - began)
        print(json.dumps(report, indent=1))
        if bad:
            checker.save(report)
            print(f"the logs are in {checker.folder}", file=sys.stderr)
    finally:
        checker.close(keep=bad)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
