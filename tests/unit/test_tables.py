"""The lifecycles: every pair of state and input is decided, and the diagrams are up to date."""

from __future__ import annotations

import importlib
from itertools import product

import build_machines
import pytest


@pytest.fixture(params=build_machines.MODULES)
def tables(request):
    return importlib.import_module(request.param)


def test_every_pair_is_decided_once(tables):
    state, what = next(iter(tables.TRANSITIONS))
    pairs = set(product(type(state), type(what)))

    assert pairs == tables.TRANSITIONS.keys() | tables.IGNORED.keys()
    assert not tables.TRANSITIONS.keys() & tables.IGNORED.keys()


def test_every_ignored_pair_has_a_reason(tables):
    assert all(reason.strip() for reason in tables.IGNORED.values())


def test_every_state_can_be_reached(tables):
    first = next(iter(tables.TRANSITIONS))[0]
    reached = {first}
    while (
        more := {target for (state, _), target in tables.TRANSITIONS.items() if state in reached}
        - reached
    ):
        reached |= more
    assert reached == set(type(first))


def test_the_diagrams_are_drawn_from_the_tables():
    for path, text in build_machines.pages().items():
        assert path.read_text(encoding="utf-8") == text, "run python specs/build_machines.py"


def test_the_code_consults_the_tables(monkeypatch):
    """A transition that is removed from the table no longer happens."""
    from wmp.core.manager import job_lifecycle

    job = job_lifecycle.JobRecord(1, b"", None, 0, 3, None)
    smaller = dict(job_lifecycle.TRANSITIONS)
    del smaller[job_lifecycle.JobState.QUEUED, job_lifecycle.JobInput.GRANT]
    monkeypatch.setattr(job_lifecycle, "TRANSITIONS", smaller)
    assert not job.step(job_lifecycle.JobInput.GRANT)
    assert job.state is job_lifecycle.JobState.QUEUED
