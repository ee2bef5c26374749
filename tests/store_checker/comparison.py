"""The comparison of a store with the logs of its submitters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import define, field

from tests.store_checker.party_log import PartyLog, expected, payload_of
from wmp.store.contract import JobFilter, StoredJob
from wmp.store.stored_job import StoredJobState

__all__ = ["FAULTS", "Comparison", "jobs_by_key"]

FAULTS: Final = ("lost", "twice", "wrong", "stuck")


def jobs_by_key(store: Any, *, payloads: bool = True) -> dict[str, list[StoredJob]]:
    """Return all jobs with a key."""
    jobs: dict[str, list[StoredJob]] = {}
    after = -1
    while page := store.list(JobFilter(), after=after, limit=1000, payloads=payloads):
        for job in page:
            if job.key is not None:
                # A dispatcher has a word in front of the key.
                jobs.setdefault(job.key.removeprefix("http:"), []).append(job)
        after = page[-1].id
    return jobs


@define
class _Backup:
    """The contents of the logs when a backup was made."""

    before: dict[str, set[int]]
    """The acknowledged jobs that the backup contains."""
    after: dict[str, set[int]]
    """The jobs that were asked for when the backup was ready; the backup contains no later job."""


@define
class Comparison:
    """The faults; the logs decide which jobs the store must contain.

    Attributes:
        logs: The log of each submitter.
        faults: Texts by kind of fault.
        forgotten: Acknowledged jobs that restorations have removed.
    """

    logs: Mapping[str, PartyLog]
    faults: dict[str, list[str]] = field(factory=lambda: {kind: [] for kind in FAULTS})
    forgotten: int = 0
    _backup: _Backup | None = None

    def stored_logs(self) -> dict[str, PartyLog]:
        """Return the logs whose jobs have keys in the store: the client of the pair has none."""
        return {name: log for name, log in self.logs.items() if name != "ask"}

    def read(self) -> None:
        """Read what is new in the logs."""
        for log in self.logs.values():
            log.read()

    def back_up(self, copy: Callable[[], None]) -> None:
        """Make a backup, and remember what it has."""
        self.read()
        before = {name: set(log.acknowledged) for name, log in self.stored_logs().items()}
        copy()
        self.read()
        after = {name: set(log.asked) for name, log in self.stored_logs().items()}
        self._backup = _Backup(before, after)

    def restored(self, store: Any) -> None:
        """Compare a store that was just restored with what its backup had.

        A job that was acknowledged after the backup is forgotten, and may be lost, unless the
        submitter submits the job again and gets another acknowledgement.
        """
        assert self._backup is not None
        self.read()
        jobs = jobs_by_key(store)
        for name, log in self.stored_logs().items():
            kept = {number for number in log.asked if f"{name}-{number}" in jobs}
            self.faults["lost"] += [
                f"{name}-{number} was acknowledged before the backup that was restored"
                for number in sorted(self._backup.before[name] - kept)
            ]
            self.faults["wrong"] += [
                f"{name}-{number} is there, and was asked after the backup that was restored"
                for number in sorted(kept - self._backup.after[name])
            ]
            gone = log.acknowledged - kept
            self.forgotten += len(gone)
            log.forget(gone)

    def final(self, store: Any, damages: list[str]) -> None:
        """Compare the store with the logs when all jobs should have ended."""
        self.read()
        jobs = jobs_by_key(store)
        self.faults["wrong"] += damages
        for name, log in self.logs.items():
            self.faults["wrong"] += log.wrong
            for number, result in log.ended.items():
                if result != expected(payload_of(name, number)):
                    self.faults["wrong"].append(f"{name}-{number}: {result}")
            if name == "ask":
                unanswered = log.asked - log.ended.keys()
                self.faults["stuck"] += [f"ask-{number}" for number in unanswered]
                continue
            for number in sorted(log.acknowledged):
                self._compare(name, number, jobs.get(f"{name}-{number}", []))
                if number not in log.ended:
                    self.faults["stuck"].append(f"{name}-{number}: its submitter has no result")

    def _compare(self, name: str, number: int, jobs: list[StoredJob]) -> None:
        job = f"{name}-{number}"
        if not jobs:
            self.faults["lost"].append(job)
        elif len(jobs) > 1:
            self.faults["twice"].append(f"{job}: {len(jobs)} jobs")
        elif jobs[0].state is not StoredJobState.OK:
            self.faults["stuck"].append(f"{job}: {jobs[0].state.name}")
        elif expected(payload_of(name, number)) not in (jobs[0].result or b"").decode():
            self.faults["wrong"].append(f"{job} in the store")
