"""The callables that can be handlers, their arguments, and their results and errors."""

from __future__ import annotations

import functools
import zlib
from typing import Any

import pytest

from wmp.codec import pack_value, unpack_error
from wmp.errors import ConfigError, DecodeError
from wmp.runtime.codecs.payload_codecs import coders_of, unknown_codec
from wmp.runtime.executors.handlers import (
    RunningJob,
    as_handlers,
    describe_error,
    serve,
)


def plain(payload: bytes) -> bytes:
    return payload


def with_job(payload: bytes, job: RunningJob) -> bytes:
    return payload


def with_default(payload: bytes, level: int = 3, *, strict: bool = False) -> bytes:
    return payload


def anything(*arguments: Any) -> None: ...


def three(a: int, b: int, c: int) -> None: ...


def nothing() -> None: ...


def keyword(payload: bytes, *, level: int) -> None: ...


def only_keywords(*, payload: bytes = b"") -> None: ...


async def awaits(payload: bytes) -> bytes:
    return payload


async def awaits_job(payload: bytes, job: RunningJob) -> bytes:
    return payload


class Callable:
    def __call__(self, payload: bytes, job: RunningJob) -> bytes:
        return payload

    def method(self, payload: bytes) -> bytes:
        return payload

    async def coroutine(self, payload: bytes) -> bytes:
        return payload


class AsyncCallable:
    async def __call__(self, payload: bytes) -> bytes:
        return payload


@pytest.mark.parametrize(
    ("handler", "takes_job", "is_async"),
    [
        (plain, False, False),
        (with_job, True, False),
        (with_default, False, False),
        (anything, False, False),
        (lambda payload: payload, False, False),
        (functools.partial(three, 1), True, False),
        (functools.partial(three, 1, 2), False, False),
        (functools.partial(keyword, level=3), False, False),
        (Callable(), True, False),
        (Callable().method, False, False),
        (zlib.compress, False, False),
        (bytes, False, False),
        (awaits, False, True),
        (awaits_job, True, True),
        (functools.partial(awaits_job), True, True),
        (functools.partial(AsyncCallable()), False, True),
        (AsyncCallable(), False, True),
        (Callable().coroutine, False, True),
    ],
)
def test_the_arguments_of_a_handler_follow_from_its_signature(
    handler: Any, takes_job: bool, is_async: bool
) -> None:
    served = serve("role", handler)
    assert (served.takes_job, served.is_async) == (takes_job, is_async)


@pytest.mark.parametrize("handler", [three, nothing, keyword, only_keywords])
def test_the_error_of_a_wrong_signature_names_the_handler_and_the_expected_form(
    handler: Any,
) -> None:
    with pytest.raises(ConfigError, match=r"expected f\(payload\) or f\(payload, job\)") as caught:
        serve("resize", handler)
    assert handler.__name__ in str(caught.value)
    assert "'resize'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_object_that_cannot_be_called_is_not_a_handler() -> None:
    with pytest.raises(ConfigError, match="of type bytes; expected a callable"):
        serve("resize", b"function")  # type: ignore[arg-type]


@pytest.mark.parametrize("role", ["", b"role", None, "é" * 128])
def test_a_role_is_a_text_of_at_most_255_bytes(role: Any) -> None:
    with pytest.raises(ConfigError, match="role"):
        serve(role, plain)


def test_a_bare_callable_serves_the_default_role() -> None:
    assert as_handlers(plain) == {"default": plain}
    assert as_handlers({"a": plain}) == {"a": plain}
    assert as_handlers(None) == {}


@pytest.mark.parametrize("codec", ["", "bytes"])
@pytest.mark.parametrize(
    ("result", "payload"),
    [
        (b"x", b"x"),
        (None, b""),
        ("é", b"\xc3\xa9"),
        (bytearray(b"x"), b"x"),
        (memoryview(b"abcd")[::2], b"ac"),
    ],
)
def test_codec_bytes_accepts_bytes_text_and_none(codec: str, result: Any, payload: bytes) -> None:
    encoded = coders_of(codec)[1](result)
    assert (type(encoded), encoded) == (bytes, payload)
    assert coders_of(codec)[0] is None


