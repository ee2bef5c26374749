"""The beats that another process may send for a worker (WMP-9.17)."""

from __future__ import annotations

import pytest

from tests.unit.core.worker import workers
from tests.unit.core.worker.workers import met
from wmp.events import Connected
from wmp.message import Command, Field
from wmp.testing.peers.scripted_manager import ScriptedManager
from wmp.testing.peers.scripted_worker import sent


@pytest.mark.rule("WMP-9.17")
def test_a_worker_names_its_key_in_directed_pings_only():
    worker = workers.make(beat_key=5)
    broadcast = sent(worker.handle(Connected(0), 0.0), Command.PING)
    assert [m.fields.get(Field.BEAT_KEY) for m in broadcast] == [None] * len(broadcast)
    manager = ScriptedManager(worker)
    pings = sent(manager.meet(), Command.PING)
    assert [m.fields[Field.BEAT_KEY] for m in pings if m.to] == [5]


@pytest.mark.rule("WMP-9.17")
def test_beats_go_to_managers_that_count_them():
    worker = workers.make(beat_key=5)
    manager = met(worker)
    assert worker.beats() == []
    manager.pong(max_stall=60_000)
    ((link, seconds, message),) = worker.beats()
    assert (link, seconds) == (0, 60.0)
    assert message.command is Command.PING
    assert message.to == (1, b"m1")
    assert message.fields == {Field.SESSION: manager.session, Field.BEAT: 5}
    manager.pong()
    assert worker.beats() == []


@pytest.mark.rule("WMP-9.17")
def test_a_worker_without_a_key_has_no_beats():
    worker = workers.make()
    manager = met(worker)
    (ping,) = sent(manager.pong(challenge=3, max_stall=60_000), Command.PING)
    assert Field.BEAT_KEY not in ping.fields
    assert worker.beats() == []
