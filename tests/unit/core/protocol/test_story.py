"""The story of a job: the events that both machines remember."""

from __future__ import annotations

import pytest

from wmp.balance import least_recently_used
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.job_story import MAX_EVENTS, Stories
from wmp.core.protocol.settings import ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Cancelled, Reported, Submitted
from wmp.message import Kind
from wmp.testing.simulator.network import Network


def network(stories: int = 100) -> Network:
    net = Network()
    manager = ManagerSettings(identity=b"m", epoch=1, stories=stories, max_silence=1.0)
    net.add("m", ManagerMachine(manager, least_recently_used))
    for name in ("w1", "w2"):
        worker = WorkerSettings(identity=name.encode(), epoch=1, stories=stories, hold=0.0)
        net.add(name, WorkerMachine(worker, 1), ["m"])
    return net


def whats(events: list) -> list[str]:
    return [event.what for event in events]


def test_manager_and_worker_have_the_story_of_a_job_to_its_end():
    net = network()
    net.connect("w1")
    net.submit("m", [b"one"])
    net.run(until=5.0)

    manager, worker = net.nodes["m"].story(1), net.nodes["w1"].story(1)
    assert whats(manager) == ["submitted", "TAKE sent to", "DONE received from", "ended"]
    assert [event.attempt for event in manager] == [0, 1, 1, 1]
    assert manager[1].peer == manager[2].peer == (b"w1", 1)
    assert (manager[2].detail, manager[3].detail) == ("ok", "ok")
    assert [event.at for event in manager] == sorted(event.at for event in manager)
    assert whats(worker) == ["TAKE received from", "started on lane 1", "finished", "DONE sent to"]
    assert str(worker[0]).endswith("TAKE received from m, attempt 1")
    assert not net.nodes["w2"].story(1)


def started(net: Network) -> None:
    """Deliver messages until a handler runs."""
    while not list(net.running()):
        for pipe in net.busy():
            net.deliver(pipe)


def test_the_story_has_a_lost_lease_with_its_cause():
    net = network()
    net.connect("w1")
    net.submit("m", [b"one"])
    started(net)
    net.down.add("w1")
    net.part("w1", 0)
    net.connect("w2")
    net.advance(20.0)
    net.run(until=21.0)

    events = net.nodes["m"].story(1)
    (lost,) = [event for event in events if event.what == "lease lost (silence)"]
    assert (lost.peer, lost.attempt) == ((b"w1", 1), 1)
    taken = [event for event in events if event.what == "TAKE sent to"]
    assert [(event.peer[0], event.attempt) for event in taken] == [(b"w1", 1), (b"w2", 2)]
    assert events[-1].what == "ended"


def test_no_story_is_kept_unless_asked_for():
    net = network(stories=0)
    net.connect("w1")
    net.submit("m", [b"one"])
    net.run(until=5.0)
    assert net.nodes["m"].story(1) == net.nodes["w1"].story(1) == []


def test_the_newest_jobs_are_remembered_and_no_more():
    stories = Stories(3, (b"m", 1))
    stories.record(Submitted(range(1, 11), [b""] * 10, Kind()), [], 0.0)
    assert [bool(stories.of(job)) for job in range(1, 11)] == [False] * 7 + [True] * 3


def test_a_long_story_keeps_its_beginning_and_its_end():
    stories = Stories(1, (b"m", 1))
    stories.record(Submitted([7], [b""], Kind()), [], 0.0)
    for time in range(1, 1000):
        stories.record(Cancelled([7]), [], float(time))
    story = stories.of(7)
    assert len(story) == MAX_EVENTS + 1
    assert story[0].what == "submitted"
    assert story[-1].at == 999.0
    assert f"{1000 - MAX_EVENTS} events left out" in whats(story)


@pytest.mark.parametrize("owner", [b"m1", b"m2"])
def test_stories_of_equal_job_numbers_are_kept_by_owner(owner):
    net = Network()
    for name in ("m1", "m2"):
        settings = ManagerSettings(identity=name.encode(), epoch=1)
        net.add(name, ManagerMachine(settings, least_recently_used))
    settings = WorkerSettings(identity=b"w", epoch=1, stories=10, hold=0.0)
    net.add("w", WorkerMachine(settings, 2), ["m1", "m2"])
    net.connect("w")
    for name in ("m1", "m2"):
        net.submit(name, [b"x"])
    net.run(until=5.0)

    story = net.nodes["w"].story(1, owner)
    assert whats(story)[0] == "TAKE received from"
    assert {event.peer for event in story if event.peer} == {(owner, 1)}


def test_progress_is_part_of_the_story():
    net = network()
    net.connect("w1")
    net.submit("m", [b"one"])
    started(net)
    net.happen("w1", Reported(1, 1, 0.5, "half"))
    net.settle()

    (report,) = [event for event in net.nodes["w1"].story(1) if event.what == "reported"]
    assert report.detail == "50%, half"
    assert "reported" in whats(net.nodes["m"].story(1))
