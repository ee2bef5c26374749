"""The journal of nodes as a setting: a folder, and the sizes and times of its files.

:mod:`wmp.runtime.common.recorder` writes the files.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from attrs import field, frozen

from wmp.duration import in_seconds
from wmp.errors import ConfigError
from wmp.runtime.common.checks import check_count, check_seconds

CLOSE: Final = 2.0
"""Seconds for which the end of a node waits for its journal."""


def _folder(given: object) -> Path:
    if not isinstance(given, str | os.PathLike) or not os.fspath(given):
        raise ConfigError(f"journal is {given!r}; expected the path of a folder, or a Journal")
    # The program may change its working directory later.
    return Path(os.fsdecode(given)).absolute()


@frozen
class Journal:
    """Folder and sizes of nodes' journals.

    Args:
        folder: Folder for the segments; created if it does not exist. Any number of nodes may
            share a folder.
        segment_bytes: Size at which a segment ends.
        segment_age: Seconds after which a segment ends.
        flush: Seconds after which lines are in the file.
        buffer: Limit of the bytes that wait for the disk; further lines are lost and counted.
        beat: Seconds between two ``beat`` lines.

    Raises:
        ConfigError: A value is wrong.
    """

    folder: Path = field(converter=_folder)
    segment_bytes: int = field(default=64 << 20, kw_only=True)
    segment_age: float = field(default=300.0, converter=in_seconds, kw_only=True)
    flush: float = field(default=0.25, converter=in_seconds, kw_only=True)
    buffer: int = field(default=8 << 20, kw_only=True)
    beat: float = field(default=5.0, converter=in_seconds, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_count("segment_bytes", self.segment_bytes, 1)
        check_count("buffer", self.buffer, 1)
        check_seconds("segment_age", self.segment_age, zero=False)
        check_seconds("flush", self.flush)
        check_seconds("beat", self.beat, zero=False)

    def prepare(self) -> None:
        """Create the folder, and check that files can be created in it.

        Raises:
            ConfigError: The folder or the files cannot be created.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not os.access(self.folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise self.refusal(error) from error

    def refusal(self, error: OSError) -> ConfigError:
        """Return the error for a file that the system refuses."""
        reason = (error.strerror or str(error)).lower()
        return ConfigError(
            f"cannot write a journal to {self.folder}: {reason}; "
            "name a folder in which files can be created"
        )

    def open(self, path: Path) -> int:
        """Make a new file; return its descriptor.

        Raises:
            OSError: The file cannot be created.
        """
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)


def make_journal(journal: Journal | str | os.PathLike[str] | None) -> Journal | None:
    """Return a journal for a path, or the given journal.

    Raises:
        ConfigError: The value is neither a path nor a journal.
    """
    return journal if journal is None or isinstance(journal, Journal) else Journal(journal)
