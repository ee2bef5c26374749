"""A manager machine with a store in memory, whose answers a test may hold back."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from attrs import evolve

from wmp.actions import Acknowledge, Decline, End, ManagerAction, Resolve, Write
from wmp.balance import least_recently_used
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings
from wmp.events import Cancelled, InstanceBegun, ManagerEvent, Submitted, Ticked, Woken, Written
from wmp.message import Command, Kind, Message
from wmp.store.contract import JobFilter, Store, StoredJob
from wmp.store.job_terms import StoredTerms
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent
from wmp.testing.store_worlds.reference_store import ReferenceStore


class StoredManager:
    """Drives a manager and its store. While ``holds`` is true, writes get no answer.

    It stands in for the machine where a scripted worker needs one.

    Args:
        beside: Another manager, with which this one shares store and clock.
        store: The store; by default a new one.
        clock: The time in seconds, in a list of one number.
        settings: Settings of the machine.
    """

    def __init__(
        self,
        beside: StoredManager | None = None,
        store: Store | None = None,
        clock: list[float] | None = None,
        **settings: Any,
    ) -> None:
        self.clock = clock or [1000.0]
        if beside is not None:
            self.clock = beside.clock
        if beside is not None:
            store = beside.store
        self.store = store if store is not None else ReferenceStore(lambda: self.now)
        self.workers: list[ScriptedWorker] = []
        self.settings = ManagerSettings(**{"identity": b"m", "epoch": 7, **settings})
        self.machine = ManagerMachine(self.settings, least_recently_used, stored=True)
        self.writes: deque[Write] = deque()
        self.holds = False
        self.actions: list[ManagerAction] = []
        """All actions so far."""
        self.begin()

    @property
    def now(self) -> float:
        """The time in seconds."""
        return self.clock[0]

    @now.setter
    def now(self, value: float) -> None:
        self.clock[0] = value

    def begin(self, owned: Sequence[int] = ()) -> None:
        """Begin an instance, the first one or a further one."""
        self.me = self.store.begin(self.settings.identity, "test")
        self.number = 0
        self.ids = iter(self.me.block)
        peer = (self.store.identity, self.store.generation)
        self.handle(InstanceBegun(owned, peer, self.me.number))

    def handle(self, event: ManagerEvent, now: float = 0.0) -> list[ManagerAction]:
        """Give the machine an event; answer its writes."""
        actions = list(self.machine.handle(event, self.now))
        self.machine.check_invariants()
        self.actions += actions
        for worker in self.workers:
            worker.note(actions)
        self.writes += [action for action in actions if isinstance(action, Write)]
        if not self.holds and self.writes:
            actions += self.answer()
        return actions

    def answer(self, *, lost: bool = False) -> list[ManagerAction]:
        """Apply the oldest write and answer it.

        Args:
            lost: The first answer is lost, and the same batch is given again.
        """
        write = self.writes.popleft()
        self.number += 1
        answer = self.store.apply(self.me, self.number, write.batch)
        if lost:
            answer = self.store.apply(self.me, self.number, write.batch)
        held = self.held() if write.held or answer.repeated else None
        seen = self.rows(ids=write.look) if write.look else []
        return self.handle(Written(write.step, answer, held, seen))

    def answer_all(self) -> list[ManagerAction]:
        """Answer all writes, and let further writes be answered at once."""
        self.holds, actions = False, []
        while self.writes:
            actions += self.answer()
        return actions

    def rows(self, **where: Any) -> list[StoredJob]:
        """Return jobs of the store."""
        return self.store.list(JobFilter(**where), payloads=True)

    def row(self, id: int) -> StoredJob:
        """Return one job of the store."""
        (row,) = self.rows(ids=[id])
        return row

    def held(self) -> list[StoredJob]:
        """Return the jobs that the instance has reserved."""
        return self.rows(instance=self.me.number)

    def submit(self, *payloads: bytes, **more: Any) -> list[int]:
        """Submit stored jobs; return their numbers."""
        ids = [next(self.ids) for _ in payloads]
        event = Submitted(ids, payloads, **{"kind": Kind(), "stored": StoredTerms(), **more})
        if event.retry is not None or event.run_limit is not None or event.max_worker_losses != 3:
            terms = StoredTerms(event.max_worker_losses, event.run_limit, event.retry)
            event = evolve(event, stored=terms)
        self.handle(event)
        return ids

    def cancel(self, *ids: int) -> list[ManagerAction]:
        """Cancel jobs."""
        return self.handle(Cancelled(ids))

    def wake(self) -> list[ManagerAction]:
        """Report what others wrote to the store."""
        news = self.store.news(self.me)
        return self.handle(Woken(news.ended, news.cancelling, self.store.kinds()))

    def tick(self) -> list[ManagerAction]:
        """Let a deadline be noticed."""
        return self.handle(Ticked())

    def wait(self, seconds: float) -> list[ManagerAction]:
        """Let time pass, with a tick at each deadline."""
        until, actions = self.now + seconds, list[ManagerAction]()
        while (due := self.machine.deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            actions += self.tick()
        self.now = until
        return actions

    def worker(self, name: bytes = b"w1", **more: Any) -> ScriptedWorker:
        """Return a worker that has sent READY without credit."""
        worker = ScriptedWorker(self, name, link=name, **more)  # type: ignore[arg-type]
        self.workers.append(worker)
        worker.ready(0)
        return worker

    def acknowledged(self) -> list[int]:
        """Return the numbers of the acknowledged jobs."""
        return [
            id for action in self.actions if isinstance(action, Acknowledge) for id in action.ids
        ]

    def declined(self) -> list[int]:
        """Return the numbers of the refused jobs."""
        return [id for action in self.actions if isinstance(action, Decline) for id in action.ids]

    def ends(self) -> dict[int, tuple[End, bytes]]:
        """Return the reported ends."""
        return {
            id: (end, bytes(payload))
            for action in self.actions
            if isinstance(action, Resolve)
            for id, end, payload in zip(action.ids, action.ends, action.payloads, strict=True)
        }


def takes(actions: Sequence[ManagerAction]) -> list[tuple[int, int]]:
    """Return (number, attempt) of the jobs of all TAKEs."""
    return [
        pair
        for take in sent(actions, Command.TAKE)
        for pair in zip(take.columns.ids, take.columns.attempts, strict=True)  # type: ignore[union-attr]
    ]


def cancels(actions: Sequence[ManagerAction]) -> list[Message]:
    """Return all CANCELs."""
    return list(sent(actions, Command.CANCEL))
