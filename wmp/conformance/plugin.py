"""The pytest plugin: each case of the kit is a test.

::

    pytest --pyargs wmp.conformance --wmp-role worker --wmp-command "./my-worker {endpoint}"

Installed with the library (entry point ``pytest11``). The plugin imports the rest of the kit only
when an option names a testee. The tests are in :mod:`wmp.conformance.test_peer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from wmp.conformance.engine.run import RunPlan

_FIXTURE = "wmp_case"
_plan: pytest.StashKey[RunPlan] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("wmp-conformance", "test a WMP peer (pytest --pyargs wmp.conformance)")
    add = group.addoption
    add(
        "--wmp-role",
        choices=("manager", "worker", "device"),
        help="kind of the peer to test",
    )
    add(
        "--wmp-command",
        metavar="COMMAND",
        help="command that starts the peer, for example './my-worker {endpoint}'",
    )
    add("--wmp-endpoint", metavar="ADDRESS", help="address of a peer that runs already")
    add(
        "--wmp-unit",
        type=int,
        default=200,
        metavar="MS",
        help=(
            "milliseconds that one second of the specification's timers takes; replaces {unit} in "
            "the command (default: 200)"
        ),
    )
    add(
        "--wmp-without",
        action="append",
        default=[],
        metavar="PROFILE",
        help="do not test this profile; repeat the option for more",
    )
    add(
        "--wmp-rule",
        action="append",
        default=[],
        metavar="WMP-4.3",
        help="test this rule only; repeat the option for more",
    )
    add("--wmp-strict", action="store_true", help="count a broken SHOULD as a failure")
    add(
        "--wmp-examples",
        type=int,
        default=20,
        metavar="N",
        help="number of randomly drawn conversations (default: 20)",
    )
    add(
        "--wmp-draw-seed",
        type=int,
        default=0,
        metavar="N",
        help="seed of the drawn conversations (default: 0)",
    )


def _make_plan(config: pytest.Config) -> RunPlan:
    try:
        from wmp.conformance.engine.run import RunPlan
        from wmp.conformance.engine.selection import check, choose, spoken
        from wmp.conformance.engine.socket_plays import LiveTestee
    except ModuleNotFoundError as error:
        raise pytest.UsageError(
            f"{error.name} is not installed; "
            "run: pip install 'worker-manager-protocol[conformance]'"
        ) from None
    from wmp.conformance.script.rules import PROFILES
    from wmp.errors import ConfigError

    option = config.getoption
    testee: str = option("--wmp-role")
    try:
        check(testee, option("--wmp-command"), option("--wmp-endpoint"))
        cases, draws = choose(testee, option("--wmp-rule"), ())
        for profile in option("--wmp-without"):
            if profile not in PROFILES[1:]:
                names = ", ".join(PROFILES[1:])
                raise ConfigError(
                    f"cannot leave out the profile {profile!r}; expected one of {names}"
                )
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None
    live = LiveTestee(
        testee, option("--wmp-command"), option("--wmp-endpoint"), option("--wmp-unit")
    )
    return RunPlan(
        live,
        cases,
        option("--wmp-examples") if draws else 0,
        option("--wmp-draw-seed"),
        spoken(testee, (), option("--wmp-without")),
    )


def pytest_configure(config: pytest.Config) -> None:
    """Report wrong options before the run."""
    if config.getoption("--wmp-role", None) is not None:
        config.stash[_plan] = _make_plan(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each case."""
    if _FIXTURE not in metafunc.fixturenames:
        return
    config = metafunc.config
    if config.getoption("--wmp-role") is None:
        skip = pytest.mark.skip(
            "the options name no peer; add --wmp-role worker --wmp-command './my-worker {endpoint}'"
        )
        metafunc.parametrize(_FIXTURE, [pytest.param(None, marks=skip, id="none")])
        return
    plan = config.stash[_plan]
    ids = [case.id for case in plan.cases]
    metafunc.parametrize(_FIXTURE, [*ids, *([f"{plan.live.testee}/drawn"] * (plan.examples > 0))])


@pytest.fixture
def wmp_plan(request: pytest.FixtureRequest) -> Any:
    """The plan of the run: the testee and the cases."""
    return request.config.stash[_plan]
