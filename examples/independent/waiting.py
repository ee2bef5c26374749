"""The jobs of `manager.py`: queued, leased, ended once; orders on stdin, reports on stdout."""

import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any

from node import BATCH
from workers import Give, Worker, fits

MAX_WORKER_LOSSES = 3  # default of the lost leases that a job survives


@dataclass
class Job:
    """A job from submit to its end."""

    name: str
    role: str
    payload: bytes
    priority: int = 0
    max_worker_losses: int = MAX_WORKER_LOSSES
    timeout: float = 0  # milliseconds; 0: none
    deadline: float = 0.0
    attempt: int = 0
    begun: int = 0  # earlier runs that began, or may have begun (WMP-6.34)
    losers: set[bytes] = field(default_factory=set)  # workers that have lost the job
    worker: Worker | None = None  # the worker with the lease
    take: int = 0  # number of the TAKE with the job
    cancelling: bool = False
    refused: tuple[bytes, int] | None = None  # a worker, and its value of `asked` at its refusal
    alone: bool = False  # whether the job goes out in a TAKE of its own (WMP-7.11)

    def left(self) -> int | None:
        """Return milliseconds to the deadline, rounded up (WMP-6.7)."""
        late = int((time.monotonic() - self.deadline) * 1000 // 1)
        return max(0, -late) if self.timeout else None


class Queue:
    """All jobs that have no end yet."""

    def __init__(self, stop: Callable[[Any, int, int], None]) -> None:
        self.stop = stop  # sends CANCEL for a job's attempt
        self.line = b""
        self.jobs: dict[int, Job] = {}
        self.numbers: dict[str, int] = {}  # numbers by name
        self.waiting: dict[str, list[tuple[int, int]]] = {}  # (-priority, number) by role
        self.last = 0

    def read(self) -> bool:
        """Handle the lines on stdin; return whether more may come."""
        octets = os.read(0, 1 << 16)
        *lines, self.line = (self.line + octets).split(b"\n")
        for line in lines:
            words = line.decode(errors="replace").split(" ")
            try:
                (self.submit if words.pop(0) == "submit" else self.cancel)(*words)
            except (TypeError, ValueError) as error:
                print(f"cannot read the line {line!r} ({error})", file=sys.stderr, flush=True)
        return octets != b""

    def submit(self, name: str, role: str, payload: str, *options: str) -> None:
        """Handle a line of stdin: `submit NAME ROLE HEX`, and options."""
        given: dict[str, Any] = {}
        for option in options:
            word, _, amount = option.partition("=")
            if word not in ("max_worker_losses", "priority", "timeout"):
                return print("unknown", name, word, flush=True)
            given[word] = int(amount)
        job = Job(name, role, bytes.fromhex(payload.replace("-", "")), **given)
        job.deadline = time.monotonic() + job.timeout / 1000
        self.last += 1
        self.jobs[self.last], self.numbers[name] = job, self.last
        self.wait(self.last)
        print("submitted", name, flush=True)

    def wait(self, number: int) -> None:
        """Queue a job in the order of submission: a lost job comes first (WMP-6.4, WMP-6.13)."""
        job = self.jobs[number]
        heappush(self.waiting.setdefault(job.role, []), (-job.priority, number))

    def lease(self, worker: Worker, give: Give) -> tuple[str, list[Any]]:
        """Return jobs for an open GIVE: a role, and rows of a TAKE (WMP-4.6, WMP-6.13)."""
        firsts = [(self.waiting[role][0], role) for role in give.roles if self.waiting.get(role)]
        role, skipped = min(firsts)[1] if firsts else "", []
        rows: list[Any] = []
        take = worker.stream.sent + 1 if worker.stream else 0
        maximum = min(give.want, BATCH, worker.places())
        while fits(give.needs) and self.waiting.get(role) and len(rows) < maximum:
            number = heappop(self.waiting[role])[1]
            job = self.jobs[number]
            if job.refused == (worker.identity, worker.contacts):  # WMP-6.5
                skipped.append(number)
                continue
            if rows and (job.alone or self.jobs[rows[0][0]].alone):
                skipped.append(number)
                break
            job.attempt, job.worker, job.take = job.attempt + 1, worker, take
            worker.leases.add(number)
            rows.append((number, job.attempt, job.left(), job.begun, job.payload))
        for number in skipped:
            self.wait(number)
        return role, rows

    def release(self, number: int) -> Job:
        """End the lease, or the waiting."""
        job = self.jobs[number]
        if job.worker:
            job.worker.leases.discard(number)
        else:
            self.waiting[job.role].remove((-job.priority, number))
            heapify(self.waiting[job.role])
        job.worker = None
        return job

    def lose(self, number: int, cause: bytes, *, spend: bool, begun: bool) -> None:
        """End a lease without a result: a worker loss, and perhaps a run that began."""
        job = self.release(number)
        job.max_worker_losses -= spend
        job.begun += begun
        self.wait(number)
        if job.cancelling:
            self.end(number, "cancelled")
        elif job.max_worker_losses < 0:
            self.end(number, "lost", cause)

    def lose_missing(self, worker: Any, held: Any = (), last: float = math.inf) -> None:
        """Lose the leases that a worker received and does not hold (WMP-9.13, WMP-6.17)."""
        for number in sorted(worker.leases):
            job = self.jobs[number]
            if (number, job.attempt) not in held and job.take <= last:
                # A lease whose TAKE never left does not count (WMP-6.17).
                left = bool(worker.stream and job.take <= worker.stream.left)
                first = worker.identity not in job.losers  # one loss for each worker (WMP-6.23)
                if left:
                    job.losers.add(worker.identity)
                cause = b"the worker is gone, or no longer has the job"
                self.lose(number, cause, spend=left and first, begun=left)

    def end(self, number: int, word: str, payload: bytes = b"") -> None:
        """Report the one end of a job (WMP-6.3)."""
        job = self.release(number)
        del self.jobs[number], self.numbers[job.name]
        print("ended", job.name, word, payload.hex() or "-", flush=True)

    def cancel(self, name: str) -> None:
        """Cancel a job: at once if it waits, else when its worker answers."""
        number = self.numbers.get(name, 0)
        job = self.jobs.get(number)
        print("cancelling", name, flush=True)
        if job and job.worker and not job.cancelling:
            job.cancelling = True
            self.stop(job.worker, number, job.attempt)
        elif job and not job.worker:
            self.end(number, "cancelled")

    def end_late(self) -> None:
        """End the jobs whose deadline has passed (WMP-6.8)."""
        for number in [number for number, job in self.jobs.items() if job.left() == 0]:
            job = self.jobs[number]
            if job.worker:
                self.stop(job.worker, number, job.attempt)
            self.end(number, "timeout")
