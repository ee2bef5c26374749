"""Your own balancing policy: a function of a few lines chooses the workers to ask first."""

from collections.abc import Sequence

import wmp
from wmp.balance import Jobs, Offer


def nearest_first(jobs: Jobs, offers: Sequence[Offer]) -> Sequence[Offer]:
    """Ask the workers in rack r7 first, and among these the worker that has done least."""
    return sorted(offers, key=lambda offer: (offer.headers.get("rack") != "r7", offer.done))


def work(payload: bytes) -> bytes:
    """Do next to nothing."""
    return payload


# Built-in policies, by name: any, least_recently_used (the default), most_free, random_of_two.
# wmp.balance has policies that combine others: by_role, weighted.
with wmp.Manager(policy=nearest_first) as manager:
    # hold=0: the plain handshake, in which a manager asks workers when jobs come. So no worker asks
    # before the manager has chosen.
    near = wmp.Worker(
        *manager.endpoints, handlers=work, slots=4, label="near", headers={"rack": "r7"}, hold=0
    )
    far = wmp.Worker(
        *manager.endpoints, handlers=work, slots=4, label="far", headers={"rack": "r1"}, hold=0
    )
    with far, near:
        manager.wait_for_workers(2, timeout=10)
        for _ in range(20):
            manager.submit(b"", timeout=10).result()
        done = {worker.label: worker.done for worker in manager.statistics().workers}

for label, count in sorted(done.items()):
    print(f"worker {label} did {count} jobs")
assert done["near"] > done["far"]
