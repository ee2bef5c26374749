"""The processes that wrote journals: their rows, and the checks of their lives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count, pairwise
from typing import Any, Final

from wmp.core.protocol.settings import ManagerSettings
from wmp.spark.folds.clocks import Clock
from wmp.spark.folds.facts import FoldSink, KnownProcess, ProcessKey
from wmp.spark.folds.process_lines import ProcessLines
from wmp.spark.session.arrow import Values

_MAX_SILENCE: Final = ManagerSettings(identity=b"", epoch=0).max_silence
_REFUSED: Final = 3_000_000
"""µs of refusals after which a worker that no manager serves stops (WMP-15.9)."""
_START: Final = ("kind", "label", "host", "pid", "release", "roles", "resources", "settings")


def known_processes(
    rows: Iterable[ProcessLines], clock: Mapping[ProcessKey, Clock], twice: Collection[ProcessKey]
) -> dict[ProcessKey, KnownProcess]:
    """Return the facts of all processes that folds need.

    Args:
        rows: All processes.
        clock: The clock of each process.
        twice: The processes with different lines of one number.
    """
    known = {}
    for row in rows:
        start, own = row.start_columns, clock[row.key]
        settings = start.get("settings", {})
        whole = row.start is not None and not row.numbers.missing and row.key not in twice
        known[row.key] = KnownProcess(
            row.node, row.epoch, row.kind, own.clock, whole, row.end if row.stopped else None,
            row.first, row.last,
            settings.get("max_silence"), start.get("resources", {}), start.get("roles", ()),
            int(settings.get("upstreams", 0)), own.error, settings,
            None if row.start is None else start.get("label") or "", own.reference,
        )  # fmt: skip
    return known


def nodes(rows: Iterable[ProcessLines], clock: Mapping[ProcessKey, Clock]) -> list[Values]:
    """Return the rows of the table ``nodes``."""
    values = []
    for row in rows:
        start, own = row.start_columns, clock[row.key]
        begin = [
            list(v.items()) if isinstance(v := start.get(name), dict) else v for name in _START
        ]
        values.append((
            *row.key, *begin, row.segments, row.lines, row.numbers.missing, row.first + own.clock,
            row.last + own.clock, own.clock, own.error, row.end, row.reason,
        ))  # fmt: skip
    return values


def check_lives(
    rows: Sequence[ProcessLines], served: Mapping[tuple[Any, ...], Sequence[int]], sink: FoldSink
) -> None:
    """Check that a worker stops as superseded only beside another process of its identity.

    A worker that no manager serves must not continue (WMP-15.9), and a manager must not serve two
    processes of one identity in turns (WMP-9.6).

    Args:
        rows: All processes.
        served: The counts ``served`` of all folds.
        sink: Gets the violations.
    """
    _check_turns(rows, served, sink)
    name = "one process for each identity"
    by_node: dict[str, list[ProcessLines]] = defaultdict(list)
    named: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        by_node[row.node].append(row)
        for node, epoch in row.named:
            named[node] |= set() if epoch is None else {epoch}
    for some in by_node.values():
        others = [row.key for row in some]
        for row in some:
            where = (row.node, row.epoch, row.numbers.highest, row.last)
            who = f"{row.node}:{row.epoch}"
            if row.stop is not None and row.numbers.highest > row.stop:
                text = (
                    f"{who} wrote lines up to number {row.numbers.highest} after its stop, line "
                    f"{row.stop}; expected none"
                )
                story = [(*row.key, row.stop), (*row.key, row.numbers.highest)]
                sink.violation("a stop is the last line", text, where, story)
            if sink.known[row.key].whole:
                _check_lines(row, where, sink)
            alone = len(some) == 1 and named[row.node] <= {row.epoch}
            if row.reason == "Superseded" and alone and _is_witnessed(row, sink.known):
                text = f"{who} stopped as superseded; no other process has its identity"
                sink.violation(name, text, where, others=_peers(row))
            idle = (
                row.start_columns.get("kind") == "worker" and row.end == "stop" and not row.served
            )
            if idle and any(_is_rival(row, other, sink.known) for other in some):
                text = (
                    f"{who} did not stop, although no manager served it and another process has "
                    "its identity"
                )
                sink.violation(name, text, where, others=others)


def _check_lines(row: ProcessLines, end: tuple[str, int, int, int], sink: FoldSink) -> None:
    """Check that the lines of a process follow one another, and state one process.

    Args:
        row: The process.
        end: (node, epoch, n, at) of its last line.
        sink: Gets the violations.
    """
    who = f"{row.node}:{row.epoch}"
    for n, at, text in row.order.check():
        story = [(*row.key, n - 1), (*row.key, n)]
        sink.violation(
            "lines follow one another", f"line {n} of {who}: {text}", (*row.key, n, at), story
        )
    conflict = row.conflict
    if conflict is None and len(row.parts) < max(row.parts, default=0):
        missing = next(number for number in count(1) if number not in row.parts)
        conflict = f"segment {missing} is missing, and no line is"
    if conflict is not None:
        sink.violation("start lines agree", f"{who}: {conflict}", end)
    lines, n, at = row.lost
    if lines and not row.losses and row.stopped:
        text = (
            f"line {n} of {who} counts {lines} lost lines; no line of the process is about a loss"
        )
        sink.violation("lost lines are counted", text, (*row.key, n, at))


def _peers(row: ProcessLines) -> list[ProcessKey]:
    """Return the processes that the lines of a process name."""
    return sorted((node, epoch) for node, epoch in row.named if epoch is not None)


def _is_witnessed(row: ProcessLines, known: Mapping[ProcessKey, KnownProcess]) -> bool:
    """Return whether the peers of a halted worker would show another process of its identity.

    A killed manager has lost its last lines, and a killed process may have left no line.
    """
    me = known[row.key]
    peers = (known[key] for key in _peers(row) if key in known)
    return all(peer.has_lines_until(me, me.last) for peer in peers)


def _is_rival(
    row: ProcessLines, other: ProcessLines, known: Mapping[ProcessKey, KnownProcess]
) -> bool:
    """Return whether an idle worker ran beside another process that was served.

    A worker that is started again after a kill is not beside the killed process.
    """
    me, rival = known[row.key], known[other.key]
    first = max(me.first + me.clock, rival.first + rival.clock)
    last = min(me.last + me.clock, rival.last + rival.clock)
    return other.served > 0 and last - first > _REFUSED


def _check_turns(
    rows: Sequence[ProcessLines], served: Mapping[tuple[Any, ...], Sequence[int]], sink: FoldSink
) -> None:
    """Report a manager that served two processes of one identity side by side.

    A process that was stopped for a while may come back to its manager when the other one is dead.
    So only longer turns are reported, in which each process was served after the other.
    """
    ends = {row.key: row.numbers.highest for row in rows}
    times: dict[tuple[ProcessKey, str], dict[int, list[int]]] = defaultdict(dict)
    for (node, epoch, worker, worker_epoch, end), (_, _, top) in served.items():
        times[(node, epoch), worker].setdefault(worker_epoch, [0, 0])[end == "last"] = abs(top)
    for (manager, worker), lives in times.items():
        order = sorted((first, last, epoch) for epoch, (first, last) in lives.items())
        for (_, last, epoch), (begin, end, other) in pairwise(order):
            max_silence = (sink.known[manager].max_silence or _MAX_SILENCE) * 1e6
            if last - begin > max_silence and last < end:
                text = (
                    f"manager {manager[0]} served {worker}:{epoch} and {worker}:{other} side by "
                    f"side for {(last - begin) / 1e6:.1f} s; expected one of them to be refused"
                )
                where = (*manager, ends.get(manager, 0), last)
                sink.violation("one process for each identity", text, where)
