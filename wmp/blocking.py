"""Manager, Worker and Device for code without an event loop.

The same names as :mod:`wmp.aio`, which does the work on a thread of its own; there is no logic
here but waiting. Jobs are ``concurrent.futures`` futures.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

from wmp import aio
from wmp.actions import End
from wmp.aio.manager import CLOSE_TIMEOUT, IN_FLIGHT
from wmp.aio.worker import DRAIN_TIMEOUT
from wmp.core.device import DeviceStatistics
from wmp.core.manager import ManagerStatistics
from wmp.core.policy import Policy
from wmp.core.worker import WorkerStatistics
from wmp.errors import ClosedError, DecodeError, JobCancelled, JobFailed, QueueFull
from wmp.message import DEFAULT_ROLE, Frame, Limits
from wmp.runtime.handlers import Handler
from wmp.runtime.ledger import Ledger, Owner, Status, error_of, pack, value_of
from wmp.runtime.pools import CANCEL_GRACE
from wmp.runtime.portal import Portal
from wmp.runtime.security import Security
from wmp.runtime.signals import caught_signals
from wmp.runtime.sockets import Context, Transport

__all__ = ["Device", "Job", "Manager", "Worker"]

_Node = TypeVar("_Node", aio.Manager, aio.Worker, aio.Device)
_HandlerT = TypeVar("_HandlerT", bound=Handler)
_T = TypeVar("_T")

_open: weakref.WeakSet[_Blocking[Any]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    # Who forgot to close ends with the interpreter: at once, and without a word.
    # Workers first: they say goodbye, and would miss their managers.
    # In a process that was forked from theirs they do not run, and _shut knows.
    for node in sorted(_open, key=lambda node: isinstance(node, Manager)):
        with contextlib.suppress(Exception):
            node._shut(0.0)


class Job(concurrent.futures.Future[Any]):
    """A submitted job: a future that asks before it is cancelled.

    Callbacks run on a thread of their own, one after the other.

    Attributes:
        id: The job's number within its manager, from 1.
    """

    def __init__(self, ledger: Ledger, codec: str, portal: Portal) -> None:
        super().__init__()
        self.id = 0
        self._ledger = ledger
        self._codec = codec
        self._portal = portal
        self._status: Status | None = None
        self._status_callbacks: tuple[Callable[[Status], object], ...] = ()

    def result(self, timeout: float | None = None) -> Any:
        """Return the result; wait for it, for ``timeout`` seconds at most.

        Raises:
            JobError: The job did not end well.
            ClosedError: The manager closed first.
            TimeoutError: It had not ended by then.
            RuntimeError: Called on the event loop's thread, which would wait for itself.
        """
        if not self.done():
            self._portal.check_thread()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, None for a job that ended well; wait as ``result`` does."""
        if not self.done():
            self._portal.check_thread()
        return super().exception(timeout)

    def cancel(self) -> bool:
        """Ask for the job to be cancelled: CANCEL is really sent to whoever has it.

        Wait for the job after that: it ends with the definite answer, ``JobCancelled`` or the
        result that was faster.

        Returns:
            False when the job had ended already.
        """
        return not self.done() and self._ledger.cancel([self.id])

    def cancelled(self) -> bool:
        """Tell whether the job has ended by cancellation."""
        return self.done() and isinstance(super().exception(), JobCancelled)

    def status(self) -> Status | None:
        """Return what the handler reported last, None before its first report."""
        return self._status

    def add_status_callback(self, fn: Callable[[Status], object]) -> None:
        """Have ``fn(status)`` called at every report of the handler."""
        self._status_callbacks += (fn,)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Have ``fn(job)`` called when the job has ended."""
        # Futures call back on the thread that ends them, and that is the driver's.
        super().add_done_callback(lambda job: self._portal.call_user(fn, job))

    # -- the driver's side ------------------------------------------------------------------

    def given(self, first: int, count: int) -> None:
        """Learn the job's number."""
        self.id = first

    def settle(self, id: int, end: End, payload: Frame, attempts: int) -> None:
        """Learn how the job ended."""
        if end is not End.OK:
            self.set_exception(error_of(id, end, payload, attempts))
            return
        try:
            value = value_of(payload, self._codec)
        except DecodeError as error:
            self.set_exception(
                JobFailed("DecodeError", f"the result is broken: {error}", job_id=id)
            )
        else:
            self.set_result(value)

    def fail(self, id: int, error: Exception) -> None:
        """Learn that the manager ended first."""
        self.set_exception(error)

    def progress(self, id: int, status: Status) -> None:
        """Learn what the handler reported."""
        self._status = status
        for fn in self._status_callbacks:
            self._portal.call_user(fn, status)


