"""Times as ``timedelta``."""

from __future__ import annotations

from datetime import timedelta

import pytest

import wmp
from tests.waiting import WAIT

HALF = timedelta(milliseconds=500)


def test_settings_retries_and_waits_take_a_timedelta() -> None:
    assert wmp.Retry(backoff=HALF).backoff == wmp.Retry(backoff=0.5).backoff
    assert wmp.exponential(HALF, timedelta(minutes=1)) == wmp.exponential(0.5, 60.0)
    assert wmp.RetryLater(timedelta(minutes=2)).seconds == 120.0
    manager = wmp.Manager(max_silence=timedelta(seconds=9))  # type: ignore[arg-type]
    assert manager._inner._machine.settings.max_silence == 9.0
    for wrong in (timedelta(seconds=-1), timedelta(days=99_999)):
        with pytest.raises(wmp.ConfigError, match="max_silence is"):
            wmp.Manager(max_silence=wrong)  # type: ignore[arg-type]


@pytest.mark.interop
def test_the_options_of_a_job_take_a_timedelta() -> None:
    with wmp.Manager() as manager, wmp.Worker(*manager.endpoints, handlers=bytes.upper):
        limit = timedelta(seconds=WAIT)
        job = manager.submit(
            b"a", timeout=limit, expires=limit, run_limit=limit, delay=timedelta(milliseconds=1)
        )
        assert job.result(WAIT) == b"A"
        with pytest.raises(wmp.ConfigError, match=r"timeout is 0.0; expected a number of seconds"):
            manager.submit(b"a", timeout=timedelta(0))
