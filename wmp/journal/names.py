"""Identities and connections as text: one-to-one, readable where they are plain words."""

from __future__ import annotations

import re
from typing import Final

from wmp.message import Link

__all__ = ["name_of_link", "name_of_peer"]

_PLAIN: Final = re.compile(rb"(?!0x)[A-Za-z0-9._:@-]{1,64}")


def name_of_peer(identity: bytes) -> str:
    """An identity as text: itself when it is a plain word, else ``0x`` and its hex digits."""
    if _PLAIN.fullmatch(identity):
        return identity.decode("ascii")
    return f"0x{identity.hex()}"


def name_of_link(link: Link) -> str:
    """A connection as text: ``#`` and the number of a DEALER, or a routing id like an identity."""
    return f"#{link}" if isinstance(link, int) else name_of_peer(link)
