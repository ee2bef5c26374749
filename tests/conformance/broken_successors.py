"""Broken peers about jobs that outlive their manager (section 14)."""

from __future__ import annotations

from typing import Any

from attrs import define, evolve

from tests.ablation import successor_side
from tests.conformance.broken_peers import (
    BROKEN_PEERS,
    Bend,
    BentPeer,
    Link,
    Patch,
    changed,
    switched,
)
from wmp.conformance.testees.library_testees import LibraryStoredManager
from wmp.core.worker.orphans import Orphans
from wmp.message import Command, Field, Message

C = Command
M, W = "manager", "worker"


def stored(name: str, rule: str, bend: Any = Bend, switch: Any = None) -> None:
    """Put a manager with a store among the broken peers.

    Most other cases expect jobs at once. This manager reads them from its store first.
    """
    BROKEN_PEERS.append(
        BentPeer(name, rule, M, bend, switch, LibraryStoredManager.of, ("successor",))
    )


class NamesNoKeep(Bend):
    def says(self, link: Link, message: Message) -> Message:
        return changed(message, keep=None) if message.command is C.TAKE else message


class OwnsStoredJobs(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.command is not C.TAKE:
            return message
        return changed(message, manager=message.sender, keep=None)


class NamesItsStoreOnce(Bend):
    count: int = 0

    def says(self, link: Link, message: Message) -> Message:
        if message.command is not C.PONG:
            return message
        self.count += 1
        return message if self.count < 2 else changed(message, serves=None)


class NamesNoKept(Bend):
    def says(self, link: Link, message: Message) -> Message:
        return changed(message, kept=None)


class GivesAnAttemptTwice(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.command is not C.TAKE or message.columns is None:
            return message
        columns = evolve(message.columns, attempts=[1] * len(message.columns.ids))
        return evolve(message, columns=columns)


class IsDeafToLists(Bend):
    def wait_for(self, link: Link, message: Message) -> Message | None:
        lists = message.command is C.PING and Field.MANAGER in message.fields
        return None if lists else message


def _bent(bend: type[Bend]) -> type[Bend]:
    return define(eq=False, slots=False)(bend)


stored("names no keep", "WMP-14.1", _bent(NamesNoKeep))
stored("owns stored jobs", "WMP-14.1", _bent(OwnsStoredJobs))
stored("names its store once", "WMP-14.1", _bent(NamesItsStoreOnce))
stored("gives an attempt twice", "WMP-14.2", _bent(GivesAnAttemptTwice))
stored("names no kept", "WMP-14.3", _bent(NamesNoKept))
stored("is deaf to lists", "WMP-14.7", _bent(IsDeafToLists))
stored("queues jobs that are listed", "WMP-14.7", switch=successor_side.lease_of_a_job_taken_over)
stored("ignores results of others", "WMP-14.8", switch=successor_side.results_of_others)


def never_drops(patch: Patch) -> None:
    """WMP-14.5: orphaned jobs are kept for ever."""
    patch.setattr(Orphans, "expire", lambda self, owner: None)


def any_manager(patch: Patch) -> None:
    """WMP-14.6: any manager gets orphaned jobs, whichever stores it serves."""
    move = Orphans._move

    def anybody(self: Orphans, manager: Any, now: float) -> None:
        if manager is not None:
            manager.serves = self.owners
        move(self, manager, now)

    patch.setattr(Orphans, "_move", anybody)


switched(W, "WMP-14.4", successor_side.results_until_kept, "forgets what is acknowledged")
switched(W, "WMP-14.5", successor_side.orphaned_jobs, "forgets stored jobs with their manager")
switched(W, "WMP-14.5", never_drops, "keeps orphans for ever")
switched(W, "WMP-14.9", successor_side.list_of_jobs, "lists nothing")
switched(W, "WMP-14.6", any_manager, "gives orphans to anybody")
