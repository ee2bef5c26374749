"""Messages to ZeroMQ frames and back: ``[head]`` or ``[head][columns][payload]…``.

The functions are pure and total. :func:`decode` and :func:`peek` raise
:class:`~wmp.errors.DecodeError` for invalid frames, and no other error. :func:`encode` makes equal
bytes of equal messages. The codec checks that a message is valid, and does not know what the
message means to a peer.

This package encodes without cbor2, except for floats, for two reasons. cbor2's ``canonical=True``
orders map keys by their length first, as in RFC 7049; RFC 8949 section 4.2.1 and WMP-2.2 order them
by their bytes. And cbor2 encodes a memoryview as an array of numbers, and spends more time on each
small container than on everything else in a head.

cbor2 decodes, and is set to refuse tags, indefinite lengths, duplicate keys and deep nesting
(WMP-2.2, WMP-12.3). ``cbor2>=6.1,<7`` is needed: 6.1 is the first version that can refuse duplicate
keys. Some data is well-formed but not deterministic: a longer integer than needed, keys out of
order, a double that a half would hold. Such data is accepted, because the check would have to
encode every message again. Only the first three bytes of a head are fixed (WMP-2.1).

Limits are checked before the limited data is decoded (WMP-2.10). A large columns frame is decoded
column by column, each after a check of its length: 16 MiB of one-byte items would become a gigabyte
of objects.
"""

import typing

from wmp import errors as _errors  # noqa: F401 - checks that this package is ours
from wmp.lazy import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from wmp.codec.decoding import decode, peek
    from wmp.codec.encoding import encode
    from wmp.codec.limits import CodecLimits
    from wmp.codec.values import (
        pack_frames,
        pack_value,
        unpack_error,
        unpack_frames,
        unpack_value,
    )
    from wmp.error_reports import pack_error

__all__ = [
    "CodecLimits",
    "decode",
    "encode",
    "pack_error",
    "pack_frames",
    "pack_value",
    "peek",
    "unpack_error",
    "unpack_frames",
    "unpack_value",
]

# Imported at the first use: a worker process whose jobs carry bytes needs no codec of messages.
_VALUES: typing.Final = [name for name in __all__ if name.startswith(("pack", "unpack"))]
__getattr__, __dir__ = _lazy_names(
    __name__,
    {
        **dict.fromkeys(_VALUES, "wmp.codec.values"),
        "pack_error": "wmp.error_reports",
        "CodecLimits": "wmp.codec.limits",
        "decode": "wmp.codec.decoding",
        "encode": "wmp.codec.encoding",
        "peek": "wmp.codec.decoding",
    },
)
