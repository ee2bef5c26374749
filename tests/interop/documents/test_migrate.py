"""Programs of other libraries and the same programs with wmp print the same."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.interop.programs.forks import ForkedProgram, Forks
from tests.interop.programs.forks import wmp as program
from tests.interop.programs.programs import ROOT, Program
from tests.waiting import RUN

pytestmark = pytest.mark.interop

FOLDER = ROOT / "examples" / "migrate"

PRINTED = {
    "process_pool.py": "[25, 168, 303]\n",
    "joblib_parallel.py": "[0, 3, 6, 9, 12]\n",
    "celery_tasks.py": "3\n3\n13\n[0, 2, 4, 6]\nfetched page\n",
    "rq_jobs.py": "6\n",
}
"""The first lines that each program and its twin print."""


def twin(name: str) -> str:
    return name.replace(".py", "_wmp.py")


def run(name: str, **env: str) -> str:
    ended = subprocess.run(
        [sys.executable, FOLDER / name],
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=RUN,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("name", PRINTED)
def test_the_program_with_wmp_has_no_more_lines(name: str) -> None:
    def lines(file: str) -> int:
        return len(ast.unparse(ast.parse((FOLDER / file).read_text())).splitlines())

    assert lines(twin(name)) <= lines(name)


def test_every_program_is_listed_and_has_a_twin() -> None:
    page = (FOLDER / "README.md").read_text()
    files = {path.name for path in FOLDER.glob("*.py")} - {"work.py"}

    assert files == {*PRINTED, *map(twin, PRINTED)}
    assert all(f"]({name})" in page for name in files)


@pytest.mark.parametrize(
    "name",
    ["process_pool_wmp.py", pytest.param("joblib_parallel_wmp.py", marks=pytest.mark.deep)],
)
def test_a_program_with_its_own_processes_prints_the_results(name: str, forks: Forks) -> None:
    if "joblib" in name:
        pytest.importorskip("joblib")

    ended = forks.run(sys.executable, "-W", "error", str(FOLDER / name))

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(PRINTED[name.replace("_wmp", "")])


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("celery_tasks_wmp.py", "celery_tasks_wmp"),
        pytest.param("rq_jobs_wmp.py", "work --functions", marks=pytest.mark.deep),
    ],
)
def test_a_program_with_a_worker_prints_the_results(name: str, module: str) -> None:
    # Not tmp_path, because the name of an ipc socket must be short.
    with (
        tempfile.TemporaryDirectory(prefix="wmp-") as folder,
        program("worker", *module.split(), "--connect", f"ipc://{folder}/s", cwd=FOLDER) as worker,
        ForkedProgram(
            sys.executable, str(FOLDER / name), env={"MANAGER": f"ipc://{folder}/s"}
        ) as submitter,
    ):
        assert submitter.ends() == 0, submitter.stderr
        assert submitter.stdout.decode() == PRINTED[name.replace("_wmp", "")]
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0


@pytest.mark.deep
@pytest.mark.parametrize("name", ["process_pool.py", "joblib_parallel.py"])
def test_the_program_before_prints_the_same(name: str) -> None:
    if "joblib" in name:
        pytest.importorskip("joblib")

    assert run(name) == run(twin(name))


@pytest.mark.deep
def test_celery_prints_the_same(tmp_path: Path) -> None:
    pytest.importorskip("celery", reason="celery is not installed")
    for folder in ("queue", "results"):
        (tmp_path / folder).mkdir()
    settings = tmp_path / "sitecustomize.py"
    settings.write_text(
        "import pathlib\n"
        "import kombu.transport.filesystem as f\n"
        f"f.Channel.data_folder_in = f.Channel.data_folder_out = {str(tmp_path / 'queue')!r}\n"
        f"f.Channel.control_folder = pathlib.Path({str(tmp_path / 'queue')!r})\n"
    )
    env = {
        "BROKER": "filesystem://",
        "BACKEND": f"file://{tmp_path / 'results'}",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), *sys.path]),
    }
    command = "celery -A celery_tasks worker --pool solo -l info"
    argv = (sys.executable, "-m", *command.split())
    with Program(*argv, cwd=FOLDER, env=env) as worker:
        worker.wait_for_line("ready.")
        assert run("celery_tasks.py", **env) == PRINTED["celery_tasks.py"]


@pytest.mark.deep
def test_rq_prints_the_same(tmp_path: Path) -> None:
    pytest.importorskip("rq", reason="rq is not installed")
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    socket = tmp_path / "redis"
    server = ("redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "")
    env = {"REDIS": f"unix://{socket}"}
    with Program(*server, cwd=tmp_path) as redis:
        redis.wait_for_line("ready to accept connections", on="stdout")
        argv = (sys.executable, "-m", "rq.cli", "worker", "--url", env["REDIS"])
        with Program(*argv, cwd=FOLDER):
            assert run("rq_jobs.py", **env) == PRINTED["rq_jobs.py"]


@pytest.mark.deep
def test_a_service_moves_from_majordomo_while_its_client_is_served(forks: Forks) -> None:
    ended = forks.run(sys.executable, str(FOLDER / "majordomo" / "move.py"))

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.count("the client is served") == 4
    assert "step 3: A JOB OF WMP\nrequests without a reply: 0\n" in ended.stdout
