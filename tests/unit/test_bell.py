"""Another thread wakes a loop, and cannot harm one that is gone."""

from __future__ import annotations

import asyncio
import os
import sys
import threading

import pytest

from wmp.runtime.wakeup import Wakeup


@pytest.mark.parametrize("platform", sorted({"linux" if sys.platform == "linux" else "", "other"}))
def test_a_loop_that_sleeps_is_woken_once_for_many_rings(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if platform == "other":  # where there is no eventfd
        monkeypatch.setattr(sys, "platform", "other")
    answers: list[int] = []

    async def main() -> None:
        answered = asyncio.Event()

        def answer() -> None:
            answers.append(threading.get_ident())
            answered.set()

        bell = Wakeup(asyncio.get_running_loop(), answer)

        def ring() -> None:
            for _ in range(100_000):  # more than a pipe holds, and the loop looks only after them
                assert bell.ring()

        for _ in range(2):
            answered.clear()
            if not answers:
                ring()
            else:
                threading.Thread(target=bell.ring).start()
            await asyncio.wait_for(answered.wait(), 20)
        bell.close()

    asyncio.run(main())

    assert len(answers) >= 2
    assert set(answers) == {threading.get_ident()}


def test_nobody_hears_a_bell_that_is_closed_or_whose_loop_is() -> None:
    async def main() -> tuple[Wakeup, Wakeup]:
        loop = asyncio.get_running_loop()
        left, closed = Wakeup(loop, int), Wakeup(loop, int)
        descriptors = {closed._heard, closed._rung}
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