def _joined(owner: Owner, on_status: Callable[[Status], object] | None) -> Job:
    """The job in progress under a key, which one more submitter now waits for."""
    assert isinstance(owner, Job), "keys are given to single jobs only"
    if on_status is not None:
        owner.add_status_callback(on_status)
    return owner


class _Blocking(Generic[_Node]):
    """An asyncio node on the loop of a portal."""

    def __init__(
        self, name: str, inner: _Node, close: Callable[[float], Coroutine[Any, Any, None]]
    ) -> None:
        self._inner: _Node = inner
        self._close_inner = close
        self._portal = Portal(name)

    def start(self) -> None:
        """Begin to serve; ``with`` and ``run`` do it. Idempotent."""
        self._portal.open()
        _open.add(self)
        try:
            self._portal.call(self._inner.start())
        except BaseException:
            self._shut(0.0)
            raise

    def _shut(self, timeout: float) -> None:
        self._portal.check_thread()
        if not self._portal.opened:
            self._portal.close()
            return
        _open.discard(self)
        try:
            self._portal.call(self._close_inner(timeout))
        except ClosedError:
            pass  # another thread was faster
        except BaseException:
            # Ctrl-C: nothing is waited for any more, but the sockets must not stay.
            with contextlib.suppress(ClosedError):
                self._portal.call(self._close_inner(0.0))
            raise
        finally:
            self._portal.close()

    def _look(self, look: Callable[[], _T]) -> _T:
        """Look at the machine: on the loop, while there is one that changes it."""
        return self._portal.call(_on_loop(look)) if self._portal.opened else look()

    @property
    def identity(self) -> bytes:
        """Name of this node on the wire."""
        return self._inner.identity


