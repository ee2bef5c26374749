"""The way of one job: the functions of ``wmp`` that pass a job on, from ``submit`` to its future.

A *hop* is a call between two different functions of ``wmp`` whose arguments or return value contain
the payload or the result of the job. A pair of functions counts once. A comprehension, a generator
expression and a lambda count as the function around them. ``self`` is not counted as an argument,
and code that attrs generates is ignored. An object belongs to the job if it was made after the job
was submitted; the machines were made before.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import re
import sys
import threading
from types import CodeType, FrameType
from typing import Any, NamedTuple

import zmq

import wmp
import wmp.aio

__all__ = ["Way", "follow", "main"]

_ROOT = os.path.dirname(wmp.__file__) + os.sep
_PAYLOAD = b"the-job-itself"
_RESULT = _PAYLOAD.upper()
_WARM_UP = 20
_RUNS = 20
_DEPTH = 6
_NESTED = re.compile(r"(\.<locals>\.<(listcomp|setcomp|dictcomp|genexpr|lambda)>)+$")


class Place(NamedTuple):
    """A function of ``wmp``."""

    file: str
    function: str


class Way(NamedTuple):
    """The way of one job."""

    files: list[str]
    """Files of which any function was called during the job."""
    steps: list[tuple[Place | None, Place]]
    """Caller and callee of each call in order; None for a caller outside of ``wmp``."""

    def hops(self) -> list[tuple[Place, Place]]:
        """Return each pair of a caller and another function of ``wmp`` that it calls, once."""
        return list(dict.fromkeys((a, b) for a, b in self.steps if a is not None and a != b))

    def hops_between_files(self) -> list[tuple[Place, Place]]:
        """Return those hops that lead from one file to another."""
        return [(a, b) for a, b in self.hops() if a.file != b.file]


class _Follower:
    """A profile function that records the steps of one job at a time."""

    def __init__(self) -> None:
        self._noting = False
        self._files: set[str] = set()
        self._steps: list[tuple[Place | None, Place]] = []
        self._before: list[Any] = []
        self._known: set[int] = set()
        self._places: dict[CodeType, Place | None] = {}

    def begin(self) -> None:
        """Drop the last job, and find the objects that are older than the next job."""
        self._files, self._steps = set(), []
        gc.collect()
        # The list keeps these objects alive, so that a later object cannot reuse the number of an
        # earlier one.
        self._before = gc.get_objects()
        self._known = set(map(id, self._before))

    def note(self) -> None:
        """Record from now on."""
        self._noting = True

    def end(self) -> Way:
        """Return the recorded steps."""
        self._noting = False
        self._before, self._known = [], set()
        # Another thread may be in the middle of a call, which notes its file before its step.
        steps = list(self._steps)
        return Way(sorted(self._files), steps)

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        # A thread that is late must not add to the next job.
        files, steps = self._files, self._steps
        if not self._noting or event not in ("call", "return"):
            return
        called = self._place(frame.f_code)
        if called is None:
            return
        files.add(called.file)
        if event == "return":
            handed_on = self._holds(value, _DEPTH)
        else:
            code = frame.f_code
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            arguments = [frame.f_locals.get(name) for name in names if name not in ("self", "cls")]
            handed_on = self._holds(arguments, _DEPTH)
        if handed_on:
            steps.append((self._caller(frame), called))

    def _caller(self, frame: FrameType) -> Place | None:
        back = frame.f_back
        while back is not None and back.f_code.co_filename.startswith("<attrs"):
            back = back.f_back
        return None if back is None else self._place(back.f_code)

    def _place(self, code: CodeType) -> Place | None:
        if code not in self._places:
            name = code.co_filename
            self._places[code] = (
                Place(name.removeprefix(_ROOT), _NESTED.sub("", code.co_qualname))
                if name.startswith(_ROOT)
                else None
            )
        return self._places[code]

    def _holds(self, value: Any, depth: int) -> bool:
        """Return whether a value holds the job's payload or result."""
        kind = type(value)
        if kind is bytes or kind is bytearray:
            return _PAYLOAD in value or _RESULT in value
        if kind is memoryview or kind is zmq.Frame:
            return self._holds(bytes(value), depth)
        if not depth or id(value) in self._known:
            return False
        if kind is dict:
            return any(self._holds(part, depth - 1) for part in value.values())
        if isinstance(value, (list, tuple, set, frozenset)) or kind.__name__ == "deque":
            return any(self._holds(part, depth - 1) for part in value)
        if not kind.__module__.startswith("wmp") or isinstance(value, type):
            return False
        return any(self._holds(part, depth - 1) for part in _parts(value))


def _parts(value: Any) -> list[Any]:
    """Return the values of an object's attributes."""
    parts = list(getattr(value, "__dict__", {}).values())
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            mangled = f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") else name
            parts.append(getattr(value, mangled, None))
    return parts


async def follow(runs: int = _RUNS) -> Way:
    """Submit jobs one at a time and follow each; return the way with the fewest steps.

    A timer may interrupt any single run, for example to send PING.
    """
    follower = _Follower()
    ways: list[Way] = []
    threading.setprofile(follower)
    try:
        async with (
            wmp.aio.Manager() as manager,
            wmp.aio.Worker(*manager.endpoints, handlers=bytes.upper),
        ):
            for _ in range(_WARM_UP):
                await (await manager.submit(b"hello"))
            for _ in range(runs):
                # The acknowledgement of the job before does not belong to this job.
                await asyncio.sleep(0.05)
                follower.begin()
                # This call takes long. Timers that became due during it do not belong to this job.
                await asyncio.sleep(0.01)
                follower.note()
                sys.setprofile(follower)
                try:
                    result = await (await manager.submit(_PAYLOAD))
                finally:
                    sys.setprofile(None)
                    ways.append(follower.end())
                assert result == _RESULT
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
    return min(ways, key=lambda way: (len(way.hops()), len(way.files)))


def main() -> None:
    """Print the numbers, and with ``--list`` each hop."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hops", description=__doc__)
    parser.add_argument(
        "--list", action="store_true", help="print every file and every call between them"
    )
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    flags = parser.parse_args()
    way = asyncio.run(follow())
    holding = {called.file for _, called in way.steps}
    figures = {
        "files": len(way.files),
        "files_with_the_job": len(holding),
        "hops": len(way.hops()),
        "hops_between_files": len(way.hops_between_files()),
    }
    if flags.json:
        print(json.dumps(figures))
    else:
        print(f"{figures['files']} files of wmp run code between submit() and the result,")
        print(f"{figures['files_with_the_job']} of them with a reference to the job;")
        print(f"{figures['hops']} calls, {figures['hops_between_files']} of them between two files")
    if flags.list:
        print()
        for file in way.files:
            print(("  " if file in holding else "- ") + file)
        print("(-: the functions of this file do not receive the job)\n")
        counted = set(way.hops())
        for step in dict.fromkeys(way.steps):
            caller, called = step
            source = "outside" if caller is None else f"{caller.file} {caller.function}"
            mark = " " if step not in counted else ">" if caller.file == called.file else "#"  # type: ignore[union-attr]
            print(f"{mark} {source} -> {called.file} {called.function}")
        print("(# between two files, > within one)")


if __name__ == "__main__":
    main()
