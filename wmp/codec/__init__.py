"""Messages to ZeroMQ frames and back: ``[head]`` or ``[head][columns][payload]…``.

Pure and total. :func:`decode` and :func:`peek` raise :class:`~wmp.errors.DecodeError` for
whatever frames they are given, and nothing else; :func:`encode` of equal messages gives equal
bytes. Nothing here knows what a message means to a peer, only whether it is one.

Encoding is done here and not by cbor2, which is asked only for floats. There are two reasons.
Its ``canonical=True`` orders map keys by their length first, as RFC 7049 did, and not by their
bytes, as RFC 8949 section 4.2.1 and so WMP-2.2 do. And it takes a memoryview for an array of
numbers, and spends more on each small container than on all else in a head.

Decoding is cbor2's, set to refuse tags, indefinite lengths, duplicate keys and deep nesting
(WMP-2.2, WMP-12.3). It needs ``cbor2>=6.1,<7``: 6.1 is the first that can refuse duplicate keys.
Data that is well-formed but not deterministic (a longer integer than needed, keys out of order, a
double that a half would hold) is accepted: to refuse it would cost encoding every message
again. The first three bytes of a head are the exception: they are what WMP-2.1 says.

Limits are checked before what they limit is decoded (WMP-2.10). A columns frame may be large, so
a large one is decoded column by column, each only after its length has been read: 16 MiB of
one-byte items would become a gigabyte of objects.
"""

from wmp.codec.cbor import CodecLimits
from wmp.codec.decoding import decode, peek
from wmp.codec.encoding import encode
from wmp.codec.values import pack_error, pack_value, unpack_error, unpack_value

__all__ = [
    "CodecLimits",
    "decode",
    "encode",
    "pack_error",
    "pack_value",
    "peek",
    "unpack_error",
    "unpack_value",
]
