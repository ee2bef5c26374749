"""The inbox of a peer that the kit plays, and the waits of scripts for its messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, field

from wmp.conformance.peers.conversation import Conversation, ReceivedMessage
from wmp.conformance.script.case import Broken
from wmp.conformance.wire.bad_messages import BadMessage
from wmp.message import Command, Frame


@define(eq=False, slots=False)
class Mailbox:
    """Messages received at one peer of a conversation."""

    talk: Conversation
    name: str
    inbox: list[ReceivedMessage] = field(factory=list, init=False)
    """Received messages that the script has not expected yet."""

    def raw(self, *frames: Frame) -> None:
        """Send frames unchanged."""
        raise NotImplementedError

    def expect(
        self,
        *commands: Command,
        within: float | None = None,
        where: Callable[[ReceivedMessage], bool] | None = None,
        again: bool = False,
        handed_back: bool = False,
        rule: str = "",
        what: str = "",
        **fields: Any,
    ) -> ReceivedMessage:
        """Wait for a message and take it out of the inbox.

        Args:
            commands: The message has one of these commands.
            within: Units to wait; None for "at once".
            where: A further condition on the message.
            again: Whether a numbered message that was received before counts.
            handed_back: Whether the caller can go on after a DONE that hands jobs back.
            rule: The rule that a missing message breaks; by default the first rule of the case.
            what: The reason why the message must come, for the report.
            fields: Fields of the message, by their names.

        Raises:
            Broken: No such message came.
            Unimplemented: The DONE hands jobs back (WMP-6.18), so it does not show their outcome.
        """
        received = self.wait_for(*commands, within=within, where=where, again=again, **fields)
        if received is None:
            names = " or ".join(command.name for command in commands)
            shown = "".join(f" {name}={value!r}" for name, value in fields.items())
            others = ", ".join(received.command.name for received in self.inbox[-6:]) or "nothing"
            when = self.talk.wire.grace if within is None else within
            text = f"{self.name} received no {names}{shown} within {when:g} units"
            text += f"; received: {others}"
            if what:
                text += f"; expected {names}, because {what}"
            raise Broken(rule or self.rule_of_missing(commands), text)
        if received.hands_back and not handed_back:
            ids = ", ".join(str(id) for id, _ in received.jobs)
            self.talk.unimplemented(f"the worker handed job {ids} back, before the job had begun")
        return received

    def rule_of_missing(self, commands: Sequence[Command]) -> str:
        """Return the rule that a missing message breaks if the script names no rule."""
        return self.talk.first_rule

    def wait_for(
        self,
        *commands: Command,
        within: float | None = None,
        where: Callable[[ReceivedMessage], bool] | None = None,
        again: bool = False,
        **fields: Any,
    ) -> ReceivedMessage | None:
        """Wait for a message and take it out of the inbox; None when none arrives in time."""
        talk = self.talk
        talk.subject = None
        until = talk.now + (talk.wire.grace if within is None else within)
        start = 0
        while True:
            for received in self.inbox[start:]:
                if (
                    received.command in commands
                    and received.again <= again
                    and all(received[name] == value for name, value in fields.items())
                    and (where is None or where(received))
                ):
                    self.inbox.remove(received)
                    talk.subject = received.line
                    return received
            start = len(self.inbox)
            if not talk.pump(until):
                return None

    def never(
        self,
        *commands: Command,
        during: float | None = None,
        where: Callable[[ReceivedMessage], bool] | None = None,
        again: bool = True,
        rule: str = "",
        what: str = "",
        **fields: Any,
    ) -> None:
        """Check that no such message arrives or waits in the inbox.

        A DONE that hands jobs back does not count: the worker may send it at any time (WMP-6.18).

        Raises:
            Broken: Such a message arrived.
        """

        def counts(received: ReceivedMessage) -> bool:
            return not received.hands_back and (where is None or where(received))

        if received := self.wait_for(*commands, within=during, where=counts, again=again, **fields):
            text = f"{self.name} received {received.command.name}; expected none"
            text = f"{text}, because {what}" if what else text
            raise Broken(rule or self.talk.first_rule, text, accused=received.line)

    def clear(self) -> None:
        """Forget the messages received so far."""
        self.talk.settle()
        self.inbox.clear()

    def refusal(self, bad: BadMessage, rule: str) -> None:
        """Send bad frames; check that the answer is the right ERROR.

        Raises:
            Broken: No ERROR arrived, or an ERROR with another code.
        """
        self.talk.remark(f"{bad.what}:")
        self.raw(*bad.frames)
        error = self.expect(
            Command.ERROR, rule=rule, what=f"{bad.what} must be answered by ERROR (WMP-10.2)"
        )
        self.talk.check(
            error["code"] in bad.codes,
            f"the answer to {bad.what} is ERROR {error['code']!r}; expected {bad.codes[0]!r}",
            rule,
        )
