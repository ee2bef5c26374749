"""The statements of SQLite for jobs that wait for other jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wmp.store.sql.dependents import QUEUED, Dependents, ReleasedJob
from wmp.store.sqlite.row_statement import parts

INLINE: Final = 512
"""Maximum payload in the row of its job. SQLite writes a whole row anew at every change."""


class SqliteDependents(Dependents):
    """See :class:`Dependents`. A transaction that writes is alone in the store."""

    ADD_WAIT = (
        "INSERT OR IGNORE INTO waits(id, splice, delay, timeout, expires) VALUES(?, ?, ?, ?, ?)"
    )
    ADD_PARENT = "INSERT OR IGNORE INTO parents(id, place, parent) VALUES(?, ?, ?)"
    PARENTS = Dependents.PARENTS.format("?")
    OPEN_PARENT = Dependents.OPEN_PARENT.format("?")
    RESULTS = Dependents.RESULTS.format("?")
    WAIT = (
        "SELECT kind, coalesce(payload, (SELECT payload FROM bodies WHERE bodies.id = jobs.id)),"
        " splice, delay, timeout, waits.expires FROM jobs JOIN waits ON waits.id = jobs.id"
        " WHERE jobs.id = ?"
    )
    END_WAIT = "DELETE FROM waits WHERE id = ?"
    INHERIT = (
        "UPDATE jobs SET state = ?, ended = ?, purge = ? + (SELECT CASE WHEN ? = 5 THEN"
        " keep ELSE keep_dead END FROM terms WHERE terms.terms = jobs.terms) WHERE id = ?"
    )
    KEEP = "INSERT OR REPLACE INTO results(id, attempt, payload) VALUES(?, 0, ?)"
    RESULT = "SELECT payload FROM results WHERE id = ?"

    def _lock(self, ids: Sequence[int]) -> list[int]:
        rows = self.rows.select_by_ids(
            self.connection, "SELECT id FROM jobs", ids, " AND state = -2"
        )
        return sorted(id for (id,) in rows)

    def _lock_parents(self, ids: Sequence[int]) -> None:
        """Do nothing."""

    def _children(self, ids: Sequence[int]) -> list[int]:
        if self.connection.execute("SELECT 1 FROM waits LIMIT 1").fetchone() is None:
            return []
        children: set[int] = set()
        for begin, end in parts(len(ids)):
            marks = ", ".join("?" * (end - begin))
            rows = self.connection.execute(
                f"SELECT id FROM parents WHERE parent IN ({marks})", list(ids[begin:end])
            )
            children.update(id for (id,) in rows)
        return sorted(children)

    def _release(self, job: ReleasedJob) -> None:
        inline = job.payload if len(job.payload) <= INLINE else None
        self.connection.execute(
            "UPDATE jobs SET state = ?, due = ?, deadline = ?, expires = ?, payload = ?"
            " WHERE id = ?",
            (QUEUED, job.due, job.deadline, job.expires, inline, job.id),
        )
        if inline is None:
            self.connection.execute(
                "INSERT OR REPLACE INTO bodies(id, payload) VALUES(?, ?)", (job.id, job.payload)
            )

    def _ended(self, id: int, size: int) -> None:
        """Do nothing: SQLite itself counts the bytes in use, and others read the file."""
