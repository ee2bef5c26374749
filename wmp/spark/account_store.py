"""The files of an account: what changed is appended, so a small change costs little.

``account-N.pickle`` has all but the open groups, and the place of each open group in other files. A
save writes one more such file, with the groups that changed. It also moves the groups of files
there that have become small, so there are few files. ``account-N.pickle`` is replaced at once, so
after a kill it names only files that are whole.
"""

from __future__ import annotations

import os
import pickle
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO, Final

from wmp.errors import ConfigError
from wmp.spark.folds import Group, OpenGroup

__all__ = ["AccountStore"]

_VERSION: Final = 3
"""Version of the saved classes, in the name of the file; it grows with each change of them."""

_Place = tuple[str, int, int]
"""(name of the file, first byte, byte after the last) of a group."""


class AccountStore:
    """Saves an object and a mapping of groups in a folder."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is made if it does not exist."""
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._path = folder / f"account-{_VERSION}.pickle"
        self._places: dict[Group, _Place] = {}
        self._saved: dict[Group, OpenGroup] = {}

    def load(self) -> tuple[Any, dict[Group, OpenGroup]] | None:
        """Return what was saved last; None if nothing was saved.

        Raises:
            ConfigError: Another version saved an account in this folder, or a file is damaged.
        """
        remedy = (
            f"remove the folder {self._folder}, and the journals are read again from their "
            "beginning"
        )
        if not self._path.exists():
            for other in self._folder.glob("account*.pickle"):
                raise ConfigError(
                    f"{other} was saved by another release; expected {self._path.name}: {remedy}"
                )
            return None
        try:
            rest, self._places = pickle.loads(self._path.read_bytes())
            names = {name for name, _, _ in self._places.values()}
            files = {name: (self._folder / name).read_bytes() for name in names}
            self._saved = {
                group: pickle.loads(files[name][begin:end])
                for group, (name, begin, end) in self._places.items()
            }
        except (EOFError, FileNotFoundError, pickle.UnpicklingError) as error:
            raise ConfigError(f"the saved report is damaged ({error}): {remedy}") from error
        return rest, dict(self._saved)

    def save(self, rest: Any, groups: dict[Group, OpenGroup]) -> None:
        """Save the differences from the saved account."""
        same = {key for key, one in groups.items() if self._saved.get(key) is one}
        places = {key: place for key, place in self._places.items() if key in same}
        sizes: Counter[str] = Counter()
        for name, begin, end in places.values():
            sizes[name] += end - begin
        new = 1 + max((int(path.stem) for path in self._folder.glob("*.groups")), default=0)
        with (self._folder / f"{new:09}.groups").open("wb") as file:

            def put(group: Group, content: bytes) -> None:
                begin = file.tell()
                file.write(content)
                places[group] = (f"{new:09}.groups", begin, file.tell())

            for group in groups.keys() - same:
                put(group, pickle.dumps(groups[group], pickle.HIGHEST_PROTOCOL))
            for name, size in reversed(sizes.most_common()):
                if size > file.tell():
                    break
                content = (self._folder / name).read_bytes()
                for group, (where, begin, end) in list(places.items()):
                    if where == name:
                        put(group, content[begin:end])
            _sync(file)
        half = self._path.with_suffix(".half")
        with half.open("wb") as file:
            pickle.dump((rest, places), file, pickle.HIGHEST_PROTOCOL)
            _sync(file)
        half.replace(self._path)
        self._places, self._saved = places, dict(groups)
        used = {name for name, _, _ in places.values()}
        for path in self._folder.glob("*.groups"):
            if path.name not in used:
                path.unlink()


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
