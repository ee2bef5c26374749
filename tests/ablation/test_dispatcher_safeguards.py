"""Without a safeguard of the dispatchers, a search or a world notices a broken promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from wmp.dispatcher.dispatch_events import PostJob
from wmp.dispatcher.machine import DispatcherMachine
from wmp.dispatcher.records import DispatchRecord, WorkerRecord
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.steps import checking
from wmp.dispatcher.steps.callback_steps import Sweep, Swept
from wmp.dispatcher.steps.checking import Check
from wmp.dispatcher.steps.job_steps import Finish, read_job
from wmp.dispatcher.steps.placing import Assign, DispatchedJob, Placed
from wmp.dispatcher.steps.worker_steps import NotePing
from wmp.testing.search.dispatch_search import search_design, search_endings, search_steps
from wmp.testing.store_worlds.dispatcher_parties import DispatcherFaults
from wmp.testing.store_worlds.dispatcher_world import DispatcherWorld, run_dispatcher_world

Patch = pytest.MonkeyPatch
NONE = DispatcherFaults()


@pytest.mark.rule("DSP-3.2", "DSP-3.3")
def test_the_last_writer_of_the_design_dispatches_twice() -> None:
    trace = search_design().trace
    assert trace is not None
    assert [event for event in trace if event.endswith("sends")] == [
        "0 reads and sends",
        "1 reads and sends",
    ]


@pytest.mark.deep
@pytest.mark.rule("DSP-3.2", "DSP-3.3", "DSP-3.6")
def test_the_steps_dispatch_once_whoever_ends() -> None:
    search = search_steps()
    assert search.trace is None
    assert search.states > 200


def _give_to_anyone(self: Assign, store: Any) -> Placed:
    """Give jobs without the conditions of the second step."""
    given = []
    for id, attempt in self.jobs:
        record = DispatchRecord.read(store, id) or DispatchRecord(id, attempt, store.me, store.now)
        worker = WorkerRecord.all(store)[0]
        attrs.evolve(record, worker=worker.id, started=store.now).write(store)
        given.append(DispatchedJob(id, attempt, worker, b"{}"))
    return Placed(given)


@pytest.mark.deep
def test_the_second_step_needs_its_condition(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Assign, "run", _give_to_anyone)
    assert search_steps().trace is not None


def test_a_job_in_d_of_a_dead_dispatcher_needs_another_dispatcher(monkeypatch: Patch) -> None:
    _without_heirs(monkeypatch)
    trace = search_steps().trace
    assert trace is not None
    assert any(event.endswith("ends") for event in trace)


def _without_capacity(patch: Patch) -> None:
    patch.setattr(WorkerRecord, "free", lambda self, now: self.max_jobs)


def _without_fence(patch: Patch) -> None:
    run = Finish.run

    def accept(self: Finish, store: Any) -> Any:
        job = read_job(store, self.id)
        return run(self if job is None else attrs.evolve(self, attempt=job.attempt), store)

    patch.setattr(Finish, "run", accept)


def _without_unknown_jobs(patch: Patch) -> None:
    patch.setattr(checking, "_UNKNOWN", 1 << 30)


def _with_late_jobs(patch: Patch) -> None:
    patch.setattr(DispatcherMachine, "may_send", lambda self, renewed, now: True)


def _without_closing(patch: Patch) -> None:
    patch.setattr(
        checking,
        "close_dispatch",
        lambda store, dispatch: attrs.evolve(dispatch, closed=True).write(store),
    )
    patch.setattr(Check, "_check_entries", lambda self, store: None)
    patch.setattr(
        "wmp.dispatcher.steps.job_steps.close_dispatch",
        lambda store, dispatch: attrs.evolve(dispatch, closed=True).write(store),
    )


def _without_deaths(patch: Patch) -> None:
    patch.setattr(NotePing, "_fail", lambda self, store, worker: False)


def _without_heirs(patch: Patch) -> None:
    def keep(self: Check, store: Any, dispatch: Any, job: Any, living: Any) -> Any:
        return job if job is not None and job.attempt == dispatch.attempt else None

    patch.setattr(Check, "_own", keep)


def _without_stops(patch: Patch) -> None:
    patch.setattr(DispatcherWorld, "_stop_alone", lambda self, host: None)


def _without_sweeps(patch: Patch) -> None:
    patch.setattr(Sweep, "run", lambda self, store: Swept(False, -1))


def _without_stored_callbacks(patch: Patch) -> None:
    patch.setattr("wmp.dispatcher.steps.job_steps.add_callback", lambda store, id: False)
    patch.setattr("wmp.dispatcher.steps.callback_steps.add_callback", lambda store, id: False)


def _without_dispatch_timeout(patch: Patch) -> None:
    patch.setattr(DispatcherMachine, "_placed", _remember_nothing)
    patch.setattr(Check, "_check_dispatching", lambda self, store, dispatch, job, adopted: False)


def _remember_nothing(self: DispatcherMachine, placed: Placed, now: float, actions: Any) -> None:
    """Forget the jobs in `d`, as a dispatcher does that does not know what was committed."""
    actions += [PostJob(assignment) for assignment in placed.assignments]


def _world(
    ablate: Callable[[Patch], None], word: str, *marks: pytest.MarkDecorator, **faults: Any
) -> Any:
    name = ablate.__name__.strip("_")
    return pytest.param(ablate, word, faults, id=name, marks=marks)


@pytest.mark.parametrize(
    ("ablate", "word", "faults"),
    [
        _world(_without_capacity, "jobs, at most"),
        _world(_without_fence, "counted", cancel=0.05, pause=0.05, lose=0.05, first=8),
        _world(_without_unknown_jobs, "is still", pytest.mark.deep, lose=0.3),
        _world(
            _with_late_jobs,
            "runs",
            pytest.mark.deep,
            pause=0.2,
            cancel=0.2,
            dispatchers=3,
            jobs=12,
            first=13,
        ),
        _world(_without_closing, "is still", pytest.mark.deep),
        _world(_without_deaths, "is still", pytest.mark.deep, gone=0.05),
        _world(_without_heirs, "is still", pytest.mark.deep, crash=0.05),
        _world(_without_stops, "two workers", isolate=0.1, jobs=12, workers=3, first=12),
        _world(_without_sweeps, "is still", pytest.mark.deep, manager_crash=0.05, managers=2),
        _world(_without_stored_callbacks, "callback", pytest.mark.deep, callbacks=True),
    ],
)
def test_a_world_notices_a_missing_safeguard(
    monkeypatch: Patch, ablate: Callable[[Patch], None], word: str, faults: dict[str, Any]
) -> None:
    ablate(monkeypatch)
    more = {name: value for name, value in faults.items() if not hasattr(NONE, name)}
    faults = {name: value for name, value in faults.items() if hasattr(NONE, name)}
    first = more.pop("first", 0)
    for seed in range(first, first + 40):
        problems = run_dispatcher_world(seed, DispatcherFaults(**faults), **more).problems
        if any(word in problem for problem in problems):
            return
    pytest.fail("40 worlds have no problem without the safeguard")


@pytest.mark.parametrize(
    ("ablate", "faults"), [(_without_fence, 1), (_without_unknown_jobs, 1), (_without_heirs, 2)]
)
def test_the_search_of_endings_notices_a_missing_safeguard(
    monkeypatch: Patch, ablate: Callable[[Patch], None], faults: int
) -> None:
    ablate(monkeypatch)
    assert search_endings(faults).trace is not None


@pytest.mark.deep
@pytest.mark.rule("DSP-3.6")
def test_a_job_in_d_that_its_dispatcher_forgot_needs_the_timeout(monkeypatch: Patch) -> None:
    settings = DispatcherSettings(
        cooldown_period=100, dispatch_timeout=5_000, ping_interval=2_000, timer_interval=500
    )
    monkeypatch.setattr(DispatcherMachine, "_placed", _remember_once(DispatcherMachine._placed))
    world = run_dispatcher_world(1, DispatcherFaults(), settings=settings)
    assert world.problems == []
    _without_dispatch_timeout(monkeypatch)
    problems = run_dispatcher_world(1, DispatcherFaults(), settings=settings).problems
    assert any("is still" in problem for problem in problems)


def _remember_once(placed: Any) -> Any:
    """Return a function that forgets the jobs of every second step."""
    calls = iter(range(1_000_000))

    def remember(self: DispatcherMachine, step: Placed, now: float, actions: Any) -> None:
        if step.cooling and next(calls) % 2:
            return _remember_nothing(self, step, now, actions)
        return placed(self, step, now, actions)

    return remember
