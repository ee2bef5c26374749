"""The worker for code without an event loop: connects to managers and does their jobs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, TypeVar

from wmp import aio
from wmp.aio.worker import DRAIN_TIMEOUT, HANG_TIMEOUT
from wmp.blocking.node import BlockingServer
from wmp.core.worker.statistics import WorkerStatistics
from wmp.message import DEFAULT_ROLE
from wmp.retry import Retry
from wmp.runtime.common.journal import Journal
from wmp.runtime.executors import CANCEL_GRACE
from wmp.runtime.executors.handlers import Handler
from wmp.runtime.sockets.security import Security
from wmp.runtime.sockets.transport import Transport
from wmp.runtime.sockets.zmq_context import Context

_HandlerT = TypeVar("_HandlerT", bound=Handler)


class Worker(BlockingServer[aio.Worker]):
    """Does jobs for every manager it connects to; see :class:`wmp.aio.Worker`.

    ``run()`` serves until the worker is drained. With ``with`` the worker serves in the background.

    Args:
        connect: Endpoints of managers or devices.
        handlers: Handlers by role, or one callable for the role ``default``.
        slots: Jobs done at once.
        resources: Amounts of resources besides slots, by name.
        pool: ``"thread"``; ``"process"`` for handlers that compute; ``"inline"`` for tiny ones.
        max_jobs_per_child: Jobs that a worker process begins before another takes its place.
        memory_per_child: Bytes of data that a worker process may have.
        cancel_grace: Seconds that a cancelled job in a worker process may still run.
        on_hang: ``"report"``, ``"stop"`` or ``"replace"``: the reaction to a handler in a thread
            that still runs ``hang_timeout`` after its job was interrupted. See
            :class:`wmp.aio.Worker`.
        hang_timeout: Seconds.
        retry: Settings for trying jobs again; by default no error is tried again.
        identity: Stable name on the wire; random by default.
        label: Name for people; host and process by default.
        hold: Seconds that a manager may keep a request for jobs.
        window: Jobs taken beyond slots; by default as many as keep the slots busy.
        ping: Seconds between signs of life.
        security: CURVE keys, with ``server_key``.
        context: A ``zmq.Context`` to share: inproc needs one context at both ends.
        transport: Options of the sockets.
        journal: Folder for the files of the worker's journal, or a
            :class:`~wmp.runtime.common.journal.Journal`. ``wmp journal`` reads these files.
        settings: Other fields of :class:`~wmp.core.protocol.settings.WorkerSettings`.
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
        cancel_grace: float | None = CANCEL_GRACE,
        on_hang: str = "report",
        hang_timeout: float = HANG_TIMEOUT,
        retry: Retry | None = None,
        identity: bytes | str | None = None,
        label: str | None = None,
        hold: float = 5.0,
        window: int | None = None,
        ping: float = 1.0,
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

    @property
    def on_hang(self) -> str:
        """The reaction to handlers that continue after their jobs were interrupted."""
        return self._inner.on_hang

    def handler(
        self,
        role: str = DEFAULT_ROLE,
        *,
        needs: Mapping[str, int] | None = None,
        retry: Retry | None = None,
    ) -> Callable[[_HandlerT], _HandlerT]:
        """Register the decorated function for a role; see :meth:`wmp.aio.Worker.handler`."""
        return self._inner.handler(role, needs=needs, retry=retry)

    def connect(self, *endpoints: str) -> None:
        """Add endpoints before the start; see :meth:`wmp.aio.Worker.connect`."""
        self._inner.connect(*endpoints)

    def run(self, drain_timeout: float | None = None) -> None:
        """Serve until the worker is asked to end; see :meth:`wmp.aio.Worker.run`."""
        self._serve(functools.partial(self._inner.run, drain_timeout))

    def drain(self, timeout: float | None = None) -> None:
        """Finish all jobs and send BYE; ``run`` then returns. See :meth:`wmp.aio.Worker.drain`."""
        self._portal.call(self._inner.drain(timeout))

    def close(self, timeout: float = DRAIN_TIMEOUT) -> None:
        """Drain for ``timeout`` seconds, then stop; see :meth:`wmp.aio.Worker.close`."""
        self._shut(timeout)

    def statistics(self) -> WorkerStatistics:
        """Return a snapshot of the worker's jobs, managers and counters."""
        return self._look(self._inner.statistics)
