"""Damaged journals: torn, mixed with garbage, in pieces, of other versions, or empty."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest

from tests.spark.folds.worlds import build, play, rows_of, save
from wmp.errors import ConfigError
from wmp.spark import report
from wmp.spark.folds import stories
from wmp.spark.journals.byte_ranges import ByteRange
from wmp.spark.journals.journals import Source, find_segments
from wmp.spark.journals.lines import parse
from wmp.spark.journals.schema import TABLES
from wmp.spark.journals.tables import Tables
from wmp.spark.pipeline import engines
from wmp.spark.pipeline.engines import OnSpark
from wmp.spark.pipeline.run import STEPS

SEED = 11


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return play(SEED, tmp_path_factory.mktemp("world"))


def by_process(lines):
    names: dict[str, list[str]] = {}
    for line in lines:
        row = json.loads(line)
        names.setdefault(f"{row['node']}-{row['epoch']}", []).append(line)
    return names


@pytest.fixture(scope="module")
def damaged(spark, world, tmp_path_factory):
    """Return a journal with every fault with which a journal can still be read, and its events."""
    folder = tmp_path_factory.mktemp("damaged")
    journal = folder / "journal"
    (journal / "deeper").mkdir(parents=True)
    parts = by_process(world.lines)
    workers = sorted(name for name in parts if ".w" in name)
    managers = sorted(name for name in parts if ".m" in name)
    # The journal of one worker is missing.
    gone = workers[-1]
    del parts[gone]
    for name, lines in parts.items():
        # A killed process leaves a file with a dot.
        save(journal / f".{name}-000001.jsonl", lines)
    # One journal is there twice, and its finished copy is in another folder.
    twice = managers[0]
    save(journal / "deeper" / f"{twice}-000001.jsonl", parts[twice])
    # One journal has lost a line in the middle, and its end is torn.
    hurt = workers[0]
    lines = [line for line in parts[hurt] if json.loads(line)["n"] != 5]
    torn = lines[-1][: len(lines[-1]) // 2]
    (journal / f".{hurt}-000001.jsonl").write_text("\n".join([*lines[:-1], torn]))
    row = json.loads(parts[twice][1])
    save(
        journal / "strange-1-000001.jsonl",
        [
            "hello",
            "",
            "[1, 2]",
            json.dumps({**row, "n": "many"}),
            json.dumps({name: value for name, value in row.items() if name != "at"}),
            json.dumps({**row, "what": "run", "n": 10**6}),
            json.dumps({**row, "what": "dance", "n": 1, "node": "stranger", "shoes": [2]}),
            '{"v": 1, "node": "m1"',
        ],
    )
    with (journal / "strange-1-000001.jsonl").open("ab") as file:
        file.write(b'\n{"v":1,"node":"\xff\xfe"}\n')
    with (journal / ".strange-2-000001.jsonl").open("wb") as file:
        file.write(b'{"v":1,"node":"\xff\xfe"}\n')
    steps = []
    result = build(spark, [journal], folder / "tables", progress=lambda *step: steps.append(step))
    known = {"gone": gone, "twice": twice, "hurt": hurt, "parts": parts, "steps": steps}
    return result, known


def test_a_report_without_spark_has_the_same_tables(damaged, tmp_path):
    result, _ = damaged
    folder = Path(result.tables.where).parent

    here = report(folder / "journal", tmp_path)

    assert here.result.summary == result.summary
    for table in TABLES:
        assert rows_of(tmp_path, table) == rows_of(folder / "tables", table), table


def test_bad_lines_are_counted_by_reason(damaged):
    result, known = damaged
    rows = result.tables.read("bad_lines").collect()
    counted = {(row.file, row.reason): row.lines for row in rows}

    assert counted == {
        ("strange-1-000001.jsonl", "garbage"): 2,
        ("strange-1-000001.jsonl", "torn"): 1,
        ("strange-1-000001.jsonl", "n is not integer"): 1,
        ("strange-1-000001.jsonl", "no at"): 1,
        ("strange-1-000001.jsonl", "run without lane"): 1,
        ("strange-1-000001.jsonl", "not UTF-8"): 1,
        ("strange-2-000001.jsonl", "not UTF-8"): 1,
        # The dot is not part of the file's name in reports.
        (f"{known['hurt']}-000001.jsonl", "torn"): 1,
    }
    assert result.summary["bad lines"] == 9


def test_everything_else_is_read_once(damaged):
    result, known = damaged
    lines = {
        f"{row.node}-{row.epoch}": (row.lines, row.missing)
        for row in result.tables.read("nodes").collect()
    }
    expected = {name: (len(part), 0) for name, part in known["parts"].items()}
    expected[known["hurt"]] = (len(known["parts"][known["hurt"]]) - 2, 1)
    strange = next(name for name in lines if name.startswith("stranger"))
    expected[strange] = (1, 0)

    assert lines == expected
    files = {row.file for row in result.tables.read("events").select("file").distinct().collect()}
    assert f"{known['twice']}-000001.jsonl" in files
    assert f".{known['twice']}-000001.jsonl" not in files


def test_a_missing_journal_is_reported_and_causes_no_violation(damaged):
    result, known = damaged
    missing = {f"{row.node}-{row.epoch}" for row in result.tables.read("missing_nodes").collect()}

    assert missing == {known["gone"]}
    certain = result.tables.read("violations").where("certain").collect()
    assert certain == []
    assert result.violations == 0


def test_each_step_is_reported_before_it_begins(damaged):
    _, known = damaged

    assert known["steps"] == [(name, done, len(STEPS) + 1) for done, name in enumerate(STEPS)]


@pytest.mark.parametrize("hidden", ["", "."])
def test_another_version_is_an_error_that_names_it(spark, world, tmp_path, hidden):
    later = json.dumps({**json.loads(world.lines[0]), "v": 2})
    save(tmp_path / f"{hidden}later-1-000001.jsonl", [*world.lines[:5], later])

    with pytest.raises(ConfigError) as raised:
        build(spark, [tmp_path], tmp_path / "tables")

    assert str(raised.value) == (
        "the journal has an unknown version: 2 in "
        "later-1-000001.jsonl; this release reads version 1: use the release that wrote the journal"
    )


def test_a_missing_path_is_reported(tmp_path):
    with pytest.raises(ConfigError, match="no such file or directory"):
        find_segments([tmp_path / "nowhere"])


def test_segments_are_those_that_are_finished_or_longer(tmp_path):
    for folder, name, text in (
        ("a", "m-1-000001.jsonl", "x"),
        ("a", ".m-1-000001.jsonl", "xxxx"),
        ("a", ".w-1-000001.jsonl", "x"),
        ("b", ".w-1-000001.jsonl", "xx"),
        ("b", "notes.txt", "x"),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(text)

    assert find_segments([tmp_path / "a", tmp_path / "b", "s3://far/away"]) == [
        "s3://far/away",
        ByteRange(str(tmp_path / "a" / "m-1-000001.jsonl"), 0, 1),
        ByteRange(str(tmp_path / "b" / "w-1-000001.jsonl"), 0, 2),
    ]


def test_how_a_journal_was_cut_makes_no_difference(spark, world, tmp_path):
    """With one segment or many, with or without a dot, in any order, the events are the same."""
    (tmp_path / "one").mkdir()
    save(tmp_path / "one" / "all-1-000001.jsonl", world.lines)
    (tmp_path / "many").mkdir()
    for number in range(7):
        hidden = "." if number % 2 else ""
        save(tmp_path / "many" / f"{hidden}all-1-{number:06}.jsonl", world.lines[number::7])
    maps = ("needs", "resources", "settings")  # Spark does not compare maps
    frames = [
        build(spark, [tmp_path / name], tmp_path / f"{name}-out")
        .tables.read("events")
        .drop("file", *maps)
        for name in ("one", "many")
    ]

    assert frames[0].count() == len(world.lines)
    assert frames[0].exceptAll(frames[1]).count() == frames[1].exceptAll(frames[0]).count() == 0


def test_lines_of_the_schema_alone_are_good(world):
    texts = [text.encode() for text in world.lines]

    assert [line for line in parse(texts, ["a"] * len(texts)) if isinstance(line, str)] == []


def test_lines_that_are_there_twice_count_once(spark, world, tmp_path):
    """A journal that was collected twice, and a line that is lost: neither hides the other."""
    lines = [line for line in world.lines if json.loads(line)["n"] != 7]
    save(tmp_path / "one" / "all-1-000001.jsonl", lines)
    save(tmp_path / "two" / "all-1-000001.jsonl", lines)
    save(tmp_path / "two" / "again-1-000001.jsonl", lines)

    once = build(spark, [tmp_path / "one"], tmp_path / "out" / "one")
    twice = build(spark, [tmp_path / "two"], tmp_path / "out" / "two")

    assert twice.summary["lines repeated"] == len(lines)
    assert once.summary["lines missing"] > 0
    assert twice.violations == 0
    assert {**twice.summary, "lines repeated": 0.0} == once.summary


def test_different_lines_with_one_number_are_counted(tmp_path, monkeypatch):
    """Two processes wrote journals under one name, and a part of a third has the same numbers."""
    monkeypatch.setattr(stories, "_TWICE", 5)
    for copy, count in enumerate((20, 20, 8)):
        lines = [
            json.dumps({
                "v": 1, "node": "w", "epoch": 1, "n": n, "step": n, "at": n + copy, "wall": n,
                "what": "ticked",
            })
            for n in range(1, count + 1)
        ]  # fmt: skip
        save(tmp_path / "journal" / f"{copy}-1-000001.jsonl", lines)

    result = report(tmp_path / "journal", tmp_path / "out").result

    (row,) = result.findings
    assert (row["name"], row["certain"], row["violations"]) == (
        "one line for each number",
        True,
        20,
    )
    shown = rows_of(tmp_path / "out", "violations")
    assert len(shown) == 5
    assert "3 different lines with the number 1" in str(shown)


@pytest.fixture
def other_files(spark, tmp_path):
    """Mount a folder in another file system of Hadoop, as a cluster has one; return its URL."""
    name = f"cluster-{uuid4().hex}"
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set(f"fs.viewfs.mounttable.{name}.link./data", tmp_path.as_uri())
    return f"viewfs://{name}/data"


@pytest.mark.parametrize("kind", ["a directory", "a URL of files", "a URL of another kind"])
def test_tables_and_page_are_written_to_a_directory_and_to_a_url(
    spark, other_files, tmp_path, kind
):
    start = {"a directory": str(tmp_path), "a URL of files": f"file://{tmp_path}"}
    where = f"{start.get(kind, other_files)}/out"
    tables = Tables(lambda: spark, where)
    rows = [("m", 1, "duplicate", 3), ("w", 2, "gap", 4)]

    for some in (rows[:1], rows):
        tables.write_rows("drops", some)
        path = tables.write_text("report.html", f"{len(some)} rows")

    assert sorted(map(tuple, tables.read("drops").collect())) == rows
    assert tables.dataset("drops", ["lines"]).to_table().column("lines").to_pylist() == [3, 4]
    assert path == f"{where}/report.html"
    assert (tmp_path / "out" / "report.html").read_text() == "2 rows"


def test_a_long_journal_is_cut_into_few_tasks():
    """A task costs time by itself, so tasks of a long journal read more bytes."""
    mib = 1 << 20
    counts = [
        len(Source.of([ByteRange("a", 0, 5 * mib), ByteRange("b", 0, size * mib)]).tasks)
        for size in (1, 11, 12, 500, 3000, 64_000)
    ]

    assert counts == [1, 1, 2, 32, 64, 1001]


@pytest.mark.parametrize("page", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_a_report_below_a_url_has_the_same_tables(
    spark, other_files, world, tmp_path, page, monkeypatch
):
    """Spark reads the journal from one kind of file system, and writes the tables to another."""
    save(tmp_path / "journal" / "all-1-000001.jsonl", world.lines)
    (tmp_path / "journal" / "notes.txt").write_text("This file is no segment.\n")

    near = report(tmp_path / "journal", tmp_path / "near")
    journal, out = f"file://{tmp_path}/journal", f"{other_files}/far"
    size = sum(path.stat().st_size for path in (tmp_path / "journal").glob("*.jsonl"))
    monkeypatch.setattr(engines, "bytes_of_task", lambda _: size // 2 + 1)  # two tasks fold
    assert OnSpark(spark).bytes(Source.of(find_segments([journal]))) == size
    if page:
        reported = report(journal, out, spark=spark)
        assert reported.page == f"{out}/report.html"
        assert (tmp_path / "far" / "report.html").read_text().endswith("</html>")
    far = reported.result if page else build(spark, [journal], out)

    assert far.summary == near.result.summary
    for name in TABLES:
        table = far.tables.read(name)
        assert table.count() == spark.read.parquet(f"{tmp_path}/near/{name}").count(), name
