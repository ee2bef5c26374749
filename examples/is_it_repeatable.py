"""May a handler run twice? Simulated networks with faults show it, in a second or two.

A worker may be killed after it did a job and before it could send the result; then the job is done
again. Run this file by itself, or with pytest as in a project: ``pytest
examples/is_it_repeatable.py``. The first of its tests is meant to fail.
"""

from collections import Counter

import wmp.testing

ORDERS = [b"order-%d" % number for number in range(10)]


class Bank:
    """Stands for data that a handler changes, for example in a database."""

    def __init__(self):
        self.booked = Counter()
        self.known = set()

    def pay(self, order):
        """Wrong: a second run pays a second time."""
        self.booked[order] += 1

    def pay_if_unknown(self, order):
        """Also wrong, but less often: the handler may end between the two lines."""
        if order not in self.known:
            self.booked[order] += 1
            self.known.add(order)

    def pay_by_number(self, order):
        """Right: a single step, which changes nothing when it is repeated."""
        self.booked[order] = 1


def each_is_paid_once(world, bank, handler):
    """Submit all orders to two workers, and check the bank after the last end."""
    world.worker(handler, count=2)
    for order in ORDERS:
        world.submit(order)
    world.run()
    twice = [order.decode() for order, times in bank.booked.items() if times != 1]
    assert not twice, f"paid twice: {', '.join(twice)}"
    assert set(bank.booked) == set(ORDERS)


@wmp.testing.simulate(seeds=100)
def test_pay(world):
    """This test is meant to fail."""
    bank = Bank()  # a new bank for each world
    each_is_paid_once(world, bank, bank.pay)


@wmp.testing.simulate(seeds=100, faults=["kill"])
def test_pay_if_unknown(world):
    """This test is meant to fail, in some of the worlds."""
    bank = Bank()
    each_is_paid_once(world, bank, bank.pay_if_unknown)


@wmp.testing.simulate(seeds=50)
def test_pay_by_number(world):
    """This test passes in all worlds."""
    bank = Bank()
    each_is_paid_once(world, bank, bank.pay_by_number)


if __name__ == "__main__":
    for test in (test_pay, test_pay_if_unknown, test_pay_by_number):
        try:
            test()
        except AssertionError as error:
            print(f"{test.__name__}: {error}\n{error.__notes__[0]}\n")
        else:
            print(f"{test.__name__}: passed in 50 simulated networks")
