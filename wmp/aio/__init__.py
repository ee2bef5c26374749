"""Manager, Worker and Device for asyncio. :mod:`wmp.blocking` wraps these classes.

::

    async with wmp.aio.Manager() as manager:
        async with wmp.aio.Worker(*manager.endpoints, handlers=bytes.upper):
            print(await (await manager.submit(b"hello")))
"""

from __future__ import annotations

import typing

from wmp import errors as _errors  # noqa: F401 - checks that this package is ours
from wmp.lazy import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
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

# Imported at the first use: an executor needs no device, and no reader of stored jobs.
__getattr__, __dir__ = _lazy_names(
    __name__,
    {
        "Device": "wmp.aio.device",
        "Job": "wmp.aio.job",
        "Manager": "wmp.aio.manager",
        "RunningJob": "wmp.runtime.executors.handlers",
        "Security": "wmp.runtime.sockets.security",
        "Status": "wmp.runtime.submission.results",
        "Transport": "wmp.runtime.sockets.transport",
        "Worker": "wmp.aio.worker",
        "results": "wmp.aio.stored_results",
    },
)
