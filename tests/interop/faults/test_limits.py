"""An input that is too large or invalid is refused at once, and all other jobs continue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import wmp
import wmp.aio
from tests.interop.faults.process_handlers import grow
from tests.waiting import WAIT
from wmp.message import Limits

SMALL = wmp.Transport(max_frame=Limits.COLUMNS)
"""The smallest valid limit, so that the tests are quick."""

TOO_MUCH = Limits.COLUMNS + 1


@pytest.mark.parametrize("pool", ["thread", "inline", "process"])
def test_a_result_that_is_too_large_fails_its_job_alone(pool: str) -> None:
    with (
        wmp.Manager(transport=SMALL) as manager,
        wmp.Worker(*manager.endpoints, handlers=grow, pool=pool, transport=SMALL),
    ):
        jobs = [manager.submit(str(size)) for size in (5, TOO_MUCH, Limits.COLUMNS, 7)]

        with pytest.raises(wmp.JobFailed, match=f"ResultTooLarge.*{TOO_MUCH} bytes.*the limit is"):
            jobs[1].result(WAIT)
        assert [len(jobs[index].result(WAIT)) for index in (0, 2, 3)] == [5, Limits.COLUMNS, 7]
        # On a slow machine jobs may wait so long that the worker hands them back (WMP-6.18), or
        # that a TAKE arrives after its lock has ended.
        assert manager.statistics().requeued.keys() <= {"handed back", "refused"}


def test_a_payload_that_is_too_large_is_refused_before_it_is_sent() -> None:
    with (
        wmp.Manager(transport=SMALL) as manager,
        wmp.Worker(*manager.endpoints, handlers=lambda data: str(len(data)), transport=SMALL),
    ):
        for submit in (manager.submit, manager.submit_nowait):
            with pytest.raises(
                wmp.ConfigError, match=f"{TOO_MUCH} bytes is too large; the limit is"
            ):
                submit(bytes(TOO_MUCH))
        results = manager.map([b"a", bytes(TOO_MUCH)])
        assert next(results) == b"1"
        with pytest.raises(wmp.ConfigError, match="too large"):
            next(results)

        assert manager.submit(bytes(Limits.COLUMNS)).result(WAIT) == str(Limits.COLUMNS).encode()


def test_many_small_jobs_at_the_bounds_of_one_message_get_through() -> None:
    # The maximum number of jobs in one message, with the longest payloads that share a frame.
    count, bundle = 2048, Limits.COLUMNS // Limits.INLINE // 2
    with (
        wmp.Manager(transport=SMALL, bundle=bundle, bundle_bytes=Limits.COLUMNS) as manager,
        wmp.Worker(
            *manager.endpoints,
            handlers=lambda data: data,
            window=count,
            window_max=count,
            lane_max=bundle,
            transport=SMALL,
        ),
    ):
        payload = bytes(Limits.INLINE)
        jobs = [manager.submit(payload) for _ in range(count)]
        assert all(job.result(WAIT) == payload for job in jobs)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"priority": "high"}, "expected a whole number"),
    ({"priority": None}, "expected a whole number"),
    ({"priority": 1.5}, "expected a whole number"),
    ({"priority": 2**63}, "expected a whole number"),
    ({"timeout": float("inf")}, "expected a number of seconds, more than 0"),
    ({"timeout": float("nan")}, "expected a number of seconds"),
    ({"timeout": 1e300}, "expected a number of seconds"),
    ({"timeout": 0}, "expected a number of seconds"),
    ({"timeout": "1"}, "expected a number of seconds"),
    ({"max_worker_losses": "x"}, "expected a whole number of at least 0"),
    ({"max_worker_losses": -1}, "expected a whole number of at least 0"),
    ({"on_status": 3}, "expected a callable"),
    ({"role": 5}, "expected text of 1 to 255 bytes"),
    ({"role": ""}, "expected text of 1 to 255 bytes"),
    ({"key": []}, "expected text"),
    ({"needs": {f"{number:0255}": 1 for number in range(40)}}, "needs take .* at most"),
]


def test_a_wrong_argument_is_refused_and_the_manager_lives() -> None:
    async def main() -> None:
        async with wmp.aio.Manager() as manager:
            for arguments, text in BAD:
                with pytest.raises(wmp.ConfigError, match=text):
                    await manager.submit(b"a", **arguments)

    asyncio.run(main())
    with (
        wmp.Manager() as manager,
        wmp.Worker(*manager.endpoints, handlers=bytes.upper),
    ):
        for arguments, text in BAD:
            for submit in (manager.submit, manager.submit_nowait):
                with pytest.raises(wmp.ConfigError, match=text):
                    submit(b"a", **arguments)
            if "on_status" not in arguments and "key" not in arguments:
                with pytest.raises(wmp.ConfigError, match=text):
                    list(manager.map([b"a"], **arguments))
            assert manager.submit(b"still here").result(WAIT) == b"STILL HERE", arguments


def test_the_longest_timeout_is_none_in_effect() -> None:
    with (
        wmp.Manager() as manager,
        wmp.Worker(*manager.endpoints, handlers=bytes.upper),
    ):
        assert manager.submit(b"a", timeout=1e9).result(WAIT) == b"A"