@pytest.mark.parametrize("result", [1, 1.5, [b"x"], {"a": 1}, object()])
def test_codec_bytes_reports_the_type_it_got_and_the_types_it_takes(result: Any) -> None:
    with pytest.raises(TypeError, match="expected bytes, str or None") as caught:
        coders_of("")[1](result)
    assert type(result).__name__ in str(caught.value)


@pytest.mark.parametrize("codec", ["", "cbor"])
def test_a_coroutine_as_a_result_hints_at_async_def(codec: str) -> None:
    with pytest.raises(TypeError, match="async def"):
        coders_of(codec)[1](awaits(b""))


def test_codec_cbor_takes_values_and_refuses_objects() -> None:
    value = {"a": [1, 2.5, None, True, b"x", "é"]}
    encoded = coders_of("cbor")[1](value)
    decode = coders_of("cbor")[0]
    assert decode is not None
    assert decode(encoded) == value
    with pytest.raises(TypeError, match="result cannot be encoded"):
        coders_of("cbor")[1](object())
    with pytest.raises(DecodeError):
        decode(pack_value([1])[:-1])


@pytest.mark.parametrize(
    ("result", "frames"),
    [
        ([b"one", b""], [b"one", b""]),
        (("é", None, bytearray(b"x")), [b"\xc3\xa9", b"", b"x"]),
        (b"one", [b"one"]),
        (None, [b""]),
    ],
)
def test_codec_frames_takes_a_list_or_one_frame(result: Any, frames: list[bytes]) -> None:
    decode, encode = coders_of("frames")
    assert decode is not None
    assert decode(encode(result)) == frames


@pytest.mark.parametrize("result", [[], [1], [[b"x"]], {"a": 1}])
def test_codec_frames_refuses_other_results(result: Any) -> None:
    with pytest.raises(TypeError, match="expected bytes, str or None"):
        coders_of("frames")[1](result)


def test_an_unknown_codec_is_an_error_with_the_known_codecs() -> None:
    type_name, text, _ = unpack_error(unknown_codec("protobuf"))
    assert type_name == "UnknownCodec"
    assert "'protobuf'" in text
    assert "bytes, text, json, cbor, cbor-tags, frames" in text


def test_an_error_is_described_even_when_its_own_text_raises() -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    type_name, text, _ = unpack_error(describe_error(Unspeakable()))
    assert type_name == "Unspeakable"
    assert "no text" in text


class Host:
    """Replaces the lane, and records its calls."""

    def __init__(self) -> None:
        self.cancelled: set[int] = set()
        self.heard: list[tuple[float | None, str | None]] = []

    def report(self, job: RunningJob, fraction: float | None, text: str | None) -> None:
        self.heard.append((fraction, text))


def test_a_report_is_checked_before_it_is_sent() -> None:
    host = Host()
    job = RunningJob(host, 7, 2, b"m", "role", None)
    for good in (0, 1, 0.5, True):
        job.report(good)
    job.report(text="é" * 1024)
    for fraction in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="0 to 1"):
            job.report(fraction)
    with pytest.raises(ValueError, match="has no argument"):
        job.report()
    with pytest.raises(TypeError, match="a number from 0 to 1"):
        job.report("half")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected str"):
        job.report(text=b"half")  # type: ignore[arg-type]
    assert host.heard == [(0, None), (1, None), (0.5, None), (1, None), (None, "é" * 512)]


def test_a_running_job_has_its_identity_deadline_and_cancelled_flag() -> None:
    host = Host()
    job = RunningJob(host, 7, 2, b"m", "role", None)
    assert (job.id, job.attempt, job.manager, job.role) == (7, 2, b"m", "role")
    assert job.deadline is None
    assert not job.cancelled
    host.cancelled.add(7)
    assert job.cancelled
    late = RunningJob(host, 8, 1, b"m", "role", 0.0)
    assert late.deadline is not None
    assert late.deadline < 0
    assert late.cancelled
    assert 8 in host.cancelled  # the handler's own JobCancelled now counts
