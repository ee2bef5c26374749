"""The machine of a dispatcher: which step follows which event."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from wmp.core.manager.unserved import WaitingRow
from wmp.dispatcher.dispatch_events import (
    CallbackAnswered,
    CancellationAnswered,
    InstanceReplaced,
    JobPosted,
    PostJob,
    ReportRefusal,
    ReportUnserved,
    RunStep,
    SendCallback,
    SendCancellation,
    StepEnded,
    StepFailed,
    StoreChanged,
    TimePassed,
)
from wmp.dispatcher.machine import DispatcherMachine
from wmp.dispatcher.records import CallbackRecord, WorkerRecord
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.steps.callback_steps import Callback, EndCallback, Sweep, TakeCallbacks
from wmp.dispatcher.steps.checking import Cancellation, Check, Checked, EndCancelled
from wmp.dispatcher.steps.crew import CrewMember, PublishCrew
from wmp.dispatcher.steps.placing import Assign, DispatchedJob, Place, Placed
from wmp.dispatcher.steps.refusals import NoteAccepted, RefusedPost, TakeBack, TakenBack
from wmp.dispatcher.steps.unserved import LookForUnserved
from wmp.dispatcher.steps.worker_steps import ClaimPings, NotePing

SETTINGS = DispatcherSettings()
WORKER = WorkerRecord(9, "h", 1, 1)
GIVEN = DispatchedJob(5, 1, WORKER, b"{}")


def steps(actions: list[Any]) -> dict[type, Any]:
    return {type(action.step): action.step for action in actions if isinstance(action, RunStep)}


def begun(settings: DispatcherSettings = SETTINGS) -> DispatcherMachine:
    machine = DispatcherMachine(settings)
    for step in steps(machine.handle(TimePassed(), 0.0)).values():
        machine._running.discard(type(step))
    return machine


def test_the_first_event_runs_every_periodic_step_once() -> None:
    machine = DispatcherMachine(SETTINGS)
    assert set(steps(machine.handle(TimePassed(), 0.0))) == {
        Place,
        Check,
        ClaimPings,
        Sweep,
        TakeCallbacks,
        LookForUnserved,
    }
    assert machine.handle(TimePassed(), 100.0) == []
    assert machine.deadline() is None


@pytest.mark.rule("DSP-3.12")
def test_jobs_that_no_worker_knows_are_looked_for_again_and_again() -> None:
    machine = DispatcherMachine(SETTINGS, offers=lambda: {"resize"})
    (look,) = [
        step
        for step in steps(machine.handle(TimePassed(), 0.0)).values()
        if isinstance(step, LookForUnserved)
    ]
    assert look.offers == {"resize"}
    row = WaitingRow("render", {}, "json", 1, "no worker is registered or connected")
    assert ReportUnserved([row]) in machine.handle(StepEnded(look, [row]), 0.1)
    assert LookForUnserved not in steps(machine.handle(TimePassed(), 1.9))
    assert LookForUnserved in steps(machine.handle(TimePassed(), 2.0))


@pytest.mark.rule("DSP-3.3")
def test_the_second_step_comes_after_the_cooldown() -> None:
    machine = begun(attrs.evolve(SETTINGS, cooldown_period=700))
    machine.handle(StepEnded(Place(SETTINGS), Placed((), [(5, 1)])), 0.0)
    assert machine.deadline() == 0.7
    assert Assign not in steps(machine.handle(TimePassed(), 0.69))
    assert steps(machine.handle(TimePassed(), 0.7))[Assign].jobs == [(5, 1)]
    assert Assign not in steps(machine.handle(TimePassed(), 0.8))


@pytest.mark.rule("DSP-3.9")
def test_a_job_is_sent_after_the_commit_and_taken_back_when_refused() -> None:
    machine = begun()
    assert machine.handle(StepEnded(Place(SETTINGS), Placed([GIVEN])), 0.0) == [PostJob(GIVEN)]
    assert machine.handle(JobPosted(GIVEN, None), 0.0) == []
    refusal = RefusedPost("503")
    (action,) = machine.handle(JobPosted(GIVEN, refusal), 0.0)
    assert action == RunStep(TakeBack(SETTINGS, 5, 1, refusal))


@pytest.mark.rule("DSP-3.14")
def test_a_refusal_is_logged_and_a_worker_that_may_have_begun_gets_a_cancellation() -> None:
    machine = begun()
    step = TakeBack(SETTINGS, 5, 1, RefusedPost("500", counts=True, begun=True))
    cancellation = Cancellation(WORKER, 5, 1, awaited=False)
    actions = machine.handle(StepEnded(step, TakenBack("a line", cancellation)), 0.0)
    assert actions[:2] == [SendCancellation(cancellation), ReportRefusal("a line")]
    assert Place in steps(actions)


@pytest.mark.rule("DSP-3.15")
def test_the_acceptance_of_a_worker_that_refused_is_noted() -> None:
    machine = begun()
    assert machine.handle(JobPosted(GIVEN, None, accepted=True), 0.0) == []
    refused = attrs.evolve(GIVEN, worker=attrs.evolve(WORKER, refusals=2))
    assert machine.handle(JobPosted(refused, None), 0.0) == []
    (action,) = machine.handle(JobPosted(refused, None, accepted=True), 0.0)
    assert action == RunStep(NoteAccepted(9))


@pytest.mark.rule("DSP-5.13")
def test_changed_wmp_workers_are_published_again() -> None:
    crew: list[CrewMember] = []
    machine = DispatcherMachine(SETTINGS, crew=lambda: crew)
    assert PublishCrew not in steps(machine.handle(TimePassed(), 0.0))
    crew.append(CrewMember("0a", "pi:7", ("resize",), 4, 4))
    step = steps(machine.handle(TimePassed(), 1.0))[PublishCrew]
    assert step.members == tuple(crew)
    assert PublishCrew not in steps(machine.handle(TimePassed(), 2.0))
    machine.handle(StepEnded(step, None), 2.0)
    assert PublishCrew not in steps(machine.handle(TimePassed(), 3.0))
    machine.handle(InstanceReplaced(), 3.5)
    assert PublishCrew in steps(machine.handle(TimePassed(), 4.0))


@pytest.mark.rule("DSP-3.8")
def test_no_job_is_sent_long_after_the_last_transaction() -> None:
    machine = begun()
    assert machine.may_send(10.0, 17.0)
    assert not machine.may_send(10.0, 17.1)


@pytest.mark.rule("DSP-3.7")
def test_jobs_left_to_workers_of_wmp_are_taken_after_the_head_start() -> None:
    machine = DispatcherMachine(SETTINGS, lambda: {"a": [3]})
    step = steps(machine.handle(TimePassed(), 0.0))[Place]
    assert step.wants == {"a": [3]}
    machine.handle(StepEnded(step, Placed((), left=1)), 0.0)
    assert machine.deadline() == 0.05
    step = steps(machine.handle(TimePassed(), 0.05))[Place]
    assert step.wants == {}


@pytest.mark.rule("DSP-4.1")
def test_changes_of_the_store_cause_checks_with_pauses() -> None:
    machine = begun()
    assert set(steps(machine.handle(StoreChanged(), 1.1))) >= {Place, Check}
    machine._running.clear()
    assert Check not in steps(machine.handle(StoreChanged(), 1.2))
    assert Check in steps(machine.handle(TimePassed(), 1.35))
    machine._running.clear()
    assert Check in steps(machine.handle(TimePassed(), 11.4))


@pytest.mark.rule("DSP-3.11")
def test_a_change_by_another_process_is_left_to_that_process_for_a_moment() -> None:
    machine = begun()
    assert Place in steps(machine.handle(StoreChanged(), 1.1))
    machine._running.clear()
    assert Place not in steps(machine.handle(StoreChanged(foreign=True), 1.2))
    assert Place not in steps(machine.handle(StoreChanged(foreign=True), 1.24))
    assert Place in steps(machine.handle(TimePassed(), 1.25))
    machine._running.clear()
    machine.handle(StoreChanged(foreign=True), 1.3)
    assert Place in steps(machine.handle(StoreChanged(), 1.31))


def test_a_cancellation_is_sent_once_at_a_time() -> None:
    machine = begun()
    wanted = Cancellation(WORKER, 5, 1, awaited=True)
    ended = StepEnded(Check(SETTINGS), Checked([wanted], changed=False))
    assert machine.handle(ended, 0.0) == [SendCancellation(wanted)]
    assert machine.handle(ended, 0.0) == []
    assert machine.handle(CancellationAnswered(wanted, answered=False), 0.0) == []
    assert machine.handle(ended, 0.0) == [SendCancellation(wanted)]
    (action,) = machine.handle(CancellationAnswered(wanted, answered=True), 0.0)
    assert action == RunStep(EndCancelled(5, 1))


def test_a_step_that_failed_runs_again_except_a_written_health_check() -> None:
    machine = begun()
    step = TakeBack(SETTINGS, 5, 1, RefusedPost("503"))
    assert steps(machine.handle(StepFailed(step), 0.0)) == {}
    assert steps(machine.handle(TimePassed(), 0.25))[TakeBack] == step
    note = NotePing(SETTINGS, 9, 0, None, [])
    machine.handle(StepFailed(note), 0.3)
    assert NotePing not in steps(machine.handle(TimePassed(), 0.9))
    machine.handle(StepFailed(Check(SETTINGS)), 0.9)
    assert Check in steps(machine.handle(TimePassed(), 1.2))
    machine.handle(StepFailed(Assign(SETTINGS, [(5, 1)])), 1.2)
    assert Assign in steps(machine.handle(TimePassed(), 1.5))


def test_a_new_instance_checks_and_forgets_its_cooldowns() -> None:
    machine = begun(attrs.evolve(SETTINGS, cooldown_period=700))
    machine.handle(StepEnded(Place(SETTINGS), Placed((), [(5, 1)])), 0.0)
    assert Check in steps(machine.handle(InstanceReplaced(), 0.1))
    assert Assign not in steps(machine.handle(TimePassed(), 5.0))


@pytest.mark.rule("DSP-7.2")
def test_a_callback_is_under_way_until_its_outcome_is_written() -> None:
    machine = begun()
    callback = Callback(8, 1, CallbackRecord(5, "h", 1, "/", "GET"), {})
    ended = StepEnded(TakeCallbacks(), [callback])
    assert SendCallback(callback) in machine.handle(ended, 0.0)
    assert steps(machine.handle(TimePassed(), 1.0))[TakeCallbacks].busy == {8}
    end = steps(machine.handle(CallbackAnswered(callback, None), 1.0))[EndCallback]
    machine._running.discard(TakeCallbacks)
    assert steps(machine.handle(StepEnded(end, None), 1.0))[TakeCallbacks].busy == frozenset()
