"""Sealed states of a Binary Star: only the holder of the pair's key can make them (STAR-1.5).

A sealed state contains a number drawn at the start of its node, and the last such number that this
node received from its peer. So a recorded state is of no use for another process, or a second time.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from typing import Final

from attrs import frozen

from wmp.errors import ConfigError
from wmp.foreign import Frames

NONCE_BYTES: Final = 16
"""Bytes of the random number of a node. In a frame they are hexadecimal digits."""

MIN_KEY: Final = 16
"""Minimum number of bytes of a key."""

_NOBODY: Final = b"0" * (2 * NONCE_BYTES)
_COUNTER: Final = 16
_SIZES: Final = (1, 2 * NONCE_BYTES, 2 * NONCE_BYTES, _COUNTER, 64)
_KNOWN: Final = 256
"""Maximum number of processes of the peer that are remembered."""


@frozen
class SealedClaim:
    """A state whose seal is right."""

    state: bytes
    answers: bool
    """Whether the sender has received a state of this process, and this state is a new one."""
    new: bool
    """Whether nothing was received of this process of the peer before."""


class ClaimSeal:
    """Seals the states of one process, and opens those of its peer.

    Args:
        key: The key of the pair, of 16 bytes or more.
        nonce: 16 random bytes, drawn at the start of the process.

    Raises:
        ConfigError: The key is too short.
    """

    def __init__(self, key: bytes, nonce: bytes) -> None:
        if len(key) < MIN_KEY:
            raise ConfigError(
                f"the key of the Binary Star has {len(key)} bytes; expected at least {MIN_KEY}, "
                "for example those of `openssl rand -hex 32`"
            )
        self._key = hashlib.sha256(b"wmp binary star 1 " + key).digest()
        self._nonce = nonce.hex().encode()
        self._sent = 0
        self._peer_nonce = _NOBODY
        """The number of the process of the peer that was received last."""
        self._counters: OrderedDict[bytes, int] = OrderedDict()
        """The last counter that counted, by number of the process."""

    def seal(self, state: bytes) -> Frames:
        """Return the frames of a state: state, own number, number received, counter and seal."""
        self._sent += 1
        frames = (state, self._nonce, self._peer_nonce, b"%0*x" % (_COUNTER, self._sent))
        return (*frames, self._sign(frames))

    def open(self, frames: Frames) -> SealedClaim | None:
        """Return the claim of a message; None if its seal is missing or wrong."""
        if tuple(map(len, frames)) != _SIZES:
            return None
        *signed, seal = map(bytes, frames)
        if not hmac.compare_digest(seal, self._sign(tuple(signed))):
            return None
        state, nonce, echoed, counter = signed
        if nonce == self._nonce:
            return None  # an own state that came back
        before = self._counters.get(nonce)
        self._peer_nonce = nonce
        count = int(counter, 16)
        answers = echoed == self._nonce and count > (before or 0)
        self._counters[nonce] = count if answers else before or 0
        if len(self._counters) > _KNOWN:
            self._counters.popitem(last=False)
        return SealedClaim(state, answers, before is None)

    def _sign(self, frames: Frames) -> bytes:
        return hmac.new(self._key, b" ".join(frames), hashlib.sha256).hexdigest().encode()
