"""The sweep of a store on PostgreSQL: the changes that time alone causes."""

from __future__ import annotations

from typing import Final

from wmp.store.postgres.pg_writer import JobWriter
from wmp.store.store_settings import KEPT_INSTANCES
from wmp.store.stored_job import StoredJobInput
from wmp.store.write_batch import SweptJob

_FIELDS: Final = "jobs.id, jobs.instance, jobs.submitter"

# Jobs that another transaction has locked are swept the next time.
_LIMIT: Final = "LIMIT %(limit)s FOR UPDATE OF jobs SKIP LOCKED"

_LAPSING: Final = (
    f"SELECT {_FIELDS} FROM instances JOIN jobs"
    " ON jobs.instance = instances.instance AND jobs.state IN (1, 2)"
    " WHERE instances.ended <= %(now)s - %(grace)s"
    f" ORDER BY instances.instance, jobs.state, jobs.id {_LIMIT}"
)
_OVERDUE: Final = (
    f"SELECT {_FIELDS} FROM jobs WHERE state < 3 AND deadline IS NOT NULL"
    " AND deadline <= %(now)s AND (state = 0 OR instance = %(me)s OR instance NOT IN"
    f" (SELECT instance FROM instances WHERE ended IS NULL)) ORDER BY deadline, id {_LIMIT}"
)
_EXPIRED: Final = (
    f"SELECT {_FIELDS} FROM jobs WHERE state = 0 AND expires IS NOT NULL"
    f" AND expires <= %(now)s ORDER BY expires, id {_LIMIT}"
)
_OUTLIVED: Final = (
    f"SELECT {_FIELDS} FROM jobs WHERE state >= 3 AND purge <= %(now)s ORDER BY purge, id {_LIMIT}"
)


def sweep(writer: JobWriter, limit: int, *, late: bool) -> list[SweptJob]:
    """Make the changes that time alone causes, at most ``limit`` of each sort.

    ``late``: whether the instance that sweeps began so long ago that workers had time to reach it
    (STORE-1.5).
    """
    values = {"now": writer.now, "me": writer.me, "grace": writer.grace, "limit": limit}
    swept = []
    if late:
        swept += writer.sweep_jobs(StoredJobInput.LAPSE, _LAPSING, values)
    swept += writer.sweep_jobs(StoredJobInput.EXPIRE, _OVERDUE, values)
    swept += writer.sweep_jobs(StoredJobInput.EXPIRE, _EXPIRED, values)
    writer.sweep_jobs(StoredJobInput.PURGE, _OUTLIVED, values)
    return swept


def end_instances(writer: JobWriter) -> None:
    """End instances whose validity has passed, and remove old ones.

    A row that another transaction has locked is that of a living instance.
    """
    connection = writer.connection
    connection.execute(
        "UPDATE instances SET ended = %(now)s WHERE instance IN (SELECT instance FROM instances"
        " WHERE ended IS NULL AND instance != %(me)s AND valid_until < %(now)s"
        " FOR UPDATE SKIP LOCKED)",
        {"now": writer.now, "me": writer.me},
    )
    # Their bytes are counted by the instance that removes them.
    for (size,) in connection.execute(
        "DELETE FROM instances WHERE instance IN (SELECT instance FROM instances WHERE ended < %s"
        " AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.instance = instances.instance"
        " AND jobs.state IN (1, 2)) FOR UPDATE SKIP LOCKED) RETURNING bytes",
        (writer.now - KEPT_INSTANCES,),
    ).fetchall():
        writer.growth += size
