"""The worker machine: offers its capacity to managers, runs their jobs, answers each job.

Theory of operation. Only ``handle(event, now)`` changes state; it returns the actions to perform,
in order. ``deadline()`` returns when ``Ticked`` is due. Every event ends in one ``_settle``, which
starts waiting jobs, sends the answers, and distributes the free resources.

This module passes each event and message to the right part. :mod:`wmp.core.worker.sessions` follows
managers, :mod:`wmp.core.worker.executions` holds the jobs, :mod:`wmp.core.worker.locks` the locks,
and :mod:`wmp.core.worker.capacity` distributes free resources.

No message of a peer can raise an error or corrupt the state. A message that cannot be acted on is
dropped with a reason, and answered with ERROR where the specification requires it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, assert_never

from attrs import define, evolve, field

from wmp.actions import Halt, Met, Send, WorkerAction
from wmp.core.protocol import error_replies
from wmp.core.protocol.claims import BELIEVED, Claims, Standing, is_on_route
from wmp.core.protocol.job_story import Stories, StoryEvent
from wmp.core.protocol.outbound import REFUSALS, Arrival, Kept
from wmp.core.protocol.resources import Resources, needs_of
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.protocol.timers import ClaimTimer, ResendTimer
from wmp.core.worker.capacity import Capacity
from wmp.core.worker.credit import Credit
from wmp.core.worker.executions import Executions
from wmp.core.worker.invariants import check_worker
from wmp.core.worker.locks import Locks
from wmp.core.worker.orphans import MAX_SERVED, Orphans
from wmp.core.worker.outbound import Links, LinkState, WorkerOutbound
from wmp.core.worker.remote_manager import RemoteManager
from wmp.core.worker.run_queue import RunningLane
from wmp.core.worker.sessions import Sessions
from wmp.core.worker.statistics import WorkerStatistics, snapshot
from wmp.core.worker.timers import (
    DrainTimer,
    KeepTimer,
    LimitTimer,
    LinkTimer,
    LockTimer,
    PatienceTimer,
    PingTimer,
    ReadyTimer,
)
from wmp.errors import LocalProtocolError, Superseded
from wmp.events import (
    Begun,
    Closed,
    Connected,
    Drained,
    Finished,
    Garbled,
    Recalled,
    Received,
    Reported,
    Resized,
    Ticked,
    Undelivered,
    WorkerEvent,
)
from wmp.message import (
    ERROR_CODES,
    NUMBERED_BY_MANAGERS,
    SENT_BY_MANAGERS,
    Command,
    ErrorCode,
    Field,
    ForwardedKind,
    Kind,
    Message,
    Peer,
    named,
)
from wmp.message import Link as LinkId


@define(eq=False)
class WorkerMachine:
    """Sans-I/O worker.

    Args:
        settings: Identity, roles, resources, timers, limits.
        count: Number of links, which are numbered from 0. Each has one DEALER (WMP-1.3).
    """

    settings: WorkerSettings
    count: int = field(alias="links")
    _links: Links = field(init=False)
    _outbound: WorkerOutbound = field(init=False)
    _executions: Executions = field(init=False)
    _locks: Locks = field(init=False)
    _credit: Credit = field(init=False)
    _capacity: Capacity = field(init=False)
    _claims: Claims[RemoteManager, WorkerAction] = field(init=False)
    _orphans: Orphans = field(init=False)
    _sessions: Sessions = field(init=False)
    _changed: bool = field(default=False, init=False)
    """Whether the current event changed a fact on which ``_settle`` must act."""
    _acks_requested: dict[bytes, int] = field(factory=dict, init=False)
    """While draining: number of the last answer for which the worker has requested an ack, by
    manager.
    """
    _halted: bool = field(default=False, init=False)
    _stories: Stories | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.settings
        if settings.stories:
            self._stories = Stories(settings.stories)
        resources = Resources.of(settings.resources)
        self._links = Links(settings, [LinkState(index) for index in range(self.count)])
        self._outbound = outbound = WorkerOutbound.of(settings, self._links)
        self._executions = executions = Executions(outbound, resources)
        self._locks = locks = Locks(outbound, resources)
        self._credit = credit = Credit(outbound, executions, locks)
        self._capacity = Capacity(outbound, executions, locks, credit)
        self._claims = claims = Claims(outbound, self._patience, self._challenge)
        self._orphans = orphans = Orphans(outbound, executions)
        parts = executions, locks, credit, claims, orphans
        self._sessions = Sessions(outbound, self._links, *parts)

    # -- the two members of every machine

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, in seconds on the clock of ``now``; None for never."""
        return None if self._halted else self._outbound.timers.next()

    def handle(self, event: WorkerEvent, now: float) -> list[WorkerAction]:
        """Take one event; return the actions to perform now, in order.

        Raises:
            LocalProtocolError: The event names a link that this worker does not have.
        """
        if self._halted:
            return []
        outbound = self._outbound
        due = outbound.timers.next()
        # PING was due a third of max_silence after the last message.
        if due is not None and now - due >= self.settings.min_silence / 2:
            self._sessions.look_back(now)
        match event:
            case Received(link, message):
                self._received(self._link(link), message, now)
            case Garbled(link, error):
                self._link(link).receive(now)
                outbound.refuse_garbled(link, error)
            case Undelivered(link, message):
                # Numbered messages are kept and sent again. Other messages are repeated later.
                outbound.drop("undelivered", self._link(link).index, message)
                if Field.CHALLENGE in message.fields:
                    self._unanswered(message.receiver or b"", now)
            case Ticked():
                self._ticked(now)
            case Connected(link):
                self._connected(self._link(link), now)
            case Begun():
                self._executions.begun(event, now)
            case Finished():
                self._executions.finished(event, now)
                self._changed = True
            case Recalled():
                self._executions.recalled(event)
                self._changed = True
            case Reported():
                self._executions.reported(event, now)
            case Resized():
                self._resize(event, now)
            case Drained():
                self._drain(now)
            case Closed():
                self._resign(now)
            case _:
                assert_never(event)
        if self._changed:
            self._changed = False
            self._settle(now)
        actions, outbound.actions = outbound.actions, []
        if self._stories is not None:
            self._stories.record(event, actions, now)
        return actions

    def gather(self, event: Finished, now: float) -> list[WorkerAction]:
        """Take the end of jobs, and leave its actions to the call of ``handle`` that follows.

        Lanes often end jobs at about the same time. Then all results leave in one message.

        Returns:
            An empty list.
        """
        if not self._halted:
            self._executions.finished(event, now)
            self._changed = True
            if self._stories is not None:
                self._stories.record(event, [], now)
        return []

    def story(self, job: int, owner: bytes | None = None) -> list[StoryEvent]:
        """Return the events of a job here, oldest first.

        Empty while ``WorkerSettings.stories`` is 0.

        Args:
            job: The number that the job's manager gave it.
            owner: Identity of that manager; None for the newest job of that number.
        """
        return [] if self._stories is None else self._stories.of(job, owner)

    @property
    def interval(self) -> float:
        """Return the shortest of the intervals of PING to the known managers, in seconds."""
        return self._links.shortest(self._links.managers.values())

    def begins_until(self) -> float:
        """Return the time until which lanes may begin jobs if this worker sends nothing more.

        After this time a manager may have given the worker up, and the jobs may have ended
        elsewhere. So lanes hand back the jobs that they have not begun (WMP-9.22).
        """
        managers = self._links.managers.values()
        silences = (m.sent_at + m.max_silence for m in managers if m.stream is not None)
        return min(silences, default=inf)

    def beats(self) -> list[tuple[int, float, Message]]:
        """Return the beats that another process may send while this worker cannot (WMP-9.17).

        Returns:
            For each manager that counts beats: the number of the link, the seconds for which the
            manager counts them, and the message.
        """
        return self._outbound.beats()

    @property
    def lanes(self) -> Iterable[RunningLane]:
        """Return the bundles that run."""
        return self._executions.lanes

    def statistics(self) -> WorkerStatistics:
        """Return a snapshot for people and programs.

        The cost grows with the number of managers and lanes.
        """
        return snapshot(self._outbound, self._executions, self._locks)

    # -- the end of every step

    def _settle(self, now: float) -> None:
        """Start waiting jobs, answer, distribute resources.

        Actions that run jobs come last (WMP-3.11).
        """
        executions, capacity = self._executions, self._capacity
        runs, spare, delayed = executions.start(now)
        for identity in delayed:
            capacity.stall(self._links.managers[identity], now)
        executions.flush(now)
        if self._outbound.keeps or self._orphans.answering is not None:
            self._orphans.settle(now)
        capacity.settle(spare, now)
        self._outbound.actions += runs
        if executions.draining:
            self._wind_up(now)

    # -- messages

    def _link(self, link: LinkId) -> LinkState:
        if not isinstance(link, int) or not 0 <= link < self.count:
            raise LocalProtocolError(f"there is no link {link!r}; expected 0 to {self.count - 1}")
        return self._links.states[link]

    def _received(self, link: LinkState, message: Message, now: float) -> None:
        link.receive(now)
        outbound, command, fields = self._outbound, message.command, message.fields
        if command not in SENT_BY_MANAGERS:
            text = f"a worker does not accept {command.name}"
            outbound.refuse(link.index, message, ErrorCode.DIRECTION, text)
            return
        if message.to != outbound.me[::-1] and (message.to or command is not Command.ERROR):
            outbound.refuse_misaddressed(link.index, message, "worker")
            return
        if command is Command.ERROR:
            self._error(link, message, now)
            return
        source = message.source
        manager, path = self._links.managers.get(source[0]), source[::-1]  # type: ignore[arg-type]
        moved = manager is not None and (manager.link != link.index or manager.path != path)
        if manager is None:
            manager = self._sessions.meet(link, message, now)
        elif moved:
            match self._claims.judge(manager, link.index, path, message, now):
                case Standing.CLAIMED:
                    self._answer(manager, link, message)
                    return
                case Standing.MOVED:
                    manager.doubted = True
                case Standing.RESTARTED:
                    manager = self._sessions.meet(link, message, now)
        if manager is None:
            return
        manager.received_at = now
        self._changed = True  # a route may be known again, and results may be acknowledged
        if link.doubted and not message.hops:
            self._succeed(link, manager)
        manager.link, manager.path = link.index, path
        wanted, stream = True, manager.stream
        if stream is None or fields.get(Field.SESSION) != stream.session:
            wanted, stream = self._sessions.follow(link, manager, message, now), manager.stream
        outbound.acknowledge(manager, fields)
        if wanted and command in NUMBERED_BY_MANAGERS:
            assert stream is not None
            arrival = stream.arrive(fields[Field.NUMBER])
            if arrival is not Arrival.NEXT:  # WMP-7.1
                wanted = False
                outbound.drop(arrival.value, link.index, message)
            if arrival is Arrival.GAP:
                outbound.ping(manager, now, again=True)
        if moved or (wanted and command is Command.PONG and fields.get(Field.AGAIN, False)):
            outbound.replay(manager, now)
        if not wanted:
            return
        match command:
            case Command.WAKE:
                self._capacity.woken(manager, link.index, message, now)
            case Command.TAKE:
                assert message.columns is not None
                kind = _kind_of(fields, summed=message.columns.checksums is not None)
                places = self._capacity.take(manager, fields, kind.needs, len(message.columns.ids))
                keep = self._orphans.note_keep(fields) if Field.KEEP in fields else 0.0
                self._executions.take(manager, link.index, message, kind, places, now, keep)
            case Command.NO:
                self._locks.no(manager, link.index, message, now)
            case Command.CANCEL:
                self._executions.cancel(manager, message)
            case Command.PONG:
                self._pong(manager, message, now)

    def _pong(self, manager: RemoteManager, message: Message, now: float) -> None:
        """Repair what the manager lacks according to a PONG (WMP-3.13, 5.5)."""
        fields, links = message.fields, self._links
        manager.doubted = False
        if Field.CHALLENGE in fields:
            self._outbound.ping(manager, now, answer=fields[Field.CHALLENGE])
        if Field.ANSWER in fields:
            self._claims.answered(manager, fields[Field.ANSWER], now)
            if fields[Field.ANSWER] == manager.asking:
                manager.asking = 0  # the jobs that are still held may begin (WMP-9.22)
        before = links.interval(manager)
        # WMP-9.15: no manager can make this worker send messages without pause.
        manager.max_silence = max(self.settings.min_silence, fields[Field.MAX_SILENCE] / 1000)
        manager.max_stall = fields.get(Field.MAX_STALL, 0) / 1000
        manager.label = fields.get(Field.LABEL, manager.label)
        manager.serves = fields.get(Field.SERVES, ())[:MAX_SERVED]
        standby = fields.get(Field.STANDBY, False)
        if standby is not manager.standby:
            self._sessions.stand_by(manager, now, standby=standby)
        self._orphans.answering = manager
        if not manager.met:
            manager.met = True
            self._outbound.actions.append(Met(manager.peer, manager.label))
        if links.interval(manager) < before:
            due = manager.received_at + links.interval(manager)
            self._outbound.timers.set(PingTimer(manager.identity), due)
        if self._locks.compare(manager, message):
            # The manager may wait for the lost GIVE, as the answer to a WAKE (WMP-3.5).
            self._credit.greet(manager)
        self._credit.compare(manager, message)

    def _error(self, link: LinkState, message: Message, now: float) -> None:
        """Act on the ERROR of a peer or a device about a message of this worker (spec §10)."""
        outbound, fields = self._outbound, message.fields
        code, peer = fields[Field.CODE], error_replies.about(message)
        reason = f"ERROR {code}" if code in ERROR_CODES else "ERROR"
        outbound.drop(reason, link.index, message, fields.get(Field.TEXT, ""))
        if message.to and code in REFUSALS:
            self._refused_message(link, message, peer or message.sender, now)
            return
        if peer is None or not message.to or code not in BELIEVED:
            return
        if peer == outbound.me:
            if code == ErrorCode.SUPERSEDED:
                self._refused(link, message, now)
            return
        manager = self._links.managers.get(peer[0])
        if manager is None or manager.epoch != peer[1]:
            return
        if not is_on_route(message, link.index, manager):
            return
        self._changed = True
        if code == ErrorCode.SUPERSEDED:
            claim = self._claims.end(manager)
            if claim is None:
                self._sessions.forget(manager, now)
            else:
                self._sessions.admit(manager, claim, now)
        elif code == ErrorCode.MISROUTED:
            self._replaced(manager)
            self._unanswered(manager.identity, now)
        else:
            self._unreachable(manager)
            if fields.get(Field.ABOUT) == Command.GIVE:
                self._locks.undelivered(manager, fields.get(Field.ABOUT_NUMBER, 0))
            self._sessions.check_link(link, now)
            self._unanswered(manager.identity, now)

    def _refused_message(self, link: LinkState, message: Message, peer: Peer, now: float) -> None:
        """Replace a message for a manager that a node on the route refuses (WMP-7.11)."""
        manager = self._links.managers.get(peer[0])
        if manager is None or manager.epoch != peer[1]:
            return
        if is_on_route(message, link.index, manager):
            kept = self._outbound.refused(manager, message)
            if kept is not None:
                self._replace(manager, kept, message.fields.get(Field.TEXT, ""), now)

    def _replace(self, manager: RemoteManager, kept: Kept, text: str, now: float) -> None:
        """Send another message in place of a message that its manager never accepts."""
        if kept.replaced or not self._executions.replace(manager, kept, text, now):
            self._sessions.leave(manager, now)
        self._changed = True

    def _refused(self, link: LinkState, message: Message, now: float) -> None:
        """Record the report of a manager that it serves another process of this worker's identity
        (WMP-15.9).

        The report is about that manager only: other managers may serve this worker.
        """
        manager = self._links.managers.get(message.sender[0])
        if manager is not None:
            if manager.link != link.index or manager.path != message.answer_to:
                return
            self._changed = True
        identity = named(self._outbound.me[0])
        advice = "give each worker an identity of its own"
        if self._sessions.refuse(link, manager, now):
            text = f"no manager serves worker {identity}: another process has this identity"
            self._halt(Superseded(f"{text}; {advice}"))
        elif not self._links.managers:
            text = f"the manager {named(message.sender[0])} serves another process with the "
            self._outbound.drop("rival", detail=f"{text}identity {identity}; {advice}")

    # -- claims to the identity of a manager (spec §15)

    def _patience(self, manager: RemoteManager) -> float:
        return min(self.settings.challenge, manager.max_silence / 2)

    def _challenge(self, manager: RemoteManager, number: int, now: float) -> None:
        self._outbound.ping(manager, now, challenge=number)

    def _answer(self, manager: RemoteManager, link: LinkState, message: Message) -> None:
        """Answer a challenge that came over another route than the manager's (WMP-15.4)."""
        number = message.fields.get(Field.CHALLENGE)
        if number is None:
            return
        fields: dict[int | str, Any] = {}
        if manager.stream is not None and manager.epoch == message.sender[1]:
            fields[Field.SESSION] = manager.stream.session
        fields[Field.ANSWER] = number
        answer = Message(Command.PING, message.answer_to, self._outbound.me, fields)
        self._outbound.actions.append(Send(link.index, answer))

    def _unanswered(self, identity: bytes, now: float) -> None:
        """Act on the end of a challenge: the holder has gone, or did not answer."""
        manager = self._links.managers.get(identity)
        claim = None if manager is None else self._claims.end(manager)
        if manager is not None and claim is not None:
            self._sessions.admit(manager, claim, now)
            self._changed = True

    # -- links, sessions, time

    def _connected(self, link: LinkState, now: float) -> None:
        link.connected = True
        link.received_at = now
        self._credit.connected(link)
        behind = self._links.behind(link)
        link.doubted = tuple([manager.identity for manager in behind if manager.direct])
        for manager in behind:
            self._outbound.replay(manager, now)
        link.pinged_at = now
        self._outbound.timers.set(LinkTimer(link.index), self._links.due(link))
        self._changed = True

    def _succeed(self, link: LinkState, manager: RemoteManager) -> None:
        """Record that the manager answers on a link that was connected again (WMP-9.12)."""
        for identity in link.doubted:
            other = self._links.managers.get(identity)
            if other is None or other is manager:
                continue
            if other.link == link.index and other.direct:
                self._replaced(other)
        link.doubted = ()

    def _replaced(self, manager: RemoteManager) -> None:
        """Another manager answers on the route of this manager: mark this one unreachable
        (WMP-9.12).

        The resources that its GIVEs lock become free for the other manager.
        """
        self._unreachable(manager)
        self._locks.forget(manager)
        self._executions.jobs.orphan(manager)

    @staticmethod
    def _unreachable(manager: RemoteManager) -> None:
        """Forget the route to a manager until its next message.

        The session stays open (WMP-9.12).
        """
        manager.path = None
        manager.announced = 0

    def _ticked(self, now: float) -> None:
        """Act on the timers that rang.

        An earlier timer may have removed the object of a later one.
        """
        outbound, managers = self._outbound, self._links.managers
        for timer in outbound.timers.due(now):
            match timer:
                case LinkTimer(link):
                    self._sessions.check_link(self._links.states[link], now)
                case ReadyTimer():
                    self._credit.repeat_due()
                    self._changed = True
                case DrainTimer():
                    self._changed = True
                case KeepTimer(owner):
                    self._orphans.expire(owner)
                    self._changed = True
                case PatienceTimer():
                    self._executions.overdue()
                    self._changed = True
                case LimitTimer(lane, job):
                    self._executions.limit_passed(lane, job)
                    self._changed = True
                case LockTimer(identity, lock):
                    if (manager := managers.get(identity)) is not None:
                        self._check_lock(manager, lock)
                case PingTimer(identity):
                    if (manager := managers.get(identity)) is not None:
                        known = self._sessions.check_manager(manager, now)
                        self._changed = self._changed or not known
                case ClaimTimer(identity):
                    self._unanswered(identity, now)
                case ResendTimer(identity):
                    manager = managers.get(identity)
                    if manager is not None and (stuck := outbound.check_resend(manager, now)):
                        self._replace(manager, stuck, "no acknowledgement came", now)
                case _:
                    assert_never(timer)

    def _check_lock(self, manager: RemoteManager, lock: int) -> None:
        """Release a lock whose GIVE was not answered (WMP-4.11)."""
        if self._locks.time_out(manager, lock):
            # The manager may wait for this GIVE, as the answer to a WAKE (WMP-3.5).
            self._credit.greet(manager)
            self._changed = True

    def _resize(self, event: Resized, now: float) -> None:
        """Change the resources (WMP-3.15), and the roles. Held GIVEs above the rest come back."""
        if event.roles is not None:
            self._outbound.settings = evolve(self._outbound.settings, roles=event.roles)
        self._credit.forwards = event.forwards
        self._executions.resize(event.resources)
        if self._executions.resources.overdrawn:
            for manager in self._links.managers.values():
                self._locks.withdraw(manager, now)
        self._credit.resized()
        self._changed = True

    # -- the end

    def _drain(self, now: float) -> None:
        """Accept no new jobs, and hand back the jobs that have not begun (WMP-9.10)."""
        self._changed = True
        if self._executions.draining:
            return
        for manager in self._links.managers.values():
            self._locks.withdraw(manager, now)
            manager.wake = None
        self._executions.drain()
        self._credit.report(0, now, links=self._links.states)

    def _wind_up(self, now: float) -> None:
        """Send BYE once all running jobs have ended and are acknowledged."""
        if self._executions.running:
            return
        outbound = self._outbound
        patience = 2 * outbound.resend
        waiting = [
            manager
            for manager in self._links.managers.values()
            if manager.stream is not None
            and manager.stream.kept
            and manager.received_at + patience > now
        ]
        for manager in waiting:
            # Ask for an ack once for each result, because further results may follow.
            sent = manager.stream.sent if manager.stream is not None else 0
            if self._acks_requested.get(manager.identity) != sent:
                self._acks_requested[manager.identity] = sent
                outbound.ping(manager, now)
        if waiting:
            due = min(manager.received_at + patience for manager in waiting)
            outbound.timers.set(DrainTimer(), due)
        else:
            self._resign(now)

    def _resign(self, now: float) -> None:
        """Send BYE to every manager: jobs that are still held go back at once (WMP-9.10, 9.11)."""
        for manager in self._links.managers.values():
            self._outbound.send(manager, Command.BYE, {}, None, now)
        self._halt(None)

    def _halt(self, error: Exception | None) -> None:
        self._halted = True
        self._outbound.actions.append(Halt(error))

    # -- for tests

    def check_invariants(self) -> None:
        """Raise AssertionError when an invariant does not hold.

        The cost grows with the whole state.
        """
        check_worker(self._outbound, self._executions, self._locks, self._orphans)


def _kind_of(fields: Mapping[int | str, Any], *, summed: bool) -> Kind:
    """Return the kind of the jobs of a TAKE."""
    parts = fields[Field.ROLE], needs_of(fields[Field.NEEDS]), fields.get(Field.CODEC, ""), summed
    if Field.PASSED in fields:
        return ForwardedKind(*parts, tuple(fields[Field.MANAGER]), fields[Field.PASSED])
    return Kind(*parts)
