"""The statements of PostgreSQL for jobs that wait for other jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wmp.store.postgres.pg_changes import numbers
from wmp.store.sql.dependents import QUEUED, Dependents, ReleasedJob
from wmp.store.sql.sql_rows import SqlRows


class PostgresDependents(Dependents):
    """See :class:`Dependents`.

    Two transactions may end the last two jobs for which a job waits. Each ends its own job first,
    and then locks the waiting job: so the second transaction sees both ends.

    Args:
        connection: As at :class:`Dependents`.
        rows: As at :class:`Dependents`.
        now: As at :class:`Dependents`.
        note: Called with the kind of a released job, else None; the submitter of an ended job; and
            the bytes by which the store grows.
    """

    ADD_WAIT = (
        "INSERT INTO waits(id, splice, delay, timeout, expires) VALUES(%s, %s, %s, %s, %s)"
        " ON CONFLICT DO NOTHING"
    )
    ADD_PARENT = "INSERT INTO parents(id, place, parent) VALUES(%s, %s, %s) ON CONFLICT DO NOTHING"
    PARENTS = Dependents.PARENTS.format("%s")
    OPEN_PARENT = Dependents.OPEN_PARENT.format("%s")
    RESULTS = Dependents.RESULTS.format("%s")
    WAIT = (
        "SELECT kind, payload, splice, delay, timeout, waits.expires FROM jobs"
        " JOIN waits ON waits.id = jobs.id WHERE jobs.id = %s"
    )
    END_WAIT = "DELETE FROM waits WHERE id = %s"
    INHERIT = (
        "UPDATE jobs SET state = %s::int, ended = %s::bigint, purge = %s::bigint + (SELECT CASE"
        " WHEN %s::int = 5 THEN keep ELSE keep_dead END FROM terms"
        " WHERE terms.terms = jobs.terms) WHERE id = %s"
    )
    KEEP = (
        "INSERT INTO results(id, attempt, payload) VALUES(%s, 0, %b) ON CONFLICT (id) DO UPDATE SET"
        " attempt = excluded.attempt, payload = excluded.payload"
    )
    RESULT = "SELECT payload FROM results WHERE id = %s"

    def __init__(
        self,
        connection: Any,
        rows: SqlRows,
        now: int,
        note: Callable[[int | None, int | None, int], None],
    ) -> None:
        super().__init__(connection, rows, now)
        self._note = note

    def _lock(self, ids: Sequence[int]) -> list[int]:
        rows = self.connection.execute(
            "SELECT id FROM jobs WHERE id = ANY(%s::bigint[]) AND state = -2 ORDER BY id"
            " FOR UPDATE",
            (numbers(ids),),
        ).fetchall()
        return [id for (id,) in rows]

    def _lock_parents(self, ids: Sequence[int]) -> None:
        self.connection.execute(
            "SELECT id FROM jobs WHERE id = ANY(%s::bigint[]) ORDER BY id FOR SHARE",
            (numbers(ids),),
        )

    def _children(self, ids: Sequence[int]) -> list[int]:
        rows = self.connection.execute(
            "SELECT DISTINCT id FROM parents WHERE parent = ANY(%s::bigint[]) ORDER BY id",
            (numbers(ids),),
        ).fetchall()
        return [id for (id,) in rows]

    def _release(self, job: ReleasedJob) -> None:
        self.connection.execute(
            "UPDATE jobs SET state = %s, due = %s, deadline = %s, expires = %s, payload = %b"
            " WHERE id = %s",
            (QUEUED, job.due, job.deadline, job.expires, job.payload, job.id),
        )
        self._note(job.kind, None, job.growth)

    def _ended(self, id: int, size: int) -> None:
        (submitter,) = self.connection.execute(
            "SELECT submitter FROM jobs WHERE id = %s", (id,)
        ).fetchone()
        self._note(None, submitter, size)
