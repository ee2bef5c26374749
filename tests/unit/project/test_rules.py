"""Every rule of the specification has a test, and the list of rules is up to date."""

from __future__ import annotations

import json
import re
import textwrap
import tomllib

import build_rules
import pytest
from build_rules import (
    PAGES,
    ROOT,
    RULES,
    SPEC,
    TESTS,
    UNTESTED,
    SpecError,
    collect,
    parse_rules,
    read_pages,
    render,
    reserved_rules,
)

from tests.house import house_files

RULES_OF_SPEC = read_pages()


@pytest.fixture(scope="module")
def held():
    """Return the tests of each rule."""
    return collect(TESTS)


# The project's own list -----------------------------------------------------------------


def test_rules_toml_is_up_to_date(held):
    expected = render(RULES_OF_SPEC, held)

    assert expected == RULES.read_text(encoding="utf-8"), (
        "specs/rules.toml is stale: run python specs/build_rules.py"
    )


def test_every_binding_rule_has_a_test_or_a_reason(held):
    bare = [r for r in RULES_OF_SPEC if r.testable == "required" and r.id not in held]

    if bare:
        lines = [f"  {rule.id} ({rule.who}) {rule.text[:90]}" for rule in bare]
        text = f"{len(bare)} of {len(RULES_OF_SPEC)} rules have no test:\n" + "\n".join(lines)
        pytest.fail(text, pytrace=False)


def test_every_marker_names_a_rule(held):
    known = {rule.id for rule in RULES_OF_SPEC}
    wrong = {id: tests for id, tests in held.items() if id not in known}

    assert not wrong, f"markers that name no rule of specs/: {wrong}"


def test_reasons_are_for_rules_that_have_no_test(held):
    known = {rule.id for rule in RULES_OF_SPEC}

    for id, reason in UNTESTED.items():
        assert id in known, f"{id} is not a rule"
        assert id not in held, f"{id} has a test: {held[id]}"
        assert len(reason.split()) >= 4, f"{id}: {reason!r} is no reason"


def test_the_numbers_of_the_rules_are_unique():
    ids = [rule.id for rule in RULES_OF_SPEC]

    assert len(ids) == len(set(ids)) > 90


def test_every_rule_that_is_cited_exists():
    known = {rule.id for rule in RULES_OF_SPEC}
    cited = {
        (id, path.relative_to(ROOT).as_posix())
        for path in house_files(".py", ROOT / "wmp") + house_files(".md")
        for id in re.findall(rf"\b(?:{'|'.join(PAGES)})-\d+\.\d+", path.read_text(encoding="utf-8"))
    }
    promised = reserved_rules(SPEC.read_text(encoding="utf-8"))

    assert {id for id, _ in cited} >= known
    assert not {(id, path) for id, path in cited if id not in known | promised}


def test_the_issues_are_numbered_and_cite_rules():
    text = (SPEC.parent / "issues.md").read_text(encoding="utf-8")
    issues = re.split(r"^\*\*(?=\d+\. )", text, flags=re.MULTILINE)[1:]

    assert [str(n) for n in range(1, 41)] == [issue.partition(".")[0] for issue in issues]
    for issue in issues:
        assert re.search(r"\*Chosen:\*.*WMP-\d", issue, re.DOTALL), issue.partition("*")[0]


# The program ----------------------------------------------------------------------------

SMALL = """\
# A protocol

## 1. Words

Prose about MUST.

- **WMP-1.1** (all) A peer MUST have a name,
  which is "text".
- **WMP-1.2** (worker) It SHOULD be short. It MAY be long.

  Not part of it.
- **WMP-1.3** (device) It MAY hum.

## 2. Deeds

- **WMP-2.1** (end) Silence is an answer.
"""


def test_rules_are_read_with_their_levels():
    rules = parse_rules(SMALL)

    assert [rule.id for rule in rules] == ["WMP-1.1", "WMP-1.2", "WMP-1.3", "WMP-2.1"]
    assert [rule.level for rule in rules] == ["must", "should", "may", "must"]
    assert [rule.testable for rule in rules] == ["required", "required", "optional", "required"]
    assert rules[0].text == 'A peer MUST have a name, which is "text".'
    assert rules[1].text == "It SHOULD be short. It MAY be long."
    assert (rules[3].who, rules[3].section, rules[3].title) == ("end", 2, "Deeds")


