# Twin of wmp/aio/worker.py; written by specs/build_blocking.py.
"""The worker for code without an event loop: connects to managers and does their jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

from wmp import aio
from wmp.aio.worker import DRAIN_TIMEOUT, HANG_TIMEOUT, _HandlerT
from wmp.blocking.node import BlockingServer
from wmp.core.worker.statistics import WorkerStatistics
from wmp.duration import Duration
from wmp.message import DEFAULT_ROLE
from wmp.retry import Retry
from wmp.runtime.common.journal import Journal
from wmp.runtime.executors import CANCEL_GRACE
from wmp.runtime.executors.handlers import Handler
from wmp.runtime.sockets.security import Security
from wmp.runtime.sockets.socket_settings import Context
from wmp.runtime.sockets.transport import Transport


class Worker(BlockingServer[aio.Worker]):
    """Does jobs for every manager to which the worker connects.

    ``worker.run()`` serves until the worker is drained. With ``with`` the worker serves
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
        inner = aio.Worker(
            *connect,
            handlers=handlers,
            slots=slots,
            resources=resources,
            pool=pool,
            max_jobs_per_child=max_jobs_per_child,
            memory_per_child=memory_per_child,
            cancel_grace=cancel_grace,
            on_hang=on_hang,
            hang_timeout=hang_timeout,
            beats=beats,
            retry=retry,
            identity=identity,
            label=label,
            hold=hold,
            window=window,
            ping=ping,
            security=security,
            context=context,
            transport=transport,
            journal=journal,
            **settings,
        )
        super().__init__("worker", inner, inner.close)

    def connect(self, *endpoints: str) -> None:
        """Add endpoints of managers or devices before the start; endpoints that are listed already
        are skipped.

        Raises:
            ConfigError: An endpoint is malformed, or the worker has been started.
        """
        self._look(lambda: self._inner.connect(*endpoints))

    @property
    def on_hang(self) -> str:
        """The reaction to handlers that continue after their jobs were interrupted."""
        return self._look(lambda: self._inner.on_hang)

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
        return self._look(lambda: self._inner.handler(role, needs=needs, retry=retry))

    def start(self) -> None:
        """Start the pool, connect and begin to serve; ``run`` and ``with`` call this method.

        Raises:
            ConfigError: There are no handlers, or a process pool cannot import a handler.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The worker was closed.
        """
        super().start()

    def run(self, drain_timeout: Duration | None = None) -> None:
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
        self._serve(lambda: self._inner.run(drain_timeout))

    def drain(self, timeout: Duration | None = None) -> None:
        """Accept no new jobs, finish or hand back all jobs, and send BYE. ``run`` then returns.

        Args:
            timeout: Seconds to wait at most. After this time the worker still drains.

        Raises:
            TimeoutError: Some jobs still run after ``timeout`` seconds.
        """
        self._portal.call(self._inner.drain(timeout))

    def close(self, timeout: Duration = DRAIN_TIMEOUT) -> None:
        """Drain for at most ``timeout`` seconds, then stop. Idempotent, and bounded in time.

        Jobs that still run after this time are interrupted, in worker processes by force. Jobs that
        end within ``cancel_grace`` (and a second and a half) are handed back at once. Jobs that
        still run in threads are given up. Managers grant all these jobs to other workers. With a
        ``timeout`` of 0 the call does not wait. In a fork of the worker's process the call does
        nothing.
        """
        self._shut(timeout)

    def statistics(self) -> WorkerStatistics:
        """Return a snapshot of the worker's jobs, managers and counters.

        Raises:
            ClosedError: The worker was never started.
        """
        return self._look(self._inner.statistics)

    def interrupt(self) -> None:
        """Act as after a signal. The first call drains. The second call stops at once.

        When the worker has drained, all jobs are finished or handed back, and ``run`` returns. Any
        thread may call this method.
        """
        self._portal.post(self._inner.interrupt)
