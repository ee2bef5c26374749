"""The manager for asyncio: accepts jobs and returns their results."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

from wmp import balance
from wmp.aio.forwarding import Forwarding
from wmp.aio.job import Job
from wmp.aio.node import AsyncNode
from wmp.core.manager.machine import ManagerMachine as Machine
from wmp.core.manager.policy import Policy
from wmp.core.manager.statistics import ManagerStatistics
from wmp.core.protocol.settings import ManagerSettings
from wmp.duration import Duration, in_seconds
from wmp.errors import ClosedError, ConfigError, QueueFull, StoreFull
from wmp.events import Cancelled
from wmp.message import Kind, counted
from wmp.runtime.codecs.payload_codecs import pack, payload_codec, wire_name
from wmp.runtime.common.checks import (
    check_count,
)
from wmp.runtime.common.journal import Journal, make_journal
from wmp.runtime.driver.manager_driver import ManagerDriver
from wmp.runtime.manager.unserved_watch import UnservedWatch
from wmp.runtime.manager.worker_count import wait_for_workers
from wmp.runtime.node.node import Node, make_identity, make_label, make_settings, new_epoch
from wmp.runtime.sockets.security import Security
from wmp.runtime.sockets.socket_settings import Context, SocketSettings
from wmp.runtime.sockets.transport import Transport
from wmp.runtime.submission.intake import Intake
from wmp.runtime.submission.submissions import Submissions
from wmp.runtime.submission.submit_option_checks import TermsMaker
from wmp.runtime.submission.submit_options import JobOptions, SubmitOptions, shows_options

if TYPE_CHECKING:
    from wmp.aio.standby import PairNode, Standby
    from wmp.runtime.manager.manager_store import ManagerStore
    from wmp.store.contract import Store

logger = logging.getLogger("wmp")

CLOSE_TIMEOUT = 5.0
"""Seconds that jobs have to end when a ``with`` block is left."""

_SILENT = 1.0
"""Seconds that ``close`` waits before it logs the remaining jobs."""

IN_FLIGHT = 8192
"""Default of the maximum number of jobs that one ``map`` has submitted at a time."""


class Manager(AsyncNode[ManagerSettings]):
    """Holds jobs and grants them to the workers that connect to the manager.

    Use the manager with ``async with``. The manager keeps a job until the job's result has arrived,
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
        star: A node of a Binary Star (:class:`~wmp.gateways.aio.BinaryStar`). This
            manager is one of a pair then, and on standby until the node is active. The manager
            starts and closes the node, and ends with the error of the node.
        settings: Other fields of :class:`~wmp.core.protocol.settings.ManagerSettings`.

    Raises:
        ConfigError: A setting is wrong.
    """

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
        star: PairNode | None = None,
        **settings: Any,
    ) -> None:
        plain = Kind(codec=wire_name(payload_codec(codec).name))
        if isinstance(policy, str):
            policy = balance.by_name(policy, random.Random())
        elif not callable(policy):
            raise ConfigError(
                f"policy is {policy!r}; expected the name of a policy, or a function (see "
                "wmp.balance)"
            )
        dials = (connect,) if isinstance(connect, str) else tuple(connect)
        self.codec = codec
        self.max_worker_losses = check_count("max_worker_losses", max_worker_losses)
        chosen = make_settings(
            ManagerSettings,
            "manager",
            {"max_jobs": max_jobs, "max_silence": max_silence, **settings},
            identity=make_identity(identity),
            epoch=new_epoch(),
            label=make_label(label),
        )
        node = Node(
            "manager",
            bind=bind or (() if dials else ("tcp://127.0.0.1:*",)),
            connect=dials,
            sockets=SocketSettings(security=security, context=context, transport=transport),
            journal=journal,
        )
        super().__init__(chosen, node)
        self._machine = Machine(chosen, policy, stored=store is not None, standby=star is not None)
        submissions = Submissions(
            node.inbox.post,
            max_jobs,
            codec,
            max_bytes=chosen.max_bytes,
            stored=store is not None,
        )
        self._store: ManagerStore | None = None
        if store is not None:
            from wmp.runtime.manager.manager_store import ManagerStore

            self._store = ManagerStore(store, submissions, node.inbox)
        self.standby: Standby | None = None
        if star is not None:
            from wmp.aio.standby import Standby

            self.standby = Standby(star, self._machine, node, submissions, self._store)
        terms = TermsMaker(node, plain, max_worker_losses, has_store=store is not None)
        self.intake = Intake(terms, submissions, codec, node.sockets.transport.payload)
        """Takes jobs in, for the other packages of this library."""
        self._unserved = UnservedWatch(node, self._machine, submissions)
        above = (forward,) if isinstance(forward, str) else tuple(forward)
        self.forwarding: Forwarding | None = None
        """The worker side of a forwarding manager; None without ``forward``."""
        if above:
            self.forwarding = Forwarding(
                above,
                chosen,
                self._machine,
                node,
                sockets=node.sockets,
                journal=make_journal(journal),
                notify=submissions.notify,
            )

    # -- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bind and begin to serve; ``async with`` calls this method. Idempotent.

        Raises:
            ConfigError: An endpoint cannot be bound.
            StoreError: The store cannot be opened.
            ClosedError: The manager was closed.
        """
        self._node.check_open()
        if self._node.driver is None:
            try:
                if self._store is not None:
                    await self._store.open()
                    if self.standby is None:
                        await self._store.begin(self.identity, self._settings.label)
                if self.standby is not None:
                    await self.standby.start()
                driver = self._node.start(
                    self.standby or self._machine,
                    submitters=self.intake.submissions,
                    writer=self._store,
                    link_events=True,
                    make_driver=partial(ManagerDriver, forwarding=self.forwarding),
                    on_halt=self._halted,
                )
                if self._store is not None and self.standby is None:
                    self._store.start()
            except BaseException:
                if self.standby is not None:
                    await self.standby.close()
                if self._store is not None:
                    await self._store.close()
                raise
            self.intake.submissions.states.attach(self._machine, driver.take_all_posted)
            self._unserved.start()
            if self.forwarding is not None:
                try:
                    self.forwarding.start()
                except BaseException:
                    await self.close(0.0)
                    raise

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Addresses to which workers can connect, with the actual ports.

        Raises:
            ClosedError: The manager is not started, and the system has not chosen an address yet.
        """
        return self._node.addresses

    async def drain(self, timeout: Duration | None = None) -> None:
        """Accept no more jobs, and wait until all jobs have ended.

        Args:
            timeout: Seconds to wait at most. After this time the manager still accepts no jobs.

        Raises:
            TimeoutError: Some jobs have not ended after ``timeout`` seconds.
        """
        self._node.serving()
        self.intake.submissions.refuse(
            ClosedError("the manager is draining and accepts no more jobs")
        )
        timeout = in_seconds(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        ended = self.forwarding is None or await self.forwarding.drain(timeout)
        if ended:
            ended = self._store is None or await self._store.wait_submitted(self._node, until)
        if ended:
            self._node.drain()
            ended = await self._node.wait_ended(until and max(0.0, until - time.monotonic()))
        if not ended:
            raise TimeoutError(
                f"{counted(len(self.intake.submissions), 'job has', 'jobs have')} not ended after "
                f"{timeout} s; "
                "call drain() again, cancel the jobs, or call close()"
            )
        self._node.raise_error()

    async def close(self, timeout: Duration = CLOSE_TIMEOUT) -> None:
        """Drain for at most ``timeout`` seconds, then stop. Idempotent, and bounded in time.

        Jobs that have not ended after this time end here with :class:`~wmp.errors.ClosedError`, and
        are cancelled at the workers. Stored jobs are neither waited for nor cancelled: they stay in
        the store, and workers go on with those that they have begun; :meth:`drain` waits for them.
        In a fork of the manager's process the call does nothing.
        """
        node = self._node
        if node.forked:
            return  # The node runs in the parent process.
        timeout = in_seconds(timeout)
        self.intake.submissions.refuse(ClosedError("the manager is closed"))
        try:
            until = time.monotonic() + timeout
            if self.forwarding is not None:
                await self.forwarding.close(timeout if node.running else 0.0)
            if node.running and timeout > 0:
                if self._store is not None:
                    await self._store.wait_kept(node, until)
                else:
                    node.drain()
                    await self._wait_drained(max(0.0, until - time.monotonic()))
        finally:
            outstanding = self.intake.submissions.fail(ClosedError("the manager is closed"))
            if outstanding and node.running:
                # BYE is sent before the sockets close.
                node.inbox.post(Cancelled(outstanding))
            try:
                if self.standby is not None:
                    await self.standby.close()
                await node.stop()
            finally:
                if self._store is not None:
                    await self._store.close()

    async def _wait_drained(self, timeout: float) -> None:
        """Wait until all jobs have ended; after a second, log the remaining jobs."""
        if await self._node.wait_ended(min(timeout, _SILENT)) or timeout <= _SILENT:
            return
        now = self._machine.statistics()
        logger.warning(
            "manager: close() waits up to %.3g s for %d waiting and %d running jobs; "
            "after that the jobs are cancelled",
            timeout,
            now.queued,
            now.leased,
        )
        await self._node.wait_ended(timeout - _SILENT)

    async def _abort(self) -> None:
        await self.close(0.0)

    def _halted(self, error: Exception | None) -> None:
        self.intake.submissions.fail(
            error if error is not None else ClosedError("the manager has stopped")
        )
        if self.standby is not None:
            self.standby.yield_place()
        if self.forwarding is not None:
            self.forwarding.end()

    # -- jobs -------------------------------------------------------------------------------

    @shows_options(SubmitOptions)
    async def submit(
        self,
        payload: Any,
        **options: Unpack[SubmitOptions],
    ) -> Job:
        """Submit a job; wait while the manager is full.

        With a store, this returns when the job is stored.

        Args:
            payload: Bytes or text; with another codec a value that this codec encodes.
            options: As described at :class:`wmp.SubmitOptions`. ``on_status`` is called on the
                loop.

        Raises:
            TypeError: The payload cannot be encoded, or an option is unknown.
            ConfigError: The payload is too large, or another argument is wrong.
            ClosedError: The manager takes no more jobs.
            OnStandby: The manager is on standby.
            StoreFull: The store takes no more jobs.
        """
        called = time.monotonic()
        intake = self.intake
        usual = self._node.driver is not None and not options
        terms = intake.terms.usual if usual else intake.terms.make(options)
        job, data = Job(intake.submissions), pack(payload, intake.codec, intake.payload_limit)
        on_status = key = None
        if options:
            on_status, key = options.get("on_status"), options.get("key")
        while True:
            try:
                job = intake.submissions.add(job, (data,), terms, key=key, called=called)
                break
            except QueueFull:
                await self._wait_until_free()
        if on_status is not None:
            job.add_status_callback(on_status)
        if terms.stored is not None:
            await job.stored()
        return job

    @shows_options(JobOptions)
    async def submit_many(
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
        intake = self.intake
        terms = intake.terms.make_many(options)
        packed = [pack(payload, intake.codec, intake.payload_limit) for payload in payloads]
        jobs = []
        for data in packed:
            job = Job(intake.submissions)
            while True:
                try:
                    jobs.append(intake.submissions.add(job, (data,), terms, called=called))
                    break
                except QueueFull:
                    await self._wait_until_free()
        full, stored = None, []
        for job in jobs if terms.stored is not None else ():
            try:
                await job.stored()
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
        intake = self.intake
        usual = self._node.driver is not None and not options
        terms = intake.terms.usual if usual else intake.terms.make(options)
        job, data = Job(intake.submissions), pack(payload, intake.codec, intake.payload_limit)
        on_status = key = None
        if options:
            on_status, key = options.get("on_status"), options.get("key")
        job = intake.submissions.add(job, (data,), terms, key=key)
        if on_status is not None:
            job.add_status_callback(on_status)
        return job

    @shows_options(JobOptions, stored=False)
    async def map(
        self,
        payloads: Iterable[Any] | AsyncIterable[Any],
        *more: Iterable[Any] | AsyncIterable[Any],
        in_flight: int = IN_FLIGHT,
        return_exceptions: bool = False,
        ordered: bool = True,
        progress: bool = False,
        **options: Unpack[JobOptions],
    ) -> AsyncIterator[Any]:
        """Yield the result of every payload, in the order of the payloads or of the ends.

        Inputs are pulled as results are taken, so the inputs may be endless. Leaving the loop early
        cancels the unfinished jobs. With ``contextlib.aclosing`` this happens at once.

        Args:
            payloads: The inputs, an iterable or an async iterable; iterated on the loop. An
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

        terms = self.intake.terms.make_many({"stored": False, **options})
        signal = asyncio.Event()
        inputs = payloads, *more
        pipeline = self.intake.pipeline(
            inputs, terms, in_flight, signal, return_exceptions, ordered
        )
        bar = None
        try:
            if progress:
                from wmp.runtime.submission.map_progress import open_progress, total_of

                bar = open_progress(total_of(inputs))
            while (step := pipeline.step()) is not None:
                match step:
                    case MapWait.DRIVER:
                        await asyncio.sleep(0)
                    case MapWait.FREE:
                        await self._wait_until_free()
                    case MapWait.RESULTS:
                        await signal.wait()
                    case values:
                        if bar is not None:
                            bar.advance(len(values))
                        for value in values:
                            yield value
        finally:
            pipeline.abandon()
            if bar is not None:
                bar.close()

    async def as_completed(
        self, jobs: Iterable[Job], timeout: Duration | None = None
    ) -> AsyncIterator[Job]:
        """Yield jobs as they end, the earliest first.

        Args:
            jobs: The jobs. A job that is named twice is yielded once.
            timeout: Seconds, counted from the call, in which the last job must end.

        Raises:
            TimeoutError: Some jobs have not ended within this time. They continue.
            ClosedError: The jobs are those of the parent process, and some have not ended.
        """
        timeout = in_seconds(timeout)
        ended: asyncio.Queue[Job] = asyncio.Queue()
        waiting = dict.fromkeys(jobs)
        if not all(job.done() for job in waiting):
            self.intake.submissions.check_process()
        for job in waiting:
            job.add_done_callback(ended.put_nowait)
        until = None if timeout is None else asyncio.get_running_loop().time() + timeout
        for ready in range(len(waiting)):
            try:
                async with asyncio.timeout_at(until):
                    job = await ended.get()
            except TimeoutError:
                left = counted(len(waiting) - ready, "job has", "jobs have")
                raise TimeoutError(
                    f"{left} not ended after {timeout} s; {len(waiting)} were given"
                ) from None
            yield job

    @property
    def active(self) -> bool:
        """Whether the manager takes jobs: it is not on standby, and has not ended."""
        return self._node.running if self.standby is None else self.standby.over

    async def wait_active(self, timeout: Duration | None = None) -> None:
        """Wait until the standby of this manager of a pair is over.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            TimeoutError: The manager is still on standby.
            StarConflict: Both managers were active, or passive.
            ConfigError: Both have the same role.
            ClosedError: The manager is not started, or has ended.
        """
        self._node.serving()
        if self.standby is not None:
            await self.standby.wait(in_seconds(timeout))

    async def wait_for_workers(
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
        self._node.serving()
        await wait_for_workers(self._machine, self._node, count, role, in_seconds(timeout))

    def statistics(self) -> ManagerStatistics:
        """Return a snapshot of the manager's jobs, workers and counters."""
        return self._with_drops(self._machine.statistics())

    async def _wait_until_free(self) -> None:
        """Wait until jobs may be added. A cancelled wait wakes the next waiter."""
        loop = asyncio.get_running_loop()
        signal = asyncio.Event()

        def wake() -> None:
            # A waiter of the blocking API may wake this waiter, from another thread.
            loop.call_soon_threadsafe(signal.set)

        self.intake.submissions.when_free(wake)
        try:
            await signal.wait()
        except asyncio.CancelledError:
            self.intake.submissions.forget_waiter(wake)
            raise