class Manager(_Blocking[aio.Manager]):
    """Holds jobs and gives them to the workers that connect to it; see :class:`wmp.aio.Manager`.

    Use it as ``with``.

    Args:
        bind: Endpoints to listen on; by default a free port of loopback.
        identity: Stable name on the wire; random by default.
        label: What people call it; host and process by default.
        codec: ``"bytes"``, or ``"cbor"`` for values (numbers, text, bytes, lists, dicts).
        policy: Who is given work first: a name of :mod:`wmp.balance` or a callable.
        max_jobs: Jobs held at most; ``submit`` waits above it, ``submit_nowait`` raises.
        retries: How many dead workers a job survives.
        expire: Seconds of silence after which a worker is given up.
        security: CURVE keys; without them only local endpoints may be bound.
        context: A ``zmq.Context`` to share: inproc needs the same one at both ends.
        transport: Options of the sockets.
        settings: Other fields of :class:`~wmp.core.settings.ManagerSettings`.
    """

    def __init__(
        self,
        *bind: str,
        identity: bytes | str | None = None,
        label: str | None = None,
        codec: str = "bytes",
        policy: str | Policy = "least_recently_used",
        max_jobs: int = 1_000_000,
        retries: int = 3,
        expire: float = 6.0,
        security: Security | None = None,
        context: Context | None = None,
        transport: Transport | None = None,
        **settings: Any,
    ) -> None:
        inner = aio.Manager(
            *bind,
            identity=identity,
            label=label,
            codec=codec,
            policy=policy,
            max_jobs=max_jobs,
            retries=retries,
            expire=expire,
            security=security,
            context=context,
            transport=transport,
            **settings,
        )
        super().__init__("manager", inner, inner.close)

    def __enter__(self) -> Manager:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(CLOSE_TIMEOUT if error is None else 0.0)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Where workers can connect, ports filled in; empty before the start."""
        return self._inner.endpoints

    def drain(self, timeout: float | None = None) -> None:
        """Take no more jobs and wait until all ended; see :meth:`wmp.aio.Manager.drain`."""
        self._portal.call(self._inner.drain(timeout))

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Drain for ``timeout`` seconds, then stop; see :meth:`wmp.aio.Manager.close`."""
        self._shut(timeout)

    def submit(
        self,
        payload: Any,
        *,
        role: str = DEFAULT_ROLE,
        needs: Mapping[str, int] | None = None,
        priority: int = 0,
        timeout: float | None = None,
        retries: int | None = None,
        on_status: Callable[[Status], object] | None = None,
        key: str | None = None,
    ) -> Job:
        """Hand in a job; wait while the manager is full. See :meth:`wmp.aio.Manager.submit`."""
        inner = self._inner
        order = inner._order(role, needs, priority, timeout, retries, on_status, key)
        job, data = self._job(on_status), pack(payload, inner.codec, inner._payload_limit)
        while True:
            try:
                owner = inner._ledger.add(job, (data,), order, key=key)
            except QueueFull:
                self._portal.check_thread()
                self._room()
            else:
                return job if owner is job else _joined(owner, on_status)

    def submit_nowait(
        self,
        payload: Any,
        *,
        role: str = DEFAULT_ROLE,
        needs: Mapping[str, int] | None = None,
        priority: int = 0,
        timeout: float | None = None,
        retries: int | None = None,
        on_status: Callable[[Status], object] | None = None,
        key: str | None = None,
    ) -> Job:
        """Hand in a job or raise QueueFull. See :meth:`wmp.aio.Manager.submit_nowait`."""
        inner = self._inner
        order = inner._order(role, needs, priority, timeout, retries, on_status, key)
        job, data = self._job(on_status), pack(payload, inner.codec, inner._payload_limit)
        owner = inner._ledger.add(job, (data,), order, key=key)
        return job if owner is job else _joined(owner, on_status)

    def map(
        self,
        payloads: Iterable[Any],
        *,
        role: str = DEFAULT_ROLE,
        needs: Mapping[str, int] | None = None,
        priority: int = 0,
        timeout: float | None = None,
        retries: int | None = None,
        in_flight: int = IN_FLIGHT,
    ) -> Iterator[Any]:
        """Yield the result of every payload, in their order. See :meth:`wmp.aio.Manager.map`."""
        order = self._inner._order(role, needs, priority, timeout, retries)
        signal = threading.Event()
        window = self._inner._window(payloads, order, in_flight, signal.set)
        try:
            while not window.finished:
                while window.fill():
                    if window.ready():
                        break
                taken = 0
                while window.ready() and taken < window.BURST:
                    yield window.take()
                    taken += 1
                if taken:
                    continue
                self._portal.check_thread()
                if window.starved:
                    self._room()
                    continue
                signal.clear()
                if window.waits:
                    signal.wait()
        finally:
            window.abandon()

    def as_completed(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Yield jobs as they end, the earliest first."""
        self._portal.check_thread()
        yield from concurrent.futures.as_completed(jobs)  # type: ignore[misc]

    def wait_for_workers(
        self, count: int = 1, *, role: str | None = None, timeout: float | None = None
    ) -> None:
        """Wait until workers are there; see :meth:`wmp.aio.Manager.wait_for_workers`."""
        self._portal.call(self._inner.wait_for_workers(count, role=role, timeout=timeout))

    def statistics(self) -> ManagerStatistics:
        """Return a snapshot of what the manager holds and has done."""
        return self._look(self._inner.statistics)

    def _job(self, on_status: Callable[[Status], object] | None) -> Job:
        job = Job(self._inner._ledger, self._inner.codec, self._portal)
        if on_status is not None:
            job.add_status_callback(on_status)
        return job

    def _room(self) -> None:
        """Wait until there may be room; who is woken and adds nothing passes it on."""
        signal = threading.Event()
        wake = signal.set
        self._inner._ledger.when_room(wake)
        try:
            signal.wait()
        except BaseException:
            self._inner._ledger.forget_waiter(wake)
            raise


class Worker(_Blocking[aio.Worker]):
    """Does jobs for every manager it connects to; see :class:`wmp.aio.Worker`.

    ``run()`` serves until it is drained; as ``with`` it serves in the background.

    Args:
        connect: Endpoints of managers or devices.
        handlers: Role to handler, or one callable for the role ``default``.
        slots: Jobs done at once.
        resources: What there is beside slots: name to amount.
        pool: ``"thread"``; ``"process"`` for handlers that compute; ``"inline"`` for tiny ones.
        max_jobs_per_child: Jobs that a worker process begins before another takes its place.
        memory_per_child: Bytes of data that a worker process may have.
        cancel_grace: Seconds that a cancelled job in a worker process may go on.
        identity: Stable name on the wire; random by default.
        label: What people call it; host and process by default.
        hold: Seconds that a manager may keep a request for jobs.
        window: Jobs taken beyond slots; by default as many as keep the slots busy.
        ping: Seconds between signs of life.
        security: CURVE keys, with ``server_key``.
        context: A ``zmq.Context`` to share: inproc needs the same one at both ends.
        transport: Options of the sockets.
        settings: Other fields of :class:`~wmp.core.settings.WorkerSettings`.
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
        identity: bytes | str | None = None,
        label: str | None = None,
        hold: float = 5.0,
        window: int | None = None,
        ping: float = 1.0,
        security: Security | None = None,
        context: Context | None = None,
        transport: Transport | None = None,
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
            identity=identity,
            label=label,
            hold=hold,
            window=window,
            ping=ping,
            security=security,
            context=context,
            transport=transport,
            **settings,
        )
        super().__init__("worker", inner, inner.close)

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(DRAIN_TIMEOUT if error is None else 0.0)

    def handler(
        self, role: str = DEFAULT_ROLE, *, needs: Mapping[str, int] | None = None
    ) -> Callable[[_HandlerT], _HandlerT]:
        """Register the decorated function for a role; see :meth:`wmp.aio.Worker.handler`."""
        return self._inner.handler(role, needs=needs)

    def connect(self, *endpoints: str) -> None:
        """Add endpoints before the start; see :meth:`wmp.aio.Worker.connect`."""
        self._inner.connect(*endpoints)

    def run(self) -> None:
        """Serve until drained or closed; see :meth:`wmp.aio.Worker.run`."""
        # The loop's thread cannot catch signals: that is for this one, if it is the main thread.
        with caught_signals(lambda: self._portal.post(self._inner.interrupt)):
            self.start()
            try:
                self._portal.call(self._inner.run())
            finally:
                self._shut(0.0)

    def interrupt(self) -> None:
        """Do what a signal asks for: the first call drains, the second stops at once."""
        self._portal.post(self._inner.interrupt)

    def drain(self, timeout: float | None = None) -> None:
        """Finish and say goodbye, ``run`` then returns; see :meth:`wmp.aio.Worker.drain`."""
        self._portal.call(self._inner.drain(timeout))

    def close(self, timeout: float = DRAIN_TIMEOUT) -> None:
        """Drain for ``timeout`` seconds, then stop; see :meth:`wmp.aio.Worker.close`."""
        self._shut(timeout)

    def statistics(self) -> WorkerStatistics:
        """Return a snapshot of what the worker holds and has done."""
        return self._look(self._inner.statistics)


