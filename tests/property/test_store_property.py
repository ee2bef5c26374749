"""The store on SQLite and the reference store give the same answers on random histories."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.store.stores import Clock, sqlite_store
from wmp.errors import InstanceEnded
from wmp.message import Kind
from wmp.store.contract import StoredJob, StoreInstance
from wmp.store.job_terms import StoredTerms
from wmp.store.stored_job import (
    ENDED,
    OF_KEY,
    Effect,
    Guard,
    StoredJobInput,
    StoredJobState,
    rows_of,
)
from wmp.store.write_batch import JobChanges, NewJobs, Reservation, StoredFailure, WriteBatch
from wmp.testing.store_worlds.reference_store import ReferenceStore

KINDS = (Kind("a"), Kind("a"), Kind("a"), Kind("b", (), "cbor"))
TERMS = (
    StoredTerms(keep_ms=2000, keep_dead_ms=6000),
    StoredTerms(max_worker_losses=1, keep_ms=30, keep_dead_ms=90),
)
CLIENTS = 3
WITHOUT_ATTEMPT = (StoredJobState.QUEUED, StoredJobState.CANCELLED, StoredJobState.TIMEOUT)
HELD = (StoredJobState.RESERVED, StoredJobState.CANCELLING)

CHANGES = [
    StoredJobInput.REPEAT,
    StoredJobInput.RELEASE,
    StoredJobInput.SPEND,
    StoredJobInput.AGAIN,
    StoredJobInput.ADOPT,
    StoredJobInput.SUCCEED,
    StoredJobInput.FAIL,
    StoredJobInput.OVERRUN,
    StoredJobInput.CANCEL,
    StoredJobInput.REVIVE,
    StoredJobInput.FORGET,
]

adds = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(KINDS),
        "terms": st.sampled_from(TERMS),
        "jobs": st.lists(
            st.tuples(
                st.sampled_from([b"", b"x", b"y" * 40, b"z" * 600]),
                st.sampled_from([None, None, "k", "m"]),
                st.booleans(),
            ),
            min_size=1,
            max_size=4,
        ),
        "priority": st.sampled_from([0, 0, -1, 2]),
        "delay_ms": st.sampled_from([0, 0, 0, 700, 1]),
        "timeout_ms": st.sampled_from([None, None, None, 3000]),
        "expires_in_ms": st.sampled_from([None, None, None, 2000]),
        "unique": st.sampled_from(["open", "kept"]),
        "reserve": st.booleans(),
        "after": st.lists(st.integers(0, 30), max_size=2, unique=True) | st.just([]),
        "splice": st.sampled_from([None, 0]),
    }
)
"""Jobs to add. The third value of a job: whether its number is one that the store has."""

changes = st.fixed_dictionaries(
    {
        "input": st.sampled_from(CHANGES),
        "jobs": st.lists(
            st.tuples(st.integers(0, 30), st.sampled_from([0] * 8 + [-1, 1])),
            min_size=1,
            max_size=4,
            unique_by=lambda job: job[0],
        ),
        "cost": st.integers(0, 1),
        "wait": st.sampled_from([0, 0, 900]),
        "fails": st.booleans(),
    }
)
"""One input. Each job is a place among the known jobs, and the distance of its attempt."""

batches = st.fixed_dictionaries(
    {
        "adds": st.lists(adds, max_size=2),
        "changes": st.lists(changes, max_size=3),
        "receipts": st.lists(st.integers(0, 30), max_size=2),
        "sweep": st.sampled_from([0, 0, 2, 100]),
        "reservations": st.lists(
            st.tuples(st.sampled_from(KINDS), st.integers(0, 3), st.sampled_from([0, 99, 9999])),
            max_size=2,
        ),
        "block": st.sampled_from([False] * 5 + [True]),
    }
)
steps = st.one_of(
    st.tuples(st.just("batch"), st.integers(0, CLIENTS - 1), batches),
    st.tuples(st.just("batch"), st.integers(0, CLIENTS - 1), batches),
    st.tuples(st.just("batch"), st.integers(0, CLIENTS - 1), batches),
    st.tuples(st.just("repeat"), st.integers(0, CLIENTS - 1), st.none()),
    st.tuples(st.just("end"), st.integers(0, CLIENTS - 1), st.none()),
    st.tuples(st.just("die"), st.integers(0, CLIENTS - 1), st.none()),
    st.tuples(st.just("move"), st.none(), st.sampled_from([0.001, 0.3, 1, 4, 11, 16, 90_000])),
)


def plain(value: Any) -> Any:
    """Return a value with lists for lists and tuples."""
    if attrs.has(type(value)):
        return {item.name: plain(getattr(value, item.name)) for item in attrs.fields(type(value))}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


class Pair:
    """Both stores, with the same instances.

    Args:
        opened: Opens the store for a process, with a clock.
        notices_deaths: Whether the store notices at once that a process has died.
    """

    def __init__(self, opened: Callable[[Clock], Any], *, notices_deaths: bool) -> None:
        self.clock = Clock()
        self.notices_deaths = notices_deaths
        # Two connections, as of two processes.
        self.real = [opened(self.clock) for _ in range(2)]
        self.model = ReferenceStore(lambda: self.clock.wall)
        self.instances: list[StoreInstance] = []
        self.numbers = [0] * CLIENTS
        self.last: list[WriteBatch | None] = [None] * CLIENTS
        self.next: list[int] = [0] * CLIENTS
        self.known: list[int] = []
        self.before: dict[int, StoredJob] = {}
        self.living: set[int] = set()
        for client in range(CLIENTS):
            self.begin(client)

    def store(self, client: int) -> Any:
        return self.real[client % len(self.real)]

    def begin(self, client: int) -> None:
        identity = b"identity %d" % client
        me = self.store(client).begin(identity, "label")
        assert me == self.model.begin(identity, "label")
        self.instances[client : client + 1] = [me]
        self.numbers[client] = 0
        self.next[client] = me.block.start
        self.last[client] = None

    def play(self, step: tuple[str, Any, Any]) -> None:
        what, client, value = step
        match what:
            case "move":
                self.clock.move(value)
            case "end":
                self.store(client).end(self.instances[client])
                self.model.end(self.instances[client])
                self.begin(client)
            case "die":
                if self.notices_deaths:
                    number = self.instances[client].number
                    self.store(client)._locks[number].close()
                    self.model.died.add(number)
                self.begin(client)
            case "repeat":
                if (batch := self.last[client]) is not None:
                    self.apply(client, batch)
            case "batch":
                self.numbers[client] += 1
                self.last[client] = self.batch(client, value)
                self.apply(client, self.last[client])
        self.compare()

    def apply(self, client: int, batch: WriteBatch) -> None:
        me, number = self.instances[client], self.numbers[client]
        try:
            expected = self.model.apply(me, number, batch)
        except InstanceEnded:
            with pytest.raises(InstanceEnded):
                self.store(client).apply(me, number, batch)
            self.begin(client)
            return
        answer = self.store(client).apply(me, number, batch)
        assert plain(answer) == plain(expected)

    def compare(self) -> None:
        store = self.real[0]
        jobs = store.list(payloads=True)
        assert jobs == self.model.list(payloads=True)
        self.check_invariants(jobs)
        for me in self.instances:
            assert plain(store.news(me)) == plain(self.model.news(me))

    def check_invariants(self, jobs: Sequence[StoredJob]) -> None:
        """Check claims that do not depend on the table."""
        keys = [
            (job.kind.role, job.key) for job in jobs if job.state in OF_KEY and job.key is not None
        ]
        assert len(keys) == len(set(keys))
        # The drawn batches use the numbers of purged jobs again, as no instance does.
        self.before = {job.id: self.before[job.id] for job in jobs if job.id in self.before}
        for job in jobs:
            assert (job.instance is not None) == (job.state in HELD)
            assert (job.ended is not None) == (job.purge is not None) == (job.state in ENDED)
            before, self.before[job.id] = self.before.get(job.id), job
            if before is None:
                continue
            # RELEASE gives an attempt back.
            released = before.state is StoredJobState.RESERVED and job.state not in HELD
            assert job.attempt >= before.attempt - released
            if job.attempt == before.attempt and before.state in ENDED:
                # Only a job that was revived has another end; no result of an old attempt counts.
                revived = job.result is None and job.state in WITHOUT_ATTEMPT
                assert revived or (job.state, job.result) == (before.state, before.result)
            if job.instance is not None and job.attempt == before.attempt:
                # An attempt that a living instance holds is given to no other one.
                assert before.instance in (None, job.instance) or before.instance not in self.living
        self.living = self.model.living()

    # -- from drawn values to a batch -------------------------------------------------------

    def id(self, index: int) -> int:
        return self.known[index % len(self.known)] if self.known else 1

    def batch(self, client: int, drawn: Mapping[str, Any]) -> WriteBatch:
        return WriteBatch(
            adds=[self.new(client, item) for item in drawn["adds"]],
            changes=[self.change(item) for item in drawn["changes"]],
            receipts=[self.id(index) for index in drawn["receipts"]],
            sweep=drawn["sweep"],
            reservations=[Reservation(*item) for item in drawn["reservations"]],
            block=drawn["block"],
        )

    def new(self, client: int, drawn: Mapping[str, Any]) -> NewJobs:
        ids = []
        for _, _, stored in drawn["jobs"]:
            id = self.next[client]
            if stored and self.known and self.known[-1] not in ids:
                id = self.known[-1]
            else:
                self.next[client] += 1
            ids.append(id)
        self.known += [id for id in ids if id not in self.known]
        rest = {name: value for name, value in drawn.items() if name not in ("jobs", "after")}
        after = dict.fromkeys(self.id(index) for index in drawn["after"])
        rest["after"] = [id for id in after if id not in ids]
        payloads, keys, _ = zip(*drawn["jobs"], strict=True)
        return NewJobs(ids=ids, payloads=payloads, keys=keys, **rest)

    def change(self, drawn: Mapping[str, Any]) -> JobChanges:
        what = drawn["input"]
        attempts = {job.id: job.attempt for job in self.model.list()}
        jobs = {self.id(index): off for index, off in drawn["jobs"]}
        rows = rows_of(what)
        count = len(jobs)
        return JobChanges(
            what,
            list(jobs),
            [attempts.get(id, 1) + off for id, off in jobs.items()]
            if Guard.ATTEMPT in rows[0].guards
            else None,
            [b"result of %d" % id for id in jobs]
            if any(Effect.KEEP_RESULT in row.effects for row in rows)
            else None,
            [drawn["cost"]] * count,
            [drawn["wait"]] * count,
            [StoredFailure(0, f"w{id}", "error") if id % 2 else None for id in jobs]
            if drawn["fails"]
            else None,
        )

    def close(self) -> None:
        for store in self.real:
            store.close()


def play(pair: Pair, history: Sequence[tuple[str, Any, Any]]) -> None:
    try:
        for step in history:
            pair.play(step)
    finally:
        pair.close()


@pytest.mark.rule(
    "STORE-2.1", "STORE-2.2", "STORE-2.3", "STORE-2.4", "STORE-2.7", "STORE-3.2", "STORE-4.5"
)
@given(st.lists(steps, min_size=12, max_size=30))
def test_both_stores_give_the_same_answers(history):
    with tempfile.TemporaryDirectory(prefix="wmp-store-") as folder:
        path = Path(folder) / "jobs.db"
        play(Pair(lambda clock: sqlite_store(path, clock), notices_deaths=True), history)
