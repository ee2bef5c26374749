"""A case that fails while the machine is too busy for the kit is void."""

from __future__ import annotations

import pytest
from attrs import define, evolve

from wmp.conformance.engine.play import play, terms_of
from wmp.conformance.engine.selection import failed
from wmp.conformance.engine.socket_plays import LiveTestee
from wmp.conformance.report.report import ConformanceReport, entry_of
from wmp.conformance.script.case import Broken, Case, CaseResult, Verdict
from wmp.conformance.script.stalls import WATCH, StallWatch
from wmp.conformance.testees.library_testees import LibraryWorker
from wmp.conformance.wire.virtual import VirtualWire


def case(broken: bool = True) -> Case:
    def script(talk: object) -> None:
        """A script that finds a breach."""
        if broken:
            raise Broken("WMP-3.1", "no READY arrived")

    return Case("worker/late", "worker", ("WMP-3.1",), script)


def test_the_longest_delay_since_a_time_counts() -> None:
    watch = StallWatch()
    for at, lost in ((1.0, 0.5), (10.0, 0.1), (10.2, 0.2), (30.0, 0.001)):
        watch.note(at, lost)

    assert watch.longest(0.0) == 0.5
    assert watch.longest(2.0) == 0.2
    assert watch.longest(20.0) == 0.0, "every machine is a little late"


def test_the_watch_measures_while_any_conversation_is_live() -> None:
    watch = StallWatch()
    since = watch.begin()
    watch.begin()
    watch.note(since + 1.0, 0.4)
    watch.end()
    assert watch.longest(since) >= 0.4, "one conversation still measures"
    watch.end()

    assert watch.longest(since) == 0.0


@define(eq=False)
class StalledWire(VirtualWire):
    def stalled(self, evident: bool) -> str:
        return "this machine was busy"


@pytest.mark.parametrize(("broken", "verdict"), [(True, Verdict.VOID), (False, Verdict.OK)])
def test_a_failure_of_a_stalled_kit_is_void(broken: bool, verdict: Verdict) -> None:
    live = case(broken)
    wire = StalledWire(LibraryWorker.of(terms_of(live)))
    result = play(live, wire, still_works=False)

    assert result.verdict is verdict
    assert result.breaks == ()
    if broken:
        assert result.text == (
            "this machine was busy; observed meanwhile: WMP-3.1: no READY arrived"
        )


@pytest.mark.parametrize(
    ("lost", "accused", "verdict"),
    [
        (0.04, None, Verdict.FAILED),
        (0.06, None, Verdict.VOID),
        (0.06, 0, Verdict.VOID),
        (0.04, 0, Verdict.FAILED),
    ],
)
def test_a_live_kit_measures_its_own_stalls(
    monkeypatch: pytest.MonkeyPatch, lost: float, accused: int | None, verdict: Verdict
) -> None:
    monkeypatch.setattr(StallWatch, "_measure", lambda self, over: None)  # this machine is busy

    def script(talk: object) -> None:
        """A script during which the kit is late."""
        WATCH.note(live_wire._watched + 0.001, lost)
        raise Broken("WMP-3.1", "no READY arrived", accused=accused)

    live = LiveTestee("worker", None, "tcp://127.0.0.1:*", unit=200)
    slower_case = evolve(case(), script=script)
    live_wire = live.wire(slower_case)
    result = play(slower_case, live_wire, still_works=False)

    assert result.verdict is verdict, result.text
    if accused is None and verdict is Verdict.VOID:
        assert "the kit could not run for 0.06 s; expected at most 0.05 s" in result.text


def outcome(
    monkeypatch: pytest.MonkeyPatch,
    *plays: tuple[Verdict, str],
    command: str | None = "./mine {endpoint} {unit}",
) -> tuple[CaseResult, list[int]]:
    """Return the result of a case whose plays end like this, and the units of the plays."""
    units: list[int] = []

    def once(self: LiveTestee, case: Case) -> CaseResult:
        units.append(self.own_unit)
        return CaseResult(case, *plays[len(units) - 1])

    monkeypatch.setattr(LiveTestee, "_play_once", once)
    return LiveTestee("worker", command, unit=200).play(case()), units


def played(
    monkeypatch: pytest.MonkeyPatch,
    *verdicts: Verdict,
    command: str = "./mine {endpoint} {unit}",
) -> tuple[Verdict, list[int]]:
    """Return the verdict of a case whose failed plays break one rule, and the units of the
    plays."""
    plays = [(verdict, "WMP-3.1") for verdict in verdicts]
    result, units = outcome(monkeypatch, *plays, command=command)
    return result.verdict, units


