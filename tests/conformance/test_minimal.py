"""Peers that were written from the specification alone pass the kit's core cases.

A few cases of each peer run here; all cases of every profile with ``WMP_CONFORMANCE=full`` (``tox
-e conformance``).
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.at_once import Play, played
from tests.interop.programs.programs import copy_node_worker
from wmp.conformance import CaseResult, Nonconforming, Verdict
from wmp.conformance.engine.check import cases_for
from wmp.conformance.engine.draw import draw
from wmp.conformance.engine.socket_plays import LiveTestee
from wmp.conformance.script.case import Case

FULL = os.environ.get("WMP_CONFORMANCE") == "full"
UNIT = 200
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PYTHON = f"{shlex.quote(sys.executable)} {shlex.quote(str(EXAMPLES / 'independent'))}"
COMMANDS = {
    "manager": f"{PYTHON}/manager.py {{endpoint}} --unit {{unit}}",
    "worker": f"{PYTHON}/worker.py {{endpoint}} --slots {{slots}} --unit {{unit}}",
    "node": "node worker.mjs {endpoint} --slots {slots} --unit {unit}",
}
SOME = (
    "manager/plain-handshake",
    "manager/somebody-else",
    "manager/silence-gives-a-worker-up",
    "manager/what-never-left-costs-nothing",
    "manager/garbage",
    "worker/plain-handshake",
    "worker/somebody-else",
    "worker/another-in-its-place",
    "worker/misrouted",
    "worker/superseded",
    "worker/a-job-is-its-owners",
    "worker/garbage",
)
GOOD = (Verdict.OK, Verdict.INFORMATIONAL, Verdict.UNIMPLEMENTED)

pytestmark = pytest.mark.interop


def kind_of(name: str) -> str:
    return "manager" if name == "manager" else "worker"


def live(name: str, folder: Path) -> LiveTestee:
    """Return how the kit reaches a peer; the peer for Node.js is skipped without its package."""
    if name != "node":
        return LiveTestee(name, COMMANDS[name], unit=UNIT)
    copy_node_worker(folder)
    worker = shlex.quote(str(folder / "worker.mjs"))
    return LiveTestee("worker", COMMANDS[name].replace("worker.mjs", worker), unit=UNIT)


CHOSEN = [
    pytest.param(name, case, id=f"{name}-{case.id}")
    for name in COMMANDS
    for case in cases_for(kind_of(name))
    if FULL or case.id in SOME
]


@pytest.fixture(scope="module")
def play(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Play]:
    # Several threads play the cases, and the factory makes its folder at the first use.
    tmp_path_factory.getbasetemp()

    def play(name: str, case: Case) -> CaseResult:
        return live(name, tmp_path_factory.mktemp(name)).play(case)

    with played(request, play, "name", "case") as begun:
        yield begun


@pytest.mark.usefixtures("play")  # the cases run at the same time as this test
@pytest.mark.parametrize("name", COMMANDS)
def test_drawn_conversations_find_no_fault_in_a_minimal_peer(name: str, tmp_path: Path) -> None:
    peer = live(name, tmp_path)
    examples = 20 if FULL else 1
    drawn = draw(
        peer.testee, peer.wire, examples=examples, maximum=12, number=5, sure=peer.slower.wire
    )

    assert drawn.verdict is Verdict.OK, Nonconforming(drawn)


@pytest.mark.parametrize(("name", "case"), CHOSEN)
def test_a_minimal_peer_conforms(name: str, case: Case, play: Play) -> None:
    result = play(name, case)

    assert result.verdict in GOOD, Nonconforming(result)
    assert result.verdict is not Verdict.UNIMPLEMENTED or case.profile != "core", result.text
