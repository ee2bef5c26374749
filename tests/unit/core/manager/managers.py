"""Helpers of the tests of the manager machine: makers of managers, readers of their actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wmp.actions import End, ManagerAction, Resolve
from wmp.balance import least_recently_used
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings
from wmp.events import Submitted
from wmp.message import Command, Field, Frame, Kind, Message
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent


def make(policy: Any = least_recently_used, **settings: Any) -> ManagerMachine:
    """Return a manager with the epoch 7."""
    return ManagerMachine(ManagerSettings(**{"identity": b"m", "epoch": 7, **settings}), policy)


def submit(
    manager: ManagerMachine,
    *payloads: Frame,
    first: int | None = None,
    kind: Kind | None = None,
    now: float = 0.0,
    **options: Any,
) -> list[ManagerAction]:
    """Submit jobs with these payloads, under the next numbers unless ``first`` is given."""
    first = manager._scheduler.last_id + 1 if first is None else first
    ids = range(first, first + len(payloads))
    return manager.handle(Submitted(ids, payloads, kind or Kind(), **options), now)


def lease(
    manager: ManagerMachine, worker: ScriptedWorker, *payloads: Frame, **options: Any
) -> Message:
    """Submit jobs and let the worker take all of them; return the TAKE."""
    submit(manager, *payloads, **options)
    (take,) = sent(worker.give(len(payloads)), Command.TAKE)
    return take


def resolved(actions: Sequence[ManagerAction]) -> list[tuple[int, End, bytes]]:
    """Return (id, end, payload) of every job that ended."""
    return [
        (id, end, bytes(payload))
        for action in actions
        if isinstance(action, Resolve)
        for id, end, payload in zip(action.ids, action.ends, action.payloads, strict=True)
    ]


def errors(actions: Sequence[ManagerAction]) -> list[str]:
    """Return the codes of all ERRORs."""
    return [message.fields[Field.CODE] for message in sent(actions, Command.ERROR)]
