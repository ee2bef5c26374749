"""A column of texts becomes vectors, on a fleet: first a table, then a stream.

Usage: ``python embed_texts.py``. The workers run in Spark's own executors. The managers are the
tasks of the tables. A device connects both.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path

import embedding
from pyspark.sql import DataFrame, SparkSession

import wmp
from wmp.spark import Fleet, map_rows
from wmp.spark.session import start_session

HERE = Path(__file__).parent
SCHEMA = "id long, vector array<double>"
ANYWHERE = "tcp://127.0.0.1:*"


def texts(count: int) -> list[tuple[int, str]]:
    """Return some texts with their numbers."""
    words = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog")
    return [(n, " ".join((*words[n % 7 :: 1 + n % 3], str(n)))) for n in range(count)]


def of_a_table(spark: SparkSession, through: str, count: int = 400) -> list:
    """Return the vectors of a table of texts."""
    table = spark.createDataFrame(texts(count), "id long, text string")
    done = map_rows(table, role="embed", schema=SCHEMA, through=through, rows_per_job=25)
    return done.collect()


def of_a_stream(spark: SparkSession, through: str, folder: Path, count: int = 200) -> list:
    """Return the vectors of texts that come as files, two at a time."""
    source, vectors = folder / "texts", folder / "vectors"
    source.mkdir()
    rows = texts(count)
    for part in range(4):
        lines = [json.dumps({"id": n, "text": text}) for n, text in rows[part::4]]
        (source / f"{part}.json").write_text("\n".join(lines))
    read = spark.readStream.schema("id long, text string").option("maxFilesPerTrigger", 2)
    done = map_rows(
        read.json(str(source)), role="embed", schema=SCHEMA, through=through, rows_per_job=25,
        observe="rows",
    )  # fmt: skip
    query = (
        done.writeStream.format("parquet").option("path", str(vectors))
        .option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return spark.read.parquet(str(vectors)).collect()


def check(what: str, rows: list, count: int) -> None:
    """Compare rows with the results of plain Python."""
    vectors = {row.id: list(row.vector) for row in rows}
    right = {n: embedding.vector(text) for n, text in texts(count)}
    if len(rows) != count or vectors != right:
        raise SystemExit(f"{what}: the vectors differ from those of plain Python")
    print(f"{what}: {count} texts, each once, and equal to the results of plain Python")


def ranked(vectors: DataFrame, through: str) -> DataFrame:
    """Have the one worker that has the GPU rank vectors."""
    schema = "id long, rank double, process long"
    needs = {"gpu": 1}
    return map_rows(vectors, role="rank", schema=schema, through=through, needs=needs)


@contextlib.contextmanager
def fleets(spark: SparkSession):
    """Yield the address for tables. Two workers embed, and a third has the only GPU."""
    spark.addArtifact(str(HERE / "embedding.py"), pyfile=True)
    with (
        wmp.Device(bind=ANYWHERE, bind_managers=ANYWHERE) as device,
        Fleet(spark, "embedding:EMBED", workers=2, managers=device.endpoints),
        Fleet(spark, "embedding:RANK", managers=device.endpoints, resources={"gpu": 1}),
    ):
        yield device.manager_endpoints[0]


def main() -> None:
    """Embed a table and a stream, and use the GPU for a table."""
    spark = start_session("local[5]")
    with fleets(spark) as through, tempfile.TemporaryDirectory() as folder:
        vectors = of_a_table(spark, through)
        check("a table", vectors, 400)
        check("a stream", of_a_stream(spark, through, Path(folder)), 200)
        rows = ranked(spark.createDataFrame(vectors), through).collect()
        processes = {row.process for row in rows}
        print(f"the GPU: {len(rows)} rows in {len(processes)} process")
    spark.stop()


if __name__ == "__main__":
    main()
