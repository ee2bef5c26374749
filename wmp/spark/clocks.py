"""The differences between clocks, computed from the messages between them, and one common clock.

Two processes send each other messages. In one direction the least difference of the times is the
offset of the clocks plus the fastest transfer. In the other direction the least difference is the
fastest transfer minus the offset. If the fastest transfers take equally long, half of the
difference of these two values is the offset. In any case half of their sum bounds the error.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from attrs import frozen

from wmp.spark.facts import Process

__all__ = ["Clock", "JournalProcess", "Offset", "clocks", "offsets"]


def offsets(samples: Iterable[tuple[Any, int, Process, int]]) -> Iterator[Offset]:
    """Return the rows of the table ``offsets``.

    Args:
        samples: (message on a connection, 0 for sent and 1 for received, process, time) of each
        line. Only messages that were sent once and received once count.
    """
    found: defaultdict[Any, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for message, side, process, at in samples:
        found[message][side].append((process, at))
    ways: dict[tuple[Process, Process], list[int]] = {}
    for sent, received in found.values():
        if len(sent) == len(received) == 1:
            (sender, begin), (receiver, end) = sent[0], received[0]
            way = ways.setdefault((sender, receiver), [end - begin, 0])
            way[0] = min(way[0], end - begin)
            way[1] += 1
    for (node, peer), (forward, messages) in sorted(ways.items()):
        back = ways.get((peer, node))
        if node < peer and back is not None:
            backward, answers = back
            offset, error = (forward - backward) // 2, -((-forward - backward) // 2)
            yield Offset(node, peer, offset, error, messages + answers, forward, backward)


@frozen
class JournalProcess:
    """The facts of a process that the comparison of clocks needs."""

    key: Process
    host: str | None
    wall: int
    """µs from its monotonic clock to its wall clock, at its first line."""
    manager: bool = False
    begun: int = 0
    """Its first line by its wall clock."""


@frozen
class Offset:
    """A row of ``offsets``."""

    node: Process
    peer: Process
    offset: int
    error: int
    messages: int
    forward: int = 0
    """Least difference of the clocks for messages from the node to the peer."""
    backward: int = 0


@frozen
class Clock:
    """The conversion of a process's monotonic clock to the common clock."""

    clock: int
    """µs that are added to the monotonic clock."""
    error: int | None
    """µs by which the common time may be wrong; None for a clock that was compared with no other
    clock.
    """


def clocks(found: list[JournalProcess], pairs: list[Offset]) -> dict[Process, Clock]:
    """Return a common clock: the shortest paths from the manager that began first.

    So the common clock does not change when more processes begin later.

    Args:
        found: All processes that wrote journals.
        pairs: The table ``offsets``.

    Returns:
        The clock of each process.
    """
    near: dict[Process, list[tuple[Process, int, int]]] = defaultdict(list)
    hosts = {process.key: process.host for process in found}
    walls = {process.key: process.wall for process in found}
    for pair in pairs:
        if pair.node not in walls or pair.peer not in walls:
            continue
        offset, error = pair.offset, max(pair.error, 0)
        same = hosts[pair.node] == hosts[pair.peer]
        if same and abs(offset) <= error:
            offset = error = 0  # all processes of one machine share a monotonic clock
        near[pair.node].append((pair.peer, offset, error))
        near[pair.peer].append((pair.node, -offset, error))
    known: dict[Process, Clock] = {}
    # A process without a path to the first process starts a new search, from its own wall clock.
    for one in sorted(found, key=lambda one: (not one.manager, one.begun, one.key)):
        beginning = one.key
        if beginning in known:
            continue
        reach = [(0, beginning, walls[beginning])]
        while reach:
            error, process, clock = heapq.heappop(reach)
            if process in known:
                continue
            alone = process == beginning and known
            known[process] = Clock(clock, None if alone else error)
            for peer, offset, more in near[process]:
                if peer not in known:
                    heapq.heappush(reach, (error + more, peer, clock - offset))
    return known
