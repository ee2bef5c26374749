"""wmp itself: ``python -m benchmarks --only map,submit,aio,latency,device,pools,bundles``.

The manager is in the measuring process; workers and devices are separate processes, over tcp on
loopback. All settings are the defaults, so all safeguards are on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any

import wmp
import wmp.aio
from benchmarks.figure import Case
from benchmarks.process import Process, python

__all__ = ["GROUPS", "Aio", "AioSubmit", "Map", "Submit", "nodes"]

READY = 60.0
"""Seconds within which workers must have connected."""


@contextlib.contextmanager
def nodes(
    endpoints: Sequence[str], workers: int, devices: int = 0, options: Sequence[str] = ()
) -> Iterator[list[Process]]:
    """Start devices in a chain and workers at its end; yield the processes, devices first."""
    with contextlib.ExitStack() as stack:
        started = []
        for _ in range(devices):
            device = stack.enter_context(python("benchmarks.node", "device", *endpoints))
            started.append(device)
            endpoints = (device.receive(),)
        for _ in range(workers):
            worker = python("benchmarks.node", "worker", *endpoints, *options)
            started.append(stack.enter_context(worker))
        yield started


class Map:
    """``Manager.map``.

    Args:
        workers: Number of worker processes.
        devices: Number of devices in a chain in between.
        options: Options of ``benchmarks.node worker``.
        settings: Settings of the manager.
    """

    def __init__(
        self,
        workers: int = 1,
        devices: int = 0,
        options: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        self._workers = workers
        self._devices = devices
        self._options = options
        self._manager = wmp.Manager(**settings)

    def __enter__(self) -> Map:
        with contextlib.ExitStack() as stack:
            # A job that still waits at the end was lost. The measurement must show this within five
            # seconds.
            stack.callback(self._manager.close, 0.0)
            self._manager.start()
            endpoints = self._manager.endpoints
            self.processes = stack.enter_context(
                nodes(endpoints, self._workers, self._devices, self._options)
            )
            self._manager.wait_for_workers(self._workers, timeout=READY)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Return the manager's endpoints."""
        return self._manager.endpoints

    def map(self, payloads: Sequence[bytes], **options: Any) -> Iterator[bytes]:
        """Return results as ``map`` yields them."""
        return self._manager.map(payloads, **options)

    def submit(self, payload: bytes) -> wmp.Job:
        """Submit one job."""
        return self._manager.submit(payload)

    def do_job(self, payload: bytes) -> bytes:
        """Submit and wait."""
        result: bytes = self.submit(payload).result()
        return result


class Submit(Map):
    """``Manager.submit``: a future for each job."""

    def map(self, payloads: Sequence[bytes]) -> Iterator[bytes]:
        """Submit all, then take results."""
        submit = self._manager.submit
        jobs = [submit(payload) for payload in payloads]
        for job in jobs:
            yield job.result()


class Aio:
    """The same calls with ``wmp.aio``, on a loop of the measuring thread."""

    def __init__(self, workers: int = 1, options: Sequence[str] = (), **settings: Any) -> None:
        self._workers = workers
        self._options = options
        self._settings = settings

    def __enter__(self) -> Aio:
        with contextlib.ExitStack() as stack:
            self._runner = stack.enter_context(asyncio.Runner())
            self._manager = self._runner.run(self._start())
            stack.callback(lambda: self._runner.run(self._manager.close(0.0)))
            stack.enter_context(nodes(self._manager.endpoints, self._workers, 0, self._options))
            self._runner.run(self._manager.wait_for_workers(self._workers, timeout=READY))
            self._stack = stack.pop_all()
        return self

    async def _start(self) -> wmp.aio.Manager:
        manager = wmp.aio.Manager(**self._settings)
        await manager.start()
        return manager

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def map(self, payloads: Sequence[bytes]) -> Iterator[bytes]:
        """Submit all, then await one after the other."""
        return iter(self._runner.run(self._all(payloads)))

    async def _all(self, payloads: Sequence[bytes]) -> list[bytes]:
        return [result async for result in self._manager.map(payloads)]

    def do_job(self, payload: bytes) -> bytes:
        """Submit and await."""
        return self._runner.run(self._do_job(payload))

    async def _do_job(self, payload: bytes) -> bytes:
        result: bytes = await (await self._manager.submit(payload))
        return result


class AioSubmit(Aio):
    """A future for each job, awaited one after the other."""

    async def _all(self, payloads: Sequence[bytes]) -> list[bytes]:
        submit = self._manager.submit
        jobs = [await submit(payload) for payload in payloads]
        return [await job for job in jobs]


GROUPS: dict[str, list[Case]] = {
    "map": [
        Case(Map, {"map_100": "100", "map_10k": "10k", "map_1m": "1m"}),
        Case(partial(Map, workers=2), {"map_100_w2": "100"}),
    ],
    "submit": [
        Case(Submit, {"submit_100": "100"}),
        Case(partial(Submit, workers=2), {"submit_100_w2": "100"}),
    ],
    "aio": [
        Case(Aio, {"aio_100": "100"}),
        Case(AioSubmit, {"aio_submit_100": "100"}),
    ],
    "latency": [
        Case(Map, latency="latency"),
        Case(partial(Map, options=("--hold", "0")), latency="latency_plain"),
        Case(partial(Map, options=("--pool", "inline")), latency="latency_inline"),
        Case(Aio, latency="latency_aio"),
        Case(partial(Map, workers=2), latency="latency_w2"),
    ],
    "device": [
        Case(partial(Map, devices=1), {"device_map_100": "100"}, latency="device_latency"),
        Case(partial(Map, devices=3), {"chain_map_100": "100"}),
    ],
    "pools": [
        Case(partial(Map, options=("--pool", kind)), {f"map_100_{kind}": "100"})
        for kind in ("inline", "thread", "process")
    ],
    "bundles": [
        Case(partial(Map, bundle=jobs), {f"map_100_bundle_{jobs}": "100"}) for jobs in (1, 16, 256)
    ],
}
