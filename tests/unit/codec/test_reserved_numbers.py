"""The reserved numbers of the specification: nothing uses them, and free numbers follow them."""

from __future__ import annotations

import re
from collections import defaultdict

import build_rules
import pytest
from build_rules import SpecError, parse_rules, reserved_rules
from invalid_messages import COLUMNS, FROM_MANAGER, TO_WORKER, WAKE, head, take, wake

from wmp.codec import decode
from wmp.codec.message_tables import COLUMN_NAMES
from wmp.conformance.wire import frame_check
from wmp.errors import DecodeError
from wmp.journal import schema
from wmp.message import ERROR_CODES, FIELD_NAMES, Command, Outcome

SPEC = build_rules.SPEC.read_text(encoding="utf-8")
GRAMMAR = (build_rules.SPEC.parent / "wmp.cddl").read_text(encoding="utf-8")

USED = {
    "command": {command.value: command.name for command in Command},
    "field": dict(FIELD_NAMES),
    "column": dict(COLUMN_NAMES),
}
"""Name of each number that the code uses, by kind."""

HIGHEST_COMMAND = 23
"""The command takes one byte of the head, WMP-2.1."""


def section() -> str:
    (text,) = re.findall(r"^### Reserved numbers\n(.*?)^## ", SPEC, re.MULTILINE | re.DOTALL)
    return text


def reserved() -> dict[str, dict[int, str]]:
    """Return the name of each reserved number, by kind; rules are left out."""
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\w+) \|", section(), re.MULTILINE)
    table: dict[str, dict[int, str]] = defaultdict(dict)
    for kind, number, name in rows:
        assert int(number) not in table[kind], f"{kind} {number} is reserved twice"
        table[kind][int(number)] = name
    return table


RESERVED = reserved()


def grammar_numbers() -> dict[str, set[int]]:
    """Return the numbers that the grammar gives to commands, fields and columns."""
    fields, columns = GRAMMAR.split("; --- columns:")

    def keys(text: str) -> set[int]:
        return {int(key) for key in re.findall(r"(?<=[ {])(\d+): ", text)}

    return {
        "command": {int(number) for number in re.findall(r"\[1, (\d+), ", fields)},
        "field": keys(fields),
        "column": keys(columns),
    }


def test_every_row_of_the_table_is_read():
    rows = [line for line in section().splitlines() if line.startswith("| ")]

    # The first row is the head of the table, and the rules have a pattern of their own.
    assert len(rows) - 2 == sum(map(len, RESERVED.values()))
    assert RESERVED.keys() == USED.keys()


@pytest.mark.parametrize("kind", USED)
def test_no_reserved_number_is_in_use(kind):
    assert not RESERVED[kind].keys() & USED[kind].keys()
    assert not RESERVED[kind].keys() & grammar_numbers()[kind]


@pytest.mark.parametrize("kind", USED)
def test_the_grammar_has_the_numbers_of_the_code(kind):
    assert grammar_numbers()[kind] == set(USED[kind])


@pytest.mark.parametrize("kind", USED)
def test_no_reserved_name_is_in_use(kind):
    names = [*USED[kind].values(), *RESERVED[kind].values()]

    assert len(names) == len(set(names))


@pytest.mark.parametrize("kind", USED)
def test_the_next_free_number_follows_all_others(kind):
    (free,) = re.findall(rf"next free numbers are .*?\b{kind} (\d+)", section())
    numbers = sorted(USED[kind].keys() | RESERVED[kind].keys())

    assert numbers == list(range(numbers[0], int(free))), "a number is neither used nor reserved"


def test_the_next_free_outcome_follows_all_others():
    (free,) = re.findall(r"next free numbers are .*?\boutcome (\d+)", section())

    assert int(free) == max(Outcome) + 1


def test_the_first_numbers_that_the_grammar_leaves_open_follow_the_used_ones():
    open_from = dict(re.findall(r"^later-(\w+) = (\d+)\.\.", GRAMMAR, re.MULTILINE))

    assert open_from == {kind: str(max(USED[kind]) + 1) for kind in ("field", "column")}


def test_a_reserved_command_has_one_byte():
    assert max(RESERVED["command"]) < HIGHEST_COMMAND
    assert f"The last possible command is {HIGHEST_COMMAND}," in section()


# --- what peers of this version do with them ---


@pytest.mark.rule("WMP-10.4")
def test_a_reserved_command_is_answered_as_an_unknown_one():
    for number in RESERVED["command"]:
        with pytest.raises(DecodeError) as caught:
            decode([head(number, {}, TO_WORKER, FROM_MANAGER)])
        assert (caught.value.code, caught.value.command) == ("command", number)


@pytest.mark.rule("WMP-2.3")
@pytest.mark.parametrize("value", [1, True, "text", b"bytes", [1, 2], {"a": 1}, None])
def test_a_reserved_field_is_ignored_whatever_its_value(value):
    fields = {**WAKE, **dict.fromkeys(RESERVED["field"], value)}

    assert decode(wake(fields=fields)).fields == fields


