"""Fixtures of all tests: Hypothesis' profiles, and a context that detects leaks."""

from __future__ import annotations

import compileall
import contextlib
import importlib
import logging
import os
import signal
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from hypothesis import HealthCheck, settings

from tests.house import ROOT, house_files
from tests.outcomes import Outcomes

# A shell that runs pytest in the background makes pytest and its child programs ignore Ctrl-C, and
# nohup makes them ignore SIGHUP. A signal that is handled here has its default action in children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Hundreds of programs start in these tests. Without this setting each would compile the whole
# library again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_configure(config: pytest.Config) -> None:
    """Write the outcomes of this run for `.ci/run`, but none of a pytest that a test starts."""
    path = os.environ.pop("WMP_TEST_OUTCOMES", None)
    if path is not None:
        config.pluginmanager.register(Outcomes(Path(path)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one process for each usable core, and two more, since many tests wait."""
    usable = getattr(os, "sched_getaffinity", None)
    cores = len(usable(0)) if usable else os.cpu_count() or 1
    return min(cores + 2, 10)


GROUPS = {
    "kit": ("test_core_peers", "test_live", "test_minimal", "test_opponents"),
    "executor": ("test_executor", "test_joblib", "test_tasks"),
    "glossary": ("test_glossary",),
    "rules": ("test_rules",),
}
"""Modules whose tests share something slow. One process runs all tests of a group, in order."""

_GROUPS = {module: group for group, modules in GROUPS.items() for module in modules}


def _group(nodeid: str) -> str | None:
    """Return the group of a test, if the test has one."""
    return _GROUPS.get(Path(nodeid.partition("::")[0]).stem)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return a scheduler that gives all tests of a group to one process.

    The mark ``xdist_group`` of pytest-xdist 3.8 has no effect with pytest 9.2. The mark changes the
    name of a test, and pytest 9.2 does not see the change.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid) or nodeid

    return Groups(config, log) if config.getoption("dist") == "loadscope" else None


def _waits(item: pytest.Item) -> bool:
    """Return whether a test waits for other threads or processes most of the time."""
    folder = item.path.parent.name
    return item.get_closest_marker("interop") is not None or folder == "interop"


def _place(item: pytest.Item) -> int:
    """Return a number that is always the same, and is no property of the test."""
    return zlib.crc32(item.nodeid.encode())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Spread the tests that wait among the tests that compute.

    In the order of the folders all processes would wait, and later all would compute. The last
    tests compute, since a test that waits could end long after all others.

    The groups are first. That is best for the group of the conformance kit, since the kit plays a
    case again and more slowly if the machine was too busy.
    """
    if not hasattr(config, "workerinput"):
        return
    grouped = [item for item in items if _group(item.nodeid) is not None]
    single = [item for item in items if _group(item.nodeid) is None]
    waiting = sorted(filter(_waits, single), key=_place)
    computing = [item for item in single if not _waits(item)]
    mixed = [(0.85 * at / len(waiting), item) for at, item in enumerate(waiting)]
    mixed += [(at / len(computing), item) for at, item in enumerate(computing)]
    items[:] = grouped + [item for _, item in sorted(mixed, key=lambda entry: entry[0])]


def pytest_sessionstart(session: pytest.Session) -> None:
    """In a fresh clone, compile a part of the library, and import a part of the test modules first.

    pytest compiles a test module slowly, since it rewrites the assertions. Each process imports all
    modules in one order, so the processes of a first run would all compile all modules. Here each
    process begins with modules of its own. It then finds most of the others compiled.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args != ["tests"]:
        return
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for path in house_files(".py", ROOT / "wmp")[number::count]:
        compileall.compile_file(path, quiet=2)
    folders = ("unit", "interop", "conformance", "simulation", "property", "ablation")
    paths = [
        path for name in folders for path in sorted(Path(__file__).parent.glob(f"{name}/test_*.py"))
    ]
    for path in paths[number::count]:
        if any(path.parent.glob(f"__pycache__/{path.stem}.*-pytest-*.pyc")):
            continue
        # The collection reports a module that cannot be imported.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(f"tests.{path.parent.name}.{path.stem}")


# A slow machine must not fail a test. pytest's own timeout ends tests that hang.
settings.register_profile(
    "dev",
    deadline=None,
    print_blob=True,
    max_examples=24,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, database=None)
settings.register_profile("deep", settings.get_profile("dev"), max_examples=1000)
settings.load_profile(
    os.environ.get("WMP_HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
)


@pytest.fixture(autouse=True)
def restored_log() -> Iterator[None]:
    """Restore the log of the library after a program that ran inside a test.

    The program writes the log to a stderr that is closed after the test. Later log lines would then
    be tracebacks.
    """
    logger = logging.getLogger("wmp")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before


class TrackedContext(zmq.Context[zmq.Socket[bytes]]):
    """A context that remembers all its sockets."""

    sockets: list[zmq.Socket[bytes]]

    def __init__(self) -> None:
        super().__init__()
        # The class's own __setattr__ would treat the name as a socket option.
        self.__dict__["made"] = []

    def socket(self, *args: Any, **kwargs: Any) -> Any:
        socket = super().socket(*args, **kwargs)
        self.made.append(socket)
        return socket


@pytest.fixture
def context() -> Iterator[TrackedContext]:
    """A ZeroMQ context to share; a test that leaves one of its sockets open fails.

    A context or socket that is made elsewhere and not closed is a ResourceWarning, which pytest
    also turns into a failure.
    """
    context = TrackedContext()
    yield context
    leaked = [socket for socket in context.made if not socket.closed]
    context.destroy(linger=0)
    assert not leaked, f"{len(leaked)} sockets were left open: {leaked}"
