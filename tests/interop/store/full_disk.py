"""Fill the disk of a store, and print what still works. ``test_full_disk.py`` runs this program.

``python full_disk.py FOLDER MEBIBYTES PAYLOAD RESERVE`` mounts a small file system on FOLDER, in a
mount namespace of its own. With the payload 0 another program fills the disk, and jobs end
meanwhile.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import subprocess
import sys
import time
from pathlib import Path

import wmp
from wmp.cli.jobs import jobs as command
from wmp.message import Kind
from wmp.store.job_terms import StoredTerms
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.write_batch import JobChanges, NewJobs, WriteBatch

LIMIT = 100.0


def mounted(folder: Path, size: int, *more: str) -> None:
    """Mount the file system, or change its size."""
    options = ",".join([*more, f"size={size}m"])
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)


def called(*arguments: object) -> str:
    """Run ``wmp jobs`` in this process; return what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        command.main([str(argument) for argument in arguments], standalone_mode=False)
    return out.getvalue().strip()


def filled(manager: wmp.Manager, size: int) -> tuple[list[wmp.Job], str]:
    """Submit jobs until the store is full."""
    jobs: list[wmp.Job] = []
    try:
        while True:
            jobs.append(manager.submit(b"%d " % len(jobs) + bytes(size)))
    except wmp.StoreFull as error:
        return jobs, str(error)


def ended(jobs: list[wmp.Job]) -> int:
    until = time.monotonic() + LIMIT
    while not all(job.done() for job in jobs) and time.monotonic() < until:
        time.sleep(0.05)
    return sum(job.done() and job.result() == b"r" * 100 for job in jobs)


def ended_beside_another_program(path: Path, reserve: int) -> int:
    """Fill the disk with another file; return how many of 200 reserved jobs can end."""
    store = wmp.SqliteStore(path, durability="process", reserve=reserve)
    me = store.begin(b"m", "test")
    ids = list(me.block[:200])
    new = NewJobs(Kind("echo"), StoredTerms(), ids, [b"x"] * len(ids), reserve=True)
    store.apply(me, 1, WriteBatch(adds=[new]))
    with contextlib.suppress(OSError), path.with_name("other").open("wb", buffering=0) as other:
        while True:
            other.write(bytes(1 << 12))
    for number, id in enumerate(ids, start=2):
        change = JobChanges(StoredJobInput.SUCCEED, [id], [1], [bytes(2000)])
        try:
            store.apply(me, number, WriteBatch(changes=[change]))
        except wmp.StoreFull:
            break
    counts = store.counts()
    store.close()
    return counts.get(StoredJobState.OK, 0)


def main() -> None:
    """Fill, do all jobs, and print the figures as JSON."""
    logging.disable(logging.CRITICAL)
    folder, size, payload = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    mounted(folder, size)
    path, reserve = folder / "jobs.db", int(sys.argv[4])
    if not payload:
        print(json.dumps({"ended": ended_beside_another_program(path, reserve)}))
        return
    report: dict[str, object] = {}
    store = wmp.SqliteStore(path, durability="process", reserve=reserve)
    manager = wmp.Manager(store=store)
    manager.start()
    jobs, report["error"] = filled(manager, payload)
    report["acknowledged"] = len(jobs)
    with wmp.Worker(*manager.endpoints, handlers=lambda _: b"r" * 100, slots=4, pool="inline"):
        report["ended"] = ended(jobs)
    manager.close(0)
    with wmp.Manager(store=wmp.SqliteStore(path, reserve=reserve)) as again:
        more, _ = filled(again, payload)  # a start, and new jobs as far as the disk allows
        report["cancelled"] = called("cancel", path, "--role", "default") if more else ""
        again.close(0)
    report["purged"] = called("purge", path, "--state", "ok")
    report["check"] = called("check", path)
    with wmp.Manager(store=wmp.SqliteStore(path, reserve=reserve)) as again:
        report["after"] = len(filled(again, payload)[0])
        again.close(0)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
