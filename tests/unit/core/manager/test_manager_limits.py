"""A single peer can make a manager keep or log only a bounded amount."""

from __future__ import annotations

import pytest

from tests.unit.core.manager.managers import errors, make
from wmp.actions import Resolve
from wmp.events import Submitted
from wmp.message import Command, ErrorCode, Field, Kind, Outcome
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent


def test_the_memory_that_one_worker_takes_at_a_manager_is_bounded(manager, worker):
    for _ in range(100):
        worker.give(1, hold=3600.0)
    assert len(manager._workers[b"w1"].gives) == 64
    assert max(give.until for give in manager._workers[b"w1"].gives.values()) <= 60.0

    worker.received = 0
    for _ in range(6000):  # each GIVE would be answered by NO, and each NO would be kept
        worker.send(
            worker.message(
                Command.GIVE,
                {
                    Field.LOCK: worker.lock + 1,
                    Field.WANT: 1,
                    Field.ROLES: ["default"],
                    Field.NEEDS: {"slots": 1},
                },
            )
        )
        worker.lock += 1
    assert len(manager._workers[b"w1"].stream.kept) <= 4097


def test_the_number_of_workers_is_bounded():
    manager = make(max_workers=2)
    answers = [
        errors(ScriptedWorker(manager, b"w%d" % i, link=b"%d" % i).ready(1)) for i in range(3)
    ]
    assert answers == [[], [], [ErrorCode.LIMIT]]


def test_the_workers_of_one_connection_are_bounded_and_make_place_when_they_go():
    manager = make(max_identities=2)
    several = [ScriptedWorker(manager, b"w%d" % i, link=b"one") for i in range(3)]
    answers = [errors(worker.ready(1)) for worker in several]
    assert answers == [[], [], [ErrorCode.LIMIT]]
    assert errors(ScriptedWorker(manager, b"other", link=b"two").ready(1)) == []

    several[0].bye()
    assert errors(several[2].ready(1)) == []
    manager.check_invariants()


def test_the_held_gives_of_all_workers_are_bounded(manager):
    manager = make(max_gives=2)
    workers = [ScriptedWorker(manager, b"w%d" % i, link=b"%d" % i) for i in range(3)]
    answers = [sent(worker.give(1, hold=5.0), Command.NO) for worker in workers]
    assert list(map(len, answers)) == [0, 0, 1]

    workers[0].give(0, lock=1)
    assert not sent(workers[2].give(1, hold=5.0), Command.NO)
    manager.check_invariants()


@pytest.mark.parametrize("outcome", [None, Outcome.LOST], ids=["left", "answered lost"])
def test_the_error_of_a_lost_job_has_no_control_characters_of_its_worker(manager, worker, outcome):
    worker.ready(1, label="\x1b[2Jpi\n:7\u202e")
    manager.handle(Submitted([1], [b"a"], Kind(), max_worker_losses=0), 0.0)
    worker.give(1)

    actions = worker.bye() if outcome is None else worker.done([1], [b"\x1b]0;x"], outcome=outcome)

    (ended,) = (action for action in actions if isinstance(action, Resolve))
    text = bytes(ended.payloads[0]).decode()
    assert text.startswith("\\x1b[2Jpi\\n:7\\u202e\n")
    assert all(line.isprintable() for line in text.split("\n"))
