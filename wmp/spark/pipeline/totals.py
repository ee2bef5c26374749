"""The small tables: totals, percentiles, load and fairness, from the counts of all folds.

Counts are mergeable: those of two sets of lines add up to those of both. So a fold hands over
counts and no samples, and this module is plain Python.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate, chain
from typing import Any, Final

from attrs import define, field

from wmp.actions import End
from wmp.spark.folds.clocks import Clock
from wmp.spark.folds.facts import ALWAYS, Counts, KnownProcess, ProcessKey, Window, is_certain
from wmp.spark.folds.findings import FINDINGS
from wmp.spark.folds.process_lines import ProcessLines
from wmp.spark.folds.reading import ReadPart
from wmp.spark.journals.schema import NUMBERS
from wmp.spark.session.arrow import Values

_STRETCHES: Final = (0.05, 0.25, 1, 5, 15, 60, 300, 900, 3600, 21_600, 86_400, 604_800)
"""Each is a multiple of the one before, so counts of short stretches add up to those of long ones.
"""
_MAX: Final = 120
SHARES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)
"""The percentiles of a spread, as shares of all samples."""
_GROUPS: Final = ("role", "manager", "worker", "device", "hour")
_TIMED: Final = {"busy": 3, "had": 3, "submitted": 1, "ended": 1}
"""Counts of stretches, with the place of the start of the stretch in their keys."""

_GREATEST: Final = frozenset({"phase", "hop", "first submission", "last end", "served"})
"""Counts whose greatest value is in a table."""
_UNKNOWN: Final = -(1 << 62)
"""Stands for a greatest value that is not known."""

_Entry = tuple[int, int, int]
"""(number, sum, greatest) of samples, which is never changed, so totals can share it."""
_Samples = dict[Any, _Entry]


def stretch(seconds: float) -> int:
    """Return the length of a stretch in µs, which bounds the number of stretches."""
    fits = (length for length in _STRETCHES if seconds <= length * _MAX)
    return int(next(fits, _STRETCHES[-1]) * 1_000_000)


def spread(values: Mapping[int, Sequence[int]]) -> Values:
    """Return count, mean, five percentiles and greatest of (count, sum, greatest) by value.

    A percentile is the time of a sample that the share of all samples does not exceed: the longest
    of those that were rounded to the same value. An interpolated time is one that no sample took.
    """
    order = sorted(values)
    ends = list(accumulate(values[value][0] for value in order))
    count, total = ends[-1], sum(entry[1] for entry in values.values())
    shares = []
    for share in SHARES:
        rank = math.ceil(round(share * count, 6))
        shares.append(values[order[bisect_left(ends, rank)]][2])
    return (count, total / count, *shares, max(entry[2] for entry in values.values()))


@define(eq=False)
class Totals:
    """The counts of all folds of a journal."""

    length: int = int(_STRETCHES[0] * 1_000_000)
    """µs of a stretch."""
    window: Window = ALWAYS
    """The time for which there are counts."""
    counts: defaultdict[str, _Samples] = field(factory=lambda: defaultdict(dict))
    """Counts by key, by name."""
    phases: dict[tuple[str, str, Any], _Samples] = field(factory=dict)
    """Samples by their rounded length, by (phase, by, key)."""
    _rows: dict[tuple[str, str, Any], Values] = field(factory=dict)
    """The spread of each group that has not changed."""

    def add(self, counts: Counts) -> None:
        """Add counts: (count, total, top) by (name, key…)."""
        for key, entry in counts.items():
            for samples, sample in self._places(*key):
                _add(samples, sample, entry)

    def _places(self, name: str, *key: Any) -> Iterator[tuple[_Samples, Any]]:
        """Yield the places of a count."""
        if name == "phase":
            phase, *who, value = key
            for by, whose in (("all", ""), *zip(_GROUPS, who, strict=True)):
                if whose is not None or by == "role":
                    group = (phase, by, whose)
                    self._rows.pop(group, None)
                    yield self.phases.setdefault(group, {}), value
            return
        if (part := _TIMED.get(name)) is not None:
            begin = key[part] // self.length * self.length
            key = (*key[:part], begin, *key[part + 1 :])
        yield self.counts[name], key

    def change(self, changed: Iterable[tuple[Counts, Counts]], added: Iterable[Counts]) -> bool:
        """Replace counts, in pairs of old and new counts, and add counts.

        Return whether these totals are right. They are wrong if the greatest value of some samples
        is gone, because the greatest of the others is not known.
        """
        lost: list[tuple[_Samples, Any, int]] = []
        empty: list[tuple[_Samples, Any, bool]] = []
        more = list(added)
        for old, new in changed:
            for key, entry in old.items():
                if new.get(key) == entry:
                    continue
                # The least sample of a rounded length is that length.
                known = key[0] not in _GREATEST or entry[2] == key[-1] > 0
                for samples, sample in self._places(*key):
                    number, total, top = samples[sample]
                    if number == entry[0] > 0:
                        empty.append((samples, sample, key[0] != "shares"))
                        top = _UNKNOWN
                    elif top == entry[2] and not known:
                        lost.append((samples, sample, top))
                        top = _UNKNOWN
                    samples[sample] = number - entry[0], total - entry[1], top
            more.append({key: entry for key, entry in new.items() if old.get(key) != entry})
        for counts in more:
            self.add(counts)
        for samples, sample, alone in empty:
            if sample in samples and not samples[sample][0]:
                if not alone:
                    return False  # a worker without a job has an entry, too
                del samples[sample]
        return all(samples[sample][2] >= top for samples, sample, top in lost if sample in samples)

    def lengthen(self, length: int) -> None:
        """Use longer stretches from now on."""
        self.length = length
        for name in _TIMED:
            for (*key,), entry in self.counts.pop(name, {}).items():
                self.add({(name, *key): list(entry)})

    def plus(self, counts: Iterable[Counts]) -> Totals:
        """Return these totals with further counts; these totals do not change."""
        whole = Totals(self.length, self.window, rows=dict(self._rows))
        whole.counts.update({name: dict(some) for name, some in self.counts.items()})
        whole.phases = {group: dict(values) for group, values in self.phases.items()}
        for more in counts:
            whole.add(more)
        return whole

    def _sum(self, name: str, index: int = 0) -> int:
        return sum(entry[index] for entry in self.counts[name].values())

    def _numbers(self, name: str) -> dict[Any, int]:
        """Return the numbers of a count by the first word of its keys."""
        return {key[0]: entry[0] for key, entry in self.counts[name].items()}

    # -- tables

    def requeues(self) -> Iterator[Values]:
        """Return the rows of ``requeues``."""
        return ((*key, entry[0]) for key, entry in self.counts["requeues"].items())

    def findings(self, known: Mapping[ProcessKey, KnownProcess], checks: Counts) -> list[Values]:
        """Return the rows of ``findings``; ``checks`` has further counts of violations."""
        counts: Counter[tuple[str, bool]] = Counter()
        more = ((key[1:], entry) for key, entry in checks.items())
        for (name, judged), entry in chain(self.counts["violation"].items(), more):
            counts[name, is_certain(judged, known)] += entry[0]
        return [(name, FINDINGS[name], certain, n) for (name, certain), n in sorted(counts.items())]

    def latency(self) -> Iterator[Values]:
        """Return the rows of ``latency``."""
        for group, values in sorted(self.phases.items(), key=repr):
            phase, by, key = group
            if key is None or not values:
                continue
            if group not in self._rows:
                self._rows[group] = spread(values)
            yield (phase, by, _hour(key) if by == "hour" else key, *self._rows[group])

    def histogram(self) -> Iterator[Values]:
        """Return the rows of ``histogram``: four bars between a power of two and the next."""
        bars: defaultdict[tuple[str, str | None, int], int] = defaultdict(int)
        for (phase, by, role), values in self.phases.items():
            if by == "role":
                for value, entry in values.items():
                    bars[phase, role, math.floor(math.log2(max(value, 1)) * 4)] += entry[0]
        for (phase, role, bar), count in bars.items():
            yield phase, role, 2.0 ** (bar / 4), 2.0 ** ((bar + 1) / 4), count

    def device_hops(self) -> Iterator[Values]:
        """Return the rows of ``device_hops``."""
        ways: defaultdict[tuple[Any, Any], dict[int, _Entry]] = defaultdict(dict)
        for (device, direction, value), entry in self.counts["hop"].items():
            ways[device, direction][value] = entry
        alone = ways.pop((None, None), None)
        direct = None if alone is None else spread(alone)[2]
        for way, values in ways.items():
            yield (*way, *spread(values), direct)

    def utilisation(self, known: Mapping[ProcessKey, KnownProcess]) -> Iterator[Values]:
        """Return the rows of ``utilisation``."""
        busy, had, length = self.counts["busy"], self.counts["had"], self.length
        for (node, epoch), process in known.items():
            if process.kind != "worker":
                continue
            first = max(process.first + process.clock, self.window[0])
            last = min(process.last + process.clock, self.window[1])
            for name, have in process.resources.items():
                for part in range(first // length * length, last + 1, length):
                    overlap = min(last, part + length) - max(first, part)
                    taken = busy.get((node, epoch, name, part), (0, 0))[1]
                    changed = had.get((node, epoch, name, part))
                    there = overlap * have if changed is None else changed[1]
                    share = taken / there if there > 0 else None
                    mean = have if changed is None else -(-there // overlap) if overlap > 0 else 0
                    yield node, epoch, name, part, overlap, mean, taken, share

    def activity(self) -> Iterator[Values]:
        """Return the rows of ``activity``."""
        rows: defaultdict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        for (role, part), entry in self.counts["submitted"].items():
            rows[role, part][0] += entry[0]
        for (role, part, failed), entry in self.counts["ended"].items():
            row = rows[role, part]
            row[1] += entry[0]
            row[2] += failed * entry[0]
            row[3] += entry[1]
        for (role, part), (came, ended, bad, total) in rows.items():
            mean = total / ended if ended else None
            yield role, part, self.length, came, ended, bad, mean

    def fairness(self) -> Iterator[Values]:
        """Return the rows of ``fairness``.

        Each worker that sent READY or GIVE to a manager takes part, even if it got no job.
        """
        shares: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
        for key, (jobs, handler, _) in self.counts["shares"].items():
            for by, process in (
                ("workers of a manager", key[:2]),
                ("managers of a worker", key[2:]),
            ):
                shares[by, *process, "jobs"].append(jobs)
                shares[by, *process, "handler"].append(handler)
        for group, some in shares.items():
            minimum, maximum, square = min(some), max(some), sum(x * x for x in some)
            jain = sum(some) ** 2 / (len(some) * square) if square else None
            yield (
                *group,
                len(some),
                minimum,
                maximum,
                maximum / minimum if minimum > 0 else None,
                jain,
            )

    def summary(
        self, part: ReadPart, clocks: Mapping[ProcessKey, Clock], repeated: int, missing: int,
        findings: Iterable[Values],
    ) -> list[Values]:  # fmt: skip
        """Return the rows of ``summary``; ``missing`` processes have left no journal."""
        jobs, locks, leases = map(self._numbers, ("jobs", "locks", "leases"))
        broken = {True: 0, False: 0}
        for _, _, certain, count in findings:
            broken[certain] += count
        nodes = part.processes.values()
        kinds = [process.start_columns.get("kind") for process in nodes]  # as in the table `nodes`
        first = min((process.first + clocks[process.key].clock for process in nodes), default=0)
        last = max((process.last + clocks[process.key].clock for process in nodes), default=0)
        bounds = (*self.counts["first submission"].values(), *self.counts["last end"].values())
        took = sum(top for _, _, top in bounds) / 1e6 if len(bounds) == 2 else 0
        numbers = {
            "nodes": len(nodes),
            **{f"{kind}s": kinds.count(kind) for kind in ("manager", "worker", "device")},
            "lines": sum(process.lines for process in nodes),
            "lines missing": sum(process.numbers.missing for process in nodes),
            "lines repeated": repeated,
            "without an end": sum(process.end is None for process in nodes),
            "seconds": (last - first) / 1e6,
            "clock error": max((clock.error or 0 for clock in clocks.values()), default=0),
            "nodes missing": missing,
            "bad lines": sum(lines for lines, _ in part.bad.values()),
            "jobs": sum(jobs.values()),
            **{f"jobs {end.value}": jobs.get(end.value, 0) for end in End},
            "jobs open": jobs.get(None, 0),
            "jobs partly known": self._sum("partly known"),
            "jobs tried again": self._sum("jobs", 1),
            "jobs per second": (sum(jobs.values()) - jobs.get(None, 0)) / took if took else 0,
            "leases": sum(leases.values()),
            "leases over": sum(leases.values()) - leases.get(None, 0),
            "leases handed back": leases.get("handed back", 0),
            "leases refused": leases.get("refused", 0),
            "wakes": self._sum("wakes"),
            "wakes wasted": self._sum("wakes", 1),
            "locks": sum(locks.values()),
            "locks taken": locks.get("TAKE", 0),
            "locks refused": locks.get("NO", 0),
            "locks timed out": locks.get("timeout", 0),
            "jobs late": self._sum("locks", 1),
            "violations": broken[True],
            "uncertain violations": broken[False],
            "drops": sum(process.drops.total() for process in nodes),
        }
        return [(name, float(value), NUMBERS[name]) for name, value in numbers.items()]


def _add(samples: _Samples, key: Any, entry: Sequence[int]) -> None:
    number, total, top = samples.get(key, (0, 0, entry[2]))
    samples[key] = (number + entry[0], total + entry[1], max(top, entry[2]))


def _hour(hour: int) -> str:
    return f"{datetime.fromtimestamp(hour * 3600, UTC):%Y-%m-%d %H:00}"


def drops(processes: Iterable[ProcessLines]) -> Iterator[Values]:
    """Return the rows of ``drops``."""
    for process in processes:
        for reason, lines in process.drops.items():
            yield (*process.key, reason, lines)


def missing_nodes(processes: Mapping[ProcessKey, ProcessLines]) -> list[Values]:
    """Return the rows of ``missing_nodes``."""
    named: Counter[tuple[str, int | None]] = Counter()
    for process in processes.values():
        if process.kind != "device":
            named.update(process.named)
    return [
        (node, epoch, lines)
        for (node, epoch), lines in named.items()
        if epoch is not None and (node, epoch) not in processes
    ]
