"""Honest work during a drill: an endless series of jobs.

Each result is compared with its payload.
"""

from __future__ import annotations

import threading
import time

import wmp

__all__ = ["Load"]

_IN_FLIGHT = 4000
_BATCH = 200
_SIZE = 100
_PATIENCE = 60.0
"""Seconds after an attack within which all jobs must have ended."""


class Load:
    """Keeps a manager busy while the ``with`` block lasts.

    Attributes:
        ended: Number of jobs with a right result.
        failed: Errors of the other jobs, as text.
    """

    def __init__(self, manager: wmp.Manager) -> None:
        self.ended = 0
        self.failed: list[str] = []
        self._manager = manager
        self._submitted = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._submit, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _submit(self) -> None:
        rest = bytes(_SIZE - 8)
        while not self._stopped.is_set():
            if self._submitted - self.ended - len(self.failed) > _IN_FLIGHT:
                time.sleep(0.0005)
                continue
            for _ in range(_BATCH):
                self._submitted += 1
                payload = self._submitted.to_bytes(8, "big") + rest
                job = self._manager.submit(payload)
                job.add_done_callback(lambda job, payload=payload: self._done(job, payload))

    def _done(self, job: wmp.Job, payload: bytes) -> None:
        error = job.exception()
        if error is not None:
            self.failed.append(str(error))
        elif job.result() != payload:
            self.failed.append("a result differs from its payload")
        else:
            self.ended += 1

    def rate(self, seconds: float) -> float:
        """Return the jobs a second during the next seconds."""
        begun, ended = time.perf_counter(), self.ended
        time.sleep(seconds)
        return (self.ended - ended) / (time.perf_counter() - begun)

    def finish(self) -> int:
        """Submit no further job; return the number of jobs that have not ended after a minute."""
        self._stopped.set()
        self._thread.join()
        until = time.monotonic() + _PATIENCE
        while (left := self._submitted - self.ended - len(self.failed)) and (
            time.monotonic() < until
        ):
            time.sleep(0.01)
        return left
