"""The worker for asyncio: connects to managers and does their jobs."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Collection, Mapping
from os import PathLike
from typing import Any, TypeVar

import attrs

from wmp.aio.node import AsyncServer
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.worker.machine import WorkerMachine as Machine
from wmp.core.worker.statistics import WorkerStatistics
from wmp.duration import Duration, in_seconds
from wmp.errors import ClosedError, ConfigError, HandlerHung
from wmp.message import DEFAULT_ROLE, Limits, counted, named, printable
from wmp.retry import Retry
from wmp.runtime.common.checks import (
    check_amounts,
    check_count,
    check_offer,
    check_role,
    check_seconds,
)
from wmp.runtime.common.journal import Journal
from wmp.runtime.common.threads import aside
from wmp.runtime.executors import (
    CANCEL_GRACE,
    KILL_AFTER,
    KINDS,
    Pool,
    make_process_limits,
    open_pool,
)
from wmp.runtime.executors.handlers import Handler, as_handlers, serve
from wmp.runtime.node.beat_child import BeatChild
from wmp.runtime.node.hang_watch import HangWatch, HungJob
from wmp.runtime.node.node import Node, make_identity, make_label, make_settings, new_epoch
from wmp.runtime.node.process_watch import ProcessWatch
from wmp.runtime.sockets.endpoints import check_endpoints, check_unpickling
from wmp.runtime.sockets.security import Security
from wmp.runtime.sockets.socket_settings import Context, SocketSettings
from wmp.runtime.sockets.transport import Transport

logger = logging.getLogger("wmp")

DRAIN_TIMEOUT = 5.0
"""Seconds that ``close`` and the end of a ``with`` block leave to the jobs in progress."""

HANG_TIMEOUT = 30.0
"""Seconds that an interrupted handler may continue in a thread before ``on_hang`` applies."""

ON_HANG = ("report", "stop", "replace")
"""The values of ``on_hang``."""

_POOL_TIMEOUT = 2.0
"""Seconds within which a pool must stop."""

_POOL_DESCRIPTORS = 8
"""Number of file descriptors of a pool. Each worker process adds three in this process."""

_SHOWN = 5
"""Maximum number of jobs that a log line names."""

_HandlerT = TypeVar("_HandlerT", bound=Handler)


class Worker(AsyncServer[WorkerSettings]):
    """Does jobs for every manager to which the worker connects.

    ``await worker.run()`` serves until the worker is drained. With ``async with`` the worker serves
    in the background. Handlers never run on the loop, except those of ``pool="inline"``.

    Args:
        connect: Endpoints of managers or devices.
        handlers: Handlers by role, or one callable for the role ``default``. :meth:`handler` can
            add more before the start.
        slots: Number of jobs that run at the same time.
        resources: Amounts of resources besides slots, by name.
        pool: ``"thread"``; ``"process"`` for handlers that compute; ``"inline"`` for tiny handlers.
        max_jobs_per_child: Number of jobs that a worker process begins before another process takes
            its place.
        memory_per_child: Bytes of data that a worker process may have. A handler that needs more
            memory gets MemoryError.
        cancel_grace: Seconds that a job in a worker process may continue after it was cancelled or
            its deadline passed. After this time its process is ended by SIGTERM, which raises
            SystemExit in the handler, and later by SIGKILL. None for no limit. Threads cannot be
            ended: a handler in a thread reads ``job.cancelled``. A coroutine is cancelled where it
            awaits.
        on_hang: The reaction to a handler in a thread that still runs ``hang_timeout`` after its
            job was interrupted, and so holds a slot. ``"report"``: a line in the log. ``"stop"``:
            the worker drains, and ``run`` raises ``HandlerHung``, so that a supervisor can start
            the program again. ``"replace"``: the same, and the program ``wmp worker`` starts itself
            again.
        hang_timeout: Seconds that an interrupted handler may continue before ``on_hang`` applies.
        beats: Whether a small child process keeps the worker's jobs while a handler in a thread, a
            coroutine or an inline handler keeps this whole process from running. It is started with
            the first job. Handlers in processes need no such child.
        retry: Settings for trying jobs again, for handlers without settings of their own. A job's
            own settings override them. By default no error is tried again.
        identity: Name in messages, the same at every start; by default 16 random bytes.
        label: Name for people; by default host and process.
        hold: Seconds for which a manager may keep a request for jobs; 0 for the plain handshake.
        window: Number of jobs that may wait here beyond the slots; by default as many as keep the
            slots busy.
        ping: Seconds between signs of life.
        security: CURVE keys, with ``server_key``.
        context: A ``zmq.Context`` to share. ``inproc://`` reaches only nodes with the same context.
            Without a shared context no node answers over ``inproc://``.
        transport: Options of the sockets.
        journal: Folder for the files of the worker's journal, or a
            :class:`~wmp.runtime.common.journal.Journal`. ``wmp journal`` reads these files.
        settings: Other fields of :class:`~wmp.core.protocol.settings.WorkerSettings`.

    Raises:
        ConfigError: A setting is wrong.
    """

    def __init__(
        self,
        *connect: str,
        handlers: Mapping[str, Handler] | Handler | None = None,
        slots: int = 1,
        resources: Mapping[str, int] | None = None,
        pool: str = "thread",
        max_jobs_per_child: int | None = None,
        memory_per_child: int | None = None,
        cancel_grace: Duration | None = CANCEL_GRACE,
        on_hang: str = "report",
        hang_timeout: Duration = HANG_TIMEOUT,
        beats: bool = True,
        retry: Retry | None = None,
        identity: bytes | str | None = None,
        label: str | None = None,
        hold: Duration = 5.0,
        window: int | None = None,
        ping: Duration = 1.0,
        security: Security | None = None,
        context: Context | None = None,
        transport: Transport | None = None,
        journal: Journal | str | PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        if not connect:
            raise ConfigError(
                "a worker needs at least one endpoint, for example Worker('tcp://HOST:PORT')"
            )
        if pool not in KINDS:
            raise ConfigError(f"pool is {pool!r}; expected one of {', '.join(KINDS)}")
        self._handlers = as_handlers(handlers)
        self._retry = _checked(retry)
        self._retries: dict[str, Retry] = {}
        for role, function in self._handlers.items():
            serve(role, function)
        if on_hang not in ON_HANG:
            raise ConfigError(f"on_hang is {on_hang!r}; expected one of {', '.join(ON_HANG)}")
        self._on_hang = on_hang
        self._hang_timeout = check_seconds("hang_timeout", hang_timeout)
        self._hang_watch: HangWatch | None = None
        self._hang: HandlerHung | None = None
        if not isinstance(beats, bool):
            raise ConfigError(f"beats is {beats!r}; expected True or False")
        self._sends_beats = beats and pool != "process"
        self._process_watch: ProcessWatch | None = None
        self._slots = slots
        self._pool_kind = pool
        self._process_limits = make_process_limits(
            pool,
            max_jobs_per_child=max_jobs_per_child,
            memory_per_child=memory_per_child,
            cancel_grace=cancel_grace,
        )
        chosen = make_settings(
            WorkerSettings,
            "worker",
            {
                "hold": hold,
                "window": window,
                "ping": ping,
                "overrun_grace": self._patience(),
                **settings,
            },
            identity=make_identity(identity),
            epoch=new_epoch(),
            label=make_label(label),
            roles=(),
            resources=_resources(slots, resources),
            beat_key=_draw_key() if self._sends_beats else 0,
        )
        node = Node(
            "worker",
            bind=(),
            connect=connect,
            sockets=SocketSettings(security=security, context=context, transport=transport),
            journal=journal,
        )
        super().__init__(chosen, node)
        self._check_offer(self._handlers)
        self._machine: Machine | None = None
        self._pool: Pool | None = None
        self._starting = False
        self._ends: list[Callable[[Exception | None], None]] = []
        self._cleared: asyncio.Task[None] | None = None
        self._drain_timeout: float | None = None
        self._drain_bound: asyncio.TimerHandle | None = None
        self._late = ""
        """The jobs that were left at the end of the drain timeout, in words."""

    def connect(self, *endpoints: str) -> None:
        """Add endpoints of managers or devices before the start; endpoints that are listed already
        are skipped.

        Raises:
            ConfigError: An endpoint is malformed, or the worker has been started.
        """
        if self._machine is not None or self._starting:
            raise ConfigError("the worker has already started; call connect() before the start")
        known = tuple(dict.fromkeys((*self._node.connect, *endpoints)))
        check_endpoints(known, bind=False, security=self._node.sockets.security)
        self._node.connect = known

    # -- handlers ---------------------------------------------------------------------------

    @property
    def on_hang(self) -> str:
        """The reaction to handlers that continue after their jobs were interrupted."""
        return self._on_hang

    def handler(
        self,
        role: str = DEFAULT_ROLE,
        *,
        needs: Mapping[str, int] | None = None,
        retry: Retry | None = None,
    ) -> Callable[[_HandlerT], _HandlerT]:
        """Register the decorated function for a role, before the start.

        Args:
            role: Role of the jobs that the function does.
            needs: Resources that a job of the role takes; the worker must have them.
            retry: Settings that name the errors after which a job is tried again; by default the
                worker's settings.

        Raises:
            ConfigError: The role has a handler already, the worker has started, the function cannot
                be called as a handler, or the worker lacks the resources.
        """

        def register(function: _HandlerT) -> _HandlerT:
            if self._machine is not None or self._starting:
                raise ConfigError(
                    "the worker has already started; register handlers before the start"
                )
            if role in self._handlers:
                raise ConfigError(f"role {role!r} has two handlers; register one for each role")
            for name, amount in (needs or {}).items():
                have = self._settings.resources.get(name, 0)
                if have < amount:
                    raise ConfigError(
                        f"jobs of role {role!r} need {amount} of {name!r}, but this worker has "
                        f"{have}; raise this resource in resources="
                    )
            serve(role, function, _checked(retry))
            self._check_offer((*self._handlers, role))
            self._handlers[role] = function
            if retry is not None:
                self._retries[role] = retry
            return function

        return register

    def _retries_by_role(self) -> dict[str, Retry]:
        usual = {} if self._retry is None else dict.fromkeys(self._handlers, self._retry)
        return usual | self._retries

    def _check_offer(self, roles: Collection[str]) -> None:
        """Check that the roles, resources and headers of this worker fit into a READY."""
        if len(roles) > Limits.ROLES:
            raise ConfigError(f"the worker has {len(roles)} roles; expected at most {Limits.ROLES}")
        for role in roles:
            check_role(role)
        check_offer("roles and resources", (*roles, *self._settings.resources))

    # -- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the pool, connect and begin to serve; ``run`` and ``async with`` call this method.

        Raises:
            ConfigError: There are no handlers, or a process pool cannot import a handler.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The worker was closed.
        """
        self._node.check_open()
        if self._machine is not None or self._starting:
            return
        if not self._handlers:
            raise ConfigError("a worker needs a handler: pass handlers= or use @worker.handler()")
        if any(getattr(handler, "unpickles", False) for handler in self._handlers.values()):
            check_unpickling("a worker", self._node.connect, self._node.sockets.security)
        processes = self._slots if self._pool_kind == "process" else 0
        self._node.check_descriptors(_POOL_DESCRIPTORS + 3 * processes)
        self._starting = True
        settings = attrs.evolve(self._settings, roles=tuple(self._handlers))
        pool = open_pool(
            self._pool_kind,
            self._handlers,
            self._slots,
            self._node.inbox.post,
            self._process_limits,
            max_result=self._node.sockets.transport.payload,
            retries=self._retries_by_role(),
        )
        try:
            if self._pool_kind == "process":
                # Children import the handlers' modules on another thread, so that the loop need not
                # wait.
                await asyncio.to_thread(pool.start)
            else:
                pool.start()
            machine = Machine(settings, len(self._node.connect))
            self._pool, self._machine = pool, machine
            watch = HangWatch(pool, lambda: machine.lanes, self._hang_timeout, self._hung)
            self._hang_watch = watch
            self._process_watch = ProcessWatch(
                pool,
                lambda: machine.lanes,
                lambda: machine.interval,
                machine.beats,
                self._node.address_of,
                BeatChild(self._node.sockets.security) if self._sends_beats else None,
            )
            self._node.start(
                machine,
                executors=watch,
                gather=machine.gather,
                lanes_until=(pool.begins_until, machine.begins_until),
                link_events=True,
                owed=self._owed,
                on_halt=self._halted,
            )
        except BaseException:
            self._starting = False
            self._machine = self._pool = None
            await asyncio.to_thread(pool.close, 0.0)
            raise

    async def run(self, drain_timeout: Duration | None = None) -> None:
        """Serve until the worker is drained, closed or ended by a signal; see :meth:`interrupt`.

        Args:
            drain_timeout: Seconds that jobs in progress have after the first signal. Jobs that run
                longer go to other workers, as after a second signal. None for no limit.

        Raises:
            ConfigError: As for ``start``.
            ClosedError: As for ``start``, or a thread of the worker ended unexpectedly.
            HandlerHung: Interrupted handlers still ran in threads, and ``on_hang`` is not
                ``"report"``.
            Superseded: Another process has this worker's identity.
            TimeoutError: Some jobs were still in progress after ``drain_timeout``.
        """
        if drain_timeout is not None:
            self._drain_timeout = check_seconds("drain_timeout", drain_timeout)
        if self._node.draining:
            self._bound_drain()  # The signal came before this call.
        try:
            await super().run()
        finally:
            if self._drain_bound is not None:
                self._drain_bound.cancel()
        if self._hang is not None:
            raise self._hang
        if self._late:
            raise TimeoutError(self._late)

    async def drain(self, timeout: Duration | None = None) -> None:
        """Accept no new jobs, finish or hand back all jobs, and send BYE. ``run`` then returns.

        Args:
            timeout: Seconds to wait at most. After this time the worker still drains.

        Raises:
            TimeoutError: Some jobs still run after ``timeout`` seconds.
        """
        self._node.serving()
        self._node.drain()
        timeout = in_seconds(timeout)
        if not await self._node.wait_ended(timeout):
            raise TimeoutError(f"jobs still run after {timeout} s; call drain() again, or close()")
        self._node.raise_error()

    async def close(self, timeout: Duration = DRAIN_TIMEOUT) -> None:
        """Drain for at most ``timeout`` seconds, then stop. Idempotent, and bounded in time.

        Jobs that still run after this time are interrupted, in worker processes by force. Jobs that
        end within ``cancel_grace`` (and a second and a half) are handed back at once. Jobs that
        still run in threads are given up. Managers grant all these jobs to other workers. With a
        ``timeout`` of 0 the call does not wait. In a fork of the worker's process the call does
        nothing.
        """
        if self._node.forked:
            return  # The node runs in the parent process.
        timeout = in_seconds(timeout)
        try:
            if self._node.running and timeout > 0:
                self._node.drain()
                if not await self._node.wait_ended(timeout) and self._pool is not None:
                    self._pool.interrupt_all()
                    await self._node.wait_ended(self._patience())
        finally:
            await self._node.stop()
            if self._cleared is None:
                self._cleared = asyncio.create_task(self._close_pool())
            # A second caller waits for the same end. No caller can undo the end.
            await asyncio.shield(self._cleared)

    async def _abort(self) -> None:
        await self.close(0.0)

    def _patience(self) -> float:
        """Return the seconds until interrupted jobs have ended and their managers were notified."""
        grace = self._process_limits.cancel_grace
        grace = CANCEL_GRACE if grace is None else grace
        return grace + (KILL_AFTER + 0.5 if self._pool_kind == "process" else 0.0)

    async def _close_pool(self) -> None:
        pool, watch = self._pool, self._process_watch
        if pool is None:
            return

        def close() -> None:
            try:
                if watch is not None:
                    watch.close()
                pool.close(_POOL_TIMEOUT)
            except Exception:
                # The worker has ended for all other callers. Log the error and continue.
                logger.exception("worker: closing the pool failed")

        # Another thread waits for the worker's threads and children, so that the loop need not
        # wait.
        await aside(close, "worker-pool-close", _POOL_TIMEOUT + 1.0)

    def statistics(self) -> WorkerStatistics:
        """Return a snapshot of the worker's jobs, managers and counters.

        Raises:
            ClosedError: The worker was never started.
        """
        if self._machine is None:
            raise ClosedError("the worker is not started; use run() or a context manager")
        seen = self._with_drops(self._machine.statistics())
        watch = self._hang_watch
        return attrs.evolve(seen, hung=len(watch.hung()) if watch is not None else 0)

    # -- the driver's side ------------------------------------------------------------------

    def _owed(self, link: int) -> bool:
        """Return whether a manager behind a link still owes a reply to jobs, locks or results.

        A manager that closes in good order first sends all these replies.
        """
        machine = self._machine
        assert machine is not None
        statistics = machine.statistics()
        return bool(statistics.unacknowledged) or any(
            row.held or row.locks for row in statistics.managers if row.link == link
        )

    # -- signals ----------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Act as after a signal. The first call drains. The second call stops at once.

        When the worker has drained, all jobs are finished or handed back, and ``run`` returns. Call
        this method on the loop.
        """
        if self._node.draining:
            if self._drain_bound is not None:
                self._drain_bound.cancel()
            logger.warning(
                "worker: stopping at once; the managers give its running jobs to other workers"
            )
            self._node.halted(None)
        else:
            bound = self._drain_timeout
            limit = "" if bound is None else f" for at most {bound:g} s"
            jobs = self._under_way()
            what = f"; waiting{limit} for {jobs}" if jobs else ""
            logger.info("worker: draining%s; a second signal stops the worker at once", what)
            self._node.drain()
            self._bound_drain()

    def _hung(self, jobs: list[HungJob]) -> None:
        """Perform ``on_hang`` for handlers that continue after their jobs were interrupted."""
        if self._on_hang == "report" or not self._node.running:
            return
        error = self._hang = HandlerHung(f"handlers hang: {', '.join(map(str, jobs))}")
        logger.error("worker: %s; stopping when the other jobs have ended", error)
        self._node.drain()
        bound = HANG_TIMEOUT if self._drain_timeout is None else self._drain_timeout
        loop = asyncio.get_running_loop()
        until = loop.time() + bound

        def end() -> None:
            assert self._hang_watch is not None
            if not self._node.running:
                return  # The machine has ended: it has answered the hung jobs before.
            if self._hang_watch.only_hung_left() or loop.time() >= until:
                self._node.halted(None)
            else:
                loop.call_later(0.1, end)

        end()

    def _on_end(self, call: Callable[[Exception | None], None]) -> None:
        """Have ``call`` called on the loop when the machine has ended; before the start."""
        self._ends.append(call)

    def _halted(self, error: Exception | None) -> None:
        for call in self._ends:
            call(error)

    def _bound_drain(self) -> None:
        """Make the worker stop after ``drain_timeout`` seconds."""
        if self._drain_timeout is not None:
            loop = asyncio.get_running_loop()
            self._drain_bound = loop.call_later(self._drain_timeout, self._end_drain)

    def _end_drain(self) -> None:
        """Stop at the end of the drain timeout, although jobs are left."""
        if not self._node.running:
            return
        jobs = self._under_way() or "answers that no manager has acknowledged yet"
        self._late = f"the drain timeout of {self._drain_timeout:g} s ended with {jobs}"
        logger.warning(
            "worker: %s; stopping; the managers give these jobs to other workers", self._late
        )
        self._node.halted(None)

    def _under_way(self) -> str:
        """Name the jobs that have not ended; if there are many, name some."""
        if self._machine is None:
            return ""
        counts = self._machine.statistics()
        if not counts.held:
            return ""
        labels = {
            row.identity: printable(row.label) or named(row.identity) for row in counts.managers
        }
        jobs = [
            f"job {id} (role {lane.kind.role!r}) of {labels.get(lane.held.manager, 'a manager')}"
            for lane in self._machine.lanes
            for id in lane.ids
        ]
        shown = ", ".join(jobs[:_SHOWN]) + (", …" if len(jobs) > _SHOWN else "")
        return counted(counts.held, "job") + (f": {shown}" if shown else "")


def _checked(retry: object) -> Retry | None:
    if retry is None or isinstance(retry, Retry):
        return retry
    raise ConfigError(f"retry is {retry!r}; expected a wmp.Retry")


def _draw_key() -> int:
    """Return a number that nobody can guess (WMP-9.17)."""
    return secrets.randbelow(Limits.UINT - 1) + 1


def _resources(slots: int, resources: Mapping[str, int] | None) -> dict[str, int]:
    amounts = check_amounts("resources", resources or {})
    if "slots" in amounts:
        raise ConfigError("resources names slots; use the argument slots= instead")
    return {"slots": check_count("slots", slots, 1), **amounts}
