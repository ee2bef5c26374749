"""A failure names only the broken rule, and the listing marks the message that breaks the rule."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.broken_peers import Bend, Bent, Link, changed
from tests.conformance.test_broken_peers import GOOD
from wmp.conformance.engine.check import cases_for, run_all
from wmp.conformance.engine.draw import play_moves
from wmp.conformance.engine.play import play, terms_of
from wmp.conformance.report.report import entry_of
from wmp.conformance.script.case import Broken, Case, CaseResult, Verdict
from wmp.conformance.script.transcript import ReportedLine, excerpt
from wmp.conformance.wire.virtual import VirtualWire
from wmp.core.worker.locks import Locks
from wmp.message import Command, Message


class WakesForNinety(Bend):
    def says(self, link: Link, message: Message) -> Message:
        return changed(message, count=90) if message.command is Command.WAKE else message


class SendsNoWake(Bend):
    def says(self, link: Link, message: Message) -> Message | None:
        return None if message.command is Command.WAKE else message


def result_of(bend: type[Bend], id: str = "manager/plain-handshake") -> CaseResult:
    (case,) = [case for case in cases_for("manager") if case.id == id]
    (result,) = run_all(lambda terms: Bent(GOOD["manager"](terms), bend(terms=terms)), [case])
    return result


def test_the_listing_marks_the_message_that_breaks_the_rule() -> None:
    result = result_of(WakesForNinety)
    texts = [line.text for line in result.lines]
    index = texts.index("the message above breaks WMP-3.4")

    assert texts[index - 1].startswith("WAKE ")
    assert "count=90" in texts[index - 1]
    assert result.breaks == ("WMP-3.4",), "the case shows nothing about its own rule"


def test_a_missing_message_marks_no_line() -> None:
    result = result_of(SendsNoWake)

    assert result.breaks == ("WMP-3.6",)
    assert not any("breaks" in line.text for line in result.lines)


def test_a_message_that_a_script_took_is_the_accused_one() -> None:
    def script(talk: Any) -> None:
        """A script that finds a breach in a PONG."""
        worker = talk.met()
        pong = worker.ask()
        worker.ping()
        talk.check(pong["max_silence"] == 1, "PONG has another max_silence", "WMP-9.2")

    case = Case("manager/strict", "manager", ("WMP-9.2",), script)
    result = play(case, VirtualWire(GOOD["manager"](terms_of(case))))
    texts = [line.text for line in result.lines]
    index = texts.index("the message above breaks WMP-9.2")

    assert texts[index - 1].startswith("PONG")
    assert texts[index + 1].startswith("PING"), "a later message is not accused"


def test_a_wait_between_message_and_verdict_leaves_no_message_to_accuse() -> None:
    def script(talk: Any) -> None:
        """A script that waits."""
        talk.met().ask()
        talk.wait(1.0)
        talk.check(False, "nothing arrived for one unit", "WMP-9.2")

    case = Case("manager/waits", "manager", ("WMP-9.2",), script)
    result = play(case, VirtualWire(GOOD["manager"](terms_of(case))))

    assert not any("breaks" in line.text for line in result.lines)


@pytest.mark.parametrize(("maximum", "shown"), [(9, ["a", "b", "c", "d"]), (1, ["a", "b", "d"])])
def test_an_excerpt_keeps_the_accused_message(maximum: int, shown: list[str]) -> None:
    texts = {"a": "WAKE", "b": "the message above breaks WMP-3.4", "c": "PING", "d": "PONG"}
    lines = [ReportedLine(0.0, "w", "<", text) for text in texts.values()]

    assert [line.text for line in excerpt(lines, maximum)] == [texts[index] for index in shown]


def test_a_drawn_failure_breaks_one_rule() -> None:
    def wire(case: Case) -> VirtualWire:
        bend = WakesForNinety()
        return VirtualWire(Bent(GOOD["manager"](terms_of(case)), bend))

    result = play_moves("manager", [["submit", 0, 0, 0], ["ready", 0, 1, 0]], wire)

    assert result.verdict is Verdict.FAILED
    assert entry_of(result, 0.0).breaks == ("WMP-3.4",), "and not WMP-10.1 with it"


def test_a_breach_keeps_its_line() -> None:
    assert Broken("WMP-3.1", "text").accused is None
    assert Broken("WMP-3.1", "text", accused=4).accused == 4


def test_a_wake_that_crosses_a_ready_uses_no_credit_of_that_ready() -> None:
    def script(talk: Any) -> None:
        """A WAKE is on its way when the worker sends its next READY."""
        worker = talk.met()
        worker.ready(3)
        talk.submit()
        worker.ready(3)
        worker.ask()

    case = Case("manager/crossing", "manager", ("WMP-3.4",), script)
    # Over sockets "at once" takes time, and the kit does not wait for it before each READY.
    wire = VirtualWire(GOOD["manager"](terms_of(case)), grace=0.5)
    result = play(case, wire, still_works=False)

    assert result.verdict is Verdict.OK, result.text


@pytest.mark.parametrize(("deaf", "verdict"), [(True, Verdict.FAILED), (False, Verdict.OK)])
def test_the_end_of_a_lock_is_not_taken_for_the_effect_of_no(
    monkeypatch: pytest.MonkeyPatch, deaf: bool, verdict: Verdict
) -> None:
    """On a busy machine the time of the lock (WMP-4.11) passes while the script waits."""
    if deaf:
        monkeypatch.setattr(Locks, "no", lambda self, manager, link, message, now: None)
    (case,) = cases_for("worker", rules={"WMP-4.10"})
    result = play(case, VirtualWire(GOOD["worker"](terms_of(case)), grace=2.6), still_works=False)

    assert (result.verdict, result.rule) == (verdict, "WMP-4.10"), result.text
