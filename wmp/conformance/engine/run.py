"""Play cases with a live testee, several at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from threading import Lock
from typing import Any

from attrs import define, evolve, field, frozen

from wmp.conformance.engine.check import cases_for
from wmp.conformance.engine.draw import SPEAKS, draw, play_moves
from wmp.conformance.engine.socket_plays import LiveTestee, SocketWire
from wmp.conformance.moves.moves import Move, drawn_case
from wmp.conformance.peers.conversations import DeviceConversation
from wmp.conformance.report.report import ReportEntry, entry_of
from wmp.conformance.script.case import CASES, Case, CaseResult, Unimplemented, Verdict
from wmp.conformance.script.rules import PROFILES
from wmp.conformance.wire.wire import Wire

_SHRINKING = 60.0
"""Seconds for shortening a conversation in which a rule was broken."""


def drawn_id(testee: str) -> str:
    """Return the id of the entry for all drawn conversations."""
    return drawn_case(testee, ()).id


@frozen
class RunPlan:
    """The selection of a run, and how to play it.

    Args:
        live: How to start or reach the testee.
        cases: Scripts.
        examples: The number of drawn conversations; 0 for none.
        seed: The seed of the drawn conversations.
        profiles: The profiles of the testee; a case of another profile is UNIMPLEMENTED.
        moves: Conversations from earlier runs, to be played again.
        at_once: The number of cases played at a time.
    """

    live: LiveTestee
    cases: Sequence[Case] = ()
    examples: int = 0
    seed: int = 0
    profiles: Collection[str] = PROFILES
    moves: Sequence[Sequence[Move]] = ()
    at_once: int = 1

    @property
    def size(self) -> int:
        """The number of steps that :class:`KitRun` reports."""
        return len(self.cases) + self.examples + len(self.moves)


def unspoken(case: Case, profiles: Collection[str]) -> CaseResult | None:
    """Return the result of a case whose profile is missing; None for other cases."""
    drawn = case.id == drawn_id(case.testee) and case.testee != "device"
    needed = SPEAKS if drawn else {case.profile}
    missing = [profile for profile in PROFILES if profile in needed and profile not in profiles]
    if not missing:
        return None
    text = f"the testee does not implement the profile {', '.join(missing)}"
    return CaseResult(case, Verdict.UNIMPLEMENTED, case.rules[0], text)


def begins(live: LiveTestee) -> ReportEntry:
    """Return whether the testee starts and does its simplest work.

    Raises:
        OSError: The testee cannot be run.
        ValueError: The command is malformed.
    """

    def script(talk: Any) -> None:
        """The testee starts and works."""
        if isinstance(talk, DeviceConversation):
            talk.joined()  # the device needs time to connect, as in other conversations

    case = Case(f"{live.testee}/begins", live.testee, ("WMP-10.1",), script)
    began = time.monotonic()
    return entry_of(live.play(case), time.monotonic() - began)


@define(eq=False)
class KitRun:
    """Plays a plan; iterating gives entries as they come.

    Args:
        plan: The plan to play.
        progress: Called with the number of finished steps, from several threads.
    """

    plan: RunPlan
    progress: Callable[[int], None] = lambda steps: None
    _done: int = 0
    _lock: Lock = field(factory=Lock)

    def __iter__(self) -> Iterator[ReportEntry]:
        """Play the plan; yield each entry as soon as the entry is there.

        Raises:
            OSError: The testee cannot be run.
            ValueError: The command is malformed.
        """
        plan = self.plan
        with ThreadPoolExecutor(max(1, plan.at_once)) as threads:
            waiting: list[Future[ReportEntry]] = []
            try:
                if plan.examples:  # the drawn conversations come first, because they take longest
                    waiting.append(threads.submit(self._draw))
                waiting += [threads.submit(self._again, moves) for moves in plan.moves]
                waiting += [threads.submit(self._play, case) for case in plan.cases]
                for future in as_completed(waiting):
                    yield future.result()
            except BaseException:  # Ctrl-C too: end every testee that was started
                plan.live.over.set()
                threads.shutdown(cancel_futures=True)
                raise

    def _step(self, steps: int = 1) -> None:
        with self._lock:
            self._done += steps
            self.progress(self._done)

    def _play(self, case: Case) -> ReportEntry:
        began = time.monotonic()
        result = unspoken(case, self.plan.profiles) or self.plan.live.play(case)
        self._step()
        return entry_of(result, time.monotonic() - began)

    def _again(self, moves: Sequence[Move]) -> ReportEntry:
        began = time.monotonic()
        wires = _WireFactory(self.plan.live)
        result = play_moves(self.plan.live.testee, moves, wires)
        self._step()
        return entry_of(evolve(result, stderr=wires.stderr), time.monotonic() - began)

    def _draw(self) -> ReportEntry:
        plan, began = self.plan, time.monotonic()
        case = drawn_case(plan.live.testee, ())
        if (result := unspoken(case, plan.profiles)) is not None:
            self._step(plan.examples)
            return entry_of(result, time.monotonic() - began)
        wires = _WireFactory(
            plan.live, lambda: self._step() if wires.started <= plan.examples else None
        )
        try:
            result = draw(
                plan.live.testee,
                wires,
                examples=plan.examples,
                number=plan.seed,
                shrinking=_SHRINKING,
                sure=plan.live.slower.wire,
            )
        except Unimplemented as reason:
            result = CaseResult(case, Verdict.UNIMPLEMENTED, case.rules[0], str(reason))
        self._step(max(0, plan.examples - wires.started))
        return entry_of(result, time.monotonic() - began)


@define(eq=False)
class _WireFactory:
    """Starts the testee for each conversation, and remembers its last process."""

    live: LiveTestee
    progress: Callable[[], None] = lambda: None
    started: int = 0
    _last: SocketWire | None = None

    def __call__(self, case: Case) -> Wire:
        self._last = self.live.wire(case)
        self.started += 1
        self.progress()
        return self._last

    @property
    def stderr(self) -> str:
        """The stderr of the last testee."""
        return "" if self._last is None else self._last.stderr


def known(testee: str, id: str) -> Case | None:
    """Return a case by its id, with or without the kind of testee."""
    cases_for(testee)
    return CASES.get(id) or CASES.get(f"{testee}/{id}")
