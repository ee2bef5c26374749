"""The kit accuses no honest peer in another language (tests/peers): a few cases of each peer.

``python tests/opponents.py`` (``tox -e opponents``) plays all cases, many times, under load.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.at_once import Play, played
from tests.conformance.opponents import OPPONENTS, make_folder
from wmp.conformance import CaseResult, Nonconforming, Verdict
from wmp.conformance.engine.check import cases_for

SOME = {
    "worker": ("turns", "running-jobs-fit", "a-role-without-handler", "newer-epoch"),
    "manager": ("not-to-who-refused", "older-epoch", "one-job-wakes-one"),
    "device": ("directions", "wrong-hops"),
}
CHOSEN = [
    (kind, habits, f"{kind}/{name}")
    for kind, names in SOME.items()
    for habits in OPPONENTS[kind].habits[-2 if kind == "worker" else -1 :]
    for name in names
]

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not shutil.which("node"), reason="node is not installed"),
]


@pytest.fixture(scope="module")
def play(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Play]:
    folder: Path = tmp_path_factory.mktemp("opponents")
    make_folder(folder)

    def play(kind: str, habits: str, id: str) -> CaseResult:
        (case,) = [case for case in cases_for(kind) if case.id == id]
        return OPPONENTS[kind].live(folder, habits).play(case)

    with played(request, play, "kind", "habits", "id") as begun:
        yield begun


@pytest.mark.parametrize(("kind", "habits", "id"), CHOSEN)
def test_an_honest_opponent_is_not_accused(kind: str, habits: str, id: str, play: Play) -> None:
    result = play(kind, habits, id)

    assert result.verdict in (Verdict.OK, Verdict.INFORMATIONAL, Verdict.VOID), Nonconforming(
        result
    )
