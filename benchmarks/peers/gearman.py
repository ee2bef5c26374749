"""gearmand with Python at both ends. ``python -m benchmarks --only peers``.

The worker is ``python -m benchmarks.peers.gearman PORT``.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from types import TracebackType
from typing import Any

from benchmarks.figure import Skip
from benchmarks.process import Process, free_port, python, wait_for_port

__all__ = ["Gearman", "work"]

_BATCH = 256
"""Maximum number of jobs that are submitted at a time. The client checks all open jobs in
every turn.
"""


class Gearman:
    """``GearmanClient.submit_multiple_jobs`` in batches."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def __enter__(self) -> Gearman:
        gearmand = shutil.which("gearmand") or shutil.which("gearmand", path="/usr/sbin")
        if gearmand is None:
            raise Skip("gearmand is not installed: apt-get install gearman-job-server")
        library = _library()
        port = free_port()
        with ExitStack() as stack:
            server = Process(gearmand, "-L", "127.0.0.1", "-p", str(port), "-l", "stderr")
            wait_for_port(stack.enter_context(server), port)
            for _ in range(self._workers):
                stack.enter_context(python("benchmarks.peers.gearman", str(port)))
            self._client = library.GearmanClient([f"127.0.0.1:{port}"])
            stack.callback(self._client.shutdown)
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
        """Submit a batch, wait for it, submit the next."""
        for start in range(0, len(payloads), _BATCH):
            jobs = [
                {"task": b"echo", "data": payload} for payload in payloads[start : start + _BATCH]
            ]
            for request in self._client.submit_multiple_jobs(jobs, poll_timeout=60.0):
                yield request.result

    def do_job(self, payload: bytes) -> bytes:
        """Submit and wait."""
        result: bytes = self._client.submit_job(b"echo", payload, poll_timeout=60.0).result
        return result


def _library() -> Any:
    try:
        return import_module("gearman")
    except ImportError as error:
        raise Skip("the Gearman client is not installed: pip install pygearman") from error


def work(port: int) -> None:
    """Echo for ever."""
    worker = _library().GearmanWorker([f"127.0.0.1:{port}"])
    worker.register_task(b"echo", lambda worker, job: job.data)
    worker.work()


if __name__ == "__main__":
    work(int(sys.argv[1]))
