"""The manager machine: holds jobs, grants them to workers that ask, accepts their results.

Theory of operation. Only ``handle(event, now)`` changes state; it returns the actions to perform,
in order. ``deadline()`` returns when ``Ticked`` is due. This module follows peers: their epochs,
routes, sessions, and when they have expired. It owns the :mod:`wmp.core.manager.scheduler`, which
grants jobs.

No message of a peer can raise an error or corrupt the state. A message that cannot be acted on is
dropped with a reason, and answered with ERROR where the specification requires it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Any, assert_never

from attrs import define, field

from wmp.actions import Halt, ManagerAction
from wmp.core.manager.announcements import Announcements
from wmp.core.manager.invariants import check_manager
from wmp.core.manager.job_lifecycle import JobState
from wmp.core.manager.ownership import Ownership
from wmp.core.manager.policy import Policy
from wmp.core.manager.remote_worker import ManagerOutbound, RemoteWorker, all_answered, is_late
from wmp.core.manager.requeue import CONNECTION_ENDED, REFUSED, SILENCE
from wmp.core.manager.scheduler import Scheduler
from wmp.core.manager.silence import count_beat, is_gone, silent_at
from wmp.core.manager.statistics import ManagerStatistics, snapshot
from wmp.core.manager.timers import (
    AnnounceTimer,
    DueTimer,
    HoldTimer,
    ManagerTimer,
    ManagerTimers,
    ReconnectTimer,
    StoreDueTimer,
    SweepTimer,
    WakeTimer,
    WorkerSilenceTimer,
)
from wmp.core.manager.unserved import WaitingRow, waiting_rows
from wmp.core.manager.worker_selection import WorkerSelection
from wmp.core.protocol import error_replies
from wmp.core.protocol.claims import BELIEVED, Claim, Claims, Standing, ends_session, is_on_route
from wmp.core.protocol.job_story import Stories, StoryEvent
from wmp.core.protocol.outbound import REFUSALS, Arrival, Kept, Outbound, Stream
from wmp.core.protocol.resources import Offered
from wmp.core.protocol.settings import ManagerSettings
from wmp.core.protocol.timers import ClaimTimer, ResendTimer, Timers
from wmp.errors import LocalProtocolError
from wmp.events import (
    Cancelled,
    Closed,
    Connected,
    Disconnected,
    Drained,
    Forwarded,
    Garbled,
    InstanceBegun,
    ManagerEvent,
    Received,
    Relieved,
    Retracted,
    StoreFilled,
    Submitted,
    Ticked,
    Undelivered,
    Woken,
    Written,
)
from wmp.message import (
    ERROR_CODES,
    SENT_BY_WORKERS,
    Command,
    ErrorCode,
    Field,
    Link,
    Message,
    Path,
    Peer,
    counted,
    named,
    printable,
)

_ACK_EVERY = 4 << 20
"""Bytes of received payloads after which the manager sends an ack, although it has no other message
to send.

