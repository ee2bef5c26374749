"""The codecs of payloads by their names, codecs of the application, and encoding (VALUE-1)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import CoroutineType
from typing import Any, Final

from wmp.error_reports import pack_error
from wmp.errors import ConfigError, DecodeError, JobFailed
from wmp.record import FrozenRecord
from wmp.vocabulary import Frame, Limits


class PayloadCodec(FrozenRecord):
    """The encoding of payloads and results as bytes."""

    name: str
    encode: Callable[[Any], Frame]
    """Raises any exception for a value that it cannot encode."""
    decode: Callable[[Frame], Any] | None
    """Raises any exception for malformed bytes. None: the payload is passed as it is."""


_PLAIN_NAMES: Final = ("bytes", "")

PLAIN: Final = "bytes"
"""The codec that leaves payloads as they are. Its name is not sent (VALUE-2.1)."""

FRAMES: Final = "frames"
"""The codec of a list of frames (VALUE-2.5)."""


def register_codec(
    name: str, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]
) -> None:
    """Add a codec of the application, for ``wmp.Manager(codec=name)`` and for workers.

    Managers and workers register the codec under the same name. A worker with ``pool="process"``
    registers it in the module of its handlers, which its processes import.

    Args:
        name: Name on the wire, up to 255 bytes.
        encode: Makes bytes of a payload or a result, or raises.
        decode: Makes a value of bytes, or raises. The bytes come from another process: never pass
            them to ``pickle`` unless all peers have keys and are trusted.

    Raises:
        ConfigError: The name is taken by another codec, or is not a name; or an argument is no
            function.
    """
    given: object = name  # not all callers are type-checked
    size = len(given.encode("utf-8", "replace")) if isinstance(given, str) else 0
    if not 1 <= size <= Limits.TEXT or any("\ud800" <= char <= "\udfff" for char in name):
        raise ConfigError(f"the name of a codec is {name!r}; expected 1 to {Limits.TEXT} bytes")
    if name in _BUILT_IN:
        raise ConfigError(f"the codec {name!r} belongs to this library; choose another name")
    for argument, function in (("encode", encode), ("decode", decode)):
        if not callable(function):
            raise ConfigError(f"{argument} of codec {name!r} is {function!r}; expected a function")
    known = _registered.get(name)
    if known is not None and _source(known.encode, known.decode) != _source(encode, decode):
        raise ConfigError(
            f"the codec {name!r} is registered with other functions; choose another name"
        )

    def encode_bytes(value: Any) -> Frame:
        encoded: object = encode(value)
        if not isinstance(encoded, bytes | bytearray | memoryview):
            raise TypeError(
                f"its function encode returned {type(encoded).__name__}; expected bytes"
            )
        return encoded if isinstance(encoded, bytes) else bytes(encoded)

    def decode_bytes(frame: Frame) -> Any:
        return decode(frame if type(frame) is bytes else bytes(frame))

    encode_bytes.__wrapped__ = encode  # type: ignore[attr-defined]
    decode_bytes.__wrapped__ = decode  # type: ignore[attr-defined]
    _registered[name] = PayloadCodec(name, encode_bytes, decode_bytes)


def _source(*functions: Any) -> list[object]:
    """Return what a module defines again when it is imported again, for example in a reload."""
    originals = [getattr(function, "__wrapped__", function) for function in functions]
    return [(getattr(f, "__module__", f), getattr(f, "__qualname__", f)) for f in originals]


def find_codec(name: str) -> PayloadCodec | None:
    """Return the codec with a name of the wire; None if it is not known."""
    name = name or PLAIN
    codec = _loaded.get(name) or _registered.get(name)
    if codec is None and name in _MODULES:
        module, encode, decode = _MODULES[name]
        functions = importlib.import_module(module)
        codec = PayloadCodec(name, getattr(functions, encode), getattr(functions, decode))
        _loaded[name] = codec
    return codec


def payload_codec(name: str) -> PayloadCodec:
    """Return the codec that a setting names.

    Raises:
        ConfigError: There is no such codec.
    """
    codec = find_codec(name) if isinstance(name, str) else None  # type: ignore[redundant-expr]
    if codec is None:
        raise ConfigError(
            f"codec is {name!r}; expected one of {', '.join(codec_names())}, or a name that was "
            "passed to wmp.register_codec()"
        )
    return codec


def codec_names() -> list[str]:
    """Return the names of all codecs, the library's first."""
    return [*_BUILT_IN, *_registered]


