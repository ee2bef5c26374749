"""Inputs of ``wmp map``: lines that are cut out of chunks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wmp.cli.map import feed
from wmp.cli.map.feed import MapInput, inputs
from wmp.message import Limits


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(st.binary(max_size=9).filter(lambda line: b"\n" not in line)), ended=...)
def test_lines_are_those_of_the_file_wherever_it_is_cut(
    lines: list[bytes], ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_CHUNK", 4)
    path = tmp_path / "file"
    path.write_bytes(b"\n".join(lines) + b"\n" * ended)

    seen = list(inputs([str(path)], lines=True))

    # Text after the last newline is a line too, unless it is empty.
    expected = lines if ended or not lines or lines[-1] else lines[:-1]
    if ended and not lines:
        expected = [b""]
    assert [item.payload for item in seen] == expected
    assert [item.name for item in seen] == [f"{path}:{n}" for n in range(1, len(seen) + 1)]


def test_of_a_line_that_is_too_large_nothing_is_kept_and_the_next_ones_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_CHUNK", 4)
    monkeypatch.setattr(Limits, "PAYLOAD", 10)
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10 + b"\n" + b"y" * 11 + b"\nz\n" + b"y" * 1000)

    first, second, third, fourth = inputs([str(path)], lines=True)

    assert first == MapInput(f"{path}:1", b"x" * 10)
    assert third == MapInput(f"{path}:3", b"z")
    for number, item in ((2, second), (4, fourth)):
        assert (item.name, item.payload) == (f"{path}:{number}", b"")
        assert item.error is not None
        assert "too large for one job" in item.error
