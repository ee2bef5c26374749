"""The fixture ``context`` detects leaks; processes share tests that wait and tests that compute."""

from __future__ import annotations

import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
import zmq

from tests import conftest

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).resolve().parents[2] / "conftest.py"


def test_a_closed_socket_is_no_leak(context):
    socket = context.socket(zmq.DEALER)
    socket.close()

    assert [socket] == context.made


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_open_socket_fails_its_test(pytester):
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makepyfile(
        textwrap.dedent(
            """
            import zmq

            def test_leak(context):
                context.socket(zmq.DEALER)
            """
        )
    )

    result = pytester.runpytest("-p", "no:cacheprovider")

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*1 sockets were left open*"])


def item(name: str, *marks: pytest.Mark) -> SimpleNamespace:
    return SimpleNamespace(
        nodeid=name,
        path=Path(name.partition("::")[0]),
        get_closest_marker={mark.name: mark for mark in marks}.get,
    )


def test_tests_that_wait_are_spread_among_tests_that_compute():
    alone = pytest.mark.interop.mark
    items = [
        *(item(f"tests/interop/test_a.py::test[{number}]") for number in range(40)),
        *(item(f"tests/conformance/test_b.py::test[{number}]", alone) for number in range(30)),
        *(item(f"tests/conformance/test_live.py::test[{n}]", alone) for n in range(5)),
        *(item(f"tests/unit/test_d.py::test[{number}]") for number in range(225)),
    ]
    before = items[:]
    conftest.pytest_collection_modifyitems(SimpleNamespace(), items)
    assert items == before, "one process takes the tests in the order of the folders"

    conftest.pytest_collection_modifyitems(SimpleNamespace(workerinput={}), items)

    assert sorted(entry.nodeid for entry in items) == sorted(entry.nodeid for entry in before)
    assert items[:5] == before[70:75], "a group is first and stays together"
    waits = ["unit" not in entry.nodeid for entry in items[5:]]
    assert all(8 <= sum(waits[at : at + 50]) <= 20 for at in range(0, 250, 50))
    assert not any(waits[-25:])


def test_a_group_names_modules_that_exist():
    folder = CONFTEST.parent
    modules = [name for modules in conftest.GROUPS.values() for name in modules]

    assert len(modules) == len(set(modules))
    for name in modules:
        assert len(list(folder.glob(f"**/{name}.py"))) == 1, name


def test_the_scheduler_keeps_a_group_together(pytester):
    pytest.importorskip("xdist")
    config = pytester.parseconfigure("--tx", "2*popen", "--dist", "loadscope")
    scheduler = conftest.pytest_xdist_make_scheduler(config, None)
    tests = ("conformance/test_live.py::test_a[x]", "conformance/test_minimal.py::test_b")

    assert {scheduler._split_scope(f"tests/{name}") for name in tests} == {"kit"}
    assert scheduler._split_scope("tests/unit/test_d.py::test") == "tests/unit/test_d.py::test"
    config.option.dist = "load"
    assert conftest.pytest_xdist_make_scheduler(config, None) is None
