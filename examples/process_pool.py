"""Functions that use much CPU: each slot of the worker is a process of its own."""

import os

import wmp


def primes(limit: int) -> list[int]:
    """Count the primes below ``limit``, and name the process that counted."""
    numbers = [n for n in range(2, limit) if all(n % d for d in range(2, int(n**0.5) + 1))]
    return [len(numbers), os.getpid()]


def main() -> None:
    """Count primes for twenty limits."""
    with (
        wmp.Manager(codec="cbor") as manager,
        wmp.Worker(*manager.endpoints, handlers=primes, slots=2, pool="process"),
    ):
        limits = [1000 * n for n in range(1, 21)]
        results = list(manager.map(limits, timeout=30))
    for limit, (count, _) in list(zip(limits, results, strict=True))[::5]:
        print(f"there are {count} primes below {limit}")
    processes = {pid for _, pid in results}
    assert os.getpid() not in processes
    print(f"{len(processes)} worker processes counted them")


# The processes import this file to find the function. They must not start workers themselves.
if __name__ == "__main__":
    main()
