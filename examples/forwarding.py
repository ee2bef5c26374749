"""A manager that hands the jobs of another manager to its own workers.

The manager `site` has no workers of its own. The manager `rack` forwards its jobs: towards `site`
it is one worker with four slots. When a worker or the forwarding manager stops, `site` grants the
jobs again.
"""

import wmp


def reverse(payload: bytes) -> bytes:
    """Do a job."""
    return payload[::-1]


with wmp.Manager() as site:
    rack = wmp.Manager(forward=site.endpoints)
    rack.start()
    address = rack.endpoints[0]
    first, second = (wmp.Worker(address, handlers=reverse, slots=2) for _ in range(2))
    first.start()
    second.start()
    print(site.submit(b"live").result(timeout=10).decode())

    jobs = [site.submit(b"drawer") for _ in range(300)]
    first.close(0)
    rack.close(0)
    # Another forwarding manager takes its place, and the second worker connects to it by itself.
    with wmp.Manager(address, forward=site.endpoints), second:
        results = {job.result(timeout=30).decode() for job in jobs}
        print(f"all {len(jobs)} jobs ended, with the results {', '.join(results)}")
