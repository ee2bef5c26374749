"""The manager for code without an event loop: accepts jobs and returns their results."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import AsyncIterable, Iterable, Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

from wmp import aio
from wmp.aio.manager import CLOSE_TIMEOUT, IN_FLIGHT
from wmp.blocking.job import Job
from wmp.blocking.node import BlockingNode
from wmp.core.manager.policy import Policy
from wmp.core.manager.statistics import ManagerStatistics
from wmp.duration import Duration, in_seconds
from wmp.errors import QueueFull, StoreFull
from wmp.message import Frame
from wmp.runtime.codecs.payload_codecs import pack
from wmp.runtime.common.journal import Journal
from wmp.runtime.driver.inbox import JobTerms
from wmp.runtime.sockets.security import Security
from wmp.runtime.sockets.socket_settings import Context
from wmp.runtime.sockets.transport import Transport
from wmp.runtime.submission.submit_options import JobOptions, SubmitOptions, shows_options

if TYPE_CHECKING:
    from wmp.aio.standby import PairNode
    from wmp.store.contract import Store

_JobT = TypeVar("_JobT", bound=Job)


class BlockingPairNode(Protocol):
    """The blocking form of a node that decides which manager of a pair serves."""

    @property
    def _inner(self) -> PairNode:
        """The node for asyncio."""


class Manager(BlockingNode[aio.Manager]):
    """Holds jobs and grants them to the workers that connect to the manager.

    Use the manager with ``with``. The manager keeps a job until the job's result has arrived,
    even if workers come, leave and die.

    Args:
        bind: Endpoints to listen on (tcp, ipc, inproc); by default a free port of loopback. With
            ``connect`` the default is none.
        connect: Endpoints of devices to which the manager dials in: those that a device binds for
            managers (``wmp-device --bind-managers``). The manager needs no address of its own then.
        forward: Endpoints of managers, or of devices before them, whose jobs this manager hands to
            its own workers. Towards them this manager is a worker that offers what its workers
            offer together.
        identity: Name in messages, the same at every start; by default 16 random bytes.
        label: Name for people; by default host and process.
        codec: How payloads and results become bytes: ``"bytes"``, ``"text"``, ``"json"``,
            ``"cbor"`` (numbers, text, bytes, lists, dicts), ``"cbor-tags"`` (also dates, UUID,
            Decimal, tuples, sets and arrays of numpy), or a name of :func:`wmp.register_codec`.
        policy: The order in which workers are asked: a name of :mod:`wmp.balance` or a callable.
        max_jobs: Maximum number of jobs that the manager holds. At this limit ``submit`` waits, and
            ``submit_nowait`` raises.
        max_worker_losses: Number of lost workers that a job survives, unless the job has its
            own number.
        max_silence: Seconds of silence after which a worker is given up.
        security: CURVE keys; without them only local endpoints may be bound.
        context: A ``zmq.Context`` to share. ``inproc://`` reaches only nodes with the same context.
            Without a shared context no node answers over ``inproc://``.
        transport: Options of the sockets.
        journal: Folder for the files of the manager's journal, or a
            :class:`~wmp.runtime.common.journal.Journal`. ``wmp journal`` reads these files.
        store: File of a store on SQLite, or ``postgresql://…``, which is made if it is missing; or
            a :class:`~wmp.SqliteStore` or :class:`~wmp.PostgresStore`. Submitted jobs and their
            results are then stored, and outlive this process. A store object serves one manager,
            which closes it.
        star: A node of a Binary Star (:class:`~wmp.gateways.BinaryStar`). This
            manager is one of a pair then, and on standby until the node is active. The manager
            starts and closes the node, and ends with the error of the node.
        settings: Other fields of :class:`~wmp.core.protocol.settings.ManagerSettings`.

    Raises:
        ConfigError: A setting is wrong.
    """

    _hidden = False
    """Whether tasks do not use this manager without being asked to."""

    def __init__(
        self,
        *bind: str,
        connect: str | Iterable[str] = (),
        forward: str | Iterable[str] = (),
        identity: bytes | str | None = None,
        label: str | None = None,
        codec: str = "bytes",
        policy: str | Policy = "least_recently_used",
        max_jobs: int = 1_000_000,
        max_worker_losses: int = 3,
        max_silence: Duration = 6.0,
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
            forward=forward,
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

    def start(self) -> None:
        """Bind and begin to serve; ``with`` calls this method. Idempotent.

        Raises:
            ConfigError: An endpoint cannot be bound.
            StoreError: The store cannot be opened.
            ClosedError: The manager was closed.
        """
        super().start()

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Addresses to which workers can connect, with the actual ports.

        Raises:
            ClosedError: The manager is not started, and the system has not chosen an address yet.
        """
        return self._inner.endpoints

    def drain(self, timeout: Duration | None = None) -> None:
        """Accept no more jobs, and wait until all jobs have ended.

        Args:
            timeout: Seconds to wait at most. After this time the manager still accepts no jobs.

        Raises:
            TimeoutError: Some jobs have not ended after ``timeout`` seconds.
        """
        self._portal.call(self._inner.drain(timeout))

    def close(self, timeout: Duration = CLOSE_TIMEOUT) -> None:
        """Drain for at most ``timeout`` seconds, then stop. Idempotent, and bounded in time.

        Jobs that have not ended after this time end here with :class:`~wmp.errors.ClosedError`, and
        are cancelled at the workers. Stored jobs are neither waited for nor cancelled: they stay in
        the store, and workers go on with those that they have begun; :meth:`drain` waits for them.
        In a fork of the manager's process the call does nothing.
        """
        self._shut(timeout)

    @shows_options(SubmitOptions)
    def submit(
        self,
        payload: Any,
        **options: Unpack[SubmitOptions],
    ) -> Job:
        """Submit a job; wait while the manager is full.

        With a store, this returns when the job is stored.

        Args:
            payload: Bytes or text; with another codec a value that this codec encodes.
            options: As described at :class:`wmp.SubmitOptions`. ``on_status`` is called on a
                thread.

        Raises:
            TypeError: The payload cannot be encoded, or an option is unknown.
            ConfigError: The payload is too large, or another argument is wrong.
            ClosedError: The manager takes no more jobs.
            OnStandby: The manager is on standby.
            StoreFull: The store takes no more jobs.
        """
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
        """Submit a job for each payload, in their order; return the jobs.

        With a store, this returns when all jobs are stored, and waits for the disk once. Without
        one, it is a loop of :meth:`submit`. The options are those of :meth:`submit`, but
        ``on_status``, ``key`` and ``unique``.

        Raises:
            StoreFull: The store does not take all jobs. The attribute ``stored`` of the error has
                the jobs that are stored and will be done, in their order.
        """
        called = time.monotonic()
        intake = self._inner.intake
        terms = intake.terms.make_many(options)
        packed = [pack(payload, intake.codec, intake.payload_limit) for payload in payloads]
        jobs = []
        for data in packed:
            jobs.append(
                self._add(Job(intake.submissions, self._portal), data, terms, called=called)
            )
        full, stored = None, []
        for job in jobs if terms.stored is not None else ():
            try:
                job.stored()
                stored.append(job)
            except StoreFull as error:
                full = error
        if full is not None:
            raise StoreFull.of_many(full, stored, len(jobs)) from full
        return jobs

    @shows_options(SubmitOptions)
    def submit_nowait(
        self,
        payload: Any,
        **options: Unpack[SubmitOptions],
    ) -> Job:
        """Submit a job as :meth:`submit` does, but never wait.

        :meth:`Job.stored` waits until the job is stored.

        Raises:
            QueueFull: The manager holds ``max_jobs`` jobs, or ``max_bytes`` bytes of payloads.
        """
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
        """Yield the result of every payload, in the order of the payloads or of the ends.

        Inputs are pulled as results are taken, so the inputs may be endless. Leaving the loop early
        cancels the unfinished jobs. With ``contextlib.closing`` this happens at once.

        Args:
            payloads: The inputs, an iterable. An
                iterable that waits for its next input holds up the loop and all results, so pass an
                async iterable then.
            more: Further iterables, as for the builtin ``map``. The payload of each job is then a
                tuple of one item of each iterable. The shortest iterable ends the ``map``. This
                needs a codec that encodes tuples, for example ``cbor``.
            in_flight: Maximum number of inputs that are pulled and whose results are not taken.
            return_exceptions: Yield the error of a job at its place, as
                ``asyncio.gather`` does, and continue. The error of an input that is not a payload
                is yielded too. An error of ``payloads`` itself and ``ClosedError`` are raised.
            ordered: Whether results come in the order of the payloads. If false, each result comes
                as soon as its job has ended, and a slow job keeps no other result back.
            progress: Draw a progress bar on stderr, with rich or tqdm.
            options: The options of :meth:`submit_many`. ``timeout``, ``expires`` and ``delay``
                count from the moment at which each job is submitted. Jobs are stored only with
                ``stored=True``. Their results then stay in the store, and jobs that were submitted
                end there if this process dies.

        Raises:
            JobError: Raised at the place of the first job without a result, unless
                ``return_exceptions`` is true.
            TypeError: An argument cannot be iterated, or the codec encodes no tuples.
            ConfigError: ``progress`` is true and neither rich nor tqdm is installed.
        """
        # Programs that only submit need none of the modules of map.
        from wmp.runtime.submission.map_pipeline import MapWait

        inputs = payloads, *more
        for iterable in inputs:
            if isinstance(iterable, AsyncIterable):
                raise TypeError(
                    f"payloads is of type {type(iterable).__name__}, an async iterable; expected "
                    "an iterable, or use wmp.aio.Manager"
                )
        intake = self._inner.intake
        terms = intake.terms.make_many({"stored": False, **options})
        signal = threading.Event()
        pipeline = intake.pipeline(
            inputs, terms, in_flight, signal, return_exceptions, ordered, threaded=True
        )
        bar = None
        try:
            if progress:
                from wmp.runtime.submission.map_progress import open_progress, total_of

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

    def as_completed(self, jobs: Iterable[Job], timeout: Duration | None = None) -> Iterator[Job]:
        """Yield jobs as they end, the earliest first.

        Args:
            jobs: The jobs. A job that is named twice is yielded once.
            timeout: Seconds, counted from the call, in which the last job must end.

        Raises:
            TimeoutError: Some jobs have not ended within this time. They continue.
            ClosedError: The jobs are those of the parent process, and some have not ended.
        """
        self._portal.check_thread()
        yield from concurrent.futures.as_completed(jobs, in_seconds(timeout))  # type: ignore[misc]

    @property
    def active(self) -> bool:
        """Whether the manager takes jobs: it is not on standby, and has not ended."""
        return self._look(lambda: self._inner.active)

    def wait_active(self, timeout: Duration | None = None) -> None:
        """Wait until the standby of this manager of a pair is over.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            TimeoutError: The manager is still on standby.
            StarConflict: Both managers were active, or passive.
            ConfigError: Both have the same role.
            ClosedError: The manager is not started, or has ended.
        """
        self._portal.call(self._inner.wait_active(timeout))

    def wait_for_workers(
        self, count: int = 1, *, role: str | None = None, timeout: Duration | None = None
    ) -> None:
        """Wait until ``count`` workers are ready.

        Args:
            count: Number of workers.
            role: Count only the workers that offer this role.
            timeout: Seconds to wait at most.

        Raises:
            TimeoutError: Fewer workers were ready in time. The text has the number of ready
                workers.
            ClosedError: The manager has ended.
        """
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
        return self._submit_encoded(job, data, terms, options, wait=wait)

    def _submit_encoded(
        self,
        job: _JobT,
        data: Frame,
        terms: JobTerms,
        options: SubmitOptions,
        *,
        wait: bool = True,
    ) -> _JobT:
        """Submit a new job whose payload is encoded; see :meth:`_submit`."""
        intake = self._inner.intake
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

    def _add(
        self,
        job: _JobT,
        data: Frame,
        terms: JobTerms,
        key: str | None = None,
        *,
        called: float | None = None,
    ) -> _JobT:
        """Add a job whose payload is encoded; wait while the manager is full.

        ``called``: when the submitter called, on the clock ``time.monotonic``; None for now.
        """
        if called is None:
            called = time.monotonic()
        add = self._inner.intake.submissions.add
        while True:
            try:
                return add(job, (data,), terms, key=key, called=called)
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
