"""Play a case with a testee, and report the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from wmp.conformance.peers.conversation import Conversation
from wmp.conformance.peers.conversations import (
    DeviceConversation,
    ManagerConversation,
    WorkerConversation,
)
from wmp.conformance.script.case import Broken, Case, CaseResult, Unimplemented, Verdict
from wmp.conformance.script.transcript import accusing
from wmp.conformance.wire.wire import Terms, Wire

CONVERSATIONS: Mapping[
    str, type[ManagerConversation] | type[WorkerConversation] | type[DeviceConversation]
] = {
    "manager": ManagerConversation,
    "worker": WorkerConversation,
    "device": DeviceConversation,
}
"""The kind of conversation for each kind of testee."""


def terms_of(case: Case) -> Terms:
    """Return the terms on which a testee must be started for a case."""
    dial_in = case.profile == "dial-in"
    endpoints = 0 if case.testee == "manager" and not dial_in else case.links
    return Terms(endpoints, case.slots, dial_in and case.testee == "device")


def play(case: Case, wire: Wire, *, still_works: bool = True) -> CaseResult:
    """Play ``case`` with the testee behind ``wire``, and end the testee.

    Args:
        case: The case to play.
        wire: Leads to a testee that has just been started on :func:`terms_of` the case.
        still_works: Whether to check afterwards that the testee still works.
    """
    talk = CONVERSATIONS[case.testee](wire, case)

    def script() -> None:
        case.script(talk)
        if still_works and not talk.over:
            talk.still_works()

    return judge(case, talk, script)


def judge(case: Case, talk: Conversation, script: Callable[[], None]) -> CaseResult:
    """Run a script to its end, end the testee, and return the result."""
    wire = talk.wire
    verdict, rule, text, accused = Verdict.OK, case.rules[0], "", None
    try:
        wire.start()
        script()
        if talk.finding:
            verdict, text = Verdict.INFORMATIONAL, talk.finding
    except Broken as broken:
        rule, text, accused = talk.means.get(broken.rule, broken.rule), broken.text, broken.accused
        verdict = {
            "must": Verdict.FAILED,
            "should": Verdict.NON_STRICT,
            "may": Verdict.INFORMATIONAL,
        }[broken.level]
    except Unimplemented as reason:
        verdict, text = Verdict.UNIMPLEMENTED, str(reason)
    finally:
        stalled = wire.stalled(accused is not None)
        units, lines = talk.now, tuple(accusing(talk.lines, accused, rule))
        with suppress(Broken, Unimplemented):  # the verdict stands already
            if not wire.ended:
                talk.farewell()
        complaint = wire.close()
    if complaint and verdict in (Verdict.OK, Verdict.INFORMATIONAL):
        # A testee that could not run cannot end in time either.
        late = wire.stalled(True)
        verdict = Verdict.VOID if late else Verdict.UNCLEAN
        text = f"{late}; observed meanwhile: {complaint}" if late else complaint
    if stalled and verdict in (Verdict.FAILED, Verdict.NON_STRICT):
        verdict, text = Verdict.VOID, f"{stalled}; observed meanwhile: {rule}: {text}"
    return CaseResult(case, verdict, rule, text, lines, units)
