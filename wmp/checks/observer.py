"""Watches machines from outside, and records facts about jobs in a history.

The observer reads events and actions, and never the state of a machine. From the messages that a
manager received it concludes which leases may end, by the causes that the specification names
(WMP-6.4).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import chain

from attrs import define, field

from wmp.actions import Drop, Resolve, Send
from wmp.checks.canonical import DOWN, UP, Outline, Pen
from wmp.checks.job_history import History
from wmp.checks.time_facts import TimeFacts
from wmp.core.protocol.settings import ManagerSettings
from wmp.events import Cancelled, Disconnected, Received, Submitted, Ticked, Undelivered
from wmp.message import Columns, Command, Field, Link, Message, Outcome, Path, Peer


@define(eq=False)
class _Contact:
    """One worker, as its manager knows the worker."""

    epoch: int
    last_message: float
    link: Link | None = None
    """The link of the worker's first message; None when a device stands between."""
    parted: float | None = None
    """When the connection of that message ended; None while it is open."""
    claims: set[tuple[Link, Path]] = field(factory=set)
    """The routes of messages that the manager dropped as claims, and may still admit."""
    session: int = 0
    number: int = 0
    """Highest number sent in the session."""
    received: int = 0
    """Highest number received in order."""
    errors: dict[int, tuple[int, int | None]] = field(factory=dict)
    """Attempt and wait of jobs whose error or overrun arrived in this step."""
    leases: dict[int, tuple[int, int]] = field(factory=dict)
    """(attempt, number of its TAKE) of each leased job, by job."""
    needs: dict[int, Mapping[str, int]] = field(factory=dict)
    """The needs of each leased job."""
    ready: int = 0
    """Number of the remembered READY; 0 for none."""
    resources: Mapping[str, int] = field(factory=dict)
    """The resources in that READY."""
    window: int = 0
    """The greatest window of all READYs and GIVEs."""
    grown: bool = False
    """Whether leases were granted in this step."""
    sends: dict[int, int] = field(factory=dict)
    """How often each TAKE with leases was sent, by number. A TAKE that the manager's own socket
    refused at first does not count; 2 means two or more."""
    single: set[int] = field(factory=set)
    """Numbers of the TAKEs of one job."""


