"""The keys that hold identities: with an allow list, a key cannot take the identity of another key.

A node with an allow list knows the public key of each connection. The first key that uses an
identity holds it. Messages of other keys with this identity are refused until the holder's
connection has ended, or the holder has been silent for some seconds. A restart with the same key is
not affected, whatever its connection.

A device speaks for the peers behind it, so its key holds their identities at the nodes above it.
The device itself checks the keys of those peers.
"""

from __future__ import annotations

from typing import Final

from attrs import define, field

from wmp.errors import DecodeError
from wmp.message import ErrorCode, Link, Message, Path

_SILENCE: Final = 10.0
"""Seconds of silence after which another key may use an identity. A living peer sends PING each
second.
"""
_MAX: Final = 10_000
"""Maximum number of identities of one key. Above this limit the key's oldest identity is free."""


@define
class _HeldIdentity:
    """The use of one identity."""

    key: bytes
    link: Link
    epoch: object
    at: float
    """Time of the last message, in seconds."""


@define(eq=False)
class IdentityHolders:
    """The identities in use at the ROUTER of a node, and the key that holds each."""

    _holders: dict[bytes, _HeldIdentity] = field(factory=dict)
    _of_key: dict[Link, dict[bytes, None]] = field(factory=dict)
    """Identities of each key, oldest first."""
    _of_link: dict[Link, dict[bytes, None]] = field(factory=dict)
    """Identities whose last message came over each connection."""

    def admits(self, key: bytes | None, link: Link, source: Path, now: float) -> bool:
        """Return whether a connection with this key may send a message from this path.

        Args:
            key: Public key of the connection. Only inproc has none where there is an allow list.
            link: The connection.
            source: Path of the sender: its identity and epoch, then two or more parts of each
                device.
            now: Seconds.
        """
        if key is None:
            return True
        identity = source[0]
        assert isinstance(identity, bytes)
        holder = self._holders.get(identity)
        if holder is not None:
            if holder.key == key and holder.link == link and holder.epoch == source[1]:
                holder.at = now
                return True
            if holder.key != key and now - holder.at < _SILENCE:
                return False
            self._release(identity)
        if len(self._of_key.get(key, ())) >= _MAX:
            self._release(next(iter(self._of_key[key])))
        self._holders[identity] = _HeldIdentity(key, link, source[1], now)
        self._of_key.setdefault(key, {})[identity] = None
        self._of_link.setdefault(link, {})[identity] = None
        return True

    def is_other_process(self, source: Path) -> bool:
        """Return whether the sender of a refused message is not the holder over another route."""
        assert isinstance(source[0], bytes)
        holder = self._holders.get(source[0])
        return holder is None or holder.epoch != source[1]

    def forget(self, link: Link) -> None:
        """Let all keys use the identities of a connection that ended."""
        for identity in tuple(self._of_link.get(link, ())):
            self._release(identity)

    def _release(self, identity: bytes) -> None:
        holder = self._holders.pop(identity)
        for own, name in ((self._of_key, holder.key), (self._of_link, holder.link)):
            del own[name][identity]
            if not own[name]:
                del own[name]


def taken(message: Message) -> DecodeError:
    """Return the error about a message whose identity is held by another key."""
    return DecodeError(
        "a connection with another key holds this identity; use another identity, or the key of "
        "the holder, or wait until the holder has left",
        code=ErrorCode.SUPERSEDED,
        source=message.source,
        command=message.command,
        to=message.to,
    )
