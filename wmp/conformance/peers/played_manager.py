"""A manager that the kit plays, and the rules that its worker must always keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from attrs import define, field

from wmp.conformance.peers.conversation import ReceivedMessage
from wmp.conformance.peers.offered_lock import DoubtfulLock, GivenJob, OfferedLock
from wmp.conformance.peers.played_peer import PlayedPeer
from wmp.conformance.script.case import Broken, Unimplemented
from wmp.conformance.wire.wire import Connection
from wmp.message import Command, Field, Message, Outcome, Peer
from wmp.testing.peers.manager_messages import ManagerMessages

_EARLY = 0.05
"""Units by which a handler may end early, because its clock is fast."""
_MAX_WAIT = 12.0
"""Units in which a job that the worker hands back is granted again."""


@define
class WorkerBook:
    """The knowledge about the worker that all managers of a conversation share."""

    readies: dict[int, tuple[Any, ...]] = field(factory=dict)
    """The content of each READY, by number."""
    last_ready: dict[Connection, int] = field(factory=dict)
    locks: dict[int, OfferedLock] = field(factory=dict)
    """The locks of all managers."""
    resources: Mapping[str, int] = field(factory=dict)
    roles: Sequence[str] = ()
    managers: list[PlayedManager] = field(factory=list)
    doubts: list[DoubtfulLock] = field(factory=list)
    released: bool = False
    """Whether any manager has sent NO."""

    @property
    def windowed(self) -> bool:
        """Whether the worker has reported a window: jobs beyond its resources may wait there."""
        gives = any(manager.windows for manager in self.managers)
        return gives or any(content[1] for content in self.readies.values())

    def decide(self, job: tuple[Peer, int, int], begun: bool) -> None:
        """Judge the doubtful locks, now that it is known whether a job was begun.

        Raises:
            Broken: A lock exceeded the resources (WMP-4.1).
        """
        for doubt in [doubt for doubt in self.doubts if job in doubt.jobs]:
            if begun:
                doubt.begun.add(job)
            else:
                del doubt.jobs[job]
            if not doubt.excess:
                self.doubts.remove(doubt)
            elif doubt.begun >= doubt.jobs.keys():
                raise Broken("WMP-4.1", doubt.text, accused=doubt.line)


@define(eq=False)
class PlayedManager(PlayedPeer, ManagerMessages):
    """A manager that keeps the rules unless the script breaks them."""

    _RULE_OF_ROUTES = "WMP-1.5"

    endpoint: int = 0
    role: str = "echo"
    answers: bool = True
    """Whether the manager answers PING by itself."""
    refuses: bool = False
    """Whether the manager answers every GIVE with NO."""
    locks: dict[int, OfferedLock] = field(factory=dict)
    """The open locks that the worker has for this manager."""
    windows: bool = False
    """Whether any GIVE had a window."""
    given: dict[tuple[Peer, int], GivenJob] = field(factory=dict)
    """Jobs that are not answered yet, by (owner, id)."""
    answered: dict[tuple[Peer, int, int], int] = field(factory=dict)
    """The outcome of each answered job, by (owner, id, attempt)."""
    handed_back: dict[tuple[Peer, int, int], GivenJob] = field(factory=dict)
    """The jobs that the worker has handed back, by (owner, id, attempt)."""
    expected: Counter[tuple[Peer, int, int]] = field(factory=Counter)
    """Number of DONE entries that may still arrive, after CANCEL, for a job that no TAKE
    contained.
    """
    lost: dict[tuple[Peer, int], str] = field(factory=dict)
    """Jobs that must not be answered any more, each with the rule that forbids an answer."""

    def __attrs_post_init__(self) -> None:
        PlayedPeer.__attrs_post_init__(self)
        self.session = self.session or 1

    # -- sending

    def pong(self, **fields: Any) -> None:
        """Send PONG with the remembered state; a field given as None is left out."""
        self.transmit(self.compose_pong(**fields))

    def wake(self, count: int = 1, **fields: Any) -> None:
        """Send WAKE."""
        self.credit = max(0, self.credit - count)
        self.transmit(self.compose_wake(count, **fields))

    def take(
        self,
        lock: int,
        *payloads: bytes,
        left: float | None = None,
        more: bool = False,
        **fields: Any,
    ) -> list[int]:
        """Send TAKE of jobs with these payloads; return the ids of the jobs.

        ``left`` is the time until the deadline of each job, in units.
        """
        payloads = payloads or (b"question",)
        columns_left = None if left is None else [self.talk.ms(left)] * len(payloads)
        message = self.compose_take(
            lock, payloads, left_ms=columns_left, more=more or None, **fields
        )
        assert message.columns is not None
        ids, attempt = list(message.columns.ids), message.columns.attempts[0]
        owner, needs = self.owner_of_jobs, message.fields[Field.NEEDS]
        again = {k: v for k, v in fields.items() if k not in ("ids", "attempt")}
        again["left"] = left
        slow = message.fields[Field.ROLE] == "slow" and message.columns.limits_ms is None
        known = self.locks.get(lock)
        for row, (id, payload) in enumerate(zip(ids, payloads, strict=True)):
            waits = windowed = known is None or known.locked <= 0
            # A job that waits may start on the resources of this lock (WMP-4.2).
            waits = waits or any(job.waits for job in self.given.values())
            if known is not None:
                known.want -= 1
                known.window = min(known.window, known.want)
                if windowed and (other := self._lender(known)) is not None:
                    other.window += 1
                    windowed = False
            self.lost.pop((owner, id), None)
            if (before := self.given.get((owner, id))) is not None:
                # The worker may have answered the earlier attempt before this TAKE arrives.
                self.expected[owner, id, before.attempt] += 1
            lasts = int(payload) / self.talk.wire.unit if slow and payload.isdigit() else 0.0
            until = self.talk.now + lasts - _EARLY
            if before is not None:
                until = min(until, before.until)  # the handler of the earlier attempt may go on
            own = {k: [v[row]] if isinstance(v, list) else v for k, v in again.items()}
            job = GivenJob(id, attempt, payload, windowed, needs, own, waits, until=until)
            self.given[owner, id] = job
        if known is not None and not (more and known.want > 0):
            self._close(lock)
        self.transmit(message)
        return ids

    def _lender(self, lock: OfferedLock) -> OfferedLock | None:
        """Find another lock whose resources may start a job that waits in the window (WMP-4.2)."""
        others = (other for other in self.locks.values() if other is not lock and other.locked)
        return next((other for other in others if other.needs == lock.needs), None)

    def expects(self, id: int, payload: bytes) -> None:
        """Expect an answer to this job: the script is about to send its TAKE as raw bytes."""
        self.given[self.peer, id] = GivenJob(id, 1, payload, True, {"slots": 1})
        for number in list(self.locks):
            self._close(number)

    def no(self, lock: int, **fields: Any) -> None:
        """Send NO."""
        self._book.released = True
        self._close(lock)
        self.transmit(self.compose_no(lock, **fields))

    def cancel(self, *ids: int, attempt: int = 1, **fields: Any) -> None:
        """Send CANCEL."""
        owner = self.owner_of_jobs
        for id in ids:
            # One answer for a job that is not held; and a second answer if a DONE and the CANCEL
            # cross (WMP-6.10).
            self.expected[owner, id, attempt] += 1
            if (held := self.given.get((owner, id))) is not None:
                held.cancelled = held.cancelled or held.attempt == attempt
                held.until = -inf  # the worker may interrupt the handler at once
        self.transmit(self.compose_cancel(ids, attempt, **fields))

    def new_session(self) -> None:
        """Begin another session; jobs and locks of the old session are lost (WMP-7.6)."""
        self.settle()  # let messages of the old session arrive first
        session = self.session + 1
        self._lose("WMP-7.6")
        self.forget_session()
        self.session = session
        self.ready = self.credit = 0

    def lose(self, rule: str, *ids: int) -> None:
        """Forbid answers to these jobs, because of ``rule``."""
        for id in ids:
            self.given.pop((self.owner_of_jobs, id), None)
            self.lost[self.owner_of_jobs, id] = rule

    def arrive(self) -> None:
        start = len(self.received_all)
        self.pong()
        self.followed(start)

    def restart(self) -> None:
        self.settle()  # let messages to the older epoch arrive first
        self._lose("WMP-9.7")
        self.ready = self.credit = self.last_lock = 0
        PlayedPeer.restart(self)
        self.session = 1

    # -- whole flows

    def meet(self, rule: str = "WMP-3.1") -> ReceivedMessage:
        """Wait for READY, and let the worker receive PONG; return the READY."""
        patience = max(self.talk.wire.grace, self.talk.wire.patience)
        ready = self.expect(Command.READY, within=patience, rule=rule)
        self.pong()
        self.talk.settle()
        return ready

    def woken(
        self, count: int = 1, *, role: str = "echo", within: float | None = None
    ) -> OfferedLock:
        """Send WAKE, and NO to every held GIVE; wait for the GIVE that answers the WAKE."""
        before, start = list(self.locks), len(self.received_all)
        self.wake(count, role=role)
        for number in before:
            self.no(number)
        received = self.wait_for(Command.GIVE, within=within, where=self.is_open)
        if received is not None:
            return self.locks[received["lock"]]
        what = "the worker has capacity and received WAKE"
        if not self._book.released:
            return self.lock(0.0, "WMP-3.8", what)
        # A worker that has capacity reports it now (WMP-3.13), unless it kept the locks after NO.
        postponed = any(received["credit"] == 0 for received in self.received_all[start:])
        self.pong(ready=None)
        pong_line = len(self.talk.lines) - 1
        free = self.wait_for(
            Command.READY,
            Command.GIVE,
            where=lambda answer: (
                answer.line >= pong_line and bool(answer["credit"] or answer["want"])
            ),
        )
        rule = "WMP-4.10" if free is None else "WMP-3.9" if postponed else "WMP-3.8"
        return self.lock(0.0, rule, f"{what}, and NO released its locks")

    def lock(self, within: float | None = None, rule: str = "", what: str = "") -> OfferedLock:
        """Wait for an open GIVE.

        Raises:
            Broken: No such GIVE arrived.
        """
        received = self.expect(
            Command.GIVE, within=within, where=self.is_open, rule=rule, what=what
        )
        return self.locks[received["lock"]]

    def is_open(self, received: ReceivedMessage) -> bool:
        """Return whether the message is a GIVE that wants jobs and is still open."""
        asks = received.command is Command.GIVE and bool(received["want"])
        return asks and received["lock"] in self.locks

    def retire(self) -> None:
        """Send no more jobs: answer NO to every open GIVE and to every later GIVE."""
        self.refuses = True
        for number in list(self.locks):
            self.no(number)

    def run(self, *payloads: bytes, role: str = "echo", **fields: Any) -> list[int]:
        """Send WAKE, and TAKE under the lock that the worker offers; return the jobs' ids."""
        lock = self.woken(len(payloads) or 1, role=role)
        return self.take(lock.number, *payloads, role=role, **fields)

    def done_of(
        self,
        id: int,
        outcome: int | None = 0,
        *,
        within: float | None = None,
        rule: str = "",
        what: str = "",
    ) -> bytes:
        """Wait for the answer to a job; return its payload.

        If the worker hands the job back (WMP-6.18), the job is granted again, unless the script
        expects this outcome or accepts every outcome.

        Raises:
            Broken: No answer arrived, or an answer with another outcome.
            Unimplemented: The worker hands the job back, and does not begin it.
        """
        rule = rule or "WMP-6.6"
        until = self.talk.now + _MAX_WAIT
        while True:
            received = self.expect(
                Command.DONE,
                within=within,
                where=lambda done: id in [job for job, _ in done.jobs] and id not in done.taken,
                handed_back=True,
                rule=rule,
                what=what or f"the worker must answer job {id}",
            )
            row = [job for job, _ in received.jobs].index(id)
            received.taken.add(id)
            if not received.taken.issuperset(job for job, _ in received.jobs):
                self.inbox.append(received)  # the script may ask for the other jobs of this DONE
            key = tuple(received["manager"]), *received.jobs[row]
            cancelled = received.outcomes[row] == Outcome.CANCELLED
            if outcome in (None, Outcome.CANCELLED) or not cancelled or key not in self.handed_back:
                break
            self._grant_again(self.handed_back[key], key[0], until)
        if outcome is not None and received.outcomes[row] != outcome:
            raise Broken(
                rule,
                f"job {id} ended as {_word(received.outcomes[row])}; expected {_word(outcome)}",
                accused=received.line,
            )
        return received.payloads[row]

    def _grant_again(self, job: GivenJob, owner: Peer, until: float) -> None:
        """Grant a job that the worker has handed back.

        Raises:
            Unimplemented: The worker offers no lock for the job in time.
        """
        talk = self.talk
        role = job.fields.get("role", self.role)
        talk.wait(0.1)  # so that the kit ends if a worker hands each job back at once
        talk.remark(f"job {job.id} was handed back, and is granted again")
        lock = self._offered(until, role) if owner == self.owner_of_jobs else None
        if lock is None:
            talk.unimplemented(f"the worker hands job {job.id} back, and does not begin it")
            return
        self.take(lock.number, job.payload, ids=[job.id], attempt=job.attempt + 1, **job.fields)

    def _offered(self, until: float, role: str) -> OfferedLock | None:
        """Return an open lock for a job, and send WAKE for it; None if there is none in time."""
        while (left := until - self.talk.now) > 0:
            locks = [lock for lock in self.locks.values() if lock.want and role in lock.roles]
            if locks:
                return max(locks, key=lambda lock: lock.locked > 0)
            if self.credit:
                self.wake(1, role=role)
            self.wait_for(Command.GIVE, within=min(1.0, left))
        return None

    def echoes(self, rule: str = "WMP-10.1", within: float = 4.0) -> None:
        """Check that the worker still answers a job."""
        talk = self.talk
        lock = self._offered(talk.now + within, self.role)
        if lock is None:
            text = f"{self.name} received no GIVE within {within:g} units, although it sent WAKE"
            raise Broken(rule, text)
        (id,) = self.take(lock.number, b"still there?")
        try:
            answer = self.done_of(id, within=max(within, talk.wire.grace), rule=rule)
        except Unimplemented as reason:
            raise Broken(rule, f"{reason}; expected ok") from None
        talk.check(
            answer == b"still there?",
            f"the result of role echo is {answer!r}; expected the payload",
            rule,
        )

    # -- receiving

    def is_for(self, connection: Connection, message: Message) -> bool:
        if connection.side != "taken" or connection.endpoint != self.endpoint:
            return False
        return not message.to or message.to[::-1] in self._paths

    def understand(self, received: ReceivedMessage) -> None:
        self.connection = received.connection
        match received.command:
            case Command.READY:
                self._ready(received)
            case Command.GIVE:
                self._gave(received)
            case Command.DONE:
                if not received.again:
                    self._done(received)
                received.hands_back = self._hands_back(received)
            case Command.PING:
                if self.answers:
                    self.pong(answer=received["challenge"])
            case Command.STATUS | Command.BYE | Command.ERROR:
                pass
            case _:
                raise Broken(
                    "WMP-10.4",
                    f"the worker sent {received.command.name}, which is a command of managers",
                )

    @property
    def _book(self) -> WorkerBook:
        book: WorkerBook = self.talk.book
        return book

    def _ready(self, received: ReceivedMessage) -> None:
        """Check that READY numbers grow and that one number has one content (WMP-3.2)."""
        number, book = received["ready"], self._book
        content = (received["credit"], received["window"], received["roles"], received["resources"])
        if book.readies.setdefault(number, content) != content:
            raise Broken(
                "WMP-3.2", f"two READYs of number {number} differ; expected the same content"
            )
        if number < book.last_ready.get(received.connection, 0):
            raise Broken(
                "WMP-3.2",
                f"READY {number} came after a READY with a greater number on one connection",
            )
        book.last_ready[received.connection] = number
        if book.resources and received["resources"] != book.resources:
            raise Broken(
                "WMP-3.1", "READY names other resources than an earlier READY; expected the same"
            )
        book.resources, book.roles = received["resources"], received["roles"]
        if number > self.ready:
            self.ready, self.credit = number, received["credit"]

    def _gave(self, received: ReceivedMessage) -> None:
        """Check that lock numbers grow, and that locks fit into the resources (WMP-4.1)."""
        number, want, book = received["lock"], received["want"], self._book
        if not want:
            if number not in book.locks:
                raise Broken(
                    "WMP-4.1",
                    f"GIVE withdraws lock {number}, for which the worker sent no GIVE before",
                )
            if number in self.locks and self.answers:
                self.no(number)  # WMP-4.5
            return
        if book.locks and number <= max(book.locks):
            raise Broken(
                "WMP-4.1",
                f"lock {number} came after lock {max(book.locks)}; expected growing numbers",
            )
        hold = (received["hold"] or 0) / self.talk.wire.unit
        window = received["window"] or 0
        if window > want:
            raise Broken(
                "WMP-4.2", f"GIVE has window {window} and want {want}; expected a window up to want"
            )
        self.windows = self.windows or window > 0
        lock = OfferedLock(
            number, want, window, received["roles"], received["needs"], hold, received.at
        )
        self.last_lock = max(self.last_lock, number)
        book.locks[number] = self.locks[number] = lock
        self._check_resources(received)
        if self.refuses and not self.talk.over:
            self.no(number)

    def _check_resources(self, give: ReceivedMessage) -> None:
        """Check that locks and running jobs together fit into the resources (WMP-4.1)."""
        book, now = self._book, self.talk.now
        for name, total in book.resources.items():
            locked = 0
            jobs: dict[tuple[Peer, int, int], int] = {}
            for manager in book.managers:
                manager.drop_timed_out()
                each = [lock.locked * lock.needs.get(name, 0) for lock in manager.locks.values()]
                # With a window, a lock may lend its resources to a job that waits for another lock
                # of the same manager. Jobs of the lending lock then wait in the window.
                locked += max(each, default=0) if manager.windows else sum(each)
                jobs |= {
                    (owner, id, job.attempt): job.needs.get(name, 0)
                    for (owner, id), job in manager.given.items()
                    if not job.windowed and now < job.until
                }
            if locked > total:
                raise Broken(
                    "WMP-4.1",
                    f"the worker has locked {locked} {name}; expected at most {total}, its total",
                )
            doubt = DoubtfulLock(give["lock"], give.line, name, total, locked, jobs)
            if doubt.excess:
                book.doubts.append(doubt)

    def _done(self, received: ReceivedMessage) -> None:
        """Check that each job is answered once, by owner, id and attempt (WMP-6.6)."""
        owner: Peer = tuple(received["manager"])
        for (id, attempt), outcome in zip(received.jobs, received.outcomes, strict=True):
            key = owner, id, attempt
            held = self.given.get((owner, id))
            if held is not None and held.attempt == attempt:
                cancelled = outcome == Outcome.CANCELLED and not held.cancelled
                if cancelled and held.waits and self._book.windowed:
                    self.handed_back[key] = held
                del self.given[owner, id]
            elif self.expected[key]:
                self.expected[key] -= 1
            elif (owner, id) in self.lost:
                rule = self.lost[owner, id]
                raise Broken(
                    rule,
                    f"the worker answered job {id}; expected no DONE, because the job was given up",
                )
            elif key in self.answered:
                raise Broken(
                    "WMP-6.6",
                    f"the worker answered job {id}, attempt {attempt}, twice; expected once",
                )
            elif any((owner, id) in other.given for other in self._book.managers):
                raise Broken(
                    "WMP-6.6", f"DONE of job {id} names a wrong attempt, or went to a wrong manager"
                )
            else:
                raise Broken(
                    "WMP-6.6",
                    f"DONE names job {id}, attempt {attempt}, of {owner!r}, which no TAKE "
                    "contained",
                )
            self.answered[key] = outcome
            self._book.decide(key, outcome not in (Outcome.REFUSED, Outcome.CANCELLED))

    def _hands_back(self, done: ReceivedMessage) -> bool:
        """Return whether each entry of a DONE hands a job back."""
        owner: Peer = tuple(done["manager"])
        keys = [(owner, id, attempt) for id, attempt in done.jobs]
        cancelled = set(done.outcomes) == {Outcome.CANCELLED}
        return cancelled and self.handed_back.keys() >= set(keys)

    def drop_timed_out(self) -> None:
        """Forget the locks and jobs that the worker has given up by now (WMP-4.11, 9.14)."""
        if self.last_sent + self.max_silence <= self.talk.now + 1e-6:
            self._lose("WMP-9.14")
        for lock in list(self.locks.values()):
            if self.talk.now >= lock.at + lock.hold + 5.0 - self.talk.wire.grace - 1e-6:
                self._close(lock.number)

    def _close(self, number: int) -> None:
        lock = self.locks.pop(number, None)
        if lock is not None:
            lock.open = False

    def _lose(self, rule: str) -> None:
        for number in list(self.locks):
            self._close(number)
        kept = {} if self.keep is None else dict(self.given)  # these jobs go on (WMP-14.5)
        lost = {} if kept else self.given
        self.lost.update(dict.fromkeys(lost, rule))
        for (owner, id), job in lost.items():
            self._book.decide((owner, id, job.attempt), begun=False)
        self.given = kept
        self.answered.clear()
        self.expected.clear()


def _word(outcome: int) -> str:
    """Return the name of an outcome, and the number of an unknown one."""
    return Outcome(outcome).name.lower() if outcome in list(Outcome) else f"outcome {outcome}"
