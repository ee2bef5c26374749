"""The manager for code without an event loop: accepts jobs and returns their results."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import AsyncIterable, Iterable, Iterator
from os import PathLike
from typing import Any, Protocol, TypeVar, Unpack

from wmp import aio
from wmp.aio.manager import CLOSE_TIMEOUT, IN_FLIGHT
from wmp.aio.standby import PairNode
from wmp.blocking.job import Job
from wmp.blocking.node import BlockingNode
from wmp.core.manager.policy import Policy
from wmp.core.manager.statistics import ManagerStatistics
from wmp.errors import QueueFull
from wmp.message import Frame
from wmp.runtime.codecs.payload_codecs import pack
from wmp.runtime.common.journal import Journal
from wmp.runtime.driver.inbox import JobTerms
from wmp.runtime.sockets.security import Security
from wmp.runtime.sockets.socket_settings import Context
from wmp.runtime.sockets.transport import Transport
from wmp.runtime.submission.map_pipeline import MapWait
from wmp.runtime.submission.map_progress import open_progress, total_of
from wmp.runtime.submission.submit_options import JobOptions, SubmitOptions, shows_options
from wmp.store.contract import Store

_JobT = TypeVar("_JobT", bound=Job)


class BlockingPairNode(Protocol):
    """The blocking form of a node that decides which manager of a pair serves."""

    @property
    def _inner(self) -> PairNode:
        """The node for asyncio."""


class Manager(BlockingNode[aio.Manager]):
    """Holds jobs and gives them to the workers that connect to it; see :class:`wmp.aio.Manager`.

    Use the manager with ``with``.

    Args:
        bind: Endpoints to listen on; by default a free port of loopback, or none with ``connect``.
        connect: Endpoints that devices bind for managers, to which the manager dials in.
        identity: Stable name on the wire; random by default.
        label: Name for people; host and process by default.
        codec: ``"bytes"``, ``"text"``, ``"json"``, ``"cbor"`` (numbers, text, bytes, lists, dicts),
            ``"cbor-tags"`` (also dates, tuples, arrays and others), or a registered name.
        policy: The order of workers: a name of :mod:`wmp.balance` or a callable.
        max_jobs: Maximum number of jobs held. At it ``submit`` waits, ``submit_nowait`` raises.
        max_worker_losses: Number of dead workers that a job survives.
        max_silence: Seconds of silence after which a worker is given up.
        security: CURVE keys; without them only local endpoints may be bound.
        context: A ``zmq.Context`` to share: inproc needs one context at both ends.
        transport: Options of the sockets.
        journal: Folder for the files of the manager's journal, or a
            :class:`~wmp.runtime.common.journal.Journal`. ``wmp journal`` reads these files.
        store: File of a store on SQLite, or ``postgresql://…``, which is made if it is missing; or
            a :class:`~wmp.store.contract.Store`: jobs and results outlive this process.
        star: A node of a Binary Star (:class:`~wmp.gateways.BinaryStar`): this manager is
            one of a pair. The manager starts and closes the node.
        settings: Other fields of :class:`~wmp.core.protocol.settings.ManagerSettings`.
    """

    _hidden = False
    """Whether tasks do not use this manager without being asked to."""

    def __init__(
        self,
        *bind: str,
        connect: str | Iterable[str] = (),
        identity: bytes | str | None = None,
        label: str | None = None,
        codec: str = "bytes",
        policy: str | Policy = "least_recently_used",
        max_jobs: int = 1_000_000,
        max_worker_losses: int = 3,
        max_silence: float = 6.0,
        security: Security | None = None,
        context: Context | None = None,
        transport: Transport | None = None,
        journal: Journal | str | PathLike[str] | None = None,
        store: Store | str | PathLike[str] | None = None,
        star: BlockingPairNode | None = None,
        **settings: Any,
    ) -> None:
        inner = aio.Manager(
            *bind,
            connect=connect,
            identity=identity,
            label=label,
            codec=codec,
            policy=policy,
            max_jobs=max_jobs,
            max_worker_losses=max_worker_losses,
            max_silence=max_silence,
            security=security,
            context=context,
            transport=transport,
            journal=journal,
            store=store,
            star=None if star is None else star._inner,
            **settings,
        )
        super().__init__("manager", inner, inner.close)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Addresses to which workers can connect; see :attr:`wmp.aio.Manager.endpoints`."""
        return self._inner.endpoints

    def drain(self, timeout: float | None = None) -> None:
        """Accept no more jobs, and wait until all have ended; see :meth:`wmp.aio.Manager.drain`."""
        self._portal.call(self._inner.drain(timeout))

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Drain for ``timeout`` seconds, then stop; see :meth:`wmp.aio.Manager.close`."""
        self._shut(timeout)

    @shows_options(SubmitOptions)
    def submit(
        self,
        payload: Any,
        **options: Unpack[SubmitOptions],
    ) -> Job:
        """Submit a job; wait while the manager is full. See :meth:`wmp.aio.Manager.submit`."""
        intake = self._inner.intake
        terms = intake.terms.make(options)
        job = Job(intake.submissions, self._portal)
        return self._submit(job, payload, terms, options)

    @shows_options(JobOptions)
    def submit_many(
        self,
        payloads: Iterable[Any],
        **options: Unpack[JobOptions],
    ) -> list[Job]:
        """Submit a job for each payload. See :meth:`wmp.aio.Manager.submit_many`."""
        intake = self._inner.intake
        terms = intake.terms.make_many(options)
        packed = [pack(payload, intake.codec, intake.payload_limit) for payload in payloads]
        jobs = []
        for data in packed:
            jobs.append(self._add(Job(intake.submissions, self._portal), data, terms))
        if terms.stored is not None:
            for job in jobs:
                job.stored()
        return jobs

    @shows_options(SubmitOptions)
    def submit_nowait(
        self,
        payload: Any,
        **options: Unpack[SubmitOptions],
    ) -> Job:
        """Submit a job, or raise QueueFull. See :meth:`wmp.aio.Manager.submit_nowait`."""
        intake = self._inner.intake
        terms = intake.terms.make(options)
        job = Job(intake.submissions, self._portal)
        return self._submit(job, payload, terms, options, wait=False)

    @shows_options(JobOptions, stored=False)
    def map(
        self,
        payloads: Iterable[Any],
        *more: Iterable[Any],
        in_flight: int = IN_FLIGHT,
        return_exceptions: bool = False,
        ordered: bool = True,
        progress: bool = False,
        **options: Unpack[JobOptions],
    ) -> Iterator[Any]:
        """Yield the result of every payload, in the order of the payloads or of the ends. See
        :meth:`wmp.aio.Manager.map`.

        Raises:
            TypeError: An argument is an async iterable, which only :class:`wmp.aio.Manager`
                accepts.
        """
        inputs = payloads, *more
        for one in inputs:
            if isinstance(one, AsyncIterable):
                raise TypeError(
                    f"payloads is of type {type(one).__name__}, an async iterable; expected an "
                    "iterable, or use wmp.aio.Manager"
                )
        intake = self._inner.intake
        terms = intake.terms.make_many({"stored": False, **options})
        signal = threading.Event()
        pipeline = intake.pipeline(inputs, terms, in_flight, signal, return_exceptions, ordered)
        bar = None
        try:
            if progress:
                bar = open_progress(total_of(inputs))
            while (step := pipeline.step()) is not None:
                match step:
                    case MapWait.DRIVER:
                        pass  # the payloads are read on a separate thread
                    case MapWait.FREE:
                        self._wait_until_free()
                    case MapWait.RESULTS:
                        self._portal.check_thread()
                        signal.wait()
                    case values:
                        if bar is not None:
                            bar.advance(len(values))
                        yield from values
        finally:
            pipeline.abandon()
            if bar is not None:
                bar.close()

    def as_completed(self, jobs: Iterable[Job], timeout: float | None = None) -> Iterator[Job]:
        """Yield jobs as they end, the earliest first.

        Args:
            jobs: The jobs. A job that is named twice is yielded once.
            timeout: Seconds, counted from the call, in which the last job must end.

        Raises:
            TimeoutError: Some jobs have not ended within this time. They continue.
        """
        self._portal.check_thread()
        yield from concurrent.futures.as_completed(jobs, timeout)  # type: ignore[misc]

    @property
    def active(self) -> bool:
        """Whether the manager takes jobs; see :attr:`wmp.aio.Manager.active`."""
        return self._look(lambda: self._inner.active)

    def wait_active(self, timeout: float | None = None) -> None:
        """Wait until the standby of this manager of a pair is over; see
        :meth:`wmp.aio.Manager.wait_active`."""
        self._portal.call(self._inner.wait_active(timeout))

    def wait_for_workers(
        self, count: int = 1, *, role: str | None = None, timeout: float | None = None
    ) -> None:
        """Wait until workers are ready; see :meth:`wmp.aio.Manager.wait_for_workers`."""
        self._portal.call(self._inner.wait_for_workers(count, role=role, timeout=timeout))

    def statistics(self) -> ManagerStatistics:
        """Return a snapshot of the manager's jobs, workers and counters."""
        return self._look(self._inner.statistics)

    def _submit(
        self,
        job: _JobT,
        payload: Any,
        terms: JobTerms,
        options: SubmitOptions,
        *,
        wait: bool = True,
    ) -> _JobT:
        """Submit a new job, or return the job in progress under its key.

        Args:
            job: The new job.
            payload: The payload, which is not encoded yet.
            terms: Terms of the job.
            options: The options of which the terms were made.
            wait: Whether to wait while the manager is full, and until a stored job is stored.

        Raises:
            QueueFull: The manager is full, and the call may not wait.
            ClosedError: The manager accepts no more jobs.
        """
        intake = self._inner.intake
        data = pack(payload, intake.codec, intake.payload_limit)
        on_status = key = None
        if options:
            on_status, key = options.get("on_status"), options.get("key")
        if on_status is not None:
            job.add_status_callback(on_status)
        if wait:
            added = self._add(job, data, terms, key)
        else:
            added = intake.submissions.add(job, (data,), terms, key=key)
        if on_status is not None and added is not job:
            added.add_status_callback(on_status)
        if wait and terms.stored is not None:
            added.stored()
        return added

    def _add(self, job: _JobT, data: Frame, terms: JobTerms, key: str | None = None) -> _JobT:
        """Add a job whose payload is encoded; wait while the manager is full."""
        while True:
            try:
                return self._inner.intake.submissions.add(job, (data,), terms, key=key)
            except QueueFull:
                self._wait_until_free()

    def _wait_until_free(self) -> None:
        """Wait until jobs may be added. An interrupted wait wakes the next waiter."""
        self._portal.check_thread()
        signal = threading.Event()
        wake = signal.set
        self._inner.intake.submissions.when_free(wake)
        try:
            signal.wait()
        except BaseException:
            self._inner.intake.submissions.forget_waiter(wake)
            raise
