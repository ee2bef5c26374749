"""Why a stored job waits, in words for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from wmp.message import counted, printable
from wmp.store.contract import KnownInstance, StoredJob
from wmp.store.stored_job import OPEN, StoredJobState


def why_waiting(job: StoredJob, instances: Sequence[KnownInstance], now: float) -> str | None:
    """Return why a job has not ended; None for a job that has.

    Args:
        job: The job.
        instances: The instances of the store.
        now: Milliseconds since 1970.
    """
    if job.state not in OPEN:
        return None
    if job.state is StoredJobState.QUEUED:
        return _queued(job, instances, now)
    if job.state is StoredJobState.WAITING:
        return "waits for the results of other jobs"
    owner = next((instance for instance in instances if instance.number == job.instance), None)
    if owner is None or not owner.alive:
        name = "the manager" if owner is None else f"manager {_name(owner)}"
        return (
            f"{name}, which had reserved the job, has ended; the next manager that uses the store "
            "goes on with the job after some seconds"
        )
    if job.state is StoredJobState.CANCELLING:
        return f"cancellation is requested; manager {_name(owner)} waits for the worker's answer"
    if job.running:
        return (
            f"worker {printable(job.worker or '')!r} of manager {_name(owner)} has attempt "
            f"{job.attempt} since {when(job.begun)}"
        )
    return (
        f"manager {_name(owner)} has reserved attempt {job.attempt}: a worker has the job, or will "
        "get it when it has capacity"
    )


def _queued(job: StoredJob, instances: Sequence[KnownInstance], now: float) -> str:
    """Return why a queued job waits."""
    times = [at for at in (job.deadline_ms, job.expires_at_ms) if at is not None]
    if times and min(times) <= now:
        return "the time of the job has passed; the next manager that uses the store ends the job"
    if job.due > now:
        if job.failed:
            return f"is tried again at {when(job.due)}, after {counted(job.failed, 'failure')}"
        if job.attempt:
            return f"is tried again at {when(job.due)}: workers refused the job, or left with it"
        return f"is delayed until {when(job.due)}"
    living = [instance for instance in instances if instance.alive]
    if not living:
        return "no manager uses the store; start one with workers of the role"
    names = ", ".join(_name(instance) for instance in living)
    needs = ", ".join(f"{name}={amount}" for name, amount in job.kind.needs)
    hint = "; a dispatcher states the cause, in `waits` of GET /dispatcher/jobs/ID"
    more = hint if any(instance.label.startswith("dispatcher ") for instance in living) else ""
    return (
        f"is due; no manager has a worker with free capacity for role {printable(job.kind.role)!r} "
        f"and {needs or 'no needs'}, or other jobs are before it (managers: {names}){more}"
    )


def _name(instance: KnownInstance) -> str:
    return f"{printable(instance.label)!r} (instance {instance.number})"


def when(milliseconds: int | None) -> str | None:
    """Return a time in UTC as text."""
    if milliseconds is None:
        return None
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"
    except (OverflowError, ValueError):
        return f"{milliseconds} ms"
