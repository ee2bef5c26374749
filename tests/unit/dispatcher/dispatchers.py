"""Dispatchers for tests: one store with a clock that the test moves, and short calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.store.stores import Clock
from wmp.dispatcher.job_document import NewJobDocument, number_of
from wmp.dispatcher.records import DispatchRecord, WorkerRecord
from wmp.dispatcher.registration import Registrant
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.steps.checking import Check
from wmp.dispatcher.steps.job_steps import Create, Finish, read_document, read_job
from wmp.dispatcher.steps.placing import Place
from wmp.dispatcher.steps.worker_steps import ClaimPings, NotePing, Register
from wmp.store.transaction import TransactingStore

SETTINGS = DispatcherSettings()


class Party:
    """One dispatcher on a store, without its machine: a test runs each step."""

    def __init__(self, store: TransactingStore, settings: DispatcherSettings = SETTINGS) -> None:
        self.store = store
        self.settings = settings
        self.me = store.begin(b"d", "test")
        self.ids = iter(self.me.block)

    def run(self, step: Any) -> Any:
        return self.store.transact(self.me, step.run)

    def create(self, type: str = "resize", **more: Any) -> int:
        created = self.run(
            Create(self.settings, next(self.ids), NewJobDocument(type, {"n": 1}, **more))
        )
        assert created.document is not None
        number = number_of(created.document["_id"])
        assert number is not None
        return number

    def register(
        self, port: int = 8082, places: int = 1, *types: str, by: Registrant | None = None
    ) -> int:
        return int(self.registered(port, places, *types, by=by).worker.id)

    def registered(
        self, port: int = 8082, places: int = 1, *types: str, by: Registrant | None = None
    ) -> Any:
        handlers = dict.fromkeys(types or ("resize",), True)
        by = by or Registrant()
        return self.run(Register(self.settings, "127.0.0.1", port, places, handlers, by))

    def place(self, **more: Any) -> Any:
        return self.run(Place(self.settings, **more))

    def check(self) -> Any:
        return self.run(Check(self.settings))

    def finish(self, id: int, attempt: int = 1, status: str = "s", payload: bytes = b"1") -> bool:
        return bool(self.run(Finish(id, attempt, status, payload)).counts)

    def pings(self) -> list[tuple[int, int]]:
        return [(worker.id, began) for worker, began in self.run(ClaimPings(self.settings))]

    def pinged(self, worker: int, began: int, *jobs: Any, error: str | None = None) -> Any:
        return self.run(NotePing(self.settings, worker, began, error, jobs))

    def document(self, id: int) -> dict[str, Any]:
        def read(store: Any) -> dict[str, Any]:
            job = read_job(store, id)
            assert job is not None
            return read_document(store, job)

        return self.store.transact(self.me, read)

    def status(self, id: int) -> str:
        return str(self.document(id)["status"])

    def worker(self, id: int) -> WorkerRecord | None:
        return self.store.transact(self.me, lambda store: WorkerRecord.read(store, id))

    def dispatch(self, id: int) -> DispatchRecord | None:
        return self.store.transact(self.me, lambda store: DispatchRecord.read(store, id))


class World:
    """A store, and dispatchers on it."""

    def __init__(self, clock: Clock, open_store: Callable[[], Any]) -> None:
        self.clock = clock
        self._open = open_store
        self.opened: list[Any] = []

    def party(self, settings: Any = SETTINGS) -> Party:
        self.opened.append(self._open())
        return Party(self.opened[-1], settings)

    def die(self, party: Party) -> None:
        """End the instance of a dispatcher, as a sweep of another one does."""
        party.store.end(party.me)
