"""List every rule of the protocols with the tests that hold it, in ``rules.toml``.

The pages of the protocols are those of ``PAGES``. The rules of WMP alone go to
``wmp/conformance/script/rules.json`` for the conformance kit. The table in ``testee.md`` gives the
profile of each of them. The profile of any other rule is the name of its page.

::

    python specs/build_rules.py            # write rules.toml
    python specs/build_rules.py --check    # exit 1 when it is stale

A rule is a list item ``- **WMP-3.7** (manager) text``, with the prefix of its page. A test holds a
rule when it carries ``@pytest.mark.rule("WMP-3.7")``: on the function, on its class, in a
``pytest.param`` of its decorators, or in ``pytestmark``. Files are read and not imported, so that
the list does not depend on installed packages.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "specs" / "wmp.md"
PAGES: Mapping[str, Path] = {
    "WMP": SPEC,
    "CALL": ROOT / "specs" / "calls.md",
    "DSP": ROOT / "specs" / "dispatcher.md",
    "FLEET": ROOT / "specs" / "fleet.md",
    "FREE": ROOT / "specs" / "freelance.md",
    "MDP": ROOT / "specs" / "majordomo.md",
    "PING": ROOT / "specs" / "ping-pong.md",
    "PIRATE": ROOT / "specs" / "pirates.md",
    "ROWS": ROOT / "specs" / "rows.md",
    "RR": ROOT / "specs" / "round-robin.md",
    "STAR": ROOT / "specs" / "binary-star.md",
    "STORE": ROOT / "specs" / "store.md",
    "VALUE": ROOT / "specs" / "values.md",
}
"""The page of each prefix."""

PARTS: tuple[Path, ...] = tuple(
    ROOT / "specs" / f"{name}.md"
    for name in ("successor", "conversations", "standby", "forwarding", "reference")
)
"""The pages of further sections of WMP, and its appendix."""

TESTEE = ROOT / "specs" / "testee.md"
RULES = ROOT / "specs" / "rules.toml"
TESTS = ROOT / "tests"
KIT = ROOT / "wmp" / "conformance" / "script" / "rules.json"

UNTESTED: Mapping[str, str] = {}
"""Each rule that no test can check, and the reason. This table should stay empty."""

_SECTION = re.compile(r"^## (\d+)\. (.+)$")
_RULE = re.compile(r"^- \*\*(([A-Z]+)-(\d+)\.\d+)\*\* \(([a-z]+)\) (.+)$")
_LOOKS_LIKE_A_RULE = re.compile(r"^- \*\*[A-Z]+-\d")
_RESERVED = re.compile(r"^\| rule \| ([A-Z]+-\d+)\.(\d+)(?: to \1\.(\d+))? \|", re.MULTILINE)
_PROFILE = re.compile(r"^\| `([a-z-]+)` \| .+ \| ([0-9. ]+) \|$")
_LEVELS = ("must", "should", "may")


@dataclass(frozen=True)
class Rule:
    """One numbered rule of the specification."""

    id: str
    section: int
    title: str
    who: str
    text: str

    @property
    def level(self) -> str:
        """Return ``must``, ``should`` or ``may``: the strongest word in it; else ``must``."""
        return next(
            (level for level in _LEVELS if re.search(rf"\b{level.upper()}\b", self.text)), "must"
        )

    @property
    def profile(self) -> str:
        """Return the part of the protocol to which the rule belongs."""
        prefix, _, number = self.id.partition("-")
        if prefix != "WMP":
            return PAGES[prefix].stem
        return PROFILES.get(number) or PROFILES[str(self.section)]

    @property
    def testable(self) -> str:
        """Return ``required``, ``optional``, or ``untested because`` and the reason."""
        if reason := UNTESTED.get(self.id):
            return f"untested because {reason}"
        return "optional" if self.level == "may" else "required"


class SpecError(ValueError):
    """The specification or a marker does not have the expected form."""


def parse_profiles(text: str) -> dict[str, str]:
    """Read the table of profiles: the profile of each section, and of rules that differ from
    theirs.

    Raises:
        SpecError: A section or rule is there twice.
    """
    profiles: dict[str, str] = {}
    for line in text.splitlines():
        if row := _PROFILE.match(line):
            for number in row[2].split():
                if number in profiles:
                    raise SpecError(f"{number} belongs to {profiles[number]} and to {row[1]}")
                profiles[number] = row[1]
    return profiles


PROFILES: Mapping[str, str] = parse_profiles(TESTEE.read_text(encoding="utf-8"))


def whole_spec() -> str:
    """Return the specification of WMP with the sections that are pages of their own."""
    texts = [path.read_text(encoding="utf-8") for path in PARTS]
    parts = [text[text.index("\n## ") + 1 :] for text in texts]
    return "\n".join([SPEC.read_text(encoding="utf-8"), *parts])


def parse_rules(spec: str, prefix: str = "WMP") -> list[Rule]:
    """Read the rules of a specification, in its order.

    Args:
        spec: The page.
        prefix: The beginning of the numbers of its rules.

    Raises:
        SpecError: An item looks like a rule but has another form, or a number is reserved, is used
            twice, or is above the next of its section.
    """
    rules: list[Rule] = []
    section, title = 0, ""
    lines = spec.splitlines()
    reserved = reserved_rules(spec)
    seen: dict[tuple[int, int], int] = {}
    for index, line in enumerate(lines):
        if heading := _SECTION.match(line):
            section, title = int(heading[1]), heading[2]
        elif _LOOKS_LIKE_A_RULE.match(line):
            item = _RULE.match(line)
            if item is None or item[2] != prefix:
                raise SpecError(
                    f"line {index + 1}: expected `- **{prefix}-x.y** (who) text`: {line}"
                )
            id, number = item[1], int(item[1].rpartition(".")[2])
            if id in reserved:
                raise SpecError(
                    f"line {index + 1}: {id} is reserved; delete its row of the reserved numbers"
                )
            if int(item[3]) != section or (section, number) in seen:
                raise SpecError(f"line {index + 1}: {id} is in section {section}, or used twice")
            seen[section, number] = index + 1
            text = [item[5], *_continuation(lines[index + 1 :])]
            rules.append(Rule(id, section, title, item[4], " ".join(text)))
    at, last = 0, 0
    for (where, number), row in sorted(seen.items()):
        at, last = where, last if where == at else 0
        while f"{prefix}-{at}.{last + 1}" in reserved:
            last += 1
        if number != last + 1:
            raise SpecError(f"line {row}: {prefix}-{at}.{number} follows {prefix}-{at}.{last}")
        last = number
    return rules


def reserved_rules(spec: str) -> frozenset[str]:
    """Return the numbers of rules that the table of reserved numbers keeps for later.

    Args:
        spec: The page. A row is ``| rule | WMP-6.30 to WMP-6.33 | …``, or has one number.
    """
    return frozenset(
        f"{section}.{number}"
        for section, first, last in _RESERVED.findall(spec)
        for number in range(int(first), int(last or first) + 1)
    )


def read_pages() -> list[Rule]:
    """Read the rules of all pages.

    Raises:
        SpecError: As for :func:`parse_rules`.
    """
    return [
        rule
        for prefix, page in PAGES.items()
        for rule in parse_rules(
            whole_spec() if page == SPEC else page.read_text(encoding="utf-8"), prefix
        )
    ]


def _continuation(lines: Iterable[str]) -> Iterator[str]:
    """Yield the indented lines that continue an item."""
    for line in lines:
        if not line.startswith("  ") or not line.strip():
            return
        yield line.strip()


def collect(tests: Path, root: Path = ROOT) -> dict[str, list[str]]:
    """Map each rule named by a marker to the node ids of its tests, sorted.

    Raises:
        SpecError: A marker is in a place that pytest ignores, or names no text.
    """
    held: dict[str, set[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        file = path.relative_to(root).as_posix()
        used: set[ast.Call] = set()
        for node, markers in _tests(tree, used):
            for id in markers:
                held.setdefault(id, set()).add(f"{file}::{node}")
        for call in _markers(tree):
            if call not in used:
                raise SpecError(
                    f"{file}:{call.lineno}: a rule marker that no test carries; put it on a test, "
                    "its class, or in pytestmark"
                )
    return {id: sorted(nodes) for id, nodes in held.items()}


def _tests(tree: ast.Module, used: set[ast.Call]) -> Iterator[tuple[str, list[str]]]:
    """Yield each test of a module with the rules that its markers name."""
    everywhere = _assigned(tree.body, "pytestmark", used)
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test"):
                yield node.name, everywhere + _decorated(node, used)
            case ast.ClassDef() if node.name.startswith("Test"):
                yield from _class(node, everywhere, tree, used)
            case ast.Assign(targets=[ast.Name(id=name)]) if name.startswith("Test"):
                # For example TestWorld = World.TestCase, as with Hypothesis.
                yield name, everywhere + _assigned(tree.body, f"{name}.pytestmark", used)


def _class(
    node: ast.ClassDef, everywhere: list[str], tree: ast.Module, used: set[ast.Call]
) -> Iterator[tuple[str, list[str]]]:
    markers = everywhere + _decorated(node, used) + _assigned(node.body, "pytestmark", used)
    markers += _assigned(tree.body, f"{node.name}.pytestmark", used)
    methods = [
        item
        for item in node.body
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and item.name.startswith("test")
    ]
    if not methods:  # the tests are inherited
        yield node.name, markers
    for method in methods:
        yield f"{node.name}::{method.name}", markers + _decorated(method, used)


def _decorated(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, used: set[ast.Call]
) -> list[str]:
    return [id for item in node.decorator_list for id in _ids(item, used)]


def _assigned(body: Iterable[ast.stmt], name: str, used: set[ast.Call]) -> list[str]:
    return [
        id
        for node in body
        if isinstance(node, ast.Assign) and any(ast.unparse(t) == name for t in node.targets)
        for id in _ids(node.value, used)
    ]


def _ids(tree: ast.AST, used: set[ast.Call]) -> Iterator[str]:
    for call in _markers(tree):
        used.add(call)
        for argument in call.args:
            if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                raise SpecError(f"line {call.lineno}: a rule marker takes literal texts")
            yield argument.value


def _markers(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield every call of ``….mark.rule(…)``, but not calls of Hypothesis' ``rule()``."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="mark"), attr="rule")):
                yield node


def render(rules: Iterable[Rule], held: Mapping[str, list[str]]) -> str:
    """Return the rules and their tests as TOML."""
    parts = ["# Written by specs/build_rules.py from the pages of specs/ and the tests' markers.\n"]
    for rule in rules:
        tests = held.get(rule.id, [])
        listed = "".join(f"    {_quote(test)},\n" for test in tests)
        parts.append(
            "\n[[rule]]\n"
            f"id = {_quote(rule.id)}\n"
            f"section = {_quote(f'{rule.section}. {rule.title}')}\n"
            f"who = {_quote(rule.who)}\n"
            f"level = {_quote(rule.level)}\n"
            f"profile = {_quote(rule.profile)}\n"
            f"testable = {_quote(rule.testable)}\n"
            f"text = {_quote(rule.text)}\n"
            + (f"tests = [\n{listed}]\n" if tests else "tests = []\n")
        )
    return "".join(parts)


def render_kit(rules: Iterable[Rule]) -> str:
    """Return the rules of WMP as JSON, one on a line."""
    entries = (
        {key: getattr(rule, key) for key in ("id", "who", "level", "profile", "text")}
        for rule in rules
        if rule.id.startswith("WMP-")
    )
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    return f"[\n{lines}\n]\n"


def _quote(text: str) -> str:
    # A JSON string is a TOML basic string.
    return json.dumps(text, ensure_ascii=False)


def main(argv: list[str] | None = None) -> int:
    """Write ``rules.toml``, or with ``--check`` only compare; return the exit code."""
    parser = argparse.ArgumentParser(
        description="List the rules of the protocols with their tests."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when stale")
    check = parser.parse_args(argv).check
    try:
        rules, held = read_pages(), collect(TESTS)
    except SpecError as error:
        print(error, file=sys.stderr)
        return 2
    for path, text in ((RULES, render(rules, held)), (KIT, render_kit(rules))):
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{path.name} is stale: run python specs/build_rules.py", file=sys.stderr)
            return 1
    bare = [rule.id for rule in rules if rule.testable == "required" and rule.id not in held]
    print(f"{len(rules)} rules, {len(bare)} without a test" + "".join(f"\n  {id}" for id in bare))
    return 0


if __name__ == "__main__":
    sys.exit(main())