@define(eq=False)
class Observer:
    """Turns the events and actions of nodes into facts of a history."""

    history: History
    ended: Container[int] = ()
    """Jobs that end in this step. Their errors cause no further attempt."""
    _contacts: dict[Peer, dict[bytes, _Contact]] = field(factory=dict)
    _forwarded: dict[Peer, set[Peer]] = field(factory=dict)
    """Owners of the jobs that each manager forwarded. Their histories are those of the owners."""

    def manager_did(
        self, settings: ManagerSettings, event: object, actions: Sequence[object], now: float
    ) -> None:
        """Record an event of a manager and its actions; ``now`` is on the manager's own clock."""
        me: Peer = (settings.identity, settings.epoch)
        contacts = self._contacts.setdefault(me, {})
        sender: Peer | None = None
        _admit(contacts, actions, now)
        ends = [action.ids for action in actions if isinstance(action, Resolve)]
        if ends:
            self.ended = set(chain(*ends))
        if isinstance(event, Received):
            message = event.message
            sender = message.sender
            contact = contacts.get(sender[0])
            if (not message.to or message.to == me[::-1]) and not _unheeded(actions):
                self._read(me, contacts, event.link, message, now)
            elif contact is not None and _dropped(actions, "claimed"):
                contact.claims.add((event.link, message.answer_to))
            if contact is not None and _dropped(actions, "rival"):  # WMP-15.8
                self._forget(me, contact)
        elif isinstance(event, Undelivered):
            self._returned(contacts, event.message)
        elif isinstance(event, Submitted):
            self._submitted(me, event, now)
        elif isinstance(event, Cancelled):
            for id in event.ids:
                self.history.cancelled(me, id)
        elif isinstance(event, Disconnected):
            for contact in contacts.values():
                if contact.link == event.link:
                    contact.parted = now
        elif isinstance(event, Ticked):
            grace = settings.reconnect_grace
            for contact in contacts.values():
                parted = contact.parted
                if contact.last_message + settings.max_silence <= now or (
                    grace is not None and parted is not None and parted + grace <= now
                ):
                    self._forget(me, contact, leaving=False)
        sent = [action.message for action in actions if isinstance(action, Send)]
        for message in sent:
            # Jobs of an ended session may be granted before the first message of the next session.
            self._enter(me, contacts, message, now)
        for action in actions:
            if isinstance(action, Send):
                self._sent(me, contacts, action.message, now)
            elif isinstance(action, Resolve):
                rows = zip(action.ids, action.ends, action.payloads, action.attempts, strict=True)
                for id, end, payload, attempt in rows:
                    self.history.resolved(me, id, end, bytes(payload), attempt, sender, now)
                for identity in contacts if sender is None else (sender[0],):
                    self.settled(me, identity, action.ids)
        if isinstance(event, Received) and sender is not None and sender[0] in contacts:
            self._tried_again(me, contacts[sender[0]], now)
        self.ended = ()
        for identity, contact in contacts.items():
            if contact.grown:  # the leases that ended in this step no longer count
                self._weigh(me, (identity, contact.epoch), contact)

    def _submitted(self, me: Peer, event: Submitted, now: float) -> None:
        """Record the times of submitted jobs."""
        begin = now + event.delay
        for id in event.ids:
            if event.timeout is not None:
                self.history.limited(me, id, begin + event.timeout)
            if event.delay or event.expires or event.run_limit or event.retry:
                expires_at = None if event.expires is None else begin + event.expires
                limited = event.run_limit is not None
                self.history.timed(me, id, TimeFacts(begin, expires_at, limited, event.retry))

    def _tried_again(self, me: Peer, contact: _Contact, now: float) -> None:
        """Record the errors of this step after which their jobs did not end."""
        errors, contact.errors = contact.errors, {}
        for id, (attempt, wait) in errors.items():
            lease = contact.leases.get(id)
            # The attempt ended with ERROR; an overrun has ended it already.
            if lease is not None and lease[0] == attempt:
                self._over(me, contact, id, counts=False)
            if id in self.history.open.get(me, ()):
                self.history.failed(me, id, attempt, now, wait)

    def settled(self, me: Peer, identity: bytes, ids: Sequence[int]) -> None:
        """Record that a message of a worker ended these jobs, and the worker's leases of them."""
        contact = self._contacts.get(me, {}).get(identity)
        if contact is not None:
            for id in ids:
                contact.leases.pop(id, None)
                contact.needs.pop(id, None)
            self._tidy(contact)

    def worker_did(self, me: Peer, event: object, actions: Sequence[object], now: float) -> None:
        """Record an event of a worker and its actions; ``now`` is on the worker's own clock."""
        if isinstance(event, Received) and event.message.command is Command.TAKE:
            self._taken(me, event.message, now)
        for action in actions:
            if isinstance(action, Send) and action.message.command is Command.DONE:
                message = action.message
                columns = message.columns
                assert columns is not None
                owner: Peer = tuple(message.fields[Field.MANAGER])
                for id, attempt, outcome in _rows(columns):
                    self.history.answered(me, owner, id, attempt, outcome)

    def _taken(self, me: Peer, message: Message, now: float) -> None:
        """Record the time until which the jobs of a TAKE may begin."""
        columns = message.columns
        assert columns is not None
        owner: Peer = tuple(message.fields[Field.MANAGER])
        rows = zip(columns.ids, columns.attempts, columns.expires_ms or (), strict=False)
        for id, attempt, ms in rows:
            if ms is not None:
                self.history.begin_by(me, owner, id, attempt, now + ms / 1000)

    def seen(self, me: Peer, worker: Peer, now: float) -> None:
        """Record a message of a worker that is only a sign of life."""
        self._meet(me, self._contacts.setdefault(me, {}), worker, now)

    def received(self, me: Peer, message: Message, now: float) -> None:
        """Record a message of a worker whose actions are recorded by other calls."""
        contacts = self._contacts.setdefault(me, {})
        self._read(me, contacts, 0, message, now)
        if message.sender[0] in contacts:
            self._tried_again(me, contacts[message.sender[0]], now)

    def sent(self, me: Peer, message: Message, now: float) -> None:
        """Record a message that a manager sent."""
        contacts = self._contacts.setdefault(me, {})
        self._enter(me, contacts, message, now)
        self._sent(me, contacts, message, now)

    def gave_up(self, me: Peer, identity: bytes) -> None:
        """Record that a manager gave a worker up because its connection ended (WMP-9.16)."""
        contact = self._contacts.get(me, {}).get(identity)
        if contact is not None:
            self._forget(me, contact, leaving=False)

    def died(self, owner: Peer) -> None:
        """Record that a manager's process ended."""
        self._contacts.pop(owner, None)
        self.history.died(owner)

    def _meet(
        self, me: Peer, contacts: dict[bytes, _Contact], worker: Peer, now: float
    ) -> _Contact:
        """Record a sign of life of a worker."""
        identity, epoch = worker
        contact = contacts.get(identity)
        if contact is None:
            contact = contacts[identity] = _Contact(epoch, now)
        elif epoch != contact.epoch:
            self._forget(me, contact)
            contact.epoch, contact.window = epoch, 0
        contact.last_message, contact.parted = now, None
        return contact

    def _read(
        self, me: Peer, contacts: dict[bytes, _Contact], link: Link, message: Message, now: float
    ) -> None:
        """Record the changes of a worker's leases that its message causes."""
        if message.command is Command.ERROR:
            return  # ERROR is not a sign of life, because a device may have sent it
        contact = self._meet(me, contacts, message.sender, now)
        if Field.BEAT in message.fields:
            return  # another connection spoke for the worker (WMP-9.18)
        contact.link = None if message.hops else link
        command, fields, columns = message.command, message.fields, message.columns
        if command in (Command.READY, Command.GIVE):
            contact.window = max(contact.window, fields.get(Field.WINDOW, 0))
        if command is Command.READY and fields.get(Field.READY, 0) > contact.ready:
            contact.ready, contact.resources = fields[Field.READY], fields[Field.RESOURCES]
        elif command is Command.BYE:
            self._forget(me, contact)
        elif command is Command.PING and message.to:
            session = fields.get(Field.SESSION)
            if session is None and Field.ANSWER not in fields:
                self._lose(me, contact)
            elif Field.MANAGER in fields:
                pass  # the list is about the jobs of one owner, and the observer knows no owners
            elif columns is not None and session == contact.session:
                held, ack = set(columns.ids), fields.get(Field.ACK, 0)
                for id, (_, number) in tuple(contact.leases.items()):
                    if number <= ack and id not in held:
                        self._over(me, contact, id, leaving=True)
        elif command is Command.DONE or command is Command.STATUS:
            if fields[Field.SESSION] != contact.session:
                return
            if fields[Field.NUMBER] != contact.received + 1:
                return
            contact.received += 1
            if tuple(fields[Field.MANAGER]) in self._forwarded.get(me, ()):
                return
            assert columns is not None
            waits = columns.waits_ms or [None] * len(columns.ids)
            texts = columns.texts or [None] * len(columns.ids)
            for (id, attempt, outcome), wait, text in zip(
                _rows(columns), waits, texts, strict=False
            ):
                lease = contact.leases.get(id)
                if lease is not None and lease[0] == attempt:
                    fails = outcome == Outcome.ERROR or outcome == Outcome.OVERRUN
                    if fails and id not in self.ended:
                        contact.errors[id] = attempt, wait
                    self.history.wished(me, id, wait)
                    if outcome == Outcome.OVERRUN:
                        self.history.overran(me, id)
                if outcome > Outcome.ERROR and lease is not None and lease[0] == attempt:
                    handed_back = outcome == Outcome.CANCELLED and text is None
                    self._over(
                        me,
                        contact,
                        id,
                        counts=outcome == Outcome.LOST,
                        unbegun=outcome == Outcome.REFUSED or handed_back,
                    )

    def _enter(
        self, me: Peer, contacts: dict[bytes, _Contact], message: Message, now: float
    ) -> None:
        """Record the new session of a manager's message; the leases of the old session are lost."""
        session = message.fields.get(Field.SESSION)
        if session is None or message.receiver is None:
            return
        contact = contacts.get(message.receiver)
        if contact is None:
            contact = contacts[message.receiver] = _Contact(message.to[-2], now)  # type: ignore[arg-type]
        if session > contact.session:
            # Another process may hold the identity now, because its claim was admitted.
            self._lose(me, contact)
            if contact.epoch != message.to[-2]:
                contact.epoch = message.to[-2]  # type: ignore[assignment]
                contact.ready = contact.window = 0
                contact.last_message, contact.parted, contact.link = now, None, None
                contact.claims.clear()
            contact.session, contact.number, contact.received = session, 0, 0
            contact.single.clear()
        if message.command is Command.PONG and Field.READY not in message.fields:
            contact.ready = 0  # a new session may forget READY, and PONG then names none (WMP-7.5)

    def _sent(
        self, me: Peer, contacts: dict[bytes, _Contact], message: Message, now: float
    ) -> None:
        """Record the leases that a message of a manager grants."""
        number = message.fields.get(Field.NUMBER)
        if number is None or message.receiver is None:
            return
        contact = contacts.get(message.receiver)
        if contact is None or message.fields.get(Field.SESSION) != contact.session:
            return
        if number <= contact.number:
            if number in contact.sends:
                contact.sends[number] = min(contact.sends[number] + 1, 2)
            if message.command is Command.NO:  # NO may replace a refused TAKE (WMP-7.11)
                for id in [id for id, lease in contact.leases.items() if lease[1] == number]:
                    self._over(me, contact, id, counts=number in contact.single)
            return
        contact.number = number
        columns = message.columns
        if Field.PASSED in message.fields:
            self._forwarded.setdefault(me, set()).add(tuple(message.fields[Field.MANAGER]))
        elif message.command is Command.TAKE and columns is not None:
            worker: Peer = (message.receiver, contact.epoch)
            for id, attempt in zip(columns.ids, columns.attempts, strict=True):
                self.history.granted(me, id, attempt, worker, now)
                contact.leases[id] = (attempt, number)
                # The messages that the pipeline reads have neither needs nor resources.
                contact.needs[id] = message.fields.get(Field.NEEDS, {})
            contact.sends[number] = 1
            if len(columns.ids) == 1:
                contact.single.add(number)
            contact.grown = True

    def _weigh(self, me: Peer, worker: Peer, contact: _Contact) -> None:
        """Compare the needs of a worker's leases with its reported capacity (WMP-4.16)."""
        contact.grown = False
        if not contact.ready or not contact.leases:
            return
        for name, has in contact.resources.items():
            amounts = [contact.needs[id].get(name, 0) for id in contact.leases]
            bound = has + 2 * contact.window * max(amounts)
            self.history.leased(me, worker, name, sum(amounts), bound)

    def _lose(self, me: Peer, contact: _Contact, *, leaving: bool = True) -> None:
        for id in tuple(contact.leases):
            self._over(me, contact, id, leaving=leaving)

    def _forget(self, me: Peer, contact: _Contact, *, leaving: bool = True) -> None:
        """Record that a manager gave a worker up: leases are lost, and READY is forgotten."""
        self._lose(me, contact, leaving=leaving)
        contact.ready = 0

    def _returned(self, contacts: dict[bytes, _Contact], message: Message) -> None:
        """Record that a manager's own socket refused a message."""
        contact = contacts.get(message.receiver or b"")
        if contact is None or message.fields.get(Field.SESSION) != contact.session:
            return
        number = message.fields.get(Field.NUMBER, 0)
        if contact.sends.get(number) == 1:
            contact.sends[number] = 0

    def _over(
        self,
        me: Peer,
        contact: _Contact,
        id: int,
        *,
        counts: bool = True,
        leaving: bool = False,
        unbegun: bool = False,
    ) -> None:
        attempt, number = contact.leases.pop(id)
        del contact.needs[id]
        left = contact.sends.get(number, 1) > 0
        self.history.lost(me, id, attempt, counts=counts and left, leaving=leaving, unbegun=unbegun)
        self._tidy(contact)

    @staticmethod
    def _tidy(contact: _Contact) -> None:
        """Forget the TAKEs without leases, from time to time."""
        if len(contact.sends) <= 8 + 2 * len(contact.leases):
            return
        held = {number for _, number in contact.leases.values()}
        contact.sends = {n: sends for n, sends in contact.sends.items() if n in held}
        contact.single &= held


