"""A case and its result: the nouns on which the rest of the kit builds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

from attrs import field, frozen

from wmp.conformance.script.rules import RULES, Rule
from wmp.conformance.script.transcript import TranscriptLine


class Verdict(Enum):
    """The result of one case with a testee."""

    OK = "OK"
    """The rule holds."""
    NON_STRICT = "NON-STRICT"
    """A SHOULD does not hold; a failure under ``--strict``."""
    UNIMPLEMENTED = "UNIMPLEMENTED"
    """The testee declares, or shows, that it does not implement the subject of the case."""
    INFORMATIONAL = "INFORMATIONAL"
    """The rule allows several ways; the text names the way that was observed."""
    FAILED = "FAILED"
    """A rule is broken."""
    UNCLEAN = "UNCLEAN"
    """The case passed, but the testee did not exit cleanly."""
    VOID = "VOID"
    """The case failed while the machine was too busy for the kit. So the failure shows nothing."""


class Broken(AssertionError):
    """The testee broke a rule.

    Attributes:
        rule: The id of the rule.
        text: The observation and the expectation.
        level: must, should or may: the level of the broken part of the rule.
        accused: The line of the message that breaks the rule, counted from the start of the
            conversation; None if no message is the breach.
    """

    def __init__(
        self, rule: str, text: str, level: str = "", *, accused: int | None = None
    ) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule
        self.text = text
        self.level = level or RULES[rule].level
        self.accused = accused


class Unimplemented(Exception):
    """The testee shows that it does not implement the subject of the case."""


@frozen
class Case:
    """A script for one rule or a few, to be played with one kind of testee."""

    id: str
    """``kind/words-of-the-script``; no two cases have the same id."""
    testee: str
    """manager, worker or device."""
    rules: tuple[str, ...]
    """The rules that the case tests. By default an unmet expectation breaks the first rule."""
    script: Callable[[Any], None]
    """Takes a :class:`~wmp.conformance.peers.conversation.Conversation`; raises :class:`Broken`."""
    slots: int = 1
    """Number of jobs that the worker must be able to run at the same time."""
    links: int = 1
    """Number of endpoints to which the worker or device must connect."""
    profile: str = "core"
    """The profile of the first rule, unless the case needs another one."""

    @property
    def about(self) -> str:
        """The first line of the script's docstring."""
        return (self.script.__doc__ or "").partition("\n")[0]

    @property
    def level(self) -> str:
        """The level of the first rule: must, should or may."""
        return RULES[self.rules[0]].level

    @property
    def rule(self) -> Rule:
        """The first rule."""
        return RULES[self.rules[0]]


@frozen
class CaseResult:
    """The result of one case with one testee, and its conversation."""

    case: Case
    verdict: Verdict
    rule: str
    """The broken rule; the first rule of the case when none is broken."""
    text: str = ""
    """The reason, in words."""
    lines: Sequence[TranscriptLine] = ()
    """The conversation."""
    units: float = 0.0
    """The duration in units."""
    seed: int | None = None
    """The seed of a drawn conversation; None for a script."""
    script: Sequence[Any] = field(default=())
    """The moves of a drawn conversation, as JSON values; they replay it."""
    stderr: str = ""
    """The end of a live testee's stderr."""

    @property
    def breaks(self) -> tuple[str, ...]:
        """The rule that does not hold. A failed case shows nothing about its other rules."""
        return (self.rule,) if self.verdict in (Verdict.FAILED, Verdict.NON_STRICT) else ()


CASES: Final[dict[str, Case]] = {}
"""Every case by its id, in the order of definition."""


def case(
    *rules: str, slots: int = 1, links: int = 1, profile: str | None = None
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register a script as a case. Its module is in the folder of a kind of testee."""

    def register(script: Callable[[Any], None]) -> Callable[[Any], None]:
        testee = script.__module__.split(".")[-2]
        id = f"{testee}/{script.__name__.replace('_', '-')}"
        if id in CASES:
            raise ValueError(f"two cases are called {id}")
        of = profile or RULES[rules[0]].profile
        CASES[id] = Case(id, testee, rules, script, slots, links, of)
        return script

    return register
