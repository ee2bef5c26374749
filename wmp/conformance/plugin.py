"""The pytest plugin: each case of the kit is a test.

::

    pytest --pyargs wmp.conformance --wmp-role worker --wmp-command "./my-worker {endpoint}"

Installed with the library (entry point ``pytest11``). It imports nothing else of the kit before
it is told what to test. The tests are in :mod:`wmp.conformance.test_peer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from wmp.conformance.run import RunPlan

__all__ = ["pytest_addoption", "pytest_configure", "pytest_generate_tests", "wmp_plan"]

_FIXTURE = "wmp_case"
_plan: pytest.StashKey[RunPlan] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("wmp-conformance", "peers of WMP (pytest --pyargs wmp.conformance)")
    add = group.addoption
    add(
        "--wmp-role",
        choices=("manager", "worker", "device"),
        help="what the peer is that is to be tested",
    )
    add("--wmp-command", metavar="COMMAND", help="starts it: './my-worker {endpoint}'")
    add("--wmp-endpoint", metavar="ADDRESS", help="of a peer that runs already")
    add("--wmp-unit", type=int, default=200, metavar="MS", help="{unit} in the command (200)")
    add("--wmp-without", action="append", default=[], metavar="PROFILE", help="it does not speak")
    add("--wmp-rule", action="append", default=[], metavar="WMP-4.3", help="only this rule")
    add("--wmp-strict", action="store_true", help="a SHOULD that does not hold is a failure, too")
    add("--wmp-examples", type=int, default=20, metavar="N", help="conversations drawn (20)")
    add("--wmp-draw-seed", type=int, default=0, metavar="N", help="of what is drawn (0)")


def _make_plan(config: pytest.Config) -> RunPlan:
    try:
        from wmp.conformance.run import RunPlan
        from wmp.conformance.selection import check, choose, spoken
        from wmp.conformance.sockets import Live
    except ModuleNotFoundError as error:
        raise pytest.UsageError(
            f"{error.name} is not installed; "
            "run: pip install 'worker-manager-protocol[conformance]'"
        ) from None
    from wmp.conformance.rules import PROFILES
    from wmp.errors import ConfigError

    option = config.getoption
    testee: str = option("--wmp-role")
    try:
        check(testee, option("--wmp-command"), option("--wmp-endpoint"))
        cases, draws = choose(testee, option("--wmp-rule"), ())
        for profile in option("--wmp-without"):
            if profile not in PROFILES[1:]:
                names = ", ".join(PROFILES[1:])
                raise ConfigError(f"no profile {profile!r} can be left out; there are {names}")
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None
    live = Live(testee, option("--wmp-command"), option("--wmp-endpoint"), option("--wmp-unit"))
    return RunPlan(
        live,
        cases,
        option("--wmp-examples") if draws else 0,
        option("--wmp-draw-seed"),
        spoken(testee, (), option("--wmp-without")),
    )


def pytest_configure(config: pytest.Config) -> None:
    """Say at once what is wrong with the options."""
    if config.getoption("--wmp-role", None) is not None:
        config.stash[_plan] = _make_plan(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each case."""
    if _FIXTURE not in metafunc.fixturenames:
        return
    config = metafunc.config
    if config.getoption("--wmp-role") is None:
        skip = pytest.mark.skip("which peer? add --wmp-role worker --wmp-command './my-worker …'")
        metafunc.parametrize(_FIXTURE, [pytest.param(None, marks=skip, id="none")])
        return
    plan = config.stash[_plan]
    ids = [case.id for case in plan.cases]
    metafunc.parametrize(_FIXTURE, [*ids, *([f"{plan.live.testee}/drawn"] * (plan.examples > 0))])


@pytest.fixture
def wmp_plan(request: pytest.FixtureRequest) -> Any:
    """What is tested, and how."""
    return request.config.stash[_plan]
