"""Jobs that no connected worker can do: the cause in statistics, in the log, in a job's status."""

from __future__ import annotations

import pytest
from attrs import evolve

import wmp.aio
from wmp.core.manager.unserved import WaitingRow
from wmp.events import Submitted
from wmp.message import Kind
from wmp.testing.peers.scripted_worker import ScriptedWorker


def submit(manager, *kinds):
    first = manager._scheduler.last_id + 1
    for id, kind in enumerate(kinds, first):
        manager.handle(Submitted([id], [b""], kind), 0.0)


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (Kind("greeter"), ""),
        (Kind("greeter", (("gpu", 2), ("slots", 1))), ""),
        (
            Kind("greter"),
            (
                "no connected worker offers the role 'greter'; the workers offer "
                "'greeter', 'other'; did you mean 'greeter'?"
            ),
        ),
        (
            Kind("greeter", (("slots", 5),)),
            (
                "no connected worker of the role 'greeter' has slots=5 "
                "(the largest of these workers has slots=4)"
            ),
        ),
        (
            Kind("greeter", (("gpu", 5), ("slots", 5))),
            (
                "no connected worker of the role 'greeter' has gpu=5 "
                "(the largest of these workers has gpu=2) or slots=5 "
                "(the largest of these workers has slots=4)"
            ),
        ),
        (
            Kind("greeter", (("gpus", 1),)),
            (
                "no connected worker of the role 'greeter' has gpus=1 "
                "(these workers have 'gpu', 'slots', 'tpu'; did you mean 'gpu'?)"
            ),
        ),
        (
            Kind("greeter", (("tpu", 1),)),
            (
                "no connected worker of the role 'greeter' has tpu=1 "
                "(the largest of these workers has tpu=0)"
            ),
        ),
        (
            Kind("other", (("gpu", 1),)),
            "no connected worker of the role 'other' has gpu=1 (these workers have 'slots')",
        ),
        (
            Kind("greeter", (("gpu", 2), ("slots", 4))),
            "no connected worker of the role 'greeter' has gpu=2, slots=4 together",
        ),
    ],
)
def test_the_cause_names_the_missing_role_or_resource(manager, kind, cause):
    ScriptedWorker(manager, b"a", link=b"a").ready(
        0, roles=["greeter"], resources={"slots": 1, "gpu": 2, "tpu": 0}
    )
    ScriptedWorker(manager, b"b", link=b"b").ready(
        0, roles=["greeter", "other"], resources={"slots": 4}
    )
    submit(manager, kind)

    (row,) = manager.statistics().waiting
    assert (row.role, row.count, row.unserved) == (kind.role, 1, cause)
    assert manager.unserved(1) == cause


def test_without_any_worker_the_cause_is_that(manager):
    submit(manager, Kind(), Kind())

    assert [(row.count, row.unserved) for row in manager.waiting()] == [
        (2, "no worker is connected")
    ]


def test_a_job_that_runs_or_has_ended_has_no_cause(manager, worker):
    worker.give(1, hold=5.0)
    submit(manager, Kind())

    assert manager.unserved(1) == ""
    assert manager.unserved(99) == ""
    assert manager.waiting() == ()


def test_statistics_show_what_holds_the_resources_of_a_worker(manager, worker):
    worker.ready(2, resources={"slots": 4, "gpu": 2})
    worker.give(2, needs={"slots": 4, "gpu": 2}, hold=5.0)
    submit(manager, Kind(needs=(("gpu", 1), ("slots", 1))), Kind())

    (row,) = manager.statistics().workers
    assert row.resources == {"slots": 4, "gpu": 2}
    assert row.used == {"slots": 2, "gpu": 1}


def test_each_cause_is_logged_once_when_it_stands(caplog):
    manager = wmp.aio.Manager("tcp://127.0.0.1:5570")
    watch = manager._unserved
    kinds = [WaitingRow(f"r{n}", {"slots": 1}, "", 3, "no worker is connected") for n in range(7)]
    able = WaitingRow("able", {"slots": 1}, "", 1, "")

    watch.look((able, *kinds))
    assert caplog.messages == []
    watch.look((able, *kinds))
    watch.look((able, *kinds))
    assert [message.partition(": ")[2] for message in caplog.messages] == [
        *(f"jobs of role 'r{n}' wait (3 jobs): no worker is connected" for n in range(5)),
        "jobs of 2 more kinds wait; statistics() lists them",
    ]

    other = evolve(kinds[0], unserved="no connected worker offers the role 'r0'")
    watch.look((other,))
    watch.look((other,))
    assert caplog.messages[6:] == [f"manager: jobs of role 'r0' wait (3 jobs): {other.unserved}"]
