"""Managers in a separate process, which reads requests from stdin. Started by ``--only growth``.

``python -m benchmarks.holder [MANAGERS]``; with ``sink`` a bare ROUTER, which shows the cost of
connections without wmp. Each line is a JSON object with ``do`` and its arguments. Each answer is a
line with seconds of CPU time and of wall time.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import zmq

import wmp
import wmp.aio
from benchmarks.process import memory_of
from benchmarks.work import Failure

__all__ = ["Holder", "main", "sink"]

_MAX_SILENCE = 600.0
"""Seconds: so long that idle workers of a crowd need not PING during other measurements.
"""


def _payloads(jobs: int) -> Iterator[bytes]:
    rest = bytes(92)
    return (number.to_bytes(8, "big") + rest for number in range(jobs))


class Holder:
    """Executes orders. Times are of this process alone."""

    def __init__(self, managers: int = 1) -> None:
        self._managers = [
            wmp.aio.Manager(max_silence=_MAX_SILENCE, max_jobs=2_000_000) for _ in range(managers)
        ]
        self._jobs: list[wmp.aio.Job] = []
        self._map: Any = None
        self._first: Any = None

    async def run(self) -> None:
        """Start, print the addresses, execute orders until standard input ends."""
        for manager in self._managers:
            await manager.start()
        _say([manager.endpoints[0] for manager in self._managers])
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.buffer.readline):
            order = json.loads(line)
            act = getattr(self, f"do_{order.pop('do')}")
            gc.collect()
            cpu, clock = time.process_time(), time.perf_counter()
            result = await act(**order)
            _say(
                {
                    "cpu": time.process_time() - cpu,
                    "wall": time.perf_counter() - clock,
                    "memory": memory_of(os.getpid()),
                    "found": result,
                }
            )

    async def do_wait(self, workers: int) -> None:
        """Wait until every manager has this many workers."""
        for manager in self._managers:
            await manager.wait_for_workers(workers, timeout=60.0)

    async def do_map(self, jobs: int, roles: int = 0) -> None:
        """Do jobs, shared among the managers and, if there are more, the roles."""
        kinds = [f"r{number}" for number in range(roles)] or ["default"]
        parts = [(manager, role) for manager in self._managers for role in kinds]
        share = max(1, jobs // len(parts))
        await asyncio.gather(*(_map(manager, role, share) for manager, role in parts))

    async def do_singles(self, jobs: int) -> None:
        """Do jobs one at a time."""
        manager = self._managers[0]
        for payload in _payloads(jobs):
            _check(await (await manager.submit(payload)), payload)

    async def do_queue(self, jobs: int, how: str) -> int:
        """Submit jobs without any worker: each with a future, or in a map's window."""
        manager = self._managers[0]
        if how in ("delay", "scatter"):
            # No job begins before all jobs are submitted. With "scatter" no two consecutive jobs
            # have one start time.
            wait = 1.0 + jobs / 15_000
            apart = 0 if how == "delay" else 7919
            self._jobs = [
                await manager.submit(payload, delay=wait + (n * apart % 1000) / 1000)
                for n, payload in enumerate(_payloads(jobs))
            ]
        elif how == "submit":
            self._jobs = [await manager.submit(payload) for payload in _payloads(jobs)]
        else:
            # More than the number of jobs, because the last inputs of a window wait until many more
            # fit.
            self._map = manager.map(_payloads(jobs), in_flight=jobs + 4096)
            self._first = asyncio.ensure_future(anext(self._map))
        async with asyncio.timeout(120.0):
            while (queued := _waiting(manager)) < jobs:
                await asyncio.sleep(0)
        return queued

    async def do_drain(self, jobs: int) -> None:
        """Take the results of all queued jobs."""
        payloads = _payloads(jobs)
        if self._map is None:
            for job, payload in zip(self._jobs, payloads, strict=True):
                _check(await job, payload)
            self._jobs.clear()
            return
        _check(await self._first, next(payloads))
        async for result in self._map:
            _check(result, next(payloads))
        self._map = None

    async def do_look(self) -> int:
        """Return the number of workers."""
        return len(self._managers[0].statistics().workers)


def _waiting(manager: wmp.aio.Manager) -> int:
    statistics = manager.statistics()
    return statistics.queued + statistics.delayed


async def _map(manager: wmp.aio.Manager, role: str, jobs: int) -> None:
    payloads = _payloads(jobs)
    async for result in manager.map(_payloads(jobs), role=role):
        _check(result, next(payloads))


def _check(result: object, payload: bytes) -> None:
    if result != payload:
        raise Failure("a result differs from its payload")


def _say(what: object) -> None:
    print(json.dumps(what), flush=True)


def sink() -> None:
    """Receive messages and drop them; answer each line with the memory."""
    router: Any = zmq.Context.instance().socket(zmq.ROUTER)
    router.linger = 0
    port = router.bind_to_random_port("tcp://127.0.0.1")
    _say([f"tcp://127.0.0.1:{port}"])
    poller = zmq.Poller()
    poller.register(router, zmq.POLLIN)
    poller.register(sys.stdin, zmq.POLLIN)
    heard: set[bytes] = set()
    while True:
        for socket, _ in poller.poll():
            if socket is router:
                heard.add(router.recv_multipart()[0])
            elif sys.stdin.readline():
                gc.collect()
                _say({"memory": memory_of(os.getpid()), "found": len(heard)})
            else:
                return


def main() -> None:
    """Run until standard input ends."""
    if sys.argv[1:] == ["sink"]:
        sink()
    else:
        asyncio.run(Holder(int(sys.argv[1]) if sys.argv[1:] else 1).run())


if __name__ == "__main__":
    main()
