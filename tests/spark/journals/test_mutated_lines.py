"""Lines that no node would write: each is used or counted, and none ends the report."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.spark.folds.corruptions import Journal, sound_journal
from wmp.journal.schema import COLUMNS, Type
from wmp.spark import report
from wmp.spark.journals.lines import LineRow, parse, parse_slowly
from wmp.spark.journals.schema import TABLES
from wmp.spark.journals.tables import Tables

NUMBERS = (0, 1, 2, 3, 7, 100, -1, 2**40, 2**52, 2**62, -(2**62), 2**63 - 1, -(2**63))
WORDS = (
    "", "m1.0", "w1.0", "d.0", "x", "\ud800", "é\0", "duplicate", "gap", "Superseded", "lost", "ok",
    "silence", "forget", "timeout", "unknown", "TAKE", "DONE", "READY", "received", "send", "run",
)  # fmt: skip
ENDS = ("plain", "ok", "error", "lost", "timeout", "cancelled", "what-will-be", "")
OTHERS = (None, 1.5, 2**70, True, [], [None], [[1]], {}, {"a": None}, {"\ud800": 1}, math.nan)
KINDS = {column.name: column.type for column in COLUMNS}


def several(random: Random, values: tuple[Any, ...]) -> list[Any]:
    return random.choices(values, k=random.choice((0, 1, 1, 2, 4, 9)))


VALUES: dict[Type, Callable[[Random], Any]] = {
    Type.INTEGER: lambda random: random.choice(NUMBERS),
    Type.TEXT: lambda random: random.choice(WORDS),
    Type.TRUTH: lambda random: True,
    Type.INTEGERS: lambda random: several(random, (*NUMBERS, None)),
    Type.TEXTS: lambda random: several(random, ENDS),
    Type.AMOUNTS: lambda random: dict.fromkeys(several(random, ("slots", "", "gpu")), 2**63 - 1),
    Type.NUMBERS: lambda random: {
        "max_silence": random.choice((0, -1, 1e300, math.inf, 2**63 - 1))
    },
}


def mutate(random: Random, rows: list[dict[str, Any]]) -> None:
    """Change a column of a line, mostly to another value of its type; or remove a column."""
    row = random.choice(rows)
    name = random.choice((*row, *row, *KINDS)[: 3 * len(row)])
    chance = random.random()
    if name == "v":
        return
    if chance < 0.15:
        row.pop(name, None)
    elif chance < 0.3:
        row[name] = random.choice(OTHERS)
    else:
        row[name] = VALUES[KINDS[name]](random)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return sound_journal(tmp_path_factory.mktemp("sound"))


def reported(rows, folder):
    """Make a report of lines, and check that each line was used or counted."""
    text = [json.dumps(row) for row in rows]
    (folder / "all-1-000001.jsonl").write_text("\n".join([*text, ""]))
    reported = report(folder, folder / "out")
    summary = reported.result.summary
    good = {line for line in text if not isinstance(parse([line.encode()], ["a"])[0], str)}
    assert (summary["lines"], summary["lines repeated"]) == (len(good), 0)
    assert summary["bad lines"] == len(text) - len(good)
    tables = {
        table: Tables(None, str(folder / "out")).dataset(table).to_table() for table in TABLES
    }
    kinds = tables["nodes"]["kind"].to_pylist()
    for kind in ("manager", "worker", "device"):
        assert summary[f"{kind}s"] == kinds.count(kind)
    assert reported.page.read_text().endswith("</html>")


@pytest.mark.parametrize(
    "seeds", [range(16), *(pytest.param(range(n, n + 50), marks=pytest.mark.deep)
                           for n in range(1000, 2000, 50))]
)  # fmt: skip
def test_changed_columns_do_not_end_the_report(rows, tmp_path, seeds):
    for seed in seeds:
        random, some = Random(seed), json.loads(json.dumps(rows))
        for _ in range(random.randint(1, 6)):
            mutate(random, some)
        print("seed", seed)
        (tmp_path / str(seed)).mkdir()
        reported(some, tmp_path / str(seed))


TAILS = (
    b"", b',"shoes":"\xff"', b',"shoes":"\\q"', b',"shoes":"\\ud800"', b',"sh\xffoes":1',
    b',"shoes":[1', b',"shoes":01', b',"shoes":NaN', b',"shoes":' + b"[" * 5000 + b"]" * 5000,
    b',"label":"\xc3\xa9"', b',"label":"null"', b',"label":"\\ud83d\\ude00"', b',"label":"\\ud83d"',
    b',"epoch":null', b',"epoch":1.0', b',"epoch":true', b',"epoch":9223372036854775808',
    b',"v":1.0', b',"n":-1', b',"at":9007199254740992', b',"wall":-1', b',"ids":[1],"last":1',
    b',"ids":[1],"last":3,"attempts":[1,2]', b',"ids":[1],"last":3,"attempts":[1,2,3]',
    b',"attempts":[1,2]', b',"ends":["x"]', b',"ends":["ok"]', b',"ids":[4,5],"left":[null,1]',
    b',"ids":[null]', b',"settings":{"a":9007199254740993}', b',"resources":{"a":1.0}',
    b',"what":"run"', b',"what":7', b'} {', b',"node":"m",',
)  # fmt: skip


def test_both_ways_of_parsing_a_line_agree(rows):
    """The fast way must not accept a line that the check of the schema refuses."""
    begin = b'{"v":1,"node":"m","epoch":1,"n":5,"step":1,"at":0,"wall":5,"what":"ticked"'
    texts = [begin + tail + b"}" for tail in TAILS]
    for seed in range(300):
        random, some = Random(seed), json.loads(json.dumps(rows[:40]))
        for _ in range(20):
            mutate(random, some)
        texts += [json.dumps(row).encode() for row in some]

    pairs = [(*parse([text], ["a"]), parse_slowly(text, "a")) for text in texts]

    assert [text for text, (first, other) in zip(texts, pairs, strict=True) if first != other] == []
    kinds = {type(first) for first, _ in pairs}
    assert kinds == {str, LineRow}


def test_lines_are_parsed_at_once_as_one_by_one(rows):
    first, two, three, *more = (json.dumps(row).encode() for row in rows[:40])
    begin, comma, end = three.partition(b",")
    for some in (
        [first, two, three, *more], [first, b"", two], [first, two, three + b"}"], [first + two],
        [first + two, begin + comma, end],  # as many objects as lines
    ):  # fmt: skip
        assert parse(some, ["a"] * len(some)) == [parse_slowly(text, "a") for text in some]


MUTATIONS: dict[str, tuple[tuple[str, str | None, str], dict[str, Any]]] = {
    "half of a pair of surrogates": (("submitted", None, "m"), {"role": "\ud800"}),
    "a job without a number": (("resolve", None, "m"), {"ids": [None]}),
    "an unknown end": (("resolve", None, "m"), {"ends": ["what-will-be"]}),
    "a list in place of an end": (("resolve", None, "m"), {"ends": [[1]]}),
    "no end at all": (("resolve", None, "m"), {"ends": []}),
    "no outcome": (("received", "DONE", "m"), {"outcomes": []}),
    "an unknown command": (("received", "READY", "m"), {"command": "WHAT"}),
    "a DONE without a number": (("received", "DONE", "m"), {"number": None}),
    "an end before its job": (("resolve", None, "m"), {"n": 1}),
    "a time that no clock shows": (("received", "TAKE", "w"), {"at": 2**63 - 1}),
    "the last time that a clock shows": (("received", "TAKE", "w"), {"at": 2**53 - 1}),
    "a node without a start": (("received", "TAKE", "w"), {"node": "x"}),
    "a lane that needs the greatest number": (("run", None, "w"), {"needs": {"slots": 2**63 - 1}}),
    "a limit without an end": (("start", None, "m"), {"settings": {"max_silence": math.inf}}),
    "a number that a real number cannot hold": (("start", None, "m"),
                                                {"settings": {"max_silence": 2**63 - 1}}),
    "the number of a state": (("received", "TAKE", "w"), {"n": -(1 << 62)}),
}  # fmt: skip


@pytest.mark.parametrize("title", MUTATIONS)
def test_a_line_that_no_node_would_write(rows, tmp_path, title):
    (what, command, at), change = MUTATIONS[title]
    journal = Journal(json.loads(json.dumps(rows)))
    row = journal.find(what, command, at=at)
    row |= change
    if row.get("number", 0) is None:
        del row["number"]

    reported(journal.rows, tmp_path)
