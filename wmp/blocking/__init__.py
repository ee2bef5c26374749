"""Manager, Worker and Device for code without an event loop.

The names are those of :mod:`wmp.aio`, which does the work on a separate thread. The classes of this
package only wait for that thread. Jobs are ``concurrent.futures`` futures.
"""

from __future__ import annotations

from wmp.blocking.device import Device
from wmp.blocking.job import Job
from wmp.blocking.manager import Manager
from wmp.blocking.worker import Worker

__all__ = ["Device", "Job", "Manager", "Worker"]
