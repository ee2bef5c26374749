"""``python -m tests.store_checker.trials KIND [--tries 1000] [--store postgres] [--seed N]``.

Makes many tries of one kind of fault, each on a store of its own: ``restore`` puts backups in the
place of a store, by the command and by hand; ``first-start`` kills processes that race for a new
store; ``full-disk`` fills a small file system, and kills processes there.

Exit status: 0 no store broke its word; 1 a store did; 2 the kind cannot be tried here.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.store_checker.copied_databases import CopiedDatabases
from tests.store_checker.first_starts import FirstStarts
from tests.store_checker.full_disks import FullDisks, FullServers
from tests.store_checker.ledger import Broken
from tests.store_checker.restorations import Restorations
from tests.store_checker.small_mount import SmallMount, enter_namespace, in_namespace
from wmp.store.sqlite.sqlite_store import SqliteStore

_KINDS: Final = ("restore", "first-start", "full-disk")
_SHOWN: Final = 5
_SERVER: Final = 160 << 20
"""Bytes of the file system of a server that will be full."""

Play = Callable[[int, random.Random], str]
"""Makes the try with a number; returns what happened, and raises ``Broken``."""


@contextmanager
def tries_of(kind: str, store: str, folder: Path) -> Iterator[Play]:
    """Return what makes one try."""
    if store == "sqlite":
        if kind == "first-start":

            def opened(number: int) -> Any:
                return SqliteStore(folder / f"{number}.db", reserve=1 << 16, grace=0.0)

            yield FirstStarts(opened, folder).play
        else:
            yield (Restorations(folder) if kind == "restore" else FullDisks(folder)).play
        return
    with server_in(folder, kind) as (server, mount):
        if kind == "first-start":
            from wmp.store.postgres.postgres_store import PostgresStore

            def opened_in_schema(number: int) -> Any:
                return PostgresStore(f"{server.url}&schema=t{number}", grace=0.0)

            yield FirstStarts(opened_in_schema, folder).play
        elif kind == "restore":
            yield CopiedDatabases(server, folder).play
        else:
            assert mount is not None
            yield FullServers(mount, server, folder).play


@contextmanager
def server_in(folder: Path, kind: str) -> Iterator[tuple[Any, SmallMount | None]]:
    """Run a server of PostgreSQL, on a small file system if it will be full."""
    from tests.postgres.server import PostgresServer

    mount = SmallMount(folder / "disk", _SERVER) if kind == "full-disk" else None
    server = PostgresServer(folder if mount is None else mount.folder)
    try:
        yield server, mount
    finally:
        server.stop()
        if mount is not None:
            mount.close()


def main() -> int:
    """Make the tries; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.store_checker.trials", description=__doc__
    )
    parser.add_argument("kind", choices=_KINDS)
    parser.add_argument("--tries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    given = parser.parse_args()
    if given.kind == "full-disk":
        enter_namespace(["-m", "tests.store_checker.trials", *sys.argv[1:]])
        if not in_namespace():
            print("full disks need a mount namespace (unshare -m)", file=sys.stderr)
            return 2
    # Processes are killed here, and not the power: memory makes more tries in the same time.
    fast = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="wmp-trials-", dir=fast))
    folder.chmod(0o755)  # the server of PostgreSQL runs as another user
    outcomes: Counter[str] = Counter()
    faults: list[str] = []
    began = time.monotonic()
    try:
        with tries_of(given.kind, given.store, folder) as play:
            for number in range(given.tries):
                try:
                    outcomes[play(number, random.Random(f"{given.seed} {number}"))] += 1
                except Broken as broken:
                    faults.append(f"try {number}: {broken}")
                if number % 100 == 99:
                    print(f"{number + 1} tries, {len(faults)} faults", file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report = {
        "kind": given.kind,
        "store": given.store,
        "seed": given.seed,
        "tries": given.tries,
        "faults": len(faults),
        "examples": faults[:_SHOWN],
        "what happened": dict(sorted(outcomes.items())),
        "seconds": round(time.monotonic() - began),
    }
    print(json.dumps(report, indent=1))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
