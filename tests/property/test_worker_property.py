"""A worker between two managers that send any message at any time, in order or out of order."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from wmp.actions import Drop, Halt, Interrupt, Recall, Reconnect, Run, Send
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.errors import DecodeError
from wmp.events import (
    Connected,
    Drained,
    Finished,
    Garbled,
    Recalled,
    Received,
    Reported,
    Ticked,
    Undelivered,
)
from wmp.message import Columns, Command, Field, Outcome
from wmp.testing.peers.scripted_manager import ScriptedManager

TOTAL = {"slots": 3, "gpu": 1}
NEEDS = st.sampled_from(
    [{"slots": 1}] * 4 + [{"slots": 2}, {"gpu": 1, "slots": 1}, {}, {"slots": 4}, {"tpu": 1}]
)
ROLES = st.sampled_from(["default"] * 4 + ["cook", "unknown"])
WHO = st.integers(0, 1)
OWNERS = st.sampled_from([None, None, None, (b"far", 1)])


class Books:
    """The answers that one session of a manager still expects from the worker."""

    def __init__(self, key):
        self.key = key
        self.due = Counter()
        """(owner, id, attempt) of every answer that is still to come."""
        self.answered = 0
        """Highest number seen of the worker's stream."""


class Adversary(RuleBasedStateMachine):
    """Random managers and lanes (rules of this class); every action of the worker is checked."""

    @initialize(
        window=st.sampled_from([None, 0, 2, 5]),
        hold=st.sampled_from([0.0, 5.0]),
        unacked=st.sampled_from([400, 1 << 20]),
    )
    def begin(self, window, hold, unacked):
        self.now = 0.0
        self.worker = WorkerMachine(
            WorkerSettings(
                identity=b"w",
                epoch=5,
                roles=("default", "cook"),
                resources=TOTAL,
                window=window,
                hold=hold,
                unacked_bytes=unacked,
                lane_max=4,
            ),
            2,
        )
        self.managers = [ScriptedManager(self.worker, b"m%d" % n, link=n) for n in range(2)]
        self.books = {}
        self.lanes = {}
        self.recalls = []
        self.connected = set()
        self.ready = {}
        self.locks = 0
        self.halted = False
        self.happen(Connected(0))
        self.happen(Connected(1))
        for manager in self.managers:
            for _ in range(2):
                self.say(manager, manager.pong)

    # -- plumbing

    def happen(self, event, taken=None):
        """Give the worker an event and check every action that follows."""
        if isinstance(event, Connected):
            self.connected.add(event.link)
        actions = self.worker.handle(event, self.now)
        self.check(actions, taken)
        if isinstance(event, Ticked) and not self.halted:
            due = self.worker.deadline()
            assert due is None or due > self.now
        return actions

    def say(self, manager, what, *args, **kwargs):
        """Let a manager send; the patched ``manager.send`` gives the message to the test."""
        manager.now = self.now
        messages = []

        class Tap:
            """Replaces the worker, so that its events pass through the checks."""

            settings = self.worker.settings

            @staticmethod
            def handle(event, now):
                messages.append(event.message)
                return []

        manager.worker, real = Tap, manager.worker
        try:
            what(*args, **kwargs)
        finally:
            manager.worker = real
        (message,) = messages
        return self.receive(manager.link, message)

    def receive(self, link, message):
        before, held = self.stream_of(message.source[0]), self.held_of(message.source[0])
        actions = self.worker.handle(Received(link, message), self.now)
        after = self.stream_of(message.source[0])
        accepted = (
            Field.NUMBER in message.fields
            and after != before
            and after
            == (message.source[1], message.fields[Field.SESSION], message.fields[Field.NUMBER])
        )
        self.check(actions, (message, held) if accepted else None)
        for manager in self.managers:
            manager.note(actions)
        return actions

    def held_of(self, identity):
        """Return the worker's unanswered jobs as (owner, id) to attempt."""
        return {
            (held.owner, job): attempt
            for held in self.worker._executions.held(identity)
            for job, attempt in held.attempts.items()
        }

    def stream_of(self, identity):
        remote = self.worker._links.managers.get(identity)
        if remote is None or remote.stream is None:
            return None
        return remote.epoch, remote.stream.session, remote.stream.received

    def books_of(self, identity):
        """Return the books of a manager's current session; begin new books for a new session."""
        stream = self.stream_of(identity)
        key = None if stream is None else stream[:2]
        books = self.books.get(identity)
        if books is None or books.key != key:
            books = self.books[identity] = Books(key)
            for manager in self.managers:
                if manager.identity == identity:
                    manager.received = 0  # a manager never acknowledges a message that was not sent
        return books

    # -- claims about every action of the worker

    def check(self, actions, accepted):
        closed = dict(self.books)
        for manager in self.managers:
            self.books_of(manager.identity)
        if accepted is not None:
            self.note_accepted(*accepted)
        ready_links = Counter()
        for action in actions:
            match action:
                case Send(link, message):
                    # An ERROR answers the message that has just arrived over the link.
                    answers = message.command is Command.ERROR
                    assert answers or link in self.connected, f"link {link} is not connected"
                    self.check_message(message, closed)
                    ready_links[link] += message.command is Command.READY
                case Run():
                    assert action.lane not in self.lanes
                    self.lanes[action.lane] = (action, list(action.ids))
                case Reconnect(link):
                    self.connected.discard(link)
                case Recall(lane, ids):
                    self.recalls.append((lane, ids))
                case Interrupt(lane, ids):
                    assert set(ids) <= set(self.lanes[lane][1])
                case Halt():
                    self.halted = True
                case Drop():
                    assert action.reason
        assert all(count <= 1 for count in ready_links.values()), "READY twice on a link"

    def check_message(self, message, closed):
        fields = message.fields
        match message.command:
            case Command.READY:
                content = {k: v for k, v in fields.items() if k not in (Field.ACK, Field.SESSION)}
                number = fields[Field.READY]
                assert number >= max(self.ready, default=0)
                assert self.ready.setdefault(number, content) == content
            case Command.GIVE if fields[Field.WANT]:
                assert fields[Field.LOCK] > self.locks
                self.locks = fields[Field.LOCK]
                assert all(n <= TOTAL.get(name, 0) for name, n in fields[Field.NEEDS].items())
            case Command.DONE | Command.STATUS:
                books = self.books_of(message.receiver)
                if books.key is None or books.key[1] != fields[Field.SESSION]:
                    # One timer caused the message, and the next timer of the same tick ended the
                    # session.
                    books = closed[message.receiver]
                assert fields[Field.SESSION] == books.key[1]
                if fields[Field.NUMBER] > books.answered:
                    books.answered += 1
                    assert fields[Field.NUMBER] == books.answered
                    if message.command is Command.DONE:
                        self.check_answers(books, tuple(fields[Field.MANAGER]), message.columns)

    def check_answers(self, books, owner, columns):
        rows = zip(columns.ids, columns.attempts, columns.outcomes, strict=True)
        for job, attempt, outcome in rows:
            due = (owner, job, attempt)
            assert books.due[due], f"{due} was answered {outcome!r} and not asked"
            books.due[due] -= 1

    def note_accepted(self, message, before):
        books = self.books_of(message.source[0])
        if message.command is Command.NO:
            return
        owner = tuple(message.fields[Field.MANAGER])
        for job, attempt in zip(message.columns.ids, message.columns.attempts, strict=True):
            held = before.get((owner, job))
            if message.command is Command.CANCEL and held == attempt:
                continue  # the job's own outcome is its only answer
            if message.command is Command.TAKE and held is not None:
                # The job gets the higher attempt, and is answered with that attempt only.
                books.due[owner, job, held] -= 1
                attempt = max(attempt, held)
            books.due[owner, job, attempt] += 1

    # -- messages of managers

    @rule(who=WHO, count=st.integers(1, 6), role=ROLES, needs=NEEDS)
    def wake(self, who, count, role, needs):
        manager = self.managers[who]
        self.say(manager, manager.wake, count, role=role, needs=needs)

    @rule(
        who=WHO,
        count=st.integers(1, 5),
        back=st.integers(0, 3),
        more=st.booleans(),
        role=ROLES,
        needs=NEEDS,
        left=st.sampled_from([None, None, 0, 50, 5000]),
        attempt=st.integers(1, 3),
        first=st.one_of(st.none(), st.integers(1, 6)),
        owner=OWNERS,
    )
    def take(self, who, count, back, more, role, needs, left, attempt, first, owner):
        manager = self.managers[who]
        manager.owner = owner
        ids = {} if first is None else {"ids": range(first, first + count)}
        self.say(
            manager,
            manager.take,
            max(1, self.locks - back + 1),
            *[b"job"] * count,
            more=more,
            role=role,
            needs=needs,
            attempt=attempt,
            left_ms=None if left is None else [left] * count,
            **ids,
        )

    @rule(who=WHO, back=st.integers(0, 3))
    def take_what_was_asked_for(self, who, back):
        manager = self.managers[who]
        locks = list(self.worker._locks.of(manager.identity).values())
        if locks:
            lock = locks[back % len(locks)]
            manager.owner = None
            payloads = [b"job"] * lock.want
            self.say(manager, manager.take, lock.number, *payloads, needs=dict(lock.needs))

    @rule(who=WHO, back=st.integers(-1, 4))
    def no(self, who, back):
        manager = self.managers[who]
        self.say(manager, manager.no, max(1, self.locks - back))

    @rule(
        who=WHO,
        first=st.integers(1, 12),
        count=st.integers(1, 5),
        attempt=st.integers(1, 3),
        unstarted=st.booleans(),
        owner=OWNERS,
    )
    def cancel(self, who, first, count, attempt, unstarted, owner):
        manager = self.managers[who]
        manager.owner = owner
        ids = range(first, first + count)
        self.say(manager, manager.cancel, *ids, attempt=attempt, unstarted=unstarted)

    @rule(
        who=WHO,
        changes=st.sampled_from(
            [
                {},
                {},
                {},
                {"ready": None},
                {"credit": 0},
                {"again": True},
                {"ack": 0},
                {"max_silence": 1.0},
                {"ack": 99, "again": True},
            ]
        ),
    )
    def pong(self, who, changes):
        manager = self.managers[who]
        self.say(manager, manager.pong, **changes)

    @rule(who=WHO, ahead=st.sampled_from([-1, 0, 2]), session=st.sampled_from([0, 0, -1]))
    def out_of_order(self, who, ahead, session):
        """Send a duplicate, a gap or an old session's message; the manager's numbering stays."""
        manager = self.managers[who]
        number = manager.number
        changes = {"number": max(1, number + ahead), "session": max(1, manager.session + session)}
        before = self.stream_of(manager.identity)
        self.say(manager, manager.no, 1, **changes)
        after = self.stream_of(manager.identity)
        manager.number = number if after == before or after is None else after[2]

    @rule(who=WHO)
    def replay(self, who):
        """Let the manager send again everything of which it has no ack."""
        stream = self.stream_of(self.managers[who].identity)
        if stream is not None and stream[:2] == (
            self.managers[who].epoch,
            self.managers[who].session,
        ):
            self.managers[who].number = stream[2]

    @rule(who=WHO, epoch=st.booleans())
    def begin_anew(self, who, epoch):
        """Open a new session; the manager may have been started again before that."""
        manager = self.managers[who]
        manager.epoch += epoch
        manager.session += 1
        manager.number = manager.received = 0
        self.say(manager, manager.pong, ready=None)

    @rule(
        who=WHO,
        code=st.sampled_from(["unreachable", "superseded", "malformed", "made up"]),
        whose=st.sampled_from([0, 1, -1]),
    )
    def error(self, who, code, whose):
        manager = self.managers[who]
        about = (manager.identity, manager.epoch) if whose >= 0 else (b"w", 4)
        self.say(manager, manager.error, code, about=about)

    @rule(who=WHO)
    def move(self, who):
        """Let the manager use the other link from now on."""
        manager = self.managers[who]
        manager.link = 1 - manager.link
        manager.hops = () if manager.hops else (b"d", 1, manager.link)
        self.say(manager, manager.pong)

    @rule(
        who=WHO,
        command=st.sampled_from(sorted(Command)),
        to=st.sampled_from([(), (4, b"w"), (5, b"x")]),
    )
    def misrouted(self, who, command, to):
        manager = self.managers[who]
        fields = {Field.CODE: "limit", Field.NUMBER: 1, Field.SESSION: 1}
        self.receive(manager.link, manager.message(command, fields, Columns([1], [1]), to=to))

    @rule(link=WHO, source=st.sampled_from([(), (b"m0", 1)]), command=st.sampled_from([None, 12]))
    def garbled(self, link, source, command):
        self.happen(Garbled(link, DecodeError("bad", source=source, command=command)))

    # -- other events

    @rule(link=WHO)
    def connect(self, link):
        for manager in self.managers:
            manager.note(self.happen(Connected(link)))

    @rule(link=WHO, who=WHO)
    def undelivered(self, link, who):
        self.happen(Undelivered(link, self.managers[who].message(Command.PONG, {})))

    @precondition(lambda self: self.lanes)
    @rule(
        data=st.data(),
        outcome=st.sampled_from([Outcome.OK, Outcome.ERROR, Outcome.CANCELLED]),
        size=st.sampled_from([0, 10, 200]),
        whole=st.booleans(),
    )
    def finish(self, data, outcome, size, whole):
        number = data.draw(st.sampled_from(sorted(self.lanes)))
        run, left = self.lanes[number]
        ids, rest = (left, []) if whole else (left[:1], left[1:])
        self.left(run, rest)
        count = len(ids)
        event = Finished(number, ids, [outcome] * count, [bytes(size)] * count)
        for manager in self.managers:
            manager.note(self.happen(event) if manager is self.managers[0] else [])

    @precondition(lambda self: self.recalls)
    @rule(all_of_them=st.booleans())
    def recalled(self, all_of_them):
        number, recalled = self.recalls.pop(0)
        if number not in self.lanes:
            self.happen(Recalled(number, recalled))
            return
        run, left = self.lanes[number]
        ids = [job for job in left[not all_of_them :] if job in recalled]
        if ids:
            self.left(run, [job for job in left if job not in ids])
        self.happen(Recalled(number, ids))

    def left(self, run, rest):
        if rest:
            self.lanes[run.lane] = (run, rest)
        else:
            del self.lanes[run.lane]

    @precondition(lambda self: self.lanes)
    @rule(data=st.data())
    def report(self, data):
        number = data.draw(st.sampled_from(sorted(self.lanes)))
        self.happen(Reported(number, self.lanes[number][1][0], 0.5, "half"))

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.5, 1.0, 3.0, 7.0, 40.0]))
    def wait(self, seconds):
        until = self.now + seconds
        for _ in range(2000):
            due = self.worker.deadline()
            if due is None or due > until:
                break
            self.now = max(self.now, due)
            self.happen(Ticked())
        else:
            raise AssertionError("the worker spins")
        self.now = until

    # -- claims that hold between any two events

    @invariant()
    def nothing_is_double_booked(self):
        used = Counter()
        for run, _ in self.lanes.values():
            used.update(dict(run.kind.needs))
        for name, amount in used.items():
            assert amount <= TOTAL[name]

    @invariant()
    def its_own_books_balance(self):
        self.worker.check_invariants()

    @invariant()
    def every_job_taken_is_held_or_answered(self):
        for manager in self.managers:
            books = self.books_of(manager.identity)
            due = Counter(
                (*job, attempt) for job, attempt in self.held_of(manager.identity).items()
            )
            # Answers that wait for a route count as sent.
            remote = self.worker._links.managers.get(manager.identity)
            for kept in remote.stream.kept if remote is not None and remote.stream else ():
                if kept.command is Command.DONE and kept.number > books.answered:
                    owner = tuple(kept.fields[Field.MANAGER])
                    jobs = zip(kept.columns.ids, kept.columns.attempts, strict=True)
                    due.update((owner, job, attempt) for job, attempt in jobs)
            assert +books.due == due

    def teardown(self):
        """After any history the worker drains, and answers every job before it sends BYE."""
        if not hasattr(self, "worker"):
            return
        for link in (0, 1):
            self.happen(Connected(link))
        for manager in self.managers:
            self.say(manager, manager.pong)
        self.happen(Drained())
        for number, (_, ids) in list(self.lanes.items()):
            count = len(ids)
            del self.lanes[number]
            self.happen(Finished(number, ids, [Outcome.OK] * count, [b""] * count))
        if not self.halted:
            self.every_job_taken_is_held_or_answered()
            assert self.worker.statistics().free == TOTAL or self.worker.statistics().locks
            self.wait(40.0)
        assert self.halted


TestAdversary = Adversary.TestCase
TestAdversary.settings = settings(stateful_step_count=40)
TestAdversary.pytestmark = [
    pytest.mark.rule("WMP-4.1", "WMP-4.2", "WMP-6.6", "WMP-10.1"),
]
