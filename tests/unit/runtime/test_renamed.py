"""An error for the old name of a setting contains the new name."""

from __future__ import annotations

import pytest

from wmp.runtime.common.renamed import new_name, remedy_for


@pytest.mark.parametrize(
    ("old", "known", "new"),
    [
        ("retries", ["max_worker_losses"], "max_worker_losses"),
        ("expire", ["max-silence"], "max-silence"),
        ("expiry", ["bind", "timeout"], "timeout"),
        ("keep", ["result_ttl"], "result_ttl"),
        ("keep", ["orphan_ttl"], "orphan_ttl"),
        ("tries", ["retries"], "retries"),
        ("keep", ["bind"], None),
        ("bind", ["bound"], None),
    ],
)
def test_the_new_name_is_one_that_the_table_knows(
    old: str, known: list[str], new: str | None
) -> None:
    assert new_name(old, known) == new


@pytest.mark.parametrize(
    ("unknown", "remedy"),
    [
        ("expire", "it was renamed; write max_silence"),
        ("binds", "did you mean bind"),
        ("zzz", "expected bind, max_silence"),
    ],
)
def test_the_remedy_is_the_new_name_or_a_similar_one(unknown: str, remedy: str) -> None:
    assert remedy_for(unknown, ["bind", "max_silence"]) == remedy
