"""Pickles of functions, arguments, results and exceptions.

Plain pickle writes a function or class as the name of its module and its own name. Only names are
fast. cloudpickle writes the code itself, which ``__main__``, lambdas and closures need. It is used
only for them.
"""

from __future__ import annotations

import binascii
import importlib
import pickle
import re
import struct
import sys
from typing import Any, Final

from wmp.errors import JobFailed

EXTRA: Final = "pip install 'worker-manager-protocol[pickle]'"
"""The command that installs cloudpickle."""

_MAIN: Final = b"_main__"
"""A part of the names of main modules. Another process has another main module."""

_LENGTH: Final = struct.Struct(">I")

_CARRIED: Final = "pickled exception: "
_CARRIED_LINE: Final = re.compile(rf"\n[ |]*{_CARRIED}([A-Za-z0-9+/=]+)")
_MAX_CARRIED: Final = 32_000
"""Maximum number of characters of a pickled exception: the middle of a longer text is cut out."""


def can_pickle_code() -> bool:
    """Return whether cloudpickle is installed."""
    from importlib.util import find_spec

    return find_spec("cloudpickle") is not None


def pickle_value(value: Any) -> bytes:
    """Pickle a value; by cloudpickle if it contains code that no module has under a name.

    Raises:
        TypeError: The value cannot be pickled, or only by cloudpickle, which is not installed.
    """
    try:
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        if not _is_registered() and (_MAIN not in data or not _names_main(data)):
            return data
        reason = "it belongs to the main module, which other processes do not have"
    except Exception as error:  # noqa: BLE001 - code of the value's own class
        reason = f"{type(error).__name__}: {error}"
    try:
        by_value = importlib.import_module("cloudpickle")
    except ImportError:
        raise TypeError(
            f"a value of type {type(value).__name__} cannot be sent by plain pickle "
            f"({reason}); put functions and classes into a module that workers can import, "
            f"or run: {EXTRA}"
        ) from None
    try:
        data = by_value.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise TypeError(
            f"a value of type {type(value).__name__} cannot be pickled: "
            f"{type(error).__name__}: {error}"
        ) from error
    assert isinstance(data, bytes)
    return data


def _is_registered() -> bool:
    """Return whether the program asked cloudpickle for the code of some modules."""
    package = sys.modules.get("cloudpickle")
    # Another thread may import the package at this moment, before it has the function.
    listed = getattr(package, "list_registry_pickle_by_value", None)
    return listed is not None and bool(listed())


def _names_main(data: bytes) -> bool:
    """Return whether a pickle may name a main module. Texts in a program may have that name too."""
    from pickletools import genops

    text = code_by_name = False
    for code, argument, _ in genops(data):
        text = text or (isinstance(argument, str) and argument.endswith("_main__"))
        code_by_name = code_by_name or code.name == "STACK_GLOBAL"
        if text and code_by_name:
            return True
    return False


def pack_call(function: bytes, arguments: bytes) -> bytes:
    """Return the payload of a pickled call (CALL-3.1)."""
    return b"".join((_LENGTH.pack(len(function)), function, arguments))


def split_call(payload: bytes) -> tuple[bytes, memoryview]:
    """Return the pickles of the function and of the arguments of a payload.

    Raises:
        ValueError: The payload is not a pickled call.
    """
    if len(payload) < _LENGTH.size:
        raise ValueError(f"a pickled call has {len(payload)} bytes; expected at least 4")
    (length,) = _LENGTH.unpack_from(payload)
    end = _LENGTH.size + length
    if end > len(payload):
        raise ValueError(
            f"a pickled call has {len(payload)} bytes; expected {end} for its function alone"
        )
    return payload[_LENGTH.size : end], memoryview(payload)[end:]


def add_carried(error: BaseException) -> None:
    """Add the pickle of an exception to its own traceback, as a note (CALL-3.3).

    An exception that cannot be pickled stays as it is, and arrives as text.
    """
    try:
        data = pickle_value(error)
        text = binascii.b2a_base64(data, newline=False).decode()
        if len(text) <= _MAX_CARRIED:
            error.add_note(f"{_CARRIED}{text}")
    except Exception:  # noqa: BLE001 - code of the exception's own class
        return


def take_carried(error: JobFailed) -> BaseException:
    """Return the exception that a job's error carries, with the error as its cause.

    The error itself is returned if it carries no exception that can be unpickled here. The carried
    pickle is removed from its texts.
    """
    carried = _CARRIED_LINE.findall(error.remote_traceback)
    if not carried:
        return error
    error.remote_traceback = _CARRIED_LINE.sub("", error.remote_traceback)
    notes = getattr(error, "__notes__", [])
    notes[:] = [_CARRIED_LINE.sub("", note) for note in notes]
    try:
        original = pickle.loads(binascii.a2b_base64(carried[-1], strict_mode=True))
    except BaseException as problem:  # noqa: BLE001 - code of the exception's class
        error.add_note(f"the exception itself cannot be unpickled here: {problem!r}")
        return error
    if not isinstance(original, BaseException):
        return error
    original.__cause__ = error
    return original
