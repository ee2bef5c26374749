"""Rows of DataFrames through a device to worker processes and back (specs/rows.md, section 5)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F

import wmp
from tests.waiting import wait_until
from wmp.errors import ConfigError
from wmp.rows import RowTerms
from wmp.spark import map_rows
from wmp.spark.rows.row_sink import row_terms

HERE = Path(__file__).parent
SCHEMA = "id long, size long"


@pytest.fixture(scope="module")
def device():
    with wmp.Device(bind="tcp://127.0.0.1:*", bind_managers="tcp://127.0.0.1:*") as device:
        yield device


@pytest.fixture(scope="module")
def above(device):
    return device.manager_endpoints[0]


def start_worker(device, what, *options):
    """Start the program ``wmp worker`` with handlers of served_rows.py."""
    command = [sys.executable, "-m", "wmp", "worker", f"served_rows:{what}"]
    environment = {**os.environ, "PYTHONPATH": f"{HERE.parents[2]}{os.pathsep}{HERE}"}
    return subprocess.Popen([*command, "--connect", *device.endpoints, *options], env=environment)


@pytest.fixture(scope="module")
def workers(device):
    """Two workers in processes of their own."""
    both = [start_worker(device, "HANDLERS", "--slots", "2") for _ in range(2)]
    yield both
    for frame in both:
        frame.kill()
        frame.wait()


def texts(spark, count=1000, partitions=3):
    text = F.repeat(F.lit("x"), (F.col("id") % 13).cast("int"))
    return spark.range(0, count, 1, partitions).withColumn("text", text)


def pairs(df):
    return sorted((row.id, row.size) for row in df.collect())


@pytest.mark.rule("ROWS-5.1")
@pytest.mark.parametrize("role", ["row", "frame"])
def test_each_row_of_a_table_returns_once(spark, above, workers, role):
    seen = Observation()

    mapped = texts(spark).transform(
        map_rows, role=role, schema=SCHEMA, through=above, rows_per_job=70, observe=seen
    )

    assert mapped.schema.simpleString() == "struct<id:bigint,size:bigint>"
    assert pairs(mapped) == [(n, n % 13) for n in range(1000)]
    assert seen.get == {"rows": 1000}


@pytest.mark.rule("ROWS-5.1")
def test_the_order_within_a_partition_is_kept_on_request(spark, above, workers):
    mapped = map_rows(
        texts(spark, partitions=1), role="row", schema=SCHEMA, through=above, rows_per_job=7,
        ordered=True,
    )  # fmt: skip

    assert [row.id for row in mapped.collect()] == list(range(1000))


@pytest.mark.rule("ROWS-5.1")
def test_an_empty_table_needs_no_worker(spark, above):
    mapped = map_rows(texts(spark, 0), role="nobody", schema=SCHEMA, through=above)

    assert mapped.collect() == []


@pytest.mark.rule("ROWS-4.2")
def test_an_error_of_a_row_fails_the_query_and_names_the_row(spark, above, workers):
    mapped = map_rows(
        texts(spark, 300, 1), role="fails", schema=SCHEMA, through=above, rows_per_job=50
    )

    with pytest.raises(Exception, match="RowsFailed") as caught:
        mapped.collect()

    text = "failed at role 'fails' in row "
    assert any(f"{text}{n}: ValueError: no seven: {n}" in str(caught.value) for n in (7, 107, 207))


@pytest.mark.rule("ROWS-4.3")
def test_errors_become_a_column(spark, above, workers):
    seen = Observation()

    mapped = map_rows(
        texts(spark, 300), role="fails", schema=SCHEMA, through=above, errors="column",
        observe=seen,
    )  # fmt: skip
    rows = {row.id: row for row in mapped.collect()}

    assert sorted(rows) == list(range(300))
    assert {n for n, row in rows.items() if row.error is not None} == {7, 107, 207}
    assert rows[107].error == "ValueError: no seven: 107"
    assert (rows[107].size, rows[108].size) == (None, 1)
    assert seen.get == {"rows": 300, "failed": 3}


@pytest.mark.rule("ROWS-4.3")
def test_a_column_with_the_name_of_the_error_column_is_refused(spark, above):
    with pytest.raises(ConfigError, match="set error_column to another name"):
        map_rows(
            texts(spark), role="row", schema="error string", through=above, errors="column"
        )  # fmt: skip


@pytest.mark.rule("ROWS-4.5")
def test_a_role_without_workers_fails_the_query_with_the_remedy(spark, above):
    mapped = map_rows(texts(spark), role="nobody", schema=SCHEMA, through=above, unserved=2)

    with pytest.raises(Exception, match="NoWorkers: no worker for role 'nobody'") as caught:
        mapped.collect()

    assert "start one with `wmp worker`" in str(caught.value)


def test_killed_workers_lose_no_row(spark, device, above, tmp_path):
    started = [start_worker(device, "DEADLY") for _ in range(2)]
    mark = F.lit(str(tmp_path / "mark"))
    try:
        mapped = map_rows(
            texts(spark, 200).withColumn("mark", mark), role="deadly", schema=SCHEMA,
            through=above, rows_per_job=10,
        )  # fmt: skip
        assert pairs(mapped) == [(n, n) for n in range(200)]
        wait_until(
            lambda: any(process.poll() == -9 for process in started), "one worker was killed"
        )
    finally:
        for process in started:
            process.kill()
            process.wait()


def stream(spark, folder, checkpoint, above, each, **options):
    """Have a stream do the rows of all files of a folder, and call ``each`` with every batch."""
    read = spark.readStream.schema("id long, text string, mark string").json(str(folder))
    mapped = map_rows(read, schema=SCHEMA, through=above, **options)
    query = (
        mapped.writeStream.option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(each)
        .start()
    )
    query.awaitTermination(300)
    return query


def write_rows(folder, name, numbers, mark=""):
    folder.mkdir(exist_ok=True)
    lines = [f'{{"id":{n},"text":"{"x" * (n % 13)}","mark":"{mark}"}}' for n in numbers]
    (folder / f"{name}.json").write_text("\n".join(lines))


@pytest.mark.rule("ROWS-5.1")
def test_each_row_of_a_stream_returns_once(spark, above, workers, tmp_path):
    folder, batches = tmp_path / "in", []

    def each(batch, number):
        batches.append(pairs(batch))

    for name, numbers in (("a", range(200)), ("b", range(200, 260))):
        write_rows(folder, name, numbers)
        query = stream(
            spark, folder, tmp_path / "c", above, each, role="row", rows_per_job=30, observe="rows"
        )

    assert batches == [
        [(n, n % 13) for n in range(200)],
        [(n, n % 13) for n in range(200, 260)],
    ]
    assert query.lastProgress.observedMetrics["rows"].rows == 60


@pytest.mark.rule("ROWS-5.2", "ROWS-2.5")
def test_a_stream_that_begins_again_finds_its_results_in_the_store(spark, above, workers, tmp_path):
    folder, calls, batches = tmp_path / "in", tmp_path / "calls", []
    calls.mkdir()
    write_rows(folder, "a", range(50), mark=str(calls))

    def each(batch, number):
        batches.append(pairs(batch))
        if len(batches) == 1:
            raise RuntimeError("the first try ends before its commit")

    options = {"role": "notes", "rows_per_job": 10, "store": str(tmp_path / "store")}
    with pytest.raises(Exception, match="the first try ends"):
        stream(spark, folder, tmp_path / "c", above, each, **options)
    stream(spark, folder, tmp_path / "c", above, each, **options)

    assert batches == [[(n, n) for n in range(50)]] * 2
    assert len(list(calls.iterdir())) == 5


@pytest.mark.rule("ROWS-5.2")
def test_a_second_action_does_the_rows_again(spark, above, workers, tmp_path):
    mark = F.lit(str(tmp_path / "calls"))
    (tmp_path / "calls").mkdir()
    mapped = map_rows(
        texts(spark, 50, 1).withColumn("mark", mark), role="notes", schema=SCHEMA, through=above,
        rows_per_job=10, store=str(tmp_path / "store"),
    )  # fmt: skip

    assert pairs(mapped) == pairs(mapped) == [(n, n) for n in range(50)]
    assert len(list((tmp_path / "calls").iterdir())) == 10


def test_each_option_of_a_writer_is_a_term_in_any_case():
    given = {
        "through": "tcp://127.0.0.1:5572, tcp://127.0.0.1:5573",
        "role": "notes",
        "rowsPerJob": "10",
        "maxBytes": "20",
        "INFLIGHT": "3",
        "runlimit": "4.5",
        "maxWorkerLosses": "5",
        "priority": "-6",
        "unserved": "7.5",
        "store": "jobs.db",
        "checkpointLocation": "folder",
    }

    assert row_terms(given) == RowTerms(
        through=("tcp://127.0.0.1:5572", "tcp://127.0.0.1:5573"), role="notes", rows_per_job=10,
        max_bytes=20, in_flight=3, run_limit=4.5, max_worker_losses=5, priority=-6, unserved=7.5,
        store="jobs.db",
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"no option 'underWay' to write; .*, inFlight, "):
        row_terms({**given, "underWay": "3"})


@pytest.mark.rule("ROWS-5.3")
def test_a_written_table_is_done_when_the_write_returns(spark, above, workers, tmp_path):
    (tmp_path / "calls").mkdir()
    rows = texts(spark, 50, 1).withColumn("mark", F.lit(str(tmp_path / "calls")))
    write = rows.write.format("wmp").mode("append").option("through", above)

    write.option("role", "notes").option("rowsPerJob", 10).save()

    assert len(list((tmp_path / "calls").iterdir())) == 5
    with pytest.raises(Exception, match="failed at role 'fails' in row 7: ValueError: no seven"):
        write.option("role", "fails").save()
    with pytest.raises(Exception, match="the option through is missing"):
        rows.write.format("wmp").mode("append").save()
    with pytest.raises(Exception, match="the format wmp cannot overwrite"):
        rows.write.format("wmp").mode("overwrite").option("through", above).save()


@pytest.mark.rule("ROWS-5.3")
def test_each_batch_of_a_written_stream_is_done_when_it_commits(spark, above, workers, tmp_path):
    (tmp_path / "calls").mkdir()
    write_rows(tmp_path / "in", "a", range(30), mark=str(tmp_path / "calls"))
    read = spark.readStream.schema("id long, text string, mark string").json(str(tmp_path / "in"))

    query = (
        read.writeStream.format("wmp").option("through", above).option("role", "notes")
        .option("rowsPerJob", 10)
        .option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination(300)

    assert query.exception() is None
    assert len(list((tmp_path / "calls").iterdir())) == 3
