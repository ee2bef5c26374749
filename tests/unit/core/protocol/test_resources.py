"""Named amounts are added, subtracted and compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmp.core.protocol.resources import Resources, needs_of, within
from wmp.errors import LocalProtocolError
from wmp.message import Limits

NEEDS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)).map(needs_of)


def test_needs_are_sorted_and_without_zeros():
    assert needs_of({"slots": 1, "gpu": 2, "memory": 0}) == (("gpu", 2), ("slots", 1))


def test_the_scarcest_limits():
    resources = Resources.of({"slots": 8, "gpu": 2})
    assert resources.fits(needs_of({"slots": 3})) == 2
    assert resources.fits(needs_of({"slots": 1, "gpu": 1})) == 2
    assert resources.fits(needs_of({"tpu": 1})) == 0
    assert resources.capacity(needs_of({"slots": 9})) == 0


def test_taken_resources_are_not_free():
    resources = Resources.of({"slots": 8})
    needs = needs_of({"slots": 3})
    resources.take(needs, 2)
    assert resources.fits(needs) == 0
    assert resources.capacity(needs) == 2
    assert resources.used == {"slots": 6}
    resources.release(needs)
    assert resources.free == {"slots": 5}


@pytest.mark.rule("WMP-4.1")
def test_more_than_there_is_cannot_be_taken():
    resources = Resources.of({"slots": 1})
    with pytest.raises(LocalProtocolError, match=r"2 jobs with needs \{'slots': 1\}"):
        resources.take(needs_of({"slots": 1}), 2)
    assert resources.free == {"slots": 1}


def test_jobs_that_need_nothing_have_a_bound_too():
    resources = Resources.of({})
    assert resources.fits(()) == Limits.JOBS
    resources.take((), Limits.JOBS)
    assert resources.fits(()) == 0


def test_setting_aside_takes_at_most_the_free_resources():
    resources = Resources.of({"slots": 2, "gpu": 1})
    spare = resources.spare()
    spare.set_aside(needs_of({"slots": 1, "gpu": 4, "tpu": 1}))
    assert spare.free == {"slots": 1, "gpu": 0, "tpu": 0}
    assert resources.free == {"slots": 2, "gpu": 1}


@given(NEEDS, NEEDS)
def test_within_compares_each_amount(needs, limit):
    amounts = dict(limit)
    assert within(needs, limit) == all(n <= amounts.get(name, 0) for name, n in needs)


@given(st.lists(NEEDS), st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)))
def test_taking_and_releasing_leave_everything_as_it_was(all_needs, total):
    resources = Resources.of(total)
    taken = []
    for needs in all_needs:
        if resources.fits(needs):
            resources.take(needs)
            taken.append(needs)
            resources.check()
    for needs in taken:
        resources.release(needs)
    assert resources.free == total
    assert resources.places == Limits.JOBS
