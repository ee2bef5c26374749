"""A dispatcher for asyncio: its machine, its store, and its requests to workers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

import httpx

from wmp.dispatcher.dispatch_events import (
    CallbackAnswered,
    CancellationAnswered,
    DispatcherAction,
    DispatcherEvent,
    DispatcherStep,
    InstanceReplaced,
    JobPosted,
    PingWorker,
    PostJob,
    ReportRefusal,
    ReportUnserved,
    RunStep,
    SendCallback,
    SendCancellation,
    StepEnded,
    StepFailed,
    StoreChanged,
    TimePassed,
    WorkerPinged,
    WorkerRegistered,
)
from wmp.dispatcher.dispatcher_journal import DispatcherJournal
from wmp.dispatcher.http_client import BoundedAnswer, BoundedClient, RequestFailed
from wmp.dispatcher.job_document import id_text, number_of
from wmp.dispatcher.json_text import write_json
from wmp.dispatcher.machine import DispatcherMachine
from wmp.dispatcher.pinned_client import DEPTH_HEADER, PinnedClient, PinnedTarget
from wmp.dispatcher.records import WorkerRecord
from wmp.dispatcher.registration import NONCE_HEADER, Registered, secret_digest
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.steps.callback_steps import Callback
from wmp.dispatcher.steps.checking import Cancellation
from wmp.dispatcher.steps.crew import CrewMember
from wmp.dispatcher.steps.job_steps import Completed
from wmp.dispatcher.steps.placing import DispatchedJob
from wmp.dispatcher.steps.refusals import RefusedPost
from wmp.dispatcher.store_thread import StoreStep, StoreThread
from wmp.dispatcher.targets import Targets
from wmp.dispatcher.tokens import TokenTable
from wmp.errors import StoreUnusable, WMPError
from wmp.runtime.common.journal import CLOSE, Journal, make_journal
from wmp.runtime.common.threads import aside
from wmp.runtime.manager.unserved_log import UnservedLog
from wmp.store.transaction import TransactingStore

logger = logging.getLogger("wmp")

_LANE: Final = 32
"""Jobs that are sent to one worker at the same time: a slow one leaves connections to others."""
_CHECKS: Final = 64
"""Health checks under way of workers that answered their last one, and as many of the others: slow
ones leave connections to the rest."""
_NO_PLACE: Final = 503
"""The code of a worker without a free place: the worker is sound, and the job costs nothing."""
_LOOK: Final = 0.1
"""Seconds between two looks for the ends of jobs, for the journal."""
_IDLE: Final = 1.0
"""Seconds after which this dispatcher looks although nobody reported a change."""


class Dispatcher:
    """One of many dispatchers on a store. ``async with`` serves.

    Args:
        open_store: Opens the store; called on a thread of its own.
        settings: The settings.
        address: URL to which workers send completions.
        token: Bearer token of clients and workers, or a table of tokens.
        wants: Returns the waiting requests of WMP workers, by type.
        offers: Returns the types that the connected WMP workers know.
        crew: Returns the connected WMP workers.
        open_registration: Whether workers without the secret of their registration are accepted
            (DSP-10.2).
        targets: Checks the hosts that clients name; by default only the address from which a
            request came is allowed.
        label: Label of the instance in the store.
        journal: Folder for the journal of this dispatcher, which ``wmp report`` reads; None for no
            journal.
        transport: Carries the requests; for tests.
    """

    def __init__(
        self,
        open_store: Callable[[], TransactingStore],
        settings: DispatcherSettings | None = None,
        *,
        address: str = "",
        token: str | TokenTable | None = None,
        wants: Callable[[], Mapping[str, Sequence[int]]] | None = None,
        offers: Callable[[], Collection[str]] | None = None,
        crew: Callable[[], Sequence[CrewMember]] | None = None,
        open_registration: bool = False,
        targets: Targets | None = None,
        label: str = "dispatcher",
        journal: Journal | str | os.PathLike[str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.settings = settings or DispatcherSettings()
        self.address = address
        self.tokens = TokenTable.of(token)
        self.open_registration = open_registration
        self.targets = targets or Targets()
        self._open_store = open_store
        self._label = label
        self._folder = make_journal(journal)
        self._journal: DispatcherJournal | None = None
        self._changed = asyncio.Event()
        self._transport = transport
        self.offers = offers or tuple
        self.crew = crew or tuple
        self._machine = DispatcherMachine(self.settings, wants or dict, self.offers, crew)
        self._unserved = UnservedLog("type", "GET /dispatcher/capacity lists them")
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._running = False
        self._ended = asyncio.Event()
        self._error: StoreUnusable | None = None
        self._lanes: WeakValueDictionary[int, asyncio.Semaphore] = WeakValueDictionary()

    # -- life -----------------------------------------------------------------------------------

    async def __aenter__(self) -> Dispatcher:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Open the store and begin to dispatch.

        Raises:
            ConfigError: There can be no store, or no journal.
            StoreError: The store cannot be opened.
        """
        if self._folder is not None:
            self._folder.prepare()
        self._store = StoreThread(
            self._open_store,
            self._label,
            changed=lambda: self._handle(StoreChanged(foreign=True)),
            replaced=lambda: self._handle(InstanceReplaced()),
            unusable=self._end,
        )
        await self._store.start()
        timeout = self.settings.post_timeout / 1000
        self._workers = self._pinned(BoundedClient(timeout, None, self._transport), self.tokens)
        # Workers that do not answer jobs take no connections from health checks.
        limit = self.settings.health_timeout / 1000
        self._checks = self._pinned(
            BoundedClient(limit, None, self._transport, whole=limit), self.tokens
        )
        self._check_lanes = {good: asyncio.Semaphore(_CHECKS) for good in (True, False)}
        # Callbacks leave with the headers of their submitters, and without the token.
        self._callbacks = self._pinned(BoundedClient(timeout, None, self._transport), None)
        self._running = True
        if self._folder is not None:
            self._journal = DispatcherJournal(self._folder, self._label, self._store.owner)
            self._spawn(self._watch_ends())
        self._handle(TimePassed())

    def _pinned(self, client: BoundedClient, tokens: TokenTable | None) -> PinnedClient:
        return PinnedClient(client, self.targets, tokens)

    async def close(self) -> None:
        """Stop to dispatch, and end the instance: others take over what runs. Idempotent."""
        if not self._running:
            return
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in (self._workers, self._checks, self._callbacks):
            await client.close()
        await self._look_for_ends()
        await self._store.close()
        if self._journal is not None:
            self._journal.stop()
            await aside(self._journal.wait, "dispatcher-journal", CLOSE + 1.0)
        self._ended.set()

    async def wait_ended(self) -> None:
        """Wait until the dispatcher has ended: closed, or stopped by an error.

        Raises:
            StoreUnusable: The store cannot be used until somebody repairs the cause, for example
                because its file was replaced (DSP-3.13).
        """
        await self._ended.wait()
        if self._error is not None:
            raise self._error

    def _end(self, error: StoreUnusable) -> None:
        """Note why the dispatcher has ended. Its machine does not act any more."""
        self._error = error
        self._ended.set()

    @property
    def number(self) -> int:
        """Number of the dispatcher in the store."""
        return self._store.number

    @property
    def away(self) -> str | None:
        """Why the store does not answer; None while it does."""
        return self._store.away

    # -- steps of the API -----------------------------------------------------------------------

    async def run(self, step: StoreStep) -> Any:
        """Run a step that changes something; then the machine looks for work.

        Raises:
            StoreError: The store is away.
        """
        outcome = await self._run(step)
        if isinstance(outcome, Registered) and outcome.worker is not None:
            self._handle(WorkerRegistered())
            if not outcome.worker.answered:
                return outcome  # it gets no job yet, so there is nothing to dispatch
        self._handle(StoreChanged(isinstance(outcome, Completed) and outcome.callback))
        return outcome

    async def _run(self, step: StoreStep) -> Any:
        """Run a step, and write to the journal what it changed."""
        called = time.monotonic()
        outcome = await self._store.run(step)
        if self._journal is not None:
            self._journal.committed(step, outcome, called)
        return outcome

    async def read(self, function: Callable[[Any], Any]) -> Any:
        """Run a function that only reads.

        Raises:
            StoreError: The store is away.
        """
        return await self._store.run(_Reading(function))

    async def take_id(self) -> int:
        """Return a number for a new job."""
        return await self._store.take_id()

    # -- the machine ----------------------------------------------------------------------------

    def _handle(self, event: DispatcherEvent) -> None:
        if not self._running or self._error is not None:
            return
        if isinstance(event, StoreChanged):
            self._changed.set()
        now = time.monotonic()
        for action in self._machine.handle(event, now):
            self._perform(action)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._machine.deadline()
        if deadline is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, deadline - now), self._handle, TimePassed())

    def _perform(self, action: DispatcherAction) -> None:
        match action:
            case RunStep(step):
                self._spawn(self._run_step(step))
            case PostJob(assignment):
                self._spawn(self._post(assignment))
            case PingWorker():
                self._spawn(self._ping(action))
            case SendCancellation(cancellation):
                self._spawn(self._cancel(cancellation))
            case SendCallback(callback):
                self._spawn(self._call_back(callback))
            case ReportUnserved(rows):
                self._unserved.look("dispatcher", rows)
            case ReportRefusal(line):
                logger.warning("dispatcher: %s", line)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("dispatcher: a request failed", exc_info=task.exception())

    async def _run_step(self, step: DispatcherStep) -> None:
        try:
            outcome = await self._run(step)
        except WMPError:
            self._handle(StepFailed(step))
        except Exception:  # noqa: BLE001 - logged by the thread
            self._handle(StepFailed(step))
        else:
            self._handle(StepEnded(step, outcome))

    # -- the journal ----------------------------------------------------------------------------

    async def _watch_ends(self) -> None:
        """Write the ends of jobs that WMP workers, other dispatchers, or time have ended."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_IDLE):
                    await self._changed.wait()
            self._changed.clear()
            await self._look_for_ends()
            await asyncio.sleep(_LOOK)

    async def _look_for_ends(self) -> None:
        step = None if self._journal is None else self._journal.look()
        if step is not None:
            with contextlib.suppress(WMPError):  # the store is away: the next look finds the ends
                await self._run(step)

    # -- requests -------------------------------------------------------------------------------

    async def _post(self, assignment: DispatchedJob) -> None:
        id = assignment.worker.id
        lane = self._lanes.get(id)
        if lane is None:
            self._lanes[id] = lane = asyncio.Semaphore(_LANE)
        async with lane:
            posted = await self._send(assignment)
        self._handle(posted)

    async def _send(self, assignment: DispatchedJob) -> JobPosted:
        """Send a job to its worker; return whether the worker accepted it."""
        if not self._machine.may_send(self._store.renewed, time.monotonic()):
            text = "the dispatcher could not write to its store for too long"
            return JobPosted(assignment, RefusedPost(text, worker_at_fault=False))
        headers = {"Wmp-Dispatcher": self.address, "Content-Type": "application/json"}
        target = PinnedTarget.of(assignment.worker)
        url = f"{target.url}/jobs/"
        try:
            answer = await self._workers.ask("POST", target, "/jobs/", assignment.document, headers)
        except RequestFailed as error:
            if not error.sent:
                text = f"{url} cannot be reached: {error}"
                return JobPosted(assignment, RefusedPost(text, answered=False))
            # The job may have arrived; the checks find out.
            id = id_text(assignment.id)
            logger.warning("dispatcher: %s did not answer job %s: %s", url, id, error)
            return JobPosted(assignment, None)
        if answer.good:
            return JobPosted(assignment, None, accepted=True)
        text = f"POST {url} was answered by {answer.code}, expected 202"
        if answer.text:
            text += f": {answer.text}"
        if answer.code == _NO_PLACE:
            return JobPosted(assignment, RefusedPost(text))
        begun = not 400 <= answer.code < 500
        return JobPosted(assignment, RefusedPost(text, counts=True, begun=begun))

    def _lane_of(self, worker: WorkerRecord) -> asyncio.Semaphore:
        """Return the lane of the health checks of a worker: those that answer have their own."""
        good = worker.failed_pings == 0 and worker.answered and not worker.dead
        return self._check_lanes[good]

    async def confirms(self, target: PinnedTarget, nonce: str) -> bool:
        """Ask the program at the address of a worker whether a registration is its own (DSP-10.3).

        Args:
            target: The worker, with the address of the registration.
            nonce: The nonce of the registration, of which only the digest is sent.
        """
        head = {NONCE_HEADER: secret_digest(nonce)}
        async with self._check_lanes[False]:
            try:
                answer = await self._checks.ask(
                    "GET",
                    target,
                    "/health_check/",
                    headers=head,
                    maximum=self.settings.max_health_answer,
                )
                document = await asyncio.to_thread(answer.json) if answer.good else None
            except (RequestFailed, ValueError):
                return False
        return isinstance(document, dict) and document.get("registers") is True

    async def _ping(self, action: PingWorker) -> None:
        worker = action.worker
        jobs = error = None
        maximum = self.settings.max_health_answer
        # The wait for a turn is no failure of the worker, so it counts for no time-out (DSP-5.11).
        async with self._lane_of(worker):
            try:
                target = PinnedTarget.of(worker)
                answer = await self._checks.ask("GET", target, "/health_check/", maximum=maximum)
            except RequestFailed as failure:
                error = str(failure)
            else:
                if not answer.good:
                    error = f"/health_check/ answered {answer.code}; expected 200"
                elif not answer.whole:
                    error = (
                        f"/health_check/ answered more than {maximum} bytes, which the setting "
                        "workers.max_health_answer changes"
                    )
                else:
                    # Thousands of values take milliseconds, in which the loop serves others.
                    jobs = await asyncio.to_thread(_named_jobs, answer)
        self._handle(WorkerPinged(worker.id, action.began, error, jobs))

    async def _cancel(self, cancellation: Cancellation) -> None:
        target = PinnedTarget.of(cancellation.worker)
        path = f"/jobs/{id_text(cancellation.id)}?attempt={cancellation.attempt}"
        maximum, answered = self.settings.max_health_answer, False
        try:
            answer = await self._checks.ask("DELETE", target, path, maximum=maximum)
            answered = answer.code < 500
        except RequestFailed as error:
            url = target.url + path
            logger.warning("dispatcher: the cancellation %s was not answered: %s", url, error)
        self._handle(CancellationAnswered(cancellation, answered))

    async def _call_back(self, callback: Callback) -> None:
        record, error = callback.record, None
        target = PinnedTarget.of(record)
        path = record.path if record.path.startswith("/") else f"/{record.path}"
        url = target.url + path
        body = None if record.method == "GET" else write_json(callback.document)
        headers = {
            "Content-Type": "application/json",
            **record.headers,
            DEPTH_HEADER: str(record.depth + 1),
        }
        try:
            answer = await self._callbacks.ask(record.method, target, path, body, headers)
            if not answer.good:
                error = f"{url} answered {answer.code}; expected 2xx"
        except RequestFailed as failure:
            error = f"{url}: {failure}"
        if error is not None:
            logger.warning("dispatcher: a callback failed: %s", error)
        self._handle(CallbackAnswered(callback, error))


class _Reading:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.run = function


def _named_jobs(answer: BoundedAnswer) -> Sequence[tuple[int, int | None]] | None:
    """Return the jobs that a health check names (DSP-5.3); None if it names none."""
    try:
        jobs = answer.json()["jobs"]
    except (ValueError, TypeError, KeyError):
        return None
    if not isinstance(jobs, list):
        return None
    named = []
    for job in jobs:
        text, attempt = (
            (job.get("_id"), job.get("attempt")) if isinstance(job, dict) else (job, None)
        )
        number = number_of(text) if isinstance(text, str) else None
        if number is not None:
            named.append((number, attempt if type(attempt) is int else None))
    return named
