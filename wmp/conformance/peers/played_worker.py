"""A worker that the kit plays, and the rules that its manager must always keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from attrs import define, field

from wmp.conformance.peers.conversation import ReceivedMessage
from wmp.conformance.peers.played_peer import PlayedPeer
from wmp.conformance.script.case import Broken
from wmp.message import Columns, Command, Field, Message, Outcome, Path, Peer, counted
from wmp.testing.peers.worker_messages import WorkerMessages


@define
class _Ready:
    """A READY on which the manager may act."""

    number: int
    left: int
    roles: Sequence[str]
    resources: Mapping[str, int]


@define
class _PlayedLock:
    """A GIVE and the jobs that it still wants."""

    left: int
    roles: Sequence[str]
    needs: Mapping[str, int]
    due: float
    open: bool = True
    repeated: bool = False


@define
class HeldJob:
    """A job that the worker holds."""

    id: int
    attempt: int
    payload: bytes
    role: str
    number: int
    """The number in the stream of the TAKE that granted the job."""
    worker: PlayedWorker
    owner: Peer
    """The manager, or the store that it serves (WMP-14.1)."""
    begun: int = 0
    """The number of earlier runs, as the manager counts them."""
    free: bool = False
    """Whether the manager may grant the job to another worker."""


@define
class ManagerBook:
    """The knowledge about the manager that all workers of a conversation share."""

    attempts: dict[int, int] = field(factory=dict)
    """The highest attempt of each job so far."""
    leases: dict[int, HeldJob] = field(factory=dict)
    """The newest lease of each job."""
    finished: set[int] = field(factory=set)
    """Jobs that a worker has answered correctly with ok or error."""
    max_silence: float = 6.0


@define(eq=False)
class PlayedWorker(PlayedPeer, WorkerMessages):
    """A worker that keeps the rules unless the script breaks them."""

    roles: Sequence[str] = ("echo",)
    resources: Mapping[str, int] = field(factory=lambda: {"slots": 4})
    held: dict[int, HeldJob] = field(factory=dict)
    _readies: list[_Ready] = field(factory=list)
    _locks: dict[int, _PlayedLock] = field(factory=dict)
    _forgotten: int = 0
    """The forgotten session, until the manager opens another session."""
    _older: int = 0
    """The last session of an older epoch."""
    stores: tuple[Peer, ...] = ()
    """The stores that the manager serves, by its PONGs."""

    # -- sending

    def compose(
        self,
        command: Command,
        columns: Columns | None = None,
        *,
        to: Path | None = None,
        source: Path | None = None,
        **fields: Any,
    ) -> Message:
        # The time for an answer counts from here on.
        self.talk.turn_to(self.connection)
        return PlayedPeer.compose(self, command, columns, to=to, source=source, **fields)

    def ready(self, credit: int = 1, **fields: Any) -> None:
        """Send READY to every manager, with the next number unless ``ready`` is given."""
        newest = fields.get("ready", self.ready_number + 1) > self.ready_number
        if newest and self.talk.wire.grace == 0:
            self.settle()
            self._readies.clear()  # later WAKEs answer this READY
        message = self.compose_ready(credit, **fields)
        if newest:
            roles, resources = (
                fields.get("roles", self.roles),
                fields.get("resources", self.resources),
            )
            self._readies.append(_Ready(self.ready_number, credit, roles, resources))
        self.transmit(message)

    def ping(self, *, held: Sequence[HeldJob] | None = None, **fields: Any) -> None:
        """Send PING, to the manager if it is known. ``held`` lists jobs; empty reports idle."""
        to: Path = fields.pop("to", self.to if self.testee is not None else ())
        if held is not None:
            for job in [job for job in self.held.values() if job not in held]:
                self._lose(job)
            if not held:
                fields["idle"] = True
        listed = [(job.id, job.attempt) for job in held or ()]
        self.transmit(self.compose_ping(listed, to=to, **fields))

    def ask(self, **fields: Any) -> ReceivedMessage:
        """Send PING, and wait for the PONG that answers it.

        Raises:
            Broken: No PONG arrived.
        """
        self.settle()
        self.inbox = [received for received in self.inbox if received.command is not Command.PONG]
        self.ping(**fields)
        return self.expect(Command.PONG, rule="WMP-9.2")

    def meet(self) -> ReceivedMessage:
        """Send PING to any manager and wait for its PONG.

        Raises:
            Broken: No PONG arrived (WMP-9.2).
        """
        self.inbox = [received for received in self.inbox if received.command is not Command.PONG]
        until = self.talk.now + max(self.talk.wire.grace, self.talk.wire.patience)
        while True:
            self.ping(to=())
            left = until - self.talk.now
            if (pong := self.wait_for(Command.PONG, within=min(1.0, left))) is not None:
                return pong
            self.talk.check(
                self.talk.now < until,
                f"{self.name} received no PONG in answer to its PINGs",
                "WMP-9.2",
            )

    def give(self, want: int = 1, *, hold: float = 0.0, **fields: Any) -> int:
        """Send GIVE under the next lock unless ``lock`` is given; return the lock."""
        before = self.lock
        message = self.compose_give(want, hold=hold or None, **fields)
        lock: int = message.fields[Field.LOCK]
        if lock > before and want:
            roles, needs = message.fields.get(Field.ROLES), message.fields.get(Field.NEEDS)
            self.promise(lock, want, roles, needs, hold)
        elif lock in self._locks:
            self._locks[lock].repeated = True
            if not want:
                self._locks[lock].due = self.talk.now + self.talk.wire.grace
        self.transmit(message)
        return lock

    def promise(
        self,
        lock: int,
        want: int,
        roles: Sequence[str] | None = None,
        needs: Mapping[str, int] | None = None,
        hold: float = 0.0,
    ) -> None:
        """Remember a lock: the script is about to send its GIVE."""
        self.lock = lock
        due = self.talk.now + hold + self.talk.wire.grace
        there = {"slots": 1} if needs is None else needs
        self._locks[lock] = _PlayedLock(want, roles or self.roles, there, due)

    def done(
        self,
        *jobs: HeldJob,
        outcome: int | Sequence[int] = Outcome.OK,
        payloads: Sequence[bytes] | None = None,
        **fields: Any,
    ) -> None:
        """Send DONE for these jobs. The result is the job's payload unless ``payloads`` is given.

        ``again``: the manager must grant the jobs again although they ended in an error.

        Raises:
            Broken: There is no job.
        """
        self.talk.check(
            bool(jobs),
            f"{self.name} received no job; expected TAKE, because a job waits",
            "WMP-4.4",
        )
        again = fields.pop("again", False)
        outcomes = [outcome] * len(jobs) if isinstance(outcome, int) else list(outcome)
        attempts: list[int] = fields.pop("attempts", [job.attempt for job in jobs])
        for job, attempt, job_outcome in zip(jobs, attempts, outcomes, strict=True):
            if attempt == job.attempt:
                plain = not job.free and fields.keys().isdisjoint(("number", "checksums"))
                if job_outcome <= Outcome.ERROR and plain and not again:
                    self.talk.book.finished.add(job.id)
                self._lose(job)
        listed = [(job.id, attempt) for job, attempt in zip(jobs, attempts, strict=True)]
        payloads = payloads or [job.payload for job in jobs]
        fields.setdefault("manager", jobs[0].owner)
        self.transmit(self.compose_done(listed, payloads, outcomes, **fields))

    def lose(self, job: HeldJob) -> None:
        """Forget a job: the manager may give it to another worker."""
        self._lose(job)

    def status(self, job: HeldJob, fraction: float | None, text: str | None = None) -> None:
        """Send STATUS of one job."""
        columns = Columns([job.id], [job.attempt], fractions=[fraction], texts=[text])
        self.send(Command.STATUS, columns, manager=job.owner)

    def bye(self) -> None:
        """Send BYE: all held jobs return to the manager."""
        self.settle()  # let messages arrive that were sent before the BYE
        self.transmit(self.compose_bye())
        self._lose_all()
        self._locks.clear()
        self._readies.clear()
        self.lively = False

    def arrive(self) -> None:
        start = len(self.received_all)
        self.ping()
        self.followed(start)

    def restart(self) -> None:
        self.settle()  # let messages to the older epoch arrive first
        self._lose_all()
        self.ready_number = self.lock = 0
        self._readies.clear()
        self._locks.clear()
        self._older = max(self._older, self.session)
        PlayedPeer.restart(self)

    def forget_manager(self) -> None:
        """Forget session, locks and jobs, and report this by PING without session (WMP-7.8)."""
        self.settle()  # let messages of the old session arrive first
        self._lose_all()
        self._forgotten = self.session
        self.forget_session()
        self.inbox = [received for received in self.inbox if received.command is not Command.PONG]
        self.ping()

    # -- whole flows

    def take(self, want: int = 1, *, within: float | None = None, **fields: Any) -> list[HeldJob]:
        """Send GIVE without READY and wait for the answer; return the jobs, none after NO."""
        lock = self.give(want, **fields)
        return self.taken(lock, within=within)

    def take_job(self, rule: str = "WMP-4.3") -> HeldJob:
        """Send GIVE for one job, and wait for the job.

        Raises:
            Broken: The answer is NO.
        """
        jobs = self.take(1)
        self.talk.check(
            len(jobs) == 1, f"{self.name} received NO in answer to GIVE, although a job waits", rule
        )
        return jobs[0]

    def some(self, count: int) -> list[HeldJob]:
        """Send GIVE until ``count`` jobs have arrived; a manager may grant them one by one.

        Raises:
            Broken: The answer is NO, although the jobs wait.
        """
        jobs: list[HeldJob] = []
        while len(jobs) < count:
            more = self.take(count - len(jobs))
            self.talk.check(
                bool(more),
                f"{self.name} received {counted(len(jobs), 'job')} and then NO, although {count} "
                "jobs waited",
                "WMP-4.3",
            )
            jobs += more
        return jobs

    def all(self, want: int = 9, **fields: Any) -> list[HeldJob]:
        """Send GIVE until the answer is NO."""
        jobs: list[HeldJob] = []
        while more := self.take(want, **fields):
            jobs += more
        return jobs

    def taken(self, lock: int, within: float | None = None, rule: str = "") -> list[HeldJob]:
        """Wait for the answer to a GIVE: the jobs of all its TAKEs until the lock is closed."""
        jobs: list[HeldJob] = []
        while True:
            received = self.expect(
                Command.TAKE, Command.NO, lock=lock, within=within, rule=rule or "WMP-4.4"
            )
            jobs += [self.held[id] for id, _ in received.jobs if id in self.held]
            if not received["more"]:
                return jobs

    def take_after_wake(self, within: float | None = None) -> HeldJob:
        """Take one job by the plain handshake: READY, WAKE, GIVE, TAKE."""
        self.ready(1)
        self.expect(Command.WAKE, within=within, what="jobs wait and the worker has credit")
        jobs = self.take(1)
        self.talk.check(
            bool(jobs), f"{self.name} received NO in answer to GIVE, although a job waits"
        )
        return jobs[0]

    def serve(self, name: str, within: float | None = None, rule: str = "WMP-10.1") -> None:
        """Do jobs until the job ``name`` has ended ok: the manager still works."""
        patience = 4.0 if within is None else within
        until = self.talk.now + patience
        while not any(end.name == name for end in self.talk.collect_ends()):
            self.talk.check(
                self.talk.now < until,
                f"{name} has not ended within {patience:g} units, although a worker sends GIVE",
                rule,
            )
            jobs = self.take(4, hold=1.0, within=2.0)
            if jobs:
                self.done(*jobs)
            self.talk.settle()
        self.talk.end_of(name, rule=rule)

    def rule_of_missing(self, commands: Sequence[Command]) -> str:
        workers = [player for player in self.talk.players if isinstance(player, PlayedWorker)]
        woken = any(
            received.command is Command.WAKE
            for worker in workers
            for received in worker.received_all
        )
        if list(commands) == [Command.WAKE] and not woken:
            return "WMP-3.6"  # the manager has answered no READY at all
        return self.talk.first_rule

    # -- liveness

    def due(self) -> float:
        due = self.last_sent + 1.0 if self.lively and self.testee is not None else inf
        for lock in self._locks.values():
            if lock.open and self.lively:
                due = min(due, lock.due)
        return due

    def wait(self) -> None:
        for number, lock in self._locks.items():
            if lock.open and self.lively and lock.due <= self.talk.now:
                raise Broken(
                    "WMP-4.4",
                    f"{self.name} received no answer to lock {number} before its hold ended",
                )
        if self.last_sent + 1.0 <= self.talk.now:
            self.ping()

    # -- receiving

    def understand(self, received: ReceivedMessage) -> None:
        session = received["session"]
        if session is not None and session <= self._older:
            raise Broken(
                "WMP-9.7", f"{self.name} received session {session}, which an older epoch of it had"
            )
        if session is not None and session > self.session:
            # The manager keeps a session in which no number was used (WMP-7.5).
            if (self.session or self._forgotten) and session != self._forgotten:
                self._lose_all()
                for lock in self._locks.values():
                    lock.due = inf  # the GIVE may be older than the session
            self._forgotten = 0
            self.forget_session()
            self.session = session
            self._check_stream(received)
        match received.command:
            case Command.WAKE:
                self._woken(received)
            case Command.TAKE if not received.again and session == self.session:
                self._took(received)
            case Command.NO if not received.again and session == self.session:
                self._denied(received)
            case Command.PONG:
                self._pong(received)
            case Command.CANCEL | Command.ERROR | Command.TAKE | Command.NO:
                pass
            case _:
                raise Broken(
                    "WMP-10.4",
                    f"the manager sent {received.command.name}, which is a command of workers",
                )

    def _woken(self, received: ReceivedMessage) -> None:
        """Check that WAKE fits credit, roles and resources of a READY (WMP-3.4)."""
        count, role, needs = received["count"], received["role"], received["needs"]
        fitting = [
            ready
            for ready in self._readies
            if ready.left >= count and role in ready.roles and _within(needs, ready.resources)
        ]
        if not fitting:
            left = [(r.left, list(r.roles), dict(r.resources)) for r in self._readies]
            raise Broken(
                "WMP-3.4",
                f"WAKE is for {counted(count, 'job')} of role {role!r} with needs {needs!r}; "
                "expected a WAKE "
                f"that fits the credit, roles and resources of a READY: {left}",
            )
        if len(self._readies) == 1:
            fitting[0].left -= count
        # Otherwise the WAKE may be older than the newest READY, and use the credit of an older
        # READY.

    def _took(self, received: ReceivedMessage) -> None:
        lock = self._locks.get(received["lock"])
        if lock is None:
            raise Broken(
                "WMP-4.6",
                f"TAKE names lock {received['lock']}; {self.name} sent no GIVE with this lock",
            )
        if not lock.open:
            rule = "WMP-4.5" if lock.repeated else "WMP-4.6"
            raise Broken(
                rule, f"TAKE names lock {received['lock']}, which is closed: it was answered before"
            )
        if len(received.jobs) > lock.left:
            raise Broken(
                "WMP-4.6",
                f"TAKE has {counted(len(received.jobs), 'job')}; expected at most the {lock.left} "
                "that the "
                "GIVE still wants",
            )
        if received["role"] not in lock.roles:
            raise Broken(
                "WMP-4.6",
                f"TAKE is of role {received['role']!r}; expected one of the GIVE's "
                f"{list(lock.roles)}",
            )
        if not _within(received["needs"], lock.needs):
            raise Broken(
                "WMP-4.6",
                f"TAKE has needs {received['needs']!r}; expected at most the locked {lock.needs!r}",
            )
        owner: Peer = tuple(received["manager"])
        if owner != self.testee and owner not in self.stores:
            raise Broken(
                "WMP-4.7",
                f"TAKE names the owner {received['manager']!r}; expected the manager itself, or a "
                "store that it serves",
            )
        if owner in self.stores and received["keep"] is None:
            raise Broken("WMP-14.1", "TAKE of stored jobs has no `keep`; expected a time")
        lock.left -= len(received.jobs)
        lock.open = bool(received["more"])
        columns = received.message.columns
        counts = (columns and columns.begun) or [None] * len(received.jobs)
        for (id, attempt), payload, runs in zip(
            received.jobs, received.payloads, counts, strict=True
        ):
            begun = attempt - 1 if runs is None else runs
            job = HeldJob(
                id, attempt, payload, received["role"], received["number"], self, owner, begun
            )
            self._lease(job)

    def _lease(self, job: HeldJob) -> None:
        book: ManagerBook = self.talk.book
        if job.attempt <= book.attempts.get(job.id, 0):
            raise Broken(
                "WMP-6.1",
                f"job {job.id} has attempt {job.attempt}; expected more than "
                f"{book.attempts[job.id]}, its last attempt",
            )
        if job.id in book.finished:
            raise Broken(
                "WMP-6.3", f"job {job.id} is granted again; expected no lease after its result"
            )
        holder = book.leases.get(job.id)
        if holder is not None and not holder.free:
            silent = self.talk.now - holder.worker.last_sent
            if silent < book.max_silence - 1e-6:
                raise Broken(
                    "WMP-6.4",
                    f"job {job.id} is granted to {self.name} while {holder.worker.name} still "
                    "holds its lease",
                )
        book.attempts[job.id] = job.attempt
        book.leases[job.id] = job
        self.held[job.id] = job

    def _denied(self, received: ReceivedMessage) -> None:
        lock = self._locks.get(received["lock"])
        if lock is None:
            raise Broken(
                "WMP-4.4",
                f"NO names lock {received['lock']}; {self.name} sent no GIVE with this lock",
            )
        if not lock.open:
            rule = "WMP-4.5" if lock.repeated else "WMP-4.4"
            raise Broken(
                rule, f"NO names lock {received['lock']}, which is closed: it was answered before"
            )
        lock.open = False

    def _pong(self, received: ReceivedMessage) -> None:
        """Check that PONG remembers no more than the worker sent (WMP-9.2)."""
        if received["challenge"] is not None and self.lively:
            self.ping(answer=received["challenge"])
        stores = tuple((bytes(name), number) for name, number in received["serves"] or ())
        if set(stores) < set(self.stores):
            raise Broken("WMP-14.1", f"PONG serves {stores!r}; an earlier one {self.stores!r}")
        self.stores = stores
        kept, ack = received["kept"], received["ack"]
        if kept is not None and (ack is None or kept >= ack):
            raise Broken("WMP-14.3", f"PONG has kept {kept} and ack {ack}; expected kept below ack")
        book: ManagerBook = self.talk.book
        book.max_silence = received["max_silence"] / self.talk.wire.unit
        ready, lock = received["ready"], received["lock"]
        if ready is not None and ready > self.ready_number:
            others = [p for p in self.talk.players if p is not self]
            taken = any(getattr(p, "connection", None) == self.connection for p in others)
            rule = "WMP-1.5" if taken else "WMP-9.2"
            raise Broken(
                rule, f"PONG names READY {ready}; {self.name} sent no READY with this number"
            )
        if lock is not None and lock > self.lock:
            raise Broken(
                "WMP-9.2", f"PONG names lock {lock}; {self.name} sent no GIVE with this lock"
            )
        if ready is not None:  # the READY has replaced older READYs (WMP-3.3)
            self._readies = [
                remembered for remembered in self._readies if remembered.number >= ready
            ]
        for remembered in self._readies:
            if remembered.number == ready and (received["credit"] or 0) > remembered.left:
                raise Broken(
                    "WMP-3.4",
                    f"PONG names credit {received['credit']} for READY {ready}; expected at most "
                    f"{remembered.left}, because WAKE used up the rest",
                )

    def _lose(self, job: HeldJob) -> None:
        job.free = True
        self.held.pop(job.id, None)

    def _lose_all(self) -> None:
        for job in list(self.held.values()):
            self._lose(job)


def _within(needs: Mapping[str, int], there: Mapping[str, int]) -> bool:
    return all(amount <= there.get(name, 0) for name, amount in needs.items())
