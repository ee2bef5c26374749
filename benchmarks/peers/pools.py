"""The standard library's pools, which need no network. ``python -m benchmarks --only peers``."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
from collections.abc import Iterator, Sequence
from types import TracebackType

from benchmarks.work import echo

__all__ = ["Executor", "Processes"]


class Executor:
    """``concurrent.futures.ProcessPoolExecutor``."""

    def __init__(self, workers: int, *, chunk: int) -> None:
        self._chunk = chunk
        # spawn, because the measuring process has threads, which fork does not copy.
        self._pool = concurrent.futures.ProcessPoolExecutor(
            workers, multiprocessing.get_context("spawn")
        )

    def __enter__(self) -> Executor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def map(self, payloads: Sequence[bytes]) -> Iterator[bytes]:
        """``map`` with the chunk size."""
        return self._pool.map(echo, payloads, chunksize=self._chunk)

    def do_job(self, payload: bytes) -> bytes:
        """Submit and wait."""
        return self._pool.submit(echo, payload).result()


class Processes:
    """``multiprocessing.Pool``."""

    def __init__(self, workers: int, *, chunk: int) -> None:
        self._chunk = chunk
        self._pool = multiprocessing.get_context("spawn").Pool(workers)

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.terminate()
        self._pool.join()

    def map(self, payloads: Sequence[bytes]) -> Iterator[bytes]:
        """``imap`` with the chunk size."""
        return self._pool.imap(echo, payloads, self._chunk)

    def do_job(self, payload: bytes) -> bytes:
        """Apply and wait."""
        return self._pool.apply(echo, (payload,))
