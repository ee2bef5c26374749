"""CPU time of numbers: ``python -m benchmarks.numbers --lines 1000000``.

``wmp report --numbers`` counts the load, latency and throughput of a journal, and DuckDB, if it is
installed, counts the same figures on the same lines with SQL. The journal is that of
``benchmarks.pipeline``. Each program runs in a process of its own, ``--times`` times. The figures
are CPU seconds of the whole process, because other load on the machine changes seconds. With
``--verdicts`` a whole report of these lines is made, too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.pipeline import make

OURS = "from wmp.spark import report_numbers; import sys; report_numbers(*sys.argv[1:])"
VERDICTS = "from wmp.spark import report; import sys; report(*sys.argv[1:])"
DUCKDB = '''
import duckdb, sys
db = duckdb.connect()
columns = {
    "node": "VARCHAR", "epoch": "BIGINT", "n": "BIGINT", "at": "BIGINT", "what": "VARCHAR",
    "command": "VARCHAR", "source": "VARCHAR", "role": "VARCHAR", "ids": "BIGINT[]",
    "last": "BIGINT", "ends": "VARCHAR[]", "lane": "BIGINT",
}
db.execute(f"""
    create temp table lines as select * from read_json(
        '{sys.argv[1]}/*.jsonl', format = 'newline_delimited', columns = {columns})
""")
db.execute("""
    create temp table events as select node, epoch, what, role, "at", ends[1] word, unnest(
        case when last is null then ids else range(ids[1], last + 1) end) job
    from lines where what in ('submitted', 'resolve')
        or (what = 'send' and command = 'TAKE' and source = node)
""")
db.execute("""
    create temp table jobs as select node, epoch, job, max(role) role, max(word) word,
        min("at") filter (what = 'submitted') s, min("at") filter (what = 'send') g,
        min("at") filter (what = 'resolve') r
    from events group by all
""")
shares = "[0.5, 0.9, 0.95, 0.99, 0.999]"
for phase in ("r - s", "g - s"):
    print(db.execute(
        f"select role, count(*), avg({phase}), quantile_disc({phase}, {shares}), max({phase}) "
        "from jobs group by role"
    ).fetchall())
print(db.execute(f"""
    select role, count(*), quantile_disc((t - before) // size, {shares}) from (
        select what, "at" t, len(ids) size, lag("at") over w before,
            last_value(role ignore nulls) over w role
        from lines where what in ('run', 'finished')
        window w as (partition by node, epoch, lane order by n)
    ) where what = 'finished' group by role
""").fetchall())
print(len(db.execute("select role, s // 50000, count(*) from jobs group by all").fetchall()))
print(len(db.execute(
    "select role, r // 50000, word, count(*), avg(r - s) from jobs group by all"
).fetchall()))
print(db.execute("select count(*), count(distinct (node, epoch)) from lines").fetchall())
'''


def cpu_of(program: str, *arguments: str) -> float | None:
    """Return the CPU seconds of a process that runs a program; None if it fails."""
    before = os.times()
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    return used if done.returncode == 0 else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.numbers", description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--verdicts", action="store_true", help="make a whole report, too")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder, "journal")
        journal.mkdir()
        print(f"{make(journal, options.lines)} lines", flush=True)
        programs = {"report_numbers": OURS, "DuckDB": DUCKDB}
        if options.verdicts:
            programs["report"] = VERDICTS
        for name, program in programs.items():
            out = str(Path(folder, name))
            used = [cpu_of(program, str(journal), out) for _ in range(options.times)]
            texts = ["failed, or is not installed" if cpu is None else f"{cpu:.2f}" for cpu in used]
            print(f"{name:<16}CPU seconds: {', '.join(texts)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
