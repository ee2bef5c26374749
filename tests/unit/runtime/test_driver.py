"""The driver performs every action, and meets a deadline after any earlier event."""

from __future__ import annotations

import asyncio
import functools
from typing import Any, get_args

import pytest

from wmp.actions import (
    Acknowledge,
    Answer,
    Decline,
    DeviceAction,
    ManagerAction,
    WorkerAction,
    Write,
)
from wmp.events import Begun, Cancelled, Finished, Submitted, Ticked, Undelivered
from wmp.foreign import Emit, EndRequest, ForeignAction
from wmp.message import Command, Message, Outcome
from wmp.runtime.driver.driver import Driver
from wmp.runtime.driver.foreign_driver import ForeignDriver
from wmp.runtime.driver.inbox import Inbox
from wmp.runtime.driver.manager_driver import ManagerDriver
from wmp.runtime.sockets.transport import Transport


class Machine:
    """A machine whose deadline is at once after every event."""

    def __init__(self) -> None:
        self.due: float | None = None
        self.ticked = asyncio.Event()

    def handle(self, event: Any, now: float) -> list[Any]:
        if isinstance(event, Ticked):
            self.due = None
            self.ticked.set()
        elif isinstance(event, Undelivered):
            self.due = now
        return []

    def deadline(self) -> float | None:
        return self.due


def test_a_deadline_that_comes_up_after_receiving_had_gone_first_is_met() -> None:
    async def main() -> None:
        machine = Machine()
        driver = Driver(
            machine, Inbox(), [], transport=Transport(), name="test", halted=lambda error: None
        )
        driver.start()
        try:
            await asyncio.sleep(0)
            # An earlier turn moved the clock, and its messages moved the deadline.
            driver._behind = asyncio.get_running_loop().time()
            driver._undelivered(0, Message(Command.PING))
            async with asyncio.timeout(5):
                await machine.ticked.wait()
            driver._halt(None)
        finally:
            driver.stop()

    asyncio.run(main())


class GatheringMachine(Machine):
    """A machine that records how it takes its events."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[str, Any]] = []

    def handle(self, event: Any, now: float) -> list[Any]:
        self.taken.append(("handle", event))
        return super().handle(event, now)

    def gather(self, event: Any, now: float) -> list[Any]:
        self.taken.append(("gather", event))
        return []


def test_ends_of_jobs_that_wait_together_are_gathered_up_to_the_last() -> None:
    ends = [Finished(lane, [lane], [Outcome.OK], [b""]) for lane in range(5)]
    begun = Begun(7, 7)

    async def main() -> GatheringMachine:
        machine, inbox = GatheringMachine(), Inbox()
        driver = Driver(
            machine,
            inbox,
            [],
            transport=Transport(),
            name="test",
            halted=lambda error: None,
            gather=machine.gather,
        )
        inbox.entries.extend([*ends[:3], begun, *ends[3:]])
        driver.start()
        try:
            driver._take_posted()
            driver._halt(None)
        finally:
            driver.stop()
        return machine

    taken = asyncio.run(main()).taken[:6]
    assert taken == [
        ("gather", ends[0]),
        ("gather", ends[1]),
        ("handle", ends[2]),
        ("handle", begun),
        ("gather", ends[3]),
        ("handle", ends[4]),
    ]


class Performers:
    """Submitters of a manager and executors of a worker that do nothing."""

    def nothing(self, action: Any) -> None:
        pass

    resolve = notify = run = recall = interrupt = nothing
    write = acknowledge = decline = answer = nothing


ACTIONS = set(get_args(ManagerAction | WorkerAction | DeviceAction | ForeignAction))
STORED = {Write, Acknowledge, Decline}
FOREIGN = {EndRequest, Cancelled, Emit, Submitted}
nothing = Performers().nothing


@pytest.mark.parametrize(
    ("kind", "actions"),
    [
        (
            functools.partial(ManagerDriver, writer=Performers(), forwarding=Performers()),
            ACTIONS - FOREIGN,
        ),
        (
            functools.partial(ForeignDriver, answer=nothing, submit=nothing, cancel=nothing),
            ACTIONS - STORED - {Answer},
        ),
    ],
    ids=["wmp", "foreign"],
)
def test_the_driver_knows_what_carries_out_each_action(kind: Any, actions: set[Any]) -> None:
    parts = Performers()
    driver = kind(
        Machine(),
        Inbox(),
        [],
        transport=Transport(),
        name="test",
        halted=parts.nothing,
        submitters=parts,
        executors=parts,
    )

    assert set(driver._performers) == actions
