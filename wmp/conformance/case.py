"""A case and what became of it: the nouns that everything else in the kit is about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

from attrs import field, frozen

from wmp.conformance.rules import RULES, Rule
from wmp.conformance.transcript import TranscriptLine

__all__ = [
    "CASES",
    "Broken",
    "Case",
    "CaseResult",
    "Unimplemented",
    "Verdict",
    "case",
]


class Verdict(Enum):
    """What a case says about a testee."""

    OK = "OK"
    """The rule holds."""
    NON_STRICT = "NON-STRICT"
    """A SHOULD does not hold; a failure under ``--strict``."""
    UNIMPLEMENTED = "UNIMPLEMENTED"
    """The testee says, or shows, that it does not do this."""
    INFORMATIONAL = "INFORMATIONAL"
    """The rule allows; the text says what the testee does."""
    FAILED = "FAILED"
    """A rule is broken."""
    UNCLEAN = "UNCLEAN"
    """The case passed, but the testee did not end as it should."""


class Broken(AssertionError):
    """The testee broke a rule.

    Attributes:
        rule: Its id.
        text: What was seen and what was expected.
        level: must, should or may: of the part of the rule that is broken.
    """

    def __init__(self, rule: str, text: str, level: str = "") -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule
        self.text = text
        self.level = level or RULES[rule].level


class Unimplemented(Exception):
    """The testee shows that it does not do what a case is about."""


@frozen
class Case:
    """A script for one rule or a few, to be played with one kind of testee."""

    id: str
    """``kind/words-of-the-script``, unique."""
    testee: str
    """manager, worker or device."""
    rules: tuple[str, ...]
    """What it is about; the first is the one that an unmet expectation breaks."""
    script: Callable[[Any], None]
    """Takes a :class:`~wmp.conformance.talk.Talk`; raises :class:`Broken`."""
    slots: int = 1
    """Jobs that a worker must be able to run at once."""
    links: int = 1
    """Endpoints that a worker or device must connect to."""
    profile: str = "core"
    """Of the first rule, unless the case needs more."""

    @property
    def about(self) -> str:
        """The first line of the script's docstring."""
        return (self.script.__doc__ or "").partition("\n")[0]

    @property
    def level(self) -> str:
        """must, should or may: of the first rule."""
        return RULES[self.rules[0]].level

    @property
    def rule(self) -> Rule:
        """The first rule."""
        return RULES[self.rules[0]]


@frozen
class CaseResult:
    """What became of a case with one testee."""

    case: Case
    verdict: Verdict
    rule: str
    """The rule that is broken; else the case's first."""
    text: str = ""
    """Why, for people."""
    lines: Sequence[TranscriptLine] = ()
    """The conversation."""
    units: float = 0.0
    """How long it took, in units."""
    seed: int | None = None
    """Of what was drawn, None for a script."""
    script: Sequence[Any] = field(default=())
    """What was drawn, as JSON values: replays it."""
    stderr: str = ""
    """The end of what a live testee wrote there."""

    @property
    def breaks(self) -> tuple[str, ...]:
        """The rules that do not hold: what was seen to break, and what the case is about.

        They differ when something that must always be so was broken on the way.
        """
        if self.verdict not in (Verdict.FAILED, Verdict.NON_STRICT):
            return ()
        return tuple(dict.fromkeys((self.rule, self.case.rules[0])))


CASES: Final[dict[str, Case]] = {}
"""Every case by its id, in the order of definition."""


def case(
    *rules: str, slots: int = 1, links: int = 1, profile: str | None = None
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register a script as a case; its module's name begins with the kind of testee."""

    def register(script: Callable[[Any], None]) -> Callable[[Any], None]:
        testee = script.__module__.rpartition(".")[2].partition("_")[0]
        id = f"{testee}/{script.__name__.replace('_', '-')}"
        if id in CASES:
            raise ValueError(f"two cases are called {id}")
        of = profile or RULES[rules[0]].profile
        CASES[id] = Case(id, testee, rules, script, slots, links, of)
        return script

    return register
