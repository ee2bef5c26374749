"""An executor of ``concurrent.futures`` whose calls are jobs."""

from __future__ import annotations

import _thread
import concurrent.futures
import contextlib
import functools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from multiprocessing.context import BaseContext
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar, Unpack, cast

import attrs

from wmp.blocking.manager import Manager
from wmp.calls.call import Call, PickledCall
from wmp.calls.call_map import BufferedCalls, Row, columns_of, results_of
from wmp.calls.handlers import PICKLED_ROLE, PickledCalls, module_role, path_of
from wmp.calls.local import LocalManager, cores
from wmp.calls.pickles import pack_call, pickle_value
from wmp.duration import Duration, in_seconds
from wmp.errors import ClosedError, ConfigError, InitializerFailed
from wmp.runtime.codecs.payload_codecs import pack
from wmp.runtime.common.checks import check_count
from wmp.runtime.driver.inbox import JobTerms
from wmp.runtime.sockets.endpoints import check_unpickling
from wmp.runtime.submission.submit_options import (
    CALL_OPTIONS,
    CallOptions,
    JobOptions,
    shows_options,
    unknown_option,
)

_P = ParamSpec("_P")
_T = TypeVar("_T")

_Function = bytes | tuple[str, str]
"""How a job names its function: a pickle, or a module and a name."""

_GRACE: Final = 0.1
"""Seconds that a call of an executor's own process may continue after it was stopped. A function
that knows nothing of jobs cannot react to a flag."""

_AHEAD: Final = 0.02
"""Seconds of work that the worker has in advance. These calls cannot be cancelled."""

_CANCELLED: Final = 512
"""Number of calls that the manager cancels at a time. It does nothing else meanwhile."""

_PAUSE: Final = 0.1
"""Seconds between two tries of ``shutdown`` to cancel calls."""

_VALUES: Final = ("bytes", "text")
"""Codecs whose payloads are not arrays."""

_open: weakref.WeakSet[Executor] = weakref.WeakSet()
_exited = False


def _at_exit() -> None:
    """Finish the pending calls before the interpreter ends, as the library of Python does."""
    global _exited
    _exited = True
    for executor in list(_open):
        # The calls at the workers of a manager may wait for a worker, and end with the manager.
        if executor._own is not None:
            with contextlib.suppress(Exception):
                executor.shutdown()


# ``atexit`` is too late: then Python 3.12 and newer start no thread, and nodes have ended.
# The executors of Python use the same function. It calls the newest entry first.
_register: Callable[[Callable[[], None]], object] = threading._register_atexit  # type: ignore[attr-defined]
_register(_at_exit)