Until the ack the worker keeps these results within its own byte limit (WMP-7.9).
"""
_REMEMBERED_EPOCHS = 10_000


@define(eq=False)
class ManagerMachine:
    """Sans-I/O manager.

    Args:
        settings: Identity, timers, limits.
        policy: Which workers to ask; see :mod:`wmp.balance`.
        stored: Whether the manager has a store (``Write``).
        standby: Whether the manager starts on standby, until ``Relieved`` (§17).
    """

    settings: ManagerSettings
    policy: Policy
    stored: bool = False
    standby: bool = False
    _me: Peer = field(init=False)
    _timers: ManagerTimers = field(factory=Timers, init=False)
    _outbound: ManagerOutbound = field(init=False)
    _scheduler: Scheduler = field(init=False)
    _claims: Claims[RemoteWorker, ManagerAction] = field(init=False)
    _gone: OrderedDict[bytes, int] = field(factory=OrderedDict, init=False)
    """Epochs of workers that have left, so that late messages do not bring these workers back."""
    _identities: Counter[Link] = field(factory=Counter, init=False)
    """Number of known workers whose first message came over each connection."""
    _announcements: Announcements = field(init=False)
    _sessions: int = field(default=0, init=False)
    _draining: bool = field(default=False, init=False)
    _halted: bool = field(default=False, init=False)
    _stories: Stories | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.settings
        self._me = (settings.identity, settings.epoch)
        if settings.stories:
            self._stories = Stories(settings.stories, self._me)
        self._outbound = Outbound(self._me, self._timers, settings.resend)
        self._announcements = Announcements(self._outbound, settings)
        patience = min(settings.challenge, settings.max_silence / 2)
        self._claims = Claims(self._outbound, lambda _: patience, self._challenge)
        selection = WorkerSelection(
            self.policy, settings.wake_scan, settings.max_leases, self._policy_failed
        )
        ownership = Ownership(self._me, int(settings.orphan_ttl * 1000), standby=self.standby)
        self._scheduler = Scheduler(
            settings, self._outbound, self._timers, selection, ownership, stored=self.stored
        )

    @property
    def _workers(self) -> dict[bytes, RemoteWorker]:
        return self._scheduler.leases.workers

    # -- the two members of every machine

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, in seconds on the clock of ``now``; None for never."""
        return None if self._halted else self._timers.next()

    def handle(self, event: ManagerEvent, now: float) -> list[ManagerAction]:
        """Take one event; return the actions to perform now, in order.

        Raises:
            LocalProtocolError: The caller broke the contract (submitting while draining).
        """
        if self._halted:
            return []
        store = self._scheduler.store
        if store is not None:
            store.check(now)
        match event:
            case Received(link, message):
                self._received(link, message, now)
            case Garbled(link, error):
                self._outbound.refuse_garbled(link, error)
            case Undelivered(link, message):
                self._undelivered(link, message, now)
            case Ticked():
                self._ticked(now)
            case Connected(link):
                self._announcements.connected(link, now)
            case Disconnected(link):
                self._announcements.disconnected(link)
                self._disconnected(link, now)
            case Submitted():
                if self._draining or self._scheduler.ownership.standby:
                    state = "draining manager" if self._draining else "manager on standby"
                    raise LocalProtocolError(f"a {state} takes no jobs; submit elsewhere")
                self._scheduler.submit(event, now)
            case Relieved():
                self._relieve(now)
            case Forwarded() | Retracted():
                self._scheduler.from_relay(event, now, draining=self._draining)
            case Cancelled(ids, unstarted):
                self._scheduler.ends.cancel(ids, now, unstarted=unstarted)
            case Drained():
                self._draining = True
                if store is not None:
                    store.drain()
            case Closed():
                self._end_in_order(now)
            case InstanceBegun() | Written() | StoreFilled() | Woken():
                self._scheduler.from_store(event, now)
            case _:
                assert_never(event)
        if store is not None and not self._halted:
            store.take_ends()
            store.flush(now)
        self._scheduler.leases.report()
        ended = self._draining and self._scheduler.empty and not self._halted
        if ended and all_answered(self._workers):
            self._end_in_order(now)
        outbound = self._outbound
        actions, outbound.actions = outbound.actions, []
        if self._stories is not None:
            self._stories.record(event, actions, now)
        return actions

    def story(self, job: int) -> list[StoryEvent]:
        """Return the events of a job here, oldest first.

        Empty while ``ManagerSettings.stories`` is 0.
        """
        return [] if self._stories is None else self._stories.of(job)

    def statistics(self) -> ManagerStatistics:
        """Return a snapshot for people and programs. The cost grows with the number of workers."""
        return snapshot(self._scheduler)

    def offer(self) -> Offered:
        """Return what the workers offer together, for managers above (section 19).

        The cost grows with the number of workers.
        """
        return self._scheduler.forwarded.offer(draining=self._draining)

    def offers(self, role: str) -> bool:
        """Return whether a worker offers a role, and any amount of any resource."""
        return self._scheduler.selection.profiles.offers(role)

    def waiting(self) -> tuple[WaitingRow, ...]:
        """Return the waiting jobs by kind, and the reason why no connected worker can do them."""
        scheduler = self._scheduler
        return waiting_rows(scheduler.queues, self._workers.values(), scheduler.stored_kinds())

    def state(self, id: int) -> JobState:
        """Return the state of a job by its number; ENDED for an unknown number."""
        job = self._scheduler.ends.find(id)
        return JobState.ENDED if job is None else job.state

    def unserved(self, id: int) -> str:
        """Return the reason why no connected worker can do a waiting job.

        Empty for every other job.
        """
        job = self._scheduler.ends.find(id)
        if job is None or job.state is not JobState.QUEUED:
            return ""
        rows = waiting_rows((self._scheduler.queues.get(job.kind),), self._workers.values())
        return rows[0].unserved if rows else ""

    # -- messages

    def _received(self, link: Link, message: Message, now: float) -> None:
        command, to = message.command, message.to
        if command not in SENT_BY_WORKERS:
            text = f"a manager does not accept {command.name}"
            self._outbound.refuse(link, message, ErrorCode.DIRECTION, text)
            return
        if to != self._me[::-1] and (to or command is Command.BYE):
            self._outbound.refuse_misaddressed(link, message, "manager")
            return
        if command is Command.ERROR:
            self._error(link, message, now)
            return
        if command is Command.PING and Field.BEAT in message.fields:
            self._beat(link, message, now)
            return
        source = message.source
        workers, path = self._scheduler.leases.workers, source[::-1]  # a property is one more call
        worker = workers.get(source[0])  # type: ignore[arg-type]
        if worker is not None and (worker.link != link or worker.path != path):
            match self._claims.judge(worker, link, path, message, now):
                case Standing.CLAIMED:
                    return
                case Standing.MOVED:
                    self._set_route(worker, link, path)
                    # A worker that has forgotten the session cannot use a replay, and its leases
                    # would count as begun.
                    if not ends_session(message):
                        self._outbound.replay(worker, now)
                case Standing.RESTARTED:
                    self._forget(worker, "the worker restarted", now)
                    worker = None
        if worker is None:
            worker = self._meet(link, message, now)
            if worker is None:
                return
        worker.last_received = worker.own_at = now
        self._outbound.acknowledge(worker, message.fields)
        match command:
            case Command.READY:
                self._scheduler.ready(worker, link, message, now)
            case Command.GIVE:
                self._scheduler.give(worker, message, now)
            case Command.DONE | Command.STATUS:
                if reason := self._numbered(worker, message.fields, now):
                    self._outbound.drop(reason, link, message)
                    return
                self._scheduler.answered(worker, link, message, now)
                if worker.stream.unacked_bytes > _ACK_EVERY:
                    self._pong(worker, now)
            case Command.PING:
                self._ping(worker, message, now)
            case Command.BYE:
                self._forget(worker, "the worker sent BYE", now)

    def _meet(self, link: Link, message: Message, now: float) -> RemoteWorker | None:
        """Meet the worker that sent a message, if no worker holds its identity.

        Returns:
            The worker; None when the message is refused.
        """
        identity, epoch = message.sender
        if epoch <= self._gone.get(identity, -1) and is_late(message):
            self._outbound.drop("after goodbye", link, message)
            return None
        if message.command is Command.BYE:
            self._gone_epoch(identity, epoch)
            return None
        if len(self._workers) >= self.settings.max_workers:
            limit = counted(self.settings.max_workers, "worker")
            text = f"this manager remembers {limit}, its limit"
            self._outbound.refuse(link, message, ErrorCode.LIMIT, text)
            return None
        if self._identities[link] >= self.settings.max_identities:
            limit = counted(self.settings.max_identities, "worker")
            text = f"one connection may serve {limit}, the limit of this manager"
            self._outbound.refuse(link, message, ErrorCode.LIMIT, text)
            return None
        worker = self._begin(identity, epoch, link, message.answer_to, now)
        self._remember(worker)
        return worker

    def _begin(
        self, identity: bytes, epoch: int, link: Link, path: Path, now: float
    ) -> RemoteWorker:
        """Begin a session with a worker."""
        self._sessions += 1
        return RemoteWorker(
            identity,
            epoch,
            Stream(self._sessions),
            now,
            origin=link,
            link=link,
            newest_link=link,
            path=path,
            busy=self._scheduler.selection.profiles.busy,
        )

    def _remember(self, worker: RemoteWorker) -> None:
        """Remember a worker from now on."""
        identity = worker.identity
        self._identities[worker.origin] += 1
        self._workers[identity] = worker
        self._gone.pop(identity, None)
        self._timers.set(WorkerSilenceTimer(identity), silent_at(worker, self.settings))

    def _numbered(self, worker: RemoteWorker, fields: Mapping[int | str, Any], now: float) -> str:
        """Return why a numbered message is dropped; empty if it is the next of its stream."""
        if fields[Field.SESSION] != worker.stream.session:
            self._pong(worker, now)  # WMP-7.7
            return "other session"
        arrival = worker.stream.arrive(fields[Field.NUMBER])
        if arrival is Arrival.GAP:
            self._pong(worker, now, again=True)
        return "" if arrival is Arrival.NEXT else arrival.value

    def _ping(self, worker: RemoteWorker, message: Message, now: float) -> None:
        fields = message.fields
        worker.label = fields.get(Field.LABEL, worker.label)
        worker.offer_cache = None
        if (answer := fields.get(Field.ANSWER)) is not None:
            self._claims.answered(worker, answer, now)
        elif message.to and Field.SESSION not in fields and worker.stream.used:
            self._new_session(worker, "the worker forgot this manager", now)
        self._scheduler.compare(worker, message, now)
        if fields.get(Field.AGAIN) and fields.get(Field.SESSION) == worker.stream.session:
            self._outbound.replay(worker, now)
        if message.to:
            # A worker with unchanged credit sends no READY; its PING counts instead (WMP-6.5).
            worker.capacity_reports += 1
            worker.beat_key = fields.get(Field.BEAT_KEY, 0)
            self._scheduler.offer_to(worker, now)
        self._pong(worker, now, answer=fields.get(Field.CHALLENGE, 0))

    def _beat(self, link: Link, message: Message, now: float) -> None:
        """Count a beat, and answer it over the worker's own route (WMP-9.18, 9.19)."""
        worker = self._workers.get(message.sender[0])
        if refusal := count_beat(worker, message, self.settings, now):
            self._outbound.drop("beat", link, message, refusal)
        elif worker is not None:
            self._pong(worker, now)

    def _pong(
        self,
        worker: RemoteWorker,
        now: float,
        *,
        again: bool = False,
        challenge: int = 0,
        answer: int = 0,
    ) -> None:
        fields: dict[int | str, Any] = {
            Field.MAX_SILENCE: int(self.settings.max_silence * 1000),
            Field.LABEL: self.settings.label,
        }
        fields |= self._scheduler.ownership.fields_of_pong()
        fields |= worker.fields_of_pong(self.settings.max_stall)
        given = {Field.AGAIN: again, Field.CHALLENGE: challenge, Field.ANSWER: answer}
        fields |= {key: value for key, value in given.items() if value}
        self._outbound.send(worker, Command.PONG, fields, None, now)

    def _error(self, link: Link, message: Message, now: float) -> None:
        """Act on the ERROR of a worker or a device. No ERROR stops a manager (WMP-15.10)."""
        code, peer = message.fields[Field.CODE], error_replies.about(message)
        self._outbound.drop(f"ERROR {code}" if code in ERROR_CODES else "ERROR", link, message)
        self._announcements.refused(link, message)
        if message.to and code in REFUSALS:
            self._refused(link, message, peer or message.sender, now)
            return
        if peer is None or not message.to or code not in BELIEVED:
            return
        if peer == self._me:
            if code == ErrorCode.SUPERSEDED:
                self._abandoned(link, message, now)
            return
        worker = self._workers.get(peer[0])
        if worker is not None and worker.epoch == peer[1] and is_on_route(message, link, worker):
            self._lose_route(worker, now)

    def _abandoned(self, link: Link, message: Message, now: float) -> None:
        """Act on the report of a worker that it serves another process of this identity (WMP-15.8).

        The worker can report this for itself only.
        """
        worker = self._workers.get(message.sender[0])
        if worker is None or worker.link != link or worker.path != message.answer_to:
            return
        text = (
            f"worker {named(worker.identity)} serves another process with the identity "
            f"{named(self._me[0])}; give each manager an identity of its own"
        )
        self._outbound.drop("rival", detail=text)
        self._forget(worker, "the worker serves another manager of this identity", now)

    def _refused(self, link: Link, message: Message, peer: Peer, now: float) -> None:
        """Replace a message for a worker that a node on the route refuses (WMP-7.11)."""
        worker = self._workers.get(peer[0])
        if worker is None or worker.epoch != peer[1] or not is_on_route(message, link, worker):
            return
        if (kept := self._outbound.refused(worker, message)) is not None:
            self._replace(worker, kept, message.fields.get(Field.TEXT, ""), now)

    def _replace(self, worker: RemoteWorker, kept: Kept, error: str | None, now: float) -> None:
        """Send another message in place of a message that its worker refused by this error."""
        if kept.command is Command.TAKE and not kept.replaced:
            shown = "no acknowledgement came" if error is None else printable(error)
            cause = f"{REFUSED}: {shown}" if shown else REFUSED
            self._scheduler.refused(worker, kept, cause, now, named=error is not None)
            return
        self._new_session(worker, f"the worker refused {kept.command.name}", now)
        self._pong(worker, now)

    # -- routes, sessions, time

    def _undelivered(self, link: Link, message: Message, now: float) -> None:
        self._outbound.drop("undelivered", link, message)
        worker = self._workers.get(message.receiver or b"")
        fields = message.fields
        if worker is not None and fields.get(Field.SESSION) == worker.stream.session:
            worker.stream.returned(fields.get(Field.NUMBER, 0))
        if worker is not None and worker.link == link and worker.path == message.to:
            self._lose_route(worker, now)

    def _disconnected(self, link: Link, now: float) -> None:
        """Give the worker at the other end some time to return (WMP-9.16)."""
        grace = self.settings.reconnect_grace
        if grace is None:
            return
        for worker in self._workers.values():
            if worker.newest_link == link and worker.direct:
                self._lose_route(worker, now)
                if worker.link is None:  # no claim over another route was admitted
                    self._timers.set(ReconnectTimer(worker.identity), now + grace)
                return

    def _set_route(self, worker: RemoteWorker, link: Link, path: Path) -> None:
        """Send to a worker over another route from now on."""
        worker.link, worker.newest_link, worker.path = link, link, path
        # A later end of this connection gives the worker the whole grace again (WMP-9.16).
        self._timers.clear(ReconnectTimer(worker.identity))

    def _lose_route(self, worker: RemoteWorker, now: float) -> None:
        """Send nothing more to a worker until its next message; its leases stay (WMP-9.12)."""
        worker.link = None
        self._scheduler.lose_route(worker, now)
        if (claim := self._claims.end(worker)) is not None:
            self._admit(worker, claim, now)

    # -- claims to an identity (spec §15)

    def _challenge(self, worker: RemoteWorker, number: int, now: float) -> None:
        self._pong(worker, now, challenge=number)

    def _admit(self, worker: RemoteWorker, claim: Claim, now: float) -> None:
        """Give an identity to the peer that claims it: the worker did not answer (WMP-15.6).

        The messages of that peer were dropped; PONG makes it send its READY again.
        """
        if claim.command is Command.BYE:
            if claim.epoch == worker.epoch:
                self._forget(worker, "the worker sent BYE", now)
            return
        if claim.epoch == worker.epoch:
            self._set_route(worker, claim.link, claim.path)
            worker.last_received = now
            if not claim.forgetful:
                self._outbound.replay(worker, now)
            self._pong(worker, now, again=True)
        else:
            heir = self._begin(worker.identity, claim.epoch, claim.link, claim.path, now)
            # Send PONG of the new session first, and lose the old leases after that: the journal
            # then shows the cause before the effect.
            self._pong(heir, now, again=True)
            self._forget(worker, "the worker restarted", now)
            self._remember(heir)

    def _new_session(self, worker: RemoteWorker, cause: str, now: float) -> None:
        """Begin a new session with the worker; its leases are lost (WMP-7.5, 7.11)."""
        self._scheduler.lose(worker, cause, now)
        self._outbound.end_session(worker)
        self._sessions += 1
        worker.stream = Stream(self._sessions)
        worker.ready = 0

    def _forget(self, worker: RemoteWorker, cause: str, now: float) -> None:
        """Remove a worker that has gone (WMP-9.3, 9.7, 9.11)."""
        self._claims.end(worker)
        self._scheduler.lose(worker, cause, now)
        self._outbound.end_session(worker)
        identity = worker.identity
        self._timers.clear_all((WorkerSilenceTimer(identity), ReconnectTimer(identity)))
        self._gone_epoch(worker.identity, worker.epoch)
        del self._workers[worker.identity]
        self._identities[worker.origin] -= 1
        if not self._identities[worker.origin]:
            del self._identities[worker.origin]

    def _gone_epoch(self, identity: bytes, epoch: int) -> None:
        self._gone[identity] = epoch
        self._gone.move_to_end(identity)
        if len(self._gone) > _REMEMBERED_EPOCHS:
            self._gone.popitem(last=False)

    def _ticked(self, now: float) -> None:
        for timer in self._timers.due(now):
            self._rang(timer, now)

    def _rang(self, timer: ManagerTimer, now: float) -> None:
        """Act on one timer.

        An earlier timer of the same tick may have removed the object of this timer.
        """
        match timer:
            case int() as id:
                self._scheduler.ends.expire(id, now)
            case AnnounceTimer(link):
                self._announcements.announce(link, now)
            case DueTimer():
                self._scheduler.release(now)
            case SweepTimer():
                if (store := self._scheduler.store) is not None:
                    store.tick(now)
            case StoreDueTimer():
                pass  # each step writes what is due
            case WakeTimer(kind):
                if (queue := self._scheduler.queues.find(kind)) is not None:
                    self._scheduler.widen(queue, now)
            case WorkerSilenceTimer(identity):
                if (worker := self._workers.get(identity)) is not None:
                    self._check_silence(worker, now)
            case ReconnectTimer(identity):
                if (worker := self._workers.get(identity)) is not None and worker.link is None:
                    self._forget(worker, CONNECTION_ENDED, now)
            case ClaimTimer(identity):
                if (worker := self._workers.get(identity)) is not None and (
                    claim := self._claims.end(worker)
                ) is not None:
                    self._admit(worker, claim, now)
            case ResendTimer(identity):
                worker = self._workers.get(identity)
                if worker is not None and (stuck := self._outbound.check_resend(worker, now)):
                    self._replace(worker, stuck, None, now)
            case HoldTimer(identity, lock):
                worker = self._workers.get(identity)
                if worker is not None and (give := worker.gives.get(lock)) is not None:
                    self._scheduler.close(give, now)
            case _:
                assert_never(timer)

    def _check_silence(self, worker: RemoteWorker, now: float) -> None:
        at = silent_at(worker, self.settings)
        if at <= now:
            claim = self._claims.end(worker)
            if claim is None or is_gone(worker, claim):
                self._forget(worker, SILENCE, now)
                return
            self._admit(worker, claim, now)
            at = now + self.settings.max_silence
        self._timers.set(WorkerSilenceTimer(worker.identity), at)

    # -- standby and the end

    def _relieve(self, now: float) -> None:
        """End the standby, and report this to all workers at once (WMP-17.2)."""
        if self._scheduler.ownership.standby:
            self._scheduler.ownership.standby = False
            for worker in self._workers.values():
                self._pong(worker, now)

    def _end_in_order(self, now: float) -> None:
        """Stop after the end of all jobs: release the workers' locks, acknowledge results."""
        if (store := self._scheduler.store) is not None:
            store.end(now)
        for worker in self._workers.values():
            # Without a last ack the workers would keep results for a manager that has stopped.
            if not worker.gives:
                self._pong(worker, now)
            for give in tuple(worker.gives.values()):
                self._scheduler.close(give, now)
        self._announcements.leave()
        self._halt(None)

    def _halt(self, error: Exception | None) -> None:
        self._halted = True
        self._outbound.actions.append(Halt(error))

    def check_invariants(self) -> None:
        """Raise AssertionError when an invariant does not hold; for tests."""
        if not self._halted:
            check_manager(self._scheduler)

    def _policy_failed(self, error: Exception) -> None:
        self._outbound.drop("policy failed", detail=f"{type(error).__name__}: {error}")
