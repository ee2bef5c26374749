"""The HTTP API of a dispatcher (DSP-6), as an application for any ASGI server."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable
from typing import Annotated, Any, Final

import attrs
from fastapi import FastAPI, Header, Path, Query
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request

from wmp.dispatcher.descriptions import STATUSES, answered, describe_answers
from wmp.dispatcher.http_guard import HOLDER, GuardedApp
from wmp.dispatcher.http_parts import JsonAnswer, KnownQueryRoute, refusal, refuse
from wmp.dispatcher.ignored_fields import IgnoredFields
from wmp.dispatcher.job_document import NewJobDocument, failure_payload, number_of, worker_document
from wmp.dispatcher.json_text import write_json
from wmp.dispatcher.models import (
    CompletionModel,
    IdText,
    JobModel,
    ResignationModel,
    WorkerModel,
    plain_text,
)
from wmp.dispatcher.pinned_client import DEPTH_HEADER, PinnedTarget
from wmp.dispatcher.records import worker_number
from wmp.dispatcher.registration import SECRET_HEADER, Registered, Registrant
from wmp.dispatcher.service import Dispatcher
from wmp.dispatcher.steps.job_steps import CancelJob, Create, Finish, read_document, read_job
from wmp.dispatcher.steps.overview import (
    capacity,
    history,
    list_jobs,
    list_workers,
    read_worker,
)
from wmp.dispatcher.steps.unserved import why_queued
from wmp.dispatcher.steps.worker_steps import Register, Resign
from wmp.dispatcher.targets import TargetRefused, loopback_host, network_address
from wmp.errors import WMPError
from wmp.runtime.common.permissions import Act, PermissionHolder

_REFUSED: Final[dict[int | str, dict[str, Any]]] = {
    code: answered("Refusal", code, text=text)[code]
    for code, text in {
        400: "The request is wrong.",
        401: "The token is missing or wrong.",
        403: "The host, the web page that sent the request, the secret or the target is refused.",
        404: "There is no such job or worker.",
        408: "The body did not end in time.",
        409: "The request does not fit the state of the job.",
        413: "The body is too large.",
        415: "The body is not declared as JSON.",
        429: "There are too many registrations or requests.",
        503: "The store is away or full.",
    }.items()
}

ACTS: Final = tuple(
    (method, re.compile(path), act)
    for method, path, act in (
        ("POST", "/dispatcher/jobs/", Act.CREATE_JOB),
        ("GET", "/dispatcher/jobs/([^/]*(/history)?)?", Act.READ_JOBS),
        ("DELETE", "/dispatcher/jobs/[^/]*", Act.CANCEL_JOB),
        ("POST", "/dispatcher/jobs/[^/]*/completion", Act.COMPLETE_JOB),
        ("PUT", "/dispatcher/workers/", Act.REGISTER_WORKER),
        ("GET", "/dispatcher/workers/[^/]*", Act.READ_WORKERS),
        ("GET", "/dispatcher/capacity", Act.READ_WORKERS),
        ("DELETE", "/dispatcher/workers/[^/]*", Act.RESIGN_WORKER),
        ("GET", "/openapi.json", Act.READ_DESCRIPTION),
    )
)
"""What each request does, for its permission (DSP-12.2)."""


def act_of(method: str, path: str) -> Act:
    """Return what a request does."""
    acts = (act for name, pattern, act in ACTS if name == method and pattern.fullmatch(path))
    return next(acts, Act.OTHER_REQUEST)


_SECRET: Final = 16
"""Bytes of the secret of a registration."""

_Secret = Annotated[
    str | None,
    Header(max_length=255, description="The secret that the registration of the worker returned."),
]
_Id = Annotated[IdText, Path(description="`_id` of 24 hexadecimal digits")]


def _status(text: str) -> str:
    if text not in STATUSES:
        letters = f"{', '.join(STATUSES[:-1])} or {STATUSES[-1]}"
        raise ValueError(f"is {text[:40]!r}; expected one letter: {letters}")
    return text


_Status = Annotated[str, AfterValidator(_status), Field(json_schema_extra={"enum": list(STATUSES)})]


def _number_at(text: str) -> int:
    """Return the number of an `_id`.

    Raises:
        HTTPException: The number is beyond those of a store.
    """
    number = number_of(text)
    if number is None:
        raise HTTPException(404, f"there is no {text}")
    return number


def make_api(dispatcher: Dispatcher, hosts: Iterable[str] = ()) -> GuardedApp:
    """Return the application of a dispatcher.

    Args:
        dispatcher: The dispatcher.
        hosts: Names and addresses of the server besides those of loopback (DSP-6.10).
    """
    app = FastAPI(
        title="wmp dispatcher",
        version="1",
        description="Jobs, workers and capacity; see specs/dispatcher.md.",
        docs_url=None,
        redoc_url=None,
        responses=_REFUSED,
        # The names of the operations are those of the functions below.
        generate_unique_id_function=lambda route: route.name,
    )
    app.router.route_class = KnownQueryRoute
    ignored = IgnoredFields()
    app.router.redirect_slashes = False
    settings = dispatcher.settings

    async def away(request: Request, error: Exception) -> JsonAnswer:
        return refusal(503, f"{error}; send the request again later")

    app.add_exception_handler(RequestValidationError, refuse)
    app.add_exception_handler(HTTPException, refuse)
    app.add_exception_handler(WMPError, away)

    @app.post("/dispatcher/jobs/", status_code=201, responses=answered("JobDocument", 200, 201))
    async def create_job(
        request: Request,
        job: JobModel,
        idempotency_key: Annotated[
            Annotated[str, AfterValidator(plain_text)] | None,
            Header(min_length=1, max_length=255),
        ] = None,
        wmp_depth: Annotated[
            int | None, Header(ge=0, description="How many callbacks led to the request.")
        ] = None,
    ) -> JsonAnswer:
        """Create a job; two creates with one `Idempotency-Key` are one job."""
        if job.type.startswith("wmp."):
            return refusal(
                400, f"type is {job.type!r}; expected no type that begins with wmp.", "type"
            )
        callback = None if job.callback is None else job.callback.known()
        if callback is not None:
            depth = wmp_depth or 0
            if depth >= settings.max_callback_depth:
                text = (
                    f"{DEPTH_HEADER}: a chain of {depth} callbacks led to this job; expected fewer "
                    f"than {settings.max_callback_depth} (callbacks.max_depth) for a job with a "
                    "callback"
                )
                return refusal(403, text, "callback")
            client = None if request.client is None else request.client.host
            try:
                callback["address"] = await dispatcher.targets.pin(
                    callback["hostname"], callback["port"], client
                )
            except TargetRefused as error:
                return refusal(403, f"callback.hostname: {error}", "callback.hostname")
            callback["depth"] = depth
            callback["host"] = loopback_host(callback["address"])
        new = NewJobDocument(
            job.type,
            job.payload,
            job.workflow,
            job.run,
            job.priority,
            None if job.dispatcher is None else job.dispatcher.expiry,
            3_600_000 if job.execution is None else job.execution.timeout,
            callback,
            idempotency_key,
        )
        created = await dispatcher.run(Create(settings, await dispatcher.take_id(), new))
        if created.document is None:
            return refusal(503, "the store is full; send the request again when jobs have ended")
        if created.differs:
            text = "another job was created with this Idempotency-Key; send another key"
            return refusal(409, text, "Idempotency-Key")
        code = 200 if created.joined else 201
        return ignored.answer("POST /dispatcher/jobs/", job, created.document, code)

    @app.get("/dispatcher/jobs/", responses=answered("JobList"))
    async def get_jobs(
        status: Annotated[_Status | None, Query()] = None,
        type: Annotated[str | None, Query(max_length=200)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        after: Annotated[IdText | None, Query()] = None,
    ) -> JsonAnswer:
        """List jobs in the order of `_id`, one page at a time."""
        begin = 0 if after is None else _number_at(after)
        role = None if type is None else type.encode("utf-8", "replace").decode()
        jobs, following = await dispatcher.read(
            lambda store: list_jobs(store, status, role, begin, limit)
        )
        return JsonAnswer({"jobs": jobs, "next": following})

    @app.get("/dispatcher/jobs/{id}", responses=answered("JobDocument"))
    async def get_job(id: _Id) -> JsonAnswer:
        """Read a job, and why it waits."""
        number = _number_at(id)
        offers, crew = dispatcher.offers(), dispatcher.crew()

        def read(store: Any) -> dict[str, Any] | None:
            job = read_job(store, number)
            if job is None:
                return None
            return {**read_document(store, job), "waits": why_queued(store, job, offers, crew)}

        document = await dispatcher.read(read)
        return _job_missing(id) if document is None else JsonAnswer(document)

    @app.delete(
        "/dispatcher/jobs/{id}", status_code=202, responses=answered("JobDocument", 200, 202)
    )
    async def cancel_job(id: _Id) -> JsonAnswer:
        """Cancel a job."""
        cancelled = await dispatcher.run(CancelJob(_number_at(id)))
        if cancelled is None:
            return _job_missing(id)
        document, ended = cancelled
        return JsonAnswer(document, 200 if ended else 202)

    @app.get("/dispatcher/jobs/{id}/history", responses=answered("JobHistory"))
    async def get_history(id: _Id) -> JsonAnswer:
        """Read the attempts of a job that failed or were lost."""
        number = _number_at(id)
        document = await dispatcher.read(lambda store: history(store, number))
        return _job_missing(id) if document is None else JsonAnswer(document)

    @app.post("/dispatcher/jobs/{id}/completion", responses=answered("Accepted"))
    async def complete_job(
        id: _Id, completion: CompletionModel, wmp_worker_secret: _Secret = None
    ) -> JsonAnswer:
        """Take the result of a worker."""
        if completion.status == "f":
            payload = failure_payload(completion.result)
        else:
            payload = json.dumps(completion.result).encode()
        step = Finish(
            _number_at(id),
            completion.attempt,
            completion.status,
            payload,
            wmp_worker_secret,
            required=not dispatcher.open_registration,
        )
        done = await dispatcher.run(step)
        if not done.known:
            return _job_missing(id)
        if done.forbidden:
            return _no_secret()
        if not done.counts:
            text = f"attempt {completion.attempt} is not the current one, or the job has ended"
            return refusal(409, text, "attempt")
        route = "POST /dispatcher/jobs/ID/completion"
        return ignored.answer(route, completion, {"accepted": True})

    @app.put("/dispatcher/workers/", responses=answered("WorkerDocument"))
    async def register_worker(
        request: Request, worker: WorkerModel, wmp_worker_secret: _Secret = None
    ) -> JsonAnswer:
        """Register a worker, or replace the entry of the same hostname and port."""
        size = len(write_json(worker.handlers))
        if size > settings.max_handlers:
            text = (
                f"handlers: has {size} bytes; expected at most {settings.max_handlers} "
                "(workers.max_handlers)"
            )
            return refusal(400, text, "handlers")
        client = None if request.client is None else request.client.host
        try:
            address = await dispatcher.targets.pin(worker.hostname, worker.port, client)
        except TargetRefused as error:
            return refusal(403, f"hostname: {error}", "hostname")
        holder: PermissionHolder | None = request.scope.get(HOLDER)
        by = Registrant(
            address=address,
            host=loopback_host(address),
            peer=network_address(client),
            trusted=holder is not None,
            token=None if holder is None else holder.name,
            secret=wmp_worker_secret,
            required=not dispatcher.open_registration,
            new=secrets.token_hex(_SECRET),
        )
        step = Register(settings, worker.hostname, worker.port, worker.maxJobs, worker.handlers, by)
        registered: Registered = await dispatcher.run(step)
        if registered.taken and worker.nonce is not None:
            target = PinnedTarget(worker.hostname, worker.port, address, by.token, by.host)
            if await dispatcher.confirms(target, worker.nonce):
                confirmed = attrs.evolve(by, confirmed=True)
                registered = await dispatcher.run(attrs.evolve(step, by=confirmed))
        if registered.worker is None:
            if registered.full is not None:
                return refusal(429, registered.full)
            text = (
                f"{worker.hostname}:{worker.port} is registered and alive, and the request carries "
                f"no secret of this registration; send the secret that its first registration "
                f"returned in the header {SECRET_HEADER}, or name another port"
            )
            return refusal(409, text, SECRET_HEADER)
        document = worker_document(registered.worker)
        document["secret"] = registered.secret
        document["pingInterval"] = settings.ping_interval
        document["maxRetries"] = settings.max_failed_checks
        return ignored.answer("PUT /dispatcher/workers/", worker, document)

    @app.get("/dispatcher/workers/", responses=answered("WorkerList"))
    async def get_workers() -> JsonAnswer:
        """List the HTTP workers, and the WMP workers that are connected to any dispatcher."""
        crew = dispatcher.crew()
        return JsonAnswer(
            {"workers": await dispatcher.read(lambda store: list_workers(store, crew))}
        )

    def resignation(request: Request, number: int, secret: str | None) -> Resign:
        holder: PermissionHolder | None = request.scope.get(HOLDER)
        admin = holder is not None and holder.may(Act.RESIGN_ANY_WORKER)
        required = not dispatcher.open_registration
        return Resign(settings, number, secret, required=required, by_admin=admin)

    @app.delete("/dispatcher/workers/", responses=answered("WorkerDocument"))
    async def resign_named_worker(
        request: Request, worker: ResignationModel, wmp_worker_secret: _Secret = None
    ) -> JsonAnswer:
        """Resign by hostname and port, as a worker registers."""
        number = worker_number(worker.hostname, worker.port)
        resigned = await dispatcher.run(resignation(request, number, wmp_worker_secret))
        if resigned.forbidden:
            return _no_secret()
        if resigned.worker is None:
            return _worker_missing(f"{worker.hostname}:{worker.port}")
        document = worker_document(resigned.worker)
        return ignored.answer("DELETE /dispatcher/workers/", worker, document)

    @app.get("/dispatcher/workers/{id}", responses=answered("WorkerDocument"))
    async def get_worker(id: _Id) -> JsonAnswer:
        """Read a worker."""
        number, crew = _number_at(id), dispatcher.crew()
        document = await dispatcher.read(lambda store: read_worker(store, number, crew))
        return _worker_missing(id) if document is None else JsonAnswer(document)

    @app.delete("/dispatcher/workers/{id}", responses=answered("WorkerDocument"))
    async def resign_worker(
        request: Request, id: _Id, wmp_worker_secret: _Secret = None
    ) -> JsonAnswer:
        """Resign: the worker gets no more jobs, and its jobs are queued again."""
        number, crew = _number_at(id), dispatcher.crew()
        resigned = await dispatcher.run(resignation(request, number, wmp_worker_secret))
        if resigned.forbidden:
            return _no_secret()
        if resigned.worker is not None:
            return JsonAnswer(worker_document(resigned.worker))
        if await dispatcher.read(lambda store: read_worker(store, number, crew)) is None:
            return _worker_missing(id)
        text = f"{id} is a WMP worker, which leaves by itself; stop its program with SIGTERM"
        return refusal(409, text, "id")

    @app.get("/dispatcher/capacity", responses=answered("Capacity"))
    async def get_capacity() -> JsonAnswer:
        """Count the places and free places of workers, and queued jobs."""
        crew = dispatcher.crew()
        return JsonAnswer(await dispatcher.read(lambda store: capacity(store, crew)))

    @app.get("/healthz", responses=answered("Health"))
    async def get_health() -> JsonAnswer:
        """State whether this dispatcher is able to work."""
        if dispatcher.away is not None:
            return refusal(503, dispatcher.away)
        return JsonAnswer({"status": "ok"})

    describe_answers(app.openapi())
    return GuardedApp(
        app,
        max_body=settings.max_body,
        token=dispatcher.tokens,
        hosts=hosts,
        act_of=act_of,
        max_rate=settings.max_rate,
    )


def _job_missing(id: str) -> JsonAnswer:
    return refusal(404, f"there is no job {id}: it was never stored, or it was purged", "id")


def _no_secret() -> JsonAnswer:
    return refusal(
        403,
        f"the header {SECRET_HEADER} is missing or wrong; expected the secret that "
        "PUT /dispatcher/workers/ returned to the worker; a dispatcher with --open-registration "
        "accepts workers without a secret",
        SECRET_HEADER,
    )


def _worker_missing(id: str) -> JsonAnswer:
    return refusal(404, f"there is no worker {id}: it never registered, or it was removed", "id")
