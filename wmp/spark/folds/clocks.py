"""The differences between clocks, computed from the messages between them, and one common clock.

Two processes send each other messages. In one direction the least difference of the times is the
offset of the clocks plus the fastest transfer. In the other direction the least difference is the
fastest transfer minus the offset. If the fastest transfers take equally long, half of the
difference of these two values is the offset. In any case half of their sum bounds the error.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from attrs import define, field, frozen

from wmp.spark.folds.facts import ProcessKey
from wmp.spark.folds.process_lines import ProcessLines
from wmp.spark.session.arrow import Values

_Way = tuple[int, int]
"""(least difference of the clocks, number of messages) of one direction."""


@frozen
class Offset:
    """A row of ``offsets``."""

    node: ProcessKey
    peer: ProcessKey
    offset: int
    error: int
    messages: int
    forward: int = 0
    """Least difference of the clocks for messages from the node to the peer."""
    backward: int = 0

    @property
    def row(self) -> Values:
        """The values in the order of the columns."""
        ways = (self.forward, self.backward, self.messages)
        return (*self.node, *self.peer, *ways, self.offset, self.error)


@frozen
class Clock:
    """The conversion of a process's monotonic clock to the common clock."""

    clock: int
    """µs that are added to the monotonic clock."""
    error: int | None
    """µs by which the common time may be wrong; None for a clock that was compared with no other
    clock.
    """
    reference: ProcessKey | None = None
    """The process at which the chain of pairs begins."""


@define(eq=False)
class ClockSamples:
    """The times of messages at both ends; only those count that were sent and received once."""

    _open: dict[Any, tuple[list[Any], list[Any]]] = field(factory=dict)
    """(process, time) of the lines of senders and receivers, by message on a connection."""
    _ways: dict[tuple[ProcessKey, ProcessKey], _Way] = field(factory=dict)
    """The results of messages about which no further line is expected, by sender and receiver."""

    def add(self, samples: Iterable[tuple[Any, int, ProcessKey, int]]) -> None:
        """Add (message on a connection, 0 for sent and 1 for received, process, time) of lines."""
        for message, side, process, at in samples:
            self._open.setdefault(message, ([], []))[side].append((process, at))

    def condense(self, is_over: Callable[[ProcessKey, int], bool]) -> None:
        """Keep only the results of old messages, so that the samples do not grow forever.

        Args:
            is_over: Whether a process writes no further line about a message of this time.
        """
        for message, (sent, received) in list(self._open.items()):
            if len(sent) == len(received) == 1 and is_over(*sent[0]) and is_over(*received[0]):
                _compare(self._ways, sent[0], received[0])
                del self._open[message]

    def offsets(self) -> list[Offset]:
        """Return the rows of the table ``offsets``."""
        ways = dict(self._ways)
        for sent, received in self._open.values():
            if len(sent) == len(received) == 1:
                _compare(ways, sent[0], received[0])
        rows = []
        for (node, peer), (forward, messages) in sorted(ways.items()):
            if node < peer and (peer, node) in ways:
                backward, answers = ways[peer, node]
                offset, error = (forward - backward) // 2, -((-forward - backward) // 2)
                messages += answers
                rows.append(Offset(node, peer, offset, error, messages, forward, backward))
        return rows


def _compare(
    ways: dict[tuple[ProcessKey, ProcessKey], _Way], sent: tuple[ProcessKey, int],
    received: tuple[ProcessKey, int],
) -> None:  # fmt: skip
    took, way = received[1] - sent[1], (sent[0], received[0])
    minimum, messages = ways.get(way, (took, 0))
    ways[way] = min(minimum, took), messages + 1


def clocks(processes: Sequence[ProcessLines], pairs: Iterable[Offset]) -> dict[ProcessKey, Clock]:
    """Return a common clock: the shortest paths from the manager that began first.

    So the common clock does not change when more processes begin later.

    Args:
        processes: All processes that wrote journals.
        pairs: The table ``offsets``.

    Returns:
        The clock of each process.
    """
    near: dict[ProcessKey, list[tuple[ProcessKey, int, int]]] = defaultdict(list)
    hosts = {process.key: process.start_columns.get("host") for process in processes}
    walls = {process.key: process.wall[1] for process in processes}
    for pair in pairs:
        if pair.node not in walls or pair.peer not in walls:
            continue
        offset, error = pair.offset, max(pair.error, 0)
        same = hosts[pair.node] == hosts[pair.peer]
        if same and abs(offset) <= error:
            offset = error = 0  # all processes of one machine share a monotonic clock
        near[pair.node].append((pair.peer, offset, error))
        near[pair.peer].append((pair.node, -offset, error))
    known: dict[ProcessKey, Clock] = {}
    # A process without a path to the first process starts a new search, from its own wall clock.
    order = sorted(
        processes,
        key=lambda process: (
            process.kind != "manager",
            process.first + process.wall[1],
            process.key,
        ),
    )
    for beginning in (process.key for process in order):
        reach = [(0, beginning, walls[beginning])]
        alone = bool(known)
        while reach:
            error, process, clock = heapq.heappop(reach)
            if process in known:
                continue
            lonely = alone and process == beginning
            known[process] = Clock(clock, None if lonely else error, beginning)
            for peer, offset, more in near[process]:
                if peer not in known:
                    heapq.heappush(reach, (error + more, peer, clock - offset))
    return known
