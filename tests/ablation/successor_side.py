"""Switches of the safeguards of jobs that outlive their manager; see ``store_side.py``."""

from __future__ import annotations

from typing import Any

import pytest

from wmp.core.manager.ownership import Ownership
from wmp.core.manager.succession import Succession
from wmp.core.worker.held_table import HeldTable
from wmp.core.worker.orphans import Orphans
from wmp.core.worker.outbound import WorkerOutbound

Patch = pytest.MonkeyPatch


def keep_of_take(patch: Patch) -> None:
    """WMP-14.1: a TAKE of stored jobs has no ``keep``."""
    take = Ownership.fields_of_take
    patch.setattr(
        Ownership,
        "fields_of_take",
        lambda self, id: {key: value for key, value in take(self, id).items() if key == 16},
    )


def served_store(patch: Patch) -> None:
    """WMP-14.1: PONG does not name the store."""
    patch.setattr(Ownership, "fields_of_pong", lambda self: {})


def kept_number(patch: Patch) -> None:
    """WMP-14.3: a manager acknowledges results that are not written, without ``kept``."""
    done = Succession.done

    def without(self: Succession, worker: Any, *more: Any) -> int:
        count = done(self, worker, *more)
        worker.stream.written = None
        return count

    patch.setattr(Succession, "done", without)
    patch.setattr(Succession, "_note_written", lambda self, step: None)


def results_until_kept(patch: Patch) -> None:
    """WMP-14.4: a worker forgets results that are acknowledged."""
    patch.setattr(WorkerOutbound, "is_stored", lambda self, kept: False)


def orphaned_jobs(patch: Patch) -> None:
    """WMP-14.5: a worker forgets stored jobs with their manager."""
    patch.setattr(Orphans, "note_keep", lambda self, fields: 0.0)


def list_of_jobs(patch: Patch) -> None:
    """WMP-14.6: a worker does not list the jobs of a store."""
    patch.setattr(HeldTable, "unanswered", lambda self, manager, owner: [])


def taking_over(patch: Patch) -> None:
    """WMP-14.7: a manager does not read the list."""
    patch.setattr(Succession, "listed", lambda self, worker, held, now: None)


def lease_of_a_job_taken_over(patch: Patch) -> None:
    """WMP-14.7: a manager adopts a job in the store, and then queues it as a new one."""

    def queue(self: Succession, question: Any, job: Any, *more: Any) -> None:
        self.changes.repeat(job, 0, 0)

    patch.setattr(Succession, "_take_over", queue)


def results_of_others(patch: Patch) -> None:
    """WMP-14.8: a manager ignores the results of jobs that it did not grant."""
    settle = Succession._settle

    def ignore(self: Succession, question: Any, row: Any, *more: Any) -> None:
        settle(self, question, None, *more)

    patch.setattr(Succession, "_settle", ignore)
