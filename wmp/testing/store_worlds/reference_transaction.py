"""Transactions of the store in memory: slow and obvious, for tests and worlds of dispatchers."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from attrs import define, field

from wmp.errors import InstanceEnded
from wmp.store.contract import JobFilter, QueuedKind, StoredJob, StoreInstance
from wmp.store.transaction import StoreRecord, StoreTransaction
from wmp.store.write_batch import (
    AddAnswer,
    BatchAnswer,
    ChangeAnswer,
    JobChanges,
    NewJobs,
    Reservation,
    ReservedJobs,
    SweptJob,
    WriteBatch,
)
from wmp.testing.store_worlds.reference_store import ReferenceStore

_T = TypeVar("_T")


@define(eq=False)
class TransactingReference(ReferenceStore):
    """A store in memory with transactions and records.

    Attributes:
        undoes: Whether an exception undoes the changes of its transaction, which costs a copy of
            the whole store each time.
    """

    undoes: bool = True
    _records: dict[tuple[str, int], StoreRecord] = field(factory=dict)

    def transact(self, me: StoreInstance, work: Callable[[StoreTransaction], _T]) -> _T:
        """Run a function in one transaction; an exception undoes its changes."""
        row = self._instances.get(me.number)
        if row is None or row.ended is not None:
            raise InstanceEnded(f"instance {me.number} has ended")
        if not self.undoes:
            self.apply(me, row.batch + 1, WriteBatch())
            return work(_ReferenceTransaction(self, me))
        before = copy.deepcopy((self._rows, self._instances, self._next_id))
        records = dict(self._records)
        try:
            self.apply(me, row.batch + 1, WriteBatch())
            return work(_ReferenceTransaction(self, me))
        except BaseException:
            self._rows, self._instances, self._next_id = before
            self._records = records
            raise


class _ReferenceTransaction:
    """See :class:`~wmp.store.transaction.StoreTransaction`."""

    def __init__(self, store: TransactingReference, me: StoreInstance) -> None:
        self._store = store
        self._instance = me
        self.now = store._now()
        self.me = me.number

    def _apply(self, batch: WriteBatch) -> BatchAnswer:
        number = self._store._instances[self.me].batch + 1
        return self._store.apply(self._instance, number, batch)

    def add(self, new: NewJobs) -> AddAnswer:
        return self._apply(WriteBatch(adds=[new])).adds[0]

    def change(self, changes: JobChanges) -> ChangeAnswer:
        return self._apply(WriteBatch(changes=[changes])).changes[0]

    def reserve(self, wanted: Reservation) -> ReservedJobs:
        return self._apply(WriteBatch(reservations=[wanted])).reserved[0]

    def sweep(self, limit: int) -> Sequence[SweptJob]:
        return self._apply(WriteBatch(sweep=limit)).swept

    def jobs(
        self, where: JobFilter, *, after: int = 0, limit: int = 1000, payloads: bool = False
    ) -> list[StoredJob]:
        return self._store.list(where, after=after, limit=limit, payloads=payloads)

    def queued(self, *, counted: bool = False) -> Sequence[QueuedKind]:
        return self._store.kinds(counted=counted)

    def living(self) -> set[int]:
        return self._store.living()

    def block(self) -> range:
        return self._store._block()

    def record(self, sort: str, id: int) -> StoreRecord | None:
        return self._store._records.get((sort, id))

    def records(
        self, sort: str, *, opened: bool = True, after: int = -1, limit: int = 10_000
    ) -> Sequence[StoreRecord]:
        chosen = [
            record
            for (name, id), record in sorted(self._store._records.items(), key=lambda item: item[0])
            if name == sort and id > after and (record.open or not opened)
        ]
        return chosen[:limit]

    def put(self, sort: str, record: StoreRecord) -> None:
        body = json.loads(json.dumps(record.body))  # as a database: no value is shared
        self._store._records[sort, record.id] = StoreRecord(record.id, record.open, body)

    def remove(self, sort: str, id: int) -> None:
        self._store._records.pop((sort, id), None)
