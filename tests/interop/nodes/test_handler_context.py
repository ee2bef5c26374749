"""Each job runs in a context of its own: no context variable passes from one job to the next."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import attrs
import pytest

import wmp
from tests.waiting import WAIT
from wmp.errors import JobFailed

USER: ContextVar[str] = ContextVar("user", default="nobody")

pytestmark = pytest.mark.interop


def plain(payload: bytes) -> bytes:
    seen = USER.get()
    USER.set(payload.decode())
    return seen.encode()


def reporting(payload: bytes, job: wmp.RunningJob) -> bytes:
    return plain(payload)


async def waiting(payload: bytes) -> bytes:
    before = plain(payload)
    await asyncio.sleep(0)
    assert USER.get() == payload.decode(), "a step after a wait has the job's own context"
    return before


async def waiting_and_reporting(payload: bytes, job: wmp.RunningJob) -> bytes:
    return await waiting(payload)


@pytest.mark.parametrize(
    ("handler", "pool"),
    [
        (plain, "thread"),
        (plain, "inline"),
        (plain, "process"),
        (reporting, "thread"),
        (waiting, "thread"),
        (waiting_and_reporting, "thread"),
    ],
)
def test_jobs_of_one_message_do_not_see_each_others_variables(handler: Any, pool: str) -> None:
    with (
        wmp.Manager() as manager,
        wmp.Worker(*manager.endpoints, handlers=handler, slots=1, pool=pool),
    ):
        assert list(manager.map([b"alice", b"bob", b"carol"] * 20)) == [b"nobody"] * 60


@pytest.mark.parametrize(
    "error", [GeneratorExit, SystemExit, KeyboardInterrupt, asyncio.CancelledError, BaseException]
)
@pytest.mark.parametrize("waits", [False, True])
def test_no_error_of_a_coroutine_ends_its_worker(error: type[BaseException], waits: bool) -> None:
    async def handler(payload: bytes) -> bytes:
        if waits:
            await asyncio.sleep(0)
        if payload == b"poison":
            raise error("of the handler")
        return payload

    with (
        wmp.Manager() as manager,
        wmp.Worker(*manager.endpoints, handlers=handler, slots=1),
    ):
        with pytest.raises(JobFailed, match=error.__name__):
            manager.submit(b"poison").result(timeout=WAIT)
        assert manager.submit(b"after").result(timeout=WAIT) == b"after"


# -- the code around a handler -----------------------------------------------------------------


def noted(text: str) -> str:
    """Return the value that an earlier job has left, and leave one."""
    seen = USER.get()
    USER.set(text)
    return seen


@attrs.define
class Named:
    """An argument that is made by the code of its class."""

    name: str
    seen: str = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.seen = noted(self.name)


def named(argument: Named) -> str:
    return argument.seen


async def named_async(argument: Named) -> str:
    return argument.seen


@pytest.mark.parametrize(
    ("handler", "pool"),
    [(named, "thread"), (named, "inline"), (named, "process"), (named_async, "thread")],
)
def test_the_classes_of_arguments_run_in_the_context_of_their_job(handler: Any, pool: str) -> None:
    with (
        wmp.Manager(codec="json") as manager,
        wmp.Worker(*manager.endpoints, handlers=handler, slots=1, pool=pool),
    ):
        payloads = [{"name": name} for name in ("alice", "bob", "carol")]
        assert list(manager.map(payloads)) == ["nobody"] * 3


def encode(value: str) -> bytes:
    return (f"seen {noted(value)}" if value.startswith("result") else value).encode()


def decode(payload: bytes) -> str:
    text = payload.decode()
    return f"seen {noted(text)}" if text.startswith("payload") else text


wmp.register_codec("noting", encode, decode)


def returned(value: str) -> str:
    return value.replace("for", "result")


@pytest.mark.parametrize("pool", ["thread", "inline", "process"])
@pytest.mark.parametrize("payload", ["payload", "for the encoder"])
def test_codecs_run_in_the_context_of_their_job(payload: str, pool: str) -> None:
    with (
        wmp.Manager(codec="noting") as manager,
        wmp.Worker(*manager.endpoints, handlers=returned, slots=1, pool=pool),
    ):
        jobs = manager.submit_many([payload] * 3)
        assert [job.result(WAIT) for job in jobs] == ["seen nobody"] * 3


@pytest.mark.rule("CALL-5.4")
@pytest.mark.parametrize("chunk", [1, 3])
def test_all_calls_see_the_variables_that_an_initializer_sets(chunk: int) -> None:
    with wmp.Executor(workers=1, initializer=noted, initargs=("initializer",)) as executor:
        seen = list(executor.map(noted, ["alice", "bob", "carol"], chunksize=chunk))
        assert seen[0] == "initializer"
        assert executor.submit(noted, "dave").result(WAIT) == "initializer"
