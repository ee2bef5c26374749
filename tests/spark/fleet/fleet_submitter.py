"""A manager that dials in, submits the jobs without a result, and writes down each result.

Usage: ``python fleet_submitter.py ENDPOINT COUNT FILE``. Another start continues where a kill
stopped this one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import wmp


def main() -> int:
    endpoint, count, file = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    done = {json.loads(line)[0] for line in lines if line.endswith("\n")}
    file.write_text("".join(line for line in lines if line.endswith("\n")))
    with wmp.Manager(connect=endpoint) as manager, file.open("a", buffering=1) as out:
        jobs = {
            manager.submit(
                json.dumps({"number": n, "seconds": 0.03}).encode(), max_worker_losses=20
            ): n
            for n in range(count)
            if n not in done
        }
        for job in manager.as_completed(jobs):
            out.write(json.dumps([jobs[job], job.result(300).decode()]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
