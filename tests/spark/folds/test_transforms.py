"""Single folds and tables of a few handwritten lines."""

from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from tests.spark.folds.plain import fold, known, table
from wmp.checks.job_history import INVARIANTS
from wmp.message import ERROR_CODES
from wmp.spark.folds.clocks import Clock, ClockSamples, Offset, clocks
from wmp.spark.folds.facts import Counts, FoldSink, add_count
from wmp.spark.folds.findings import FINDINGS
from wmp.spark.folds.message_fold import MessageFold
from wmp.spark.folds.process_lines import LineNumbers, ProcessLines
from wmp.spark.folds.processes import check_lives
from wmp.spark.folds.reading import ReadPart, ReadTask
from wmp.spark.folds.stories import bounded
from wmp.spark.journals.schema import PHASES, TABLES
from wmp.spark.pipeline.totals import Totals, spread, stretch
from wmp.spark.session.arrow import schema_of, to_batch


def line(node: str, n: int, at: int, what: str, **columns: object) -> str:
    head = {"v": 1, "node": node, "epoch": 1, "n": n, "step": n, "at": at, "wall": at + 5}
    return json.dumps({**head, "what": what, **columns})


def read(*lines: str) -> ReadPart:
    parts = SimpleNamespace(write=lambda *_: None, close=list)
    reader = ReadTask(parts, 4)
    assert list(reader.read(("a-1-000001.jsonl", text.encode()) for text in lines))
    return reader.result


def message(command: str, source: str, target: str, **columns: object) -> dict[str, object]:
    route = {"source": source, "source_epoch": 1, "target": target, "target_epoch": 1}
    return {"command": command, "link": "#0", "hops": 0, **route, **columns}


RUN = {"role": "r", "needs": {"slots": 2}, "owner": "m", "owner_epoch": 1, "bytes": 0}


START = {"kind": "worker", "segment": 1, "settings": {}}


def test_a_lane_does_one_job_after_the_other():
    """Two jobs that end in one event share the time since the lane's last event."""
    sink = fold(
        [
            line("w", 1, 100, "run", lane=1, ids=[1, 2, 3, 4], attempts=[1, 1, 2, 1], **RUN),
            line("w", 2, 130, "finished", lane=1, ids=[1], outcomes=[0], bytes=0),
            line("w", 3, 150, "recalled", lane=1, ids=[4]),
            line("w", 4, 170, "finished", lane=1, ids=[2, 3], outcomes=[0, 1], bytes=0),
            line("w", 5, 180, "run", lane=2, ids=[9], attempts=[1], **RUN),
        ]
    )

    columns = ("lane", "job", "attempt", "handed", "began", "ended", "outcome", "handler")
    assert sorted(tuple(row[name] for name in columns) for row in table(sink, "executions")) == [
        (1, 1, 1, 100, 100, 130, "ok", 30),
        (1, 2, 1, 100, 130, 170, "ok", 20),
        (1, 3, 2, 100, 150, 170, "error", 20),
        (1, 4, 1, 100, None, None, "recalled", None),
        (2, 9, 1, 180, 180, None, None, None),
    ]


def test_a_message_that_was_ignored_took_no_job():
    """Only a second TAKE that the worker did not ignore explains a second DONE."""
    ignored = ["claimed", "old session", "unknown session", "duplicate", "gap", "ahead"]
    ignored += sorted(ERROR_CODES)
    lines = []
    for job, reason in enumerate([None, *ignored]):
        columns = {"ids": [job], "attempts": [1], "owner": "m", "owner_epoch": 1, "bytes": 0}
        why = {} if reason is None else {"reason": reason}
        for again, taken in enumerate(({}, why)):
            number = 2 * job + again + 1
            take = message("TAKE", "m", "w", session=1, number=number, **columns, **taken)
            done = message("DONE", "w", "m", session=1, number=number, outcomes=[0], **columns)
            lines.append(line("w", len(lines) + 1, 0, "received", **take))
            lines.append(line("w", len(lines) + 1, 0, "send", **done))
    broken = [row for row in table(fold(lines), "violations") if row["job"] is not None]
    twice = [row["job"] for row in broken if row["name"] == "WMP-6.6"]
    assert sorted(twice) == list(range(1, len(ignored) + 1))


