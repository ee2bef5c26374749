"""Test the core install with the Python of an environment without extras.

The environment has attrs, cbor2, pyzmq and ``worker-manager-protocol``, and nothing else. Both APIs
import. Jobs go from a manager to a worker and back over a real socket, with readable journals.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import distributions

EXPECTED = {"attrs", "cbor2", "pyzmq", "worker-manager-protocol"}
# Packages that `venv` and `virtualenv` install themselves.
SEEDED = {"pip", "setuptools", "wheel"}


def upper(payload: bytes) -> bytes:
    return payload.upper()


def main() -> int:
    installed = {dist.metadata["Name"].lower() for dist in distributions()} - SEEDED
    if installed != EXPECTED:
        print(f"expected {sorted(EXPECTED)}, found {sorted(installed)}", file=sys.stderr)
        return 1

    import wmp
    import wmp.aio
    from wmp.journal.reader import Reader, find_segments

    with tempfile.TemporaryDirectory() as folder:
        with (
            wmp.Manager(journal=folder) as manager,
            wmp.Worker(*manager.endpoints, handlers=upper, journal=folder),
        ):
            results = list(manager.map([b"one", b"two", b"three"], timeout=100))
        if results != [b"ONE", b"TWO", b"THREE"]:
            print(f"wrong results: {results}", file=sys.stderr)
            return 1
        reader = Reader()
        kinds = {line["what"] for path in find_segments([folder]) for line in reader.read(path)}
    if reader.bad or not kinds >= {"start", "submitted", "run", "resolve", "stop"}:
        print(f"a wrong journal: {sorted(kinds)}, {dict(reader.bad)}", file=sys.stderr)
        return 1
    print(f"the core install is enough: {', '.join(sorted(installed))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
