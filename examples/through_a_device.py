"""A device between workers and managers. It may stop and start again while jobs run."""

import wmp


def reverse(payload: bytes) -> bytes:
    """Do a job."""
    return payload[::-1]


with wmp.Manager() as manager:
    first = wmp.Device(bind="tcp://127.0.0.1:*", connect=manager.endpoints)
    first.start()
    worker = wmp.Worker(*first.endpoints, handlers=reverse)
    worker.start()
    print(manager.submit(b"live").result(timeout=10).decode())

    jobs = [manager.submit(b"drawer") for _ in range(100)]
    first.close()
    # Another device takes its place. A device keeps no jobs: manager and worker keep them.
    with wmp.Device(bind=first.endpoints, connect=manager.endpoints) as second, worker:
        results = {job.result(timeout=20).decode() for job in jobs}
        print(f"all {len(jobs)} jobs ended, with the results {', '.join(results)}")
        passed = second.statistics().forwarded
        print(f"the second device passed on {sum(passed.values())} messages")
