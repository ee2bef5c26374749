"""Manager, Worker and Device for code without an event loop.

The names are those of :mod:`wmp.aio`, which does the work on a separate thread. The classes of this
package only wait for that thread. Jobs are ``concurrent.futures`` futures.
"""

from __future__ import annotations

import typing

from wmp import errors as _errors  # noqa: F401 - checks that this package is ours
from wmp.lazy import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from wmp.blocking.device import Device
    from wmp.blocking.job import Job
    from wmp.blocking.manager import Manager
    from wmp.blocking.worker import Worker

__all__ = ["Device", "Job", "Manager", "Worker"]

# Imported at the first use: an executor needs no device.
__getattr__, __dir__ = _lazy_names(
    __name__,
    {name: f"wmp.blocking.{name.lower()}" for name in __all__},
)
