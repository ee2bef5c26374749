"""One write batch, inside a transaction of SQLite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

from wmp.message import Frame
from wmp.store.sql.sql_writer import SqlWriter
from wmp.store.sqlite.row_reader import priorities_of
from wmp.store.sqlite.row_statement import RowStatement
from wmp.store.sqlite.sqlite_dependents import INLINE, SqliteDependents
from wmp.store.sqlite.statements import (
    ADD_JOBS,
    CHANGES,
    END_WATCHES,
    KEEP_RESULTS,
    RECEIVE_ENDS,
    UNNEEDED,
    WATCH,
    ChangeStatement,
)
from wmp.store.store_settings import BLOCK, KEPT_INSTANCES
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.write_batch import (
    AddAnswer,
    ChangeAnswer,
    JobChanges,
    NewJobs,
    Reservation,
    ReservedJobs,
    StoredFailure,
)

# The first comparison of the state is that of the index.
_ENDED_LAST: Final = (
    "key = ? AND role = ? AND state >= 2 AND state >= 3 AND key IS NOT NULL"
    " ORDER BY ended DESC, id DESC LIMIT 1"
)

_State = StoredJobState
_In = StoredJobInput


class BatchWriter(SqlWriter):
    """Makes the changes of a batch."""

    SET_BACK = SqlWriter.SET_BACK.format(now=":now")
    ENDED_AHEAD = SqlWriter.ENDED_AHEAD.format(now=":now")
    LAPSING = (
        "SELECT jobs.id, jobs.instance, jobs.submitter FROM instances CROSS JOIN jobs"
        " ON jobs.instance = instances.instance AND jobs.state IN (1, 2)"
        " WHERE instances.ended <= :now - :grace"
        " ORDER BY instances.instance, jobs.state, jobs.id LIMIT :limit"
    )
    OVERDUE = (
        "SELECT id, instance, submitter FROM jobs WHERE state < 3 AND deadline IS NOT NULL"
        " AND deadline <= :now AND (state = 0 OR instance = :me OR instance NOT IN"
        " (SELECT instance FROM instances WHERE ended IS NULL)) ORDER BY deadline, id LIMIT :limit"
    )
    EXPIRED = (
        "SELECT id, instance, submitter FROM jobs WHERE state = 0 AND expires IS NOT NULL"
        " AND expires <= :now ORDER BY expires, id LIMIT :limit"
    )
    OUTLIVED = (
        "SELECT id, instance, submitter FROM jobs WHERE state >= 3 AND purge <= :now"
        f" AND {UNNEEDED.format(now=':now')} ORDER BY purge, id LIMIT :limit"
    )

    # -- adds -----------------------------------------------------------------------------------

    def _dependents(self) -> SqliteDependents:
        return SqliteDependents(self.connection, self.rows, self.now)

    def _is_due(self, kind: int) -> bool:
        """Return whether a job of a kind could be reserved now (NOTHING_WAITS)."""
        return any(
            self.connection.execute(
                "SELECT 1 FROM jobs WHERE state = 0 AND kind = ? AND priority = ? AND due <= ?"
                " LIMIT 1",
                (kind, priority, self.now),
            ).fetchone()
            for priority in self._priorities(kind)
        )

    def _priorities(self, kind: int) -> Iterator[int]:
        return priorities_of(self.connection, kind)

    def _add_plain(self, new: NewJobs, shared: dict[str, Any], state: _State) -> AddAnswer:
        ids, payloads = new.ids, new.payloads
        inline: Sequence[Frame | None] = payloads
        if max(map(len, payloads), default=0) > INLINE:
            inline = [payload if len(payload) <= INLINE else None for payload in payloads]
        shared["role"] = None
        columns = {"id": ids, "key": repeat(None), "payload": inline}
        added = ADD_JOBS.run(self.connection, len(ids), columns, shared)
        if inline is not payloads:
            self._add_bodies(zip(ids, payloads, strict=True))
        if added == len(ids):
            return AddAnswer(ids, [state] * added)
        states = self.rows.states(self.connection, ids)
        return AddAnswer(ids, [states[id][0] for id in ids])

    def _add_keyed(
        self,
        new: NewJobs,
        keys: Sequence[str | None],
        shared: dict[str, Any],
        state: _State,
    ) -> AddAnswer:
        ids, states = [], []
        for id, key, payload in zip(new.ids, keys, new.payloads, strict=True):
            joined = self._joined(id, key, new.kind.role, kept=new.unique == "kept")
            if joined is not None and joined[0] != id:
                self.watch([joined[0]])
            if joined is None:
                shared["role"] = None if key is None else new.kind.role
                inline = payload if len(payload) <= INLINE else None
                columns = {"id": (id,), "key": (key,), "payload": (inline,)}
                ADD_JOBS.run(self.connection, 1, columns, shared)
                if inline is None:
                    self._add_bodies([(id, payload)])
                joined = id, state
            ids.append(joined[0])
            states.append(joined[1])
        return AddAnswer(ids, states)

    def _joined(
        self, id: int, key: str | None, role: str, *, kept: bool
    ) -> tuple[int, _State] | None:
        """Return the job that an add joins: of its own number, or of its key and role."""
        queries: list[tuple[str, tuple[int | str, ...]]] = [("id = ?", (id,))]
        if key is not None:
            queries.append(("key = ? AND role = ? AND state < 2 AND key IS NOT NULL", (key, role)))
            if kept:
                queries.append((_ENDED_LAST, (key, role)))
        for where, values in queries:
            row = self.connection.execute(
                f"SELECT id, state FROM jobs WHERE {where}", values
            ).fetchone()
            if row is not None:
                return row[0], _State(row[1])
        return None

    def _add_bodies(self, rows: Iterable[tuple[int, Frame]]) -> None:
        self.connection.executemany(
            "INSERT OR IGNORE INTO bodies(id, payload) VALUES(?, ?)",
            ((id, payload) for id, payload in rows if len(payload) > INLINE),
        )

    def find(self, new: NewJobs) -> AddAnswer:
        """Return the answer for jobs of a batch that was applied before."""
        stored = self.rows.states(self.connection, new.ids)
        ids, states = [], []
        for index, id in enumerate(new.ids):
            state, joined = stored[id][0], id
            key = None if new.keys is None else new.keys[index]
            if state is _State.ABSENT:
                joined, state = self._joined(id, key, new.kind.role, kept=True) or (
                    0,
                    _State.ABSENT,
                )
            ids.append(joined)
            states.append(state)
        return AddAnswer(ids, states)

    def block(self) -> range:
        """Return a new block of numbers for jobs."""
        (first,) = self.connection.execute("SELECT next_id FROM meta").fetchone()
        self.connection.execute("UPDATE meta SET next_id = ?", (first + BLOCK,))
        return range(first, first + BLOCK)

    # -- changes --------------------------------------------------------------------------------

    def lock(self, changes: Iterable[JobChanges], receipts: Sequence[int]) -> None:
        """Do nothing: a transaction that writes is alone in the store."""

    def change(self, changes: JobChanges) -> ChangeAnswer:
        """Make changes; a change whose guards do not hold has no effect."""
        ids, attempts = changes.ids, changes.attempts
        self.may_end(changes.input, ids)
        target = self._change_all(
            changes.input,
            ids,
            {
                "attempt": repeat(0) if attempts is None else attempts,
                "payload": repeat(b"") if changes.payloads is None else changes.payloads,
                "cost": repeat(0) if changes.costs is None else changes.costs,
                "unbegun": repeat(0) if changes.unbegun is None else changes.unbegun,
                "wait": repeat(0) if changes.waits_ms is None else changes.waits_ms,
                "doer": repeat(None) if changes.workers is None else changes.workers,
                "age": repeat(None) if changes.ages_ms is None else changes.ages_ms,
                "fraction": repeat(None) if changes.fractions is None else changes.fractions,
                "note": repeat(None) if changes.notes is None else changes.notes,
            },
            changes.failures,
        )
        if target is not None and attempts is not None:
            state, growth = target
            return ChangeAnswer(
                [state] * len(ids),
                [attempt + growth for attempt in attempts] if growth else attempts,
            )
        states = self.rows.states(self.connection, ids)
        return ChangeAnswer([states[id][0] for id in ids], [states[id][1] for id in ids])

    def _change_all(
        self,
        what: _In,
        ids: Sequence[int],
        columns: Mapping[str, Iterable[Any]],
        failures: Sequence[StoredFailure | None] | None = None,
    ) -> tuple[_State, int] | None:
        """Make one input for several jobs.

        Returns:
            The state of all jobs and the growth of their attempts, if one statement changed all of
            them; else None.
        """
        columns = {**columns, "id": ids}
        left = len(ids)
        for statement in CHANGES[what]:
            if failures is not None and statement.failure is not None:
                self._keep_failures(statement.failure, ids, columns["attempt"], failures)
            if statement.keeps_result and self._keep_all(statement, len(ids), columns):
                return statement.target, statement.growth
            changed = 0
            for step in statement.steps:
                changed = step.run(self.connection, len(ids), columns, self._shared)
            if changed == len(ids):
                return statement.target, statement.growth
            left -= changed
            if not left:
                break
        return None

    def _keep_failures(
        self,
        statement: RowStatement,
        ids: Sequence[int],
        attempts: Iterable[int],
        failures: Sequence[StoredFailure | None],
    ) -> None:
        """Store the failures of attempts whose jobs will change."""
        rows = [row for row in zip(ids, attempts, failures, strict=False) if row[2] is not None]
        columns: dict[str, Sequence[Any]] = {
            "id": [id for id, _, _ in rows],
            "attempt": [attempt for _, attempt, _ in rows],
            "worker": [failure.worker for _, _, failure in rows if failure is not None],
            "error": [failure.error for _, _, failure in rows if failure is not None],
        }
        statement.run(self.connection, len(rows), columns, self._shared)

    def _keep_all(
        self, statement: ChangeStatement, count: int, columns: Mapping[str, Iterable[Any]]
    ) -> bool:
        """Change all jobs and store their results; if one does not change, undo and return False.

        In almost all cases all jobs change. Then the results need no guards, which take half of the
        time.
        """
        self.connection.execute("SAVEPOINT ends")
        change = statement.steps[-1]
        whole = change.run(self.connection, count, columns, self._shared) == count
        if not whole:
            self.connection.execute("ROLLBACK TO ends")
        self.connection.execute("RELEASE ends")
        if whole:
            KEEP_RESULTS.run(self.connection, count, columns, {})
        return whole

    def receive(self, ids: Sequence[int]) -> None:
        """Write receipts: this instance knows the ends of these jobs."""
        RECEIVE_ENDS.run(self.connection, len(ids), {"id": ids}, self._shared)
        END_WATCHES.run(self.connection, len(ids), {"id": ids}, self._shared)

    def watch(self, ids: Sequence[int]) -> None:
        """Keep jobs until this instance has learned of their ends."""
        WATCH.run(self.connection, len(ids), {"id": ids}, self._shared)

    def finish(self) -> None:
        """Do nothing: SQLite itself counts the bytes in use."""

    # -- the sweep ------------------------------------------------------------------------------

    def _change_swept(
        self, what: _In, ids: Sequence[int], mine: Sequence[int]
    ) -> dict[int, tuple[_State, int]]:
        self._change_all(what, ids, {})
        return self.rows.states(self.connection, mine)

    def end_instances(self, is_alive: Callable[[int], bool], *, by_validity: bool) -> None:
        """End dead instances, and remove those that ended long ago.

        Args:
            is_alive: Returns whether the process of an instance lives.
            by_validity: Whether instances end because their validity passed.
        """
        now = self.now
        over = [
            (now, number)
            for number, valid_until in self.connection.execute(
                "SELECT instance, valid_until FROM instances WHERE ended IS NULL AND instance != ?",
                (self.me,),
            )
            if (by_validity and valid_until < now) or not is_alive(number)
        ]
        self.connection.executemany("UPDATE instances SET ended = ? WHERE instance = ?", over)
        self.connection.execute(
            "DELETE FROM instances WHERE ended < ? AND NOT EXISTS (SELECT 1 FROM jobs WHERE"
            " jobs.instance = instances.instance AND jobs.state IN (1, 2))",
            (now - KEPT_INSTANCES,),
        )
        self.connection.execute(
            "DELETE FROM watchers WHERE instance IN"
            " (SELECT instance FROM instances WHERE ended IS NOT NULL)"
        )

    # -- reservations -----------------------------------------------------------------------------

    def reserve(self, wanted: Reservation) -> ReservedJobs:
        """Reserve due jobs of a kind, in their order."""
        kind = self._terms.find_kind(self.connection, wanted.kind)
        rows: list[tuple[Any, ...]] = []
        payloads: list[bytes] = []
        size, more = 0, False
        for priority in self._priorities(kind) if kind is not None else ():
            due = self.connection.execute(
                "SELECT id, attempt + 1, priority, lost, failed, unbegun, terms, deadline, expires,"
                " payload"
                " FROM jobs WHERE state = 0 AND kind = ? AND priority = ? AND due <= ?"
                " AND (deadline IS NULL OR deadline > ?) AND (expires IS NULL OR expires > ?)"
                " ORDER BY due, id LIMIT ?",
                (kind, priority, self.now, self.now, self.now, wanted.count + 1 - len(rows)),
            ).fetchall()
            for row in due:
                more = len(rows) == wanted.count
                if more:
                    break
                payload = row[-1] if row[-1] is not None else self._body(row[0])
                size += len(payload)
                more = size > wanted.bytes and bool(rows)
                if more:
                    break
                rows.append(row)
                payloads.append(payload)
            if more:
                break
        self._change_all(_In.RESERVE, [row[0] for row in rows], {})
        next_due = None if more or kind is None else self._next_due(kind)
        return self._reserved(rows, payloads, more=more, next_due=next_due)

    def _body(self, id: int) -> bytes:
        cursor = self.connection.execute("SELECT payload FROM bodies WHERE id = ?", (id,))
        (payload,) = cursor.fetchone()
        return bytes(payload)

    def _next_due(self, kind: int) -> int | None:
        rows = (
            self.connection.execute(
                "SELECT due FROM jobs WHERE state = 0 AND kind = ? AND priority = ? AND due > ?"
                " ORDER BY due LIMIT 1",
                (kind, priority, self.now),
            ).fetchone()
            for priority in self._priorities(kind)
        )
        return min((row[0] for row in rows if row is not None), default=None)
