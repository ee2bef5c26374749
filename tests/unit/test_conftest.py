"""The fixture ``context`` detects leaks."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import zmq

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
