"""The log of a submitter: what it asked, what was acknowledged, and how it ended. Each line is
written with one call and synced, before the next step."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

__all__ = ["PartyLog", "expected", "payload_of"]


def payload_of(name: str, number: int) -> bytes:
    """Return the payload of a job."""
    return f"{name} {number} ".encode() * (1 + number % 40)


def expected(payload: bytes) -> str:
    """Return the result of a payload."""
    return hashlib.sha256(payload).hexdigest()


class PartyLog:
    """One file, which several lives of a submitter write.

    Attributes:
        asked: Numbers of jobs that were submitted, or were about to be.
        acknowledged: Numbers of jobs that the library has acknowledged.
        forgotten: Numbers of acknowledged jobs that the restoration of a backup has removed.
        ended: The result of each job, as its submitter got it.
        wrong: Contradictions: two results of one job, or an error.
        waits: Seconds that single requests took.
    """

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        self.asked: set[int] = set()
        self.acknowledged: set[int] = set()
        self.forgotten: set[int] = set()
        self.ended: dict[int, str] = {}
        self.wrong: list[str] = []
        self.waits: list[float] = []
        self._path = path
        self._offset = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if writes else -1
        self.read()

    def write(self, **line: Any) -> None:
        """Write a line, wait for the disk, and read it."""
        os.write(self._file, json.dumps(line).encode() + b"\n")
        os.fsync(self._file)
        self.read()

    def read(self) -> None:
        """Read the lines that are new. A process may have been killed in its last line."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                self._take(json.loads(line))

    def forget(self, numbers: set[int]) -> None:
        """Remember that a restoration removed jobs. Another acknowledgement counts again."""
        self.acknowledged -= numbers
        self.forgotten |= numbers

    def _take(self, line: dict[str, Any]) -> None:
        self.asked.update(line.get("asks", ()))
        self.acknowledged.update(line.get("acks", ()))
        self.forgotten.difference_update(line.get("acks", ()))
        self.waits += line.get("waits", ())
        self.wrong += line.get("wrong", ())
        for number, result in line.get("ends", ()):
            if self.ended.setdefault(number, result) != result:
                self.wrong.append(f"job {number} ended as {self.ended[number]} and as {result}")
