"""What a worker owes after a pause: it asks a manager before it begins a job of the manager.

A worker that sent nothing to a manager for the manager's ``max_silence`` may have been given up,
and its jobs may have ended elsewhere (WMP-9.22). The check reads the messages and the actions of
workers, and never their state.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field

from wmp.actions import Drop, Run, Send
from wmp.checks.job_history import Violation
from wmp.events import Received, Ticked
from wmp.message import Command, Field, Message, Peer


@define(eq=False)
class _Acquaintance:
    """A manager, as the messages of one worker show it."""

    max_silence: float
    sent_at: float
    """When the worker sent its last message to the manager."""
    received_at: float
    """When the last message of the manager came that the worker accepted."""
    owes: bool = False
    """Whether the worker was silent for too long, and has no answer to its question yet."""
    session: int = 0
    """Number of the newest session of the manager with the worker."""
    questions: set[int] = field(factory=set)
    """Numbers of the challenges since the silence; empty while the worker has not asked.

    An answer to a challenge about a claim, too, shows that the manager knew the worker afterwards.
    """


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
        if isinstance(event, Ticked):
            # The worker forgets a silent manager, and all of its jobs (WMP-9.14).
            for peer, manager in tuple(managers.items()):
                if now - manager.received_at >= manager.max_silence:
                    del managers[peer]
        for manager in managers.values():
            if not manager.owes and now - manager.sent_at >= manager.max_silence:
                manager.owes, manager.questions = True, set()
        if isinstance(event, Received):
            self._received(me, managers, event.message, now)
            sender = managers.get(event.message.sender)
            if sender is not None and not any(isinstance(action, Drop) for action in actions):
                sender.received_at = now
                session = event.message.fields.get(Field.SESSION, 0)
                if session > sender.session:
                    # The jobs of the older session are forgotten, and with them the question.
                    sender.session, sender.owes = session, False
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
        asked = bool(acquaintance.questions)
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
        manager = managers.setdefault(message.sender, _Acquaintance(silence, now, now))
        manager.max_silence = silence
        if manager.owes and message.fields.get(Field.ANSWER) in manager.questions:
            manager.owes = False

    @staticmethod
    def _sent(managers: dict[Peer, _Acquaintance], message: Message, now: float) -> None:
        if not message.to:
            # READY and PING without a receiver reach the managers behind the link.
            for manager in managers.values():
                manager.sent_at = now
            return
        peer: Peer = message.to[:-3:-1]  # type: ignore[assignment]
        receiver = managers.get(peer)
        if receiver is None:
            return
        receiver.sent_at = now
        if message.command is not Command.PING:
            return
        if Field.SESSION not in message.fields:
            del managers[peer]  # the worker has forgotten the manager, and all of its jobs
        elif receiver.owes and Field.CHALLENGE in message.fields:
            receiver.questions.add(message.fields[Field.CHALLENGE])
