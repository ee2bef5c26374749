"""Terms of stored jobs: everything that jobs share, as one text in the database."""

from __future__ import annotations

import json
from typing import Final

from attrs import frozen

from wmp.message import Kind
from wmp.retry import Backoff, Retry

RESULT_AGE_MS: Final = 3_600_000
"""Default of the milliseconds for which results are kept: one hour."""

DEAD_LETTER_AGE_MS: Final = 7 * 24 * 3_600_000
"""Default of the milliseconds for which dead letters are kept: seven days."""


@frozen
class StoredTerms:
    """Terms of a job that the store keeps and does not interpret, and its times to live."""

    max_worker_losses: int = 3
    """Number of lost leases after which the job is still queued again."""
    run_limit: float | None = None
    """Seconds for which one attempt may run."""
    retry: Retry | None = None
    """Settings of the errors that are tried again; None: the handlers decide."""
    keep_ms: int = RESULT_AGE_MS
    """Milliseconds for which the job is kept after a result or a cancellation."""
    keep_dead_ms: int = DEAD_LETTER_AGE_MS
    """Milliseconds for which the job is kept after an error, a timeout or a loss."""


def terms_to_text(terms: StoredTerms) -> str:
    """Return the terms as JSON, without the times to live. Equal terms have equal texts."""
    spec: dict[str, object] = {"retries": terms.max_worker_losses}
    if terms.run_limit is not None:
        spec["run_limit"] = terms.run_limit
    if terms.retry is not None:
        retry, backoff = terms.retry, terms.retry.backoff
        spec["retry"] = {
            "times": retry.times,
            "on": sorted(retry.names),
            "backoff": [backoff.first, backoff.maximum, backoff.factor],
            "jitter": retry.jitter,
        }
    return json.dumps(spec, sort_keys=True, separators=(",", ":"))


def terms_from_text(text: str, keep_ms: int, keep_dead_ms: int) -> StoredTerms:
    """Return the terms of a text. Unknown entries, of a later minor version, are ignored."""
    spec = json.loads(text)
    retry = None
    if (entry := spec.get("retry")) is not None:
        first, maximum, factor = entry["backoff"]
        retry = Retry(
            times=entry["times"],
            on=tuple(entry["on"]),
            backoff=Backoff(first, maximum, factor),
            jitter=entry["jitter"],
        )
    return StoredTerms(spec["retries"], spec.get("run_limit"), retry, keep_ms, keep_dead_ms)


def needs_to_text(kind: Kind) -> str:
    """Return the needs of a kind as JSON."""
    return json.dumps([list(need) for need in kind.needs], separators=(",", ":"))


def needs_from_text(text: str) -> tuple[tuple[str, int], ...]:
    """Return the needs of a text."""
    return tuple((name, amount) for name, amount in json.loads(text))
