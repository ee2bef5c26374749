"""Celery with Redis as broker and for results. ``python -m benchmarks --only peers``.

Workers are Celery's own program with ``--pool solo``: for an echo, forking would only cost time.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from types import TracebackType
from typing import Any

from benchmarks.figure import Skip
from benchmarks.process import Process, free_port, python, wait_for_port
from benchmarks.work import echo

__all__ = ["Celery", "make_app"]

_URL = "BENCHMARK_REDIS"


def make_app(url: str) -> Any:
    """Return the application. The worker's program imports ``benchmarks.peers.celery:app``."""
    app = import_module("celery").Celery("benchmarks", broker=url, backend=url)
    app.conf.update(
        # Payloads are bytes, which JSON cannot hold and pickle should not carry.
        task_serializer="msgpack",
        result_serializer="msgpack",
        accept_content=["msgpack"],
        worker_prefetch_multiplier=64,
    )
    app.task(name="echo")(echo)
    return app


class Celery:
    """Single tasks, or ``starmap`` over chunks.

    Args:
        workers: Number of processes.
        chunk: Number of payloads in a task; 0 for one payload without ``starmap``.
        disk: How often Redis writes to the disk: ``always``, before each reply, ``everysec``, or
            never (empty).
    """

    def __init__(self, workers: int, *, chunk: int = 0, disk: str = "") -> None:
        self._workers = workers
        self._chunk = chunk
        self._disk = disk

    def __enter__(self) -> Celery:
        server = shutil.which("redis-server")
        if server is None:
            raise Skip("redis-server is not installed: apt-get install redis-server")
        try:
            import_module("celery")
            import_module("redis")
            import_module("msgpack")
        except ImportError as error:
            raise Skip("Celery is not installed: pip install 'celery[redis,msgpack]'") from error
        port = free_port()
        url = f"redis://127.0.0.1:{port}/0"
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            redis = Process(
                server,
                *("--bind", "127.0.0.1", "--port", str(port), "--dir", folder),
                *("--save", "", "--appendonly", "yes" if self._disk else "no"),
                *("--appendfsync", self._disk or "no"),
            )
            wait_for_port(stack.enter_context(redis), port)
            for number in range(self._workers):
                worker = python(
                    "celery",
                    *("-A", "benchmarks.peers.celery", "worker", "--pool", "solo"),
                    *("-n", f"worker{number}@%h", "-l", "ERROR"),
                    *("--without-gossip", "--without-mingle", "--without-heartbeat"),
                    env={_URL: url},
                )
                stack.enter_context(worker)
            self._app = make_app(url)
            stack.callback(self._app.close)
            self._echo = self._app.tasks["echo"]
            self._echo.delay(b"are you there?").get(timeout=30.0)
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
        """Send all tasks, then take all results. A group would take one second longer."""
        if not self._chunk:
            results = [self._echo.delay(payload) for payload in payloads]
            for result in results:
                yield result.get(timeout=120.0)
            return
        results = []
        for start in range(0, len(payloads), self._chunk):
            part = [(payload,) for payload in payloads[start : start + self._chunk]]
            results.append(self._echo.starmap(part).apply_async())
        for result in results:
            yield from result.get(timeout=120.0)

    def do_job(self, payload: bytes) -> bytes:
        """Send and wait."""
        result: bytes = self._echo.delay(payload).get(timeout=30.0)
        return result


if _URL in os.environ:
    app = make_app(os.environ[_URL])
