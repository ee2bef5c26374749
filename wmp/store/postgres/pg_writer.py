"""One write batch, inside a transaction of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from wmp.errors import StoreUnavailable
from wmp.store.postgres.pg_changes import CHANGES, UNNEEDED, numbers
from wmp.store.postgres.pg_dependents import PostgresDependents
from wmp.store.postgres.pg_reservations import DueJobs
from wmp.store.postgres.pg_rows import read_priorities
from wmp.store.postgres.pg_terms import as_bytes
from wmp.store.sql.sql_rows import SqlRows
from wmp.store.sql.sql_writer import SqlWriter
from wmp.store.store_settings import BLOCK, KEPT_INSTANCES, ROW, VALIDITY
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.write_batch import (
    AddAnswer,
    ChangeAnswer,
    JobChanges,
    NewJobs,
    Reservation,
    ReservedJobs,
    WriteBatch,
)

_State = StoredJobState
_In = StoredJobInput

_TURNS: Final = 10
"""How often an add looks for the job of its key, which others end and add meanwhile."""

_ADD: Final = (
    "INSERT INTO jobs(state, kind, priority, due, attempt, lost, failed, terms, instance,"
    " submitter, deadline, expires, created, role, id, key, payload)"
    " SELECT %(state)s, %(kind)s, %(priority)s, %(due)s, %(attempt)s, 0, 0, %(terms)s,"
    " %(instance)s, %(submitter)s, %(deadline)s, %(expires)s, %(created)s,"
    " CASE WHEN key IS NULL THEN NULL ELSE %(role)b::bytea END, id, key, payload"
    " FROM unnest(%(id)s::bigint[], %(key)b::bytea[], %(payload)b::bytea[])"
    # In the order of keys: two transactions with the same keys then wait, and do not deadlock.
    " WITH ORDINALITY AS given(id, key, payload, place) {order} ON CONFLICT DO NOTHING RETURNING id"
)
_ADD_PLAIN: Final = _ADD.format(order="")
_ADD_KEYED: Final = _ADD.format(order="ORDER BY given.key, given.place")


_OPEN: Final = "state < 2 ORDER BY id"
_KEPT: Final = "state >= 2 AND state >= 3 ORDER BY ended DESC, id DESC"
"""Which of the jobs of a key an add joins."""

_AGAIN: Final = 10
"""Milliseconds after which jobs are looked for again that another transaction has locked."""

_FIELDS: Final = "jobs.id, jobs.instance, jobs.submitter"

# Jobs that another transaction has locked are swept the next time.
_LIMIT: Final = "LIMIT %(limit)s FOR UPDATE OF jobs SKIP LOCKED"


class JobWriter(SqlWriter):
    """Makes the changes of a batch.

    Attributes:
        growth: Bytes that the store has more after the changes.
        queued: Numbers of the kinds of which jobs were queued.
        renewal: Validity and number of the last batch of the instance after the transaction; None
            if both stay.
        last: Statements that are sent with COMMIT, in the same round trip; after ``finish``.
        touched: Numbers of other instances whose jobs ended or are cancelled.
    """

    waiting: PostgresDependents

    SET_BACK = SqlWriter.SET_BACK.format(now="%(now)s")
    ENDED_AHEAD = SqlWriter.ENDED_AHEAD.format(now="%(now)s")
    LAPSING = (
        f"SELECT {_FIELDS} FROM instances JOIN jobs"
        " ON jobs.instance = instances.instance AND jobs.state IN (1, 2)"
        " WHERE instances.ended <= %(now)s - %(grace)s"
        f" ORDER BY instances.instance, jobs.state, jobs.id {_LIMIT}"
    )
    OVERDUE = (
        f"SELECT {_FIELDS} FROM jobs WHERE state < 3 AND deadline IS NOT NULL"
        " AND deadline <= %(now)s AND (state = 0 OR instance = %(me)s OR instance NOT IN"
        f" (SELECT instance FROM instances WHERE ended IS NULL)) ORDER BY deadline, id {_LIMIT}"
    )
    EXPIRED = (
        f"SELECT {_FIELDS} FROM jobs WHERE state = 0 AND expires IS NOT NULL"
        f" AND expires <= %(now)s ORDER BY expires, id {_LIMIT}"
    )
    OUTLIVED = (
        f"SELECT {_FIELDS} FROM jobs WHERE state >= 3 AND purge <= %(now)s AND {UNNEEDED}"
        f" ORDER BY purge, id {_LIMIT}"
    )

    def __init__(
        self, connection: Any, rows: SqlRows, me: int, now: int, grace: int, begun: int
    ) -> None:
        super().__init__(connection, rows, me, now, grace, begun)
        self.growth = 0
        self.queued: set[int] = set()
        self.renewal: tuple[int, int] | None = None
        self.last = ""
        self.touched: set[int] = set()
        self._shared["row"] = ROW

    # -- adds -----------------------------------------------------------------------------------

    def _add_plain(self, new: NewJobs, shared: dict[str, Any], state: _State) -> AddAnswer:
        shared["role"] = None
        added = self._insert(shared, zip(new.ids, new.payloads, strict=True), None)
        if len(added) == len(new.ids):
            return AddAnswer(new.ids, [state] * len(added))
        states = self.rows.states(self.connection, new.ids)
        return AddAnswer(new.ids, [states[id][0] for id in new.ids])

    def _is_due(self, kind: int) -> bool:
        """Return whether a job of a kind could be reserved now (NOTHING_WAITS)."""
        return any(due <= self.now for _, due in read_priorities(self.connection, kind))

    def _insert(
        self, shared: dict[str, Any], rows: Iterable[tuple[int, Any]], keys: list[Any] | None
    ) -> set[int]:
        if shared["state"] == _State.QUEUED:
            self.queued.add(shared["kind"])
        ids, payloads = zip(*rows, strict=True)
        sizes = {id: ROW + len(payload) for id, payload in zip(ids, payloads, strict=True)}
        inserted = self.connection.execute(
            _ADD_PLAIN if keys is None else _ADD_KEYED,
            {
                **shared,
                "id": numbers(ids),
                "key": keys,
                "payload": [bytes(payload) for payload in payloads],
            },
        ).fetchall()
        added = {id for (id,) in inserted}
        self.growth += sum(sizes[id] for id in added)
        return added

    def _add_keyed(
        self,
        new: NewJobs,
        texts: Sequence[str | None],
        shared: dict[str, Any],
        state: _State,
    ) -> AddAnswer:
        keys = _encoded(new.ids, texts)
        role = shared["role"] = as_bytes(new.kind.role)
        payloads = dict(zip(new.ids, new.payloads, strict=True))
        answers: dict[int, tuple[int, _State]] = {}
        kept = new.unique == "kept"
        left = list(new.ids)
        for turn in range(_TURNS):
            if kept or turn:
                joined = self._joined({id: keys[id] for id in left}, role, kept=kept)
                answers.update(self._watched(joined))
                left = [id for id in left if id not in answers]
            if not left:
                break
            added = self._insert(
                shared, [(id, payloads[id]) for id in left], [keys[id] for id in left]
            )
            if kept and added:
                # A job of a key may have been added and have ended since the look above. From now
                # on the new row keeps others from adding such a job.
                yielded = self._yielded(added, keys, role, payloads)
                answers.update(self._watched(yielded))
                added -= set(yielded)
            answers.update({id: (id, state) for id in added if id not in answers})
            left = [id for id in left if id not in answers]
        if left:
            raise StoreUnavailable(
                f"jobs of the same keys were added and ended {_TURNS} times meanwhile; make the "
                "same write again"
            )
        return AddAnswer([answers[id][0] for id in new.ids], [answers[id][1] for id in new.ids])

    def _watched(self, joined: dict[int, tuple[int, _State]]) -> dict[int, tuple[int, _State]]:
        """Watch the other jobs that adds join; return the joins whose jobs still exist."""
        others = [other for id, (other, _) in joined.items() if other != id]
        kept = self._watch(others) if others else set()
        return {
            id: (other, state)
            for id, (other, state) in joined.items()
            if other == id or other in kept
        }

    def _yielded(
        self,
        added: set[int],
        keys: dict[int, bytes | None],
        role: bytes,
        payloads: Mapping[int, Any],
    ) -> dict[int, tuple[int, _State]]:
        """Remove new jobs again whose keys ended jobs have; return these ended jobs."""
        ended = self._of_keys({id: keys[id] for id in sorted(added)}, role, (_KEPT,))
        if ended:
            self.connection.execute(
                "DELETE FROM jobs WHERE id = ANY(%s::bigint[])", (numbers(ended),)
            )
            self.growth -= sum(ROW + len(payloads[id]) for id in ended)
        return ended

    def _joined(
        self, keys: dict[int, bytes | None], role: bytes, *, kept: bool
    ) -> dict[int, tuple[int, _State]]:
        """Return the jobs that adds join: of their own numbers, or of their keys."""
        states = self.rows.states(self.connection, list(keys))
        joined: dict[int, tuple[int, _State]] = {
            id: (id, state) for id, (state, _) in states.items() if state is not _State.ABSENT
        }
        rest = {id: key for id, key in keys.items() if id not in joined}
        return joined | self._of_keys(rest, role, (_OPEN, _KEPT) if kept else (_OPEN,))

    def _of_keys(
        self, keys: Mapping[int, bytes | None], role: bytes, conditions: Iterable[str]
    ) -> dict[int, tuple[int, _State]]:
        """Return the jobs of the keys of adds: of each key the first by the conditions."""
        jobs: dict[int, tuple[int, _State]] = {}
        left = {id: key for id, key in keys.items() if key is not None}
        for condition in conditions:
            if not left:
                break
            rows = self.connection.execute(
                "SELECT given.id, job.id, job.state"
                " FROM unnest(%s::bigint[], %b::bytea[]) AS given(id, key) CROSS JOIN LATERAL"
                " (SELECT id, state FROM jobs WHERE sha256(jobs.key) = sha256(given.key)"
                " AND sha256(jobs.role) = sha256(%b::bytea) AND key IS NOT NULL"
                f" AND {condition} LIMIT 1) AS job",
                (numbers(left), list(left.values()), role),
            ).fetchall()
            jobs.update({id: (other, _State(state)) for id, other, state in rows})
            left = {id: key for id, key in left.items() if id not in jobs}
        return jobs

    def find(self, new: NewJobs) -> AddAnswer:
        """Return the answer for jobs of a batch that was applied before."""
        texts = [None] * len(new.ids) if new.keys is None else new.keys
        joined = self._joined(_encoded(new.ids, texts), as_bytes(new.kind.role), kept=True)
        both = [joined.get(id, (0, _State.ABSENT)) for id in new.ids]
        return AddAnswer([id for id, _ in both], [state for _, state in both])

    def block(self) -> range:
        """Return a new block of numbers for jobs."""
        (end,) = self.connection.execute(
            "UPDATE meta SET next_id = next_id + %s RETURNING next_id", (BLOCK,)
        ).fetchone()
        return range(end - BLOCK, end)

    # -- changes --------------------------------------------------------------------------------

    def lock(self, changes: Iterable[JobChanges], receipts: Sequence[int]) -> None:
        """Do nothing: the first round trip of the transaction locks the jobs (:func:`locking`)."""

    def change(self, changes: JobChanges) -> ChangeAnswer:
        """Make changes; a change whose guards do not hold has no effect."""
        ids = changes.ids
        if not ids:
            return ChangeAnswer([], [])
        self.may_end(changes.input, ids)
        failures = changes.failures
        columns: dict[str, Sequence[Any] | None] = {
            "attempt": changes.attempts,
            "payload": changes.payloads,
            "cost": changes.costs,
            "unbegun": changes.unbegun,
            "wait": changes.waits_ms,
            "doer": _texts(changes.workers),
            "age": changes.ages_ms,
            "fraction": changes.fractions,
            "note": _texts(changes.notes),
        }
        if failures is not None:
            columns["worker"] = [failure and as_bytes(failure.worker) for failure in failures]
            columns["error"] = [failure and as_bytes(failure.error) for failure in failures]
        states = self._change_all(changes.input, ids, columns)
        if len(states) < len(ids):
            states = {**self.rows.states(self.connection, ids), **states}
        return ChangeAnswer([states[id][0] for id in ids], [states[id][1] for id in ids])

    def _change_all(
        self, what: _In, ids: Sequence[int], columns: dict[str, Sequence[Any] | None]
    ) -> dict[int, tuple[_State, int]]:
        """Make one input for several jobs; return state and attempt of the jobs that changed."""
        statement = CHANGES[what]
        if statement.alone and len(ids) > 1:
            states = {}
            for index, id in enumerate(ids):
                slices = {name: row and row[index : index + 1] for name, row in columns.items()}
                states.update(self._change_all(what, [id], slices))
            return states
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

    def _dependents(self) -> PostgresDependents:
        return PostgresDependents(self.connection, self.rows, self.now, self._note)

    def _note(self, kind: int | None, submitter: int | None, growth: int) -> None:
        """Note that a waiting job was queued, if a kind is given, or ended."""
        self.growth += growth
        if kind is not None:
            self.queued.add(kind)
        else:
            self._touch(submitter)

    def _touch(self, instance: int | None) -> None:
        if instance is not None and instance != self.me:
            self.touched.add(instance)

    def receive(self, ids: Sequence[int]) -> None:
        """Write receipts: this instance knows the ends of these jobs."""
        if ids:
            self.connection.execute(
                "UPDATE jobs SET submitter = NULL WHERE id = ANY(%s::bigint[]) AND submitter = %s"
                " AND state >= 3",
                (numbers(ids), self.me),
            )
            self.connection.execute(
                "DELETE FROM watchers WHERE id = ANY(%s::bigint[]) AND instance = %s",
                (numbers(ids), self.me),
            )

    def watch(self, ids: Sequence[int]) -> None:
        """Keep jobs until this instance has learned of their ends."""
        if ids:
            self._watch(ids)

    def _watch(self, ids: Sequence[int]) -> set[int]:
        """Watch jobs; return those that exist. The lock keeps a purge from removing them."""
        rows = self.connection.execute(
            "WITH kept AS (SELECT id FROM jobs WHERE id = ANY(%s::bigint[]) ORDER BY id"
            " FOR KEY SHARE), added AS (INSERT INTO watchers(id, instance) SELECT id, %s FROM kept"
            " ON CONFLICT DO NOTHING) SELECT id FROM kept",
            (numbers(sorted(set(ids))), self.me),
        ).fetchall()
        return {id for (id,) in rows}

    # -- reservations -----------------------------------------------------------------------------

    def reserve(self, wanted: Reservation) -> ReservedJobs:
        """Reserve due jobs of a kind, in their order, except those that others reserve now."""
        kind = self._terms.find_kind(self.connection, wanted.kind)
        if kind is None:
            return self._reserved([], [], more=False, next_due=None)
        due = DueJobs(self.connection, kind, self.now)
        ids, more = due.lock(wanted)
        rows = self._take(ids)
        next_due = None
        if not more:
            left, next_due = due.left()
            more = left and (bool(ids) or not wanted.count)
            if more:
                next_due = None
            elif left:  # others reserve the due jobs now, and may not take them
                next_due = self.now + _AGAIN
        payloads = [row[-1] for row in rows]
        return self._reserved(rows, payloads, more=more, next_due=next_due)

    def _take(self, ids: list[int]) -> list[tuple[Any, ...]]:
        if not ids:
            return []
        self._change_all(_In.RESERVE, ids, {})
        rows = {
            row[0]: row
            for row in self.connection.execute(
                "SELECT id, attempt, priority, lost, failed, unbegun, terms, deadline, expires,"
                " payload"
                " FROM jobs WHERE id = ANY(%s::bigint[])",
                (numbers(ids),),
                binary=True,
            )
        }
        return [rows[id] for id in ids]

    # -- the sweep ------------------------------------------------------------------------------

    def _change_swept(
        self, what: _In, ids: Sequence[int], mine: Sequence[int]
    ) -> dict[int, tuple[_State, int]]:
        return self._change_all(what, ids, {})

    def set_back(self) -> None:
        """Move all times that are later than now; a locked row is that of a living instance."""
        super().set_back()
        until = self.now + round(VALIDITY * 1000)
        self.connection.execute(
            "UPDATE instances SET begun = least(begun, %(now)s), valid_until = %(until)s"
            " WHERE instance IN (SELECT instance FROM instances WHERE ended IS NULL"
            " AND (begun > %(now)s OR valid_until > %(until)s) FOR UPDATE SKIP LOCKED)",
            {"now": self.now, "until": until},
        )

    def end_instances(self, silent: int | None, locks: int, own: Iterable[int]) -> None:
        """End instances whose validity has passed, or whose process ended; remove old ones.

        A row that another transaction has locked is that of a living instance.

        Args:
            silent: An instance without a session is ended if its validity ends before this time;
                None to end no instance because it has no session.
            locks: First number of the locks that sessions of living instances hold.
            own: The instances of this session, which would get its own locks.
        """
        connection = self.connection
        connection.execute(
            "DELETE FROM watchers WHERE instance IN"
            " (SELECT instance FROM instances WHERE ended IS NOT NULL)"
        )
        connection.execute(
            "UPDATE instances SET ended = %(now)s WHERE instance IN (SELECT instance FROM instances"
            " WHERE ended IS NULL AND instance != %(me)s AND (valid_until < %(now)s"
            " OR CASE WHEN valid_until < %(silent)s AND instance != ALL(%(own)s) THEN"
            " pg_try_advisory_xact_lock(%(locks)s, (instance & 2147483647)::int) ELSE FALSE END)"
            " FOR UPDATE SKIP LOCKED)",
            {
                "now": self.now,
                "me": self.me,
                "silent": self.now if silent is None else silent,
                "locks": locks,
                "own": list(own),
            },
        )
        # Their bytes are counted by the instance that removes them.
        for (size,) in connection.execute(
            "DELETE FROM instances WHERE instance IN (SELECT instance FROM instances"
            " WHERE ended < %s AND NOT EXISTS (SELECT 1 FROM jobs"
            " WHERE jobs.instance = instances.instance AND jobs.state IN (1, 2))"
            " FOR UPDATE SKIP LOCKED) RETURNING bytes",
            (self.now - KEPT_INSTANCES,),
        ).fetchall():
            self.growth += size

    def finish(self) -> None:
        """Count the bytes that the changes of this instance need or free, and renew its validity,
        together with the commit."""
        changes = []
        if self.renewal is not None:
            changes.append("valid_until = {:d}, batch = {:d}".format(*self.renewal))
        if self.growth:
            changes.append(f"bytes = bytes + {self.growth:d}")
        if changes:
            self.last = f"UPDATE instances SET {', '.join(changes)} WHERE instance = {self.me:d}; "


def locking(batch: WriteBatch) -> str:
    """Return the statement that locks all jobs of a batch in one order, so that no two batches
    wait for each other; empty if the batch changes no job."""
    ids = {id for changes in batch.changes for id in changes.ids}
    ids.update(batch.receipts)
    if not ids:
        return ""
    return (
        "SELECT count(*) FROM (SELECT FROM jobs"
        f" WHERE id = ANY('{numbers(sorted(ids))}'::bigint[]) ORDER BY id FOR UPDATE) AS locked; "
    )


def _encoded(ids: Sequence[int], texts: Sequence[str | None]) -> dict[int, bytes | None]:
    """Return the key of each job as the database has it."""
    return {
        id: None if text is None else as_bytes(text) for id, text in zip(ids, texts, strict=True)
    }


def _texts(column: Sequence[str | None] | None) -> Sequence[bytes | None] | None:
    return None if column is None else [None if text is None else as_bytes(text) for text in column]


def _array(name: str, column: Sequence[Any] | None) -> Any:
    if column is None:
        return None
    if name == "fraction":
        return list(column)
    if name in ("payload", "worker", "error", "doer", "note"):
        if all(value is None for value in column):
            return None
        return [None if value is None else bytes(value) for value in column]
    return numbers(column)
