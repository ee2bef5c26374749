"""Dask distributed. ``python -m benchmarks --only peers``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from types import TracebackType

from benchmarks.figure import Skip
from benchmarks.process import free_port, python, wait_for_port
from benchmarks.work import echo

__all__ = ["Dask"]


class Dask:
    """A scheduler and workers of one thread, each a process."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def __enter__(self) -> Dask:
        try:
            library = import_module("distributed")
        except ImportError as error:
            raise Skip("Dask is not installed: pip install distributed") from error
        port = free_port()
        address = f"tcp://127.0.0.1:{port}"
        with ExitStack() as stack:
            scheduler = python(
                "distributed.cli.dask_scheduler",
                *("--host", "127.0.0.1", "--port", str(port)),
                *("--no-dashboard", "--no-jupyter"),
            )
            wait_for_port(stack.enter_context(scheduler), port)
            for _ in range(self._workers):
                worker = python(
                    "distributed.cli.dask_worker",
                    address,
                    *("--host", "127.0.0.1", "--nthreads", "1"),
                    *("--no-nanny", "--no-dashboard"),
                )
                stack.enter_context(worker)
            self._client = stack.enter_context(library.Client(address, set_as_default=False))
            self._client.wait_for_workers(self._workers, timeout=60)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def map(self, payloads: Sequence[bytes]) -> Iterator[bytes]:
        """Do the jobs by ``map`` and ``gather``."""
        futures = self._client.map(echo, payloads, pure=False)
        return iter(self._client.gather(futures))

    def do_job(self, payload: bytes) -> bytes:
        """Submit one job and wait for its result."""
        result: bytes = self._client.submit(echo, payload, pure=False).result()
        return result
