"""The tables of an account: the rows of open groups, violations, and the small tables.

A report that follows journals publishes its account again and again. So the files of unchanged
groups stay, the differences of changed groups are added to the totals, and an equal table is not
written again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow
from attrs import define, field, frozen

from wmp.spark.folds.facts import Counts, FoldSink, is_certain
from wmp.spark.folds.folds import Group, OpenGroup
from wmp.spark.folds.processes import check_lives, nodes
from wmp.spark.folds.stories import (
    check_partings,
    check_silences,
    check_twice,
    ended_connections,
    first_of_each_name,
    stories,
)
from wmp.spark.journals.schema import TABLES
from wmp.spark.journals.tables import Parts, Tables, Written
from wmp.spark.pipeline.account import Account
from wmp.spark.pipeline.totals import Totals, drops, missing_nodes
from wmp.spark.session.arrow import Values

_SHELF: Final = 2048
"""Number of rows of open groups from which a file is full."""


@frozen
class PipelineResult:
    """The result of a run."""

    tables: Tables
    summary: dict[str, float]
    """The table ``summary``: values by name."""
    findings: Sequence[Mapping[str, Any]]
    """The rows of the table ``findings``."""

    @property
    def violations(self) -> int:
        """Number of the certain violations."""
        return int(self.summary["violations"])

    @property
    def uncertain(self) -> int:
        """Number of the violations that gaps in the journals may explain."""
        return int(self.summary["uncertain violations"])


@define(eq=False)
class Publisher:
    """Makes the tables equal to an account, after each of its changes."""

    tables: Tables
    account: Account
    """Groups that have changed are other objects than before."""
    _shelves: list[tuple[dict[Group, OpenGroup], list[Written]]] = field(factory=list)
    """Open groups, and the files with their rows."""
    _totals: Totals | None = None
    """The totals of the account with those of its open groups."""
    _counts: dict[Group, Counts] = field(factory=dict)
    """The counts of each open group, as the totals have them."""
    _written: dict[str, list[Values]] = field(factory=dict)
    """The rows of the small tables that were written last."""

    def publish(self, report: Callable[[str], None]) -> PipelineResult:
        """Write all tables that have changed; ``report`` is called with the name of each step."""
        report("violations")
        account = self.account
        known, processes = account.known, account.found.processes
        files = {name: list(written) for name, written in account.files.items()}
        for file in self._write_open(account.open):
            files[file[0]].append(file)
        self.tables.publish(files)
        self._check_events()
        totals, checks = self._add_up(), FoldSink(known)
        check_lives(list(processes.values()), totals.counts["served"], checks)
        shown = self._violations(checks)
        report("totals")
        findings, missing = totals.findings(known, checks.counts), missing_nodes(processes)
        summary = totals.summary(
            account.found, account.clocks, account.repeated, len(missing), findings
        )
        small: dict[str, Iterable[Values]] = {
            "violations": shown,
            "violation_events": chain.from_iterable(account.stories.values()),
            "bad_lines": [(*key, *lines) for key, lines in sorted(account.found.bad.items())],
            "offsets": [offset.row for offset in account.offsets],
            "nodes": nodes(
                sorted(processes.values(), key=lambda process: process.key), account.clocks
            ),
            "missing_nodes": missing,
            "findings": findings,
            "latency": totals.latency(),
            "histogram": totals.histogram(),
            "utilisation": totals.utilisation(known),
            "fairness": totals.fairness(),
            "activity": totals.activity(),
            "requeues": totals.requeues(),
            "device_hops": totals.device_hops(),
            "drops": drops(processes.values()),
            "summary": summary,
        }
        for name, some in small.items():
            if (values := list(some)) != self._written.get(name):
                self.tables.write_rows(name, values)
                self._written[name] = values
        names = [column.name for column in TABLES["findings"].columns]
        return PipelineResult(
            self.tables,
            {name: value for name, value, _ in summary},
            [dict(zip(names, row, strict=True)) for row in findings],
        )

    def _violations(self, checks: FoldSink) -> list[Values]:
        """Return the violations that are shown, and look up their stories."""
        account, known = self.account, self.account.known
        broken = [
            (*row[:4], is_certain(row[16], known), *row[5:16])
            for rows in (
                account.rows,
                *(open_group.rows for open_group in account.open.values()),
                checks.rows,
            )
            for row in rows.get("violations", ())
        ]
        shown = first_of_each_name(broken)
        written = {key: {line[2:5] for line in lines} for key, lines in account.stories.items()}
        new = [row for row in shown if written.get(row[0]) != set(row[15])]
        events = account.stories | (stories(new, self.tables, known) if new else {})
        account.stories = {row[0]: events[row[0]] for row in shown}
        return shown

    def _write_open(self, groups: Mapping[Group, OpenGroup]) -> list[Written]:
        """Return files with the rows of open groups.

        A file has the rows of several groups of one kind. If one of its groups has changed, its
        other groups get new files, too.
        """
        left = {group: open_group for group, open_group in groups.items() if open_group.tables}
        kept = []
        for some, files in self._shelves:
            if all(left.get(group) is open_group for group, open_group in some.items()):
                kept.append((some, files))
                for group in some:
                    del left[group]
        for _, alike in groupby(sorted(left), key=itemgetter(0)):
            some, rows = {}, 0
            for group in alike:
                some[group] = left[group]
                rows += sum(map(len, left[group].tables.values()))
                if rows >= _SHELF:
                    kept.append((some, self._write(some.values())))
                    some, rows = {}, 0
            kept.append((some, self._write(some.values())))
        self._shelves = kept
        return [file for _, files in kept for file in files]

    def _write(self, groups: Iterable[OpenGroup]) -> list[Written]:
        parts, tables = Parts(self.tables.where), defaultdict(list)
        for group in groups:
            for name, rows in group.tables.items():
                tables[name].append(rows)
        for name, some in tables.items():
            parts.write(name, pyarrow.concat_tables(some))
        return parts.close()

    def _add_up(self) -> Totals:
        """Return the totals of the account with the counts of its open groups."""
        account, old, totals = self.account, self._counts, self._totals
        self._counts = new = {
            group: open_group.counts for group, open_group in account.open.items()
        }
        changed = [
            (old.get(group, {}), new.get(group, {}))
            for group in old.keys() | new.keys()
            if old.get(group) is not new.get(group)
        ]
        added, account.added = account.added, []
        if (
            totals is None
            or totals.length != account.totals.length
            or not totals.change(changed, added)
        ):
            totals = account.totals.plus(new.values())
        self._totals = totals
        return totals

    def _check_events(self) -> None:
        """Make the checks that need lines in ``events``; all lines about them have been read."""
        account, sink = self.account, FoldSink(self.account.known)
        check_silences(account.rows["silence"], self.tables, sink)
        check_partings(account.rows["partings"], sink)
        check_twice(account.rows["twice"], self.tables, sink)
        account.rows["violations"] += sink.rows.get("violations", [])
        ended = ended_connections(account.rows["partings"])
        account.rows |= {"silence": [], "partings": ended, "twice": []}
        account.add_counts(sink.counts)