@pytest.mark.rule("WMP-2.3")
@pytest.mark.parametrize("value", [1, True, "text", b"bytes", [1], None])
def test_a_reserved_column_is_ignored_whatever_its_value(value):
    columns = {**COLUMNS, **dict.fromkeys(RESERVED["column"], value)}

    assert decode(take(columns)).columns == decode(take(COLUMNS)).columns


def test_no_golden_message_uses_a_reserved_number_as_an_unknown_one():
    """A vector that does so would become wrong when the number gets its meaning."""
    prefixes = tuple(bytes((0x85, 1, number)).hex() for number in RESERVED["command"])
    vectors = [
        (path.name, frame)
        for path in (build_rules.SPEC.parent / "vectors").glob("*.json")
        for frame in re.findall(r'"([0-9a-f]+)"', path.read_text(encoding="utf-8"))
    ]

    assert vectors
    assert not [entry for entry in vectors if entry[1].startswith(prefixes)]


# --- the numbers of rules ---

PAGE = """\
## 6. Jobs

| rule | WMP-6.2 to WMP-6.3 | | worker | parts |
| rule | WMP-6.5 | | worker | more |

- **WMP-6.1** (worker) First.
"""


def test_reserved_rules_are_read_from_the_page():
    assert reserved_rules(PAGE) == {"WMP-6.2", "WMP-6.3", "WMP-6.5"}
    assert len(reserved_rules(SPEC)) == 4


def test_the_next_rule_of_a_section_skips_the_reserved_ones():
    rules = parse_rules(f"{PAGE}- **WMP-6.4** (worker) Next.\n- **WMP-6.6** (worker) Last.\n")

    assert [rule.id for rule in rules] == ["WMP-6.1", "WMP-6.4", "WMP-6.6"]
    with pytest.raises(SpecError, match=r"WMP-6\.7 follows WMP-6\.5"):
        parse_rules(f"{PAGE}- **WMP-6.4** (worker) Next.\n- **WMP-6.7** (worker) Too far.\n")


def test_a_rule_under_a_reserved_number_is_an_error():
    with pytest.raises(SpecError, match=r"WMP-6\.2 is reserved"):
        parse_rules(f"{PAGE}- **WMP-6.2** (worker) A part.\n")


def test_the_next_free_rule_of_the_section_follows_the_reserved_ones():
    (free,) = re.findall(r"next free numbers are .*?\brule (\d+) of section 6\b", section())
    sections = {id.partition(".")[0] for id in reserved_rules(SPEC)}
    used = re.findall(r"^- \*\*WMP-6\.(\d+)\*\*", SPEC, re.MULTILINE)
    last = max(*map(int, used), *(int(id.rpartition(".")[2]) for id in reserved_rules(SPEC)))

    assert sections == {"WMP-6"}
    assert int(free) == last + 1


# --- what has been built since ---


def rows_of(header: str) -> dict[int, str]:
    """Return number and name of each row of a table of the specification."""
    (table,) = re.findall(rf"^\| {header} \|.*\n\|[-|]+\n((?:\|.*\n)+)", SPEC, re.MULTILINE)
    return {int(n): name for n, name in re.findall(r"^\| (\d+) \| ([^|]+?) \|", table, re.M)}


TABLES = {
    "command": rows_of(r"number \| command"),
    "field": rows_of(r"key \| name"),
    "column": rows_of(r"column \| name"),
}
"""Name of each number in the tables of section 2, by kind."""


@pytest.mark.parametrize("kind", USED)
def test_the_tables_have_the_numbers_and_names_of_the_code(kind):
    names = {number: name.replace("_", " ") for number, name in USED[kind].items()}

    assert {number: name.replace("_", " ") for number, name in TABLES[kind].items()} == names


@pytest.mark.parametrize("kind", USED)
def test_no_row_of_the_tables_is_reserved_too(kind):
    assert not RESERVED[kind].keys() & TABLES[kind].keys()
    assert not set(RESERVED[kind].values()) & set(TABLES[kind].values())


def test_the_kit_checks_the_numbers_of_the_code():
    checked = {number: name.replace("_", " ") for number, (name, _) in frame_check.FIELDS.items()}

    assert checked == {number: name.replace("_", " ") for number, name in FIELD_NAMES.items()}
    assert dict(COLUMN_NAMES) == frame_check._COLUMNS


def test_the_journal_names_no_reserved_field():
    columns = {column.name for column in schema.COLUMNS}

    assert not columns & (set(RESERVED["field"].values()) - set(COLUMN_NAMES.values()))


def test_the_outcomes_and_codes_of_the_text_are_those_of_the_code():
    (outcomes,) = re.findall(r"DONE \(always\): ((?:\d \w+(?:, )?)+) \|", SPEC)
    section = SPEC[SPEC.index("## 10. Errors") : SPEC.index("## 11. ")]

    assert outcomes == ", ".join(f"{outcome.value} {outcome.name.lower()}" for outcome in Outcome)
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == ERROR_CODES


def test_no_module_of_the_library_uses_a_reserved_command():
    """A reserved command that was built would be a member of Command, under its reserved number."""
    for number, name in RESERVED["command"].items():
        assert name not in Command.__members__
        assert number not in [command.value for command in Command]
