"""Follows the managers of a worker through epochs and sessions, and gives them up (spec §7, §9)."""

from __future__ import annotations

from collections import OrderedDict
from typing import assert_never

from attrs import define, field

from wmp.actions import Reconnect, WorkerAction
from wmp.core.protocol.claims import Claim, Claims
from wmp.core.protocol.outbound import Stream
from wmp.core.worker.credit import Credit
from wmp.core.worker.executions import Executions
from wmp.core.worker.locks import Locks
from wmp.core.worker.orphans import Orphans
from wmp.core.worker.outbound import Links, LinkState, WorkerOutbound
from wmp.core.worker.remote_manager import RemoteManager, SessionEntry
from wmp.core.worker.timers import LinkTimer, PingTimer
from wmp.message import Command, ErrorCode, Field, Limits, Message, Path, Peer, counted

MAX_MANAGERS = 1024
"""Limit of the remembered managers, and of the remembered epochs of managers that have gone."""


_SILENT = 1.5
"""Intervals without a message of a manager after which another one may have taken over."""

_FIRST_QUESTION = 1 << 40
"""A number above those of all challenges to the holders of identities."""


@define(eq=False)
class Sessions:
    """Epochs, sessions and liveness of all managers of one worker."""

    outbound: WorkerOutbound
    links: Links
    executions: Executions
    locks: Locks
    credit: Credit
    claims: Claims[RemoteManager, WorkerAction]
    orphans: Orphans
    last_question: int = _FIRST_QUESTION
    """The last number under which a manager was asked (WMP-9.22)."""
    gone: OrderedDict[Peer, int] = field(factory=OrderedDict)
    """Sessions with managers that were forgotten, by manager (WMP-7.8)."""

    # -- from message to message

    def meet(self, link: LinkState, message: Message, now: float) -> RemoteManager | None:
        """Meet the manager that sent a message, for the first time or in another epoch.

        Returns:
            The manager; None when the message is refused.
        """
        managers = self.links.managers
        if len(managers) >= MAX_MANAGERS and message.sender[0] not in managers:
            text = f"this worker remembers {MAX_MANAGERS} managers, its limit"
            self.outbound.refuse(link.index, message, ErrorCode.LIMIT, text)
            return None
        standby = message.command is Command.PONG and message.fields.get(Field.STANDBY, False)
        return self.enter(link, message.sender, message.answer_to, now, standby=standby)

    def enter(
        self, link: LinkState, peer: Peer, path: Path, now: float, *, standby: bool = False
    ) -> RemoteManager:
        """Remember a manager from now on, in place of another epoch of it (WMP-9.7)."""
        managers, (identity, epoch) = self.links.managers, peer
        older = managers.get(identity)
        if older is not None:
            self.forget(older, now)
        manager = RemoteManager(identity, epoch, link.index, path, now, now, now, standby=standby)
        if not standby:  # WMP-17.3
            for other in managers.values():
                self.locks.withdraw(other, now)  # WMP-5.4: a second manager ends held GIVEs
        manager.forgotten = self.gone.pop(peer, 0)
        managers[identity] = manager
        link.refused_since = None
        self.outbound.timers.set(PingTimer(identity), now + self.links.interval(manager))
        self.credit.met(manager, again=older is not None)
        return manager

    def stand_by(self, manager: RemoteManager, now: float, *, standby: bool) -> None:
        """Record that the standby of a manager begins or ends, as its PONG reports (WMP-17.4)."""
        manager.standby = standby
        if standby:
            self.locks.withdraw(manager, now)
            return
        for other in self.links.managers.values():
            if other is not manager:
                # That manager may have ended: to wait for its answer would keep the resources from
                # this one. A TAKE that crosses this finds no lock, and does no harm (WMP-4.12).
                self.locks.take_back(other, now)
                self._follow(other, manager, now)

    def _follow(self, ended: RemoteManager, heir: RemoteManager, now: float) -> None:
        """Orphan the stored jobs of a silent manager when another one took over (WMP-14.5).

        The store decides whether the other manager gets them. To wait for the whole silence would
        only make the jobs late.
        """
        silent = now - ended.received_at >= _SILENT * self.links.interval(ended)
        if silent and self.outbound.keeps and not set(heir.serves).isdisjoint(ended.serves):
            self.executions.jobs.orphan(ended)
            self.orphans.gather(ended)

    def follow(self, link: LinkState, manager: RemoteManager, message: Message, now: float) -> bool:
        """Follow the manager into the session that a message names (WMP-7.6, 7.8).

        Returns:
            Whether to act on the message.
        """
        fields, outbound = message.fields, self.outbound
        session, number = fields.get(Field.SESSION), fields.get(Field.NUMBER)
        begins = number == 1 and not fields.get(Field.ACK, 0)
        answer = message.command is Command.PONG and manager.session_requested
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
                if not manager.session_requested or (number is not None and waited):
                    outbound.ping(manager, now)
                if number is None:
                    return True
            case SessionEntry.OLD:
                if manager.doubted and message.command is Command.PONG:
                    self.disown(manager, now)
            case _:
                assert_never(entry)
        outbound.drop(entry.value, link.index, message)
        return False

    # -- lost

    def lose(self, manager: RemoteManager) -> None:
        """End the session: its locks, jobs and answers are lost (WMP-7.6), or orphaned (14.5)."""
        outbound, stream = self.outbound, manager.stream
        manager.asking = 0
        self.locks.forget(manager)
        manager.wake = None
        jobs = self.executions.jobs.forget(manager)
        answers = len(stream.kept) if stream is not None else 0
        if outbound.keeps:
            self.orphans.gather(manager)
        outbound.end_session(manager)
        manager.stream = None
        if jobs or answers:
            lost = f"{counted(jobs, 'job')} and {counted(answers, 'unacknowledged message')}"
            detail = f"lost with the session: {lost}"
            outbound.drop("lost session", manager.link, None, detail)

    def leave(self, manager: RemoteManager, now: float) -> None:
        """End the session because its stream is blocked, and request another (WMP-7.11)."""
        stream = manager.stream
        if stream is not None:
            manager.forgotten = stream.session
            self.lose(manager)
            manager.session_requested = False
            self.outbound.ping(manager, now)

    def disown(self, manager: RemoteManager, now: float) -> None:
        """End a session that the manager does not know, and request another (WMP-15.11).

        A stranger began the session while it held the identity. The number of the session is not
        remembered, because no session of the manager may reach it.
        """
        self.lose(manager)
        manager.doubted, manager.forgotten, manager.session_requested = False, 0, False
        self.outbound.ping(manager, now)

    def forget(self, manager: RemoteManager, now: float) -> None:
        """Remove a manager, or an old epoch of a manager (WMP-9.7)."""
        stream = manager.stream
        # If no number was used, both sides still begin at 1, and the session may be entered again.
        used = stream.session if stream is not None and stream.used else manager.forgotten
        self.claims.end(manager)
        self.lose(manager)
        del self.links.managers[manager.identity]
        self.outbound.timers.clear(PingTimer(manager.identity))
        self.gone[manager.peer] = used
        self.gone.move_to_end(manager.peer)
        if len(self.gone) > MAX_MANAGERS:
            self.gone.popitem(last=False)
        self.check_link(self.links.states[manager.link], now)

    # -- claims to an identity (spec §15)

    def admit(self, manager: RemoteManager, claim: Claim, now: float) -> None:
        """Give an identity to the peer that claims it: the manager did not answer (WMP-15.6).

        The messages of that peer were dropped. PING makes it send the numbered ones again.
        """
        assert isinstance(claim.link, int)
        links = self.links
        link = links.states[claim.link]
        if claim.epoch == manager.epoch:
            manager.link, manager.path = link.index, claim.path
            manager.doubted = True
            manager.received_at = now
            self.outbound.timers.set(PingTimer(manager.identity), now + links.interval(manager))
            self.outbound.replay(manager, now)
        else:
            manager = self.enter(link, (manager.identity, claim.epoch), claim.path, now)
        self.outbound.ping(manager, now, again=True)

    def refuse(self, link: LinkState, manager: RemoteManager | None, now: float) -> bool:
        """Record the report of a manager that another process holds this worker's identity
        (WMP-15.9).

        Args:
            link: Link over which the report came.
            manager: The manager that serves this worker over this route; None if no manager does.
            now: Seconds.

        Returns:
            Whether no manager behind any link serves this worker any more.
        """
        links = self.links
        if manager is not None:
            claim = self.claims.end(manager)
            if claim is not None and claim.epoch == manager.epoch:
                # The claiming manager is there and serves this worker.
                self.admit(manager, claim, now)
                return False
            self.forget(manager, now)
        if links.managers:
            return False
        if link.refused_since is None:
            link.refused_since = now
        link.refused_at = now
        patience = max(1, links.settings.silence) * max(0.01, links.settings.ping)
        return all(
            state.refused_since is not None
            and state.refused_since + patience <= now < state.refused_at + patience
            for state in links.states
        )

    # -- liveness

    def check_manager(self, manager: RemoteManager, now: float) -> bool:
        """Give up a silent manager, or send PING when that is due (WMP-9.1, 9.14).

        Returns:
            Whether the manager is still known.
        """
        gone = manager.received_at + manager.max_silence
        if gone <= now and (claim := self.claims.end(manager)) is not None:
            self.admit(manager, claim, now)
            return False
        if gone <= now:
            self.forget(manager, now)
            return False
        if self.links.ping_due(manager) <= now:
            self._list_jobs(manager, now)
            # Without a route no PING was sent. Wait as if it had been sent.
            manager.pinged_at = manager.sent_at = now
        due = min(gone, self.links.ping_due(manager))
        self.outbound.timers.set(PingTimer(manager.identity), due)
        return True

    def _list_jobs(self, manager: RemoteManager, now: float) -> None:
        """Send PING with the list of the held jobs (WMP-9.9), and the open question (WMP-9.22)."""
        if manager.serves and manager.stream is not None:
            for owner in (manager.peer, *manager.serves):
                self.orphans.list_jobs(manager, owner, now)
            if manager.asking:
                self.outbound.ping(manager, now, challenge=manager.asking)
        else:
            listing = self.executions.jobs.listing(manager, Limits.JOBS)
            self.outbound.ping(manager, now, challenge=manager.asking, listing=listing)

    def look_back(self, now: float) -> None:
        """Ask the managers to which this worker sent nothing for their ``max_silence``: the worker
        was stopped, and they may have given it up (WMP-9.22).

        Jobs that wait on lanes come back, and their managers give them again.
        """
        for manager in self.links.managers.values():
            paused = now - manager.sent_at >= manager.max_silence
            if paused and not manager.asking and manager.stream is not None:
                self.last_question += 1
                manager.asking = self.last_question
                self._list_jobs(manager, now)
                self.executions.recall(manager.identity)

    def check_link(self, link: LinkState, now: float) -> None:
        """Replace a silent link.

        Search for managers behind a link without managers (WMP-9.1, 9.4).
        """
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
