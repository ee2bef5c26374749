"""The store on PostgreSQL and the reference store give the same answers on random histories."""

from __future__ import annotations

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.property.test_store_property import Pair, play, steps
from tests.unit.store.stores import Clock
from wmp.store.postgres.postgres_store import PostgresStore


def test_postgres_and_the_reference_store_give_the_same_answers(new_url):
    @settings(max_examples=12, deadline=None, phases=(Phase.generate,))  # shrinking takes minutes
    @given(st.lists(steps, min_size=12, max_size=24))
    def check(history):
        url = new_url()

        def opened(clock: Clock) -> PostgresStore:
            return PostgresStore(url, clock=lambda: clock.wall, monotonic=lambda: clock.steady)

        play(Pair(opened, notices_deaths=False), history)

    check()
