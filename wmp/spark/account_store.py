"""The file of an account: what changed is appended, so a small change costs little.

``account.pickle`` has all but the open groups, and the names of the files with these groups. Each
save writes one more such file, with the groups that changed. When these files are as large as the
first of them, one file of all groups replaces them. ``account.pickle`` is replaced at once, so
after a kill it names only files that are whole.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from wmp.spark.folds import Group, OpenGroup

__all__ = ["AccountStore"]

_FILES: Final = 256
"""Largest number of files with groups."""

_Groups = Mapping[Group, OpenGroup]


class AccountStore:
    """Saves an object and a mapping of groups in a folder."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is made if it does not exist."""
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._path = folder / "account.pickle"
        self._sizes: dict[str, int] = {}
        """Bytes of each file with groups, the first of which once had all groups."""
        self._saved: dict[Group, OpenGroup] = {}

    def load(self) -> tuple[Any, dict[Group, OpenGroup]] | None:
        """Return what was saved last; None if nothing was saved."""
        if not self._path.exists():
            return None
        rest, open_groups, self._sizes = pickle.loads(self._path.read_bytes())
        found: dict[Group, OpenGroup] = {}
        for name in self._sizes:
            found |= pickle.loads((self._folder / name).read_bytes())
        self._saved = {group: found[group] for group in open_groups}
        return rest, dict(self._saved)

    def save(self, rest: Any, groups: _Groups) -> None:
        """Save the differences from the saved account."""
        changed = {key: one for key, one in groups.items() if self._saved.get(key) is not one}
        first, *others = self._sizes.values() or (0,)
        number = 1 + max((int(name.partition(".")[0]) for name in self._sizes), default=0)
        if sum(others) >= first or len(others) >= _FILES:
            changed, self._sizes = dict(groups), {}
        if changed:
            name = f"{number:09}.groups"
            self._sizes[name] = self._write(self._folder / name, changed)
        half = self._path.with_suffix(".half")
        self._write(half, (rest, list(groups), self._sizes))
        half.replace(self._path)
        self._saved = dict(groups)
        for path in self._folder.glob("*.groups"):
            if path.name not in self._sizes:
                path.unlink()

    @staticmethod
    def _write(path: Path, content: Any) -> int:
        with path.open("wb") as file:
            pickle.dump(content, file, pickle.HIGHEST_PROTOCOL)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()
