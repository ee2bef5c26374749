"""The worker machine: offers its room to managers, runs what they give, answers each job.

Theory of operation. ``handle(event, now)`` is the only way in, and the only thing that
changes state; it returns what the surroundings must do, in order. ``deadline()`` says
when to come back with ``Ticked``. Every event ends in one ``_settle``, which starts what
waits, sends the answers, and hands out the room that is left.

This module knows peers: who they are, how they are heard, when they are given up. What
happens to jobs is :mod:`wmp.core.worker.executions`, to room
:mod:`wmp.core.worker.capacity`; what is sent goes through :mod:`wmp.core.worker.outbound`.

Nothing a peer sends can raise or change state by error: what cannot be acted on is
dropped with a reason and answered with ERROR where the specification says so.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, assert_never, cast

from attrs import define, field

from wmp.actions import Halt, Reconnect, WorkerAction
from wmp.core.protocol import error_replies
from wmp.core.protocol.resources import Resources
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.protocol.story import Stories, StoryEvent
from wmp.core.protocol.stream import Stream
from wmp.core.protocol.timers import ResendTimer
from wmp.core.worker import sessions
from wmp.core.worker.capacity import Capacity
from wmp.core.worker.executions import Executions
from wmp.core.worker.invariants import check_worker
from wmp.core.worker.links import LinkState
from wmp.core.worker.locks import LockInput
from wmp.core.worker.outbound import WorkerOutbound
from wmp.core.worker.remote_manager import RemoteManager
from wmp.core.worker.run_queue import RunQueue
from wmp.core.worker.statistics import WorkerStatistics, snapshot
from wmp.core.worker.throughput import Throughput
from wmp.errors import LocalProtocolError, Superseded
from wmp.events import (
    Closed,
    Connected,
    Drained,
    Finished,
    Garbled,
    Recalled,
    Received,
    Reported,
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
    Message,
    named,
)
from wmp.message import Link as LinkId

__all__ = ["MOST_MANAGERS", "WorkerMachine", "WorkerStatistics"]

MOST_MANAGERS = 1024
"""Managers remembered at once, and again as many epochs of those that are gone."""


@define(eq=False)
class WorkerMachine:
    """Sans-I/O worker.

    Args:
        settings: Identity, roles, resources, timers, limits.
        count: How many links it has, numbered from 0: one DEALER each (WMP-1.3).
    """

    settings: WorkerSettings
    count: int = field(alias="links")
    _board: WorkerOutbound = field(init=False)
    _lanes: RunQueue = field(init=False)
    _room: Capacity = field(init=False)
    _bench: Executions = field(init=False)
    _gone: OrderedDict[bytes, tuple[int, int]] = field(factory=OrderedDict, init=False)
    """Managers that were forgotten: their epoch (WMP-9.6) and session (WMP-7.8)."""
    _changed: bool = field(default=False, init=False)
    """Whether the event at hand changed anything that ``_settle`` must look at."""
    _asked: dict[bytes, int] = field(factory=dict, init=False)
    """The last answer that each manager was asked to acknowledge, while draining."""
    _halted: bool = field(default=False, init=False)
    _stories: Stories | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.settings
        if settings.stories:
            self._stories = Stories(settings.stories)
        self._board = WorkerOutbound.of(settings, self.count)
        self._lanes = RunQueue(Resources.of(settings.resources), Throughput(settings))
        self._room = Capacity(self._board, self._lanes)
        self._bench = Executions(self._board, self._lanes, self._room)

    # -- the two members of every machine

    def deadline(self) -> float | None:
        """When ``Ticked`` is due, in seconds on the clock of ``now``; None for never."""
        return None if self._halted else self._board.timers.next()

    def handle(self, event: WorkerEvent, now: float) -> list[WorkerAction]:
        """Take one event; return what must be done now, in order.

        Raises:
            LocalProtocolError: The event names a link that this worker does not have.
        """
        if self._halted:
            return []
        board = self._board
        match event:
            case Received(link, message):
                self._received(self._link(link), message, now)
            case Garbled(link, error):
                self._hear(self._link(link), now)
                board.refuse_garbled(link, error)
            case Undelivered(link, message):
                # What is numbered is kept and sent again; the rest is said again in time.
                board.drop("undelivered", self._link(link).index, message)
            case Ticked():
                self._ticked(now)
            case Connected(link):
                self._connected(self._link(link), now)
            case Finished():
                self._bench.finished(event, now)
                self._changed = True
            case Recalled():
                self._bench.recalled(event)
                self._changed = True
            case Reported():
                self._bench.reported(event, now)
            case Drained():
                self._drain(now)
            case Closed():
                self._say_goodbye(now)
            case _:
                assert_never(event)
        if self._changed:
            self._changed = False
            self._settle(now)
        actions, board.actions = board.actions, []
        if self._stories is not None:
            self._stories.record(event, actions, now)
        return actions

    def story(self, job: int, owner: bytes | None = None) -> list[StoryEvent]:
        """Return what happened to a job here, oldest event first.

        Empty unless ``WorkerSettings.stories`` says how many jobs are remembered.

        Args:
            job: The number that the job's manager gave it.
            owner: Identity of that manager; None for the newest job of that number.
        """
        return [] if self._stories is None else self._stories.of(job, owner)

    def statistics(self) -> WorkerStatistics:
        """A snapshot for people and programs; costs by the number of managers and lanes."""
        return snapshot(self._board, self._lanes, self._room, self._bench)

    # -- the end of every step

    def _settle(self, now: float) -> None:
        """Start what waits, answer, hand out what is left; only then run (WMP-3.11)."""
        runs, spare = self._bench.start(now)
        self._bench.flush(now)
        self._room.settle(spare, now)
        self._board.actions += runs
        if self._room.draining:
            self._wind_up(now)

    # -- messages

    def _link(self, link: LinkId) -> LinkState:
        if not isinstance(link, int) or not 0 <= link < self.count:
            raise LocalProtocolError(f"link {link!r} is none of this worker's {self.count}")
        return self._board.links[link]

    @staticmethod
    def _hear(link: LinkState, now: float) -> None:
        link.heard = now
        link.replaced = 0

    def _received(self, link: LinkState, message: Message, now: float) -> None:
        self._hear(link, now)
        board, command = self._board, message.command
        if command not in SENT_BY_MANAGERS:
            text = f"a worker receives no {command.name}"
            board.refuse(link.index, message, ErrorCode.DIRECTION, text)
            return
        if message.to != board.me[::-1] and (message.to or command is not Command.ERROR):
            board.refuse_misaddressed(link.index, message, "worker")
            return
        if command is Command.ERROR:
            self._error(link, message, now)
            return
        upstream = self._upstream(link, message, now)
        if upstream is None:
            return
        self._changed = True  # a route may have come back, and results gone: look anyway
        path = message.answer_to
        moved = upstream.link != link.index or upstream.path != path
        if link.doubted and not message.hops:
            self._succeed(link, upstream)
        upstream.link, upstream.path = link.index, path
        entry = sessions.enter(board, upstream, link, message, now)
        if entry is sessions.SessionEntry.NEWER:
            self._lose(upstream)
            upstream.stream = Stream(message.fields[Field.SESSION])
        wanted = entry is not sessions.SessionEntry.DROP
        board.acknowledge(upstream, message)
        if wanted and command in NUMBERED_BY_MANAGERS:
            wanted = sessions.in_order(board, upstream, link, message, now)
        if moved or (wanted and command is Command.PONG and message.fields.get(Field.AGAIN, False)):
            board.replay(upstream, now)
        if not wanted:
            return
        match command:
            case Command.WAKE:
                self._room.woken(upstream, link.index, message, now)
            case Command.TAKE:
                self._bench.take(upstream, link.index, message, now)
            case Command.NO:
                self._room.no(upstream, link.index, message, now)
            case Command.CANCEL:
                self._bench.cancel(upstream, message)
            case Command.PONG:
                self._pong(upstream, message)

    def _upstream(self, link: LinkState, message: Message, now: float) -> RemoteManager | None:
        """Who sent it; None when it is refused."""
        board = self._board
        identity, epoch = message.sender
        upstream = board.upstreams.get(identity)
        gone, forgotten = self._gone.get(identity, (-1, 0))
        known = upstream.epoch if upstream is not None else gone
        if epoch < known:
            text = f"epoch {epoch} was replaced by {known}"
            board.refuse(link.index, message, ErrorCode.SUPERSEDED, text, (identity, epoch))
            return None
        again = upstream is not None and epoch > upstream.epoch
        if upstream is not None and again:
            self._forget(upstream, now)  # WMP-9.7
            upstream = None
        if upstream is None:
            if len(board.upstreams) >= MOST_MANAGERS:
                text = f"this worker remembers {MOST_MANAGERS} managers, its limit"
                board.refuse(link.index, message, ErrorCode.LIMIT, text)
                return None
            upstream = RemoteManager(identity, epoch, link.index, message.answer_to, now, now, now)
            for other in board.upstreams.values():
                self._room.withdraw(other, now)  # WMP-5.4
            upstream.forgotten = forgotten if epoch == gone else 0
            board.upstreams[identity] = upstream
            self._gone.pop(identity, None)
            board.timers.set(("ping", identity), now + board.interval(upstream))
            self._room.met(upstream, again=again)
        upstream.heard = now
        return upstream

    def _pong(self, upstream: RemoteManager, message: Message) -> None:
        fields, board = message.fields, self._board
        before = board.interval(upstream)
        # Never so short that nothing could be heard in time.
        upstream.expire = max(0.05, fields[Field.EXPIRE] / 1000)
        upstream.label = fields.get(Field.LABEL, upstream.label)
        if board.interval(upstream) < before:
            due = upstream.heard + board.interval(upstream)
            board.timers.set(("ping", upstream.identity), due)
        self._room.heard_pong(upstream, message)

    def _error(self, link: LinkState, message: Message, now: float) -> None:
        """A peer or a device says that something of ours went wrong (spec §10)."""
        board, fields = self._board, message.fields
        code, peer = fields[Field.CODE], error_replies.about(message)
        reason = f"ERROR {code}" if code in ERROR_CODES else "ERROR"
        board.drop(reason, link.index, message, fields.get(Field.TEXT, ""))
        if peer is None:
            return
        upstream = board.upstreams.get(peer[0])
        if upstream is not None and upstream.epoch != peer[1]:
            upstream = None
        if code == ErrorCode.SUPERSEDED and peer == board.me:
            self._halt(
                Superseded(
                    f"worker {named(peer[0])} has been started again with a newer epoch; "
                    "give each worker an identity of its own"
                )
            )
        elif code == ErrorCode.SUPERSEDED and upstream is not None:
            self._forget(upstream, now)
        elif upstream is None or upstream.link != link.index:
            return
        elif code == ErrorCode.MISROUTED:
            self._replaced(upstream)
            self._changed = True
        elif code == ErrorCode.UNREACHABLE:
            self._unreachable(upstream)
            lock = upstream.locks.get(fields.get(Field.ABOUT_NUMBER, 0))
            if lock is not None and fields.get(Field.ABOUT) == Command.GIVE:
                self._room.close(upstream, lock, LockInput.FORGET)
            self._check_link(link, now)
            self._changed = True

    @staticmethod
    def _unreachable(upstream: RemoteManager) -> None:
        """No way to it is known until it is heard again; its session goes on (WMP-9.12)."""
        upstream.path = None
        upstream.announced = 0

    # -- links, sessions, time

    def _connected(self, link: LinkState, now: float) -> None:
        link.connected = True
        link.heard = now
        self._room.connected(link)
        behind = self._board.behind(link)
        link.doubted = tuple([u.identity for u in behind if u.direct])
        for upstream in behind:
            self._board.replay(upstream, now)
        link.pinged = now
        self._board.timers.set(("link", link.index), min(self._board.link_due(link)))
        self._changed = True

    def _succeed(self, link: LinkState, upstream: RemoteManager) -> None:
        """This manager is the other end of a link that was made anew (WMP-9.12)."""
        for identity in link.doubted:
            other = self._board.upstreams.get(identity)
            if other is None or other is upstream:
                continue
            if other.link == link.index and other.direct:
                self._replaced(other)
        link.doubted = ()

    def _replaced(self, upstream: RemoteManager) -> None:
        """Where it was is somebody else: it is elsewhere or nowhere, and its GIVEs must not keep
        the room from its successor (WMP-9.12)."""
        self._unreachable(upstream)
        self._room.close_all(upstream)

    def _lose(self, upstream: RemoteManager) -> None:
        """The session is over: its locks, jobs and answers are lost (WMP-7.6)."""
        board, stream = self._board, upstream.stream
        self._room.close_all(upstream)
        self._room.forget_wake(upstream)
        jobs = self._bench.forget(upstream)
        answers = len(stream.kept) if stream is not None else 0
        board.end_session(upstream)
        upstream.stream = None
        if jobs or answers:
            detail = f"{jobs} jobs and {answers} unacknowledged messages"
            board.drop("lost session", upstream.link, None, detail)
        self._changed = True

    def _forget(self, upstream: RemoteManager, now: float) -> None:
        """The manager is gone, or this epoch of it (WMP-9.7)."""
        board, stream = self._board, upstream.stream
        # Where no number was used, both sides still begin at 1: that session may be entered again.
        used = stream.session if stream is not None and stream.used else upstream.forgotten
        self._lose(upstream)
        del board.upstreams[upstream.identity]
        board.timers.clear(("ping", upstream.identity))
        self._gone[upstream.identity] = upstream.epoch, used
        self._gone.move_to_end(upstream.identity)
        if len(self._gone) > MOST_MANAGERS:
            self._gone.popitem(last=False)
        self._check_link(board.links[upstream.link], now)

    def _ticked(self, now: float) -> None:
        board = self._board
        for name in cast("list[tuple[Any, ...]]", board.timers.due(now)):
            match name:
                case ("link", index):
                    self._check_link(board.links[index], now)
                case ("ready",):
                    self._room.repeat()
                    self._changed = True
                case ("drain",):
                    self._changed = True
                case ("patience",):
                    self._bench.look()
                    self._changed = True
                case ResendTimer(identity):
                    if (upstream := board.upstreams.get(identity)) is not None:
                        board.check_resend(upstream, now)
                case (what, identity, *rest):
                    # A timer that rang before it, in this very tick, may have ended it.
                    upstream = board.upstreams.get(identity)
                    if upstream is not None:
                        self._ticked_for(upstream, what, rest, now)

    def _ticked_for(self, upstream: RemoteManager, what: str, rest: list[int], now: float) -> None:
        """A timer of one manager rang."""
        match what:
            case "lock" if (lock := upstream.locks.get(rest[0])) is not None:
                self._room.close(upstream, lock, LockInput.TIMEOUT)  # WMP-4.11
                self._changed = True
            case "ping" if not self._board.check_ping(upstream, now):
                self._forget(upstream, now)

    def _check_link(self, link: LinkState, now: float) -> None:
        """Replace a silent link, look for managers behind one without (WMP-9.1, 9.4)."""
        board = self._board
        silent, seek = board.link_due(link)
        if silent <= now:
            link.connected = False
            link.replaced += 1
            link.heard = now
            board.actions.append(Reconnect(link.index))
        if seek <= now:
            board.discover(link, now)
        board.timers.set(("link", link.index), min(board.link_due(link)))

    # -- the end

    def _drain(self, now: float) -> None:
        """Take nothing new, hand back what has not begun (WMP-9.10)."""
        self._changed = True
        if self._room.draining:
            return
        self._room.draining = True
        for upstream in self._board.upstreams.values():
            self._room.withdraw(upstream, now)
            self._room.forget_wake(upstream)
        self._bench.hand_back()
        self._room.say_closed(now)

    def _wind_up(self, now: float) -> None:
        """Say goodbye once all that runs has ended and is acknowledged."""
        board = self._board
        if any(not lane.lost for lane in self._lanes.running.values()):
            return
        patience = 2 * board.resend
        waiting = [
            upstream
            for upstream in board.upstreams.values()
            if upstream.stream is not None
            and upstream.stream.kept
            and upstream.heard + patience > now
        ]
        if waiting:
            for upstream in waiting:
                # Each result asks once: another may follow one that was asked about already.
                sent = upstream.stream.sent if upstream.stream is not None else 0
                if self._asked.get(upstream.identity) != sent:
                    self._asked[upstream.identity] = sent
                    board.ping(upstream, now)
            due = min(upstream.heard + patience for upstream in waiting)
            board.timers.set(("drain",), due)
            return
        self._say_goodbye(now)

    def _say_goodbye(self, now: float) -> None:
        """Resign everywhere: what is still held goes back at once (WMP-9.10, 9.11)."""
        for upstream in self._board.upstreams.values():
            self._board.send(upstream, Command.BYE, {}, None, now)
        self._halt(None)

    def _halt(self, error: Exception | None) -> None:
        self._halted = True
        self._board.actions.append(Halt(error))

    # -- for tests

    def check_invariants(self) -> None:
        """Raise AssertionError when what must always hold does not; costs by all state."""
        check_worker(self._board, self._lanes, self._room)
