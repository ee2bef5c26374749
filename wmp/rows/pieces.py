"""Cuts record batches into pieces, and names them by keys (ROWS-2)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import pyarrow
from attrs import frozen


@frozen
class TablePartition:
    """The table to which pieces belong: query, batch and partition."""

    query: str = ""
    batch: int | str = 0
    partition: int = 0

    def __str__(self) -> str:
        return f"partition {self.partition} of batch {self.batch} of query {self.query}"


@frozen(eq=False)
class Piece:
    """Consecutive rows of a partition: the payload of one job."""

    first: int
    """Index of the first row in the partition, from 0."""
    rows: pyarrow.RecordBatch

    def __str__(self) -> str:
        last = self.first + self.rows.num_rows - 1
        return f"row {last}" if last == self.first else f"rows {self.first} to {last}"


def cut(
    batches: Iterable[pyarrow.RecordBatch], rows_per_job: int, max_bytes: int
) -> Iterator[Piece]:
    """Cut the batches of a partition into pieces.

    Args:
        batches: The record batches of the partition, in their order.
        rows_per_job: Maximum number of rows of a piece.
        max_bytes: Maximum number of bytes of a piece that is more than one row. The bytes are those
            of the values, without the head of the stream.
    """
    first = 0
    for batch in batches:
        begin = 0
        while begin < batch.num_rows:
            count = min(rows_per_job, batch.num_rows - begin)
            rows = batch.slice(begin, count)
            while count > 1 and rows.nbytes > max_bytes:
                # Rows differ in size, so a share by the mean size may still be too large.
                count = max(1, min(count - 1, count * max_bytes // rows.nbytes))
                rows = batch.slice(begin, count)
            yield Piece(first, rows)
            begin += count
            first += count


def key_of(partition: TablePartition, first: int, role: str, payload: bytes) -> str:
    """Return the key of a job (ROWS-2.4).

    Args:
        partition: Query, batch and partition.
        first: The first row.
        role: Role of the job.
        payload: The encoded rows, with the result schema. Two transforms of one query with one role
            differ in this argument, or want the same results.
    """
    digest = hashlib.blake2b(role.encode() + b"\0", digest_size=16)
    digest.update(payload)
    name = hashlib.blake2b(partition.query.encode(), digest_size=8).hexdigest()
    where = f"{partition.query[:80]}:{name}:{partition.batch}:{partition.partition}:{first}"
    return f"rows:{where}:{digest.hexdigest()}"
