"""The due jobs of a kind, which a transaction of PostgreSQL reserves for its instance.

Several instances reserve jobs of one store at the same time. Each locks the jobs that it takes, and
skips those that another transaction has locked.
"""

from __future__ import annotations

from typing import Any, Final

from wmp.store.postgres.pg_changes import numbers
from wmp.store.postgres.pg_rows import read_priorities
from wmp.store.write_batch import Reservation

_DUE: Final = (
    "state = 0 AND kind = %(kind)s AND priority = %(priority)s AND due <= %(now)s"
    " AND (deadline IS NULL OR deadline > %(now)s) AND (expires IS NULL OR expires > %(now)s)"
)


class DueJobs:
    """The due jobs of one kind.

    Args:
        connection: A connection in a transaction.
        kind: Number of the kind.
        now: Milliseconds since 1970.
    """

    def __init__(self, connection: Any, kind: int, now: int) -> None:
        self._connection = connection
        self._kind = kind
        self._now = now
        self._priorities = read_priorities(connection, kind)

    def lock(self, wanted: Reservation) -> tuple[list[int], bool]:
        """Lock due jobs in their order, except those that other transactions have locked.

        Returns:
            The numbers of the jobs, and whether a further job exceeds ``wanted.bytes``.
        """
        ids: list[int] = []
        size, more = 0, False
        for priority, due in self._priorities:
            if due > self._now or more or len(ids) == wanted.count:
                continue
            for id, length in self._connection.execute(
                f"SELECT id, octet_length(payload) FROM jobs WHERE {_DUE}"
                " ORDER BY due, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED",
                {
                    "kind": self._kind,
                    "priority": priority,
                    "now": self._now,
                    "limit": wanted.count - len(ids),
                },
            ):
                size += length
                more = size > wanted.bytes and bool(ids)
                if more:
                    break
                ids.append(id)
        return ids, more

    def left(self) -> tuple[bool, int | None]:
        """Return whether jobs of the kind are due, and when the next other one is."""
        if not self._priorities:
            return False, None
        due, later = self._connection.execute(
            f"SELECT bool_or(EXISTS (SELECT 1 FROM jobs WHERE {_DUE})), min((SELECT due FROM jobs"
            " WHERE state = 0 AND kind = %(kind)s AND priority = of.priority AND due > %(now)s"
            " ORDER BY due LIMIT 1)) FROM unnest(%(of)s::bigint[]) AS of(priority)".replace(
                "%(priority)s", "of.priority"
            ),
            {
                "kind": self._kind,
                "now": self._now,
                "of": numbers([priority for priority, _ in self._priorities]),
            },
        ).fetchone()
        return bool(due), None if later is None else int(later)
