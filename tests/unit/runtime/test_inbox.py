"""Other threads post entries and wake a loop, and do no harm to a closed loop."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable

import pytest

from tests.waiting import WAIT
from wmp.events import Closed, Drained
from wmp.runtime.driver.inbox import Inbox, Wakeup


@pytest.mark.parametrize("platform", sorted({"linux" if sys.platform == "linux" else "", "other"}))
def test_a_loop_that_sleeps_is_woken_once_for_many_rings(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if platform == "other":  # a system without eventfd
        monkeypatch.setattr(sys, "platform", "other")
    answers: list[int] = []

    async def main() -> None:
        answered = asyncio.Event()

        def answer() -> None:
            answers.append(threading.get_ident())
            answered.set()

        wakeup = Wakeup(asyncio.get_running_loop(), answer)

        def ring() -> None:
            for _ in range(100_000):  # more than a pipe can hold; the loop reads only afterwards
                assert wakeup.ring()

        for _ in range(2):
            answered.clear()
            if not answers:
                ring()
            else:
                threading.Thread(target=wakeup.ring).start()
            await asyncio.wait_for(answered.wait(), 20)
        wakeup.close()

    asyncio.run(main())

    assert len(answers) >= 2
    assert set(answers) == {threading.get_ident()}


def test_ringing_fails_when_the_wakeup_or_its_loop_is_closed() -> None:
    async def main() -> tuple[Wakeup, Wakeup]:
        loop = asyncio.get_running_loop()
        left, closed = Wakeup(loop, int), Wakeup(loop, int)
        descriptors = {closed._reader, closed._writer}
        closed.close()
        closed.close()
        for descriptor in descriptors:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(descriptor)
        return left, closed

    left, closed = asyncio.run(main())

    assert not closed.ring()
    assert not left.ring()
    left.close()


def test_entries_wait_for_the_start_and_wake_the_loop_once_a_burst() -> None:
    async def main() -> list[list[object]]:
        inbox, turns = Inbox(), []
        taken = asyncio.Event()

        def turn() -> None:
            inbox.scheduled = False
            turns.append(list(inbox.entries))
            inbox.entries.clear()
            taken.set()

        inbox.post(Drained())
        inbox.start(turn, pytest.fail)
        inbox.schedule()
        await asyncio.wait_for(taken.wait(), 20)
        taken.clear()

        def burst() -> None:
            for _ in range(3):
                inbox.post(Closed())

        burst()
        await asyncio.wait_for(taken.wait(), 20)
        taken.clear()
        threading.Thread(target=inbox.post, args=(Drained(),)).start()
        await asyncio.wait_for(taken.wait(), 20)
        inbox.close()
        burst()
        await asyncio.sleep(0)
        return turns

    assert asyncio.run(main()) == [[Drained()], [Closed()] * 3, [Drained()]]


def test_an_inbox_reports_that_its_loop_was_closed() -> None:
    inbox, closed = Inbox(), threading.Event()

    async def main() -> None:
        inbox.start(int, closed.set)

    asyncio.run(main())
    thread = threading.Thread(target=inbox.post, args=(Drained(),))
    thread.start()
    thread.join(WAIT)

    assert closed.is_set()
    inbox._wakeup.close()


def test_an_entry_posted_while_the_inbox_starts_does_not_count_as_after_the_loops_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inbox = Inbox()
    turns: list[None] = []
    closed: list[None] = []

    def wakeup(loop: asyncio.AbstractEventLoop, answer: Callable[[], object]) -> Wakeup:
        thread = threading.Thread(target=inbox.post, args=(Drained(),))
        thread.start()
        thread.join()
        return Wakeup(loop, answer)

    monkeypatch.setattr("wmp.runtime.driver.inbox.Wakeup", wakeup)

    async def main() -> None:
        inbox.start(lambda: turns.append(None), lambda: closed.append(None))
        inbox.schedule()
        await asyncio.sleep(0)
        inbox.close()

    asyncio.run(main())

    assert (turns, closed) == ([None], [])
