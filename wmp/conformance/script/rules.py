"""The rules of the specification, and the rules that the kit cannot test.

``rules.json`` beside this file is written by ``specs/build_rules.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Final

from attrs import frozen


@frozen
class Rule:
    """One numbered rule of ``specs/wmp.md``."""

    id: str
    """``WMP-section.n``."""
    who: str
    """The peers that the rule binds: all, end, manager, worker, device."""
    level: str
    """must, should or may; a rule without these words counts as must."""
    profile: str
    """The part of the protocol to which the rule belongs."""
    text: str
    """The text of the rule."""

    @property
    def order(self) -> tuple[int, ...]:
        """Section and number, by which rules are sorted."""
        return tuple(map(int, self.id.removeprefix("WMP-").split(".")))

    def binds(self, testee: str) -> bool:
        """Return whether the rule binds this kind of testee."""
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
    "times",
    "device",
    "secure",
    "standby",
    "forwarding",
    "successor",
    "dial-in",
)
"""The profiles that a testee may declare; every peer has ``core``."""

_PIPES = (
    "a pipe is full only when the high-water marks and the system's buffers are full, and the kit "
    "does not know their sizes; a lost connection is tested by WMP-8.8 and 9.12"
)
_OPTIONS = "the rule is about options of the peer's own sockets, which nothing on the wire shows"
_NO_HANDLERS = "managers and devices run no user code"
_UNREAD = "a device reads no frame behind the head (WMP-8.4)"
_FLOODS = "each device chooses its own limit of messages a second, and no case exceeds every limit"
_GRACE = "a manager may wait for `max_silence` instead; WMP-9.3 tests this wait"
_PAIRS = "the kit starts one manager at a time, and a manager alone is on standby for a short time"

_ONE_SIDE: Final = (
    "the kit plays managers or workers, and only a peer that plays both sees what a testee forwards"
)

_BEGINNINGS = "nothing on the wire shows whether a job that was cancelled had begun"
_STARTS = "nothing on the wire shows which job of its window a worker starts first"
_RESOURCES: Final = "no message makes a worker change its resources"

UNTESTABLE: Final[Mapping[tuple[str, str], str]] = {
    ("manager", "WMP-1.6"): _PIPES,
    ("worker", "WMP-1.6"): _PIPES,
    ("manager", "WMP-1.7"): _OPTIONS,
    ("worker", "WMP-1.7"): _OPTIONS,
    ("device", "WMP-1.7"): _OPTIONS,
    ("manager", "WMP-9.5"): _NO_HANDLERS,
    ("device", "WMP-9.5"): _NO_HANDLERS,
    ("device", "WMP-2.8"): _UNREAD,
    ("device", "WMP-2.9"): _UNREAD,
    ("manager", "WMP-9.16"): _GRACE,
    ("manager", "WMP-12.1"): _OPTIONS,
    ("device", "WMP-8.10"): _FLOODS,
    ("worker", "WMP-12.1"): _OPTIONS,
    ("worker", "WMP-3.15"): _RESOURCES,
    ("worker", "WMP-6.35"): _BEGINNINGS,
    ("worker", "WMP-3.16"): _STARTS,
    ("worker", "WMP-9.17"): "a worker sends beats only while its own process does not run",
    ("manager", "WMP-4.18"): "the jobs that the kit submits all need one slot",
    ("manager", "WMP-4.19"): "each manager chooses its own limit of leases",
    ("worker", "WMP-14.10"): "a worker sends PING to these managers in every interval anyway",
    ("device", "WMP-12.1"): _OPTIONS,
    ("device", "WMP-12.4"): _OPTIONS,
    ("manager", "WMP-17.1"): _PAIRS,
    ("manager", "WMP-17.2"): _PAIRS,
    **{("manager", f"WMP-19.{number}"): _ONE_SIDE for number in (3, 4, 6, 11, 12)},
    **{("worker", f"WMP-19.{number}"): _ONE_SIDE for number in (2, 5, 7, 8, 10, 13)},
}
"""The reason why no case can test a rule, by (kind of testee, rule)."""
