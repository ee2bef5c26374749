"""Conversations for the vectors: one for each main flow, played by the conformance kit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from wmp.conformance import cases
from wmp.conformance.engine.play import play, terms_of
from wmp.conformance.script.case import CASES, Case, Verdict
from wmp.conformance.script.transcript import TranscriptLine
from wmp.conformance.testees.library_testees import LibraryDevice, LibraryManager, LibraryWorker
from wmp.conformance.wire.virtual import Testee, VirtualWire
from wmp.conformance.wire.wire import Terms

TESTEES: Mapping[str, Callable[[Terms], Testee]] = {
    "manager": LibraryManager.of,
    "worker": LibraryWorker.of,
    "device": LibraryDevice.of,
}

CHOSEN = (
    "manager/plain-handshake",
    "manager/held-give-is-used-and-closed",
    "manager/handed-back",
    "manager/cancelled-at-a-worker",
    "manager/lost-at-the-worker",
    "manager/goodbye",
    "manager/stale-attempt",
    "manager/gap-is-asked-for-once",
    "manager/sent-again-on-a-new-route",
    "manager/forgotten-session",
    "manager/pong-names-what-is-remembered",
    "manager/missing-from-the-list",
    "manager/refused-take",
    "manager/unreadable-done",
    "worker/plain-handshake",
    "worker/held-give",
    "worker/second-manager",
    "worker/woken-without-capacity",
    "worker/failing-job",
    "worker/cancel-what-runs",
    "worker/gap-is-asked-for-once",
    "worker/newer-session",
    "worker/no-session-yet",
    "worker/refused-result",
    "worker/goodbye-after-work",
    "device/there-and-back",
    "device/loops-end",
    "device/what-cannot-be-passed-on",
)


def conversations() -> Iterator[tuple[Case, tuple[TranscriptLine, ...]]]:
    """Yield each flow with its messages.

    Raises:
        AssertionError: The reference implementation does not pass.
    """
    cases.load()
    for id in CHOSEN:
        case = CASES[id]
        wire = VirtualWire(TESTEES[case.testee](terms_of(case)))
        result = play(case, wire, still_works=False)
        assert result.verdict in (Verdict.OK, Verdict.INFORMATIONAL), (id, result.text)
        yield case, tuple(result.lines)
