"""One write batch, inside a transaction of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from wmp.errors import StoreUnavailable
from wmp.store.postgres.pg_rows import (
    failures_of,
    find_states,
    read_priorities,
)
from wmp.store.postgres.pg_statements import CHANGES, numbers
from wmp.store.postgres.pg_terms import PostgresTerms, as_bytes
from wmp.store.store_settings import ROW
from wmp.store.stored_job import ENDED, TRANSITIONS, StoredJobInput, StoredJobState
from wmp.store.write_batch import (
    AddAnswer,
    ChangeAnswer,
    JobChanges,
    NewJobs,
    Reservation,
    ReservedJobs,
    SweptJob,
)

_State = StoredJobState
_In = StoredJobInput

_QUEUED: Final = TRANSITIONS[_State.ABSENT, _In.ADD]
_RESERVED: Final = TRANSITIONS[_State.ABSENT, _In.ADD_RESERVED]

_TURNS: Final = 10
"""How often an add looks for the job of its key, which others end and add meanwhile."""

_ADD: Final = (
    "INSERT INTO jobs(state, kind, priority, due, attempt, lost, failed, terms, instance,"
    " submitter, deadline, expires, created, id, key, payload)"
    " SELECT %(state)s, %(kind)s, %(priority)s, %(due)s, %(attempt)s, 0, 0, %(terms)s,"
    " %(instance)s, %(submitter)s, %(deadline)s, %(expires)s, %(created)s, id, key, payload"
    " FROM unnest(%(id)s::bigint[], %(key)b::bytea[], %(payload)b::bytea[])"
    # In the order of keys: two transactions with the same keys then wait, and do not deadlock.
    " WITH ORDINALITY AS given(id, key, payload, place) {order} ON CONFLICT DO NOTHING RETURNING id"
)
_ADD_PLAIN: Final = _ADD.format(order="")
_ADD_KEYED: Final = _ADD.format(order="ORDER BY given.key, given.place")


_DUE: Final = (
    "state = 0 AND kind = %(kind)s AND priority = %(priority)s AND due <= %(now)s"
    " AND (deadline IS NULL OR deadline > %(now)s) AND (expires IS NULL OR expires > %(now)s)"
)
_AGAIN: Final = 10
"""Milliseconds after which jobs are looked for again that another transaction has locked."""


class JobWriter:
    """Makes the changes of a batch.

    Args:
        connection: A connection inside a transaction.
        terms: The numbers of kinds and terms.
        me: Number of the instance that writes.
        now: Time of the transaction, in milliseconds.
        grace: Milliseconds after which the jobs of an ended instance lapse.

    Attributes:
        growth: Bytes that the store has more after the changes.
        queued: Numbers of the kinds of which jobs were queued.
        touched: Numbers of other instances whose jobs ended or are cancelled.
    """

    def __init__(
        self, connection: Any, terms: PostgresTerms, me: int, now: int, grace: int
    ) -> None:
        self.connection = connection
        self.me = me
        self.now = now
        self.grace = grace
        self.growth = 0
        self.queued: set[int] = set()
        self.touched: set[int] = set()
        self._terms = terms
        self._shared: Final = {"me": me, "now": now, "grace": grace, "row": ROW}

    # -- adds -----------------------------------------------------------------------------------

    def add(self, new: NewJobs) -> AddAnswer:
        """Add jobs; a job whose number or key the store has is not added again."""
        if not new.ids:
            return AddAnswer([], [])
        connection = self.connection
        kind = self._terms.number_of_kind(connection, new.kind)
        due = self.now + new.delay
        state = _QUEUED
        if new.reserve and not new.delay and not self._is_due(kind):
            state = _RESERVED
        shared = {
            "state": int(state),
            "kind": kind,
            "priority": new.priority,
            "due": due,
            "attempt": int(state is _RESERVED),
            "terms": self._terms.number_of_terms(connection, new.terms),
            "instance": self.me if state is _RESERVED else None,
            "submitter": self.me,
            "deadline": None if new.timeout is None else due + new.timeout,
            "expires": None if new.expires is None else due + new.expires,
            "created": self.now,
        }
        if state is _QUEUED:
            self.queued.add(kind)
        if new.keys is None or not any(key is not None for key in new.keys):
            added = self._insert(shared, zip(new.ids, new.payloads, strict=True), None)
            if len(added) == len(new.ids):
                return AddAnswer(new.ids, [state] * len(added))
            found = find_states(connection, new.ids)
            return AddAnswer(new.ids, [found[id][0] for id in new.ids])
        return self._add_keyed(new, shared, state)

    def _is_due(self, kind: int) -> bool:
        """Return whether a job of a kind could be reserved now (NOTHING_WAITS)."""
        return any(due <= self.now for _, due in read_priorities(self.connection, kind))

    def _insert(
        self, shared: dict[str, Any], rows: Iterable[tuple[int, Any]], keys: list[Any] | None
    ) -> set[int]:
        ids, payloads = zip(*rows, strict=True)
        sizes = {id: ROW + len(payload) for id, payload in zip(ids, payloads, strict=True)}
        found = self.connection.execute(
            _ADD_PLAIN if keys is None else _ADD_KEYED,
            {
                **shared,
                "id": numbers(ids),
                "key": keys,
                "payload": [bytes(payload) for payload in payloads],
            },
        ).fetchall()
        added = {id for (id,) in found}
        self.growth += sum(sizes[id] for id in added)
        return added

    def _add_keyed(self, new: NewJobs, shared: dict[str, Any], state: _State) -> AddAnswer:
        assert new.keys is not None
        keys = {
            id: None if key is None else as_bytes(key)
            for id, key in zip(new.ids, new.keys, strict=True)
        }
        payloads = dict(zip(new.ids, new.payloads, strict=True))
        answers: dict[int, tuple[int, _State]] = {}
        kept = new.unique == "kept"
        left = list(new.ids)
        for turn in range(_TURNS):
            if kept or turn:
                answers.update(self._joined({id: keys[id] for id in left}, kept=kept))
                left = [id for id in left if id not in answers]
            if not left:
                break
            added = self._insert(
                shared, [(id, payloads[id]) for id in left], [keys[id] for id in left]
            )
            answers.update({id: (id, state) for id in added})
            left = [id for id in left if id not in answers]
        if left:
            raise StoreUnavailable(
                f"jobs of the same keys were added and ended {_TURNS} times meanwhile; make the "
                "same write again"
            )
        return AddAnswer([answers[id][0] for id in new.ids], [answers[id][1] for id in new.ids])

    def _joined(
        self, keys: dict[int, bytes | None], *, kept: bool
    ) -> dict[int, tuple[int, _State]]:
        """Return the jobs that adds join: of their own numbers, or of their keys."""
        states = find_states(self.connection, list(keys))
        found: dict[int, tuple[int, _State]] = {
            id: (id, state) for id, (state, _) in states.items() if state is not _State.ABSENT
        }
        left = {id: key for id, key in keys.items() if id not in found and key is not None}
        conditions = ["state < 3 ORDER BY id"]
        if kept:
            conditions.append("state >= 3 ORDER BY ended DESC, id DESC")
        for condition in conditions:
            if not left:
                break
            rows = self.connection.execute(
                "SELECT given.id, job.id, job.state"
                " FROM unnest(%s::bigint[], %b::bytea[]) AS given(id, key) CROSS JOIN LATERAL"
                " (SELECT id, state FROM jobs WHERE sha256(jobs.key) = sha256(given.key)"
                f" AND key IS NOT NULL AND {condition} LIMIT 1) AS job",
                (numbers(left), list(left.values())),
            ).fetchall()
            found.update({id: (other, _State(state)) for id, other, state in rows})
            left = {id: key for id, key in left.items() if id not in found}
        return found

    def find(self, new: NewJobs) -> AddAnswer:
        """Return the answer for jobs of a batch that was applied before."""
        texts = [None] * len(new.ids) if new.keys is None else list(new.keys)
        keys = {
            id: None if key is None else as_bytes(key)
            for id, key in zip(new.ids, texts, strict=True)
        }
        found = self._joined(keys, kept=True)
        both = [found.get(id, (0, _State.ABSENT)) for id in new.ids]
        return AddAnswer([id for id, _ in both], [state for _, state in both])

    # -- changes --------------------------------------------------------------------------------

    def lock(self, changes: Iterable[JobChanges], receipts: Sequence[int]) -> None:
        """Lock all jobs of a batch in one order, so that no two batches wait for each other."""
        ids = {id for one in changes for id in one.ids}
        ids.update(receipts)
        if ids:
            self.connection.execute(
                "SELECT id FROM jobs WHERE id = ANY(%s::bigint[]) ORDER BY id FOR UPDATE",
                (numbers(sorted(ids)),),
            )

    def change(self, changes: JobChanges) -> ChangeAnswer:
        """Make changes; a change whose guards do not hold has no effect."""
        ids = changes.ids
        if not ids:
            return ChangeAnswer([], [])
        failures = changes.failures
        columns: dict[str, Sequence[Any] | None] = {
            "attempt": changes.attempts,
            "payload": changes.payloads,
            "cost": changes.costs,
            "wait": changes.waits,
        }
        if failures is not None:
            columns["worker"] = [one and as_bytes(one.worker) for one in failures]
            columns["error"] = [one and as_bytes(one.error) for one in failures]
        found = self.change_all(changes.input, ids, columns)
        if len(found) < len(ids):
            found = {**find_states(self.connection, ids), **found}
        return ChangeAnswer([found[id][0] for id in ids], [found[id][1] for id in ids])

    def change_all(
        self, what: _In, ids: Sequence[int], columns: dict[str, Sequence[Any] | None]
    ) -> dict[int, tuple[_State, int]]:
        """Make one input for several jobs; return state and attempt of the jobs that changed."""
        statement = CHANGES[what]
        if statement.alone and len(ids) > 1:
            found = {}
            for place, id in enumerate(ids):
                one = {name: row and row[place : place + 1] for name, row in columns.items()}
                found.update(self.change_all(what, [id], one))
            return found
        values: dict[str, Any] = {**self._shared, "id": numbers(ids)}
        for name in statement.each[1:]:
            values[name] = _array(name, columns.get(name))
        changed = {}
        for id, state, attempt, kind, submitter, instance, growth in self.connection.execute(
            statement.text, values
        ):
            self.growth += growth
            if id is None:
                continue
            changed[id] = (_State(state), attempt)
            if state == _State.QUEUED:
                self.queued.add(kind)
            elif state == _State.CANCELLING:
                self._touch(instance)
            elif state > _State.CANCELLING:
                self._touch(submitter)
        return changed

    def _touch(self, instance: int | None) -> None:
        if instance is not None and instance != self.me:
            self.touched.add(instance)

    def receive(self, ids: Sequence[int]) -> None:
        """Write receipts: this instance, the submitter, knows the ends of these jobs."""
        if ids:
            self.connection.execute(
                "UPDATE jobs SET submitter = NULL WHERE id = ANY(%s::bigint[]) AND submitter = %s"
                " AND state >= 3",
                (numbers(ids), self.me),
            )

    # -- reservations -----------------------------------------------------------------------------

    def reserve(self, wanted: Reservation) -> ReservedJobs:
        """Reserve due jobs of a kind, in their order, except those that others reserve now."""
        kind = self._terms.find_kind(self.connection, wanted.kind)
        priorities = [] if kind is None else read_priorities(self.connection, kind)
        ids: list[int] = []
        size, more = 0, False
        for priority, due in priorities:
            if due > self.now or more or len(ids) == wanted.count:
                continue
            for id, length in self.connection.execute(
                f"SELECT id, octet_length(payload) FROM jobs WHERE {_DUE}"
                " ORDER BY due, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED",
                {
                    "kind": kind,
                    "priority": priority,
                    "now": self.now,
                    "limit": wanted.count - len(ids),
                },
            ):
                size += length
                more = size > wanted.bytes and bool(ids)
                if more:
                    break
                ids.append(id)
        rows = self._take(ids)
        next_due = None
        if not more and kind is not None:
            left, next_due = self._left(kind, [priority for priority, _ in priorities])
            more = left and (bool(ids) or not wanted.count)
            if more:
                next_due = None
            elif left:  # others reserve the due jobs now, and may not take them
                next_due = self.now + _AGAIN
        return ReservedJobs(
            ids=ids,
            attempts=[row[1] for row in rows],
            payloads=[row[-1] for row in rows],
            priorities=[row[2] for row in rows],
            lost=[row[3] for row in rows],
            failed=[row[4] for row in rows],
            terms=[self._terms.terms(self.connection, row[5]) for row in rows],
            deadlines=[row[6] for row in rows],
            expires=[row[7] for row in rows],
            more=more,
            next_due=next_due,
            histories=failures_of(self.connection, [row[0] for row in rows if row[1] > 1]),
        )

    def _take(self, ids: list[int]) -> list[tuple[Any, ...]]:
        if not ids:
            return []
        self.change_all(_In.RESERVE, ids, {})
        found = {
            row[0]: row
            for row in self.connection.execute(
                "SELECT id, attempt, priority, lost, failed, terms, deadline, expires, payload"
                " FROM jobs WHERE id = ANY(%s::bigint[])",
                (numbers(ids),),
                binary=True,
            )
        }
        return [found[id] for id in ids]

    def _left(self, kind: int, priorities: list[int]) -> tuple[bool, int | None]:
        """Return whether jobs of a kind are due, and when the next other one is."""
        if not priorities:
            return False, None
        due, later = self.connection.execute(
            f"SELECT bool_or(EXISTS (SELECT 1 FROM jobs WHERE {_DUE})), min((SELECT due FROM jobs"
            " WHERE state = 0 AND kind = %(kind)s AND priority = of.priority AND due > %(now)s"
            " ORDER BY due LIMIT 1)) FROM unnest(%(of)s::bigint[]) AS of(priority)".replace(
                "%(priority)s", "of.priority"
            ),
            {"kind": kind, "now": self.now, "of": numbers(priorities)},
        ).fetchone()
        return bool(due), None if later is None else int(later)

    # -- the sweep ------------------------------------------------------------------------------

    def sweep_jobs(self, what: _In, query: str, values: dict[str, int]) -> list[SweptJob]:
        """Change the jobs that a query finds; return the ended ones that concern this instance."""
        rows = self.connection.execute(query, values).fetchall()
        if not rows:
            return []
        changed = self.change_all(what, [row[0] for row in rows], {})
        return [
            SweptJob(id, *changed[id])
            for id, instance, submitter in rows
            if self.me in (instance, submitter) and id in changed and changed[id][0] in ENDED
        ]


def _array(name: str, column: Sequence[Any] | None) -> Any:
    if column is None:
        return None
    if name in ("payload", "worker", "error"):
        if all(one is None for one in column):
            return None
        return [None if one is None else bytes(one) for one in column]
    return numbers(column)
