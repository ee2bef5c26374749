"""The conformance kit: prove that a peer, in any language, speaks ``specs/wmp.md``.

A *case* is a script for one rule or a few (:mod:`wmp.conformance.case`), written against a
*conversation* (:mod:`wmp.conformance.talk`) in which the kit plays the other side, correctly
and badly. The same script runs over two *wires* (:mod:`wmp.conformance.wire`): to a sans-I/O
implementation in this process, in virtual time, and to a live peer over sockets.
"""

from wmp.conformance.case import Broken, Case, Line, Result, Unimplemented, Verdict
from wmp.conformance.check import Nonconforming, check_device, check_manager, check_worker

__all__ = [
    "Broken",
    "Case",
    "Line",
    "Nonconforming",
    "Result",
    "Unimplemented",
    "Verdict",
    "check_device",
    "check_manager",
    "check_worker",
]
