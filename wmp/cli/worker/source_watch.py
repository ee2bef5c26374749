"""``wmp worker --watch``: notices changes of the source files of the handlers."""

from __future__ import annotations

import importlib.util
import os
import site
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from wmp.errors import TransportError
from wmp.runtime.common.threads import ThreadEnded, start_thread

_LOOK: Final = 0.3
"""Seconds between two looks at the files."""

_Stamp = tuple[int, int]


class SourceWatch:
    """Looks at the files of the imported modules, except those of Python, of installed packages and
    of this library.

    Args:
        module: Name of the module of the handlers. Its file is watched even if its import failed.
        complain: Prints a line for people.
    """

    def __init__(self, module: str, complain: Callable[[str], None]) -> None:
        self._module = module
        self._complain = complain
        self._seen: dict[Path, _Stamp | None] = {}
        self._ended = threading.Event()
        self.changed: Path | None = None
        """The file that changed."""
        self.failure: ThreadEnded | None = None
        """The unexpected end of the thread, after which changes are not noticed."""
        self.look()

    def start(self, reload: Callable[[], None]) -> None:
        """Look from now on, and call ``reload`` on another thread after a change.

        A file with a syntax error causes a line and no reload.

        Raises:
            TransportError: The system starts no further thread.
        """
        if start_thread(self._run, "wmp-watch", reload, failed=self._failed) is None:
            raise TransportError(
                "cannot start the thread that watches the source files; end other threads or "
                "processes"
            )

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()

    def wait(self) -> None:
        """Wait until a file has changed and has no syntax error."""
        while not self._check():
            self._ended.wait(_LOOK)

    def look(self) -> Path | None:
        """Look at all files; return one that has changed since the last look, None without one."""
        changed = None
        for path in set(self._files()) | self._seen.keys():
            stamp = _stamp(path)
            known = self._seen.get(path, stamp)
            self._seen[path] = stamp
            # A file that an editor has just removed will be there again in a moment.
            if stamp != known and stamp is not None:
                changed = path
        return changed

    def _run(self, reload: Callable[[], None]) -> None:
        while not self._ended.wait(_LOOK):
            if self._check():
                reload()
                return

    def _failed(self, ended: ThreadEnded) -> None:
        self.failure = ended
        self._complain(f"{ended.name} ended, so changes are not noticed: {ended.cause!r}")

    def _check(self) -> bool:
        changed = self.look()
        if changed is None:
            return False
        try:
            compile(changed.read_bytes(), str(changed), "exec")
        except (OSError, SyntaxError, ValueError) as error:
            self._complain(f"not reloaded, because {changed} cannot be compiled: {error}")
            return False
        self.changed = changed
        return True

    def _files(self) -> Iterator[Path]:
        installed = _installed()
        files: set[Any] = {
            getattr(module, "__file__", None) for module in list(sys.modules.values())
        }
        try:
            spec = importlib.util.find_spec(self._module)
        except (ImportError, ValueError, SyntaxError):
            spec = None
        files.add(None if spec is None else spec.origin)
        # The current folder may not be among the folders of modules yet.
        path = os.path.abspath(self._module.replace(".", os.sep))
        files |= {name for name in (f"{path}.py", f"{path}/__init__.py") if os.path.isfile(name)}
        for file in files:
            if isinstance(file, str) and file.endswith(".py"):
                path = os.path.abspath(file)
                if not path.startswith(installed):
                    yield Path(path)


def _stamp(path: Path) -> _Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _installed() -> tuple[str, ...]:
    """Return the folders of Python, of installed packages and of this library."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {sysconfig.get_path(name) for name in names} | {site.getusersitepackages()}
    folders |= {str(Path(__file__).resolve().parents[2])}
    return tuple(os.path.join(folder, "") for folder in folders if folder)
