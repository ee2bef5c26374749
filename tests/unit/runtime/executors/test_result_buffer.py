"""Results that remain when the process that made them has ended."""

from __future__ import annotations

from wmp.message import Outcome
from wmp.runtime.executors.result_buffer import ResultBuffer

FILLED = 1


def make(size: int = 100) -> tuple[ResultBuffer, list[int], bytearray]:
    mark, memory = [0, 0], bytearray(size)
    return ResultBuffer(memory, mark, FILLED), mark, memory


def test_results_are_read_in_order_until_the_buffer_is_cleared() -> None:
    buffer, mark, memory = make()
    highest = 2**63 - 1
    assert buffer.put(7, Outcome.OK, b"")
    assert buffer.put(highest, Outcome.ERROR, memoryview(b"no luck"))
    # The reading process has only the memory.
    other = ResultBuffer(memory, mark, FILLED)
    assert other.results() == ([7, highest], [Outcome.OK, Outcome.ERROR], [b"", b"no luck"])
    buffer.clear()
    assert other.results() == ([], [], [])
    assert buffer.put(8, Outcome.CANCELLED, b"x")
    assert other.results() == ([8], [Outcome.CANCELLED], [b"x"])


def test_a_result_that_does_not_fit_is_refused_without_harm() -> None:
    buffer, _, _ = make(40)
    assert buffer.put(1, Outcome.OK, b"1234")
    assert not buffer.put(2, Outcome.OK, b"x" * 11)
    assert buffer.put(3, Outcome.OK, b"x" * 10)  # the results fill the buffer to the last byte
    assert buffer.results() == ([1, 3], [Outcome.OK] * 2, [b"1234", b"x" * 10])


def test_a_broken_entry_is_not_a_result() -> None:
    buffer, mark, memory = make()
    buffer.put(1, Outcome.OK, b"good")
    behind = mark[FILLED]
    buffer.put(2, Outcome.OK, b"bad")
    for end in range(behind, mark[FILLED]):
        mark[FILLED] = end
        assert buffer.results() == ([1], [Outcome.OK], [b"good"])
    memory[behind:] = b"\xff" * len(memory[behind:])
    mark[FILLED] = 1 << 40
    assert buffer.results() == ([1], [Outcome.OK], [b"good"])
