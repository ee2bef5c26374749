"""Honest peers with habits that this project's machines do not have, and that the rules allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define, evolve

from tests.conformance.broken_peers import Bend, BentPeer, Link, Sent, changed
from wmp.conformance.testees.library_testees import ROLES, LibraryWorker
from wmp.conformance.wire.wire import Terms
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.message import Command, Field, Message, Outcome
from wmp.testing.peers.scripted_peer import NUMBERED

C = Command
HABITS: list[BentPeer] = []
_OTHER_LOCK = 1 << 20


def habit(testee: str, rule: str) -> Any:
    """Add a habit that a rule allows."""

    def add(bend: type[Bend]) -> type[Bend]:
        define(eq=False, slots=False)(bend)
        HABITS.append(BentPeer(bend.__name__.lstrip("_"), rule, testee, bend))
        return bend

    return add


@habit("manager", "WMP-6.5")
class GivesARefusedJobAgainAfterPing(Bend):
    """Keeps a held GIVE open, and after a PING with ``to`` gives a refused job under the GIVE's
    lock.

    The bend cannot number a NO of its own for the rest of such a GIVE. So the bend keeps only the
    GIVEs of the case about refused jobs. That case ends before the hold of the GIVEs ends.
    """

    lock = 0
    worker: Link = 0
    refused = False

    def wait_for(self, link: Link, message: Message) -> Message:
        fields = message.fields
        if (fields.get(Field.WANT), fields.get(Field.HOLD)) == (3, 4000):
            self.worker, self.lock = link, fields[Field.LOCK]
        columns = message.columns
        if message.command is C.DONE and columns is not None:
            self.refused = bool(self.lock) and Outcome.REFUSED in (columns.outcomes or ())
        if message.command is C.PING and message.to and self.refused and link == self.worker:
            self.refused = False
            give = changed(message, lock=self.lock + _OTHER_LOCK, want=1, roles=["echo"])
            return evolve(changed(give, needs={"slots": 1}), command=C.GIVE)
        return message

    def says(self, link: Link, message: Message) -> Message:
        if message.command is not C.TAKE:
            return message
        lock = message.fields[Field.LOCK] if link == self.worker else 0
        if lock == self.lock + _OTHER_LOCK:
            return changed(message, lock=self.lock)
        if self.lock and lock == self.lock:
            return changed(message, more=True)
        return message


@habit("worker", "WMP-3.2")
class RepeatsItsReady(Bend):
    """Repeats its last READY before it answers the first message of a new epoch."""

    def __attrs_post_init__(self) -> None:
        self.ready: Message | None = None
        self.epochs: set[Any] = set()
        self.due = False

    def wait_for(self, link: Link, message: Message) -> Message:
        self.due = message.sender not in self.epochs
        self.epochs.add(message.sender)
        return message

    def says(self, link: Link, message: Message) -> Message | Sequence[Message]:
        repeated, self.due = self.due and self.ready is not None, False
        before = self.ready
        if message.command is C.READY:
            self.ready = evolve(changed(message, ack=None, session=None), to=())
        return [before, message] if repeated and before is not None else message


@habit("worker", "WMP-4.1")
class ReportsBeforeItAnswers(Bend):
    """Sends DONE after READY and GIVE of the same step."""

    def orders(self, sends: list[Sent]) -> list[Sent]:
        done = [
            sent_message
            for sent_message in sends
            if sent_message[1] is not None and sent_message[1].command in NUMBERED
        ]
        return [sent_message for sent_message in sends if sent_message not in done] + done


def _with_window(jobs: int) -> BentPeer:
    """Make a worker that takes jobs beyond its resources."""

    def make(terms: Terms) -> LibraryWorker:
        resources = {"slots": terms.slots}
        settings = WorkerSettings(
            identity=b"worker", epoch=2000, roles=ROLES, resources=resources, window=jobs
        )
        return LibraryWorker(machine=WorkerMachine(settings, terms.endpoints))

    return BentPeer(f"has a window of {jobs}", "WMP-3.10", "worker", make=make)


HABITS += [_with_window(1), _with_window(8), _with_window(30)]


def _hands_back(jobs: int) -> BentPeer:
    """Make a worker that hands jobs back when they have waited for 0.25 units."""

    def make(terms: Terms) -> LibraryWorker:
        # With this `window_time` the window is `window_max`, however long the jobs take.
        settings = WorkerSettings(
            identity=b"worker",
            epoch=2000,
            roles=ROLES,
            resources={"slots": terms.slots},
            window_max=jobs,
            window_time=1e6,
            lane_max=1,
            patience=0.25,
        )
        machine = WorkerMachine(settings, terms.endpoints)
        # Without a measured job the first window is 0.
        machine._executions._queue.throughput.record("echo", 0.0, 1)
        return LibraryWorker(machine=machine)

    return BentPeer(f"hands jobs of a window of {jobs} back", "WMP-6.18", "worker", make=make)


HABITS += [_hands_back(4)]
