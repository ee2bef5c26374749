"""The kit's cases: this project's machines pass all cases, and every rule has a case."""

from __future__ import annotations

import inspect
import re
from typing import Any

import build_rules
import pytest
from attrs import define

from tests.conformance import (  # noqa: F401 - they register the broken peers
    broken_devices,
    broken_dialing,
    broken_liveness,
    broken_managers,
    broken_readings,
    broken_successors,
    broken_workers,
)
from tests.conformance.broken_common import ActsOnWhatIsForOthers, NeverSaysError, StopsAtNoise
from tests.conformance.broken_peers import BROKEN_PEERS, Bend, Bent
from wmp.conformance import (
    Nonconforming,
    Verdict,
    check_device,
    check_manager,
    check_worker,
)
from wmp.conformance.engine.check import cases_for, run_all
from wmp.conformance.engine.draw import SPEAKS, draw, play_moves
from wmp.conformance.engine.play import terms_of
from wmp.conformance.engine.run import unspoken
from wmp.conformance.engine.selection import spoken
from wmp.conformance.moves.moves import drawn_case
from wmp.conformance.script.case import Case
from wmp.conformance.script.rules import PROFILES, RULES, UNTESTABLE
from wmp.conformance.testees.library_testees import (
    LibraryDevice,
    LibraryManager,
    LibraryStoredManager,
    LibraryWorker,
)
from wmp.conformance.wire.virtual import VirtualWire
from wmp.conformance.wire.wire import JobEnd, Terms

TESTEES: dict[str, Any] = {
    "manager": LibraryManager.of,
    "worker": LibraryWorker.of,
    "device": LibraryDevice.of,
}
EVERY = [case for testee in TESTEES for case in cases_for(testee)]


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.id)
def test_this_project_conforms(case: Case) -> None:
    stored = case.testee == "manager" and case.profile == "successor"
    (result,) = run_all(LibraryStoredManager.of if stored else TESTEES[case.testee], [case])

    assert result.verdict in (Verdict.OK, Verdict.INFORMATIONAL), Nonconforming(result)


def test_a_whole_kind_is_checked_at_once() -> None:
    check_manager(LibraryManager.of, strict=True, examples=3)
    check_worker(LibraryWorker.of, strict=True, examples=3)
    check_device(LibraryDevice.of, strict=True, examples=3)


class Twice(LibraryManager):
    """Reports the end of its third job twice, which few scripts notice."""

    count = 0

    def ends(self) -> list[JobEnd]:
        ends = LibraryManager.ends(self)
        self.count += len(ends)
        return ends * 2 if self.count == 3 else ends


def test_a_fault_beyond_the_scripts_is_found_by_drawing_and_shortened() -> None:
    drawn = draw(
        "manager",
        lambda case: VirtualWire(Twice.of(terms_of(case))),
        examples=100,
        maximum=8,
        number=3,
    )

    assert (drawn.verdict, drawn.rule) == (Verdict.FAILED, "WMP-6.3")
    assert len(drawn.script) <= 4, "three jobs are enough to see it"
    again = play_moves("manager", drawn.script, lambda case: VirtualWire(Twice.of(terms_of(case))))
    assert (again.rule, again.text) == (drawn.rule, drawn.text)


@pytest.mark.parametrize("testee", TESTEES)
def test_every_rule_has_a_case_or_a_reason(testee: str) -> None:
    cases = {rule for case in cases_for(testee) for rule in case.rules}
    bare = [r.id for r in RULES.values() if r.binds(testee) and r.id not in cases]

    assert sorted(bare) == sorted(rule for kind, rule in UNTESTABLE if kind == testee)


@pytest.mark.parametrize("testee", TESTEES)
def test_every_rule_that_binds_catches_a_broken_peer(testee: str) -> None:
    broken = {peer.rule for peer in BROKEN_PEERS if peer.testee == testee}
    seen = [r for r in RULES.values() if r.binds(testee) and (testee, r.id) not in UNTESTABLE]

    assert [r.id for r in seen if r.level != "may" and r.id not in broken] == []


def test_the_rules_of_the_kit_are_up_to_date() -> None:
    rules = build_rules.parse_rules(build_rules.whole_spec())

    assert build_rules.KIT.read_text(encoding="utf-8") == build_rules.render_kit(rules), (
        "stale: run python specs/build_rules.py"
    )


@pytest.mark.parametrize("testee", TESTEES)
def test_every_rule_has_a_case_of_its_profile(testee: str) -> None:
    cases = {(rule, case.profile) for case in cases_for(testee) for rule in case.rules}
    profiles = {r.id: r.profile for r in RULES.values() if r.binds(testee)}
    if testee == "device":  # a device has no core: these rules have the profile `device`
        profiles = {
            id: profile if profile == "dial-in" else "device" for id, profile in profiles.items()
        }
    bare = [
        profile
        for profile in profiles.items()
        if profile not in cases and (testee, profile[0]) not in UNTESTABLE
    ]

    assert bare == []


def test_profiles_are_those_of_the_specification() -> None:
    assert set(build_rules.PROFILES.values()) == set(PROFILES)
    assert set(PROFILES) > SPEAKS


