"""Forwarding managers (section 19), as tests of a worker."""

from __future__ import annotations

from wmp.conformance.peers.conversations import WorkerConversation
from wmp.conformance.script.case import case
from wmp.message import Command


@case("WMP-19.1")
def a_worker_forwards_nothing(talk: WorkerConversation) -> None:
    """A worker without workers of its own names no forwarding manager in READY."""
    manager = talk.met()
    manager.echoes()
    named = [
        received["forwards"]
        for received in manager.received_all
        if received.command is Command.READY and received["forwards"] is not None
    ]
    talk.check(not named, f"READY has forwards {named}; expected READY without this field")
