"""The texts about the ends of jobs without a result."""

from __future__ import annotations

import pytest

from wmp.actions import End
from wmp.codec import pack_error
from wmp.gateways.common.job_end import explain_end


@pytest.mark.parametrize(
    ("end", "payload", "text"),
    [
        (End.ERROR, pack_error("ValueError", "no"), "the handler failed: ValueError: no"),
        (
            End.LOST,
            b"w 1\nit left",
            "the worker 'w 1' was lost, and max_worker_losses allows no further loss: it left",
        ),
        (End.LOST, b"\nthe manager is closed", "the job was lost: the manager is closed"),
        (End.CANCELLED, b"", "the job ended: cancelled"),
        (End.TIMEOUT, b"no worker", "the job ended: timeout: no worker"),
        (End.CANCELLED, b"\xff", "the job ended: cancelled: \N{REPLACEMENT CHARACTER}"),
    ],
)
def test_an_end_without_a_result_is_explained(end, payload, text):
    assert explain_end(end, payload) == text
