"""Parquet tables in a directory, or below a URL that Spark knows.

Tasks write the files of the large tables. In a directory a file has a hidden name until the tables
are published. A file for a URL travels to this process, because only Java can open every URL.
"""

from __future__ import annotations

import os
import shutil
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow
import pyarrow.parquet
from attrs import define, field, frozen

from wmp.spark.journals.schema import TABLES, ddl
from wmp.spark.session.arrow import Values, schema_of, to_batch

if typing.TYPE_CHECKING:
    import pyarrow.dataset
    from pyspark.sql import DataFrame, SparkSession

Written = tuple[str, str, int, bytes | None]
"""(table, name of the file, rows, content): the content of a file below a URL, else None."""

_DISTINCT: Final = frozenset(
    {"n", "step", "at", "wall", "sent_n", "sent_at", "received_n", "received_at"}
)
"""Columns in which nearly every value is different, so that a dictionary would only cost time."""


def is_far(where: str) -> bool:
    """Return whether only Spark can open this path."""
    return "://" in where


def arrow_table(name: str, rows: Sequence[Values]) -> pyarrow.Table:
    """Return rows of a table as a table of Arrow."""
    schema = schema_of(ddl(name))
    values = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pyarrow.Table.from_batches([to_batch(values, schema)], schema)


@define(eq=False)
class Parts:
    """The files that one task writes: one for each table."""

    where: str
    _open: dict[str, list[Any]] = field(factory=dict)
    """[writer, name, target, rows] by table."""

    def write(self, table: str, rows: pyarrow.Table) -> None:
        """Append rows to the file of a table."""
        entry = self._open.get(table)
        if entry is None:
            name = f"part-{uuid4().hex}.parquet"
            target: Any = BytesIO()
            if not is_far(self.where):
                folder = Path(self.where, table)
                folder.mkdir(parents=True, exist_ok=True)
                target = folder / f".{name}"
            columns = [column for column in rows.schema.names if column not in _DISTINCT]
            writer = pyarrow.parquet.ParquetWriter(target, rows.schema, use_dictionary=columns)
            entry = self._open[table] = [writer, name, target, 0]
        entry[0].write_table(rows)
        entry[3] += len(rows)

    def close(self) -> list[Written]:
        """Finish all files, and return them."""
        written = []
        for table, (writer, name, target, rows) in self._open.items():
            writer.close()
            content = target.getvalue() if isinstance(target, BytesIO) else None
            written.append((table, name, rows, content))
        self._open.clear()
        return written


@frozen
class Tables:
    """The tables of a report."""

    start: Callable[[], SparkSession]
    """Returns the session, which only tables below a URL need."""
    where: str

    @property
    def spark(self) -> SparkSession:
        """The session; it is started if need be."""
        return self.start()

    @property
    def far(self) -> bool:
        """Whether the tables are below a URL."""
        return is_far(self.where)

    def path(self, name: str) -> str:
        """Return the path of a table."""
        return f"{self.where.rstrip('/')}/{name}"

    def publish(self, files: Mapping[str, Sequence[Written]]) -> None:
        """Make these files the whole content of their tables; other files are removed."""
        for table, written in files.items():
            if not written:
                self.write_rows(table, [])
            elif self.far:
                self.remove(table)
                for _, name, _, content in written:
                    self._write(f"{table}/{name}", content or b"")
            else:
                folder, names = Path(self.path(table)), {name for _, name, _, _ in written}
                for path in sorted(folder.iterdir()):  # the new files, with a dot, come first
                    if path.name.removeprefix(".") not in names:
                        path.unlink()
                    elif path.name not in names:
                        path.rename(folder / path.name.removeprefix("."))

    def write_rows(self, name: str, rows: Iterable[Values]) -> None:
        """Write a small table of rows that this process has, in place of an older table."""
        parts = Parts(self.where)
        if not self.far:
            Path(self.path(name)).mkdir(parents=True, exist_ok=True)
        parts.write(name, arrow_table(name, list(rows)))
        self.publish({name: parts.close()})

    def files(self, name: str) -> list[Path]:
        """Return the files of a table in a directory."""
        return sorted(Path(self.path(name)).glob("*.parquet"))

    def dataset(self, name: str, columns: Sequence[str] | None = None) -> pyarrow.dataset.Dataset:
        """Open a table for this process; of a table below a URL, only the columns are read."""
        import pyarrow.dataset  # which imports pandas, if that is installed

        if not self.far:
            return pyarrow.dataset.dataset(self.path(name), format="parquet")
        frame = self.spark.read.schema(ddl(name)).parquet(self.path(name))
        table = frame.select(*(columns or [column.name for column in TABLES[name].columns]))
        return pyarrow.dataset.dataset(table.toArrow())

    def write_text(self, name: str, text: str) -> str:
        """Write a file in place of an older one, and return its path; no reader sees half of it."""
        half, path = f".{name}.{os.getpid()}", self.path(name)
        if not self.far:
            try:
                Path(self.path(half)).write_text(text, encoding="utf-8")
                Path(self.path(half)).replace(path)
            finally:
                Path(self.path(half)).unlink(missing_ok=True)  # it is there after an error
            return path
        self._write(half, text.encode())
        self.remove(name)
        files, source = self._hadoop(half)
        files.rename(source, self._hadoop(name)[1])
        return path

    def _write(self, name: str, content: bytes) -> None:
        files, path = self._hadoop(name)
        stream = files.create(path, True)
        stream.write(bytearray(content))
        stream.close()

    def _hadoop(self, name: str) -> tuple[Any, Any]:
        """Return the file system of a table or file, and its path, as Java has them."""
        session: Any = self.spark
        jvm = session._jvm
        path = jvm.org.apache.hadoop.fs.Path(self.path(name))
        return path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf()), path

    def remove(self, *names: str) -> None:
        """Remove tables of an earlier release or call; a table that is absent is not an error."""
        for name in names:
            if self.far:
                files, path = self._hadoop(name)
                files.delete(path, True)
            else:
                shutil.rmtree(self.path(name), ignore_errors=True)

    def read(self, name: str) -> DataFrame:
        """Read a table that was written.

        Raises:
            AnalysisException: There is no such table.
        """
        return self.spark.read.parquet(self.path(name))