def outline_of_observer(observer: Observer) -> Outline:
    """Return the outline of an observer and its history.

    Outlines differ for states that differ in possible violations.
    """
    history = observer.history
    pen = Pen()
    contacts = []
    for me, known in sorted(observer._contacts.items()):
        for identity, contact in sorted(known.items()):
            peer = (identity, contact.epoch)
            pen.times.append(contact.last_message)
            if contact.parted is not None:
                pen.times.append(contact.parted)
            pen.number(("session", me), contact.session)
            pen.position((DOWN, me, peer, contact.session), contact.number)
            pen.position((UP, me, peer, contact.session), contact.received)
            leases = []
            for id, (attempt, number) in contact.leases.items():
                pen.position((DOWN, me, peer, contact.session), number)
                leases.append((id, attempt, contact.sends.get(number)))
            parted = contact.parted is not None
            known_by = (contact.session > 0, parted, tuple(sorted(contact.claims)))
            contacts.append((me, peer, *known_by, tuple(leases)))
    for ids in history.jobs.values():
        pen.ahead += [j.deadline for j in ids.values() if j.deadline is not None]
    jobs = [
        (
            owner,
            owner in history.open,
            id,
            job.attempt,
            job.holder,
            job.over,
            job.spent,
            job.unbegun,
            job.cancel_requested,
            job.deadline is not None,
            tuple(job.begun.items()),
            job.end and job.end.value,
        )
        for owner, ids in history.jobs.items()
        for id, job in ids.items()
    ]
    answered = sorted(history._answered.items())
    return pen.outline((tuple(contacts), tuple(jobs), tuple(answered)))


def _unheeded(actions: Sequence[object]) -> bool:
    """Return whether a manager dropped a message because its sender does not hold the identity."""
    return _dropped(actions, "claimed", "after goodbye", "beat")


def _dropped(actions: Sequence[object], *reasons: str) -> bool:
    return any(isinstance(action, Drop) and action.reason in reasons for action in actions)


def _admit(contacts: Mapping[bytes, _Contact], actions: Sequence[object], now: float) -> None:
    """Record the routes that a manager admits: a message of the session goes over the route of a
    claim (WMP-15.6).
    """
    for action in actions:
        if not isinstance(action, Send) or Field.CHALLENGE in action.message.fields:
            continue
        message = action.message
        contact = contacts.get(message.receiver or b"")
        if (
            contact is not None
            and (action.link, message.to) in contact.claims
            and message.fields.get(Field.SESSION) == contact.session
        ):
            contact.last_message, contact.parted = now, None
            contact.claims.clear()
            contact.link = None if len(message.to) > 2 else action.link


def _rows(columns: Columns) -> list[tuple[int, int, int]]:
    outcomes = columns.outcomes or ()  # STATUS has no outcomes
    return list(zip(columns.ids, columns.attempts, outcomes, strict=False))
