"""The system calls of a program that change files in one folder, recorded by ``strace``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from wmp.errors import ConfigError

_CALLS: Final = (
    "open,openat,creat,close,dup,dup2,dup3,fcntl,write,pwrite64,writev,pwritev,truncate,ftruncate,"
    "fallocate,fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,"
    "rmdir"
)
_LINE: Final = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)", re.DOTALL)
_TEXT: Final = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_DESCRIPTOR: Final = re.compile(r"^(\d+)")


@frozen
class FileCall:
    """One successful call.

    Attributes:
        what: ``create``, ``write``, ``size``, ``sync``, ``rename``, ``link``, ``unlink`` or
            ``folder``.
        path: The path of the file when it was opened, or the path of the entry.
        other: The new path of ``rename`` and ``link``.
        at: Byte at which a write starts; for ``size`` the new size.
        grows: Whether ``size`` never makes a file smaller.
        data: The bytes of a write.
        file: Number of the opened file, which stays when the file gets another name.
    """

    what: str
    path: str
    other: str = ""
    at: int = 0
    grows: bool = False
    data: bytes = b""
    file: int = -1


def record(command: Sequence[str], folder: Path) -> list[FileCall]:
    """Run a program; return the calls of its processes that changed files in a folder, in order.

    Raises:
        ConfigError: ``strace`` is missing, or may not trace; or the program failed.
    """
    strace = shutil.which("strace")
    if strace is None:
        raise ConfigError("strace is not installed; run: apt-get install strace")
    trace = folder.parent / f"{folder.name}.strace"
    options = ("-f", "-xx", "-s", str(1 << 26), "-e", f"trace={_CALLS}", "-e", "signal=none")
    done = subprocess.run(
        [strace, *options, "-o", str(trace), *command], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ConfigError(
            f"strace ended with {done.returncode}; expected 0. It may need the right to trace "
            f"processes (CAP_SYS_PTRACE): {done.stderr.strip()[-500:]}"
        )
    try:
        with open(trace, encoding="ascii") as lines:
            return list(_parsed(lines, str(folder)))
    finally:
        trace.unlink()


def _parsed(lines: Iterable[str], folder: str) -> Iterator[FileCall]:
    """Yield the calls in a folder. The traced program has no calls that overlap."""
    files: dict[int, tuple[str, int]] = {}
    places: dict[int, int] = {}
    opened = 0
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            if "unfinished" in line and "futex" not in line:
                raise ConfigError(f"a call was interrupted by another one: {line[:200]}")
            continue
        name, arguments, answer = match[1], match[2], int(match[3])
        if answer < 0:
            continue
        paths = [os.path.abspath(text) for text in _texts(name, arguments)]
        inside = [path for path in paths if path == folder or path.startswith(folder + "/")]
        if name in ("open", "openat", "creat"):
            files.pop(answer, None)
            if not inside:
                continue
            opened += 1
            files[answer], places[answer] = (inside[0], opened), 0
            if "O_CREAT" in arguments or name == "creat":
                yield FileCall("create", inside[0], file=opened)
            else:
                yield FileCall("open", inside[0], file=opened)
            if "O_TRUNC" in arguments:
                yield FileCall("size", inside[0], file=opened)
            continue
        descriptor = _DESCRIPTOR.match(arguments)
        if descriptor is not None and int(descriptor[1]) in files:
            number = int(descriptor[1])
            path, file = files[number]
            if name == "close":
                del files[number]
            elif name in ("fsync", "fdatasync"):
                yield FileCall("sync", path, file=file)
            elif name == "ftruncate":
                yield FileCall("size", path, at=int(arguments.split(", ")[1]), file=file)
            elif name == "fallocate":
                start, length = (int(text) for text in arguments.split(", ")[2:4])
                yield FileCall("size", path, at=start + length, grows=True, file=file)
            elif name in ("write", "pwrite64"):
                at = places[number]
                if name == "pwrite64":
                    at = int(arguments.rsplit(", ", 1)[1])
                else:
                    places[number] += answer
                yield FileCall("write", path, at=at, data=_data(arguments)[:answer], file=file)
            elif name != "fcntl":
                raise ConfigError(f"the trace has {name} of {path}, which the replay does not know")
        elif inside:
            yield _named(name, inside, arguments)


def _named(name: str, paths: Sequence[str], arguments: str) -> FileCall:
    """Return a call that has paths and no descriptor."""
    what = re.sub(r"at2?$", "", name)
    if what in ("rename", "link"):
        return FileCall(what, paths[0], paths[1])
    if what == "truncate":
        return FileCall("size", paths[0], at=int(arguments.rsplit(", ", 1)[1]))
    if what in ("unlink", "rmdir"):
        return FileCall("unlink", paths[0])
    if what == "mkdir":
        return FileCall("folder", paths[0])
    raise ConfigError(f"the trace has {name} of {paths[0]}, which the replay does not know")


def _texts(name: str, arguments: str) -> list[str]:
    """Return the paths among the arguments of a call."""
    if name.startswith(("write", "pwrite")):
        return []
    return [
        bytes.fromhex(text.replace("\\x", "")).decode(errors="surrogateescape")
        for text, _ in _TEXT.findall(arguments)
    ]


def _data(arguments: str) -> bytes:
    match = _TEXT.search(arguments)
    assert match is not None, arguments[:100]
    assert not match[2], "strace has shortened a write"
    return bytes.fromhex(match[1].replace("\\x", ""))
