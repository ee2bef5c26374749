"""The headers of a worker's application reach the policies of its managers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import wmp
from tests.waiting import WAIT
from wmp.balance import Jobs, Offer

pytestmark = pytest.mark.interop


def work(payload: bytes) -> bytes:
    return payload


def test_headers_reach_the_policy_over_sockets() -> None:
    shown: dict[str, dict[str, object]] = {}

    def nearest(jobs: Jobs, offers: Sequence[Offer]) -> Sequence[Offer]:
        shown.update({offer.label: dict(offer.headers) for offer in offers})
        return sorted(offers, key=lambda offer: offer.headers.get("rack") != "r7")

    headers: dict[str, object] = {
        "rack": "r7",
        "spot": False,
        "cost": 0.5,
        "id": b"7",
        "none": None,
    }
    with wmp.Manager(policy=nearest) as manager:
        near = wmp.Worker(
            *manager.endpoints, handlers=work, slots=4, label="near", headers=headers, hold=0
        )
        far = wmp.Worker(*manager.endpoints, handlers=work, slots=4, label="far", hold=0)
        with far, near:
            manager.wait_for_workers(2, timeout=WAIT)
            for _ in range(10):
                manager.submit(b"", timeout=WAIT).result()
            done = {worker.label: worker.done for worker in manager.statistics().workers}
    assert shown["near"] == headers
    assert shown["far"] == {}
    assert done["near"] > done["far"]
