"""The lines of one manager with one worker, folded: facts of jobs, leases, and violations.

The observer of the simulations concludes from messages which leases a manager grants, and which
leases end. Here the observer reads lines instead of events. A manager's lines without a worker
(submissions, cancellations, timeouts) are a group of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from attrs import define, field

from wmp.actions import Send
from wmp.core.manager.requeue import CONNECTION_ENDED
from wmp.core.manager.store_writes import FIRST_UNSTORED
from wmp.core.protocol.settings import ManagerSettings
from wmp.events import Received, Ticked, Undelivered
from wmp.message import (
    NUMBERED_BY_MANAGERS,
    NUMBERED_BY_WORKERS,
    Columns,
    Command,
    Field,
    Message,
    Peer,
)
from wmp.spark.facts import Fact, FoldSink, KnownProcess, Process
from wmp.spark.lines import LineRow
from wmp.spark.streams import UNACCEPTED, Streams
from wmp.testing.invariants import History
from wmp.testing.observer import Observer

__all__ = ["ManagerFold"]

_NOBODY: Final = ManagerSettings(identity=b"", epoch=0)
_SLACK: Final = 2
"""Tolerance for rounded times, in µs."""
_UNSEEN: Final = ("claimed", "after goodbye")
"""Reasons for which a manager ignores a message as if it had not come."""


def _due(line: LineRow) -> int | None:
    """Return the µs on the manager's clock before which no submitted job may time out.

    Times count from the start time. An attempt that exceeds a run limit may end a job at any time.
    """
    bounds = [bound for bound in (line.timeout, line.expires_in) if bound is not None]
    if line.run_limit is not None:
        bounds = [0]
    due: int | None = line.at + (line.delay or 0) + min(bounds) if bounds else None
    return due


@define(eq=False)
class _LeaseRecorder(History):
    """Records the facts that an observer reports to a history, and judges nothing."""

    events: list[tuple[str, int, int, int]] = field(factory=list)

    def granted(
        self, owner: Peer, id: int, attempt: int, worker: Peer, now: float | None = None
    ) -> None:
        self.events.append(("granted", id, attempt, 1))

    def lost(
        self, owner: Peer, id: int, attempt: int, *, counts: bool = True, leaving: bool = False
    ) -> None:
        self.events.append(("lost", id, attempt, counts * (1 + leaving)))

    def overran(self, owner: Peer, id: int) -> None:
        pass


@define(eq=False)
class ManagerFold:
    """The state of a manager towards one worker, as its lines show it."""

    me: KnownProcess
    sink: FoldSink
    _settings: ManagerSettings = field(init=False)
    _recorder: _LeaseRecorder = field(factory=_LeaseRecorder)
    _observer: Observer = field(init=False)
    _streams: Streams = field(init=False)
    _credit: dict[int | None, list[int]] = field(factory=dict)
    """Credit of the last READY and the jobs of the WAKEs since then, by epoch of the worker."""
    _granting: tuple[int, int, str] | None = None
    """(n, at, command) of the first WAKE or TAKE since the last PONG with ``standby``."""
    _store: Process | None = None
    """The store that owns the manager's stored jobs."""

    def __attrs_post_init__(self) -> None:
        expire = (self.me.expire or _NOBODY.expire) * 1e6 - _SLACK
        identity = self.me.node.encode()
        self._settings = ManagerSettings(
            identity=identity, epoch=self.me.epoch, expire=expire, reconnect_grace=None
        )
        self._observer = Observer(self._recorder)
        self._streams = Streams(self.me, self.sink)

    def step(self, lines: Sequence[LineRow]) -> None:
        """Fold the lines of one step."""
        # The errors of jobs that end in this step are not tried again.
        ended = frozenset(chain.from_iterable(x.ids or () for x in lines if x.what == "resolve"))
        for line in lines:
            self._observer.ended = ended
            if line.command is not None and line.command not in Command.__members__:
                continue  # a command of a later release
            if line.owner is not None and line.owner != line.node:
                self._store = line.owner, line.owner_epoch or 0
            if line.what == "received":
                self._received(line)
            elif line.what == "send":
                self._sent(line)
            elif line.what == "resolve":
                self._resolved(line)
            elif line.what == "note":
                self._note(line)
            elif line.what == "submitted":
                for job in line.ids or ():
                    self._fact(
                        line, "submitted", job, value=line.retries, number=_due(line),
                        other=line.priority, role=line.role, text=line.needs,
                    )  # fmt: skip
            elif line.what == "cancelled":
                for job in line.ids or ():
                    self._fact(line, "asked", job)
            elif line.what == "decline":
                for job in line.ids or ():
                    self._fact(line, "declined", job)
            elif line.what == "undelivered" and line.target is not None:
                self._observe(line, Undelivered(0, self._message(line)))
            if self._recorder.events:
                self._ended(line)

    def attach(self, me: KnownProcess | None, sink: FoldSink | None) -> None:
        """Continue with these facts of the process and this sink; None before a pause."""
        self.me = self._streams.me = me  # type: ignore[assignment]
        self.sink = self._streams.sink = sink  # type: ignore[assignment]

    def finish(self) -> None:
        """Do nothing: all is reported when it happens."""

    def _fact(self, line: LineRow, event: str, job: int, **more: Any) -> None:
        me = self.me
        owner = (me.node, me.epoch)
        if self._store is not None and job < FIRST_UNSTORED:
            owner = self._store
        time = line.at + me.clock
        self.sink.facts.append(
            Fact(*owner, job, 0, me.node, me.epoch, line.n, line.at, time, event, **more)
        )

    def _received(self, line: LineRow) -> None:
        self._streams.received(line)
        if line.source is None or line.reason in _UNSEEN:
            return
        mine = line.target is None or (line.target, line.target_epoch) == (line.node, line.epoch)
        if line.command in ("READY", "GIVE"):
            worker = (line.source, line.source_epoch or 0)
            self.sink.bound(0, "shares", line.node, line.epoch, *worker)
            if line.reason is None:
                self.sink.bound(line.at, "served", line.node, line.epoch, *worker, "last")
                self.sink.bound(-line.at, "served", line.node, line.epoch, *worker, "first")
        if line.command == "READY" and line.reason is None:
            self._credit[line.source_epoch] = [line.credit or 0, 0]
        if line.command == "DONE" and line.reason not in UNACCEPTED and mine:
            rows = zip(
                line.ids or (), line.each(line.attempts), line.each(line.outcomes), strict=True
            )
            owner = (line.owner, line.owner_epoch)
            if owner in ((line.node, line.epoch), (None, None), self._store):
                for job, attempt, outcome in rows:
                    self._fact(
                        line, "arrived", job, attempt=attempt, peer=line.source,
                        peer_epoch=line.source_epoch, value=outcome,
                    )  # fmt: skip
        if mine:
            if line.command != "ERROR":
                self._silence(line)
            self._observe(line, Received(0, self._message(line)))

    def _silence(self, line: LineRow) -> None:
        """Report a worker that was silent for too long, and kept its leases all the same.

        Whether the manager could notice the silence is checked later, by its other lines.
        """
        contacts = self._observer._contacts.get((self._settings.identity, self.me.epoch), {})
        contact = contacts.get((line.source or "").encode())
        if contact is None or not contact.leases or contact.epoch != line.source_epoch:
            return
        due = contact.last_message + self._settings.expire
        if due < line.at:
            job, (attempt, _) = next(iter(contact.leases.items()))
            silent = (line.at - contact.last_message) / 1e6
            row = (
                self.me.node, self.me.epoch, line.source, line.source_epoch, job, attempt,
                int(due), line.at, line.n, silent,
            )  # fmt: skip
            self.sink.add("silence", row)

    def _sent(self, line: LineRow) -> None:
        if (line.source, line.source_epoch) == (line.node, line.epoch):
            self._streams.sent(line)
            if line.command in ("WAKE", "TAKE"):
                self._granting = self._granting or (line.n, line.at, line.command)
            elif line.command == "PONG" and line.standby:
                self._on_standby(line)
            if line.command == "WAKE":
                self._wake(line)
        if line.target is None:
            return
        self._observe(line, None, Send(0, self._message(line)))
        if line.command == "TAKE":
            new = {(job, attempt) for what, job, attempt, _ in self._recorder.events
                   if what == "granted"}  # fmt: skip
            self._ended(line)  # a TAKE that opens a session ends the leases of the old session
            for job, attempt in zip(line.ids or (), line.each(line.attempts), strict=True):
                self._fact(
                    line, "granted", job, attempt=attempt, peer=line.target,
                    peer_epoch=line.target_epoch, value=int((job, attempt) in new),
                    number=line.number, other=line.lock, role=line.role, text=line.via,
                )  # fmt: skip

    def _on_standby(self, line: LineRow) -> None:
        """Report a WAKE or TAKE before this PONG: a standby never begins again (WMP-17.2).

        A later line cannot show it: a worker without a route gets no PONG when a standby ends.
        """
        granting, self._granting = self._granting, None
        if granting is not None:
            n, at, command = granting
            text = f"{command} was sent to {line.target} before a PONG with standby, line {line.n}"
            me = line.node, line.epoch
            self.sink.violation("WMP-17.1", text, (*me, n, at), [(*me, n), (*me, line.n)])

    def _wake(self, line: LineRow) -> None:
        credit = self._credit.setdefault(line.target_epoch, [0, 0])
        credit[1] += line.count or 0
        if credit[1] > credit[0]:
            text = (
                f"the WAKEs announced {credit[1]} jobs to {line.target}; its READY has credit "
                f"{credit[0]}"
            )
            where = (line.node, line.epoch, line.n, line.at)
            self.sink.violation("WMP-3.4", text, where)

    def _note(self, line: LineRow) -> None:
        if line.about_peer is not None and line.reason == CONNECTION_ENDED:
            # The line `disconnected` names a link, but no worker.
            self._observer.gave_up(self._peer, line.about_peer.encode())
        elif line.about_peer is not None:
            # A note names the cause of ended leases. Only silence ends leases without a message or
            # note; the observer finds silence by the clock.
            self._observe(line, Ticked())
        for job, attempt in zip(line.ids or (), line.each(line.attempts), strict=True):
            self._fact(
                line, "noted", job, attempt=attempt, peer=line.about_peer,
                peer_epoch=line.about_epoch, word=line.reason,
            )  # fmt: skip

    def _resolved(self, line: LineRow) -> None:
        if line.source is not None:
            self._observer.settled(self._peer, line.source.encode(), line.ids or ())
        rows = zip(line.ids or (), line.each(line.attempts), line.each(line.ends), strict=True)
        for job, attempt, end in rows:
            self._fact(
                line, "resolved", job, attempt=attempt, peer=line.source,
                peer_epoch=line.source_epoch, word=end,
            )  # fmt: skip

    def _ended(self, line: LineRow) -> None:
        for what, job, attempt, counts in self._recorder.events:
            if what == "lost":
                self._fact(line, "lost", job, attempt=attempt, value=counts)
        self._recorder.events.clear()

    # -- the observer

    @property
    def _peer(self) -> Peer:
        return (self._settings.identity, self.me.epoch)

    def _observe(self, line: LineRow, event: object, *actions: object) -> None:
        self._observer.manager_did(self._settings, event, actions, line.at)

    def _message(self, line: LineRow) -> Message:
        """Return the message of a line, as far as the observer reads messages."""
        columns = None
        if line.ids is not None:
            outcomes = None if line.outcomes is None else line.each(line.outcomes)
            columns = Columns(line.ids, line.each(line.attempts), outcomes=outcomes)
        known = Command[line.command or ""]
        fields: dict[int | str, Any] = {}
        if known in NUMBERED_BY_MANAGERS | NUMBERED_BY_WORKERS:
            fields = {Field.SESSION: 0, Field.NUMBER: 0}  # a damaged line may lack its number
        for key, value in (
            (Field.SESSION, line.session),
            (Field.NUMBER, line.number),
            (Field.ACK, line.ack),
        ):
            if value is not None:
                fields[key] = value
        if line.owner is not None:
            fields[Field.MANAGER] = (line.owner.encode(), line.owner_epoch or 0)
        if line.what == "received":
            to = () if line.target is None else self._peer[::-1]
            source: Any = ((line.source or "").encode(), line.source_epoch or 0)
            return Message(known, to, source, fields, columns)
        to = (line.target_epoch or 0, (line.target or "").encode())
        return Message(known, to, self._peer, fields, columns)
