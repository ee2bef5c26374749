"""The schema of journals is complete and matches its page."""

from __future__ import annotations

import inspect
import math

import build_journal
import pytest
from attrs import has

import wmp.actions
import wmp.events
import wmp.lane_exchange
from wmp.journal.schema import COLUMNS, LINES, Type, what_is_wrong
from wmp.record import FrozenRecord

HEAD = {"v": 1, "node": "m", "epoch": 5, "n": 1, "step": 1, "at": 0, "wall": 0}


OMITTED = {"failedattempt", "lanekind", "met"}
"""Parts of ``Resolve`` and ``Run``, and an action that the line of the PONG already shows."""


def what_can_happen() -> set[str]:
    """Return the names of all events and actions as lines have them."""
    return OMITTED ^ {
        value.__name__.lower()
        for module in (wmp.events, wmp.actions, wmp.lane_exchange)
        for value in vars(module).values()
        if inspect.isclass(value)
        and (has(value) or issubclass(value, FrozenRecord))
        and value.__module__ == module.__name__
    }


def test_every_event_and_action_has_a_kind_of_line_and_the_journal_four_of_its_own():
    assert LINES.keys() == what_can_happen() | {"start", "beat", "lost", "stop"}


def test_names_of_columns_are_unique_and_those_that_lines_must_have_exist():
    names = [column.name for column in COLUMNS]

    assert len(names) == len(set(names))
    assert {name for columns in LINES.values() for name in columns} <= set(names)


def test_the_page_of_the_journal_follows_the_schema():
    assert build_journal.page() == build_journal.PAGE.read_text("utf-8")


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ({"what": "ticked"}, None),
        ({"what": "what-will-be"}, None),
        ({"what": "ticked", "colour": []}, None),
        ({"what": "cancelled", "ids": [1, 2]}, None),
        ({}, "no what"),
        ({"what": "cancelled"}, "cancelled without ids"),
        ({"what": "cancelled", "ids": [1.5]}, "ids is not integers"),
        ({"what": "cancelled", "ids": 1}, "ids is not integers"),
        ({"what": "cancelled", "ids": [1], "last": 5}, None),
        ({"what": "cancelled", "ids": [1], "last": 1}, "last does not belong to ids"),
        ({"what": "cancelled", "ids": [1, 2], "last": 5}, "last does not belong to ids"),
        ({"what": "cancelled", "ids": [1], "last": 1 << 40}, "last does not belong to ids"),
        ({"what": "ticked", "last": 5}, "last does not belong to ids"),
        ({"what": "ticked", "at": True}, "at is not integer"),
        ({"what": "ticked", "at": 1 << 63}, "at is not integer"),
        ({"what": "ticked", "node": None}, "node is not text"),
        ({"what": "ticked", "more": 1}, "more is not truth"),
        ({"what": "ticked", "roles": ["a", 1]}, "roles is not texts"),
        ({"what": "ticked", "needs": {"slots": "1"}}, "needs is not amounts"),
        ({"what": "ticked", "settings": {"ping": [1]}}, "settings is not numbers"),
        ({"what": "ticked", "settings": {"ping": math.nan}}, "settings is not numbers"),
        ({"what": "ticked", "settings": {"ping": math.inf}}, "settings is not numbers"),
        ({"what": "cancelled", "ids": [None]}, "ids has a null"),
        ({"what": "ticked", "ends": ["ok", "what-will-be"]}, "ends has an unknown end"),
        ({"what": "cancelled", "ids": [1], "ends": []}, "ends does not belong to ids"),
        (
            {"what": "cancelled", "ids": [1, 2], "attempts": [1, 2, 3]},
            "attempts does not belong to ids",
        ),
        ({"what": "cancelled", "ids": [4], "last": 6, "outcomes": [0, 1, 0]}, None),
        (
            {"what": "cancelled", "ids": [4], "last": 6, "outcomes": [0, 1]},
            "outcomes does not belong to ids",
        ),
        ({"what": "ticked", "left": [None, 1]}, None),
        ({"what": "ticked", "n": -1}, "n is less than 0"),
        ({"what": "ticked", "at": -(1 << 53)}, "no clock shows this time"),
        ({"what": "ticked", "wall": 1 << 53}, "no clock shows this time"),
        ({"what": "ticked", "wall": -1}, "no clock shows this time"),
    ],
)
def test_the_defect_of_a_line_is_named(more, wrong):
    assert what_is_wrong({**HEAD, **more}) == wrong


def test_every_type_is_that_of_a_column():
    assert {column.type for column in COLUMNS} == set(Type)
