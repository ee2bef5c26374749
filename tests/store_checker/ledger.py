"""Jobs that a program adds and ends in a store, with a log of what the store has acknowledged."""

from __future__ import annotations

import hashlib
import json
import os
import random
from pathlib import Path
from typing import Any, Final

from tests.unit.store.stores import Client
from wmp.store.contract import JobFilter
from wmp.store.stored_job import StoredJobInput, StoredJobState

__all__ = ["Broken", "Ledger", "result_of"]

MANY: Final = 1_000_000


class Broken(Exception):
    """A store did not keep its word: ``lost``, ``half``, ``wrong``, ``stuck`` or ``unusable``."""


def payload_of(name: str, size: int) -> bytes:
    return f"{name} ".encode() + bytes(size)


def result_of(payload: bytes) -> bytes:
    """Return the result of a payload."""
    return hashlib.sha256(payload).hexdigest().encode()


class Ledger:
    """One instance of a store and its log, which may outlive its process.

    Each batch is noted before it is given to the store, and once more when it was acknowledged.

    Args:
        path: The log. Several processes may write to it one after the other.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._path = path

    def note(self, **line: Any) -> None:
        """Write a line with one call."""
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def add(self, client: Client, name: str, sizes: list[int]) -> list[int]:
        """Add a batch of jobs with keys; return their numbers.

        Raises:
            StoreError: The store refuses the batch.
        """
        keys = [f"{name}-{number}" for number in range(len(sizes))]
        self.note(asks=keys, sizes=sizes)
        payloads = [payload_of(key, size) for key, size in zip(keys, sizes, strict=True)]
        ids = client.add(*payloads, keys=keys)
        if all(ids):
            self.note(acks=keys)
        return ids

    def end_some(self, client: Client, count: int) -> int:
        """Reserve jobs and end them; return their number.

        Raises:
            StoreError: The store refuses a batch.
        """
        reserved = client.reserve(count)
        keys = [payload.split(b" ")[0].decode() for payload in reserved.payloads]
        if not keys:
            return 0
        self.note(runs=keys)
        results = [result_of(payload) for payload in reserved.payloads]
        client.change(StoredJobInput.SUCCEED, reserved.ids, reserved.attempts, payloads=results)
        self.note(ends=keys)
        return len(keys)

    def lines(self) -> list[dict[str, Any]]:
        """Return all whole lines."""
        return [json.loads(line) for line in self._path.read_bytes().split(b"\n")[:-1]]

    def compare(self, store: Any) -> None:
        """Compare a store with the log.

        Raises:
            Broken: An acknowledged job or end is missing, a batch is half, or a job is wrong.
        """
        jobs = {job.key: job for job in store.list(limit=MANY, payloads=True)}
        sizes: dict[str, int] = {}
        for line in self.lines():
            if "asks" in line:
                sizes.update(zip(line["asks"], line["sizes"], strict=True))
                if len({key in jobs for key in line["asks"]}) > 1:
                    raise Broken(f"half: the batch {line['asks']}")
            for key in line.get("acks", ()):
                if key not in jobs:
                    raise Broken(f"lost: the acknowledged job {key}")
            for key in line.get("ends", ()):
                if key not in jobs or jobs[key].state is not StoredJobState.OK:
                    raise Broken(f"lost: the acknowledged end of {key}")
        for key, job in jobs.items():
            payload = payload_of(str(key), sizes[str(key)])
            result = result_of(payload) if job.state is StoredJobState.OK else None
            if job.payload != payload or job.result != result:
                raise Broken(f"wrong: the job {key} in state {job.state.name}")

    def finish(self, client: Client) -> None:
        """End all jobs; jobs of ended instances lapse, so the store has no grace.

        Raises:
            Broken: Jobs are left.
            StoreError: The store refuses a batch.
        """
        for _ in range(3):
            client.sweep(1000)
            while self.end_some(client, 50):
                pass
        open_jobs = client.store.list(
            JobFilter(states=[StoredJobState.QUEUED, StoredJobState.RESERVED]), limit=5
        )
        if open_jobs:
            raise Broken(f"stuck: {open_jobs}")

    def close(self) -> None:
        os.close(self._file)


def some_sizes(draw: random.Random, largest: int) -> list[int]:
    """Return the sizes of the payloads of a batch."""
    return [draw.randrange(1, largest) for _ in range(draw.choice([1, 1, 3, 12]))]
