"""A manager with worker processes of its own on this machine."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from typing import Any, Final

import zmq

from wmp.blocking.manager import Manager
from wmp.blocking.worker import Worker
from wmp.calls.handlers import PICKLED_ROLE, PickledCalls
from wmp.duration import Duration
from wmp.errors import WorkersEnded
from wmp.runtime.executors import CANCEL_GRACE
from wmp.runtime.executors.handlers import Handler, as_handlers

_MAX_SILENCE: Final = 60.0
"""Seconds of silence after which the worker is given up. The worker is in the manager's process, so
it is silent only while the whole process is stopped or busy.
"""


def local(
    workers: int | None = None,
    handlers: Mapping[str, Handler] | Handler | str | None = None,
    *,
    codec: str = "cbor",
    cancel_grace: Duration | None = CANCEL_GRACE,
    max_jobs_per_child: int | None = None,
    memory_per_child: int | None = None,
    **settings: Any,
) -> LocalManager:
    """Return a manager with worker processes of its own on this machine; use it with ``with``.

    ::

        with wmp.local(workers=4) as manager:
            print(list(wmp.Executor(manager).map(abs, [-1, -2])))

    The processes start with the manager, and end with it or with this process. Only this process
    can reach them.

    Args:
        workers: Number of processes; by default one for each core that this process may use.
        handlers: As for :class:`wmp.Worker`, or the name of a module whose tasks and functions are
            served. An executor of this manager can call any function.
        codec: As for :class:`wmp.Manager`.
        cancel_grace: As for :class:`wmp.Worker`.
        max_jobs_per_child: As for :class:`wmp.Worker`.
        memory_per_child: As for :class:`wmp.Worker`.
        settings: Other arguments of :class:`wmp.Manager`.

    Raises:
        ConfigError: A setting is wrong.
    """
    if isinstance(handlers, str):
        # An executor serves no tasks, and starts sooner without their modules.
        from wmp.calls.served import handlers_of

        by_role = handlers_of(handlers, functions=True)
    else:
        by_role = as_handlers(handlers)
    return LocalManager(
        cores() if workers is None else workers,
        {PICKLED_ROLE: PickledCalls(), **by_role},
        codec=codec,
        limits={
            "cancel_grace": cancel_grace,
            "max_jobs_per_child": max_jobs_per_child,
            "memory_per_child": memory_per_child,
        },
        **settings,
    )


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class LocalManager(Manager):
    """A manager whose only worker is in this process and runs its jobs in worker processes.

    Manager and worker use an inproc address, which no other process can reach.

    Args:
        workers: Number of worker processes.
        handlers: Handlers by role.
        codec: As for :class:`wmp.Manager`.
        limits: Arguments of the worker.
        hidden: Whether tasks do not find this manager by themselves, because it belongs to an
            executor.
        settings: Other arguments of the manager.
    """

    def __init__(
        self,
        workers: int,
        handlers: Mapping[str, Handler],
        *,
        codec: str = "cbor",
        limits: Mapping[str, Any] | None = None,
        hidden: bool = False,
        **settings: Any,
    ) -> None:
        self._hidden = hidden
        address = f"inproc://wmp-local-{secrets.token_hex(8)}"
        self._own_context = zmq.Context()
        try:
            super().__init__(
                address,
                codec=codec,
                context=self._own_context,
                **{"max_silence": _MAX_SILENCE, **settings},
            )
            self._worker = Worker(
                address,
                handlers=handlers,
                slots=workers,
                pool="process",
                context=self._own_context,
                **(limits or {}),
            )
        except BaseException:
            self._own_context.term()
            raise
        self.workers = workers
        self._ending = False
        self._worker._inner._on_end(self._worker_ended)

    def start(self) -> None:
        """Start the manager and its worker processes. Idempotent.

        Raises:
            ConfigError: The worker processes cannot import a handler.
            ClosedError: The manager was closed.
        """
        super().start()
        try:
            self._worker.start()
        except BaseException:
            self._shut(0.0)
            raise

    def _worker_ended(self, error: Exception | None) -> None:
        """End all jobs, on the worker's thread: no other worker can reach this manager."""
        if self._ending:
            return
        ended = WorkersEnded(
            f"its worker has ended: {type(error).__name__}: {error}; make a new one"
            if error is not None
            else "its worker has ended; make a new one"
        )
        self._portal.post(lambda: self._inner.node.halted(ended))

    def _shut(self, timeout: Duration) -> None:
        self._ending = True
        try:
            super()._shut(timeout)
        finally:
            self._end_worker()

    def _end_worker(self) -> None:
        self._worker._shut(0.0)
        if not self._own_context.closed and not self._portal.opened:
            self._own_context.destroy(linger=0)