def wire_name(name: str) -> str:
    """Return the name of a codec in messages, which omit ``bytes``."""
    return "" if name == PLAIN else name


# -- at a submitter ------------------------------------------------------------------------


def pack(payload: object, codec_name: str, limit: int = Limits.PAYLOAD) -> Frame:
    """Encode a user's payload as bytes.

    Args:
        payload: Bytes or text for the codec ``bytes``, else a value that the codec encodes.
        codec_name: Name of the codec.
        limit: Maximum number of bytes.

    Raises:
        TypeError: The payload cannot be encoded.
        ConfigError: The payload has too many bytes, and no connection would carry it.
    """
    if codec_name != PLAIN:
        try:
            data = payload_codec(codec_name).encode(payload)
        except Exception as error:
            # Errors of codecs have several base classes, and here all of them mean the same.
            raise TypeError(
                f"a payload of type {type(payload).__name__} cannot be encoded by codec "
                f"{codec_name!r}: {error}"
            ) from error
    elif type(payload) is bytes:
        data = payload
    elif type(payload) is str:
        try:
            data = payload.encode()
        except UnicodeEncodeError as error:
            raise TypeError(
                f"a payload of type str cannot be encoded as UTF-8: {error}; use os.fsencode for "
                "file names"
            ) from error
    elif type(payload) is bytearray or type(payload) is memoryview:
        data = bytes(payload)
    else:
        from wmp.codec.cbor import describe_type

        raise TypeError(
            f"a payload is of type {describe_type(type(payload))}; codec='bytes' expects bytes or "
            "str; encode it, or use codec='cbor' for numbers, lists and dicts"
        )
    if len(data) > limit:
        raise ConfigError(
            f"a payload of {len(data)} bytes is too large; the limit is {limit} "
            "(Transport.max_frame, and 256 MiB in any case); split it into several jobs, or "
            "store the data elsewhere and send its address"
        )
    return data


def unpack(id: int, payload: Frame, codec_name: str) -> tuple[Any, Exception | None]:
    """Return (value, None) for the payload of a result, or (None, error) if decoding fails.

    Args:
        id: The job's number.
        payload: The payload of the result.
        codec_name: Name of the codec; empty for ``bytes``.
    """
    if codec_name in _PLAIN_NAMES:
        return payload if type(payload) is bytes else bytes(payload), None
    try:
        return payload_codec(codec_name).decode(payload), None  # type: ignore[misc]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - code of the application's codec
        broken = JobFailed(
            "DecodeError", f"the result of the job cannot be decoded: {error}", job_id=id
        )
        broken.__cause__ = error
        return None, broken


# -- at a worker ---------------------------------------------------------------------------


Coders = tuple[Callable[[Frame], Any] | None, Callable[[Any], Frame]]
"""Decoder of payloads and encoder of results. The decoder is None where payloads need none. The
encoder raises TypeError for a result that cannot be encoded."""


def coders_of(codec: str) -> Coders:
    """Return the decoder and the encoder for a codec, by its name in messages.

    The decoder of an unknown codec raises ``LookupError``.
    """
    known = _CODERS.get(codec)
    if known is not None:
        return known
    definition = find_codec(codec)
    if definition is None:

        def refuse(payload: Frame) -> Any:
            raise LookupError(
                f"{_unknown(codec)}; call wmp.register_codec() in the module of the handler"
            )

        return refuse, _encoder(_PLAIN_CODEC)
    coders = definition.decode, _encoder(definition)
    if definition.name not in _OWN_NAMES:
        return coders  # the application may register the codec again
    return _CODERS.setdefault(codec, coders)


