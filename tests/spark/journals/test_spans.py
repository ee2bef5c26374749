"""Growing segments by the byte: each line is read once and whole, also after a change of names."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wmp.errors import ConfigError, WMPError
from wmp.spark.journals.byte_ranges import ByteRange, advance, find, pieces, read


def texts(folder, start, end):
    """Return the lines between two positions, by segment."""
    ranges = find([folder])
    return {
        name: [line for s in pieces(ranges[name][0], start.get(name, 0), at, 7) for line in read(s)]
        for name, at in end.items()
    }


def test_a_torn_line_waits_until_it_is_ended(tmp_path):
    segment = tmp_path / ".a-1-000001.jsonl"
    segment.write_bytes(b"one\ntwo\nthr")
    start = advance({}, find([tmp_path]), None)
    assert texts(tmp_path, {}, start) == {"a-1-000001.jsonl": [b"one", b"two"]}

    assert advance(start, find([tmp_path]), None) == start

    with segment.open("ab") as file:
        file.write(b"ee\nfour")
    end = advance(start, find([tmp_path]), None)
    assert texts(tmp_path, start, end) == {"a-1-000001.jsonl": [b"three"]}


def test_a_segment_that_gets_its_name_is_the_same(tmp_path):
    segment = tmp_path / ".a-1-000001.jsonl"
    segment.write_bytes(b"one\n")
    before = find([tmp_path])
    start = advance({}, before, None)
    with segment.open("ab") as file:
        file.write(b"two\n")
    segment.rename(tmp_path / "a-1-000001.jsonl")

    end = advance(start, find([tmp_path]), None)

    assert texts(tmp_path, start, end) == {"a-1-000001.jsonl": [b"two"]}
    # A reader with the other name of the segment can read it too.
    assert advance(start, {n: (p, 8) for n, (p, _) in before.items()}, None) == end


def test_a_limit_is_shared_out_evenly(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_bytes(b"0123456\n" * 100)
    (tmp_path / "d.jsonl").write_bytes(b"0123456\n")

    end = advance({}, find([tmp_path]), 8 + 3 * 80)

    assert end == {"a.jsonl": 80, "b.jsonl": 80, "c.jsonl": 80, "d.jsonl": 8}


def test_a_line_longer_than_the_limit_is_read(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"x" * 200_000 + b"\ny\n")

    first = advance({}, find([tmp_path]), 10)

    assert first == {"a.jsonl": 200_001}
    assert advance(first, find([tmp_path]), 10) == {"a.jsonl": 200_003}


def test_of_two_that_are_called_the_same_the_finished_one_counts(tmp_path):
    for folder, name, text in (("x", ".a.jsonl", b"1\n2\n3\n"), ("y", "a.jsonl", b"1\n2\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(text)

    assert find([tmp_path]) == {"a.jsonl": (str(tmp_path / "y" / "a.jsonl"), 4)}


def test_missing_journals_and_segments_are_reported(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no journal at .*nowhere"):
        find([tmp_path / "nowhere"])
    with pytest.raises(WMPError, match=r"a\.jsonl was removed before all of it was read"):
        list(read(ByteRange(str(tmp_path / "a.jsonl"), 0, 5)))


@settings(deadline=None)
@given(
    lines=st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"-")), max_size=12),
    tail=st.binary(max_size=10).map(lambda b: b.replace(b"\n", b"-")),
    maximum=st.none() | st.integers(1, 60),
    piece=st.integers(1, 40),
)
def test_every_line_is_read_once(tmp_path_factory, lines, tail, maximum, piece):
    path = tmp_path_factory.mktemp("any") / "a.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in lines) + tail)
    seen: list[bytes] = []
    at: dict[str, int] = {}
    while (end := advance(at, find([path]), maximum)) != at:
        begin = at.get("a.jsonl", 0)
        for span in pieces(str(path), begin, end["a.jsonl"], piece):
            seen += read(span)
        at = end

    assert seen == lines
