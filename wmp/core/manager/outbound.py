"""What a manager sends: stamped with route, session and ack, and kept when numbered."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from wmp.actions import Drop, ManagerAction, Send
from wmp.core.manager.remote_worker import RemoteWorker
from wmp.core.manager.timers import ManagerTimers
from wmp.core.protocol.timers import ResendTimer
from wmp.message import Columns, Command, Field, Link, Message, Peer

__all__ = ["ManagerOutbound"]


@define(eq=False)
class ManagerOutbound:
    """Collects the actions of one ``handle`` call, in order."""

    me: Peer
    timers: ManagerTimers
    resend: float
    actions: list[ManagerAction] = field(factory=list)
    dropped: dict[str, int] = field(factory=dict)
    """How often something was ignored, by reason."""

    def collect(self) -> list[ManagerAction]:
        """Hand over what was collected."""
        actions, self.actions = self.actions, []
        return actions

    def drop(
        self,
        reason: str,
        link: Link | None = None,
        message: Message | None = None,
        detail: str = "",
    ) -> None:
        """Count and report something that is ignored."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        self.actions.append(Drop(reason, link, message, detail))

    def send(self, worker: RemoteWorker, command: Command, fields: dict[int | str, Any]) -> None:
        """Send what need not arrive (WAKE, PONG); nothing while no route is known."""
        fields[Field.SESSION] = worker.stream.session
        self._send(worker, command, fields, None)

    def push(
        self,
        worker: RemoteWorker,
        command: Command,
        fields: dict[int | str, Any],
        columns: Columns | None,
        now: float,
        size: int = 0,
    ) -> None:
        """Number, keep and send (TAKE, NO, CANCEL)."""
        kept = worker.stream.push(command, fields, columns, now, size)
        self.timers.arm(ResendTimer(worker.identity), now + self.resend)
        if worker.link is not None:
            kept.sends = 1
        self._send(worker, command, kept.fields, columns)

    def replay(self, worker: RemoteWorker, now: float) -> None:
        """Send again all that the worker has not acknowledged (WMP-7.3)."""
        if worker.link is None:
            return
        for kept in worker.stream.replay(now):
            kept.sends = min(kept.sends + 1, 2)
            self._send(worker, kept.command, kept.fields, kept.columns)

    def _send(
        self,
        worker: RemoteWorker,
        command: Command,
        fields: dict[int | str, Any],
        columns: Columns | None,
    ) -> None:
        if worker.link is None:
            return
        worker.unsaid = 0
        stamped = {**fields, Field.ACK: worker.stream.received}
        message = Message(command, worker.path, self.me, stamped, columns)
        self.actions.append(Send(worker.link, message))
