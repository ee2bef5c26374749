"""The limits of a decoder."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from wmp.message import Limits


@frozen(kw_only=True)
class CodecLimits:
    """Upper limits of a decoder (WMP-2.10).

    A message above one of them gets the error ``limit``.
    """

    head: int = Limits.HEAD
    """Bytes of a head."""
    columns: int = Limits.COLUMNS
    """Bytes of a columns frame."""
    payload: int = Limits.PAYLOAD
    """Bytes of one payload."""
    jobs: int = Limits.JOBS
    """Number of jobs in one message."""
    frames: int = Limits.FRAMES
    """Number of frames of one message."""
    hops: int = Limits.HOPS
    """Number of devices on a path."""
    identity: int = Limits.IDENTITY
    """Bytes of an identity or routing id."""
    roles: int = Limits.ROLES
    """Number of entries of ``roles``, ``resources`` and ``needs``."""
    name: int = Limits.TEXT
    """Bytes of a role, a resource's name, a codec's name or an error's code."""
    text: int = Limits.LONG_TEXT
    """Bytes of ``text`` and ``label``."""


DEFAULTS: Final = CodecLimits()