class Executor(concurrent.futures.Executor):
    """Calls functions at workers: an executor of ``concurrent.futures``.

    ::

        with wmp.Executor(workers=4) as executor:
            print(list(executor.map(abs, [-1, -2])))

    ``Executor(workers=4)`` starts four worker processes on this machine, which end with the
    executor or with this process. It calls any function: functions of modules, and with the extra
    ``pickle`` also lambdas, closures and functions of the main program.

    ``Executor(manager)`` uses the workers of a manager. It calls functions by import path: public
    functions that a worker serves (``wmp worker app.work --functions``). Arguments and results are
    values of the manager's codec, and an exception arrives as ``JobFailed``.
    With ``pickle=True`` it calls any function, at workers that were started with ``--pickle``.

    ``submit`` returns a future that is a :class:`wmp.Job` too. A call whose worker process died
    ends with ``WorkerLost``, which is a ``BrokenExecutor``. The executor continues to work.

    Args:
        manager: A manager that is open. The executor does not close the manager.
        workers: Number of worker processes; by default one for each core that this process may use.
        pickle: Whether calls are pickled. Then the workers can run any code here, and this process
            any code there.
        initializer: Called in each worker process before its first call; only without a manager.
        initargs: Arguments of the initializer.
        max_workers: Another name of ``workers``, that of ``ProcessPoolExecutor``.
        max_tasks_per_child: Number of calls after which another process takes the place of a worker
            process; only without a manager.
        mp_context: Accepted if its processes are started by ``spawn``, as worker processes are.
        options: The options of each call, as described at :class:`wmp.SubmitOptions`, but
            ``role``, ``stored``, ``result_ttl`` and the options of a single job.
            ``max_worker_losses`` is by default that of the manager; 0 without a manager.

    Raises:
        TypeError: An option is unknown, or is none of a call.
        ConfigError: An argument is wrong.
    """

    @shows_options(CallOptions)
    def __init__(
        self,
        manager: Manager | None = None,
        *,
        workers: int | None = None,
        pickle: bool = False,
        initializer: Callable[..., object] | None = None,
        initargs: Sequence[Any] = (),
        max_workers: int | None = None,
        max_tasks_per_child: int | None = None,
        mp_context: BaseContext | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        if unfit := sorted(options.keys() - CALL_OPTIONS):
            raise TypeError(
                unknown_option(unfit)
                or f"{unfit[0]!r} is not an option of an executor; use a manager's method submit"
            )
        if max_workers is not None:
            if workers is not None:
                raise ConfigError("workers and max_workers are the same; leave out one of them")
            workers = max_workers
        _check_context(mp_context)
        self._lock = threading.Lock()
        self._calls: set[Call[Any]] = set()
        self._closed = False
        self._cancels = False
        """Whether ``shutdown`` cancels the calls that no worker has."""
        self._broken: InitializerFailed | None = None
        self._ending: threading.Thread | None = None
        self._own: LocalManager | None = None
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if manager is None:
            count = cores() if workers is None else check_count("workers", workers, 1)
            first = None
            if initializer is not None:
                first = pickle_value((initializer, tuple(initargs)))
            handlers = {PICKLED_ROLE: PickledCalls(first)}
            limits: dict[str, Any] = {"cancel_grace": _GRACE, "window_time": _AHEAD}
            if max_tasks_per_child is not None:
                limits["max_jobs_per_child"] = check_count(
                    "max_tasks_per_child", max_tasks_per_child, 1
                )
            losses = options.get("max_worker_losses") or 0
            self._own = LocalManager(
                count, handlers, limits=limits, hidden=True, max_worker_losses=losses
            )
            self._own.start()
            manager = self._own
        else:
            given: object = manager
            if not isinstance(given, Manager):
                raise ConfigError(
                    f"the manager of an executor is {manager!r}; expected a wmp.Manager, or "
                    "workers=N for worker processes of its own"
                )
            own = {
                "workers": workers,
                "initializer": initializer,
                "max_tasks_per_child": max_tasks_per_child,
                "mp_context": mp_context,
            }
            for name, value in own.items():
                if value is not None:
                    raise ConfigError(
                        f"{name}= is for an executor with worker processes of its own; leave out "
                        f"{name}= or the manager"
                    )
            if pickle:
                inner = manager._inner
                check_unpickling("an executor", inner.node.bind, inner.node.sockets.security)
        self._manager = manager
        self._pickles = pickle or isinstance(manager, LocalManager)
        if not self._pickles and manager._inner.codec in _VALUES:
            raise ConfigError(
                f"the manager of an executor has the codec {manager._inner.codec!r}, which carries "
                "no arguments; make the manager with codec='cbor', or pass pickle=True"
            )
        self._options = cast("JobOptions", {**options, "stored": False})
        self._terms: dict[str, JobTerms] = {}
        _open.add(self)

    @property
    def closed(self) -> bool:
        """Whether the executor was shut down."""
        return self._closed

    def __repr__(self) -> str:
        return f"<Executor {'shut down' if self._closed else 'open'}, {len(self._calls)} calls>"

    # -- calls ------------------------------------------------------------------------------

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Call[_T]:
        """Call ``fn(*args, **kwargs)`` at a worker; return the future of the call.

        Raises:
            TypeError: The function or an argument cannot be sent to a worker.
            RuntimeError: The executor was shut down.
            BrokenExecutor: The initializer raised an error, or ended its process; or the worker of
                the executor has ended (``WorkersEnded``).
        """
        return self._submit_row(self._sent(fn), args, kwargs)

    def map(
        self,
        fn: Callable[..., _T],
        *iterables: Iterable[Any],
        timeout: Duration | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[_T]:
        """Yield ``fn(*args)`` for the items of the iterables, in their order.

        Args:
            fn: The function.
            iterables: Their items are the arguments. The shortest iterable ends the call.
            timeout: Seconds, from this call, after which waiting for a result raises TimeoutError.
            chunksize: Number of calls in one job. Short calls are faster in chunks.
            buffersize: Maximum number of jobs whose results were not yielded. A thread pulls the
                items, and no result waits for the next item: a chunk may then have fewer calls. By
                default all items are submitted at once.

        Raises:
            ValueError: A size is below 1.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None and not isinstance(buffersize, int):
            raise TypeError("buffersize must be an integer or None")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        until = None if timeout is None else time.monotonic() + in_seconds(timeout)
        function = self._sent(fn)
        if buffersize is not None:
            self._check_open()
            rows = zip(*iterables, strict=False)
            submit = functools.partial(self._submit_rows, function, chunksize)
            buffered = BufferedCalls(rows, submit, self._cancel, chunksize, buffersize)
            if buffered.started:
                return buffered.results(until)
        if chunksize == 1:
            rows = zip(*iterables, strict=False)
            calls = (self._submit_row(function, args, {}) for args in rows)
        else:
            chunks = columns_of(iterables, chunksize)
            calls = (self._submit_columns(function, columns) for columns in chunks)
        waiting = deque(calls if buffersize is None else islice(calls, buffersize))
        return results_of(waiting, calls, until, self._cancel)

    def _sent(self, fn: Callable[..., Any]) -> _Function:
        """Return how a job names a function: as a pickle, or as its module and its name.

        Raises:
            TypeError: The function cannot be sent to a worker.
        """
        if self._pickles:
            return pickle_value(fn)
        path = path_of(fn)
        if path is None:
            raise TypeError(
                f"{fn!r} cannot be called by import path, because it is not a public function of a "
                "module that workers can import; move it to such a module, or use "
                "Executor(manager, pickle=True) and workers with --pickle"
            )
        return path

    def _submit_rows(self, function: _Function, size: int, rows: list[Row]) -> Call[Any]:
        """Submit a chunk of calls, of which each row has the arguments."""
        if size == 1:
            return self._submit_row(function, rows[0], {})
        return self._submit_columns(function, list(map(list, zip(*rows, strict=True))))

    def _submit_columns(self, function: _Function, columns: list[list[Any]]) -> Call[Any]:
        """Submit a chunk of calls as one job."""
        if isinstance(function, bytes):
            call = self._submit_pickled(function, columns)
        else:
            call = self._submit_by_path(function, [columns])
        call.rows = len(columns[0])
        return call

    def _submit_row(
        self, function: _Function, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Call[Any]:
        """Submit a single call."""
        if isinstance(function, bytes):
            return self._submit_pickled(function, (args, kwargs))
        return self._submit_by_path(function, [list(args), kwargs])

    def _submit_pickled(self, function: bytes, arguments: Any) -> Call[Any]:
        """Submit a call of a pickled function: ``(args, kwargs)``, or a list of columns."""
        intake = self._manager._inner.intake
        packed = pack_call(function, pickle_value(arguments))
        payload = pack(packed, "bytes", intake.payload_limit)
        terms = self._terms.get("")
        if terms is None:
            terms = intake.terms.make_many({"role": PICKLED_ROLE, **self._options})
            terms = attrs.evolve(terms, kind=attrs.evolve(terms.kind, codec=""))
            self._terms[""] = terms
        call: Call[Any] = PickledCall(intake.submissions, self._manager._portal, self._ended)
        return self._add(call, payload, terms)

    def _submit_by_path(self, path: tuple[str, str], arguments: list[Any]) -> Call[Any]:
        module, name = path
        terms = self._terms.get(module)
        intake = self._manager._inner.intake
        if terms is None:
            terms = intake.terms.make_many({"role": module_role(module), **self._options})
            self._terms[module] = terms
        payload = pack([name, *arguments], intake.codec, intake.payload_limit)
        call: Call[Any] = Call(intake.submissions, self._manager._portal, self._ended)
        return self._add(call, payload, terms)

    def _check_open(self) -> None:
        if self._broken is not None:
            raise _again(self._broken)
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if _exited:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    def _add(self, call: Call[Any], payload: Any, terms: JobTerms) -> Call[Any]:
        with self._lock:
            self._check_open()
            self._calls.add(call)
        try:
            return self._manager._add(call, payload, terms)
        except BaseException:
            self._calls.discard(call)
            raise

    def _ended(self, call: Call[Any]) -> None:
        """Forget a call that has ended. A failed initializer ends all other calls too."""
        self._calls.discard(call)
        error = None if call.cancelled() else call.exception()
        if isinstance(error, InitializerFailed) and self._broken is None:
            with self._lock:
                self._broken = error
            rest = [other.id for other in list(self._calls)]
            submissions = self._manager._inner.intake.submissions
            submissions.abandon(rest, functools.partial(_again, error))

    def _cancel(self, calls: Iterable[Call[Any]]) -> None:
        """Cancel the calls that no worker has."""
        ids = [call.id for call in calls if not call.done()]
        portal, submissions = self._manager._portal, self._manager._inner.intake.submissions
        for start in range(0, len(ids), _CANCELLED):
            some = ids[start : start + _CANCELLED]
            try:
                portal.ask(functools.partial(submissions.states.cancel_waiting, some))
            except ClosedError:
                return  # the manager has ended all calls

    # -- the end ----------------------------------------------------------------------------

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls, and end the worker processes when the calls have ended.

        Args:
            wait: Whether to wait for the calls and for the processes. In a callback, a second
                ``shutdown`` waits for the calls only.
            cancel_futures: Whether to cancel the calls that no worker has begun.
        """
        with self._lock:
            self._closed = True
            if not wait and self._ending is None and self._own is not None:
                # No daemon: the interpreter waits for the pending calls.
                self._ending = threading.Thread(target=self._end, name="wmp-executor-end")
                self._ending.start()
            self._cancels = self._cancels or cancel_futures
        if cancel_futures:
            self._cancel(list(self._calls))
        if wait:
            # On this thread: while the interpreter ends, Python 3.12 starts no thread.
            self._wait()
            if self._ending is not None:
                # The thread that ends the processes waits for the end of this callback.
                if not self._manager._portal.calls_user:
                    self._ending.join()
            elif self._own is not None:
                self._own.close()
            _open.discard(self)

    def _wait(self) -> None:
        """Wait until all calls have ended."""
        while calls := list(self._calls):
            if self._cancels:
                # Workers hand calls back that wait behind a slow call.
                self._cancel(calls)
            concurrent.futures.wait(calls, _PAUSE if self._cancels else None)

    def _end(self) -> None:
        """Close the executor's own manager when all calls have ended."""
        self._wait()
        assert self._own is not None
        self._own.close()

    def stop(self, calls: Iterable[Call[Any]] | None = None) -> None:
        """Cancel calls, by default all. Processes that continue are ended by force and replaced.

        Args:
            calls: Calls of this executor.
        """
        chosen = list(self._calls if calls is None else calls)
        self._cancel(chosen)
        for call in chosen:
            call.stop()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            # At Ctrl-C in a terminal the processes of a pool of Python end too.
            self.stop()
        self.shutdown()

    def __del__(self) -> None:
        # The executor was not shut down, and has no calls, because a pending call keeps it alive.
        own: LocalManager | None = getattr(self, "_own", None)
        if own is not None and not self._closed and own._portal.opened:
            # The garbage collector may call this method while the module `threading` holds a lock,
            # which `threading.Thread` would need.
            _thread.start_new_thread(own._shut, (0.0,))


def _check_context(context: object) -> None:
    """Check that a context of multiprocessing starts processes as this library does.

    Raises:
        ConfigError: The context is none, or starts processes by another method.
    """
    method = getattr(context, "get_start_method", None)
    if context is not None and (method is None or method() != "spawn"):
        given = repr(context) if method is None else f"a context of the method {method()!r}"
        raise ConfigError(
            f"mp_context is {given}; worker processes are started by the method 'spawn' only, "
            "because the threads of this program would not exist in a fork; leave out mp_context"
        )


def _again(error: InitializerFailed) -> InitializerFailed:
    """Return another exception with the text and the cause of this one, for another call."""
    another = InitializerFailed(*error.args)
    another.__cause__ = error.__cause__
    return another
