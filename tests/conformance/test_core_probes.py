"""Probes on the cores tell a testee that could not run: its failure is void."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from typing import Any

import pytest

from tests.waiting import WAIT
from wmp.conformance.engine.socket_plays import LiveTestee
from wmp.conformance.script.case import Broken, Case, Verdict
from wmp.conformance.wire.core_probes import PROBES, CoreProbes, core_of

pytestmark = pytest.mark.skipif(
    core_of(os.getpid()) is None, reason="the system does not report the core of a process"
)


def test_a_delay_counts_on_the_core_where_the_testee_was_then() -> None:
    probes = CoreProbes()
    probes.note(0, 10.0, 0.5)
    probes.note(1, 10.0, 0.9)
    probes.note(0, 20.0, 0.7)

    assert probes.longest([(9.8, 0), (20.5, 1)], 0.0) == 0.5
    assert probes.longest([(9.8, 0), (19.9, 0)], 0.0) == 0.7
    assert probes.longest([(9.8, 0)], 10.5) == 0.0, "the delay was before the conversation"
    assert probes.longest([], 0.0) == 0.0


@pytest.mark.interop
def test_a_probe_that_cannot_run_reports_the_delay() -> None:
    probes = CoreProbes()
    began = time.monotonic()
    probes.begin()
    try:
        core = min(os.sched_getaffinity(0))
        child = probes._children[0]
        stays: list[tuple[float, int]] = []
        while probes.longest(stays, began) < 0.3:
            os.kill(child.pid, signal.SIGSTOP)
            time.sleep(0.4)  # the delay itself
            os.kill(child.pid, signal.SIGCONT)
            stays = [(began + step / 10, core) for step in range(int(10 * WAIT))]
            assert time.monotonic() < began + WAIT, "no delay was reported"
    finally:
        probes.end()

    assert child.poll() is not None, "the probe ends with the last conversation"
    assert probes.longest(stays, began) == 0.0


@pytest.mark.interop
@pytest.mark.parametrize(("lost", "verdict"), [(9.0, Verdict.VOID), (0.0, Verdict.FAILED)])
def test_a_failure_of_a_starved_testee_is_void(lost: float, verdict: Verdict) -> None:
    def script(talk: Any) -> None:
        """A script that finds a breach."""
        wire = talk.wire
        while not wire._stays:
            talk.wait(0.1)
        if lost:
            PROBES.note(wire._stays[-1][1], time.monotonic(), lost)
        raise Broken("WMP-3.1", "no READY arrived")

    case = Case("worker/late", "worker", ("WMP-3.1",), script)
    testee = f"{shlex.quote(sys.executable)} -c 'import time; time.sleep(100)' {{endpoint}}"
    wire = LiveTestee("worker", testee)

    result = wire._play_once(case)

    if verdict is Verdict.VOID:
        assert result.verdict is Verdict.VOID
        assert "a probe on the core of the testee could not run for 9.00 s" in result.text
    else:
        assert result.verdict in (Verdict.FAILED, Verdict.VOID)
        assert "9.00" not in result.text
