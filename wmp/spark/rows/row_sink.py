"""Rows of a DataFrame as jobs without results: ``df.write.format("wmp")`` (ROWS-5.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from wmp.errors import ConfigError
from wmp.rows import RowTerms
from wmp.spark.rows.mapped_rows import partition_task

_OPTIONS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "through": ("through", lambda text: tuple(endpoint.strip() for endpoint in text.split(","))),
    "role": ("role", str),
    "rowsPerJob": ("rows_per_job", int),
    "maxBytes": ("max_bytes", int),
    "inFlight": ("in_flight", int),
    "runLimit": ("run_limit", float),
    "maxWorkerLosses": ("max_worker_losses", int),
    "priority": ("priority", int),
    "unserved": ("unserved", float),
    "store": ("store", str),
}
"""The fields of the terms, and their types, by option."""

_FIELDS: Final = {name.lower(): field for name, field in _OPTIONS.items()}
"""The same by the option in lower case, because Spark does not distinguish case."""

_SPARKS: Final = ("checkpointlocation",)
"""Options of Spark itself, which a writer gets too."""


def row_terms(options: Mapping[str, str]) -> RowTerms:
    """Return the terms that the options of a writer name.

    Raises:
        ConfigError: An option is unknown, or its value is wrong or missing.
    """
    terms: dict[str, Any] = {}
    for name, value in options.items():
        if name.lower() in _SPARKS:
            continue
        if name.lower() not in _FIELDS:
            raise ConfigError(
                f"the format wmp has no option {name!r} to write; expected {', '.join(_OPTIONS)}"
            )
        field, kind = _FIELDS[name.lower()]
        try:
            terms[field] = kind(value)
        except ValueError:
            raise ConfigError(f"{name} is {value!r}; expected a number") from None
    if "through" not in terms:
        raise ConfigError(
            "the option through is missing; expected the endpoint that a device binds for managers,"
            ' as in option("through", "tcp://HOST:5572")'
        )
    return RowTerms(**terms)


@dataclass
class _RowsWritten(WriterCommitMessage):  # type: ignore[misc]
    """The number of rows of a task whose jobs have ended with results."""

    rows: int


class _TaskOfRows:
    """Does the rows of one task; Spark pickles the object to the task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._task = partition_task(None, row_terms(options))

    def write(self, batches: Iterator[pyarrow.RecordBatch]) -> _RowsWritten:
        """Submit the rows, and return when all jobs have ended with results.

        Raises:
            RowsFailed: A job failed.
            NoWorkers: No worker could do a job.
        """
        rows = 0

        def counted() -> Iterator[pyarrow.RecordBatch]:
            nonlocal rows
            for batch in batches:
                rows += batch.num_rows
                yield batch

        for _ in self._task(counted()):
            pass
        return _RowsWritten(rows)


class RowSink(_TaskOfRows, DataSourceArrowWriter):  # type: ignore[misc]
    """Writes a table. A failed task has sent rows already: handlers may run again for them."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: the jobs of all tasks have ended."""


class RowStreamSink(_TaskOfRows, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes each batch of a stream."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: the jobs of all tasks of the batch have ended."""
