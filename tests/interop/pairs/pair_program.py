"""One manager of a pair, as an application has it: a door for clients, and a store or none.

``python -m tests.interop.pairs.pair_program a|b ROLE [STORE]`` in the folder of the sockets. The
program prints "active" when it is active, and submits the lines of stdin as jobs then.
"""

from __future__ import annotations

import logging
import sys
import threading

import wmp
from wmp.gateways import BinaryStar, FrontDoor

OTHER = {"a": "b", "b": "a"}
HEARTBEAT = 1.0


def main() -> int:
    """Serve until the pair ends; return the exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    own, role, *store = sys.argv[1:]
    star = BinaryStar(
        role, local=f"ipc://state-{own}", remote=f"ipc://state-{OTHER[own]}", heartbeat=HEARTBEAT
    )
    manager = wmp.Manager(
        f"ipc://wmp-{own}", identity=f"orders-{own}", star=star, store=store[0] if store else None
    )
    try:
        with manager, FrontDoor(f"ipc://door-{own}", manager=manager, join=True):
            print("serves", flush=True)
            manager.wait_active()
            print("active", flush=True)
            threading.Thread(target=submit, args=(manager,), daemon=True).start()
            manager.wait_ended()
    except wmp.StarConflict as error:
        print(error, file=sys.stderr)
        return 3
    except wmp.ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def submit(manager: wmp.Manager) -> None:
    """Submit each line of stdin as a job."""
    for line in sys.stdin:
        body = line.strip()
        manager.submit(body, key=body)
        print(f"submitted {body}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
