"""Kills in the very first start of a store."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.store_checker.forked import Forked
from tests.store_checker.ledger import Broken, Ledger
from tests.unit.store.stores import Client
from wmp.errors import StoreError

__all__ = ["FirstStarts"]


class FirstStarts:
    """Processes race for a new store and are killed. Then the store must be as good as new.

    Args:
        opened: Opens the store of a try by its number.
        folder: Folder for the logs.
    """

    def __init__(self, opened: Callable[[int], Any], folder: Path) -> None:
        self._opened, self._folder = opened, folder
        self._longest = 0.0
        """Seconds of a first start that nobody killed."""

    def _start(self, number: int, log: Path, name: str) -> None:
        ledger = Ledger(log)
        ledger.note(starts=name)
        store = self._opened(number)
        ledger.note(opened=name)
        client = Client(store, name.encode())
        for batch in range(20):
            ledger.add(client, f"{name}.{batch}", [20, 20])

    def play(self, number: int, draw: random.Random) -> str:
        """Make one try; return what the kill hit.

        Raises:
            Broken: The store did not keep its word.
        """
        log = self._folder / f"{number}.log"
        ledger = Ledger(log)
        if not self._longest:
            began = time.monotonic()
            Forked(self._start, number, log, "calm").wait()
            self._longest = time.monotonic() - began
            ledger.close()
            return "nothing was killed"
        racers = draw.choice([1, 1, 2, 4])
        # Most kills come before a store is made, and a store is a small part of the whole time.
        at = draw.random() ** 2 * self._longest * (1 + racers / 4)
        runs = [Forked(self._start, number, log, f"r{racer}") for racer in range(racers)]
        for run in runs:
            run.kill_at(at)
        for run in runs:
            if run.wait() > 0:
                raise Broken("unusable: a first start beside others failed")
        return self._compare(number, ledger)

    def _compare(self, number: int, ledger: Ledger) -> str:
        before = ledger.lines()
        try:
            store = self._opened(number)
        except StoreError as error:
            raise Broken(f"unusable: {error}") from error
        try:
            ledger.compare(store)
            client = Client(store, b"again")
            ledger.add(client, "again", [10])
            ledger.finish(client)
            ledger.compare(store)
        except StoreError as error:
            raise Broken(f"unusable: {error}") from error
        finally:
            store.close()
            ledger.close()
        if any("acks" in line for line in before):
            return "killed after an acknowledgement"
        if any("opened" in line for line in before):
            return "killed when the store was open"
        if any("starts" in line for line in before):
            return "killed in the first opening"
        return "killed before"
