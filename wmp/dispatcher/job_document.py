"""Jobs as documents: the fields of the schema, and the values of the store (DSP-1, DSP-2)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from attrs import frozen

from wmp.codec.values import unpack_error
from wmp.dispatcher.json_text import read_json, read_stored_json, write_json
from wmp.dispatcher.records import CallbackRecord, DispatchRecord, WorkerRecord, crew_number
from wmp.error_reports import pack_error
from wmp.store.contract import StoredJob
from wmp.store.stored_job import StoredJobState

CODEC: Final = "json"
"""Codec of the payloads: WMP workers decode it themselves."""

_State = StoredJobState

LETTERS: Final[Mapping[StoredJobState, str]] = {
    _State.WAITING: "q",
    _State.QUEUED: "q",
    _State.RESERVED: "r",
    _State.CANCELLING: "k",
    _State.OK: "s",
    _State.ERROR: "f",
    _State.CANCELLED: "x",
    _State.TIMEOUT: "f",
    _State.LOST: "f",
}
"""The status of a job in each state. A reserved job that no worker has is `d`."""

_AS_JSON: Final = "json"
"""Class of an error whose text is a JSON value."""


@frozen
class NewJobDocument:
    """What a client wants of a new job."""

    type: str
    payload: Any
    workflow: str | None = None
    run: int | float | None = None
    priority: int = 0
    due: int | None = None
    """When the job should be dispatched, in milliseconds since 1970; None for at once."""
    timeout: int = 3_600_000
    """Milliseconds that an execution may take."""
    callback: Mapping[str, Any] | None = None
    key: str | None = None
    """Idempotency key."""

    def payload_of(self, id: int) -> bytes:
        """Return the stored payload: the input of the handler (DSP-1.5)."""
        value = {
            "_id": id_text(id),
            "type": self.type,
            "workflow": self.workflow,
            "run": self.run,
            "payload": self.payload,
        }
        return write_json(value)


def id_text(number: int) -> str:
    """Return the `_id` of a number (DSP-1.2)."""
    return f"{number:024x}"


def number_of(text: str) -> int | None:
    """Return the number of an `_id`; None if the text is none."""
    if len(text) != 24 or not set(text) <= set("0123456789abcdef"):
        return None
    number = int(text, 16)
    return number if number < 1 << 63 else None


def date_text(milliseconds: int | None) -> str | None:
    """Return a date (DSP-1.1)."""
    if milliseconds is None:
        return None
    date = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{date:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def handler_input(job: StoredJob | tuple[int, str, bytes]) -> dict[str, Any]:
    """Return the input of the handler; a job of a manager is given the same form.

    Args:
        job: A job with its payload, or its number, type and payload.
    """
    if isinstance(job, StoredJob):
        job = job.id, job.kind.role, job.payload or b""
    id, role, payload = job
    try:
        value = read_json(payload)
    except ValueError:
        value = None
    if isinstance(value, dict) and value.get("_id") == id_text(id):
        return value
    return {"_id": id_text(id), "type": role, "workflow": None, "run": None, "payload": value}


def status_of(job: StoredJob, dispatch: DispatchRecord | None) -> str:
    """Return the status of a job (DSP-2.1)."""
    if job.state is _State.RESERVED and not job.running:
        given = (
            dispatch is not None
            and dispatch.open
            and dispatch.attempt == job.attempt
            and dispatch.worker is not None
        )
        return "r" if given else "d"
    return LETTERS[job.state]


def failure_payload(result: Any) -> bytes:
    """Return what the store keeps of a failed job, in the form of WMP workers."""
    if isinstance(result, dict) and set(result) >= {"error", "message"}:
        return pack_error(str(result["error"]), str(result["message"]))
    return pack_error(_AS_JSON, write_json(result).decode())


def _result(job: StoredJob) -> Any:
    payload = job.result or b""
    if job.state is _State.ERROR:
        name, text, _ = unpack_error(payload)
        if name == _AS_JSON:
            return read_stored_json(text.encode())
        return {"error": name, "message": text}
    if job.state is _State.TIMEOUT:
        text = payload.decode("utf-8", "replace") or "the time limit of the job passed"
        return {"error": "Timeout", "message": text}
    if job.state is _State.LOST:
        return {"error": "WorkerLost", "message": payload.decode("utf-8", "replace")}
    return read_stored_json(payload) if payload else None


def job_document(
    job: StoredJob,
    dispatch: DispatchRecord | None,
    callback: CallbackRecord | None,
    *,
    called_back: bool = False,
) -> dict[str, Any]:
    """Return a job, read with its payload, as a document."""
    given = handler_input(job)
    worker = expiry = started = date = owner = None
    updated = job.created
    if dispatch is not None:
        owner, date = dispatch.instance, dispatch.since
        worker, started, expiry = dispatch.worker, dispatch.started, dispatch.expiry
        updated = max(updated, started or dispatch.since)
    if job.instance is not None:
        owner = job.instance
    # Of WMP workers, and of jobs that ended, the store knows the label and the times.
    known = job.ran == job.attempt or job.ended is not None
    if started is None and known:
        started = job.begun
    if known and job.worker and (dispatch is None or dispatch.attempt != job.ran):
        worker, expiry = crew_number(job.worker), None
        started = job.begun
    limit = job.terms.run_limit
    return {
        "_id": id_text(job.id),
        "workflow": given.get("workflow"),
        "run": given.get("run"),
        "created": date_text(job.created),
        "updated": date_text(max(updated, job.ended or 0)),
        "priority": job.priority,
        "status": status_of(job, dispatch),
        "result": _result(job),
        "type": job.kind.role,
        "payload": given.get("payload"),
        "dispatched_by": owner,
        "dispatcher": {
            "id": owner,
            "expiry": date_text(job.due if job.due > job.created else None),
            "date": date_text(date),
        },
        "execution": {
            "worker_id": None if worker is None else id_text(worker),
            "worker": job.worker if known else None,
            "progress": _progress(job),
            "started": date_text(started),
            "ended": date_text(job.ended),
            "expiry": date_text(expiry),
            "timeout": None if limit is None else round(limit * 1000),
            "attempt": job.attempt,
        },
        "callback": None if callback is None else callback_document(callback, done=called_back),
    }


def _progress(job: StoredJob) -> dict[str, Any] | None:
    """Return the last report of the current attempt; None without one."""
    if job.ran != job.attempt or (job.fraction is None and job.note is None):
        return None
    return {"fraction": job.fraction, "text": job.note}


def callback_document(callback: CallbackRecord, *, done: bool) -> dict[str, Any]:
    """Return a callback as a document."""
    return {
        "hostname": callback.hostname,
        "port": callback.port,
        "path": callback.path,
        "method": callback.method,
        "headers": dict(callback.headers),
        "didCallbackSuccessfully": done,
    }


def worker_document(worker: WorkerRecord) -> dict[str, Any]:
    """Return a worker as a document."""
    return {
        "_id": id_text(worker.id),
        "kind": "http",
        "label": worker.label,
        "hostname": worker.hostname,
        "port": worker.port,
        "handlers": dict(worker.handlers),
        "maxJobs": worker.max_jobs,
        "jobs": [id_text(id) for id in worker.jobs],
        "lastPinged": date_text(worker.last_pinged),
        "failedPingCount": worker.failed_pings,
        "lastError": worker.last_error or worker.refusal,
        "isResigned": worker.resigned,
        "isDead": worker.dead,
    }
