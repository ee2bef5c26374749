"""The conformance kit: prove that a peer, in any language, speaks ``specs/wmp.md``.

A *case* is a script for one rule or a few (:mod:`wmp.conformance.script.case`), written against a
*conversation* (:mod:`wmp.conformance.peers.conversation`) in which the kit plays the other side,
with correct and wrong messages. The same script runs over two *wires*
(:mod:`wmp.conformance.wire.wire`): to a sans-I/O implementation in this process, in virtual time,
and to a live peer over sockets. Besides the cases, the kit draws conversations
(:mod:`wmp.conformance.engine.draw`), and reports the shortest one that breaks a rule.

In Python, :func:`check_manager`, :func:`check_worker`, :func:`check_device` and :func:`check_codec`
check an implementation against all cases; :mod:`wmp.conformance.testees.library_testees` is an
example of an adapter. Needs the extra ``conformance``.
"""

from __future__ import annotations

import typing

from wmp.lazy import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from wmp.conformance.engine.check import (
        Nonconforming,
        check_device,
        check_manager,
        check_worker,
    )
    from wmp.conformance.script.case import (
        Broken,
        Case,
        CaseResult,
        Unimplemented,
        Verdict,
    )
    from wmp.conformance.script.transcript import TranscriptLine
    from wmp.conformance.wire.codec_check import check_codec

__all__ = [
    "Broken",
    "Case",
    "CaseResult",
    "Nonconforming",
    "TranscriptLine",
    "Unimplemented",
    "Verdict",
    "check_codec",
    "check_device",
    "check_manager",
    "check_worker",
]

# Imported at the first use, because a testee of this package must not wait for the import of
# Hypothesis.
__getattr__, __dir__ = _lazy_names(
    __name__,
    {
        "Broken": "wmp.conformance.script.case",
        "Case": "wmp.conformance.script.case",
        "CaseResult": "wmp.conformance.script.case",
        "Nonconforming": "wmp.conformance.engine.check",
        "TranscriptLine": "wmp.conformance.script.transcript",
        "Unimplemented": "wmp.conformance.script.case",
        "Verdict": "wmp.conformance.script.case",
        "check_codec": "wmp.conformance.wire.codec_check",
        "check_device": "wmp.conformance.engine.check",
        "check_manager": "wmp.conformance.engine.check",
        "check_worker": "wmp.conformance.engine.check",
    },
)