def _encoder(codec: PayloadCodec) -> Callable[[Any], Frame]:
    encode = codec.encode
    begin = (
        "the handler returned" if codec.name in _RAW else "the handler's result cannot be encoded:"
    )
    otherwise = ' (use codec="cbor" on the manager to send other values)'

    def encode_result(result: Any) -> Frame:
        try:
            return encode(result)
        except Exception as error:  # noqa: BLE001 - code of the application's codec
            hint = _hint(result, otherwise if codec.name == PLAIN else "")
            raise TypeError(f"{begin} {error}{hint}") from None

    return encode_result


def _hint(result: Any, otherwise: str) -> str:
    if isinstance(result, CoroutineType):
        result.close()  # otherwise Python warns that the coroutine was never awaited
        return "; a handler that awaits must itself be `async def`"
    return otherwise


def is_frames(result: Any) -> bool:
    """Return whether a result is a list of frames, which any job may return (VALUE-2.6)."""
    return (
        type(result) in (list, tuple)
        and len(result) > 0
        and all(type(frame) in (bytes, bytearray, memoryview) for frame in result)
    )


def unknown_codec(codec: str) -> bytes:
    """Return the payload of the error for a codec that this process does not know (VALUE-1.2)."""
    return pack_error("UnknownCodec", _unknown(codec))


def _unknown(codec: str) -> str:
    return (
        f"the payload is encoded as {codec[:80]!r}; this worker decodes {', '.join(codec_names())}"
    )


# -- the codecs of this library -------------------------------------------------------------


def _encode_bytes(value: Any) -> bytes:
    if value is None:
        return b""
    kind = type(value)
    if kind is str:
        text: str = value
        return text.encode("utf-8")
    # A copy, because the owner may change a bytearray later.
    if kind is bytes or kind is bytearray or kind is memoryview:
        return bytes(value)
    from wmp.codec.cbor import describe_type

    raise TypeError(f"{describe_type(kind)}; expected bytes, str or None, or a list of bytes")


def _encode_text(value: Any) -> bytes:
    if value is None:
        return b""
    if type(value) is str:
        return value.encode("utf-8")
    from wmp.codec.cbor import describe_type

    raise TypeError(f"{describe_type(type(value))}; expected str or None")


def _decode_text(frame: Frame) -> str:
    try:
        return str(frame, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(
            f"a payload of {len(frame)} bytes cannot be decoded by codec 'text': {error}"
        ) from error


def _decode_frames(payload: Frame) -> list[bytes]:
    from wmp.codec.values import unpack_frames

    return list(unpack_frames(payload))


def encode_frames(value: Any) -> bytes:
    """Encode a list of frames; any other value is a list of one frame."""
    from wmp.codec.values import pack_frames

    if type(value) in (list, tuple) and value:
        return pack_frames([_encode_bytes(frame) for frame in value])
    return pack_frames([_encode_bytes(value)])


_BUILT_IN: Final = (PLAIN, "text", "json", "cbor", "cbor-tags", FRAMES)
_loaded: dict[str, PayloadCodec] = {
    codec.name: codec
    for codec in (
        PayloadCodec(PLAIN, _encode_bytes, None),
        PayloadCodec("text", _encode_text, _decode_text),
        PayloadCodec(FRAMES, encode_frames, _decode_frames),
    )
}
_MODULES: Final = {
    "json": ("wmp.runtime.codecs.json_values", "pack_json", "unpack_json"),
    "cbor": ("wmp.codec.values", "pack_value", "unpack_value"),
    "cbor-tags": ("wmp.runtime.codecs.tagged_values", "pack_tagged", "unpack_tagged"),
}
"""Modules of codecs, which are imported at their first use: they would make every start slower."""

_registered: dict[str, PayloadCodec] = {}

_RAW: Final = (PLAIN, "text", FRAMES)
"""Codecs whose errors begin with the type of the result."""

_OWN_NAMES: Final = frozenset(codec_names())
_CODERS: Final[dict[str, Coders]] = {}
_PLAIN_CODEC: Final = _loaded[PLAIN]
