"""The commands of `wmp` in the documents have only options that these commands know."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import ROOT, house_files

click = pytest.importorskip("click")

_FENCED = re.compile(r"^```(?:sh|shell|bash|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(wmp [^`\n]+)`")
_END = re.compile(r"[|;&<>#]")


def commands(document: Path) -> Iterator[list[str]]:
    """Yield the words of each command of `wmp`, up to a pipe, a redirection or a comment."""
    text = document.read_text(encoding="utf-8")
    lines = [line for block in _FENCED.findall(text) for line in joined(block)]
    for line in [*lines, *_INLINE.findall(text)]:
        for part in re.split(r"\|\s*|&&\s*|;\s*", line):
            match = re.match(r"(?:\$ |\S*/)?(wmp [a-z].*)", part.strip())
            if match is not None:
                try:
                    yield shlex.split(_END.split(match[1])[0])
                except ValueError:  # a quoted text that goes on behind the part
                    continue


def joined(block: str) -> list[str]:
    """Return the lines of a block; a backslash at the end of a line joins the next line."""
    return block.replace("\\\n", " ").splitlines()


def unknown(words: list[str]) -> list[str]:
    """Return the options of a command line that the command does not know."""
    from wmp.cli.program import command

    known = {"--help"}
    node = command
    known |= {
        option for parameter in node.params for option in parameter.opts + parameter.secondary_opts
    }
    rest = words[1:]
    while rest and isinstance(node, click.Group):
        child = node.get_command(click.Context(node), rest[0])
        if child is None:
            break
        node = child
        rest.pop(0)
        known |= {
            option
            for parameter in node.params
            for option in parameter.opts + parameter.secondary_opts
        }
    if "--" in rest:
        rest = rest[: rest.index("--")]
    return [word for word in rest if word.startswith("--") and word.partition("=")[0] not in known]


@pytest.mark.parametrize(
    "document", house_files(".md"), ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_a_command_in_a_document_has_only_known_options(document):
    for words in commands(document):
        assert unknown(words) == [], " ".join(words)


def test_an_unknown_option_is_noticed():
    assert unknown(["wmp", "worker", "tcp://127.0.0.1:5570", "--handler", "shout"]) == ["--handler"]
    assert unknown(["wmp", "gateway", "workers", "--control", "gate.control"]) == []
    assert unknown(["wmp", "worker", "--role", "hash", "--", "sha256sum", "--tag"]) == []
