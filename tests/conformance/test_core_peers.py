"""The minimal peers (examples/minimal/) pass the core cases, share no code with wmp, are small.

A few cases of each peer run here; all core cases with ``WMP_CONFORMANCE=full`` (``tox -e
conformance``).
"""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.at_once import Play, played
from tests.interop.programs.forks import ForkedProgram, wmp
from wmp.conformance import CaseResult, Nonconforming, Verdict
from wmp.conformance.engine.check import cases_for
from wmp.conformance.engine.socket_plays import LiveTestee
from wmp.conformance.script.case import CASES, Case

FULL = os.environ.get("WMP_CONFORMANCE") == "full"
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "minimal"
SOME = (
    "manager/plain-handshake",
    "manager/what-is-not-for-it",
    "manager/one-job-wakes-one",
    "manager/refused-job",
    "manager/garbage",
    "worker/plain-handshake",
    "worker/what-is-not-for-it",
    "worker/turns",
    "worker/woken-without-capacity",
    "worker/garbage",
)
CORE = [case for testee in ("manager", "worker") for case in cases_for(testee, ["core"])]

interop = pytest.mark.interop


C_MISSING = "cc with zmq.h is missing: apt-get install gcc libzmq3-dev"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the programs in C, which are built here."""
    folder = tmp_path_factory.mktemp("c")
    if not shutil.which("cc"):
        pytest.skip(C_MISSING)
    probe = ["cc", "-E", "-include", "zmq.h", "-x", "c", os.devnull]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip(C_MISSING)
    for name in ("worker", "manager"):
        source, program = str(FOLDER / f"{name}.c"), str(folder / name)
        subprocess.run(
            [
                "cc",
                "-O1",
                "-Wall",
                "-Werror",
                "-Wno-unused-function",
                "-o",
                program,
                source,
                "-lzmq",
            ],
            check=True,
        )
    return folder


@pytest.fixture(scope="module")
def play_c(request: pytest.FixtureRequest, built: Path) -> Iterator[Play]:
    def run(case: Case) -> CaseResult:
        command = f"{shlex.quote(str(built / case.testee))} {{endpoint}} {{unit}}"
        return LiveTestee(case.testee, command, unit=200).play(case)

    with played(request, run, "case") as play:
        yield play


def live(testee: str) -> LiveTestee:
    program = shlex.quote(str(FOLDER / f"{testee}.py"))
    command = f"{shlex.quote(sys.executable)} {program} {{endpoint}} {{unit}}"
    return LiveTestee(testee, command, unit=200)


@pytest.fixture(scope="module")
def play(request: pytest.FixtureRequest) -> Iterator[Play]:
    with played(request, lambda case: live(case.testee).play(case), "case") as play:
        yield play


@interop
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.id) for case in CORE if FULL or case.id in SOME]
)
def test_the_smallest_peers_keep_the_core(case: Case, play: Play) -> None:
    result = play(case)

    assert result.verdict not in (Verdict.FAILED, Verdict.NON_STRICT), Nonconforming(result)
    # the worker has one place: only cases that need several may be left out
    assert result.verdict is not Verdict.UNIMPLEMENTED or case.slots > 1, result.text


@interop
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.id) for case in CORE if FULL or case.id in SOME]
)
def test_the_smallest_peers_in_c_keep_the_core(case: Case, play_c: Play) -> None:
    result = play_c(case)

    assert result.verdict not in (Verdict.FAILED, Verdict.UNCLEAN), Nonconforming(result)
    assert result.verdict is not Verdict.UNIMPLEMENTED or case.slots > 1, result.text


@pytest.mark.parametrize("name", ["manager.c", "worker.c"])
def test_each_program_in_c_is_small(name: str) -> None:
    assert len((FOLDER / name).read_text().splitlines()) <= 150


@interop
@pytest.mark.parametrize("name", ["deadline-at-a-worker", "attempts-grow"])
def test_an_option_that_a_manager_does_not_know_is_no_failure(name: str) -> None:
    result = live("manager").play(CASES[f"manager/{name}"])

    assert result.verdict is Verdict.UNIMPLEMENTED, result.text
    assert result.text.startswith("the manager answered 'unknown' ")


def test_some_of_the_core_are_cases_of_the_core() -> None:
    assert set(SOME) <= {case.id for case in CORE}


@pytest.mark.parametrize("name", ["manager.py", "worker.py"])
def test_each_is_small_and_shares_nothing_with_wmp(name: str) -> None:
    text = (FOLDER / name).read_text()
    nodes = list(ast.walk(ast.parse(text)))
    imported = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module or "." for node in nodes if isinstance(node, ast.ImportFrom)}
    others = {name.partition(".")[0] for name in imported} - sys.stdlib_module_names

    assert others <= {"cbor2", "zmq"}
    assert len(text.splitlines()) <= 150
    assert "fmt:" not in text
    assert "noqa" not in text
    assert {path.name for path in FOLDER.glob("*.py")} == {"manager.py", "worker.py"}


@pytest.fixture
def endpoint() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"tcp://127.0.0.1:{server.getsockname()[1]}"


@interop
def test_the_smallest_worker_works_for_our_map(endpoint: str) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(200))
    with (
        ForkedProgram(sys.executable, str(FOLDER / "worker.py"), endpoint) as worker,
        wmp("map", "--bind", endpoint, "--role", "echo") as mapping,
    ):
        mapping.feed(lines)
        mapping.end_input()

        assert (mapping.ends(), mapping.stdout) == (0, lines)
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0


@interop
def test_our_worker_works_for_the_smallest_manager(endpoint: str, tmp_path: Path) -> None:
    (tmp_path / "handlers.py").write_text("table = {'echo': lambda payload: payload}\n")
    ours = ("worker", "handlers:table", "--connect", endpoint, "--slots", "4")
    theirs = (sys.executable, str(FOLDER / "manager.py"), endpoint)
    with ForkedProgram(*theirs) as manager, wmp(*ours, cwd=tmp_path):
        manager.feed("".join(f"submit {n} echo {n:04x}\n" for n in range(200)).encode())
        written = [manager.line().split() for _ in range(400)]
        manager.signal(signal.SIGTERM)
        assert manager.ends() == 0

    ended = {words[1]: words[2:] for words in written if words[0] == "ended"}
    assert ended == {str(n): ["ok", f"{n:04x}"] for n in range(200)}
