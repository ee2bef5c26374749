"""Manager, Worker and Device for asyncio. :mod:`wmp.blocking` wraps these classes.

::

    async with wmp.aio.Manager() as manager:
        async with wmp.aio.Worker(*manager.endpoints, handlers=bytes.upper):
            print(await (await manager.submit(b"hello")))
"""

from __future__ import annotations

from wmp.aio.device import Device
from wmp.aio.job import Job
from wmp.aio.manager import Manager
from wmp.aio.stored_results import results
from wmp.aio.worker import Worker
from wmp.runtime.executors.handlers import RunningJob
from wmp.runtime.sockets.security import Security
from wmp.runtime.sockets.transport import Transport
from wmp.runtime.submission.results import Status

__all__ = [
    "Device",
    "Job",
    "Manager",
    "RunningJob",
    "Security",
    "Status",
    "Transport",
    "Worker",
    "results",
]
