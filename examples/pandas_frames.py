"""Frames of pandas as jobs, without Spark: pieces of a table go to workers, and return as frames.

This example needs ``pip install 'worker-manager-protocol[rows]' pandas``.
"""

from collections.abc import Iterator

import pandas as pd
import pyarrow as pa

import wmp
import wmp.rows  # registers the codec "arrow", which keeps the types of columns

ROWS = 1000


@wmp.rows.row_handler("pandas")
def totals(frame: pd.DataFrame) -> pd.DataFrame:
    """Do a job: the rows of one piece."""
    return frame.assign(total=frame.price * frame.quantity)[["day", "total"]]


def pieces(frame: pd.DataFrame) -> Iterator[pa.RecordBatch]:
    """Cut a frame into pieces. Each piece is the payload of a job."""
    for first in range(0, len(frame), ROWS):
        yield pa.RecordBatch.from_pandas(frame[first : first + ROWS], preserve_index=False)


orders = pd.DataFrame(
    {
        "day": pd.date_range("2026-01-01", periods=10_000, freq="min"),
        "price": [n % 7 + 0.5 for n in range(10_000)],
        "quantity": [n % 3 for n in range(10_000)],
    }
)

with (
    wmp.Manager(codec="arrow") as manager,
    wmp.Worker(*manager.endpoints, handlers={"totals": totals}, slots=2),
):
    results = [batch.to_pandas() for batch in manager.map(pieces(orders), role="totals")]

frame = pd.concat(results, ignore_index=True)
assert (frame.total == orders.price * orders.quantity).all()
print(f"{len(results)} jobs returned {len(frame)} rows; the type of days is {frame.day.dtype}")
print(frame.groupby(frame.day.dt.date).total.sum().round(1).to_string())
