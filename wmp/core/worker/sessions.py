"""Follows the managers of a worker through epochs and sessions, and gives them up (spec §7, §9)."""

from __future__ import annotations

from collections import OrderedDict
from typing import assert_never

from attrs import define, field

from wmp.actions import Reconnect
from wmp.core.protocol.outbound import Stream
from wmp.core.worker.credit import Credit
from wmp.core.worker.executions import Executions
from wmp.core.worker.locks import Locks
from wmp.core.worker.outbound import Links, LinkState, WorkerOutbound
from wmp.core.worker.remote_manager import RemoteManager, SessionEntry
from wmp.core.worker.timers import LinkTimer, PingTimer
from wmp.message import Command, ErrorCode, Field, Limits, Message

__all__ = ["MOST_MANAGERS", "Sessions"]

MOST_MANAGERS = 1024
"""Limit of the remembered managers, and of the remembered epochs of managers that have gone."""


@define(eq=False)
class Sessions:
    """Epochs, sessions and liveness of all managers of one worker."""

    outbound: WorkerOutbound
    links: Links
    executions: Executions
    locks: Locks
    credit: Credit
    gone: OrderedDict[bytes, tuple[int, int]] = field(factory=OrderedDict)
    """Managers that were forgotten: their epoch (WMP-9.6) and session (WMP-7.8)."""

    # -- from message to message

    def meet(self, link: LinkState, message: Message, now: float) -> RemoteManager | None:
        """Meet the manager that sent a message, for the first time or in another epoch.

        Returns:
            The manager; None when the message is refused.
        """
        outbound, managers = self.outbound, self.links.managers
        identity, epoch = message.sender
        manager = managers.get(identity)
        gone, forgotten = self.gone.get(identity, (-1, 0))
        known = manager.epoch if manager is not None else gone
        if epoch < known:
            text = f"epoch {epoch} was replaced by {known}"
            outbound.refuse(link.index, message, ErrorCode.SUPERSEDED, text, (identity, epoch))
            return None
        again = manager is not None
        if manager is not None:
            self.forget(manager, now)  # WMP-9.7
        if len(managers) >= MOST_MANAGERS:
            text = f"this worker remembers {MOST_MANAGERS} managers, its limit"
            outbound.refuse(link.index, message, ErrorCode.LIMIT, text)
            return None
        manager = RemoteManager(identity, epoch, link.index, message.answer_to, now, now, now)
        for other in managers.values():
            self.locks.withdraw(other, now)  # WMP-5.4
        manager.forgotten = forgotten if epoch == gone else 0
        managers[identity] = manager
        self.gone.pop(identity, None)
        outbound.timers.set(PingTimer(identity), now + self.links.interval(manager))
        self.credit.met(manager, again=again)
        return manager

    def follow(self, link: LinkState, manager: RemoteManager, message: Message, now: float) -> bool:
        """Follow the manager into the session that a message names (WMP-7.6, 7.8).

        Returns:
            Whether to act on the message.
        """
        fields, outbound = message.fields, self.outbound
        session, number = fields.get(Field.SESSION), fields.get(Field.NUMBER)
        begins = number == 1 and not fields.get(Field.ACK, 0)
        answer = message.command is Command.PONG and manager.asked
        entry = manager.enter(session, begins=begins or answer)
        match entry:
            case SessionEntry.CURRENT:
                return True
            case SessionEntry.NEWER:
                self.lose(manager)
                manager.stream = Stream(fields[Field.SESSION])
                return True
            case SessionEntry.UNKNOWN:
                waited = now - manager.pinged_at >= self.links.interval(manager)
                if not manager.asked or (number is not None and waited):
                    outbound.ping(manager, now)
                if number is None:
                    return True
            case SessionEntry.OLD:
                pass
            case _:
                assert_never(entry)
        outbound.drop(entry.value, link.index, message)
        return False

    # -- lost

    def lose(self, manager: RemoteManager) -> None:
        """End the session: its locks, jobs and answers are lost (WMP-7.6)."""
        outbound, stream = self.outbound, manager.stream
        self.locks.forget(manager)
        manager.wake = None
        jobs = self.executions.forget(manager)
        answers = len(stream.kept) if stream is not None else 0
        outbound.end_session(manager)
        manager.stream = None
        if jobs or answers:
            detail = f"{jobs} jobs and {answers} unacknowledged messages"
            outbound.drop("lost session", manager.link, None, detail)

    def forget(self, manager: RemoteManager, now: float) -> None:
        """Remove a manager, or its old epoch (WMP-9.7)."""
        stream = manager.stream
        # If no number was used, both sides still begin at 1, and that session may be entered again.
        used = stream.session if stream is not None and stream.used else manager.forgotten
        self.lose(manager)
        del self.links.managers[manager.identity]
        self.outbound.timers.clear(PingTimer(manager.identity))
        self.gone[manager.identity] = manager.epoch, used
        self.gone.move_to_end(manager.identity)
        if len(self.gone) > MOST_MANAGERS:
            self.gone.popitem(last=False)
        self.check_link(self.links.states[manager.link], now)

    # -- liveness

    def check_manager(self, manager: RemoteManager, now: float) -> bool:
        """Give up a silent manager, or send PING when that is due (WMP-9.1, 9.14).

        Returns:
            Whether the manager is still known.
        """
        gone = manager.received_at + manager.expire
        if gone <= now:
            self.forget(manager, now)
            return False
        if self.links.ping_due(manager) <= now:
            listing = self.executions.listing(manager, Limits.JOBS)
            self.outbound.ping(manager, now, listing=listing)
            # Without a route no PING was sent: wait all the same before the next attempt.
            manager.pinged_at = manager.sent_at = now
        due = min(gone, self.links.ping_due(manager))
        self.outbound.timers.set(PingTimer(manager.identity), due)
        return True

    def check_link(self, link: LinkState, now: float) -> None:
        """Replace a silent link; look for managers behind a link that has none (WMP-9.1, 9.4)."""
        links, outbound = self.links, self.outbound
        discover = links.discovery_due(link) <= now
        if links.silent_at(link) <= now:
            link.connected = False
            link.replaced += 1
            link.received_at = now
            outbound.actions.append(Reconnect(link.index))
        if discover:
            outbound.discover(link, now)
        outbound.timers.set(LinkTimer(link.index), links.due(link))
