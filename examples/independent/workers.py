"""A manager's memory of its workers, and its choice of the workers to wake."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from stream import Peer

WAKE_TIMEOUT = 0.25  # units
NEEDS = {"slots": 1}  # the needs of every job
UNREPORTED = 512  # leases of a worker without a READY


def fits(amounts: dict[str, int]) -> bool:
    """Return whether a job with these needs fits into these amounts."""
    return all(amounts.get(resource, 0) >= amount for resource, amount in NEEDS.items())


@dataclass
class Give:
    """A GIVE that is not answered completely."""

    want: int
    roles: list[str]
    needs: dict[str, int]
    until: float


@dataclass
class Worker(Peer):
    """A worker."""

    ready: int = 0  # number of the last READY; 0: none
    roles: list[str] = field(default_factory=list)
    resources: dict[str, int] = field(default_factory=dict)
    offered: int = 0  # the oldest offers go first
    contacts: int = 0  # number of its READYs, GIVEs and sessions (WMP-6.5)
    lock: int = 0  # the last lock that was served
    gives: dict[int, Give] = field(default_factory=dict)  # open GIVEs by lock
    woken: dict[str, int] = field(default_factory=dict)  # jobs of unanswered WAKEs by role
    leases: set[int] = field(default_factory=set)
    window: int = 0  # the greatest of its READYs and GIVEs

    def places(self) -> int:
        """Return how many more leases the worker may have (WMP-4.16)."""
        maximum = self.resources.get("slots", 0) + 2 * self.window if self.ready else UNREPORTED
        return max(0, maximum - len(self.leases))


class Policy:
    """WAKEs ask for the waiting jobs, and for more while no worker comes (WMP-3.5, WMP-3.6)."""

    def __init__(self, unit: float) -> None:
        self.timeout = WAKE_TIMEOUT * unit
        # Unanswered WAKEs by role: begin, and factor of the number of jobs.
        self.unanswered: dict[str, tuple[float, int]] = {}

    def comes(self, worker: Worker, roles: list[str]) -> None:
        """Record that a GIVE answers WAKEs for its roles."""
        for role in worker.woken.keys() & {*roles}:
            del worker.woken[role]
            self.unanswered.pop(role, None)

    def wake(self, role: str, waiting: int, peers: list[Worker]) -> Iterator[tuple[Worker, int]]:
        """Return the workers to wake for a role, and the number of jobs for each: equal shares."""
        now = time.monotonic()
        since, stretch = self.unanswered.get(role, (now, 1))
        if now > since + self.timeout:
            self.unanswered[role] = since, stretch = now, min(2 * stretch, 1 << 20)
        workers = [worker for worker in peers if role in worker.roles]
        room = waiting * stretch - sum(worker.woken.get(role, 0) for worker in workers)
        able = [x for x in workers if x.credit and role not in x.woken and fits(x.resources)]
        for index, worker in enumerate(sorted(able, key=lambda worker: worker.offered)):
            count = min(worker.credit, -(-room // (len(able) - index)))
            if count > 0 and worker.connection is not None:
                worker.credit, worker.woken[role], room = worker.credit - count, count, room - count
                self.unanswered.setdefault(role, (now, 1))
                yield worker, count
        if not any(role in worker.woken for worker in workers):
            self.unanswered.pop(role, None)