class Device(_Blocking[aio.Device]):
    """Passes messages on between workers and managers; see :class:`wmp.aio.Device`.

    ``run()`` serves until it is ended; as ``with`` it serves in the background.

    Args:
        bind: Endpoints for workers and lower devices.
        connect: Endpoints of managers and upper devices.
        identity: Stable name on the wire; random by default.
        label: What people call it; host and process by default.
        max_hops: Devices that a message may pass.
        security: CURVE keys, for both sides.
        context: A ``zmq.Context`` to share: inproc needs the same one at both ends.
        transport: Options of the sockets.
    """

    def __init__(
        self,
        *,
        bind: str | Sequence[str],
        connect: str | Sequence[str],
        identity: bytes | str | None = None,
        label: str | None = None,
        max_hops: int = Limits.HOPS,
        security: Security | None = None,
        context: Context | None = None,
        transport: Transport | None = None,
    ) -> None:
        inner = aio.Device(
            bind=bind,
            connect=connect,
            identity=identity,
            label=label,
            max_hops=max_hops,
            security=security,
            context=context,
            transport=transport,
        )
        super().__init__("device", inner, lambda timeout: inner.close())

    def __enter__(self) -> Device:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Where workers can connect, ports filled in; empty before the start."""
        return self._inner.endpoints

    def run(self) -> None:
        """Pass on until closed; see :meth:`wmp.aio.Device.run`."""
        with caught_signals(lambda: self._portal.post(self._inner.interrupt)):
            self.start()
            try:
                self._portal.call(self._inner.run())
            finally:
                self._shut(0.0)

    def interrupt(self) -> None:
        """Do what a signal asks for: end."""
        self._portal.post(self._inner.interrupt)

    def close(self) -> None:
        """Stop. Idempotent, and bounded in time."""
        self._shut(0.0)

    def statistics(self) -> DeviceStatistics:
        """Return a snapshot of what was passed on and dropped."""
        return self._look(self._inner.statistics)


async def _on_loop(look: Callable[[], _T]) -> _T:
    return look()
