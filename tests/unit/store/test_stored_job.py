"""The table of stored jobs: searched whole, and compared with the statements made from it."""

from __future__ import annotations

from collections import Counter
from itertools import product

import build_store
import pytest

from wmp.store.sqlite.statements import CHANGES, EACH, SHARED
from wmp.store.stored_job import (
    ENDED,
    IGNORED,
    OPEN,
    TABLE,
    TRANSITIONS,
    Effect,
    Guard,
    StoredJobInput,
    StoredJobState,
    rows_of,
)

State, Input = StoredJobState, StoredJobInput


@pytest.mark.rule("STORE-2.1")
def test_every_pair_has_one_row_or_one_reason():
    pairs = Counter((state, row.input) for row in TABLE for state in row.sources)
    assert set(pairs.values()) == {1}
    assert pairs.keys() == TRANSITIONS.keys()
    assert TRANSITIONS.keys() | IGNORED.keys() == set(product(State, Input))
    assert not TRANSITIONS.keys() & IGNORED.keys()


def test_every_end_is_final_but_for_an_operator_and_time():
    leaving = {what for (state, what) in TRANSITIONS if state in ENDED}
    assert leaving == {Input.REVIVE, Input.FORGET, Input.PURGE}


@pytest.mark.rule("STORE-2.3", "STORE-2.4")
def test_what_comes_from_a_worker_is_fenced_by_the_attempt():
    fenced = (Input.SUCCEED, Input.FAIL, Input.OVERRUN, Input.AGAIN, Input.ADOPT)
    by_holder = (Input.REPEAT, Input.RELEASE, Input.SPEND)
    for what in (*fenced, *by_holder):
        for row in rows_of(what):
            assert Guard.ATTEMPT in row.guards, row
            assert (Guard.MINE in row.guards) == (what in by_holder), row


@pytest.mark.rule("STORE-2.4")
def test_whoever_gets_a_job_gets_a_new_attempt_unless_a_worker_holds_it():
    for row in TABLE:
        if row.target is State.RESERVED and row.input not in (Input.ADOPT, Input.BEGIN):
            assert Effect.NEXT_ATTEMPT in row.effects, row
        if Effect.HOLD in row.effects and row.sources[0] in (State.RESERVED, State.CANCELLING):
            assert Guard.ORPHANED in row.guards, row


@pytest.mark.rule("STORE-2.6")
def test_no_row_queues_or_reserves_a_cancelled_job():
    targets = {row.target for row in TABLE if State.CANCELLING in row.sources}
    assert targets == {State.CANCELLING, *ENDED} - {State.LOST}


@pytest.mark.rule("STORE-6.1")
def test_every_end_is_dated_and_leaves_no_reservation():
    for row in TABLE:
        ends = row.target in ENDED
        assert bool({Effect.END, Effect.INHERIT} & set(row.effects)) == ends, row
        if row.target is State.QUEUED and set(row.sources) & {State.RESERVED, State.CANCELLING}:
            assert Effect.LEAVE in row.effects, row
    assert set(OPEN) | set(ENDED) == set(State) - {State.ABSENT}


def test_every_state_is_reached_from_absence_and_leads_back_to_it():
    reached = {State.ABSENT}
    while more := {row.target for row in TABLE if reached & set(row.sources)} - reached:
        reached |= more
    assert reached == set(State)
    leading = {State.ABSENT}
    while (
        more := {state for row in TABLE if row.target in leading for state in row.sources} - leading
    ):
        leading |= more
    assert leading == set(State)


def test_the_statements_of_an_input_have_one_for_each_row_and_find_no_job_twice():
    for what, statements in CHANGES.items():
        rows = {(row.sources, row.target): row for row in rows_of(what)}
        assert len(statements) == len(rows)
        left = list(rows.values())
        for statement in statements:
            step = statement.steps[-1]
            text, names = step.text(3), (*step.before, *3 * step.each, *step.after)
            row = next(
                row
                for row in left
                if row.target is statement.target
                and f"state IN ({', '.join(str(int(source)) for source in row.sources)})" in text
            )
            left.remove(row)
            # No later statement of this input finds the jobs that this statement has changed.
            assert not any(row.target in other.sources for other in left)
            assert text.count("?") == len(names)
            assert set(step.each) <= set(EACH)
            assert {*step.before, *step.after} <= set(SHARED)


def test_the_page_has_the_table():
    text = build_store.PAGE.read_text(encoding="utf-8")
    assert build_store.filled(text) == text, "run python specs/build_store.py"


def test_a_stale_page_is_noticed(tmp_path, monkeypatch, capsys):
    stale = tmp_path / "store.md"
    stale.write_text(build_store.PAGE.read_text(encoding="utf-8").replace("attempt + 1", "x"))
    monkeypatch.setattr(build_store, "PAGE", stale)

    assert build_store.main(["--check"]) == 1
    assert "stale" in capsys.readouterr().err
    assert build_store.main([]) == 0
    assert build_store.main(["--check"]) == 0
