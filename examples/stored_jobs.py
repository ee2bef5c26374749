"""Jobs that outlive the process that submitted them, and results that another process reads."""

import tempfile
from pathlib import Path

import wmp

with tempfile.TemporaryDirectory() as folder:
    store = Path(folder) / "jobs.db"

    # This manager has no worker. It ends, as if its process had died.
    manager = wmp.Manager(store=store)
    manager.start()
    for name in ("ada", "bob", "eve"):
        manager.submit(name.encode(), key=f"greet {name}")
    manager.close()
    with wmp.results(store) as results:
        print("bob's job:", results.get(key="greet bob", default=b"still open").decode())

    # Any manager with the same file goes on. A key that is known joins the job that is there.
    with (
        wmp.Manager(store=store) as manager,
        wmp.Worker(*manager.endpoints, handlers=lambda name: b"hello, " + name),
    ):
        job = manager.submit(b"bob", key="greet bob")
        print("joined:", job.result(timeout=30).decode())
        last = manager.submit(b"eve", key="greet eve", unique="kept")
        print("joined:", last.result(timeout=30).decode())

    # Results stay for an hour, for every process of this host.
    with wmp.results(store) as results:
        print("bob's job:", results.get(key="greet bob").decode())
