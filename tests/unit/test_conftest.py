"""The fixture ``context`` detects leaks; processes share tests that wait and tests that compute."""

from __future__ import annotations

import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
import zmq

from tests import conftest

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"


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
    alone, grouped = pytest.mark.interop.mark, pytest.mark.xdist_group("g").mark
    items = [
        *(item(f"tests/interop/test_a.py::test[{number}]") for number in range(40)),
        *(item(f"tests/conformance/test_b.py::test[{number}]", alone) for number in range(30)),
        *(item(f"tests/conformance/test_c.py::test[{n}]", alone, grouped) for n in range(5)),
        *(item(f"tests/unit/test_d.py::test[{number}]") for number in range(225)),
    ]
    before = items[:]
    conftest.pytest_collection_modifyitems(SimpleNamespace(), items)
    assert items == before, "one process takes the tests in the order of the folders"

    conftest.pytest_collection_modifyitems(SimpleNamespace(workerinput={}), items)

    assert sorted(one.nodeid for one in items) == sorted(one.nodeid for one in before)
    waits = ["unit" not in one.nodeid for one in items]
    assert all(8 <= sum(waits[at : at + 50]) <= 20 for at in range(0, 250, 50))
    assert not any(waits[-25:])
    group = [one.nodeid for one in items if "test_c" in one.nodeid or "test_b" in one.nodeid]
    firsts = [at for at, name in enumerate(group) if "test_c" in name]
    assert firsts == [*range(firsts[0], firsts[0] + 5)], "a group stays together"
