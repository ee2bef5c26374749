"""The rules of the specification, as the kit knows them: one value a rule.

``rules.json`` beside this file is written by ``specs/build_rules.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Final

from attrs import frozen

__all__ = ["PROFILES", "RULES", "Rule"]


@frozen
class Rule:
    """One numbered rule of ``specs/wmp.md``."""

    id: str
    """``WMP-section.n``."""
    who: str
    """Whom it binds: all, end, manager, worker, device."""
    level: str
    """must, should or may; a rule with none of these words binds like must."""
    profile: str
    """Which part of the protocol it belongs to."""
    text: str
    """The rule itself."""

    @property
    def order(self) -> tuple[int, ...]:
        """By section, then number."""
        return tuple(map(int, self.id.removeprefix("WMP-").split(".")))

    def binds(self, testee: str) -> bool:
        """Whether it is about this kind of testee."""
        return self.who in ("all", testee) or (self.who == "end" and testee != "device")


def _load() -> dict[str, Rule]:
    text = resources.files(__package__).joinpath("rules.json").read_text(encoding="utf-8")
    return {entry["id"]: Rule(**entry) for entry in json.loads(text)}


RULES: Final[Mapping[str, Rule]] = _load()
"""Every rule by its id, in the order of the specification."""

PROFILES: Final[tuple[str, ...]] = (
    "core",
    "columns",
    "liveness",
    "reliable",
    "held-give",
    "status-cancel",
    "device",
    "secure",
)
"""What a testee may say that it speaks; ``core`` is what every peer speaks."""
