"""What a worker owes after a pause: it asks a manager before it begins a job of the manager.

A worker that sent nothing to a manager for the manager's ``max_silence`` may have been given up,
and its jobs may have ended elsewhere (WMP-9.22). The check reads the messages and the actions of
workers, and never their state.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field

from wmp.actions import Run, Send
from wmp.checks.job_history import Violation
from wmp.events import Received
from wmp.message import Command, Field, Message, Peer


@define(eq=False)
class _Acquaintance:
    """A manager, as the messages of one worker show it."""

    max_silence: float
    sent_at: float
    """When the worker sent its last message to the manager."""
    owes: bool = False
    """Whether the worker was silent for too long, and has no answer to its question yet."""
    question: int | None = None
    """The number in the question; None while the worker has not asked."""


@define(eq=False)
class Pauses:
    """Checks what workers do after they were silent for too long."""

    _managers: dict[Peer, dict[Peer, _Acquaintance]] = field(factory=dict)

    def worker_did(self, me: Peer, event: object, actions: Sequence[object], now: float) -> None:
        """Check an event of a worker and its actions; ``now`` is on the worker's own clock.

        Raises:
            Violation: "a pause ends with a question".
        """
        managers = self._managers.setdefault(me, {})
        for manager in managers.values():
            if not manager.owes and now - manager.sent_at >= manager.max_silence:
                manager.owes, manager.question = True, None
        if isinstance(event, Received):
            self._received(me, managers, event.message, now)
        for action in actions:
            if isinstance(action, Send):
                self._sent(managers, action.message, now)
            elif isinstance(action, Run):
                self.began(me, action.manager, *action.ids)

    def began(self, me: Peer, manager: Peer, *ids: int) -> None:
        """Check jobs that a worker begins, or that begin behind others on their lane.

        Raises:
            Violation: "a pause ends with a question".
        """
        acquaintance = self._managers.get(me, {}).get(manager)
        if acquaintance is None or not acquaintance.owes:
            return
        asked = acquaintance.question is not None
        text = "has no answer to its question" if asked else "has not asked"
        name = f"{me[0].decode(errors='replace')}:{me[1]}"
        raise Violation(
            "a pause ends with a question",
            f"{name} begins the jobs {list(ids)} after {acquaintance.max_silence:g} s of silence "
            f"to their manager, and {text}",
        )

    @staticmethod
    def _received(
        me: Peer, managers: dict[Peer, _Acquaintance], message: Message, now: float
    ) -> None:
        if message.command is not Command.PONG or message.to != me[::-1]:
            return
        silence = message.fields[Field.MAX_SILENCE] / 1000
        manager = managers.setdefault(message.sender, _Acquaintance(silence, now))
        manager.max_silence = silence
        if manager.owes and message.fields.get(Field.ANSWER) == manager.question is not None:
            manager.owes = False

    @staticmethod
    def _sent(managers: dict[Peer, _Acquaintance], message: Message, now: float) -> None:
        if not message.to:
            return
        peer: Peer = message.to[:-3:-1]  # type: ignore[assignment]
        manager = managers.get(peer)
        if manager is None:
            return
        manager.sent_at = now
        if message.command is not Command.PING:
            return
        if Field.SESSION not in message.fields:
            del managers[peer]  # the worker has forgotten the manager, and all of its jobs
        elif manager.owes and Field.CHALLENGE in message.fields:
            manager.question = message.fields[Field.CHALLENGE]
