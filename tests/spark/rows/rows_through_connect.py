"""Every type through Spark Connect and back, and rows in the tables of a declarative pipeline.

Usage: ``python -m tests.spark.rows.rows_through_connect FOLDER``. The output is a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark import pipelines
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import (
    create_dataflow_graph,
    handle_pipeline_events,
    start_run,
)
from pyspark.sql import functions as F

import wmp
from tests.spark.clusters import OPTIONS
from tests.spark.rows.served_rows import HANDLERS
from tests.spark.rows.typed_rows import COLUMNS, PLAIN_ROW, SCHEMA, ZONES, as_texts, typed_rows
from wmp.spark import map_rows
from wmp.spark.session.session import start_session

ROWS = 300


def types(spark: Any, above: str) -> dict[str, bool]:
    """Return by time zone whether rows with every type return with their values."""
    equal, kinds = {}, dict(COLUMNS)
    plain = "id long, " + ", ".join(f"{name} {kinds[name]}" for name in PLAIN_ROW)
    for zone in ZONES:
        spark.conf.set("spark.sql.session.timeZone", zone)
        rows = typed_rows(spark)
        done = map_rows(rows, role="same batch", schema=SCHEMA, through=above, rows_per_job=4)
        equal[zone] = as_texts(done) == as_texts(rows)
        rows = rows.select("id", *PLAIN_ROW)
        done = map_rows(rows, role="same row", schema=plain, through=above, rows_per_job=4)
        equal[f"{zone}, by row"] = as_texts(done) == as_texts(rows)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return equal


def texts(spark: Any) -> Any:
    text = F.repeat(F.lit("x"), (F.col("id") % 13).cast("int"))
    return spark.range(0, ROWS, 1, 2).withColumn("text", text)


def pipeline(spark: Any, folder: Path, above: str) -> None:
    """Run a declarative pipeline with views and a streaming table of rows."""
    terms = {"role": "row", "schema": "id long, size long", "through": above, "rows_per_job": 30}
    texts(spark).write.json(str(folder / "in"))
    graph = create_dataflow_graph(spark, default_catalog=None, default_database=None, sql_conf=None)
    with graph_element_registration_context(SparkConnectGraphElementRegistry(spark, graph)):

        @pipelines.materialized_view
        def texts_of_pipeline() -> Any:
            return texts(spark)

        @pipelines.materialized_view
        def sizes() -> Any:
            return map_rows(spark.read.table("texts_of_pipeline"), **terms)

        @pipelines.table
        def sizes_of_stream() -> Any:
            stream = spark.readStream.schema("id long, text string").json(str(folder / "in"))
            return map_rows(stream, **terms)

        @pipelines.materialized_view
        def tried() -> Any:
            rows = spark.read.table("texts_of_pipeline").withColumn("more", F.lit(1))
            return map_rows(rows, **{**terms, "role": "fails", "errors": "column"})

    handle_pipeline_events(
        start_run(
            spark, graph, full_refresh=None, full_refresh_all=False, refresh=None, dry=False,
            storage=(folder / "storage").as_uri(),
        )
    )  # fmt: skip


def main() -> int:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[3])
    confs = {
        "spark.api.mode": "connect",
        "spark.driver.extraJavaOptions": OPTIONS,
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
    }
    spark = start_session("local[2]", confs=confs)
    results: dict[str, Any] = {"classic": hasattr(spark, "_jsparkSession")}
    with (
        wmp.Device(bind="tcp://127.0.0.1:*", bind_managers="tcp://127.0.0.1:*") as device,
        wmp.Worker(*device.endpoints, handlers=HANDLERS, slots=2),
    ):
        above = device.manager_endpoints[0]
        pipeline(spark, folder, above)
        results["types"] = types(spark, above)
    expected = [(n, n % 13) for n in range(ROWS)]
    for name in ("sizes", "sizes_of_stream"):
        pairs = sorted((row.id, row.size) for row in spark.table(name).collect())
        results[name] = [len(pairs), pairs == expected]
    tried = spark.table("tried").collect()
    results["tried"] = [len(tried), sum(row.error is not None for row in tried)]
    spark.stop()
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
