"""Switches of the safeguards of a manager with a store; see ``manager_side.py``."""

from __future__ import annotations

from typing import Any

import pytest

from wmp.actions import Acknowledge
from wmp.core.manager import store_link
from wmp.core.manager.store_link import StoreLink
from wmp.core.manager.store_writes import PendingWrites
from wmp.events import Submitted
from wmp.testing.store_worlds.store_world import SimulatedCommitter

Patch = pytest.MonkeyPatch


def ends_after_the_write(patch: Patch) -> None:
    """STORE-12.1: ends are reported when they are known, and written later."""
    take = StoreLink.take_ends

    def report(self: StoreLink) -> None:
        leases = self.leases
        columns = (leases._ids, leases._ends, leases._payloads, leases._attempts)
        rows = list(zip(*columns, strict=True))
        take(self)
        for row in rows:
            leases.report_end(*row, None)  # type: ignore[arg-type]

    patch.setattr(StoreLink, "take_ends", report)


def acknowledgement_after_the_write(patch: Patch) -> None:
    """STORE-12.1: jobs are acknowledged when they are submitted."""
    submit = StoreLink.submit

    def acknowledge(self: StoreLink, event: Submitted, now: float) -> None:
        submit(self, event, now)
        self.outbound.actions.append(Acknowledge(event.ids))

    patch.setattr(StoreLink, "submit", acknowledge)


def limit_of_grants(patch: Patch) -> None:
    """STORE-12.2: jobs are granted however old the last renewal is."""
    patch.setattr(store_link, "_GRANT_FOR", 1e9)


def sweep(patch: Patch) -> None:
    """STORE-4.5: no manager sweeps."""
    flush = StoreLink.flush

    def without(self: StoreLink, now: float, **more: Any) -> None:
        self._sweep = False
        flush(self, now, **more)

    patch.setattr(StoreLink, "flush", without)


def number_of_the_batch(patch: Patch) -> None:
    """STORE-3.3: after a lost answer the batch is given under another number."""

    def count(self: SimulatedCommitter) -> None:
        self.number += 1

    patch.setattr(SimulatedCommitter, "answer_lost", count)


def comparison(patch: Patch) -> None:
    """STORE-3.4: after a lost answer, what the instance has reserved is not looked at."""
    patch.setattr(StoreLink, "_compare", lambda *arguments: None)


def changes_on_their_way(patch: Patch) -> None:
    """After a lost answer, a job whose end waits to be written counts as not known."""
    patch.setattr(PendingWrites, "changed", lambda self: set())


def watch(patch: Patch) -> None:
    """STORE-12.8: jobs of other instances are not looked at."""
    patch.setattr(StoreLink, "_looked", lambda self: [])


def receipt_of_news(patch: Patch) -> None:
    """STORE-6.2: news of ends by other instances are not read."""
    patch.setattr(StoreLink, "woken", lambda self, event, now: self.demand.wake(event.kinds, now))
