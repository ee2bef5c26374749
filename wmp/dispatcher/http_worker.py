"""An HTTP worker: a small HTTP server before a WMP worker in the same process (DSP-5)."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import httpx
from attrs import define
from fastapi import FastAPI, Header, Query
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException

from wmp import aio
from wmp.dispatcher.http_client import (
    MAX_ANSWER,
    BoundedAnswer,
    BoundedClient,
    RequestFailed,
)
from wmp.dispatcher.http_guard import GuardedApp
from wmp.dispatcher.http_parts import JsonAnswer, StrictRoute, refusal, refuse
from wmp.dispatcher.json_text import write_json
from wmp.dispatcher.models import IdText
from wmp.dispatcher.registration import SECRET_HEADER, secret_digest
from wmp.duration import Duration, in_seconds
from wmp.errors import JobCancelled, JobError, JobFailed, WMPError

logger = logging.getLogger("wmp")

_INTERVAL: Final = 30_000
_RETRIES: Final = 3
"""Ping interval and retries before the first dispatcher has answered."""
_FIRST: Final = 1.0
"""Seconds between the first two contacts of a worker that no dispatcher has registered yet."""
_SLOWEST: Final = 15.0
"""Seconds to which this pause grows."""
_MIN: Final = 1.0
"""Seconds that a contact has at least to get its answer."""
_TIMEOUT: Final = 5.0
_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_SEEN: Final = 10_000
"""Jobs whose attempts are remembered."""
_MAX_BODY: Final = 16 << 20
_CONFIRMATIONS: Final = 16
"""Jobs for which a worker without a token asks its dispatchers at the same time."""
_CONFIRM_TIME: Final = 4.0
"""Seconds for this question, so that the dispatcher that sends the job still waits."""
_GONE: Final = 404
_TOO_MANY: Final = 429


class _WorkerExecutionModel(BaseModel):
    attempt: Annotated[int, Field(ge=1, lt=1 << 62)] = 1
    timeout: Annotated[int, Field(ge=1)] | None = None


class _WorkerJobModel(BaseModel):
    """The parts of a job document that a worker reads."""

    id: Annotated[IdText, Field(alias="_id")]
    type: str
    payload: Any = None
    workflow: str | None = None
    run: int | float | None = None
    execution: _WorkerExecutionModel = Field(default_factory=_WorkerExecutionModel)


@define(eq=False)
class _Held:
    """A job that the worker has."""

    attempt: int
    job: aio.Job | None = None
    task: asyncio.Task[None] | None = None
    cancelled: bool = False


class HttpWorker:
    """Takes jobs over HTTP, has a local manager do them, and reports their ends.

    Args:
        manager: A started manager with the codec ``json``, to which the local worker is connected.
        dispatchers: URLs of dispatchers.
        types: Types of the jobs that the local worker does.
        max_jobs: Number of jobs that run at the same time.
        token: Bearer token of the dispatchers and of this worker.
        hosts: Names and addresses of this worker's server besides those of loopback (DSP-6.10).
        transport: Carries the requests; for tests.
    """

    def __init__(
        self,
        manager: aio.Manager,
        dispatchers: Sequence[str],
        types: Collection[str],
        max_jobs: int,
        token: str | None = None,
        *,
        hosts: Iterable[str] = (),
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._manager = manager
        self._dispatchers = [url.rstrip("/") for url in dispatchers]
        self._types = dict.fromkeys(types, True)
        self._max_jobs = max_jobs
        self._held: dict[str, _Held] = {}
        self._seen: OrderedDict[str, int] = OrderedDict()
        self._draining = False
        self._id: str | None = None
        self._secret: str | None = None
        """The secret of the registration, which a dispatcher returned."""
        self._nonce = secrets.token_hex(16)
        """Shows a dispatcher that a registration is of this process (DSP-10.3)."""
        self.alone = asyncio.Event()
        """Set when no dispatcher was reached for too long: the jobs are stopped (DSP-5.9)."""
        self._failure = ""
        """Why the last request was answered by no dispatcher."""
        self._contacts: asyncio.Task[None] | None = None
        self._client = BoundedClient(_TIMEOUT, token, transport)
        self._trusts = token is not None
        """Whether all that reaches the routes comes from a holder of the token."""
        self._confirming = 0
        self.app = GuardedApp(self._make_app(), max_body=_MAX_BODY, token=token, hosts=hosts)

    # -- life -----------------------------------------------------------------------------------

    def start(self, hostname: str, port: int) -> None:
        """Register, and go on to register; the HTTP server must listen already."""
        self._hostname, self._port = hostname, port
        self._contacts = asyncio.get_running_loop().create_task(self._contact_for_ever())

    async def close(self, timeout: Duration | None) -> None:
        """Take no more jobs, wait for those in progress and their completions, and resign.

        Args:
            timeout: Seconds to wait at most; None for no limit.
        """
        self._draining = True
        tasks = [held.task for held in self._held.values() if held.task is not None]
        if tasks and not self.alone.is_set():
            await asyncio.wait(tasks, timeout=in_seconds(timeout))
        if self._contacts is not None:
            self._contacts.cancel()
            await asyncio.gather(self._contacts, return_exceptions=True)
        if self._id is not None and not self.alone.is_set():
            await self._ask("DELETE", f"/dispatcher/workers/{self._id}")
        self._stop_jobs()
        await self._client.close()

    def _stop_jobs(self) -> None:
        for held in tuple(self._held.values()):
            held.cancelled = True
            if held.job is not None:
                held.job.cancel()
            if held.task is not None:
                held.task.cancel()

    # -- contacts -------------------------------------------------------------------------------

    async def _contact_for_ever(self) -> None:
        """Register again and again; stop the jobs when no dispatcher was reached (DSP-5.9).

        A worker that no dispatcher has registered yet has no jobs, and waits for one (DSP-5.10).
        """
        interval, retries, failed, pause = _INTERVAL, _RETRIES, 0, _FIRST
        while True:
            document = {
                "hostname": self._hostname,
                "port": self._port,
                "maxJobs": self._max_jobs,
                "handlers": self._types,
                "nonce": self._nonce,
            }
            # Contacts that take longer would end after the dispatchers gave the jobs to others.
            limit = None if self._id is None else max(interval / 2000, _MIN)
            begun = time.monotonic()
            answer = await self._ask("PUT", "/dispatcher/workers/", document, limit=limit)
            registration = _registration(answer)
            if registration is not None:
                if self._id is None:
                    logger.info("worker: registered as %s", registration[0])
                self._id, self._secret, interval, retries = registration
                failed, pause = 0, interval / 2000
            elif self._id is None:
                logger.warning(
                    "worker: no dispatcher has registered this worker yet: %s; the next contact "
                    "follows in %.3g s",
                    self._describe(answer),
                    pause,
                )
            else:
                failed += 1
                logger.warning(
                    "worker: contact %d of %d with a dispatcher failed: %s",
                    failed,
                    retries,
                    self._describe(answer),
                )
                if failed >= retries:
                    logger.error(
                        "worker: no dispatcher was reached in %d contacts; this worker ends and "
                        "stops its jobs, because other workers get them; start it again when a "
                        "dispatcher runs",
                        failed,
                    )
                    self._stop_jobs()
                    self.alone.set()
                    return
            await asyncio.sleep(max(0.0, begun + pause - time.monotonic()))
            if self._id is None:
                pause = min(2 * pause, _SLOWEST)

    def _describe(self, answer: BoundedAnswer | None) -> str:
        """Return why a contact has failed."""
        if answer is None or answer.code >= 500 or answer.code == _TOO_MANY:
            why = self._failure
        elif answer.good:
            why = f"{self._dispatchers[0]} answered {answer.code} without a worker document"
        else:
            return f"{self._dispatchers[0]} answered {answer.code}: {answer.text}"
        return f"{why}; check that a dispatcher serves this address"

    async def _ask(
        self,
        method: str,
        path: str,
        document: Any = None,
        first: str | None = None,
        *,
        limit: float | None = None,
        maximum: int = MAX_ANSWER,
    ) -> BoundedAnswer | None:
        """Send a request to the first dispatcher that answers; None without one.

        Args:
            method: The method.
            path: The path.
            document: The body, as a value of JSON.
            first: The dispatcher to ask first.
            limit: Seconds for all dispatchers together.
            maximum: Bytes of the answer that are read.
        """
        content = None if document is None else write_json(document)
        headers = {} if document is None else {"Content-Type": "application/json"}
        if self._secret is not None and method != "GET":
            headers[SECRET_HEADER] = self._secret
        urls = [] if first is None else [first]
        urls += [url for url in self._dispatchers if url != first]
        answer, failures = None, []
        for url in urls:
            try:
                async with asyncio.timeout(None if limit is None else limit / len(urls)):
                    answer = await self._client.ask(
                        method, url + path, content, headers, maximum=maximum
                    )
            except (RequestFailed, TimeoutError) as error:
                failures.append(f"{url}: {str(error) or 'no answer came in time'}")
                continue
            if answer.code < 500 and answer.code != _TOO_MANY:
                if url in self._dispatchers:  # the next request begins with this one
                    self._dispatchers.remove(url)
                    self._dispatchers.insert(0, url)
                return answer
            failures.append(f"{url} answered {answer.code}: {answer.text}")
        self._failure = "; ".join(failures)
        return answer

    # -- the server -----------------------------------------------------------------------------

    def _make_app(self) -> FastAPI:
        app = FastAPI(title="wmp worker", docs_url=None, redoc_url=None)
        app.router.route_class = StrictRoute
        app.add_exception_handler(RequestValidationError, refuse)
        app.add_exception_handler(HTTPException, refuse)

        @app.get("/health_check/")
        async def check_health(
            wmp_nonce: Annotated[str | None, Header(max_length=100)] = None,
        ) -> JsonAnswer:
            jobs = [{"_id": id, "attempt": held.attempt} for id, held in self._held.items()]
            free = self._max_jobs - len(jobs)
            answer = {"jobs": jobs, "maxJobs": self._max_jobs, "free": free}
            if wmp_nonce is not None:
                own = secret_digest(self._nonce).encode()
                answer["registers"] = hmac.compare_digest(wmp_nonce.encode(), own)
            return JsonAnswer(answer)

        @app.post("/jobs/", status_code=202)
        async def take_job(
            job: _WorkerJobModel, wmp_dispatcher: Annotated[str | None, Header()] = None
        ) -> JsonAnswer:
            return await self._admit(job, wmp_dispatcher)

        @app.delete("/jobs/{id}", status_code=202)
        async def stop_job(
            id: IdText, attempt: Annotated[int | None, Query()] = None
        ) -> JsonAnswer:
            held = self._held.get(id)
            if held is None or attempt not in (None, 0, held.attempt):
                return refusal(404, f"the worker does not have job {id}", "id")
            if not self._trusts and await self._wanted(id, held.attempt):
                return refusal(409, f"a dispatcher wants the result of job {id}", "id")
            held.cancelled = True
            if held.job is not None:
                held.job.cancel()
            return JsonAnswer({"accepted": True}, 202)

        return app

    async def _admit(self, job: _WorkerJobModel, dispatcher: str | None) -> JsonAnswer:
        """Take a job, or refuse it; without a token only one that a dispatcher names (DSP-5.12)."""
        known = self._known(job)
        if known is not None:
            return known
        if not self._trusts:
            if dispatcher not in self._dispatchers:
                dispatcher = None
            if self._confirming >= _CONFIRMATIONS:
                return refusal(503, f"the worker asks about {_CONFIRMATIONS} jobs already")
            self._confirming += 1
            try:
                confirmed = await self._confirmed(job)
            finally:
                self._confirming -= 1
            if isinstance(confirmed, JsonAnswer):
                return confirmed
            job = confirmed
        return self._take(job, dispatcher)

    async def _confirmed(self, job: _WorkerJobModel) -> _WorkerJobModel | JsonAnswer:
        """Return a job as a dispatcher names it, or the refusal of a job of a stranger."""
        answer = await self._ask(
            "GET", f"/dispatcher/jobs/{job.id}", limit=_CONFIRM_TIME, maximum=_MAX_BODY
        )
        if answer is None or (not answer.good and answer.code != _GONE):
            return refusal(503, "no dispatcher has confirmed the job")
        attempt = job.execution.attempt
        document = _document(answer)
        if not self._runs_here(document, job.id, attempt):
            text = f"no dispatcher of this worker gave it attempt {attempt} of job {job.id}"
            return refusal(409, text, "_id")
        try:
            # A stranger's payload is ignored, so that no other payload comes with the id.
            confirmed = _WorkerJobModel.model_validate(document)
        except ValidationError:
            return refusal(409, f"a dispatcher names job {job.id} in another form", "_id")
        confirmed.execution.attempt = attempt
        return confirmed

    async def _wanted(self, id: str, attempt: int) -> bool:
        """Return whether a dispatcher names a job as running here."""
        answer = await self._ask(
            "GET", f"/dispatcher/jobs/{id}", limit=_CONFIRM_TIME, maximum=_MAX_BODY
        )
        return answer is not None and self._runs_here(_document(answer), id, attempt)

    def _runs_here(self, document: Mapping[str, Any], id: str, attempt: int) -> bool:
        """Return whether a job document names this worker and an attempt.

        Dispatchers of other programs may name neither.
        """
        execution = document.get("execution")
        if not isinstance(execution, Mapping):
            execution = {}
        worker = execution.get("worker_id")
        return (
            document.get("_id") == id
            and document.get("status") == "r"
            and execution.get("attempt", attempt) == attempt
            and (worker is None or self._id in (None, worker))
        )

    def _known(self, job: _WorkerJobModel) -> JsonAnswer | None:
        """Return the answer that needs no dispatcher (DSP-5.7); None for a job to take."""
        attempt = job.execution.attempt
        held = self._held.get(job.id)
        if held is not None and held.attempt == attempt:
            return JsonAnswer({"accepted": True}, 202)
        if attempt <= self._seen.get(job.id, 0):
            return refusal(409, f"attempt {attempt} of job {job.id} is old", "execution.attempt")
        if job.type not in self._types:
            return refusal(400, f"type is {job.type!r}; this worker does not know it", "type")
        if self._draining or self.alone.is_set() or len(self._held) >= self._max_jobs:
            return refusal(503, f"the worker has no free place of {self._max_jobs}")
        if held is not None:
            return refusal(503, f"an earlier attempt of job {job.id} has not ended")
        return None

    def _take(self, job: _WorkerJobModel, dispatcher: str | None) -> JsonAnswer:
        """Take a job, or refuse it (DSP-5.7)."""
        known = self._known(job)
        if known is not None:
            return known
        attempt = job.execution.attempt
        self._seen[job.id] = attempt
        while len(self._seen) > _SEEN:
            self._seen.popitem(last=False)
        self._held[job.id] = held = _Held(attempt)
        held.task = asyncio.get_running_loop().create_task(self._do(job, held, dispatcher))
        return JsonAnswer({"accepted": True}, 202)

    async def _do(self, job: _WorkerJobModel, held: _Held, dispatcher: str | None) -> None:
        """Do a job and report its end; the place is free after that."""
        try:
            status, result = await self._run(job, held)
            if not held.cancelled:
                await self._report(job.id, held.attempt, status, result, dispatcher)
        finally:
            del self._held[job.id]

    async def _run(self, job: _WorkerJobModel, held: _Held) -> tuple[str, Any]:
        given = {
            "_id": job.id,
            "type": job.type,
            "workflow": job.workflow,
            "run": job.run,
            "payload": job.payload,
        }
        limit = job.execution.timeout
        try:
            held.job = await self._manager.submit(
                given, role=job.type, run_limit=None if limit is None else limit / 1000
            )
            if held.cancelled:
                held.job.cancel()
            result = await held.job
            json.dumps(result, allow_nan=False)
        except JobFailed as error:
            return "f", {"error": error.type_name, "message": error.text}
        except JobCancelled as error:
            return "x", {"error": "JobCancelled", "message": str(error)}
        except (JobError, WMPError, TypeError, ValueError, RecursionError) as error:
            return "f", {"error": type(error).__name__, "message": str(error)}
        return "s", result

    async def _report(
        self, id: str, attempt: int, status: str, result: Any, dispatcher: str | None
    ) -> None:
        """Send a completion until a dispatcher answers (DSP-5.8)."""
        body = {"attempt": attempt, "status": status, "result": result}
        pause, since = _PAUSE, time.monotonic()
        while True:
            answer = await self._ask("POST", f"/dispatcher/jobs/{id}/completion", body, dispatcher)
            code = None if answer is None else answer.code
            if code is not None and (code < 300 or code in (404, 409)):
                if code >= 300:
                    logger.warning("worker: the result of job %s does not count any more", id)
                return
            if code in (400, 413) and status == "s":
                text = "" if answer is None else answer.text
                body = {
                    "attempt": attempt,
                    "status": "f",
                    "result": {"error": "ResultRefused", "message": text},
                }
                status = "f"
            logger.warning(
                "worker: the completion of job %s was not taken for %.1f s (%s)",
                id,
                time.monotonic() - since,
                "no dispatcher answered" if code is None else code,
            )
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _document(answer: BoundedAnswer) -> Mapping[str, Any]:
    """Return the object of an answer; an empty one for any other answer."""
    try:
        document = answer.json() if answer.good else None
    except ValueError:
        document = None
    return document if isinstance(document, dict) else {}


def _registration(answer: BoundedAnswer | None) -> tuple[str, str | None, int, int] | None:
    """Return `_id`, `secret`, `pingInterval` and `maxRetries`; None if no dispatcher has answered.

    A dispatcher of another program may return no secret.
    """
    if answer is None or not answer.good:
        return None
    try:
        document = answer.json()
    except ValueError:
        return None
    if not isinstance(document, dict) or not isinstance(document.get("_id"), str):
        return None
    numbers = [document.get("pingInterval", _INTERVAL), document.get("maxRetries", _RETRIES)]
    if not all(type(number) is int and number >= 1 for number in numbers):
        return None
    secret = document.get("secret")
    return document["_id"], secret if isinstance(secret, str) else None, *numbers