def test_a_refused_answer_and_those_in_its_place_are_one_answer():
    """Each job of a refused DONE with several jobs gets a DONE of its own (WMP-7.11)."""
    lines: list[str] = []

    def at_worker(what: str, columns: dict[str, object]) -> None:
        lines.append(line("w", len(lines) + 1, 0, what, **columns))

    def take(number: int, *ids: int) -> None:
        jobs = {"ids": ids, "attempts": [1], "owner": "m", "owner_epoch": 1, "bytes": 0}
        at_worker("received", message("TAKE", "m", "w", session=1, number=number, **jobs))

    def done(number: int, *ids: int, outcome: int = 0) -> None:
        jobs = {"ids": ids, "attempts": [1], "owner": "m", "owner_epoch": 1, "bytes": 0}
        numbers = {"session": 1, "number": number, "outcomes": [outcome]}
        at_worker("send", message("DONE", "w", "m", **numbers, **jobs))

    def error(number: int, source: str = "m", **columns: object) -> None:
        fields = {"code": "limit", "about": "DONE", "about_number": number, "session": 1}
        at_worker("received", message("ERROR", source, "w", **{**fields, **columns}))

    take(1, 1, 2)
    done(1, 1, 2)
    error(1)
    done(1, 1)
    done(2, 2)
    error(1, source="device", about_peer="m", about_epoch=1)
    done(1, 1, outcome=4)
    take(2, 3, 4)  # no acknowledgement comes (WMP-7.12)
    for _ in range(11):
        done(3, 3, 4)
    done(3, 3)
    done(4, 4)
    take(3, 5, 6, 7, 8)  # ERRORs that do not refuse the DONE
    done(5, 5, 6, 7, 8)
    error(5, code="unknown")
    error(5, session=2)
    error(5, source="other")
    error(5, about="STATUS")
    done(6, 5)
    done(7, 6, 7)

    broken = [row for row in table(fold(lines), "violations") if row["name"] == "WMP-6.6"]
    assert sorted(row["job"] for row in broken) == [5, 6, 7]


def test_lanes_that_take_more_than_there_is():
    sink = fold(
        [
            line("w", 0, 0, "start", **START, resources={"slots": 3}),
            line("w", 1, 10, "run", lane=1, ids=[1], attempts=[1], **RUN),
            line("w", 2, 20, "finished", lane=1, ids=[1], outcomes=[0], bytes=0),
            line("w", 3, 20, "run", lane=2, ids=[2], attempts=[1], **RUN),
            line("w", 4, 30, "run", lane=3, ids=[3], attempts=[1], **RUN),
            line("w", 5, 40, "resized", resources={"slots": 6}),
            line("w", 6, 50, "run", lane=4, ids=[4], attempts=[1], **RUN),
        ]
    )

    rows = [row for row in table(sink, "violations") if row["job"] is None]
    assert [(row["name"], row["time"], row["detail"]) for row in rows] == [
        ("no double booking", 30, "the running jobs of worker w need 4 slots; the worker has 3")
    ]


def test_the_share_of_a_worker_whose_resources_change_counts_what_there_was():
    sink = fold(
        [
            line("w", 0, 0, "start", **START, resources={"slots": 0}),
            line("w", 1, 100, "resized", resources={"slots": 4}),
            line("w", 2, 100, "run", lane=1, ids=[1], attempts=[1], **RUN),
            line("w", 3, 200, "finished", lane=1, ids=[1], outcomes=[0], bytes=0),
            line("w", 4, 200, "resized", resources={"slots": 2}),
            line("w", 5, 300, "received", **message("PONG", "m", "w")),
        ]
    )
    totals = Totals()
    totals.add(sink.counts)
    # 2 of 4 slots were taken for 100 µs, of 600 µs in which a slot was there.
    (row,) = totals.utilisation(sink.known)
    assert row[2:] == ("slots", 0, 300, 2, 200, pytest.approx(200 / 600))


def test_two_processes_of_one_identity_are_not_served_side_by_side():
    def served(*lives: tuple[int, int, int]) -> list[str]:
        ready = {"ready": 1, "credit": 1, "window": 0, "roles": ["r"], "resources": {}}
        times = sorted((at, epoch) for epoch, *ends in lives for at in ends)
        sink = fold(
            [
                line("m", 0, 0, "start", kind="manager", segment=1, settings={"max_silence": 5}),
                *(
                    line("m", n, at * 10**6, "received",
                         **{**message("READY", "w", "m", **ready), "source_epoch": epoch})
                    for n, (at, epoch) in enumerate(times, 1)
                ),
            ]
        )  # fmt: skip
        counts = {key[1:]: entry for key, entry in sink.counts.items() if key[0] == "served"}
        check_lives([], counts, sink)
        return [row["detail"] for row in table(sink, "violations")]

    assert served((1, 10, 20), (2, 21, 30)) == []
    assert served((1, 10, 24), (2, 20, 30)) == []  # shorter than expire
    assert served((1, 10, 40), (2, 20, 30)) == []  # the second died, and the first came back
    assert served((1, 10, 30), (2, 20, 40)) == [
        "manager m served w:1 and w:2 side by side for 10.0 s; expected one of them to be refused"
    ]


