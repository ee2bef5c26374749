"""The conformance kit: prove that a peer, in any language, speaks ``specs/wmp.md``.

A *case* is a script for one rule or a few (:mod:`wmp.conformance.case`), written against a
*conversation* (:mod:`wmp.conformance.conversation`) in which the kit plays the other side, with
correct and wrong messages. The same script runs over two *wires* (:mod:`wmp.conformance.wire`): to
a sans-I/O implementation in this process, in virtual time, and to a live peer over sockets. Besides
the cases, the kit draws conversations (:mod:`wmp.conformance.draw`), and reports the shortest one
that breaks a rule.

In Python, :func:`check_manager`, :func:`check_worker`, :func:`check_device` and
:func:`check_codec` check an implementation against all cases;
:mod:`wmp.conformance.library_testees` is an example of an adapter. Needs the extra ``conformance``.
"""

from __future__ import annotations

import importlib
import typing

if typing.TYPE_CHECKING:
    from wmp.conformance.case import (
        Broken,
        Case,
        CaseResult,
        Unimplemented,
        Verdict,
    )
    from wmp.conformance.check import Nonconforming, check_device, check_manager, check_worker
    from wmp.conformance.codec_check import check_codec
    from wmp.conformance.transcript import TranscriptLine

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
_HOMES: typing.Final = {
    "Nonconforming": "check",
    "TranscriptLine": "transcript",
    "check_codec": "codec_check",
    "check_device": "check",
    "check_manager": "check",
    "check_worker": "check",
}


def __getattr__(name: str) -> typing.Any:
    if name not in __all__:
        raise AttributeError(f"module 'wmp.conformance' has no attribute {name!r}")
    home = importlib.import_module(f"wmp.conformance.{_HOMES.get(name, 'case')}")
    value = getattr(home, name)
    globals()[name] = value
    return value
