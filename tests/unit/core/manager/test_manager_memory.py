"""The manager machine: the bound on WAKEs, remembered locks, other sessions (spec §3, §4, §7)."""

from __future__ import annotations

import pytest

from tests.unit.core.manager.managers import lease, resolved, submit
from wmp.events import Ticked
from wmp.message import Columns, Command, Field, Outcome
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent
from wmp.testing.worlds.memory_bounds import sizes


def offering(manager, number, now=0.0):
    """Return a worker that reports credit 1, and the actions of the manager."""
    worker = ScriptedWorker(manager, identity=b"w%d" % number, link=b"link-%d" % number, now=now)
    return worker, worker.ready(1)


@pytest.mark.rule("WMP-3.5")
def test_the_bound_on_wakes_returns_to_the_waiting_jobs_when_a_job_is_granted(manager):
    workers = [offering(manager, number)[0] for number in range(4)]
    woken = len(sent(submit(manager, b"1", b"2"), Command.WAKE))
    while woken < 4:
        now = manager.deadline()
        woken += len(sent(manager.handle(Ticked(), now), Command.WAKE))
    for worker in workers:
        worker.now = now
    (take,) = sent(workers[0].give(1), Command.TAKE)
    assert list(take.columns.ids) == [1]
    for worker in workers[1:]:
        worker.ready(0)

    more = [offering(manager, 4 + number, now)[1] for number in range(3)]

    assert [len(sent(actions, Command.WAKE)) for actions in more] == [1, 0, 0]


@pytest.mark.rule("WMP-4.5")
def test_the_withdrawal_of_a_lock_that_is_not_open_has_no_effect(manager, worker):
    assert not sent(worker.give(0, lock=5))
    (pong,) = sent(worker.ping())
    assert Field.LOCK not in pong.fields

    submit(manager, b"1")

    assert sent(worker.give(1, lock=5), Command.TAKE)


@pytest.mark.rule("WMP-4.5")
def test_a_manager_forgets_the_locks_of_a_worker_with_the_worker(manager, worker):
    worker.give(1, lock=7)
    worker.bye()
    worker.session = 0

    (pong,) = sent(worker.ping())

    assert Field.LOCK not in pong.fields


@pytest.mark.rule("WMP-6.3")
def test_of_two_results_of_one_job_in_one_done_the_first_counts(manager, worker):
    lease(manager, worker, b"1")

    actions = worker.done([1, 1], [b"first", b"second"])

    assert [payload for _, _, payload in resolved(actions)] == [b"first"]


@pytest.mark.parametrize("ids", [[1], [1, 1]], ids=["one result", "two results"])
def test_a_job_that_ended_leaves_no_timer_for_its_deadline(manager, worker, ids):
    worker.ready(0)
    before = sizes(manager)["timers"]
    lease(manager, worker, b"1", timeout=1000.0)
    assert sizes(manager)["timers"] > before

    worker.done(ids)

    assert sizes(manager)["timers"] == before


@pytest.mark.rule("WMP-7.7")
def test_a_give_of_another_session_is_served(manager, worker):
    worker.ready(0)
    submit(manager, b"1")

    (take,) = sent(worker.give(1, session=9), Command.TAKE)

    assert take.fields[Field.SESSION] == worker.session == 1


@pytest.mark.rule("WMP-7.7")
def test_ack_again_and_list_of_another_session_have_no_effect(manager, worker):
    lease(manager, worker, b"1")

    answers = sent(worker.ping(session=9, ack=1, idle=True, again=True))

    assert [message.command for message in answers] == [Command.PONG]
    assert manager.statistics().leased == 1
    (take,) = sent(worker.ping(again=True, ack=0), Command.TAKE)
    assert take.fields[Field.NUMBER] == 1


@pytest.mark.rule("WMP-2.3")
def test_keys_and_columns_of_other_commands_are_ignored(manager, worker):
    lease(manager, worker, b"1")
    columns = Columns(
        [1], [1], left_ms=[5], outcomes=[Outcome.OK], payloads=[b"result"], fractions=[0.5]
    )

    actions = worker.send(worker.numbered(Command.DONE, columns, credit=7, role="other"))

    assert [payload for _, _, payload in resolved(actions)] == [b"result"]
