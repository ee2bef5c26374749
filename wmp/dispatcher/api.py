"""The HTTP API of a dispatcher (DSP-6), as an application for any ASGI server."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

from fastapi import FastAPI, Header, Path, Query
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request

from wmp.dispatcher.http_parts import GuardedApp, StrictRoute, refusal, refuse
from wmp.dispatcher.job_document import NewJobDocument, failure_payload, number_of, worker_document
from wmp.dispatcher.models import CompletionModel, JobModel, WorkerModel
from wmp.dispatcher.records import WorkerRecord
from wmp.dispatcher.service import Dispatcher
from wmp.dispatcher.steps.job_steps import CancelJob, Create, Finish, read_document, read_job
from wmp.dispatcher.steps.overview import capacity, history, list_jobs
from wmp.dispatcher.steps.worker_steps import Register, Resign
from wmp.errors import WMPError

__all__ = ["make_api"]

_ERROR: Final = {
    "type": "object",
    "required": ["error", "field"],
    "properties": {
        "error": {"type": "string", "description": "What was found, and what was expected."},
        "field": {"type": ["string", "null"], "description": "Name of the field that is wrong."},
    },
}
_OBJECT: Final = {"application/json": {"schema": {"type": "object"}}}
_REFUSED: Final[dict[int | str, dict[str, Any]]] = {
    code: {"description": text, "content": {"application/json": {"schema": _ERROR}}}
    for code, text in {
        400: "The request is wrong.",
        401: "The token is missing or wrong.",
        404: "There is no such job or worker.",
        409: "The request does not fit the state of the job.",
        413: "The body is too large.",
        503: "The store is away or full.",
    }.items()
}

_Id = Annotated[str, Path(pattern="^[0-9a-f]{24}$", description="`_id` of 24 hexadecimal digits")]


def _found(text: str) -> int:
    """Return the number of an `_id`.

    Raises:
        HTTPException: The number is beyond those of a store.
    """
    number = number_of(text)
    if number is None:
        raise HTTPException(404, f"there is no {text}")
    return number


def make_api(dispatcher: Dispatcher) -> GuardedApp:
    """Return the application of a dispatcher."""
    app = FastAPI(
        title="wmp dispatcher",
        version="1",
        description="Jobs, workers and capacity; see specs/dispatcher.md.",
        docs_url=None,
        redoc_url=None,
        responses=_REFUSED,
    )
    app.router.route_class = StrictRoute
    app.router.redirect_slashes = False
    settings = dispatcher.settings

    async def away(request: Request, error: Exception) -> JSONResponse:
        return refusal(503, f"{error}; send the request again later")

    app.add_exception_handler(RequestValidationError, refuse)
    app.add_exception_handler(HTTPException, refuse)
    app.add_exception_handler(WMPError, away)

    @app.post("/dispatcher/jobs/", status_code=201, responses={200: {"content": _OBJECT}})
    async def create_job(
        job: JobModel,
        idempotency_key: Annotated[
            str | None, Header(min_length=1, max_length=255, pattern="^[ -~]*$")
        ] = None,
    ) -> JSONResponse:
        """Create a job; two creates with one `Idempotency-Key` are one job."""
        if job.type.startswith("wmp."):
            return refusal(
                400, f"type is {job.type!r}; expected no type that begins with wmp.", "type"
            )
        new = NewJobDocument(
            job.type,
            job.payload,
            job.workflow,
            job.run,
            job.priority,
            None if job.dispatcher is None else job.dispatcher.expiry,
            3_600_000 if job.execution is None else job.execution.timeout,
            None if job.callback is None else job.callback.model_dump(),
            idempotency_key,
        )
        created = await dispatcher.run(Create(settings, await dispatcher.take_id(), new))
        if created.document is None:
            return refusal(503, "the store is full; send the request again when jobs have ended")
        if created.differs:
            text = "another job was created with this Idempotency-Key; send another key"
            return refusal(409, text, "Idempotency-Key")
        return JSONResponse(created.document, 200 if created.joined else 201)

    @app.get("/dispatcher/jobs/", responses={200: {"content": _OBJECT}})
    async def get_jobs(
        status: Annotated[str | None, Query(pattern="^[qdrksfx]$")] = None,
        type: Annotated[str | None, Query(max_length=200)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        after: Annotated[str | None, Query(pattern="^[0-9a-f]{24}$")] = None,
    ) -> JSONResponse:
        """List jobs in the order of `_id`, one page at a time."""
        begin = 0 if after is None else _found(after)
        role = None if type is None else type.encode("utf-8", "replace").decode()
        jobs, following = await dispatcher.read(
            lambda store: list_jobs(store, status, role, begin, limit)
        )
        return JSONResponse({"jobs": jobs, "next": following})

    @app.get("/dispatcher/jobs/{id}", responses={200: {"content": _OBJECT}})
    async def get_job(id: _Id) -> JSONResponse:
        """Read a job."""
        number = _found(id)

        def read(store: Any) -> dict[str, Any] | None:
            job = read_job(store, number)
            return None if job is None else read_document(store, job)

        document = await dispatcher.read(read)
        return _job_missing(id) if document is None else JSONResponse(document)

    @app.delete("/dispatcher/jobs/{id}", status_code=202, responses={200: {"content": _OBJECT}})
    async def cancel_job(id: _Id) -> JSONResponse:
        """Cancel a job."""
        found = await dispatcher.run(CancelJob(_found(id)))
        if found is None:
            return _job_missing(id)
        document, ended = found
        return JSONResponse(document, 200 if ended else 202)

    @app.get("/dispatcher/jobs/{id}/history", responses={200: {"content": _OBJECT}})
    async def get_history(id: _Id) -> JSONResponse:
        """Read the attempts of a job that failed or were lost."""
        number = _found(id)
        found = await dispatcher.read(lambda store: history(store, number))
        return _job_missing(id) if found is None else JSONResponse(found)

    @app.post("/dispatcher/jobs/{id}/completion", responses={200: {"content": _OBJECT}})
    async def complete_job(id: _Id, completion: CompletionModel) -> JSONResponse:
        """Take the result of a worker."""
        if completion.status == "f":
            payload = failure_payload(completion.result)
        else:
            payload = json.dumps(completion.result).encode()
        step = Finish(_found(id), completion.attempt, completion.status, payload)
        done = await dispatcher.run(step)
        if not done.known:
            return _job_missing(id)
        if not done.counts:
            text = f"attempt {completion.attempt} is not the current one, or the job has ended"
            return refusal(409, text, "attempt")
        return JSONResponse({"accepted": True})

    @app.put("/dispatcher/workers/", responses={200: {"content": _OBJECT}})
    async def register_worker(worker: WorkerModel) -> JSONResponse:
        """Register a worker, or replace the entry of the same hostname and port."""
        step = Register(settings, worker.hostname, worker.port, worker.maxJobs, worker.handlers)
        document = worker_document(await dispatcher.run(step))
        document["pingInterval"] = settings.ping_interval
        document["maxRetries"] = settings.max_retries
        return JSONResponse(document)

    @app.get("/dispatcher/workers/", responses={200: {"content": _OBJECT}})
    async def get_workers() -> JSONResponse:
        """List the workers."""
        workers = await dispatcher.read(WorkerRecord.all)
        return JSONResponse({"workers": [worker_document(one) for one in workers]})

    @app.get("/dispatcher/workers/{id}", responses={200: {"content": _OBJECT}})
    async def get_worker(id: _Id) -> JSONResponse:
        """Read a worker."""
        number = _found(id)
        worker = await dispatcher.read(lambda store: WorkerRecord.read(store, number))
        return _worker_missing(id) if worker is None else JSONResponse(worker_document(worker))

    @app.delete("/dispatcher/workers/{id}", responses={200: {"content": _OBJECT}})
    async def resign_worker(id: _Id) -> JSONResponse:
        """Resign: the worker gets no more jobs, and its jobs are queued again."""
        worker = await dispatcher.run(Resign(settings, _found(id)))
        return _worker_missing(id) if worker is None else JSONResponse(worker_document(worker))

    @app.get("/dispatcher/capacity", responses={200: {"content": _OBJECT}})
    async def get_capacity() -> JSONResponse:
        """Count places, free places and queued jobs."""
        return JSONResponse(await dispatcher.read(capacity))

    @app.get("/healthz", responses={200: {"content": _OBJECT}})
    async def get_health() -> JSONResponse:
        """State whether this dispatcher is able to work."""
        if dispatcher.away is not None:
            return refusal(503, dispatcher.away)
        return JSONResponse({"status": "ok"})

    _describe(app)
    return GuardedApp(
        app,
        max_body=settings.max_body,
        token=dispatcher.token,
        open_paths=("/healthz",),
    )


def _job_missing(id: str) -> JSONResponse:
    return refusal(404, f"there is no job {id}: it was never stored, or it was purged", "id")


def _worker_missing(id: str) -> JSONResponse:
    return refusal(404, f"there is no worker {id}: it never registered, or it was removed", "id")


def _describe(app: FastAPI) -> None:
    """Remove from the description what this API never answers: the code 422."""
    description = app.openapi()
    for path in description["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        description["components"]["schemas"].pop(name, None)
    description["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
