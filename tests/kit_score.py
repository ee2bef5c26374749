"""The mutation score of the conformance kit: how many mutants the kit names by their own rule.

    python tests/kit_score.py            # the cases of each mutant's rule
    python tests/kit_score.py --whole    # all cases, some minutes

A mutant is an honest peer of this project with one fault. There is at least one for each rule and
each role that the rule binds, but for the rules of ``UNTESTABLE`` and those that allow and do not
demand. A mutant counts if the kit accuses it of its own rule. The exit code is 1 below the bar.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from attrs import field, frozen

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.conformance.broken_peers import BentPeer
from tests.conformance.generated_mutants import generated
from tests.conformance.test_broken_peers import PEERS, accused
from wmp.conformance.engine.check import cases_for
from wmp.conformance.script.case import Case
from wmp.conformance.script.rules import RULES, UNTESTABLE

BAR = 0.95
"""The part of the rules with a mutant that must be named by their own rule."""


@frozen
class KitScore:
    """The mutants by role and rule, and those that the kit did not name by their own rule."""

    rules: dict[tuple[str, str], int]
    """Number of mutants by (role, rule)."""
    missed: dict[tuple[str, str], list[str]] = field(factory=dict)
    """Names of the mutants that were not accused of their own rule, by (role, rule)."""

    @property
    def score(self) -> float:
        """The part of the rules of which every mutant was accused."""
        return 1 - len(self.missed) / len(self.rules)

    @property
    def bare(self) -> list[tuple[str, str]]:
        """The binding rules without a mutant, by (role, rule)."""
        return [
            (role, rule.id)
            for role in ("manager", "worker", "device")
            for rule in RULES.values()
            if rule.binds(role) and rule.level != "may" and (role, rule.id) not in self.rules
        ]

    @property
    def good_enough(self) -> bool:
        """Whether the score is at the bar, and each testable rule has a mutant."""
        return self.score >= BAR and all(rule in UNTESTABLE for rule in self.bare)

    def lines(self) -> Iterator[str]:
        """Yield the lines for people."""
        for (role, rule), names in sorted(self.missed.items()):
            yield f"missed: {role} {rule}: {', '.join(names)}"
        bare = [f"{role} {rule}" for role, rule in self.bare if (role, rule) not in UNTESTABLE]
        yield f"{len(UNTESTABLE)} rules of a role cannot be tested over the wire"
        yield f"rules without a mutant: {', '.join(bare) or 'none'}"
        yield (
            f"{sum(self.rules.values())} mutants of {len(self.rules)} rules of a role; "
            f"{len(self.rules) - len(self.missed)} named by their own rule: {self.score:.1%}"
        )


def _cases(peer: BentPeer, *, whole: bool) -> Sequence[Case]:
    """Return the cases of the mutant's profiles: those of its rule, or all of them."""
    return cases_for(peer.testee, peer.profiles, () if whole else [peer.rule])


def measure(mutants: Iterable[BentPeer] | None = None, *, whole: bool = False) -> KitScore:
    """Play mutants, and return the score.

    Args:
        mutants: The mutants; None for all.
        whole: Play all cases, and not only those of the mutant's rule.
    """
    rules: dict[tuple[str, str], int] = {}
    missed: dict[tuple[str, str], list[str]] = {}
    for peer in (*PEERS, *generated()) if mutants is None else mutants:
        rule_key = peer.testee, peer.rule
        rules[rule_key] = rules.get(rule_key, 0) + 1
        with pytest.MonkeyPatch.context() as patch:
            if peer.switch is not None:
                peer.switch(patch)
            accusations = accused(peer, _cases(peer, whole=whole))
        # A required field may be in a command that no case of the rule needs.
        if peer.rule not in accusations and not whole:
            accusations = accused(peer, _cases(peer, whole=True))
        if peer.rule not in accusations:
            missed.setdefault(rule_key, []).append(peer.name)
    return KitScore(rules, missed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the score; return 1 below the bar."""
    parser = argparse.ArgumentParser(description="print the mutation score of the kit")
    parser.add_argument("--whole", action="store_true", help="play all cases with each mutant")
    score = measure(whole=parser.parse_args(arguments).whole)
    print("\n".join(score.lines()))
    return int(not score.good_enough)


if __name__ == "__main__":
    sys.exit(main())
