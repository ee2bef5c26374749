"""Functions that tests of executors and tasks call.

Worker processes import this module. It imports little, so that the processes start soon.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import wmp
from tests.waiting import WAIT

module_state = ""
STATE = {"set": "nothing"}


class StrangeError(Exception):
    """An exception whose arguments differ from those of its constructor."""

    def __init__(self, left: str, right: int) -> None:
        super().__init__(f"{left} {right}")
        self.left, self.right = left, right

    def __reduce__(self) -> tuple[Any, ...]:
        return StrangeError, (self.left, self.right)


class BadError(Exception):
    """An exception that cannot be unpickled."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


def capture(*args: Any, **kwargs: Any) -> list[Any]:
    return [list(args), kwargs]


def add(left: Any, right: Any = 1) -> Any:
    return left + right


def fail(text: str, number: int = 7) -> None:
    raise StrangeError(text, number)


def fail_badly() -> None:
    raise BadError("one", "two")


def leave() -> None:
    raise SystemExit("no")


def fail_at(number: int, bad: int = 3) -> int:
    if number == bad:
        raise ValueError(f"bad {number}")
    return number * 10


def first_even(numbers: list[int]) -> int:
    """Return the first even number; without one, raise StopIteration, as user code may."""
    return next(number for number in numbers if number % 2 == 0)


def where() -> int:
    return os.getpid()


def variable(name: str) -> str | None:
    return os.environ.get(name)


def die() -> None:
    os._exit(3)


def wait_for(path: str) -> int:
    """Write the number of the process beside ``path``, and wait until the file exists."""
    Path(f"{path}.{os.getpid()}").touch()
    until = time.monotonic() + WAIT
    while not os.path.exists(path):
        if time.monotonic() > until:
            raise TimeoutError(path)
        time.sleep(0.005)
    return os.getpid()


def set_state(value: str) -> None:
    STATE["set"] = value


def get_state() -> str:
    return STATE["set"]


def state_setter() -> Callable[[str], None]:
    def set_module_state(value: str) -> None:
        global module_state
        module_state = value

    return set_module_state


def state_getter() -> Callable[[], str]:
    return lambda: module_state


def get_module_state() -> str:
    return module_state


def break_down() -> None:
    raise LookupError("no such thing")


def make_object() -> object:
    """Return an object that cannot be pickled."""
    return threading.Lock()


def _private() -> None:
    """Cannot be called by import path."""


@wmp.task
def double(value: Any) -> Any:
    return value * 2


@wmp.task(role="scale", retry=wmp.Retry(times=2, on=("builtins.ConnectionError",), backoff=0))
def scale(value: int, *, by: int = 10) -> int:
    wmp.current_job().report(0.5, "half")
    return value * by


@wmp.task(role="flaky", retry=wmp.Retry(times=2, on=(ConnectionError,), backoff=0))
def flaky(path: str) -> int:
    """Fail in the first two attempts; return the number of the attempt."""
    if (attempt := wmp.current_job().attempt) < 3:
        raise ConnectionError(path)
    return attempt


@wmp.task(role="slow")
async def shout(text: str) -> str:
    return text.upper()


@wmp.task(role="total")
def total(values: list[int]) -> int:
    return sum(values)
