"""Errors of handlers as they travel: names of their types, and the payload of outcome ``error``.

A worker process reports errors without further imports, for which it may have no memory left.
"""

from __future__ import annotations

from typing import Final

__all__ = ["name_of", "names_of", "pack_error"]

_MAX_TEXT: Final = 64 * 1024
"""Maximum number of characters of each part of a payload."""


def name_of(kind: type) -> str:
    """Return the qualified name of a type. Whitespace separates such names on the wire."""
    return "".join(f"{kind.__module__}.{kind.__qualname__}".split())


def names_of(error: BaseException) -> list[str]:
    """Return the qualified names of an error's type and of all its base types."""
    return [name_of(base) for base in type(error).__mro__ if base is not object]


def pack_error(type_name: str, text: str, traceback: str = "") -> bytes:
    """Encode the payload of outcome ``error``: a CBOR array of three texts.

    It never fails, and cuts the middle out of long parts.
    """
    parts = [_sendable(part) for part in (type_name, text, traceback)]
    return b"\x83" + b"".join([_head(len(part)) + part for part in parts])


def _sendable(text: str) -> bytes:
    if len(text) > _MAX_TEXT:
        half = _MAX_TEXT // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
    # Lone surrogates (from undecodable file names) cannot be encoded as UTF-8.
    return text.encode("utf-8", "backslashreplace")


def _head(size: int) -> bytes:
    """Return the head of a CBOR text with a number of bytes (RFC 8949, section 3.1)."""
    if size < 24:
        return bytes((0x60 + size,))
    if size < 1 << 8:
        return bytes((0x78, size))
    if size < 1 << 16:
        return b"\x79" + size.to_bytes(2, "big")
    return b"\x7a" + size.to_bytes(4, "big")
