"""Programs import what they use: a bar for the number of modules, which no busy machine changes.

``python -X importtime`` shows what a program imports, and how long each import takes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import wmp
from tests.house import ROOT
from tests.waiting import RUN

COUNT = "import sys; print(len(sys.modules), *(name for name in sys.modules if name[:3] == 'wmp'))"


def modules(code: str) -> tuple[int, set[str]]:
    """Return the number of modules after some code, and the names of those of this package."""
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\n{COUNT}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN,
        check=True,
    )
    count, *names = run.stdout.splitlines()[-1].split()
    return int(count), set(names)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Returns the path of a store with one job."""
    path = tmp_path / "jobs.db"
    with wmp.Manager(store=path) as manager:
        manager.submit(b"a job")
        manager.close(0)
    return path


def test_a_list_of_jobs_imports_no_node(store: Path) -> None:
    code = f"""
from wmp.cli.program import command
command.main(["jobs", "list", {str(store)!r}], standalone_mode=False)
"""
    count, names = modules(code)
    assert count <= 275
    assert not {name for name in names if name.startswith(("wmp.core.", "wmp.aio", "wmp.blocking"))}


@pytest.mark.parametrize("name", ["jobs", "keys", "journal", "report"])
def test_a_command_imports_no_other_command(name: str) -> None:
    code = f"""
from wmp.cli.program import command
try:
    command.main([{name!r}, "--help"])
except SystemExit:
    pass
"""
    _, names = modules(code)
    homes = {part for part in names if part.startswith("wmp.cli.") and part.count(".") == 2}
    assert homes <= {"wmp.cli.program", "wmp.cli.common", f"wmp.cli.{name}"}


def test_the_help_of_the_program_names_all_commands() -> None:
    code = """
from wmp.cli.program import command, _HOMES
import click
assert command.list_commands(click.Context(command)) == sorted(_HOMES)
assert all(command.get_command(click.Context(command), name).name == name for name in _HOMES)
"""
    modules(code)


def test_a_worker_process_imports_little() -> None:
    code = """
if __name__ == "__main__":
    import wmp
    with wmp.Executor(workers=1) as executor:
        listed = executor.submit(eval, "list(__import__('sys').modules)").result()
    print(len(listed), *listed)
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN,
        check=True,
    )
    count, *listed = run.stdout.splitlines()[-1].split()
    assert int(count) <= 160
    # A pool of Python that spawns its processes imports none of these, or takes as long for others.
    heavy = {"asyncio", "attr", "cbor2", "ctypes", "datetime", "inspect", "json", "tempfile", "zmq"}
    assert not heavy.intersection(listed)
    assert not [name for name in listed if name.startswith(("wmp.store", "wmp.core", "wmp.codec"))]


def test_an_executor_imports_no_device_of_another_protocol() -> None:
    count, names = modules("import wmp; wmp.Executor")
    assert count <= 420
    assert not {
        name for name in names if name.startswith(("wmp.gateways", "wmp.dispatcher", "wmp.spark"))
    }
