"""The WMP workers of all dispatchers, as entries of the registry (DSP-5.13)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs
from attrs import define, field, frozen

from wmp.dispatcher.job_document import date_text, id_text
from wmp.dispatcher.records import CrewRecord, DispatchRecord, crew_number
from wmp.store.contract import JobFilter
from wmp.store.stored_job import StoredJobState
from wmp.store.transaction import StoreTransaction

_LOOKED_AT: Final = 10_000
"""Running jobs that are read at most to find those of WMP workers."""


def _texts(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


@frozen
class CrewMember:
    """A WMP worker as the dispatcher sees it to which the worker is connected."""

    identity: str
    """Identity in hexadecimal digits."""
    label: str
    roles: tuple[str, ...] = field(converter=_texts)
    places: int
    """Number of its slots."""
    free: int
    """Number of jobs that the worker would begin at once."""


@frozen
class PublishCrew:
    """Writes the WMP workers of this dispatcher for the other dispatchers."""

    members: Sequence[CrewMember]

    def run(self, store: StoreTransaction) -> None:
        """Run the step."""
        if self.members:
            rows = tuple(attrs.asdict(member) for member in self.members)
            CrewRecord(store.me, rows).write(store)
        else:
            store.remove(CrewRecord.SORT, store.me)


@define(eq=False)
class CrewEntry:
    """The WMP workers of one label; a worker at several dispatchers counts once."""

    label: str
    members: dict[str, CrewMember] = field(factory=dict)
    jobs: list[int] = field(factory=list)

    @property
    def id(self) -> int:
        """Number of the entry."""
        return crew_number(self.label)

    @property
    def roles(self) -> list[str]:
        """The types that the workers know."""
        return sorted({role for member in self.members.values() for role in member.roles})

    @property
    def places(self) -> int:
        """Number of slots."""
        return sum(member.places for member in self.members.values())

    @property
    def free(self) -> int:
        """Number of jobs that would begin at once."""
        return sum(member.free for member in self.members.values())

    def join(self, member: CrewMember) -> None:
        """Add a worker; one that is connected to two dispatchers has its free slots once."""
        other = self.members.get(member.identity, member)
        free = min(other.free, member.free)
        self.members[member.identity] = attrs.evolve(member, free=free)


def crew_of(store: StoreTransaction, own: Iterable[CrewMember] = ()) -> list[CrewEntry]:
    """Return the WMP workers that are connected to any dispatcher, without their jobs.

    Args:
        store: The transaction.
        own: The workers that are connected here now.
    """
    living = store.living()
    members = list(own)
    for record in CrewRecord.all(store):
        if record.id in living and record.id != store.me:
            members += [_member(row) for row in record.workers]
    entries: dict[str, CrewEntry] = {}
    for member in members:
        entries.setdefault(member.label, CrewEntry(member.label)).join(member)
    return list(entries.values())


def add_jobs(store: StoreTransaction, entries: Sequence[CrewEntry]) -> None:
    """Add to each entry the running jobs that name the worker."""
    if not entries:
        return
    named = {entry.label: entry for entry in entries}
    of_http = {record.id for record in DispatchRecord.all(store) if record.worker is not None}
    states = [StoredJobState.RESERVED, StoredJobState.CANCELLING]
    for job in store.jobs(JobFilter(states=states), limit=_LOOKED_AT):
        if job.running and job.worker in named and job.id not in of_http:
            named[job.worker].jobs.append(job.id)


def _member(row: Any) -> CrewMember:
    """Return a published worker; unknown fields, of a later version, are ignored."""
    known = {attribute.name for attribute in attrs.fields(CrewMember)}
    return CrewMember(**{name: value for name, value in row.items() if name in known})


def crew_document(entry: CrewEntry, now: int) -> dict[str, Any]:
    """Return an entry as a worker document.

    Args:
        entry: The entry.
        now: The time, at which the workers are connected.
    """
    return {
        "_id": id_text(entry.id),
        "kind": "wmp",
        "label": entry.label,
        "hostname": entry.label.rpartition(":")[0] or entry.label,
        "port": None,
        "handlers": {role: {} for role in entry.roles},
        "maxJobs": entry.places,
        "jobs": [id_text(id) for id in entry.jobs],
        "lastPinged": date_text(now),
        "failedPingCount": 0,
        "lastError": None,
        "isResigned": False,
        "isDead": False,
    }
