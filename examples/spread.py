"""Spread many inputs over workers: results in order, inputs read only as far ahead as needed."""

from collections.abc import Iterator

import wmp

# map() keeps up to `in_flight` jobs (8192 by default) under way: whoever stops early finds that
# more inputs were read, and more jobs done, than results taken; in_flight=10 reads 10 ahead.


def square(number: int) -> int:
    """Do a job."""
    return number * number


def numbers() -> Iterator[int]:
    """Inputs may come from anywhere, and need not end: they are pulled as results are taken."""
    number = 0
    while True:
        yield number
        number += 1


with (
    # With codec "cbor" payloads and results are any value that CBOR knows, not just bytes.
    wmp.Manager(codec="cbor") as manager,
    # Two workers here; any number of them, anywhere, and they may come and go meanwhile.
    wmp.Worker(*manager.endpoints, handlers=square),
    wmp.Worker(*manager.endpoints, handlers=square),
):
    total = 0
    for count, result in enumerate(manager.map(numbers(), timeout=10), 1):
        total += result
        if count == 10_000:
            break
    print(f"the sum of the first {count} squares is {total}")
    for worker in manager.statistics().workers:
        print(f"a worker did {worker.done} jobs, those read ahead included")
