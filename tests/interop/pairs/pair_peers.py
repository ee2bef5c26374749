"""Programs on hosts of a pair of managers: the managers, a worker and a client.

``python -m tests.interop.pairs.pair_peers KEYS manager ROLE NAME REMOTE``, ``… worker ENDPOINT
ENDPOINT`` and ``… client ENDPOINT ENDPOINT``. KEYS are a public and a secret key, with a comma
between them. The client prints each reply.
"""

from __future__ import annotations

import itertools
import logging
import sys

import wmp
from wmp.gateways import BinaryStar, FrontDoor, StarClient

STATE, WORKERS, CLIENTS = 5501, 5502, 5503
"""Ports of a manager."""

HEARTBEAT = 0.5


def main() -> int:
    """Run one program until it is killed; return the exit code of a manager whose pair ended."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    keys, kind, *rest = sys.argv[1:]
    public, secret = keys.split(",")
    security = wmp.Security(public_key=public, secret_key=secret, server_key=public)
    match kind:
        case "manager":
            return serve(*rest, security)
        case "worker":
            wmp.Worker(*rest, handlers=bytes.upper, slots=4, security=security).run()
        case "client":
            ask(*rest, security)
    return 0


def serve(role: str, name: str, remote: str, security: wmp.Security) -> int:
    """Be a manager of the pair."""
    star = BinaryStar(
        role,
        local=f"tcp://0.0.0.0:{STATE}",
        remote=f"tcp://{remote}:{STATE}",
        heartbeat=HEARTBEAT,
        security=security,
    )
    manager = wmp.Manager(
        f"tcp://0.0.0.0:{WORKERS}", identity=name, star=star, max_silence=1.0, security=security
    )
    try:
        with (
            manager,
            FrontDoor(f"tcp://0.0.0.0:{CLIENTS}", manager=manager, join=True, security=security),
        ):
            manager.wait_ended()
    except wmp.StarConflict as error:
        print(error, file=sys.stderr)
        return 3
    return 0


def ask(primary: str, backup: str, security: wmp.Security) -> None:
    """Ask without end."""
    with StarClient(primary, backup, timeout=1.0, settle=1.0, security=security) as client:
        for number in itertools.count(1):
            body = b"request %d" % number
            assert client.request(body) == body.upper()
            print(f"reply {number}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
