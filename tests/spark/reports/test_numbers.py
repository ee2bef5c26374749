"""The numbers of journals are those of a whole report, made without a fold."""

from __future__ import annotations

import json
import sys

import pyarrow.dataset
import pyarrow.parquet
import pytest

from tests.spark.folds.worlds import play, save, write
from wmp.errors import ConfigError
from wmp.spark import report, report_numbers
from wmp.spark.journals.byte_ranges import ByteRange, chunks
from wmp.spark.numbers.kept_lines import LineCount, kept_lines
from wmp_programs import wmp as main

PHASES = ("total", "queue wait", "handler")
BY = ("all", "role", "manager", "worker", "hour")
SEEDS = range(12)
APART = (6, 9, 10)
"""The seeds of worlds in which the wall clocks of nodes differ by hours."""


def rows(folder, table):
    table_rows = pyarrow.dataset.dataset(folder / table, format="parquet").to_table().to_pylist()
    return sorted(table_rows, key=repr)


def line(n, what, node="m", **columns):
    head = {"v": 1, "node": node, "epoch": 1, "n": n, "step": n, "at": n * 100, "wall": n * 100}
    return json.dumps({**head, "what": what, **columns}, separators=(",", ":"))


TERMS = {"role": "r", "needs": {}, "priority": 0, "max_worker_losses": 3}
JOB = [
    line(0, "start", kind="manager"),
    line(1, "submitted", ids=[1], last=3, **TERMS),
    line(2, "resolve", ids=[1, 2, 3], ends=["ok", "error", "ok"], attempts=[1]),
    line(3, "stop"),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_numbers_are_those_of_a_whole_report(tmp_path, seed):
    """The worlds lose messages, and kill and restart nodes."""
    journal = write([play(seed, tmp_path / "worlds")], tmp_path / "journal")
    whole = report(journal, tmp_path / "whole").result.summary

    numbers = report_numbers(journal, tmp_path / "numbers")

    clocks = ("seconds", "jobs per second") if seed in APART else ()
    counted = {name: value for name, value in numbers.summary.items() if name not in clocks}
    assert counted == pytest.approx({name: whole[name] for name in counted})
    wanted = [
        row
        for row in rows(tmp_path / "whole", "latency")
        if row["phase"] in PHASES and row["by"] in BY[: len(BY) - bool(clocks)]
    ]
    table_rows = rows(tmp_path / "numbers", "latency")
    table_rows = [row for row in table_rows if row["by"] != "hour" or not clocks]
    assert table_rows == wanted
    if not clocks:
        assert rows(tmp_path / "numbers", "activity") == rows(tmp_path / "whole", "activity")
    assert numbers.summary["jobs"] > 0


def test_lines_that_cannot_be_read_cost_themselves_alone(tmp_path):
    journal = tmp_path / "journal"
    journal.mkdir()
    odd = [
        "garbage", "", '{"v":1}', "[1]", line(4, "note", ids="x", reason="joined a stored job of "
        "the same key"), line(5, "begun", ids=[1], lane=[2]), "{}{}", JOB[-1][:30],
    ]  # fmt: skip
    text = "\n".join([*JOB[:2], *odd[:-1], *JOB[2:], odd[-1]]).encode()
    (journal / ".m-1.jsonl").write_bytes(text.replace(b"garbage", b"\xff\xfe"))

    summary = report_numbers(journal, tmp_path / "out").summary

    assert (summary["jobs"], summary["jobs ok"], summary["jobs error"]) == (3, 2, 1)
    assert (summary["lines"], summary["bad lines"]) == (4, 7)


def test_a_job_that_two_segments_have_counts_once(tmp_path):
    save(tmp_path / "journal" / "a.jsonl", JOB)
    save(tmp_path / "journal" / "b.jsonl", JOB)

    assert report_numbers(tmp_path / "journal", tmp_path / "out").summary["jobs"] == 3


def test_a_job_begins_when_its_submitter_calls(tmp_path):
    """A manager takes the jobs of a burst later than their submitter calls."""
    lines = [
        line(0, "start", kind="manager", segment=1, settings={}),
        line(1, "submitted", at=1_000_000, wall=1_000_000, ids=[1], last=3,
             since_call=[300_000, 200_000, 0], **TERMS),
        line(2, "resolve", at=3_000_000, wall=3_000_000, ids=[1], last=3, ends=["ok"],
             attempts=[0]),
        line(3, "stop", at=3_000_000, wall=3_000_000, lines=0),
    ]  # fmt: skip
    save(tmp_path / "journal" / "a.jsonl", lines)

    report_numbers(tmp_path / "journal", tmp_path / "numbers")
    report(tmp_path / "journal", tmp_path / "whole")

    (total,) = (
        row for row in rows(tmp_path / "numbers", "latency")
        if (row["phase"], row["by"]) == ("total", "all")
    )  # fmt: skip
    assert (total["p50"], total["most"]) == (2_200_000, 2_300_000)
    assert total in rows(tmp_path / "whole", "latency")
    jobs = rows(tmp_path / "whole", "jobs")
    assert sorted(row["total"] for row in jobs) == [2_000_000, 2_200_000, 2_300_000]
    begins = sorted(round(row["submitted"].timestamp() * 1e6) for row in jobs)
    assert begins == [700_000, 800_000, 1_000_000]


def test_a_note_at_the_end_of_a_segment_takes_no_job_away(tmp_path):
    lost = line(2, "note", reason="silence", ids=[1], attempts=[1], about_peer="w", about_epoch=1)
    save(tmp_path / "journal" / "a.jsonl", [*JOB[:2], lost])

    assert report_numbers(tmp_path / "journal", tmp_path / "out").summary["jobs"] == 3


def test_an_empty_journal_has_no_numbers(tmp_path):
    (tmp_path / "journal").mkdir()

    numbers = report_numbers(tmp_path / "journal", tmp_path / "out")

    assert numbers.latency == []
    assert set(numbers.summary.values()) == {0}
    assert rows(tmp_path / "out", "activity") == []


def test_most_lines_are_not_parsed(tmp_path):
    journal = write([play(0, tmp_path / "worlds")], tmp_path / "journal")
    count, files = LineCount(), sorted(journal.iterdir())
    spans = [ByteRange(str(path), 0, path.stat().st_size) for path in files]

    kept = sum(map(len, kept_lines(spans, count)))

    assert count.lines == sum(len(path.read_bytes().splitlines()) for path in files)
    assert kept < count.lines / 2


@pytest.mark.parametrize("size", [1, 7, 64, 1 << 20])
def test_pieces_of_a_segment_are_whole_lines(tmp_path, size):
    text = b"one\n\nthree is long\n4\nno end"
    path = tmp_path / "a.jsonl"
    path.write_bytes(text)

    pieces = list(chunks(ByteRange(str(path), 0, len(text)), size))

    assert b"".join(pieces) == text
    assert all(piece.endswith(b"\n") for piece in pieces[:-1])


def test_what_the_numbers_cannot_read_is_named(tmp_path):
    save(tmp_path / "old" / "a.jsonl", [JOB[0].replace('"v":1', '"v":99')])
    save(tmp_path / "journal" / "a.jsonl", JOB)
    (tmp_path / "whole" / "findings").mkdir(parents=True)

    with pytest.raises(ConfigError, match=r"unknown version: 99 in a\.jsonl"):
        report_numbers(tmp_path / "old", tmp_path / "out")
    with pytest.raises(ConfigError, match=r"the numbers of s3://x cannot .* leave out --numbers"):
        report_numbers("s3://x", tmp_path / "out")
    with pytest.raises(ConfigError, match=r"has a whole report.*name another folder"):
        report_numbers(tmp_path / "journal", tmp_path / "whole")


@pytest.fixture
def wmp(monkeypatch, capfd):
    """Run the program in this process."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["wmp", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            main()
        output = capfd.readouterr()
        return int(left.value.code or 0), output.out, output.err

    return run


def test_the_program_prints_the_numbers_and_no_verdict(tmp_path, wmp):
    save(tmp_path / "journal" / "a.jsonl", JOB)
    command = ["report", tmp_path / "journal", "--out", tmp_path / "out", "--numbers"]

    code, out, err = wmp(*command)

    assert (code, err) == (0, "")
    assert "3 jobs, 2 ok, 1 error" in out
    assert "violations" not in out
    assert not (tmp_path / "out" / "report.html").exists()
    code, out, _ = wmp(*command, "--json")
    assert code == 0
    assert json.loads(out)["summary"]["jobs"] == 3


@pytest.mark.parametrize("flag", ["--follow", "--since 2026-01-01", "--master local[1]"])
def test_a_flag_of_verdicts_is_refused(tmp_path, wmp, flag):
    (tmp_path / "journal").mkdir()

    code, _, err = wmp(
        "report", tmp_path / "journal", "--out", tmp_path / "out", "--numbers", *flag.split()
    )

    assert code == 2
    assert "--numbers cannot be combined with" in err
