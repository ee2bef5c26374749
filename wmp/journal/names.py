"""Identities, connections and files by name: one-to-one, readable where they are plain words."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

from wmp.journal.schema import SUFFIX
from wmp.message import Link

__all__ = ["name_of_file", "name_of_link", "name_of_peer"]

_PLAIN: Final = re.compile(rb"(?!0x)[A-Za-z0-9._:@-]{1,64}")

_FOR_FILES: Final = re.compile(r"[A-Za-z0-9._-]{1,80}")


def name_of_peer(identity: bytes) -> str:
    """An identity as text: itself when it is a plain word, else ``0x`` and its hex digits."""
    if _PLAIN.fullmatch(identity):
        return identity.decode("ascii")
    return f"0x{identity.hex()}"


def name_of_link(link: Link) -> str:
    """A connection as text: ``#`` and the number of a DEALER, or a routing id like an identity."""
    return f"#{link}" if isinstance(link, int) else name_of_peer(link)


def name_of_file(identity: bytes, epoch: int, segment: int) -> str:
    """The name of a finished segment; it sorts by its number.

    Identities that are long, or have characters that some file systems do not like, are shortened,
    and made one-to-one again by a digest.
    """
    name = name_of_peer(identity)
    if not _FOR_FILES.fullmatch(name):
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:60]
        name = f"{plain}~{blake2b(identity, digest_size=6).hexdigest()}"
    return f"{name}-{epoch}-{segment:06}{SUFFIX}"
