"""The code of docs/fleets.md runs unchanged, and prints the output on the page."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.interop.programs.programs import ENVIRON, ROOT

PAGE = (ROOT / "docs" / "fleets.md").read_text(encoding="utf-8")
CODE = re.compile(r"((?:^.+\n)+)\n```\w+\n([\s\S]*?)^```$", re.MULTILINE)
"""A block of code, with the paragraph before it."""


@pytest.mark.rule("FLEET-1.4")
def test_the_program_of_the_page_prints_what_the_page_states(tmp_path):
    (about_work, work), (about_program, program) = CODE.findall(PAGE)
    (name,) = re.findall(r"`(\w+\.py)`", about_work)
    (expected,) = re.findall(r"prints `(.+?)`", about_program)
    (tmp_path / name).write_text(work, encoding="utf-8")
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    # The program has a session of its own: the executors find the module in its folder.
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=ENVIRON,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.stdout.splitlines() == [expected], done.stderr
    assert done.returncode == 0, done.stderr
    # Each block of code on the page is one of these two.
    assert PAGE.count("```") == 4
