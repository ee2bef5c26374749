"""The pytest plugin: each seed of a simulated test is a test of its own.

Installed with the library (entry point ``pytest11``). The plugin imports the rest of the library
only for a test that is decorated with :func:`wmp.testing.simulate`.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from wmp.testing.handlers.simulated import SimulatedWorld
    from wmp.testing.handlers.trial import Trial

_SEED = "seed"
_world: pytest.StashKey[SimulatedWorld] = pytest.StashKey()
_failed: pytest.StashKey[dict[str, int]] = pytest.StashKey()


def _seeds(text: str) -> range:
    """Parse ``17`` or ``0:500``."""
    first, colon, last = text.partition(":")
    try:
        seeds = range(int(first), int(last) if colon else int(first) + 1)
    except ValueError:
        seeds = range(0)
    if not seeds or seeds[0] < 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a seed or a range of seeds; write 17, or 0:500 for 0 to 499"
        )
    return seeds


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("wmp", "tests of handlers in simulated networks (wmp.testing.simulate)")
    group.addoption(
        "--wmp-seed",
        type=_seeds,
        metavar="N",
        help="run simulated tests only with this seed, or with a range of seeds such as 0:500",
    )
    group.addoption(
        "--wmp-trace",
        action="store_true",
        help="show every step and message of a simulated test that failed",
    )


def _trial(function: Any) -> Trial:
    trial: Trial | None = getattr(function, "wmp_trial", None)
    if trial is None:
        from wmp.testing.handlers.trial import Trial

        trial = Trial()
    return trial


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each seed."""
    if "wmp_world" not in metafunc.fixturenames:
        return
    seeds = metafunc.config.getoption("--wmp-seed") or _trial(metafunc.function).seeds
    ids = [f"{_SEED}{seed}" for seed in seeds]
    metafunc.parametrize("wmp_world", seeds, ids=ids, indirect=True)


@pytest.fixture
def wmp_world(request: pytest.FixtureRequest) -> SimulatedWorld:
    """A simulated network with faults, for handlers; see ``wmp.testing.simulate``."""
    failed = request.config.stash.setdefault(_failed, {}).get(_name(request.node))
    if failed is not None:
        pytest.skip(f"seed {failed} of {request.node.originalname} has failed already")
    trace = request.config.getoption("--wmp-trace")
    world = _trial(request.function).world(request.param, trace=trace)
    request.node.stash[_world] = world
    return world


def _name(item: pytest.Item) -> str:
    """Return a test's name without its seed."""
    return re.sub(rf"\b{_SEED}\d+\b", _SEED, item.nodeid)


@pytest.hookimpl(hookwrapper=True)  # older versions of pytest lack wrapper=
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, None]:
    """Add an account of the world to the report of a failed test."""
    report: pytest.TestReport = (yield).get_result()
    world = item.stash.get(_world, None)
    if world is None or call.when != "call" or not report.failed:
        return
    item.config.stash[_failed].setdefault(_name(item), world.seed)
    error = None if call.excinfo is None else call.excinfo.value
    account = world.account(error)
    if not world.seed:
        account = (
            f"seed 0 has no faults, so the handlers or the test fail without a fault too\n{account}"
        )
    again = f"play it again: {_command(item, world.seed)}"
    if not item.config.getoption("--wmp-trace"):
        again += "\nwith every message: add --wmp-trace"
    report.sections.append((f"simulated world, seed {world.seed}", f"{account}\n{again}"))


def _command(item: pytest.Item, seed: int) -> str:
    """Return the command that plays the test in this world alone."""
    path, colons, name = item.nodeid.partition("::")
    try:
        path = os.path.relpath(item.path)
    except ValueError:
        pass  # another drive: keep the path as pytest names it
    name = name.removesuffix(f"[{_SEED}{seed}]")
    return f"pytest {shlex.quote(path + colons + name)} --wmp-seed {seed}"
