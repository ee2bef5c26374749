"""The backend ``wmp`` of joblib: the import of this module registers it.

::

    from wmp.joblib import parallel_config

    with parallel_config("wmp", n_jobs=4):
        search.fit(X, y)                    # for example a grid search of scikit-learn

``Parallel``, ``delayed`` and ``parallel_config`` are those of joblib. The calls run in worker
processes of this machine, which are kept for the next ``Parallel``. With
``parallel_config("wmp", manager=manager)`` they run at the workers of a manager, which were started
with ``--pickle``. Options of jobs apply to each batch: ``parallel_config("wmp", run_limit=60)``.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, cast

try:
    import joblib
    from joblib import Parallel, delayed, parallel_config
    from joblib._parallel_backends import (
        AutoBatchingMixin,
        FallbackToBackend,
        ParallelBackendBase,
        SequentialBackend,
    )
except ImportError as error:
    raise ImportError(
        "wmp.joblib needs the package joblib; run: pip install 'worker-manager-protocol[joblib]'"
    ) from error

from attrs import define

from wmp.blocking.manager import Manager
from wmp.calls.call import Call
from wmp.calls.executor import Executor
from wmp.calls.handlers import set_environment
from wmp.runtime.submission.submit_options import CALL_OPTIONS, CallOptions

__all__ = ["Parallel", "WmpBackend", "delayed", "parallel_config", "register"]

_lock: Final = threading.Lock()


@define(eq=False)
class _KeptExecutor:
    """An executor with processes of its own, which outlives a ``Parallel``."""

    executor: Executor
    fits: tuple[int, dict[str, str], CallOptions]
    """The number of its processes, the variables of their environment, and its options."""
    users: int = 0
    """Number of backends that use it."""


_kept: Final[list[_KeptExecutor]] = []


class WmpBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs the batches of ``joblib.Parallel`` as pickled calls of an executor.

    Args:
        manager: A manager whose workers were started with ``--pickle``; by default worker processes
            of this machine.
        settings: Options of :class:`wmp.Executor` for each batch, such as ``needs`` and
            ``run_limit``; and settings of every backend of joblib, such as
            ``inner_max_num_threads``.
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True

    def __init__(self, manager: Manager | None = None, **settings: Any) -> None:
        own = {name: value for name, value in settings.items() if name in CALL_OPTIONS}
        super().__init__(**{name: settings[name] for name in settings.keys() - own.keys()})
        self._options = cast("CallOptions", own)
        self._manager = manager
        self._executor: Executor | None = None
        self._borrowed: _KeptExecutor | None = None
        self._calls: weakref.WeakSet[Call[Any]] = weakref.WeakSet()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return the number of batches at the same time.

        A negative ``n_jobs`` counts from the number of cores, or of slots of connected workers.
        """
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        if n_jobs > 0:
            return n_jobs
        return max(1, self._places() + 1 + n_jobs)

    def _places(self) -> int:
        """Return the number of calls that can run at the same time."""
        if self._manager is None:
            return int(joblib.cpu_count())
        workers = self._manager.statistics().workers
        return sum(row.resources.get("slots", 1) for row in workers)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **settings: Any) -> int:
        """Prepare a ``Parallel`` that begins; return its number of batches at the same time."""
        n_jobs = self.effective_n_jobs(n_jobs)
        if self._manager is None and n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        if self._manager is not None:
            self._executor = Executor(self._manager, pickle=True, **self._options)
        else:
            self._give_back()
            # Libraries such as BLAS start threads of their own in each process.
            environment = self._prepare_worker_env(n_jobs=n_jobs)
            self._borrowed = _borrow(n_jobs, environment, self._options)
            self._executor = self._borrowed.executor
        return n_jobs

    def _give_back(self) -> None:
        """Leave the kept executor to others."""
        if self._borrowed is not None:
            with _lock:
                self._borrowed.users -= 1
            self._borrowed = None

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], object]) -> Call[Any]:
        """Submit a batch."""
        assert self._executor is not None
        call = self._executor.submit(func)
        self._calls.add(call)
        if callback is not None:
            call.add_done_callback(callback)
        return call

    apply_async = submit  # the name before joblib 1.5

    def retrieve_result_callback(self, out: Call[Any]) -> Any:
        """Return the results of a batch that has ended, or raise its error."""
        return out.result()

    def terminate(self) -> None:
        """End the use by a ``Parallel``. Worker processes are kept."""
        if self._manager is not None and self._executor is not None:
            self._executor.shutdown(wait=False)
        self._give_back()
        self._executor = None
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel all batches; end the worker processes whose batches continue."""
        if self._executor is not None:
            self._executor.stop(self._calls)
        if ensure_ready:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel)


def _borrow(n_jobs: int, environment: dict[str, str], options: CallOptions) -> _KeptExecutor:
    """Return a kept executor that fits, else another in place of those that nobody uses."""
    fits = n_jobs, environment, options
    with _lock:
        for kept in list(_kept):
            if kept.executor.closed or not (kept.users or kept.fits == fits):
                kept.executor.shutdown(wait=False)
                _kept.remove(kept)
        borrowed = next((kept for kept in _kept if kept.fits == fits), None)
        if borrowed is None:
            executor = Executor(
                workers=n_jobs, initializer=set_environment, initargs=(environment,), **options
            )
            borrowed = _KeptExecutor(executor, fits)
            _kept.append(borrowed)
        borrowed.users += 1
        return borrowed


def register() -> None:
    """Register the backend ``wmp`` with joblib; the import of this module does this."""
    joblib.register_parallel_backend("wmp", WmpBackend)


register()
