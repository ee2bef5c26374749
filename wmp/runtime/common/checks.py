"""Checks of users' arguments, for callers without a type checker."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, Final, cast

from wmp.duration import in_seconds
from wmp.errors import ConfigError, TransportError
from wmp.message import Limits

SECONDS: Final = 1e9
"""Longest time that a setting may have, some thirty years.

Its milliseconds fit every field of a message.
"""

OFFER: Final = 8 * 1024
"""Limit of the bytes of a head that the names of roles and resources may take together.

The rest of the head is left for a long route.
"""

HEADERS: Final = 1024
"""Limit of the bytes that a worker's headers may take in each of its READYs."""


def check_count(name: str, value: object, minimum: int = 0, maximum: int = Limits.UINT) -> int:
    """Return ``value`` if it is a whole number from ``minimum`` to ``maximum``.

    Raises:
        ConfigError: The value is not such a number.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ConfigError(
            f"{name} is {_shown(value)}; expected a whole number of at least {minimum}"
        )
    if value > maximum:
        limit = "2**63 - 1" if maximum == Limits.UINT else maximum
        raise ConfigError(f"{name} is {_shown(value)}; expected at most {limit}")
    return value


def check_seconds(
    name: str, value: object, *, maximum: float = SECONDS, zero: bool = True
) -> int | float:
    """Return ``value`` if it is a finite number of seconds from 0 to ``maximum``, or such a time as
    a ``timedelta``, in seconds.

    Args:
        name: Name of the argument, for the error.
        value: The argument.
        maximum: The longest time that is allowed.
        zero: Whether 0 is allowed.

    Raises:
        ConfigError: The value is not such a number.
    """
    value = cast("object", in_seconds(cast("Any", value)))
    # A comparison alone is not enough, because every comparison with NaN is false.
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (0 <= value <= maximum)
        or not (zero or value)
    ):
        minimum = "at least 0" if zero else "more than 0"
        raise ConfigError(
            f"{name} is {_shown(value)}; expected a number of seconds, {minimum} and at most "
            f"{maximum:g}"
        )
    return value


def check_descriptors(what: str, needed: int) -> None:
    """Check that this process may open ``needed`` more files. Without a free descriptor libzmq
    aborts the process.

    Args:
        what: The part of the program that needs the descriptors, for the error.
        needed: Maximum number of descriptors that this part opens.

    Raises:
        TransportError: Fewer descriptors are left.
    """
    try:
        import resource
    except ImportError:
        return  # This system does not set such a limit.
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return
    try:
        # The listing counts its own descriptor, which is closed again afterwards.
        used = sum(int(name) < limit for name in os.listdir("/dev/fd")) - 1
    except OSError as error:
        if error.errno != errno.EMFILE:
            return  # This system does not list descriptors.
        used = limit
    if limit - used < needed:
        raise TransportError(
            f"{what} needs {needed} file descriptors, but only {limit - used} of the {limit} of "
            "this process are left; close files or other nodes, or raise the limit (ulimit -n)"
        )


def check_private(what: str, path: str | os.PathLike[str]) -> None:
    """Check that other users can neither read nor write the file of a secret.

    Raises:
        ConfigError: They can.
        OSError: The file cannot be looked up.
    """
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if os.name == "posix" and mode & 0o077:
        raise ConfigError(
            f"{what} in {os.fspath(path)} can be read by other users (mode {mode:04o}); run: "
            f"chmod 600 {os.fspath(path)}"
        )


def check_utf8(name: str, text: str) -> bytes:
    """Return ``text`` as UTF-8.

    Raises:
        ConfigError: The text contains half of a surrogate pair, as ``os.fsdecode`` makes from a
            file name that is not UTF-8.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"{name} is {_shown(text)}; the character U+{ord(text[error.start]):04X} at position "
            f"{error.start} is half of a surrogate pair, which UTF-8 cannot encode; pass a file "
            "name as bytes (os.fsencode) in the payload, or replace the character"
        ) from None


def check_text(name: str, value: object, maximum: int, minimum: int = 0) -> str:
    """Return ``value`` if it is text of ``minimum`` to ``maximum`` bytes in UTF-8.

    Raises:
        ConfigError: The value is not such a text.
    """
    if not isinstance(value, str) or not minimum <= len(check_utf8(name, value)) <= maximum:
        raise ConfigError(
            f"{name} is {_shown(value)}; expected text of {minimum} to {maximum} bytes"
        )
    return value


def check_key(key: object) -> str:
    """Return ``key`` if it is a valid key of a job: text without the character NUL.

    PostgreSQL cannot store NUL in a text, so no store takes NUL.

    Raises:
        ConfigError: The value is not a key.
    """
    if not isinstance(key, str):
        raise ConfigError(f"key is {_shown(key)}; expected text")
    if "\0" in key:
        raise ConfigError(f"key is {_shown(key)}; expected text without the character NUL")
    check_utf8("key", key)
    return key


def check_role(role: object) -> str:
    """Return ``role`` if it is a valid role.

    Raises:
        ConfigError: The value is not a role.
    """
    return check_text("a role", role, Limits.TEXT, 1)


def check_offer(what: str, names: Iterable[str]) -> None:
    """Check that the names of roles and resources fit into one head, with a number for each name.

    Args:
        what: The owner of the names, for the error.
        names: All names.

    Raises:
        ConfigError: The names do not fit: every receiver would refuse every message with them.
    """
    size = sum(len(name.encode("utf-8", "replace")) + 12 for name in names)
    if size > OFFER:
        raise ConfigError(
            f"{what} take {size} bytes with their names, but at most {OFFER} fit into a message; "
            "use fewer or shorter names"
        )


def check_headers(name: str, headers: object) -> dict[str, object]:
    """Return ``headers`` if it is a mapping of text to scalars of CBOR.

    Raises:
        ConfigError: The value is not such a mapping, or too large. The text names the fault.
    """
    if not isinstance(headers, Mapping):
        raise ConfigError(
            f"{name} is {_shown(headers)}; expected a mapping of text to numbers, text, bytes, "
            "True, False or None"
        )
    size = 0
    for key, value in headers.items():
        check_text(f"a key of {name}", key, Limits.TEXT, 1)
        whole = isinstance(value, int) and abs(value) <= Limits.UINT
        finite = isinstance(value, float) and isfinite(value)
        if not (whole or finite or value is None or isinstance(value, str | bytes)):
            raise ConfigError(
                f"{name}: {key!r} is {_shown(value)}; expected a number of 64 bits, text, bytes, "
                "True, False or None"
            )
        try:
            data = value.encode() if isinstance(value, str) else value
            size += len(key.encode()) + 12 + (len(data) if isinstance(data, bytes) else 0)
        except UnicodeEncodeError as error:
            raise ConfigError(f"{name}: {key!r} contains text that is not UTF-8: {error}") from None
    if size > HEADERS:
        raise ConfigError(
            f"{name} take {size} bytes; expected at most {HEADERS}: {_shown(headers)}"
        )
    return dict(headers)


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:79]}…"


def check_amounts(name: str, amounts: object) -> dict[str, int]:
    """Return ``amounts`` if it is a mapping of resources to amounts.

    Raises:
        ConfigError: The value is not such a mapping. The text names the fault.
    """
    if not isinstance(amounts, Mapping):
        raise ConfigError(
            f"{name} is {amounts!r}; expected a mapping of resources to whole numbers"
        )
    for resource in amounts:
        check_text(f"a resource of {name}", resource, Limits.TEXT, 1)
    return {
        resource: check_count(f"{name} of {resource!r}", amount)
        for resource, amount in amounts.items()
    }
