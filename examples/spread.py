"""Spread many inputs over workers: results in order, inputs read only as far ahead as needed."""

from collections.abc import Iterator

import wmp

# map() submits up to `in_flight` jobs (8192 by default) ahead. So after an early stop, more inputs
# were read and more jobs done than results taken. in_flight=10 reads 10 inputs ahead.


def square(number: int) -> int:
    """Do a job."""
    return number * number


def numbers() -> Iterator[int]:
    """Inputs may come from an endless iterator: map() reads them as results are taken."""
    number = 0
    while True:
        yield number
        number += 1


with (
    # With codec "cbor" payloads and results are numbers, texts, lists and dicts, not just bytes.
    wmp.Manager(codec="cbor") as manager,
    # This example has two workers. There may be any number, on any machine, and they may come and
    # go.
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
        print(f"a worker did {worker.done} jobs, including jobs that map() submits ahead")