@pytest.mark.parametrize(
    "line",
    [
        "- **WMP-1.1** (all) Twice.",
        "- **WMP-1.5** (all) A number left out.",
        "- **WMP-3.1** (all) In the wrong section.",
        "- **WMP-1.4** Bound to nobody.",
        "- **PING-1.4** (all) Of another page.",
    ],
)
def test_a_rule_written_wrongly_is_an_error(line):
    broken = SMALL.replace("\n## 2.", f"{line}\n\n## 2.")

    with pytest.raises(SpecError, match="line 13"):
        parse_rules(broken)


def test_each_page_has_its_prefix_and_each_rule_of_another_protocol_the_profile_of_its_page():
    text = SMALL.replace("WMP-", "PING-")

    assert [rule.profile for rule in parse_rules(text, "PING")] == ["ping-pong"] * 4
    with pytest.raises(SpecError, match=r"expected `- \*\*PIRATE-x\.y"):
        parse_rules(text, "PIRATE")


def test_the_kit_gets_the_rules_of_wmp_alone():
    ids = {rule["id"] for rule in json.loads(build_rules.KIT.read_text(encoding="utf-8"))}

    assert ids == {rule.id for rule in RULES_OF_SPEC if rule.id.startswith("WMP-")}


def test_a_written_list_can_be_read_back():
    rules = parse_rules(SMALL)
    text = render(rules, {"WMP-1.1": ['tests/test_a.py::test_b[\u00e9-"x"]']})

    read = tomllib.loads(text)["rule"]

    assert [rule.text for rule in rules] == [item["text"] for item in read]
    assert read[0]["tests"] == ['tests/test_a.py::test_b[é-"x"]']
    assert read[0]["section"] == "1. Words"
    assert read[3]["tests"] == []


def test_markers_are_found_wherever_pytest_looks(tmp_path):
    # The marker's name is written in two parts, so that this file has no such marker itself.
    (tmp_path / "test_all.py").write_text(
        textwrap.dedent(
            """
            import pytest
            from hypothesis.stateful import RuleBasedStateMachine, rule

            pytestmark = [pytest.mark.deep, pytest.mark.rule("R-0")]

            @pytest.mark.rule("R-1", "R-2")
            def test_function(): ...

            @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.rule("R-3"))])
            async def test_param(x): ...

            @pytest.mark.rule("R-4")
            class TestClass:
                pytestmark = pytest.mark.rule("R-5")

                @pytest.mark.rule("R-6")
                def test_method(self): ...

                def helper(self): ...

            class World(RuleBasedStateMachine):
                @rule()
                def step(self): ...

            TestWorld = World.TestCase
            TestWorld.pytestmark = [pytest.mark.rule("R-7")]

            def helper(): ...
            """
        )
    )

    held = collect(tmp_path, tmp_path)

    tests = ["TestClass::test_method", "TestWorld", "test_function", "test_param"]
    assert [f"test_all.py::{test}" for test in tests] == held.pop("R-0")
    assert held == {
        "R-1": ["test_all.py::test_function"],
        "R-2": ["test_all.py::test_function"],
        "R-3": ["test_all.py::test_param"],
        "R-4": ["test_all.py::TestClass::test_method"],
        "R-5": ["test_all.py::TestClass::test_method"],
        "R-6": ["test_all.py::TestClass::test_method"],
        "R-7": ["test_all.py::TestWorld"],
    }


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.rule('R-1')\ndef helper(): ...",
        "@pytest.mark.rule('R-1')\nclass World(RuleBasedStateMachine): ...",
        "CASES = [pytest.param(1, marks=pytest.mark.rule('R-1'))]",
        "ID = 'R-1'\n@pytest.mark.rule(ID)\ndef test_it(): ...",
    ],
)
def test_a_marker_that_holds_nothing_is_an_error(source, tmp_path):
    (tmp_path / "test_one.py").write_text(source)

    with pytest.raises(SpecError, match="marker"):
        collect(tmp_path, tmp_path)


def test_check_fails_when_the_list_is_stale(tmp_path, monkeypatch, capsys, held):
    monkeypatch.setattr(build_rules, "RULES", tmp_path / "rules.toml")
    monkeypatch.setattr(build_rules, "collect", lambda tests: held)

    assert build_rules.main(["--check"]) == 1
    assert "stale" in capsys.readouterr().err

    build_rules.main([])

    assert build_rules.main(["--check"]) == 0
