"""Stored jobs and their results for asyncio, seen from any process that can reach the store."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

from wmp import stored_results
from wmp.stored_results import StoredJobHandle, StoredJobStatus, StoredResults, pauses

_T = TypeVar("_T")


class AsyncJobHandle:
    """One stored job, for any process: await the handle for the result of the job.

    The attributes show the job as it was at the last call of a method.

    Attributes:
        id: Number of the job.
        key: Key of the job; None without one.
        role: Role of the job.
    """

    def __init__(self, results: AsyncResults, handle: StoredJobHandle) -> None:
        self._results, self._handle = results, handle
        self.id, self.key, self.role = handle.id, handle.key, handle.role

    def __repr__(self) -> str:
        return f"<AsyncJobHandle {self.id} {self.state}>"

    @property
    def state(self) -> str:
        """The state at the last look; see :class:`wmp.stored_results.StoredJobStatus`."""
        return self._handle.state

    @property
    def attempts(self) -> int:
        """Number of the newest attempt at the last look; 0 before the first."""
        return self._handle.attempts

    @property
    def worker(self) -> str | None:
        """Label of the worker that has or had that attempt; None while no worker is known."""
        return self._handle.worker

    def done(self) -> bool:
        """Return whether the job had ended at the last look."""
        return self._handle.done()

    async def status(self) -> StoredJobStatus:
        """Look at the job.

        Raises:
            KeyError: The store has the job no more.
            StoreError: The store cannot be read.
        """
        return await self._results.call(self._handle.status)

    async def wait(self) -> StoredJobStatus:
        """Wait until the job has ended, in any way.

        ``asyncio.timeout`` limits the wait; the job goes on then.

        Raises:
            KeyError: The store has the job no more.
            StoreError: The store cannot be read.
        """
        for pause in pauses():
            status = await self.status()
            if status.ended is not None:
                return status
            await asyncio.sleep(pause)
        raise AssertionError("pauses never end")

    async def stop(self) -> bool:
        """Cancel the job: at once if no manager has it, else by way of its manager and worker.

        Wait for the job afterwards: a result that comes first counts.

        Returns:
            False when the job had ended already.

        Raises:
            KeyError: The store has the job no more.
            StoreError: The store cannot be written.
        """
        return await self._results.call(self._handle.stop)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._result().__await__()

    async def _result(self) -> Any:
        await self.wait()
        return await self._results.call(self._handle.result)


class AsyncResults:
    """The jobs in a store, and their results. A thread reads them, so the loop goes on.

    Use it with ``async with``, or call :meth:`close`.

    Args:
        path: The path of the file, or ``postgresql://…``.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, "wmp-results")
        self._results: StoredResults | None = None

    async def call(self, function: Callable[..., _T], *args: Any, **more: Any) -> _T:
        """Call a function on the thread."""
        call = functools.partial(function, *args, **more)
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _open(self) -> StoredResults:
        if self._results is None:
            self._results = stored_results.results(self._path)
        return self._results

    async def get(
        self,
        id: int | None = None,
        *,
        key: str | None = None,
        role: str | None = None,
        default: Any = None,
    ) -> Any:
        """Return the result of a job; see :meth:`wmp.stored_results.StoredResults.get`."""
        results = await self.call(self._open)
        return await self.call(results.get, id, key=key, role=role, default=default)

    async def job(
        self, id: int | None = None, *, key: str | None = None, role: str | None = None
    ) -> AsyncJobHandle:
        """Return a handle of a job; see :meth:`wmp.stored_results.StoredResults.job`."""
        results = await self.call(self._open)
        return AsyncJobHandle(self, await self.call(results.job, id, key=key, role=role))

    async def close(self) -> None:
        """Release all resources. Idempotent."""
        results, self._results = self._results, None
        if results is not None:
            await self.call(results.close)
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        await self.call(self._open)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def results(path: str | os.PathLike[str]) -> AsyncResults:
    """Return the jobs and results of a store, for asyncio; the first use opens the store.

    Args:
        path: The path of the file, or ``postgresql://…``.

    Raises:
        ConfigError: There is no store at the path; raised by ``async with`` or the first call.
        StoreError: The store cannot be read; raised by ``async with`` or the first call.
    """
    return AsyncResults(path)