def test_a_worker_that_no_manager_serves_does_not_continue_beside_another():
    def breaks(*refusals: str | None, side_by_side: bool = True) -> list[str]:
        """Return the violations of lives of one worker; no refusal means that it was served."""
        pong, lines = message("PONG", "m", "w"), []
        for epoch, reason in enumerate(refusals, 1):
            lines += [
                line("w", 0, 0, "start", epoch=epoch, **START),
                line("w", 1, 10, "received", epoch=epoch, reason=reason, **pong),
                line(
                    "w", 2, (5 if side_by_side else 2) * 10**6, "stop", epoch=epoch, step=1, lines=0
                ),
            ]
        texts = [text.replace('"reason": null, ', "") for text in lines]
        sink = FoldSink(known(map(json.loads, texts)))
        check_lives(list(read(*texts).processes.values()), {}, sink)
        return [row["detail"] for row in table(sink, "violations")]

    assert breaks(None, None) == []
    assert breaks("claimed") == []  # no other process has its identity
    assert breaks(None, "claimed", side_by_side=False) == []  # for less than three seconds
    assert breaks(None, "claimed") == [
        "w:2 did not stop, although no manager served it and another process has its identity"
    ]


def test_a_declined_job_is_no_job():
    submitted = {"role": "r", "needs": {}, "priority": 0, "max_worker_losses": 0}
    sink = fold(
        [
            line("m", 0, 0, "start", kind="manager", segment=1, settings={}),
            line("m", 1, 10, "submitted", ids=[1, 2], **submitted),
            line("m", 2, 10, "decline", ids=[2], reason="store full"),
            line("m", 3, 20, "stop", lines=0),
        ]
    )

    assert [row["job"] for row in table(sink, "jobs")] == [1]
    assert [row["name"] for row in table(sink, "violations")] == ["every job ends"]


def test_clocks_by_the_messages_between_them():
    """The clock of w is 1000 µs ahead; the fastest messages take 30 µs to w and 50 µs back."""

    def trip(command, sender, receiver, number, sent, received):
        row = message(command, sender, receiver, session=1, number=number)
        return [
            line(sender, number, sent, "send", **row),
            line(receiver, number, received, "received", **row),
        ]

    take = [
        text
        for n, at, took in ((1, 0, 30), (2, 100, 90), (3, 200, 45))
        for text in trip("TAKE", "m", "w", n, at, at + 1000 + took)
    ]
    done = [
        text
        for n, at, took in ((11, 400, 50), (12, 500, 70))
        for text in trip("DONE", "w", "m", n, at + 1000, at + took)
    ]
    again = [
        line("w", 20, 1300, "send", **message("DONE", "w", "m", session=1, number=13)),
        line("w", 21, 1400, "send", **message("DONE", "w", "m", session=1, number=13)),
        line("m", 30, 401, "received", **message("DONE", "w", "m", session=1, number=13)),
    ]
    for over in (False, True):
        samples = ClockSamples()
        for number, text in enumerate([*take, *done, *again]):
            samples.add(read(text).samples)
            if over and number % 2:
                samples.condense(lambda process, at: True)

        assert samples.offsets() == [Offset(M, W, 990, 40, 5, 1030, -950)]


def test_the_wall_clock_is_that_of_the_first_line_in_any_order():
    """If several lines have the first number, the least difference counts."""
    lines = [line("m", n, at, "ticked", wall=wall) for n, at, wall in FIRST]
    for some in (lines, lines[::-1]):
        parts = [read(text) for text in some]
        for part in parts[1:]:
            parts[0].merge(part)
        assert read(*some).processes[M].wall == parts[0].processes[M].wall == (1, 60)


FIRST = ((2, 30, 50), (1, 20, 90), (1, 10, 70), (3, 0, 0))
"""(number, time, wall clock) of lines."""


