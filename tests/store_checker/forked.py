"""A part of a try in a forked process, which may be killed at any moment."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from tests.unit.store.stores import fork

__all__ = ["Forked"]


class Forked:
    """A function that runs in a process of its own. The process ends without any clean-up."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.began = time.monotonic()
        self.pid = fork()
        if not self.pid:
            code = 1
            try:
                function(*arguments)
                code = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)

    def kill_after(self, seconds: float) -> None:
        """Kill the process a time from now."""
        time.sleep(seconds)
        os.kill(self.pid, signal.SIGKILL)

    def ended(self) -> bool:
        """Return whether the process has ended, without taking its exit status."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill_at(self, seconds: float) -> None:
        """Kill the process a time after its start."""
        time.sleep(max(0.0, self.began + seconds - time.monotonic()))
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for the end; return the exit status, below 0 after a signal."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
