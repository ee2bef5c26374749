"""The handlers: a model that is loaded once in each process, and a resource that only one has.

Executors import this module. The model is a small stand-in for a real one: it hashes words into a
vector. Its load and its calls take time, as those of a real model do.
"""

from __future__ import annotations

import functools
import os
import time
import zlib

import pandas as pd

from wmp.rows import row_handler

SIZE = 8
"""Numbers in a vector."""


class Model:
    """Turns texts into vectors of length 1."""

    def __init__(self) -> None:
        time.sleep(0.5)  # a real model reads its weights here

    def embed(self, texts: list[str]) -> list[list[float]]:
        """Return the vector of each text. A model takes many texts at once."""
        time.sleep(0.01)
        return [vector(text) for text in texts]


def vector(text: str) -> list[float]:
    """Return the vector of a text."""
    sums = [0.0] * SIZE
    for word in text.lower().split():
        digest = zlib.crc32(word.encode())
        sums[digest % SIZE] += 1.0 if digest & 0x100 else -1.0
    length = sum(value * value for value in sums) ** 0.5
    return [value / length for value in sums] if length else sums


@functools.cache
def model() -> Model:
    """Load the model at the first job of this process, and keep it."""
    return Model()


@row_handler("pandas")
def embed(frame: pd.DataFrame) -> pd.DataFrame:
    """Add vectors to a frame of texts."""
    vectors = model().embed(list(frame.text))
    return pd.DataFrame({"id": frame.id, "vector": vectors})


@row_handler("row")
def rank(row: dict) -> dict:
    """Use the one GPU for a row. The result names the process, to show that it is one only."""
    time.sleep(0.002)
    return {"id": row["id"], "rank": sum(row["vector"]), "process": os.getpid()}


EMBED = {"embed": embed}
RANK = {"rank": rank}