FAILED, OK, VOID = Verdict.FAILED, Verdict.OK, Verdict.VOID


def test_a_late_answer_in_one_play_does_not_accuse_another_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late, broken = (FAILED, "WMP-3.9"), (FAILED, "WMP-4.10")
    for plays in ([broken, late, broken], [late, broken, broken], [broken, (VOID, ""), broken]):
        result, units = outcome(monkeypatch, *plays)
        assert (result.verdict, result.rule, units) == (FAILED, "WMP-4.10", [200, 600, 1000])
    result, units = outcome(monkeypatch, broken, late, (OK, ""))
    assert (result.verdict, len(units)) == (OK, 3)


def test_without_two_plays_that_agree_the_last_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    plays = [(FAILED, f"WMP-3.{n}") for n in range(1, 6)]
    result, units = outcome(monkeypatch, *plays)
    assert (result.verdict, result.rule) == (FAILED, "WMP-3.5")
    assert units == [200, 600, 1000, 1000, 1000]


def test_a_failure_stands_if_a_slower_play_lacks_the_subject(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result, units = outcome(monkeypatch, (FAILED, "WMP-3.1"), (Verdict.UNIMPLEMENTED, "WMP-3.1"))
    assert (result.verdict, units) == (FAILED, [200, 600])


def test_a_testee_that_runs_already_is_played_once(monkeypatch: pytest.MonkeyPatch) -> None:
    result, units = outcome(monkeypatch, (FAILED, "WMP-3.1"), command=None)
    assert (result.verdict, units) == (FAILED, [200])


def test_a_void_case_is_played_again_more_and_more_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert played(monkeypatch, VOID, OK) == (OK, [200, 600])
    assert played(monkeypatch, VOID, FAILED, FAILED) == (FAILED, [200, 600, 1000])
    assert played(monkeypatch, VOID, FAILED, OK) == (OK, [200, 600, 1000])
    assert played(monkeypatch, FAILED, VOID, VOID, FAILED) == (FAILED, [200, 600, 1000, 1000])
    units = [200, 600, 1000, 1000, 1000]
    assert played(monkeypatch, VOID, VOID, VOID, VOID, VOID, OK) == (VOID, units)


def test_a_slower_play_gives_the_testee_more_seconds_to_answer() -> None:
    live = LiveTestee("worker", "./mine {endpoint} {unit}", unit=200)
    waits = [
        one_case.grace * 1000 / one_case.unit
        for one_case in (live, live.slower, live.slower.slower)
    ]

    assert waits == pytest.approx([1.5, 1.5, 1.5]), "the same in units, more in seconds"


@pytest.mark.parametrize("unit", [50, 100, 200, 1000])
def test_a_script_may_wait_twice_before_a_lock_times_out(unit: int) -> None:
    """Else a script would take the end of a lock for a breach of another rule (WMP-4.11)."""
    live = LiveTestee("worker", "true {endpoint} {unit}", unit=unit)
    for live_case in (live, live.slower, live.slower.slower):
        wire = live_case.wire(case())
        wire.close()
        assert 0.25 <= wire.grace <= 1.5


def test_a_testee_without_a_unit_option_also_gets_more_seconds() -> None:
    live = LiveTestee("device", "./mine {bind} {connect}")
    plays = (live, live.slower, live.slower.slower, live.slower.slower.slower)

    assert [played.grace for played in plays] == pytest.approx([0.3, 0.9, 1.5, 1.5])
    assert {played.own_unit for played in plays} == {1000}


def test_the_failure_of_a_testee_without_a_unit_option_must_repeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert played(monkeypatch, FAILED, OK, command="./mine {endpoint}") == (OK, [1000, 1000])


def test_a_report_with_a_void_case_conforms_in_part_and_replays_it(tmp_path: object) -> None:
    void = entry_of(CaseResult(case(), VOID, "WMP-3.1", "this machine was busy"), 1.0)
    fine = entry_of(CaseResult(evolve(case(), id="worker/other"), OK, "WMP-3.1"), 1.0)
    report = ConformanceReport("worker", "mine", "./mine {endpoint}", entries=(void, fine))

    assert report.conforms
    assert report.outcome == "conforms in part"
    assert report.rules()["WMP-3.1"] == (OK, "worker/other")
    assert [entry.case for entry in failed(report, "worker", "file", ())] == ["worker/late"]  # type: ignore[arg-type]
