"""The slots of `worker.py`: its locks, the jobs that it holds, and their answers."""

import time
from dataclasses import dataclass
from typing import Any

import cbor2
from messages import CANCELLED, FAILED, OK, OVERRUN, REFUSED
from stream import Peer

ROLES = ["echo", "fail", "slow"]
Owner = tuple[Any, ...]  # identity and epoch


def begin(role: str, payload: bytes) -> tuple[float, int, bytes]:
    """Return the duration of a job in seconds, its outcome, and the outcome's payload."""
    try:
        if role == "fail":
            raise RuntimeError("the role fail always fails")
        return int(payload) / 1000 if role == "slow" else 0, OK, payload
    except (ValueError, RuntimeError) as error:
        failure = [type(error).__name__, str(error), f"worker.py, role {role}"]
        return 0, FAILED, cbor2.dumps(failure)


@dataclass
class Job:
    """A job between TAKE and DONE."""

    manager: Peer
    attempt: int
    slots: int
    until: float
    outcome: int
    result: bytes


class Jobs:
    """Jobs by owner and number, locks by manager and number (WMP-4.8), unsent answers."""

    def __init__(self, slots: int) -> None:
        self.all_slots, self.all, self.last_lock = slots, {"slots": slots}, 0
        self.locks: dict[tuple[bytes, int], list[Any]] = {}  # [slots, jobs, until, manager]
        self.held: dict[tuple[Owner, int], Job] = {}
        self.answers: dict[tuple[bytes, Owner], list[tuple[int, int, int, bytes]]] = {}

    def free(self) -> int:
        """Return the number of slots that are neither locked nor in use."""
        locked = sum(int(slots * jobs) for slots, jobs, *_ in self.locks.values())
        return max(0, self.all_slots - locked - sum(job.slots for job in self.held.values()))

    def slots_for(self, needs: dict[str, int]) -> int:
        """Return the slots of one job: at least one, and too many if its needs are impossible."""
        others = sum(needs.values()) - needs.get("slots", 0)
        return self.all_slots + 1 if others else max(1, needs.get("slots", 0))

    def lock(self, manager: Peer, slots: int, jobs: int, seconds: float) -> int:
        """Return the number of a new lock for a manager (WMP-4.1)."""
        self.last_lock += 1
        lock = [slots, jobs, time.monotonic() + seconds, manager]
        self.locks[manager.identity, self.last_lock] = lock
        return self.last_lock

    def unlock(self, manager: Peer, number: int, jobs: int) -> bool:
        """Use a lock for this number of jobs.

        Return whether there was such a lock (WMP-4.8, 4.9).
        """
        lock = self.locks.pop((manager.identity, number), None)
        if lock and jobs < lock[1]:
            self.locks[manager.identity, number] = [lock[0], lock[1] - jobs, *lock[2:]]
        return lock is not None

    def unlock_late(self) -> bool:
        """Release locks without answer or route (WMP-4.11, 9.12); return whether there were any."""
        before, now = len(self.locks), time.monotonic()
        for key, (_, _, until, manager) in list(self.locks.items()):
            if until <= now or manager.connection is None:
                del self.locks[key]
        return len(self.locks) < before

    def take(self, manager: Peer, owner: Owner, role: str, slots: int, row: Any) -> None:
        """Begin a job, or answer it as refused."""
        number, attempt, left, expires, limit, payload = row
        held = self.held.get((owner, number))
        if held and attempt > held.attempt:  # only the highest attempt is answered (WMP-4.14)
            held.attempt, held.manager = attempt, manager
        elif not held and (role not in ROLES or slots > self.free()):
            self.answer(manager, owner, number, attempt, REFUSED, b"no such role, or no room")
        elif not held and 0 in (left, expires):  # WMP-6.7, WMP-6.19
            self.answer(manager, owner, number, attempt, CANCELLED, b"")
        elif not held:
            seconds, outcome, result = begin(role, payload)
            if limit is not None and seconds > limit / 1000:  # WMP-6.21
                seconds, outcome, result = limit / 1000, OVERRUN, b"ran for longer than its limit"
            until = time.monotonic() + seconds
            self.held[owner, number] = Job(manager, attempt, slots, until, outcome, result)

    def cancel(self, manager: Peer, owner: Owner, unstarted: bool, row: Any) -> None:
        """End the job with an answer: every held job has begun (WMP-6.10)."""
        job = self.held.get((owner, row[0]))
        if not job or job.attempt != row[1]:
            self.answer(manager, owner, *row, CANCELLED, b"")
        elif not unstarted:
            job.until, job.outcome, job.result = 0.0, CANCELLED, b""

    def answer(self, manager: Peer, owner: Owner, *row: Any) -> None:
        """Keep a row of DONE until it is sent."""
        self.answers.setdefault((manager.identity, owner), []).append(row)

    def over(self, hand_back: bool) -> bool:
        """Answer the jobs that have ended, or all jobs; return whether there were any."""
        before = len(self.held)
        for (owner, number), job in list(self.held.items()):
            ended = job.until <= time.monotonic()
            if ended or hand_back:
                del self.held[owner, number]
                end = (job.outcome, job.result) if ended else (CANCELLED, b"")
                self.answer(job.manager, owner, number, job.attempt, *end)
        return len(self.held) < before

    def forget(self, manager: Peer) -> None:
        """Drop a manager's locks and jobs, without DONE (WMP-7.6, WMP-9.14)."""
        self.held = {key: job for key, job in self.held.items() if job.manager is not manager}
        self.answers = {key: x for key, x in self.answers.items() if key[0] != manager.identity}
        self.locks = {key: x for key, x in self.locks.items() if key[0] != manager.identity}
