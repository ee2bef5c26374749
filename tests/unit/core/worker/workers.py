"""Helpers of the tests of the worker machine: makers of workers, readers of their actions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from wmp.actions import Drop, Run, WorkerAction
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Finished, Ticked
from wmp.message import Command, Field, Frame, Message, Outcome
from wmp.testing.peers.scripted_manager import ScriptedManager
from wmp.testing.peers.scripted_worker import sent


def make(links: int = 1, **options: Any) -> WorkerMachine:
    """Return a worker that, by default, holds no GIVE and accepts only as many jobs as can run."""
    options = {"hold": 0.0, "window": 0, **options}
    return WorkerMachine(WorkerSettings(identity=b"w", epoch=5, **options), links)


def met(worker: WorkerMachine, **options: Any) -> ScriptedManager:
    """Return a manager that the worker knows."""
    manager = ScriptedManager(worker, **options)
    manager.meet()
    return manager


def give(manager: ScriptedManager, *payloads: Frame, **changes: Any) -> list[WorkerAction]:
    """Send WAKE, and then TAKE with these jobs."""
    payloads = payloads or (b"job",)
    (message,) = sent(manager.wake(len(payloads)), Command.GIVE)
    return manager.take(message.fields[Field.LOCK], *payloads, **changes)


def finish(
    worker: WorkerMachine,
    run: Run,
    ids: Sequence[int] | None = None,
    *,
    now: float = 0.0,
    outcome: Outcome = Outcome.OK,
    payload: Frame = b"result",
) -> list[WorkerAction]:
    """End the given jobs of a lane; by default all jobs."""
    ids = run.ids if ids is None else ids
    count = len(ids)
    return worker.handle(Finished(run.lane, ids, [outcome] * count, [payload] * count), now)


def until(worker: WorkerMachine, end: float) -> Iterator[tuple[float, list[WorkerAction]]]:
    """Handle every deadline up to ``end``; yield (time, actions)."""
    while (due := worker.deadline()) is not None and due <= end:
        yield due, worker.handle(Ticked(), due)
        assert worker.deadline() is None or worker.deadline() > due


def runs(actions: Sequence[WorkerAction]) -> list[Run]:
    return [action for action in actions if isinstance(action, Run)]


def reasons(actions: Sequence[WorkerAction]) -> list[str]:
    return [action.reason for action in actions if isinstance(action, Drop)]


def only(actions: Sequence[WorkerAction], command: Command) -> Message:
    (message,) = sent(actions, command)
    return message


def fields(message: Message, *keys: int) -> tuple[Any, ...]:
    return tuple(message.fields.get(key) for key in keys)
