"""A disk in memory that loses what was not synced, as a real one does when its power is cut."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import define, field

from wmp.testing.power.system_calls import FileCall

SECTOR: Final = 512
"""Bytes that a disk writes whole."""

KINDS: Final = ("none", "all", "some", "torn")
"""The changes that survive although they were not synced: none; all; any of them, in any
order; or any of them, some only in part."""


@define(eq=False)
class _File:
    """The bytes of a file, apart from its names."""

    data: bytearray = field(factory=bytearray)
    """The files on the disk."""
    pending: list[FileCall] = field(factory=list)
    """Changes since the last sync."""


@define(eq=False)
class PowerDisk:
    """Replays calls. :meth:`cut` returns what the disk may have after a power cut.

    A sync of a file keeps its bytes, a sync of a folder keeps its entries. Changes of entries
    survive in their order, as in the journal of a file system; changes of bytes in any order.
    """

    _names: dict[str, _File] = field(factory=dict)
    """The files as the program sees them."""
    _kept: dict[str, _File] = field(factory=dict)
    """The entries on the disk."""
    _entries: list[FileCall | tuple[str, _File]] = field(factory=list)
    """Changes of entries since the last sync of a folder."""
    _folders: set[str] = field(factory=set)
    _opened: dict[int, _File] = field(factory=dict)

    @property
    def settled(self) -> bool:
        """Whether every change is on the disk."""
        return not self._entries and not any(file.pending for file in self._names.values())

    def play(self, call: FileCall) -> None:
        """Make one call."""
        match call.what:
            case "create" | "open":
                self._open(call)
            case "write" | "size":
                self._file(call).pending.append(call)
            case "sync":
                self._sync(call)
            case "folder":
                self._folders.add(call.path)
            case _:
                self._entries.append(call)
                _move(self._names, call)
                self._folders.discard(call.path)

    def _open(self, call: FileCall) -> None:
        if call.path in self._names:
            self._opened[call.file] = self._names[call.path]
        elif call.what == "create":
            file = self._opened[call.file] = self._names[call.path] = _File()
            self._entries.append((call.path, file))

    def _file(self, call: FileCall) -> _File:
        return self._opened[call.file] if call.file >= 0 else self._names[call.path]

    def _sync(self, call: FileCall) -> None:
        file = self._opened.get(call.file)
        if file is None:  # a folder
            for entry in self._entries:
                _enter(self._kept, entry)
            self._entries.clear()
        else:
            for change in file.pending:
                _change(file.data, change, call.at)
            file.pending.clear()

    def cut(self, kind: str, draw: random.Random) -> tuple[dict[str, bytes], set[str]]:
        """Return the files and the folders after a power cut; see :data:`KINDS`."""
        count = {"none": 0, "all": len(self._entries)}.get(kind)
        if count is None:
            count = draw.randint(0, len(self._entries))
        names = dict(self._kept)
        for entry in self._entries[:count]:
            _enter(names, entry)
        return {path: _survives(file, kind, draw) for path, file in names.items()}, self._folders


def _enter(names: dict[str, _File], entry: FileCall | tuple[str, _File]) -> None:
    if isinstance(entry, tuple):
        names[entry[0]] = entry[1]
    else:
        _move(names, entry)


def _move(names: dict[str, _File], call: FileCall) -> None:
    if call.what == "rename":
        names[call.other] = names.pop(call.path)
    elif call.what == "link":
        names[call.other] = names[call.path]
    else:
        names.pop(call.path, None)


def _survives(file: _File, kind: str, draw: random.Random) -> bytes:
    data = bytearray(file.data)
    for call in file.pending if kind != "none" else ():
        if kind != "all" and draw.random() < 0.5:
            continue
        torn = kind == "torn" and draw.random() < 0.5
        _change(data, call, draw.randrange(1 << 30) if torn else 0)
    return bytes(data)


def _change(data: bytearray, call: FileCall, torn: int) -> None:
    """Change bytes; ``torn``: only the sectors before, or from, a drawn one, if it is not 0."""
    start, new = call.at, call.data
    if call.what == "size":
        if call.at > len(data):
            data.extend(bytes(call.at - len(data)))
        elif not call.grows:
            del data[call.at :]
        return
    if torn:
        sectors = (start + len(new) - 1) // SECTOR - start // SECTOR
        middle = (start // SECTOR + 1 + torn % max(1, sectors)) * SECTOR - start
        if torn & 1 << 20:
            new = new[:middle]
        else:
            start, new = start + middle, new[middle:]
    if new:
        data.extend(bytes(max(0, start + len(new) - len(data))))
        data[start : start + len(new)] = new


def write_files(
    files: Mapping[str, bytes], folders: Sequence[str], move: Callable[[str], Path]
) -> None:
    """Write files and folders of a disk to other paths."""
    for path in sorted(folders):
        move(path).mkdir(parents=True, exist_ok=True)
    for path, data in files.items():
        move(path).parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(move(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, data.rstrip(b"\0"))
            os.ftruncate(descriptor, len(data))
        finally:
            os.close(descriptor)