def messages(*lines: str) -> FoldSink:
    """Compare both ends of the messages in lines."""
    reader = ReadTask(SimpleNamespace(write=lambda *_: None, close=list), 1)
    texts = [("a-1-000001.jsonl", text.encode()) for text in lines]
    messages = MessageFold()
    for part in chain.from_iterable(reader.read(texts)):
        if part[0] == "message":
            messages.add(part[4])
    sink = FoldSink(known(map(json.loads, lines)))
    messages.report(sink, last=True)
    return sink


def test_an_empty_route_is_no_route():
    take = message("TAKE", "m", "w", session=1, number=1, via=[])
    sink = messages(line("m", 1, 10, "send", **take), line("w", 1, 20, "received", **take))

    assert sink.tables["links"][0]["via"].to_pylist() == [None]


def test_the_first_violations_are_shown():
    """A worker received many messages in the order of time; no line shows that they left."""
    started = line("m", 1, 0, "start", kind="manager", segment=1, settings={})
    stopped = line("m", 2, 10**9, "stop", lines=0)
    sessions = [*range(100, 200), *range(100)]
    lines = [
        line("w", n, n, "received", **message("TAKE", "m", "w", session=session, number=200 - n))
        for n, session in enumerate(sessions, 1)
    ]
    shuffled = Random(1).sample(lines, len(lines))

    shown = table(messages(started, stopped, *shuffled), "violations")

    assert [row["events"][0][2] for row in shown] == list(range(1, 101))


@pytest.mark.parametrize(("count", "kept"), [(2000, 2000), (4000, 200)])
def test_of_very_many_violations_the_first_are_kept(count, kept):
    rows = [
        (f"{n}", "WMP-7.1", "", "", bool(n % 2), *[None] * 9, n, []) for n in reversed(range(count))
    ]

    some = bounded(rows)

    assert len(some) == kept
    assert {row[0] for row in some} >= {f"{n}" for n in range(200)}


@pytest.mark.parametrize(
    ("numbers", "highest", "missing", "twice"),
    [
        ([], 0, 0, []),
        ([1, 2, 3], 3, 0, []),
        ([3, 1, 2], 3, 0, []),
        ([1, 2, 4], 4, 1, []),
        ([1, 2, 2, 4], 4, 1, [(2, 2)]),
        ([1, 2, 3, 4, 2, 3, 9], 9, 4, [(2, 3)]),
    ],
)
def test_line_numbers_show_gaps_and_repetitions(numbers, highest, missing, twice):
    some = LineNumbers()
    for n in numbers:
        some.add(n)

    assert some.tidy() == twice
    assert (some.highest, some.missing) == (highest, missing)
    assert {n for n in range(12) if n in some} == set(numbers)


def test_percentiles_are_samples_that_so_many_samples_do_not_exceed():
    values = {10: [2, 20, 10], 20: [1, 20, 20], 40: [1, 44, 44]}

    # The samples are 10, 10, 20, 44.
    assert spread(values) == (4, 21.0, 10, 44, 44, 44, 44, 44)
    assert spread({n: [1, n, n] for n in range(1, 101)})[2:7] == (50, 90, 95, 99, 100)
    assert spread({1000: [3, 3020, 1013]})[2:7] == (1013,) * 5  # of samples that were rounded


M, W, D, ALONE = ("m", 1), ("w", 1), ("d", 1), ("x", 1)


def test_one_clock_for_all_over_the_best_chain():
    rows = [
        ProcessLines(*M, wall=(0, 7), manages=1),
        ProcessLines(*W, wall=(0, 0)),
        ProcessLines(*D, wall=(0, 0)),
        ProcessLines(*ALONE, wall=(0, 3)),
    ]
    offsets = clocks(
        rows,
        [
            Offset(D, M, offset=-100, error=5, messages=50),
            Offset(D, W, offset=30, error=5, messages=50),
            Offset(M, W, offset=999, error=400, messages=60),
            Offset(M, ("gone", 1), offset=1, error=1, messages=1),
        ],
    )

    # m is the first manager: its wall clock is the reference, and d is 100 µs ahead of m.
    assert offsets == {
        M: Clock(7, 0, M),
        D: Clock(7 - 100, 5, M),
        W: Clock(7 - 100 - 30, 10, M),
        ALONE: Clock(3, None, ALONE),
    }


