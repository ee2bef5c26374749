"""Jobs that no connected worker can do, and why: a role or a resource that no worker offers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from attrs import frozen

from wmp.core.manager.queues import Queue
from wmp.core.manager.remote_worker import RemoteWorker, fits
from wmp.message import Kind

_SHOWN = 8
"""Maximum number of names that a text lists."""


@frozen
class WaitingRow:
    """The waiting jobs of one kind."""

    role: str
    needs: Mapping[str, int]
    codec: str
    count: int
    """Number of waiting jobs. Jobs in the store are counted as far as they are known."""
    unserved: str
    """The reason why no connected worker can do the jobs.

    Empty if a connected worker can do them, now or later.
    """


def waiting_rows(
    queues: Iterable[Queue],
    workers: Iterable[RemoteWorker],
    stored: Mapping[Kind, int] | None = None,
) -> tuple[WaitingRow, ...]:
    """Return one row for each kind of waiting jobs.

    The cost grows with the number of workers and kinds.

    Args:
        queues: The waiting jobs.
        workers: The connected workers.
        stored: Numbers of further jobs that wait in the store, by kind.
    """
    counts = {queue.kind: queue.waiting for queue in queues if queue.waiting}
    for kind, count in (stored or {}).items():
        counts[kind] = counts.get(kind, 0) + count
    offers = _offers_of(workers)
    rows = []
    for kind, count in counts.items():
        text = _reason(kind, offers)
        rows.append(WaitingRow(kind.role, dict(kind.needs), kind.codec, count, text))
    return tuple(rows)


def reason_of(kind: Kind, workers: Iterable[RemoteWorker]) -> str:
    """Return the reason why no connected worker can do jobs of a kind; empty if a worker can."""
    return _reason(kind, _offers_of(workers))


_Offers: TypeAlias = dict[str, dict[tuple[tuple[str, int], ...], Mapping[str, int]]]
"""The different resources of the workers of each role."""


def _offers_of(workers: Iterable[RemoteWorker]) -> _Offers | None:
    """Return what the workers offer; None without workers."""
    offers: _Offers = {}
    connected = False
    for worker in workers:
        connected = True
        for role in worker.roles:
            resources = worker.resources
            offers.setdefault(role, {}).setdefault(tuple(sorted(resources.items())), resources)
    return offers if connected else None


def _reason(kind: Kind, offers: _Offers | None) -> str:
    if offers is None:
        return "no worker is connected"
    resources = list(offers.get(kind.role, {}).values())
    return _needs(kind.role, dict(kind.needs), resources) if resources else _role(kind.role, offers)


def _role(role: str, offered: Iterable[str]) -> str:
    """State that no worker offers the role, and name the most similar role on offer."""
    names = sorted(offered)
    if not names:
        return f"the connected workers offer no roles; expected {role!r}"
    return f"no connected worker offers the role {role!r}; the workers offer {listed(role, names)}"


def listed(role: str, offered: Iterable[str]) -> str:
    """Return the roles on offer, and a question if one of them is similar to the role.

    The names come from peers, so control characters in them are shown as escapes.
    """
    names = sorted(offered)
    return _listed(names) + _hint(role, names)


def _needs(role: str, needs: Mapping[str, int], offers: Sequence[Mapping[str, int]]) -> str:
    """Name the needs that no worker of the role offers; empty if one worker offers all."""
    if any(fits(needs, resources) for resources in offers):
        return ""
    lacks = []
    for name, amount in needs.items():
        maximum = max(resources.get(name, 0) for resources in offers)
        if maximum >= amount:
            continue
        names = sorted({name for resources in offers for name in resources})
        if name in names:
            lacks.append(f"{name}={amount} (the largest of these workers has {name}={maximum})")
            continue
        hint = _hint(name, names)
        has = f"these workers have {_listed(names)}" if names else "these workers have nothing"
        lacks.append(f"{name}={amount} ({has}{hint})")
    if not lacks:
        together = ", ".join(f"{name}={amount}" for name, amount in needs.items())
        return f"no connected worker of the role {role!r} has {together} together"
    return f"no connected worker of the role {role!r} has {' or '.join(lacks)}"


def _hint(name: str, names: Sequence[str]) -> str:
    """Return a question about the most similar of the names; empty if none is similar."""
    from difflib import get_close_matches  # a manager whose jobs have workers needs no such text

    near = get_close_matches(name, names, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN]))
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
