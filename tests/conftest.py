"""Fixtures of all tests: Hypothesis' profiles and a context that reports leaks."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import zmq
from hypothesis import HealthCheck, settings

# A shell that runs this in the background lets it, and every program that a test starts, ignore
# Ctrl-C, and nohup lets it ignore SIGHUP; a signal that is handled here is not ignored there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """A process for each core that this one may use, and one more, since many tests wait."""
    usable = getattr(os, "sched_getaffinity", None)
    cores = len(usable(0)) if usable else os.cpu_count() or 1
    return min(cores + 1, 9)


# A slow machine is not a bug: pytest's own timeout catches what hangs.
settings.register_profile("dev", deadline=None, print_blob=True, max_examples=40)
settings.register_profile(
    "ci",
    settings.get_profile("dev"),
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("deep", settings.get_profile("dev"), max_examples=1000)
settings.load_profile(
    os.environ.get("WMP_HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
)


class TrackedContext(zmq.Context[zmq.Socket[bytes]]):
    """A context that remembers every socket made from it."""

    made: list[zmq.Socket[bytes]]

    def __init__(self) -> None:
        super().__init__()
        # Past the class's own __setattr__, which takes names for socket options.
        self.__dict__["made"] = []

    def socket(self, *args: Any, **kwargs: Any) -> Any:
        socket = super().socket(*args, **kwargs)
        self.made.append(socket)
        return socket


@pytest.fixture
def context() -> Iterator[TrackedContext]:
    """A ZeroMQ context to share; fails the test that leaves a socket of it open.

    A context or socket made elsewhere and not closed is a ResourceWarning, which pytest
    turns into a failure too.
    """
    context = TrackedContext()
    yield context
    leaked = [socket for socket in context.made if not socket.closed]
    context.destroy(linger=0)
    assert not leaked, f"{len(leaked)} sockets were left open: {leaked}"
