"""One run of a user's handler in a simulated world, and a way to end the handler in the middle.

The function runs at once, in no simulated time. A :class:`CrashPoint` ends it before a line of its
code, as the end of its process would: the effects before that line stay, and the later lines never
run.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

from attrs import define, field

from wmp.errors import JobCancelled
from wmp.message import DEFAULT_ROLE, Frame, Outcome
from wmp.runtime.codecs.payload_codecs import FRAMES, coders_of, encode_frames, is_frames
from wmp.runtime.executors.handlers import (
    Handler,
    RunningJob,
    Served,
    describe_error,
)

_CANCELLATIONS = (JobCancelled, concurrent.futures.CancelledError, asyncio.CancelledError)

_HOMES = [Path(sysconfig.get_path(n)) for n in ("stdlib", "platstdlib", "purelib", "platlib")]
_FOREIGN = (
    *{
        f"{home}{os.sep}"
        for path in (*_HOMES, Path(__file__).parents[2])
        for home in (path, path.resolve())
    },
    "<",
)
"""Prefixes of files without handlers: libraries, this module, code without a file."""


class HandlerCrash(BaseException):
    """Raised in a handler whose process ends. It is not an Exception, so few handlers catch it."""


@define(eq=False)
class CrashPoint:
    """Ends the code of its ``with`` block after a number of its lines.

    ``finally`` and ``with`` blocks of the handler still run, unlike at a real end.

    Args:
        handler: The handler. All its lines count. Lines of functions that it calls count unless
            they are of libraries.
        lines: The number of lines that still run.
    """

    handler: Handler
    lines: int
    stopped_at: str = field(default="", init=False)
    """The line before which the handler was stopped, in words; empty if it was not stopped."""
    _own: CodeType | None = field(init=False)
    _before: Any = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._own = _code_of(self.handler)

    def __enter__(self) -> CrashPoint:
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code is self._own or not code.co_filename.startswith(_FOREIGN):
            return self._stepped
        return None

    def _stepped(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            if self.lines <= 0:
                code = frame.f_code
                name = Path(code.co_filename).name
                self.stopped_at = f"before line {frame.f_lineno} of {name}, in {code.co_name}()"
                raise HandlerCrash
            self.lines -= 1
        return self._stepped


def _code_of(handler: Handler) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    handler = inspect.unwrap(handler)
    for function in (handler, getattr(handler, "__call__", None)):  # noqa: B004 — not asked whether
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None


class SimulatedRunningJob(RunningJob):
    """The job as its handler sees it; the time left is simulated time."""

    __slots__ = ("_clock",)

    def __init__(
        self,
        host: Host,
        id: int,
        lease: int,
        manager: bytes,
        deadline: float | None,
        clock: Callable[[], float],
        role: str = DEFAULT_ROLE,
        begun: int | None = None,
    ) -> None:
        super().__init__(host, id, lease, manager, role, deadline, begun)
        self._clock = clock

    @property
    def deadline(self) -> float | None:
        """Simulated seconds left, negative after the deadline; None without a deadline."""
        return None if self._deadline is None else self._deadline - self._clock()

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer wanted: the job was cancelled, or its time has passed."""
        left = self.deadline
        if left is not None and left <= 0:
            self._host.cancelled.add(self.id)  # JobCancelled now counts as a cancellation
        return self.id in self._host.cancelled


@define(eq=False)
class Host:
    """The receiver of the reports of a running job."""

    cancelled: set[int]
    """Cancelled jobs of the lane."""
    pass_on: Callable[[float | None, str | None], None]

    def report(self, job: RunningJob, fraction: float | None, text: str | None) -> None:
        """Pass progress on. None keeps the former value."""
        job.fraction = job.fraction if fraction is None else fraction
        job.text = job.text if text is None else text
        self.pass_on(job.fraction, job.text)


def execute(
    served: Served,
    codec: str,
    payload: bytes,
    job: SimulatedRunningJob,
    loop: Callable[[], asyncio.Runner],
    crash: CrashPoint | None,
) -> tuple[Outcome, Frame, str | None]:
    """Run a handler once, as a pool does.

    Args:
        served: The handler.
        codec: The codec of the payload and the result.
        payload: The payload as received.
        job: The second argument of a handler that takes one.
        loop: Runs coroutines.
        crash: Ends the handler in the middle; None lets the handler finish.

    Returns:
        The outcome, the payload of the worker's DONE, and the codec of the result; None for the
        codec of the payload.

    Raises:
        HandlerCrash: The crash point ended the handler.
        KeyboardInterrupt: Ctrl-C and other exceptions that end the test pass through.
    """
    decode, encode = coders_of(codec)
    try:
        argument: Any = payload if decode is None else decode(payload)
        if served.convert is not None:
            argument = served.convert(argument)
        arguments = (argument, job) if served.takes_job else (argument,)
        with crash or _NoCrash():
            result = served.call(*arguments)
            if served.is_async:
                result = loop().run(result)
        if crash is not None and crash.stopped_at:
            raise HandlerCrash  # the handler caught the exception
        if decode is None and is_frames(result):
            return Outcome.OK, encode_frames(result), FRAMES
        return Outcome.OK, encode(result), None
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        if crash is not None and crash.stopped_at:
            # A ``finally`` block of the handler raised this error at the end.
            raise HandlerCrash from error
        if job.id in job._host.cancelled and isinstance(error, _CANCELLATIONS):
            return Outcome.CANCELLED, b"", None
        return Outcome.ERROR, describe_error(error), None


class _NoCrash:
    """No crash: the handler finishes."""

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...
