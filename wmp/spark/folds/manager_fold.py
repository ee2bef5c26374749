"""The lines of one manager with one worker, folded: facts of jobs, leases, and violations.

The observer of the simulations concludes from messages which leases a manager grants, and which
leases end. Here the observer reads lines instead of events. A manager's lines without a worker
(submissions, cancellations, timeouts) are a group of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, ClassVar, Final

from attrs import define, field

from wmp.actions import JOINED
from wmp.checks.job_history import History
from wmp.checks.observer import Observer
from wmp.core.manager.requeue import CONNECTION_ENDED, REFUSED, SEPARATED, SILENCE, UNACKNOWLEDGED
from wmp.core.manager.store_writes import FIRST_UNSTORED
from wmp.core.protocol.settings import ManagerSettings
from wmp.events import FIRST_FORWARDED, Ticked, Undelivered
from wmp.message import Columns, Command, Field, Message, Peer
from wmp.spark.folds.facts import ProcessKey
from wmp.spark.folds.number_fold import UNACCEPTED
from wmp.spark.folds.process_fold import ProcessFold, jobs_of
from wmp.spark.journals.lines import LineRow

_BY_MESSAGE: Final = frozenset({
    "the worker forgot this manager", "the worker serves another manager of this identity",
})  # fmt: skip
"""Causes of lost leases that only a message has."""
_CAUSES: Final = frozenset({
    SILENCE, CONNECTION_ENDED, REFUSED, SEPARATED, UNACKNOWLEDGED, JOINED, "taken over",
    "the worker sent BYE", "the worker restarted",
    *(f"the worker refused {command}" for command in Command.__members__),
})  # fmt: skip
"""Causes of lost leases that a look at the clock may find."""
_COMMANDS: Final = dict(Command.__members__)
_NOBODY: Final = ManagerSettings(identity=b"", epoch=0)
_SLACK: Final = 2
"""Tolerance for rounded times, in µs."""
_SIGNS_OF_LIFE: Final = ("READY", "GIVE")
"""Messages that change no lease."""
_UNSEEN: Final = ("claimed", "after goodbye", "beat")
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


_terms: Final = attrgetter("delay", "timeout", "expires_in", "run_limit", "retries", "codec")
_NO_TERMS: Final = (None,) * 6


@define(eq=False)
class _LeaseRecorder(History):
    """Records the facts that an observer reports to a history, and judges nothing."""

    events: list[tuple[str, int, int, int]] = field(factory=list)

    def granted(
        self, owner: Peer, id: int, attempt: int, worker: Peer, now: float | None = None
    ) -> None:
        self.events.append(("granted", id, attempt, 1))

    def lost(
        self,
        owner: Peer,
        id: int,
        attempt: int,
        *,
        counts: bool = True,
        leaving: bool = False,
        unbegun: bool = False,
    ) -> None:
        self.events.append(("lost", id, attempt, counts * (1 + leaving)))

    def overran(self, owner: Peer, id: int) -> None:
        pass


@define(eq=False)
class ManagerFold(ProcessFold):
    """The state of a manager towards one worker, as its lines show it."""

    side: ClassVar[int] = 0
    _settings: ManagerSettings = field(init=False)
    _peer: Peer = field(init=False)
    _recorder: _LeaseRecorder = field(factory=_LeaseRecorder)
    _observer: Observer = field(init=False)
    _served: dict[ProcessKey, tuple[int, int] | None] = field(factory=dict)
    """The times of the first and last READY or GIVE that was not ignored, by worker."""
    _credit: dict[int | None, list[int]] = field(factory=dict)
    """Credit of the last READY and the jobs of the WAKEs since then, by epoch of the worker."""
    _offers: dict[int | None, LineRow] = field(factory=dict)
    """The last READY, by epoch of the worker."""
    _numbers: dict[int | None, list[int]] = field(factory=dict)
    """The greatest number of a READY and of a lock that came, by epoch of the worker."""
    _granting: tuple[int, int, str] | None = None
    """(n, at, command) of the first WAKE or TAKE since the last PONG with ``standby``."""
    _direct: str | None = None
    """The connection of the last message that came without a device."""
    _foreign: set[ProcessKey] = field(factory=set, init=False)
    """Owners of the jobs that this manager forwards (WMP section 19)."""
    _store: ProcessKey | None = None
    """The store that owns the manager's stored jobs."""

    def __attrs_post_init__(self) -> None:
        max_silence = (self.me.max_silence or _NOBODY.max_silence) * 1e6 - _SLACK
        self._peer = (self.me.node.encode(), self.me.epoch)
        self._settings = ManagerSettings(
            identity=self._peer[0],
            epoch=self.me.epoch,
            max_silence=max_silence,
            reconnect_grace=None,
        )
        self._observer = Observer(self._recorder)

    def step(self, lines: Sequence[LineRow]) -> None:
        """Fold the lines of one step."""
        # The errors of jobs that end in this step are not tried again.
        self._observer.ended = {job for x in lines if x.what == "resolve" for job in x.ids or ()}
        for line in lines:
            if line.command is not None and line.command not in _COMMANDS:
                continue  # a command of a later release
            if line.passed and line.what == "send":
                self._foreign.add((line.owner, line.owner_epoch or 0))
            elif self._is_foreign(line):
                pass
            elif line.owner is not None and line.owner != line.node:
                self._store = line.owner, line.owner_epoch or 0
            match line.what:
                case "received":
                    self._received(line)
                case "send":
                    self._sent(line)
                case "resolve":
                    self._resolved(line, lines[0])
                case "note":
                    self._note(line, lines[0])
                case "submitted":
                    terms = None if (some := _terms(line)) == _NO_TERMS else some
                    waited = line.each(line.since_call)
                    for job, since in zip(line.ids or (), waited, strict=True):
                        self._fact(
                            line, "submitted", self._owner(line, job), job,
                            value=line.max_worker_losses, session=since, number=_due(line),
                            other=line.priority, role=line.role, text=line.needs, terms=terms,
                        )  # fmt: skip
                case "disconnected":
                    row = (line.node, line.epoch, line.link, line.at, line.n)
                    self.sink.add("partings", (*row, None, None, None, None))
                case "drop":
                    self._check_drop(line, lines[0])
                case "notify" if max(line.ids or (0,)) < FIRST_FORWARDED:
                    for job in line.ids or ():
                        self._fact(line, "notified", self._owner(line, job), job)
                case "cancelled" | "decline":
                    event = "asked" if line.what == "cancelled" else "declined"
                    for job in line.ids or ():
                        self._fact(line, event, self._owner(line, job), job)
                case "leased" | "returned":
                    self._other_protocol(line)
                case "undelivered" if line.target is not None:
                    self._check_undelivered(line)
                    self._observe(line, Undelivered(0, self._message(line)))
            self._end_leases(line)

    def _other_protocol(self, line: LineRow) -> None:
        """Add the facts of leases of workers that speak another protocol."""
        outcomes, leased = line.outcomes, line.what == "leased"
        for job, attempt, outcome in jobs_of(line, outcomes):
            self._fact(
                line, "granted" if leased else "arrived", self._owner(line, job), job, attempt,
                line.about_peer, line.about_epoch, 1 if leased else outcome, role=line.role,
            )  # fmt: skip

    def finish(self) -> None:
        """Report which workers were served, and from when to when."""
        for worker, times in self._served.items():
            both = (self.me.node, self.me.epoch, *worker)
            self.sink.bound(0, "shares", *both)
            if times is not None:
                self.sink.bound(-times[0], "served", *both, "first")
                self.sink.bound(times[1], "served", *both, "last")

    def _is_foreign(self, line: LineRow) -> bool:
        """Return whether a line is about jobs that this manager forwards."""
        return bool(self._foreign) and (line.owner, line.owner_epoch or 0) in self._foreign

    def _fact(
        self, line: LineRow, event: str, owner: ProcessKey, job: int, *rest: Any, **more: Any
    ) -> None:
        # The facts of a forwarded job are those of its lease above: no job counts twice.
        if not self._foreign or owner not in self._foreign:
            ProcessFold._fact(self, line, event, owner, job, *rest, **more)

    def _owner(self, line: LineRow, job: int) -> ProcessKey:
        if self._is_foreign(line):
            return line.owner, line.owner_epoch or 0
        stored = self._store is not None and job < FIRST_UNSTORED
        return self._store if stored else (line.node, line.epoch)  # type: ignore[return-value]

    # -- messages

    def _received(self, line: LineRow) -> None:
        self._check_received(line)
        if line.command in _SIGNS_OF_LIFE:
            numbers = self._numbers.setdefault(line.source_epoch, [0, 0])
            numbers[0] = max(numbers[0], line.ready or 0)
            numbers[1] = max(numbers[1], line.lock or 0)
        if line.source is None or line.reason in _UNSEEN:
            return
        worker, command = (line.source, line.source_epoch or 0), line.command
        if not line.hops:
            self._direct = line.link
        if command in _SIGNS_OF_LIFE:
            first, last = self._served.setdefault(worker, None) or (line.at, line.at)
            if line.reason is None:
                self._served[worker] = (min(first, line.at), max(last, line.at))
                if command == "READY":
                    self._credit[line.source_epoch] = [line.credit or 0, 0]
                    self._offers[line.source_epoch] = line
        if line.target is not None and (line.target, line.target_epoch) != (line.node, line.epoch):
            return
        if command == "DONE" and line.reason not in UNACCEPTED:
            owner = (line.owner, line.owner_epoch)
            own = ((line.node, line.epoch), (None, None), self._store)
            if owner in own or self._is_foreign(line):
                waits = line.each(line.waits)
                for (job, attempt, outcome), wait in zip(
                    jobs_of(line, line.outcomes), waits, strict=True
                ):
                    self._fact(
                        line, "arrived", self._owner(line, job), job, attempt, line.source,
                        line.source_epoch, outcome, terms=wait,
                    )  # fmt: skip
        if command == "STATUS" and line.reason not in UNACCEPTED:
            for job, attempt, _ in jobs_of(line):
                self._fact(line, "reported", self._owner(line, job), job, attempt)
        if command == "ERROR":
            return  # ERROR is not a sign of life, because a device may have sent it
        self._silence(line)
        if command in _SIGNS_OF_LIFE:
            self._observer.seen(self._peer, (line.source.encode(), worker[1]), line.at)
        else:
            self._observer.received(self._peer, self._message(line), line.at)

    def _silence(self, line: LineRow) -> None:
        """Report a worker that was silent for too long, and kept its leases all the same.

        Whether the manager could notice the silence is checked later, by its other lines.
        """
        contact = self._observer._contacts.get(self._peer, {}).get((line.source or "").encode())
        if contact is None or not contact.leases or contact.epoch != line.source_epoch:
            return
        due = contact.last_message + self._settings.max_silence
        if due < line.at:
            job, (attempt, _) = next(iter(contact.leases.items()))
            silent = (line.at - contact.last_message) / 1e6
            row = (
                self.me.node, self.me.epoch, line.source, line.source_epoch, job, attempt,
                int(due), line.at, line.n, silent,
            )  # fmt: skip
            self.sink.add("silence", row)

    def _sent(self, line: LineRow) -> None:
        if self._is_own(line):
            self._check_sent(line)
            if line.command in ("WAKE", "TAKE"):
                self._granting = self._granting or (line.n, line.at, line.command)
            elif line.command == "PONG":
                self._check_pong(line)
            if line.command == "WAKE":
                self._wake(line)
        if line.target is None:
            return
        if line.session is not None:
            self._observer.sent(self._peer, self._message(line), line.at)
        if line.command == "TAKE":
            new = {event[1:3] for event in self._recorder.events if event[0] == "granted"}
            self._end_leases(line)  # a TAKE that opens a session ends the leases of the old one
            failed = [0] if line.failed is None else line.failed
            times = zip(
                *map(line.each, (line.left, line.expires, line.limits, failed, line.begun)),
                strict=True,
            )
            for (job, attempt, _), columns in zip(jobs_of(line), times, strict=True):
                self._fact(
                    line, "granted", self._owner(line, job), job, attempt, line.target,
                    line.target_epoch, int((job, attempt) in new), number=line.number,
                    other=line.lock, role=line.role, text=line.via,
                    terms=(line.needs, line.codec, *columns),
                )  # fmt: skip
        elif line.command == "CANCEL":
            for job, attempt, _ in jobs_of(line):
                self._fact(
                    line, "cancelling", self._owner(line, job), job, attempt, line.target,
                    line.target_epoch,
                )  # fmt: skip

    def _check_pong(self, line: LineRow) -> None:
        """Check that a PONG has what the manager knows (WMP-9.2)."""
        if line.standby:
            self._on_standby(line)
        ready, lock = self._numbers.get(line.target_epoch, (0, 0))
        if line.target is not None and ((line.ready or 0) > ready or (line.lock or 0) > lock):
            text = (
                f"PONG names READY {line.ready} and lock {line.lock}; the greatest that came from "
                f"{line.target} are {ready} and {lock}"
            )
            self._break(line, "WMP-9.2", text)
        for name, stated in (("max_silence", line.max_silence), ("max_stall", line.max_stall)):
            own = self.me.settings.get(name)
            if own is not None and stated != int(own * 1000) and (stated or name == "max_silence"):
                text = f"PONG has {name} {stated} ms; the manager's is {own} s"
                self._break(line, "WMP-9.2", text)

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
            self._break(line, "WMP-3.4", text)
        offer = self._offers.get(line.target_epoch)
        if offer is None:
            return
        has = offer.resources or {}
        lacks = {name: n for name, n in (line.needs or {}).items() if n > has.get(name, 0)}
        if line.role not in (offer.roles or ()) or lacks:
            text = (
                f"WAKE to {line.target} has role {line.role} and needs {line.needs}; its READY has "
                f"roles {', '.join(offer.roles or ())} and {has}"
            )
            self._break(line, "WMP-3.4", text)

    def _check_cause(self, line: LineRow, event: LineRow) -> None:
        """Check that the reason of a note fits the event of its step, and the silence before."""
        contact = self._observer._contacts.get(self._peer, {}).get((line.about_peer or "").encode())
        silent = contact is not None and (
            contact.last_message + self._settings.max_silence <= line.at
        )
        came = event.what == "received"
        early = line.reason == SILENCE and (came or (contact is not None and not silent))
        strange = silent and not came and line.reason not in _CAUSES and bool(line.ids)
        if (
            early
            or strange
            or (line.reason == CONNECTION_ENDED and came)
            or (line.reason in _BY_MESSAGE and not came)
        ):
            text = f"leases were lost by '{line.reason}', which the step of the note does not show"
            self._break(line, "leases are lost for a cause", text)

    def _note(self, line: LineRow, event: LineRow) -> None:
        self._check_cause(line, event)
        if line.about_peer is not None and line.reason == CONNECTION_ENDED:
            if line.ids and self._direct is not None:
                job, attempt, _ = next(iter(jobs_of(line)))
                self.sink.add("partings", (
                    line.node, line.epoch, self._direct, line.at, line.n, line.about_peer,
                    line.about_epoch, job, attempt,
                ))  # fmt: skip
            # The line `disconnected` names a link, but no worker.
            self._observer.gave_up(self._peer, line.about_peer.encode())
        elif line.about_peer is not None:
            # A note names the cause of ended leases. Only silence ends leases without a message or
            # note; the observer finds silence by the clock.
            self._observe(line, Ticked())
        for job, attempt, _ in jobs_of(line):
            self._fact(
                line, "noted", self._owner(line, job), job, attempt, line.about_peer,
                line.about_epoch, word=line.reason,
            )  # fmt: skip

    def _resolved(self, line: LineRow, event: LineRow) -> None:
        if line.source is not None:
            sender = (event.source, event.source_epoch)
            if event.what != "received" or sender != (line.source, line.source_epoch):
                who = f"{line.source}:{line.source_epoch}"
                text = f"a message of {who} ended the jobs; none came in this step"
                self._break(line, "WMP-6.2", text)
            self._observer.settled(self._peer, line.source.encode(), line.ids or ())
        for job, attempt, end in jobs_of(line, line.ends):
            self._fact(
                line, "resolved", self._owner(line, job), job, attempt, line.source,
                line.source_epoch, word=end,
            )  # fmt: skip

    def _end_leases(self, line: LineRow) -> None:
        """Add the facts of the leases whose end the observer concluded from a line."""
        if self._recorder.events:
            for what, job, attempt, counts in self._recorder.events:
                if what == "lost":
                    owner = self._owner(line, job)
                    self._fact(line, "lost", owner, job, attempt, value=counts)
            self._recorder.events.clear()

    # -- the observer

    def _observe(self, line: LineRow, event: object) -> None:
        ended = self._observer.ended
        self._observer.manager_did(self._settings, event, (), line.at)
        self._observer.ended = ended

    def _message(self, line: LineRow) -> Message:
        """Return the message of a line, as far as the observer reads messages."""
        columns = None
        if line.ids is not None:
            outcomes = None if line.outcomes is None else line.each(line.outcomes)
            columns = Columns(line.ids, line.each(line.attempts), outcomes=outcomes)
        fields: dict[int | str, Any] = {
            Field.SESSION: line.session, Field.NUMBER: line.number, Field.ACK: line.ack or 0,
        }  # fmt: skip
        if line.owner is not None:
            fields[Field.MANAGER] = (line.owner.encode(), line.owner_epoch or 0)
        if line.passed:
            fields[Field.PASSED] = line.passed
        source: Any = self._peer
        to: Any = (line.target_epoch or 0, (line.target or "").encode())
        if line.what == "received":
            source = ((line.source or "").encode(), line.source_epoch or 0)
            to = () if line.target is None else self._peer[::-1]
        return Message(_COMMANDS[line.command or ""], to, source, fields, columns)
