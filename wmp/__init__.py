"""Worker-Manager Protocol: distribute work between many managers and many workers.

::

    with wmp.Manager() as manager, wmp.Worker(*manager.endpoints, handlers=bytes.upper):
        print(manager.submit(b"hello").result())

:mod:`wmp.aio` has the same names for asyncio. The sans-IO parts are public too:
:mod:`wmp.core`, :mod:`wmp.codec`, :mod:`wmp.message`, :mod:`wmp.events`, :mod:`wmp.actions`.
"""

from __future__ import annotations

import typing

# The public index has another package `wmp`. wmp_programs.py and wmp/errors.py read this name to
# check whether this file belongs to our package.
_DISTRIBUTION: typing.Final = "worker-manager-protocol"

from wmp import errors as _errors  # noqa: E402 - errors needs the name above
from wmp.lazy import lazy_names as _lazy_names  # noqa: E402

if typing.TYPE_CHECKING:
    from wmp import aio, balance
    from wmp.blocking import Device, Job, Manager, Worker
    from wmp.calls.chain import gather
    from wmp.calls.executor import Executor
    from wmp.calls.local import local
    from wmp.calls.served import handlers_of
    from wmp.calls.task import Task, current_job, task
    from wmp.errors import *  # noqa: F403 - the names in its __all__
    from wmp.message import Command, Outcome
    from wmp.retry import Retry, exponential
    from wmp.runtime.codecs.payload_codecs import register_codec
    from wmp.runtime.executors.handlers import RunningJob
    from wmp.runtime.sockets.security import Security
    from wmp.runtime.sockets.socket_settings import SocketOptions
    from wmp.runtime.sockets.transport import Transport
    from wmp.runtime.submission.results import Status
    from wmp.runtime.submission.submit_options import JobOptions, SubmitOptions
    from wmp.store.postgres.postgres_store import PostgresStore
    from wmp.store.sqlite.sqlite_store import SqliteStore
    from wmp.stored_results import results

    __version__: str

__all__ = [
    "Command",
    "Device",
    "Executor",
    "Job",
    "JobOptions",
    "Manager",
    "Outcome",
    "PostgresStore",
    "Retry",
    "RunningJob",
    "Security",
    "SocketOptions",
    "SqliteStore",
    "Status",
    "SubmitOptions",
    "Task",
    "Transport",
    "Worker",
    "aio",
    "balance",
    "current_job",
    "exponential",
    "gather",
    "handlers_of",
    "local",
    "register_codec",
    "results",
    "task",
]
__all__ += _errors.__all__

# Names are imported at their first use. The sans-IO parts are in this package too, and their import
# must not load sockets, clocks and event loops.
_HOMES: typing.Final = {
    "aio": "wmp.aio",
    "balance": "wmp.balance",
    **dict.fromkeys(_errors.__all__, "wmp.errors"),
    "Device": "wmp.blocking",
    "Job": "wmp.blocking",
    "Manager": "wmp.blocking",
    "Worker": "wmp.blocking",
    "Executor": "wmp.calls.executor",
    "gather": "wmp.calls.chain",
    "handlers_of": "wmp.calls.served",
    "local": "wmp.calls.local",
    "Task": "wmp.calls.task",
    "current_job": "wmp.calls.task",
    "task": "wmp.calls.task",
    "Command": "wmp.message",
    "Outcome": "wmp.message",
    **dict.fromkeys(("JobOptions", "SubmitOptions"), "wmp.runtime.submission.submit_options"),
    "Retry": "wmp.retry",
    "exponential": "wmp.retry",
    "register_codec": "wmp.runtime.codecs.payload_codecs",
    "RunningJob": "wmp.runtime.executors.handlers",
    "Status": "wmp.runtime.submission.results",
    "Security": "wmp.runtime.sockets.security",
    "SocketOptions": "wmp.runtime.sockets.socket_settings",
    "Transport": "wmp.runtime.sockets.transport",
    "PostgresStore": "wmp.store.postgres.postgres_store",
    "SqliteStore": "wmp.store.sqlite.sqlite_store",
    "results": "wmp.stored_results",
}
_public, __dir__ = _lazy_names(__name__, {**_HOMES, "__version__": ""})


def __getattr__(name: str) -> typing.Any:
    return _version() if name == "__version__" else _public(name)


def _version() -> str:
    """Return the installed version; a source tree that is not installed has no number."""
    from importlib import metadata

    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "0+source"
