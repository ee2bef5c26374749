"""What passes a device, and what does not (section 8)."""

from __future__ import annotations

from wmp.conformance.case import case
from wmp.conformance.talks import DeviceTalk
from wmp.message import Command

__all__ = ["discovery_goes_everywhere"]


@case("WMP-8.1", links=2)
def discovery_goes_everywhere(talk: DeviceTalk) -> None:
    """READY and PING without ``to`` from below go to every upstream."""
    below, above = talk.joined(2)
    below.say(Command.READY, ready=1, credit=1, roles=["echo"], resources={"slots": 1})
    for one in above:
        one.expect(Command.READY)
