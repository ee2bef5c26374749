"""Runs of programs that end at once, each in a separate process, without the half second of a
start.

One process has imported all modules of the programs, and forks for each run. Only tests of the
output before any work use it: ``programs.py`` starts working processes as a shell does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.interop.programs import ENVIRON, TIMEOUT, WMP, WMP_DEVICE


class Ended(NamedTuple):
    """The outcome of one run."""

    returncode: int
    stdout: str
    stderr: str


class Forks:
    """The process that forks; it ends with the ``with`` block."""

    def __init__(self, folder: Path) -> None:
        self._outputs = {name: folder / name for name in ("stdout", "stderr")}
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.interop.forks", *map(str, self._outputs.values())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRON,
        )

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.wait(TIMEOUT)
        self._parent.stdout.close()

    def run(self, *argv: str, cwd: Path) -> Ended:
        """Run ``WMP`` or ``WMP_DEVICE`` with arguments in a folder, without input."""
        name, start = ("wmp", WMP) if argv[: len(WMP)] == WMP else ("device", WMP_DEVICE)
        assert argv[: len(start)] == start
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        print(
            json.dumps([str(cwd), name, *argv[len(start) :]]), file=self._parent.stdin, flush=True
        )
        code = int(self._parent.stdout.readline())
        return Ended(code, *(path.read_text() for path in self._outputs.values()))


def serve(out: str, err: str) -> None:
    """Fork for each line of stdin; write the exit code of each child when the child has ended."""
    import wmp_programs
    from wmp.cli import device, program  # noqa: F401 - so that no fork has to

    for line in sys.stdin:
        folder, name, *arguments = json.loads(line)
        if pid := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
            continue
        os.chdir(folder)
        new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, new), (2, err, new)):
            os.dup2(os.open(path, flags), number)
        sys.argv = [name, *arguments]
        sys.path[0] = folder  # python -m sets it in the same way
        getattr(wmp_programs, name)()


if __name__ == "__main__":
    serve(*sys.argv[1:])
