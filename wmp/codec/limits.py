"""How much a decoder takes."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from wmp.message import Limits

__all__ = ["DEFAULTS", "CodecLimits"]


@frozen(kw_only=True)
class CodecLimits:
    """What a decoder accepts at most (WMP-2.10). Above one of these the error is ``limit``."""

    head: int = Limits.HEAD
    """Bytes of a head."""
    columns: int = Limits.COLUMNS
    """Bytes of a columns frame."""
    payload: int = Limits.PAYLOAD
    """Bytes of one payload."""
    jobs: int = Limits.JOBS
    """Jobs in one message."""
    frames: int = Limits.FRAMES
    """Frames of one message."""
    hops: int = Limits.HOPS
    """Devices on a path."""
    identity: int = Limits.IDENTITY
    """Bytes of an identity or routing id."""
    roles: int = Limits.ROLES
    """Entries of ``roles``, ``resources`` and ``needs``."""
    name: int = Limits.TEXT
    """Bytes of a role, a resource's name, a codec's name or an error's code."""
    text: int = Limits.LONG_TEXT
    """Bytes of ``text`` and ``label``."""


DEFAULTS: Final = CodecLimits()
