"""The kit over sockets: this project's programs as testees, each in a separate process.

A few cases of each kind run here; all cases with ``WMP_CONFORMANCE=full`` (``tox -e conformance``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from tests.conformance.at_once import Play, played
from wmp.conformance import Nonconforming, Unimplemented, Verdict
from wmp.conformance.engine import socket_plays
from wmp.conformance.engine.check import cases_for
from wmp.conformance.engine.draw import draw
from wmp.conformance.engine.socket_plays import LiveTestee
from wmp.conformance.script.case import CASES, Case
from wmp.conformance.script.stalls import StallWatch
from wmp.conformance.wire.core_probes import CoreProbes, waited_for_core

FULL = os.environ.get("WMP_CONFORMANCE") == "full"
UNIT = 200
TESTEE = f"{sys.executable} -m wmp.conformance.testees.testee"
LIVE = {
    "manager": LiveTestee(
        "manager",
        f"{TESTEE} manager --bind {{endpoint}} --connect '{{connect}}' --unit {{unit}}",
        unit=UNIT,
    ),
    "worker": LiveTestee(
        "worker",
        f"{TESTEE} worker --connect {{endpoint}} --unit {{unit}} --slots {{slots}}",
        unit=UNIT,
    ),
    "device": LiveTestee(
        "device",
        f"{TESTEE} device --bind {{bind}} --connect {{connect}} --managers {{managers}}"
        " --unit {unit}",
        unit=UNIT,
    ),
}
SOME = (
    "manager/silence-gives-a-worker-up",
    "manager/garbage",
    "manager/superseded",
    "manager/announcements-go-to-each-device",
    "manager/a-job-over-a-device",
    "worker/a-socket-for-each-manager",
    "worker/silent-link",
    "worker/goodbye-after-work",
    "worker/superseded",
    "device/discovery-goes-everywhere",
    "device/what-cannot-be-passed-on",
    "device/both-ways-up",
    "device/silence-ends-it",
)
DIES = "worker/what-runs-it-dies"
CHOSEN = [
    case
    for kind in LIVE
    for case in cases_for(kind)
    if (FULL or case.id in SOME)
    and case.id != DIES
    # The manager's process has no store; LibraryStoredManager plays these cases in virtual time.
    and not (kind == "manager" and case.profile == "successor")
]

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def play(request: pytest.FixtureRequest) -> Iterator[Play]:
    with played(request, lambda case: LIVE[case.testee].play(case), "case") as play:
        yield play


@pytest.mark.usefixtures("play")  # the cases run at the same time as this test
@pytest.mark.parametrize("kind", LIVE)
def test_drawn_conversations_are_played_over_sockets_too(kind: str) -> None:
    drawn = draw(kind, LIVE[kind].wire, examples=20 if FULL else 1, maximum=12, number=5)

    assert drawn.verdict is Verdict.OK, Nonconforming(drawn)


@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.id)
def test_this_project_conforms(case: Case, play: Play) -> None:
    result = play(case)

    assert result.verdict in (Verdict.OK, Verdict.INFORMATIONAL), Nonconforming(result)


def test_the_process_of_a_job_may_die() -> None:
    command = LIVE["worker"].command
    result = LiveTestee("worker", f"{command} --die", unit=UNIT).play(CASES[DIES])

    assert result.verdict is Verdict.OK, Nonconforming(result)
    assert LIVE["worker"].play(CASES[DIES]).verdict is Verdict.UNIMPLEMENTED


def test_a_testee_that_ends_by_itself_has_failed() -> None:
    live = LiveTestee("worker", f"{sys.executable} -c pass {{endpoint}}")
    result = live.play(CASES["worker/plain-handshake"])

    assert (result.verdict, result.rule) == (Verdict.FAILED, "WMP-10.1")
    assert "during the case" in result.text


def test_a_testee_that_ends_badly_is_unclean() -> None:
    ends_badly = (
        "import signal, subprocess, sys; p = subprocess.Popen(sys.argv[1:]);"
        "signal.signal(signal.SIGTERM, lambda *_: p.terminate()); p.wait(); sys.exit(3)"
    )
    command = LIVE["device"].command
    assert command is not None
    live = LiveTestee("device", f'{sys.executable} -c "{ends_badly}" {command}', unit=UNIT)
    result = live.play(CASES["device/there-and-back"])

    assert result.verdict is Verdict.UNCLEAN, result.text
    assert "status 3" in result.text


def test_a_slower_replay_needs_a_testee_with_a_unit_option() -> None:
    assert LiveTestee("worker", "./mine {endpoint} {unit}", unit=200).slower.unit == 600
    assert LiveTestee("worker", "./mine {endpoint} {unit}", unit=900).slower.unit == 1000
    assert LiveTestee("worker", None, "tcp://127.0.0.1:1", unit=200).slower.unit == 200


def test_a_command_without_slots_cannot_have_two() -> None:
    live = LiveTestee("worker", f"{TESTEE} worker --connect {{endpoint}}")
    case = next(case for case in cases_for("worker") if case.slots > 1)

    with pytest.raises(Unimplemented, match="slots"):
        live.wire(case)
    assert live.play(case).verdict is Verdict.UNIMPLEMENTED


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="127.0.0.1 is the only address")
def test_the_addresses_of_plays_at_the_same_time_differ() -> None:
    case = next(
        case for case in cases_for("device") if case.id == "device/discovery-goes-everywhere"
    )
    sleeping = LiveTestee("device", f"{sys.executable} -c 'input()' {{bind}} {{connect}}")
    wires = [sleeping.wire(case) for _ in range(2)]
    try:
        hosts = {wire.bound.rpartition(":")[0] for wire in wires}
        assert len(hosts) == 2, "a testee may lose its free port to another play"
    finally:
        for wire in wires:
            wire.close()


@pytest.mark.parametrize(
    ("id", "options"),
    [("resources-of-the-newest-ready", ""), ("begun-runs-are-counted", "--cross")],
)
def test_a_manager_may_read_in_another_order_than_the_kit_sends(id: str, options: str) -> None:
    """Lines and messages of other connections wait until the manager has read earlier messages."""
    late = f"{sys.executable} tests/conformance/late_manager.py {{endpoint}} {{unit}} {options}"
    (peer,) = [case for case in cases_for("manager") if case.id == f"manager/{id}"]

    result = LiveTestee("manager", late, unit=1000).play(peer)

    assert result.verdict is Verdict.OK, f"{result.rule}: {result.text}"


@pytest.mark.parametrize(("waited", "starved"), [(1e6, True), (0.0, False), (None, False)])
def test_a_testee_that_got_no_core_and_sent_nothing_has_not_failed(
    waited: float | None, starved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_plays, "waited_for_core", lambda process: waited)
    monkeypatch.setattr(CoreProbes, "longest", lambda self, stays, since: 0.0)
    monkeypatch.setattr(StallWatch, "longest", lambda self, since: 0.0)
    silent = LiveTestee("worker", f"{sys.executable} -c 'input()' {{endpoint}}")
    wire = silent.wire(CASES["worker/plain-handshake"])
    try:
        assert ("waited" in wire.stalled(False)) == starved
        wire._began_to_send = True
        assert wire.stalled(False) == ""
    finally:
        wire.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux reports the time")
def test_the_system_reports_how_long_a_process_waited_for_a_core() -> None:
    waited = waited_for_core(os.getpid())

    assert waited is not None
    assert waited >= 0
