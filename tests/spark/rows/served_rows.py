"""Handlers of rows for ``wmp worker``, in processes beside Spark."""

from __future__ import annotations

import os
import signal
import time
import uuid
from pathlib import Path

from wmp.rows import row_handler


@row_handler("row")
def size_of_row(row):
    return {"id": row["id"], "size": len(row["text"])}


@row_handler("pandas")
def size_of_frame(frame):
    return frame.assign(size=frame.text.str.len())[["id", "size"]]


@row_handler("row")
def seven_fails(row):
    if row["id"] % 100 == 7:
        raise ValueError(f"no seven: {row['id']}")
    return {"id": row["id"], "size": 1}


@row_handler("batch")
def dies_once(batch):
    """End this process by SIGKILL at the first call of a test: the test names a new file."""
    mark = Path(batch["mark"][0].as_py())
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return {"id": batch["id"], "size": batch["id"]}
    os.kill(os.getpid(), signal.SIGKILL)


@row_handler("batch")
def notes_calls(batch):
    """Leave a file for each call, in the folder that the rows name."""
    Path(batch["mark"][0].as_py(), uuid.uuid4().hex).touch()
    return {"id": batch["id"], "size": batch["id"]}


@row_handler("batch")
def size_slowly(batch):
    """Leave a file for each call, and let others run meanwhile."""
    Path(batch["mark"][0].as_py(), uuid.uuid4().hex).touch()
    time.sleep(0.1)
    return {"id": batch["id"], "size": [len(text) for text in batch["text"].to_pylist()]}


@row_handler("batch")
def never_ends(batch, job):
    while not job.cancelled:
        time.sleep(0.01)


@row_handler("batch")
def same_batch(batch):
    return batch


@row_handler("row")
def same_row(row):
    return row


HANDLERS = {
    "same batch": same_batch,
    "same row": same_row,
    "row": size_of_row,
    "frame": size_of_frame,
    "fails": seven_fails,
    "notes": notes_calls,
    "never": never_ends,
}
SLOW = {"slow": size_slowly}
DEADLY = {"deadly": dies_once}