def test_rules_are_those_of_the_specification() -> None:
    assert all(rule in RULES for case in EVERY for rule in case.rules)
    assert {rule.profile for rule in RULES.values()} <= set(PROFILES)
    assert {case.profile for case in EVERY} <= set(PROFILES)


def test_every_case_has_a_sentence_about_it_and_a_rule_of_its_testee() -> None:
    for case in EVERY:
        assert case.about.endswith("."), case.id
        assert any(RULES[rule].binds(case.testee) for rule in case.rules), case.id


class Forgetful(LibraryManager):
    """Reports success to its submitters and does nothing else."""

    def ends(self) -> list[JobEnd]:
        return [JobEnd(end.name, "ok", b"") for end in LibraryManager.ends(self)]


def test_a_failure_is_a_conversation_that_can_be_read() -> None:
    with pytest.raises(Nonconforming) as caught:
        check_manager(lambda terms: Forgetful())

    text = str(caught.value)
    assert caught.value.result.rule in text
    assert "in manager/" in text
    assert "w1 → manager" in text
    assert "manager → w1" in text
    assert re.search(r"TAKE epoch=\d+ to_epoch=\d+ number=1", text)
    assert caught.value.result.verdict is Verdict.FAILED


def test_cases_of_missing_profiles_are_not_selected() -> None:
    profiles = ("core",)
    profiles_asked = {case.profile for case in cases_for("worker", profiles)}

    assert profiles_asked == {"core"}
    check_worker(lambda terms: LibraryWorker.of(terms), profiles)


@define(eq=False)
class ActsOnAnyVersion(Bend):
    def reads(self, frames: Any) -> Any:
        head = bytes(frames[0])
        return [b"\x85\x01" + head[2:], *frames[1:]] if head[:2] == b"\x85\x02" else frames


def bent(testee: str, bend: type[Bend]) -> Any:
    return lambda terms: Bent(TESTEES[testee](terms), bend(terms=terms))


@pytest.mark.parametrize("testee", ["manager", "worker"])
def test_the_core_asks_for_no_error(testee: str) -> None:
    for result in run_all(bent(testee, NeverSaysError), cases_for(testee, ["core"])):
        assert result.verdict in (Verdict.OK, Verdict.INFORMATIONAL), Nonconforming(result)


@pytest.mark.parametrize("testee", ["manager", "worker"])
@pytest.mark.parametrize("bend", [ActsOnWhatIsForOthers, ActsOnAnyVersion, StopsAtNoise])
def test_the_core_profile_finds_harmful_faults(testee: str, bend: type[Bend]) -> None:
    core = cases_for(testee, ["core"], ["WMP-10.1"])
    verdicts = [result.verdict for result in run_all(bent(testee, bend), core)]

    assert Verdict.FAILED in verdicts


@pytest.mark.parametrize("testee", ["manager", "worker"])
def test_drawn_conversations_need_more_than_the_core_profile(testee: str) -> None:
    case = drawn_case(testee, ())
    result = unspoken(case, ("core", "liveness"))

    assert result is not None
    assert result.verdict is Verdict.UNIMPLEMENTED
    assert (
        result.text == "the testee does not implement the profile columns, reliable, status-cancel"
    )
    assert unspoken(case, set(PROFILES) - {"secure", "held-give"}) is None


@pytest.mark.parametrize("testee", TESTEES)
def test_a_peer_with_all_profiles_gets_all_cases(testee: str) -> None:
    profiles = spoken(testee, (), ())

    assert "core" in profiles
    for case in (*cases_for(testee), drawn_case(testee, ())):
        assert unspoken(case, profiles) is None, case.id


def test_a_testee_that_raises_fails_with_the_text_of_the_error() -> None:
    class Fragile(LibraryWorker):
        def receive(self, *arguments: Any) -> Any:
            raise ZeroDivisionError("oh")

    (result,) = run_all(Fragile.of, cases_for("worker")[:1])

    assert result.verdict is Verdict.FAILED
    assert result.rule == "WMP-10.1"
    assert "ZeroDivisionError: oh" in result.text


def test_terms_match_the_needs_of_a_case() -> None:
    seen: list[Terms] = []

    def make(terms: Terms) -> LibraryWorker:
        seen.append(terms)
        return LibraryWorker.of(terms)

    for case in cases_for("worker"):
        list(run_all(make, [case]))
        assert (seen[-1].slots, seen[-1].endpoints) == (case.slots, case.links)


_SUPERSEDED = {
    "manager/older-epoch",
    "worker/older-epoch",
    "worker/claim-to-a-manager",
}


@pytest.mark.parametrize("testee", ["manager", "worker"])
def test_cases_that_expect_an_error_belong_to_secure(testee: str) -> None:
    """specs/testee.md, "Profiles": a peer without `secure` need not send other ERRORs."""
    expects = re.compile(r"expect\(Command\.ERROR")
    verdicts = {
        case.id: case.profile
        for case in cases_for(testee)
        if expects.search(inspect.getsource(case.script))
    }

    assert verdicts, "the cases no longer expect ERROR by this call"
    assert {id for id, profile in verdicts.items() if profile != "secure"} <= _SUPERSEDED