def test_one_machine_has_one_clock():
    host = {"host": "host"}
    processes = [
        ProcessLines(*M, wall=(0, 7), start=host),
        ProcessLines(*W, wall=(0, 9), start=host),
    ]

    near = clocks(processes, [Offset(M, W, offset=20, error=40, messages=1)])
    far = clocks(processes, [Offset(M, W, offset=50, error=40, messages=1)])

    assert near == {M: Clock(7, 0, M), W: Clock(7, 0, M)}
    assert far[W] == Clock(7 - 50, 40, M)  # two machines with the same name


def rows_of_totals(totals: Totals) -> list[object]:
    tables = (totals.latency(), totals.histogram(), totals.device_hops())
    jobs = {key: entry[:2] for key, entry in totals.counts["jobs"].items()}
    return [*(sorted(map(repr, rows)) for rows in tables), jobs]


def test_totals_that_change_are_those_that_are_added_up_anew():
    """The counts of groups change at random, and further counts are added."""
    random, known = Random(5), 0

    def some_counts() -> Counts:
        counts: Counts = {}
        for _ in range(random.randrange(6)):
            length = random.choice((3, 5, 70_300))
            longest = length + random.randrange(length // 1000 + 1)
            who = ("r", "m", None, None, 7)
            add_count(counts, ("phase", "total", *who, length), [1, longest, longest])
            add_count(counts, ("hop", None, None, length), [1, longest, longest])
            add_count(counts, ("hop", "d", "up", length), [1, longest, longest])
            add_count(counts, ("jobs", random.choice(("ok", None))), [1, 0, 0])
        return counts

    for _ in range(300):
        base, groups, more = Totals(), [some_counts() for _ in range(4)], some_counts()
        base.add(some_counts())
        totals = base.plus(groups)
        changed = [(old, random.choice((old, some_counts()))) for old in groups]
        base.add(more)
        if totals.change(changed, [more]):
            known += 1
            anew = base.plus(new for _, new in changed)
            assert rows_of_totals(totals) == rows_of_totals(anew)
    assert 100 < known < 300


@pytest.mark.parametrize(
    ("seconds", "length"),
    [(0, 0.05), (7, 0.25), (30, 0.25), (120, 1), (121, 5), (7200, 60), (4e5, 3600), (7e7, 604_800)],
)
def test_stretches_are_few(seconds, length):
    assert stretch(seconds) == length * 1_000_000


def test_rows_travel_through_arrow_unchanged():
    ddl = "a bigint, b string, c array<bigint>, d array<struct<x:string,y:bigint>>"
    rows = [(1, "x", [1, 2], [("p", 1)]), (None, None, None, []), (3, "", [], [("q", None)])]

    batch = to_batch(list(zip(*rows, strict=True)), schema_of(ddl))

    for index, name in enumerate("abc"):
        assert batch.column(name).to_pylist() == [row[index] for row in rows]
    assert batch.column(3).to_pylist() == [
        [dict(zip("xy", pair, strict=True)) for pair in row[3]] for row in rows
    ]


def test_findings_are_named_after_invariants():
    own = {
        "messages arrive as sent", "one line for each number", "a stop is the last line",
        "a TAKE states its job", "a lane runs what its TAKE brought", "a lane ends each job once",
        "lines follow one another", "start lines agree", "lost lines are counted",
    }  # fmt: skip
    assert {name for name in FINDINGS if not name.startswith("WMP-")} - own < set(INVARIANTS)


SPEC = (Path(__file__).resolve().parents[3] / "specs" / "pipeline.md").read_text(encoding="utf-8")


def cells_below(heading: str) -> list[list[str]]:
    """Return the cells of the tables below a heading of the specification."""
    part = SPEC.partition(f"{heading}\n")[2].partition("\n## ")[0]
    lines = [text for text in part.splitlines() if text.startswith("| ")]
    return [[cell.strip() for cell in text.strip("|").split("|")] for text in lines]


def test_the_specification_names_the_tables_findings_and_phases():
    tables = [
        name for row in cells_below("## 1. Tables") for name in re.findall(r"`(\w+)`", row[0])
    ]
    findings = [row[0] for row in cells_below("## 3. Findings") if row[0] != "name"]
    phases = [p for row in cells_below("## 4. Phases") for p in row[0].split(", ") if p != "phase"]

    assert sorted(tables) == sorted(TABLES)
    assert sorted(findings) == sorted(FINDINGS)
    assert sorted(phases) == sorted(PHASES)
