"""The installed name, the version, and another package called ``wmp`` in place of this one."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import wmp
import wmp_programs

ROOT = Path(__file__).resolve().parents[3]

REMEDY = "run: pip uninstall wmp, and then install worker-manager-protocol again"


def setup() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def python(code: str, *paths: Path, flags: str = "-B") -> subprocess.CompletedProcess[str]:
    """Run code with ``paths`` first on the path of modules, outside this source tree."""
    return subprocess.run(
        [sys.executable, flags, "-c", code],
        cwd=paths[0],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
        timeout=40,
    )


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the package, as ``pip install`` lays the package out.

    Most of its files are links. Tests change only the copied files.
    """
    folder = tmp_path / "site"
    (folder / "wmp").mkdir(parents=True)
    for path in (ROOT / "wmp").iterdir():
        if path.name != "__init__.py":
            (folder / "wmp" / path.name).symlink_to(path)
    shutil.copy(ROOT / "wmp/__init__.py", folder / "wmp")
    shutil.copy(ROOT / "wmp_programs.py", folder)
    return folder


def test_the_name_of_the_distribution_is_written_alike_everywhere():
    name = setup()["metadata"]["name"]
    hints = {
        (path.relative_to(ROOT).as_posix(), hint)
        for folder in (ROOT / "wmp", ROOT / "tests")
        for path in folder.rglob("*.py")
        for hint in re.findall(r"pip install '([\w-]+)\\?\[", path.read_text(encoding="utf-8"))
        if hint not in ("celery", "pyspark")
    }

    assert name == wmp._DISTRIBUTION
    assert f'"{name}"' == wmp_programs._MARK
    assert len(hints) > 3
    assert {hint for _, hint in hints} == {name}, hints
    assert f'version("{name}")' in (ROOT / "wmp/runtime/common/recorder.py").read_text(
        encoding="utf-8"
    )


def test_every_program_starts_beside_the_package():
    scripts = setup()["options.entry_points"]["console_scripts"]
    targets = dict(line.split(" = ") for line in scripts.split("\n") if " = " in line)

    assert targets.keys() == {"wmp", "wmp-conformance", "wmp-device"}
    for target in targets.values():
        module, _, function = target.partition(":")
        assert (module, function in wmp_programs.__all__) == ("wmp_programs", True)


def test_the_version_is_the_installed_one(installed):
    code = "import wmp; print(wmp.__version__)"
    # The packages of the environment are hidden: Python searches only this folder.
    code = f"import importlib.metadata, sys; sys.path[1:1] = [{str(installed)!r}]; {code}"
    info = installed / "worker_manager_protocol-7.8.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: worker-manager-protocol\nVersion: 7.8.9\n"
    )

    assert python(code, installed).stdout == "7.8.9\n"


def test_a_source_tree_has_a_version_too(monkeypatch):
    from importlib import metadata

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)

    assert wmp.__version__ == "0+source"
    assert "__version__" in dir(wmp)


def test_the_import_reads_no_metadata(installed):
    code = "import sys, wmp; sys.exit('importlib.metadata' in sys.modules)"
    before = "import sys; sys.exit('importlib.metadata' in sys.modules)"
    if python(before, installed).returncode:
        pytest.skip("this Python loads importlib.metadata at its start")

    assert python(code, installed).returncode == 0


def test_a_program_names_the_package_that_replaced_ours(installed):
    (installed / "wmp/__init__.py").write_text("")
    for program in ("wmp", "device", "conformance"):
        process = python(f"import wmp_programs; wmp_programs.{program}()", installed)

        assert (process.returncode, process.stdout) == (2, ""), program
        assert "belongs to another package called wmp" in process.stderr
        assert REMEDY in process.stderr
        assert len(process.stderr.splitlines()) == 1


def test_a_program_names_the_package_that_hides_ours(installed, tmp_path):
    (tmp_path / "other/wmp").mkdir(parents=True)
    (tmp_path / "other/wmp/__init__.py").write_text("")
    process = python("import wmp_programs; wmp_programs.wmp()", tmp_path / "other", installed)

    assert process.returncode == 2
    assert str(tmp_path / "other") in process.stderr
    assert REMEDY in process.stderr


def test_a_program_reports_that_the_package_was_removed_with_the_other(installed):
    (installed / "wmp/__init__.py").unlink()
    # -S: this project may be installed in the environment of the tests.
    process = python("import wmp_programs; wmp_programs.wmp()", installed, flags="-S")

    assert process.returncode == 2
    assert "wmp/__init__.py is missing" in process.stderr


def test_an_import_names_the_package_that_replaced_ours(installed):
    (installed / "wmp/__init__.py").write_text("")
    for module in ("aio", "blocking", "errors", "codec", "core.device", "balance"):
        process = python(f"import wmp.{module}", installed)

        last = process.stderr.splitlines()[-1]
        assert last.startswith("ImportError: "), module
        assert f"{installed / 'wmp' / '__init__.py'} belongs to another package" in last
        assert REMEDY in last


def test_a_package_that_is_ours_starts(installed):
    code = "import sys, wmp_programs; sys.argv = ['wmp', '--version']; wmp_programs.wmp()"
    process = python(code, installed)

    assert (process.returncode, process.stderr) == (0, "")
    assert re.fullmatch(r"wmp \d\S+\n", process.stdout)
