"""Signals of a program that looks at futures in turns."""

from __future__ import annotations

import concurrent.futures
import signal
import threading

import pytest

from tests.waiting import WAIT
from wmp.cli.common.entry_point import Interruption, ProgramTerminated


@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, ProgramTerminated)],
)
def test_a_signal_is_raised_where_the_program_checks(number, expected):
    with Interruption() as interruption:
        interruption.check()
        signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt) as raised:
            interruption.check()
    assert raised.type is expected


def test_no_lock_of_a_future_stays_locked_after_a_signal():
    future: concurrent.futures.Future[int] = concurrent.futures.Future()
    with Interruption() as interruption:
        # The steps of `concurrent.futures.wait`, with a signal just after the lock.
        future._condition.acquire()
        signal.raise_signal(signal.SIGINT)
        future._condition.release()
        with pytest.raises(KeyboardInterrupt):
            interruption.check()
    other = threading.Thread(target=future.set_result, args=(1,), daemon=True)
    other.start()
    other.join(WAIT)
    assert future.done()


def test_a_second_signal_is_raised_at_once():
    with Interruption():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(ProgramTerminated):
            signal.raise_signal(signal.SIGTERM)


def test_a_signal_is_raised_at_once_during_output():
    with (
        Interruption() as interruption,
        pytest.raises(KeyboardInterrupt),
        interruption.at_once(),
    ):
        signal.raise_signal(signal.SIGINT)


def test_output_does_not_begin_after_a_signal():
    begun = False
    with Interruption() as interruption:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), interruption.at_once():
            begun = True
    assert not begun


def test_the_handlers_of_before_are_set_again():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Interruption():
        assert signal.getsignal(signal.SIGINT) not in before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
