"""Rows of a DataFrame as jobs: ``wmp.spark.map_rows`` (ROWS-5)."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import pyarrow
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from wmp.duration import Duration
from wmp.errors import ConfigError
from wmp.rows import RowTerms
from wmp.runtime.sockets.security import Security
from wmp.spark.rows.result_schema import result_schema

_Batches = Iterable[pyarrow.RecordBatch]

_PACKED: Final = "row"
"""Name of the column of packed rows."""


def map_rows(
    df: DataFrame,
    *,
    role: str,
    schema: str | StructType,
    through: str | Iterable[str],
    rows_per_job: int = 100,
    max_bytes: int = 1 << 20,
    in_flight: int = 32,
    ordered: bool = False,
    errors: Literal["raise", "column"] = "raise",
    error_column: str = "error",
    run_limit: Duration | None = None,
    max_worker_losses: int = 3,
    needs: Mapping[str, int] | None = None,
    priority: int = 0,
    unserved: Duration = 30.0,
    store: str | Callable[[], Any] | None = None,
    security: Security | None = None,
    observe: str | Observation | None = None,
) -> DataFrame:
    """Have workers do the rows of a DataFrame, and return their results as a DataFrame.

    Each task of Spark is a manager that dials in to a device. The workers are of any number and
    kind, and may come and go. ``df`` may be a stream, and its session may be Spark Connect. The
    function also works in the definition of a table of a declarative pipeline
    (``pyspark.pipelines``). A handler is one of :func:`wmp.rows.handler`. ::

        texts.transform(
            wmp.spark.map_rows, role="embed", schema="id long, vector array<float>",
            through="tcp://device:5572",
        )

    Args:
        df: The rows. Select the columns that the handler needs.
        role: Role of the workers.
        schema: The columns of the results: text such as ``"id long, size long"``, or a StructType.
            A ``timestamp`` reaches handlers with a time zone. Every type is allowed for which
            Spark has a type of Arrow: all but ``interval year to month`` and ``interval``.
        through: Endpoints that devices bind for managers (``wmp-device --bind-managers``).
        rows_per_job: Maximum number of rows of a job.
        max_bytes: Maximum number of bytes of a job that is more than one row.
        in_flight: Maximum number of jobs of one task whose results are not taken.
        ordered: Whether results keep the order of the rows within a partition.
        errors: ``"raise"``: the first job that fails fails its task, with ``RowsFailed``.
            ``"column"``: the result has one more column of texts, and each row that failed is in
            the result with its error.
        error_column: Name of this column.
        run_limit: Seconds that one attempt of a job may run.
        max_worker_losses: Number of lost workers that a job survives.
        needs: Amounts of a worker's resources that a job takes; by default one slot.
        priority: Jobs of a higher priority are granted first.
        unserved: Seconds for which a waiting job may have no worker that could do it. After this
            time the task fails with ``NoWorkers``.
        store: File of a store on SQLite on the hosts of the tasks, or a function that opens a
            store. A task that is tried again, or a copy of a task (``spark.speculation``), then
            finds the jobs and results of the other. Jobs under way then go on after an error.
        security: CURVE keys of the managers. They are part of the plan that Spark distributes.
        observe: Name of metrics of Spark with the number of ``rows`` and, with ``"column"``, of
            rows that ``failed``. The progress of a stream has them in ``observedMetrics``. For a
            table this is a ``pyspark.sql.Observation``.

    Raises:
        ConfigError: An argument is wrong.
    """
    terms = RowTerms(
        through=through,
        role=role,
        rows_per_job=rows_per_job,
        max_bytes=max_bytes,
        in_flight=in_flight,
        ordered=ordered,
        errors=errors,
        error_column=error_column,
        run_limit=run_limit,
        max_worker_losses=max_worker_losses,
        needs=needs,
        priority=priority,
        unserved=unserved,
        store=store,
        security=security,
    )
    wanted, arrow = result_schema(schema, df.sparkSession)
    rows, packed = _known_columns(df)
    task = partition_task(arrow, terms, packed=packed)
    output = wanted
    if errors == "column":
        if error_column in wanted.names:
            raise ConfigError(
                f"the schema has a column {error_column!r}, which is the name of the error column "
                "too; set error_column to another name"
            )
        output = StructType([*wanted.fields]).add(error_column, StringType())
    result = rows.mapInArrow(task, output)
    if observe is None:
        return result
    metrics = [F.count(F.lit(1)).alias("rows")]
    if errors == "column":
        metrics.append(F.count(F.col(error_column)).alias("failed"))
    return result.observe(observe, *metrics)


def _known_columns(df: DataFrame) -> tuple[DataFrame, bool]:
    """Return rows whose column names are known, and whether the rows are packed into one column.

    In Spark Connect ``mapInArrow`` asks the server for the names of the columns. Spark refuses such
    a question in the definition of a table of a declarative pipeline. A plan that names no columns
    gets none. So the rows are packed into one column, and the task unpacks them.
    """
    if hasattr(df.sparkSession, "_jsparkSession"):
        return df, False
    packed = df.select(F.struct("*").alias(_PACKED))
    packed._cached_schema = StructType().add(_PACKED, StructType())
    return packed, True


def partition_task(
    schema: pyarrow.Schema | None, terms: RowTerms, *, packed: bool = False
) -> Callable[[_Batches], Iterator[pyarrow.RecordBatch]]:
    """Return the function that a task of Spark calls with its batches.

    With ``packed`` the only column of a batch has the rows as structs.

    The function is pickled with its code, and its arguments are bytes. So an executor needs
    ``wmp.rows``, and not the packages of this module. An executor without ``wmp`` can name its
    fault.
    """
    run = uuid.uuid4().hex
    pickled = pickle.dumps((schema, terms))

    def do_partition(batches: _Batches) -> Iterator[pyarrow.RecordBatch]:
        import pickle
        import sys

        import pyarrow
        from pyspark import TaskContext

        try:
            from wmp.rows.pieces import TablePartition
            from wmp.rows.process_managers import process_manager
            from wmp.rows.row_jobs import run_rows
        except ImportError as error:
            raise RuntimeError(
                f"the Python of this executor, {sys.executable}, cannot import wmp.rows ({error}); "
                "install worker-manager-protocol[rows] there, add the package by "
                "spark.addArtifact(zip, pyfile=True), or set PYSPARK_PYTHON to a Python that has it"
            ) from error
        schema, terms = pickle.loads(pickled)
        if packed:
            batches = (pyarrow.RecordBatch.from_struct_array(batch.column(0)) for batch in batches)
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId")
        if query is None:
            # A second action on the same DataFrame is another execution with other jobs.
            query = f"{run}-{context.getLocalProperty('spark.sql.execution.id')}"
        batch = context.getLocalProperty("streaming.sql.batchId") or 0
        partition = TablePartition(query, batch, context.partitionId())
        return run_rows(process_manager(terms), batches, schema, terms, partition)

    return do_partition
