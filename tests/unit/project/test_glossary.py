"""The glossary names existing classes and files; neither pages nor code contain a replaced word."""

from __future__ import annotations

import ast
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.house import ROOT, house_files

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "specs/glossary.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| word |")
]
FILES = house_files(".py", ROOT / "wmp")
PAGES = [
    page
    for page in house_files(".md")
    if page.name == "README.md"
    or (page.relative_to(ROOT).parts[0] in ("specs", "docs") and page.name != "glossary.md")
]

SHARED = {"Device", "Job", "Manager", "Worker"}
"""Names of the public API that :mod:`wmp.aio` and :mod:`wmp.blocking` share on purpose."""

SHARED_GATEWAYS = {
    "Agent",
    "BinaryStar",
    "Failover",
    "FreelanceServer",
    "Gateway",
    "FrontDoor",
    "LazyClient",
    "LazyServer",
    "MajordomoClient",
    "MajordomoPipelinedClient",
    "MajordomoWorker",
    "ParanoidWorker",
    "PingPongWorker",
    "RoundRobinClient",
    "RoundRobinServer",
    "RoundRobinWorker",
    "Shotgun",
    "SimpleWorker",
    "Titanic",
    "StarClient",
}
"""Names that :mod:`wmp.gateways` and :mod:`wmp.gateways.aio` share on purpose."""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def classes() -> dict[str, list[Path]]:
    """Return every class of the library by name."""
    uses: dict[str, list[Path]] = defaultdict(list)
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                uses[node.name].append(path.relative_to(ROOT))
    return uses


def names_in_code(row: list[str]) -> list[str]:
    return re.findall(r"`([^`]+)`", row[2])


def test_a_class_name_stands_once_in_the_tree():
    places: dict[str, list[Path]] = defaultdict(list)
    for name, paths in classes().items():
        places[name.strip("_")] += paths
    several = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert several.keys() == SHARED | SHARED_GATEWAYS
    for name, paths in several.items():
        if name in SHARED:
            apis = sorted(path.parent.name for path in paths)
        else:
            apis = sorted(path.stem.partition("_")[0] for path in paths)
        assert apis == ["aio", "blocking"], name


def test_every_name_of_the_glossary_exists():
    assert [row for row in ROWS if len(row) != 4] == []
    known = {path.name for path in FILES} | classes().keys()
    names = [(row[0], name) for row in ROWS for name in names_in_code(row)]
    assert names
    assert [name for name in names if name[1] not in known] == []


def test_a_word_is_defined_once():
    words = Counter(row[0] for row in ROWS)
    assert [word for word, count in words.items() if count > 1] == []


@cache
def replaced() -> dict[str, str]:
    """Return each word that pages and names must not contain, and the word to use instead."""
    return {word: row[0] for row in ROWS for word in row[3].split(", ") if word and "`" not in word}


def test_a_replaced_word_names_no_class_and_no_module():
    kept = {word.lower() for word in (row[0] for row in ROWS)}
    names = {name.lower().strip("_") for name in classes()} | {path.stem for path in FILES}
    uses = [
        f"{word} is called {row[0]}"
        for row in ROWS
        for word in row[3].replace("`", "").split(", ")
        if word and word in names and word not in kept
    ]
    assert uses == []


def prose(text: str) -> str:
    """Return a page without code spans, which quote commands, options and keys."""
    return re.sub(r"`[^`\n]+`", "", text)


def test_no_page_contains_a_replaced_word():
    pattern = re.compile(rf"\b({'|'.join(replaced())})\b", re.IGNORECASE)
    uses = [
        f"{page.relative_to(ROOT)}:{number}: {match[0]} is called {replaced()[match[0].lower()]}"
        for page in PAGES
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        for match in pattern.finditer(prose(line))
    ]
    assert uses == []


@cache
def parts(name: str) -> list[str]:
    """Return the words of a name: ``_has_READYWindow`` gives has, ready, window."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def test_a_name_is_divided_into_its_words():
    assert parts("_has_READYWindow2") == ["has", "ready", "window"]


def defined(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each name that a module defines, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno


TEXT = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def test_no_sentence_in_the_code_contains_a_replaced_word():
    pattern = re.compile(rf"\b({'|'.join(replaced())})\b", re.IGNORECASE)
    uses = []
    for path in FILES:
        if not pattern.search(path.read_text(encoding="utf-8")):
            continue
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                if token.type in TEXT:
                    for match in pattern.finditer(prose(token.string)):
                        word = match[0].lower()
                        position = f"{path.relative_to(ROOT)}:{token.start[0]}"
                        uses.append(f"{position}: {word} is called {replaced()[word]}")
    assert uses == []


def test_no_name_in_the_code_contains_a_replaced_word():
    uses = [
        f"{path.relative_to(ROOT)}:{line}: {name}: {word} is called {replaced()[word]}"
        for path in FILES
        for name, line in defined(tree_of(path))
        for word in parts(name)
        if word in replaced()
    ]
    assert uses == []


RENAMED_ARGUMENTS = {"expire", "max_retries", "dead_worker_max_retries"}
"""Names of arguments and settings that were replaced; a method may still be named by the verb."""


def test_no_argument_and_no_setting_has_a_renamed_name():
    uses = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(tree_of(path))
        if (isinstance(node, ast.arg) and node.arg in RENAMED_ARGUMENTS)
        or (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id in RENAMED_ARGUMENTS
        )
    ]
    assert uses == []
