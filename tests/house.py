"""The files of this project, without the files that environments and tools leave behind."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def _ours(folder: str, name: str) -> bool:
    """Return whether a folder is part of the project; a hidden folder may be an environment."""
    if Path(folder) == ROOT and name in (".ci", ".github", "build", "dist"):
        return name[0] == "."
    return name[0] != "." and name not in ("__pycache__", "node_modules")


def house_files(ending: str = "", below: Path = ROOT) -> list[Path]:
    """Return the files below a folder whose names have this ending, in order."""
    return [path for path in _files() if path.name.endswith(ending) and below in path.parents]


@cache
def _files() -> list[Path]:
    paths = []
    for folder, inside, files in os.walk(ROOT):
        inside[:] = [
            name for name in inside if _ours(folder, name) and not name.endswith(".egg-info")
        ]
        paths += [Path(folder, name) for name in files if name[0] != "."]
    return sorted(paths)
