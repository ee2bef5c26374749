"""The process of an attacker: ``python -m benchmarks.attacks.child DRILL ENDPOINT``.

It prints ``true`` when its connections are open, and attacks until it is ended. ``burn SHARES``
attacks no node. It runs one process for each share, and that process uses that share of a core.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time

from benchmarks.attacks.attacker import Attacker
from benchmarks.attacks.drills import DRILLS

__all__ = ["main"]

_PERIOD = 0.01
"""Length of a period in seconds: in each period ``burn`` works once and rests once."""


def _burn(shares: list[float]) -> None:
    """Use a share of a core in each of some processes, as the threads of an attacker did.

    Threads of this process would wait for each other.
    """
    share, *others = shares
    parent = os.getpid()
    for other in others:
        if not os.fork():
            share = other
            break
    if os.getpid() == parent:
        print(json.dumps(True), flush=True)
    while os.getpid() == parent or os.getppid() == parent:
        clock, work = time.perf_counter(), time.process_time() + _PERIOD * share
        while time.process_time() < work:
            pass
        time.sleep(max(0.0, _PERIOD - (time.perf_counter() - clock)))


def _end_with_parent() -> None:
    """End with the parent, which holds the other end of standard input until the parent ends."""
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    """Attack until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks.child")
    parser.add_argument("drill", choices=[*DRILLS, "burn"])
    parser.add_argument("target", help="endpoint of the node; for burn, shares of a core: 0.5,0.2")
    options = parser.parse_args()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if options.drill == "burn":
        _burn([float(share) for share in options.target.split(",")])
    drill = DRILLS[options.drill]
    drill.attack(Attacker(options.target, drill.connections))


if __name__ == "__main__":
    main()
