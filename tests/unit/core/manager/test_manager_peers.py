"""The manager machine, rule by rule: peers, routes, numbering, liveness, bad input."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.unit.core.manager.managers import errors, make, submit
from wmp.actions import Drop, End, Halt, Resolve, Send
from wmp.errors import DecodeError, LocalProtocolError
from wmp.events import Closed, Drained, Garbled, Received, Submitted, Ticked, Undelivered
from wmp.message import Columns, Command, ErrorCode, Field, Kind, Message, Outcome
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent


@pytest.fixture
def manager():
    return make(label="here")


def state(manager):
    """Return all state that an invalid message must not change."""
    stats = manager.statistics()
    return stats.queued, stats.leased, stats.workers, stats.ended, manager.deadline()


# -- §1, §2 identities and routes


@pytest.mark.rule("WMP-1.2", "WMP-1.8", "WMP-7.3")
def test_answers_follow_the_latest_route_and_the_stream_is_sent_again(manager, worker):
    submit(manager, b"job")
    (take,) = sent(worker.give(1), Command.TAKE)
    assert take.to == (1, b"w1")

    worker.link, worker.hops = b"device", (b"d", 3, b"id-at-d")
    ping = worker.message(Command.PING, {Field.SESSION: 1, Field.ACK: 0})
    (challenge,) = sent(worker.send(ping))
    assert challenge.to == (1, b"w1")
    again, pong = sent(manager.handle(Undelivered(b"link-1", challenge), 0.0))

    assert again.to == pong.to == (b"id-at-d", 3, b"d", 1, b"w1")
    assert (again.command, again.fields[Field.NUMBER]) == (Command.TAKE, 1)
    assert again.columns == take.columns
    assert manager.statistics().leased == 1  # the lease is the same


@pytest.mark.rule("WMP-1.5")
def test_a_routing_id_is_no_identity(manager):
    first = ScriptedWorker(manager, b"w1", link=b"same")
    two = ScriptedWorker(manager, b"w2", link=b"same")
    first.ready(1)
    two.ready(2)
    assert {row.identity: row.credit for row in manager.statistics().workers} == {
        b"w1": 1,
        b"w2": 2,
    }


@pytest.mark.rule("WMP-2.7")
def test_a_message_for_another_node_is_misrouted(manager, worker):
    worker.ready(1)
    before = state(manager)
    ping = worker.message(Command.PING, {})

    for to in ((7, b"other"), (b"l", 1, b"d", 7, b"m")):
        actions = manager.handle(Received(b"link-1", evolve(ping, to=to)), 0.0)
        assert errors(actions) == [ErrorCode.MISROUTED]
        (error,) = sent(actions)
        assert error.to == (1, b"w1")
        assert error.fields[Field.ABOUT_PEER] == (to[-1], to[-2])
    assert state(manager) == before


@pytest.mark.rule("WMP-2.7", "WMP-9.6")
@pytest.mark.parametrize("epoch", [6, 8])
def test_a_message_for_another_epoch_of_this_manager_is_superseded(manager, worker, epoch):
    ping = evolve(worker.message(Command.PING, {}), to=(epoch, b"m"))
    (error,) = sent(manager.handle(Received(b"link-1", ping), 0.0))
    assert error.fields[Field.CODE] == ErrorCode.SUPERSEDED
    assert error.fields[Field.ABOUT_PEER] == (b"m", epoch)


@pytest.mark.rule("WMP-2.7", "WMP-9.6")
def test_a_result_for_an_earlier_epoch_of_the_manager_is_superseded_and_counted(manager, worker):
    submit(manager, b"a")
    worker.give(1)
    before = state(manager)
    columns = Columns([1], [1], outcomes=[Outcome.OK], payloads=[b"of a job of the same number"])
    done = evolve(worker.numbered(Command.DONE, columns), to=(6, b"m"))

    actions = manager.handle(Received(b"link-1", done), 0.0)

    assert errors(actions) == [ErrorCode.SUPERSEDED]
    assert not any(isinstance(action, Resolve) for action in actions)
    assert manager.statistics().dropped == {"superseded": 1}
    assert state(manager) == before


# -- §7 numbered streams


@pytest.mark.rule("WMP-7.1")
def test_numbers_start_at_one_and_grow_by_one(manager, worker):
    submit(manager, b"a")
    numbers = [
        message.fields[Field.NUMBER]
        for _ in range(3)
        for message in sent(worker.give(1), Command.TAKE, Command.NO)
    ]
    assert numbers == [1, 2, 3]


@pytest.mark.rule("WMP-7.1", "WMP-7.2")
def test_only_the_next_number_is_accepted(manager, worker):
    submit(manager, b"a", b"b", b"c")
    worker.give(3)

    worker.done([1])
    worker.done([2], number=1)  # another message under the number of an earlier message
    assert manager.statistics().leased == 2

    (pong,) = sent(worker.done([3], number=3))
    assert (pong.command, pong.fields[Field.AGAIN], pong.fields[Field.ACK]) == (
        Command.PONG,
        True,
        1,
    )
    assert sent(worker.done([3], number=4)) == []  # only one PONG for each gap
    assert manager.statistics().leased == 2

    worker.done([2], number=2)
    worker.done([3], number=3)
    assert manager.statistics().leased == 0
    assert manager.statistics().dropped == {"duplicate": 1, "gap": 1, "ahead": 1}


@pytest.mark.rule("WMP-7.3")
def test_unacknowledged_messages_are_sent_again_on_request_and_when_old(manager, worker):
    submit(manager, b"a", b"b")
    worker.give(1)
    worker.give(1)

    replay = sent(worker.ping(again=True, ack=1), Command.TAKE)
    assert [message.fields[Field.NUMBER] for message in replay] == [2]

    resent = sent(manager.handle(Ticked(), 3.0), Command.TAKE)
    assert [message.fields[Field.NUMBER] for message in resent] == [2]

    worker.now = 3.1
    worker.ping(ack=2)
    assert sent(manager.handle(Ticked(), 6.0), Command.TAKE) == []


def test_no_resend_is_due_when_everything_is_acknowledged(manager, worker):
    submit(manager, b"a")
    worker.give(1)
    assert manager.deadline() == manager.settings.resend

    worker.now = 1.0
    worker.ping(ack=1)

    assert manager.deadline() == manager.settings.max_silence, "only the worker's silence is due"


@pytest.mark.rule("WMP-7.4")
def test_an_ack_for_a_number_never_sent_is_ignored(manager, worker):
    submit(manager, b"a")
    worker.give(1)
    worker.ping(ack=99)
    (take,) = sent(worker.ping(again=True, ack=0), Command.TAKE)
    assert take.fields[Field.NUMBER] == 1


@pytest.mark.rule("WMP-7.5")
def test_a_directed_ping_without_session_opens_a_new_one(manager, worker):
    submit(manager, b"a")
    (take,) = sent(worker.give(1), Command.TAKE)
    assert take.fields[Field.SESSION] == 1

    (pong,) = sent(worker.ping(session=None), Command.PONG)

    assert pong.fields[Field.SESSION] == 2
    assert manager.statistics().queued == 1  # the lease is lost
    (take,) = sent(worker.give(1), Command.TAKE)
    assert take.fields[Field.NUMBER] == 1
    assert list(take.columns.attempts) == [2]


@pytest.mark.rule("WMP-7.5")
def test_discovery_does_not_open_a_new_session(manager, worker):
    submit(manager, b"a")
    worker.give(1)
    (pong,) = sent(worker.ping(to=False), Command.PONG)
    assert pong.fields[Field.SESSION] == 1
    assert manager.statistics().leased == 1


@pytest.mark.rule("WMP-7.7")
def test_a_number_of_another_session_is_answered_with_the_current_one(manager, worker):
    submit(manager, b"a")
    worker.give(1)
    worker.ping(session=None)
    (take,) = sent(worker.give(1), Command.TAKE)

    (pong,) = sent(worker.done([1], session=1, attempt=2))

    assert (pong.command, pong.fields[Field.SESSION]) == (Command.PONG, 2)
    assert manager.statistics().leased == 1
    assert take.fields[Field.SESSION] == 2


def test_many_result_bytes_are_acknowledged_without_waiting_for_a_ping(manager, worker):
    submit(manager, b"a", b"b")
    worker.give(2)
    assert sent(worker.done([1], [b"small"])) == []
    (pong,) = sent(worker.done([2], [bytes(5 << 20)]))
    assert (pong.command, pong.fields[Field.ACK]) == (Command.PONG, 2)


# -- §9 liveness and epochs


@pytest.mark.rule("WMP-9.2")
def test_pong_reports_the_remembered_ready_and_lock(manager, worker):
    (pong,) = sent(worker.ping(to=False))
    assert pong.fields == {
        Field.MAX_SILENCE: 6000,
        Field.SESSION: 1,
        Field.ACK: 0,
        Field.LABEL: "here",
    }

    worker.ready(5)
    submit(manager, b"a", b"b")  # one WAKE for two jobs
    (pong,) = sent(worker.ping(), Command.PONG)
    assert (pong.fields[Field.READY], pong.fields[Field.CREDIT]) == (1, 3)

    worker.give(1, lock=4)
    (pong,) = sent(worker.ping(), Command.PONG)
    assert pong.fields[Field.LOCK] == 4


@pytest.mark.rule("WMP-9.3", "WMP-6.4")
def test_a_silent_worker_is_given_up(manager, worker):
    submit(manager, b"a")
    worker.ready(1)
    worker.give(1)
    worker.now = 1.0
    worker.ping()

    manager.handle(Ticked(), 6.9)
    assert manager.statistics().leased == 1
    manager.handle(Ticked(), 7.0)

    stats = manager.statistics()
    assert (stats.workers, stats.queued, stats.leased) == ((), 1, 0)
    assert stats.requeued == {"silence": 1}


@pytest.mark.rule("WMP-9.3")
def test_an_error_is_no_sign_of_life(manager, worker):
    worker.ready(1)
    fields = {Field.CODE: ErrorCode.LIMIT}
    manager.handle(Received(b"l", Message(Command.ERROR, (7, b"m"), (b"w1", 1), fields)), 5.0)
    manager.handle(Ticked(), 6.0)
    assert manager.statistics().workers == ()


@pytest.mark.rule("WMP-7.5", "WMP-9.11")
@pytest.mark.parametrize("left", [True, False], ids=["sent BYE", "was silent"])
@pytest.mark.parametrize("back", ["ready", "ping"])
def test_a_worker_that_was_forgotten_comes_back_by_ready_or_ping_in_a_new_session(
    manager, worker, left, back
):
    worker.ready(1)
    if left:
        worker.bye()
    else:
        manager.handle(Ticked(), 6.0)
        worker.now = 6.0

    assert sent(worker.give(1)) == []
    assert manager.statistics().workers == ()
    assert manager.statistics().dropped == {"after goodbye": 1}

    _ = worker.ready(2) if back == "ready" else worker.ping(to=False)
    (row,) = manager.statistics().workers
    assert row.identity == b"w1"
    (pong,) = sent(worker.ping(to=False), Command.PONG)
    assert pong.fields[Field.SESSION] == 2


@pytest.mark.rule("WMP-7.5", "WMP-9.7")
def test_a_newer_epoch_replaces_the_older(manager):
    old = ScriptedWorker(manager, epoch=4)
    submit(manager, b"a")
    old.ready(9)
    old.give(1)

    new = ScriptedWorker(manager, epoch=5)
    (wake, pong) = sent([*new.ready(1), *new.ping(to=False)])

    assert (wake.command, pong.fields[Field.READY], pong.fields[Field.SESSION]) == (
        Command.WAKE,
        1,
        2,
    )
    (take,) = sent(new.give(1), Command.TAKE)
    assert (take.fields[Field.NUMBER], list(take.columns.attempts)) == (1, [2])
    assert manager.statistics().requeued == {"the worker restarted": 1}


@pytest.mark.rule("WMP-9.13")
def test_a_job_missing_from_the_held_list_is_lost_when_its_take_was_received(manager, worker):
    submit(manager, b"a", b"b")
    worker.give(1)
    worker.give(1)

    worker.ping(held=[(77, 1)], ack=1)
    assert manager.statistics().queued == 1  # the second TAKE may still be on its way

    worker.ping(held=[(77, 1)], ack=2)
    assert manager.statistics().queued == 2
    assert manager.statistics().requeued == {"the worker does not hold the job": 2}


@pytest.mark.rule("WMP-9.13")
def test_a_job_in_the_held_list_stays(manager, worker):
    submit(manager, b"a")
    worker.give(1)
    worker.ping(held=[(1, 1)], ack=1)
    worker.ping(ack=1)  # a PING without a list reports nothing about jobs
    assert manager.statistics().leased == 1


@pytest.mark.rule("WMP-9.11")
def test_bye_gives_the_leases_back_at_once(manager, worker):
    second = ScriptedWorker(manager, b"w2", link=b"l2")
    submit(manager, b"a")
    worker.give(1)
    second.ready(1)

    (wake,) = sent(worker.bye(), Command.WAKE)

    assert wake.receiver == b"w2"
    assert [row.identity for row in manager.statistics().workers] == [b"w2"]
    assert sent(worker.done([1])) == []  # a late message does not bring the worker back
    assert len(manager.statistics().workers) == 1


@pytest.mark.rule("WMP-6.17", "WMP-9.11")
def test_bye_ends_resending_and_an_unsent_take_is_no_worker_loss(manager, worker):
    manager.handle(Submitted([1], [b"a"], Kind(), max_worker_losses=0), 0.0)
    (take,) = sent(worker.give(1), Command.TAKE)
    manager.handle(Undelivered(worker.link, take), 0.0)

    worker.link = b"new"
    actions = worker.bye(ack=0)

    assert sent(actions) == []
    assert not any(isinstance(action, Resolve) for action in actions)
    assert manager.statistics().queued == 1


@pytest.mark.rule("WMP-9.12")
@pytest.mark.parametrize("how", ["undelivered", "error"])
def test_an_unreachable_worker_loses_route_and_credit_but_no_lease(manager, worker, how):
    submit(manager, b"a")
    (take,) = sent(worker.give(1), Command.TAKE)
    worker.ready(5)

    if how == "undelivered":
        manager.handle(Undelivered(b"link-1", take), 0.0)
    else:
        fields = {Field.CODE: ErrorCode.UNREACHABLE, Field.ABOUT_PEER: (b"w1", 1)}
        message = Message(Command.ERROR, (7, b"m"), (b"device", 1), fields)
        manager.handle(Received(b"link-1", message), 0.0)

    assert manager.statistics().leased == 1
    assert manager.statistics().workers[0].credit == 0
    assert sent(submit(manager, b"b")) == []

    worker.link = b"new"
    again, *_ = sent(worker.ping(ack=0))
    assert (again.command, again.columns) == (Command.TAKE, take.columns)


ENDS = {
    "it left": (0, ["silence"], End.LOST),
    "it never left": (1, ["silence"], None),
    "it never left, and left over the next route": (1, ["new route", "silence"], End.LOST),
    "it left, and did not over the next route": (
        0,
        ["new route", "undelivered", "silence"],
        End.LOST,
    ),
    "it never left over two routes": (1, ["new route", "undelivered", "silence"], None),
}


@pytest.mark.rule("WMP-6.17")
@pytest.mark.parametrize(("undelivered", "then", "end"), ENDS.values(), ids=ENDS)
def test_a_lease_whose_take_never_left_is_no_worker_loss(manager, worker, undelivered, then, end):
    manager.handle(Submitted([1], [b"a"], Kind(), max_worker_losses=0), 0.0)
    (take,) = sent(worker.give(1), Command.TAKE)
    resolved = []
    for what in ["undelivered"] * undelivered + then:
        match what:
            case "undelivered":
                actions = manager.handle(Undelivered(worker.link, take), 0.0)
            case "new route":
                before, worker.link = worker.link, b"new"
                actions = worker.ping(ack=0)
                for challenge in sent(actions, Command.PONG):
                    if challenge.to and Field.CHALLENGE in challenge.fields:
                        actions = manager.handle(Undelivered(before, challenge), 0.0)
            case _:
                actions = manager.handle(Ticked(), 100.0)
        resolved += [end for action in actions for end in getattr(action, "ends", ())]
    assert resolved == ([] if end is None else [end])
    assert manager.statistics().queued == (end is None)


def test_an_unreachable_report_about_an_old_route_changes_nothing(manager, worker):
    worker.ready(5)
    (pong,) = sent(worker.ping())
    manager.handle(Undelivered(b"link-0", pong), 0.0)
    assert manager.statistics().workers[0].credit == 5


@pytest.mark.rule("WMP-9.20", "WMP-4.4")
def test_an_open_give_is_answered_over_the_next_route(manager, worker):
    worker.give(3, hold=5.0)
    (pong,) = sent(worker.ping())
    manager.handle(Undelivered(b"link-1", pong), 0.0)
    assert sent(submit(manager, b"a")) == []

    worker.link = b"new"
    no, *_ = sent(worker.ping(ack=0))
    assert (no.command, no.fields[Field.LOCK]) == (Command.NO, 1)


@pytest.mark.rule("WMP-9.13", "WMP-9.9")
def test_an_idle_worker_holds_nothing(manager, worker):
    submit(manager, b"a")
    worker.give(1)
    fields = {Field.IDLE: True, Field.ACK: 1, Field.SESSION: worker.session}
    worker.send(worker.message(Command.PING, fields))
    assert manager.statistics().requeued == {"the worker does not hold the job": 1}


# -- §10 errors


@pytest.mark.rule("WMP-10.1", "WMP-10.2")
def test_garbage_is_counted_and_answered_where_a_route_back_exists(manager, worker):
    worker.ready(1)
    before = state(manager)

    drop, send = manager.handle(Garbled(b"link-1", DecodeError("no CBOR")), 0.0)
    assert isinstance(drop, Drop)
    assert drop.reason == "malformed"
    assert isinstance(send, Send)
    assert (send.link, send.message.to) == (b"link-1", ())

    error = DecodeError("lock is text", source=(b"w1", 1, b"d", 2, b"id"), command=3)
    (answer,) = sent(manager.handle(Garbled(b"link-1", error), 0.0))
    assert answer.to == (b"id", 2, b"d", 1, b"w1")
    assert answer.fields[Field.ABOUT] == 3
    assert state(manager) == before
    assert manager.statistics().dropped == {"malformed": 2}


@pytest.mark.rule("WMP-10.3")
def test_an_error_is_never_answered(manager, worker):
    fields = {Field.CODE: ErrorCode.MALFORMED}
    for to in ((), (7, b"m"), (7, b"somebody else"), (6, b"m")):
        message = Message(Command.ERROR, to, (b"w1", 1), fields)
        assert sent(manager.handle(Received(b"l", message), 0.0)) == []
    garbled = DecodeError("bad", source=(b"w1", 1), command=Command.ERROR)
    assert sent(manager.handle(Garbled(b"l", garbled), 0.0)) == []


@pytest.mark.rule("WMP-10.4")
@pytest.mark.parametrize("command", [Command.WAKE, Command.TAKE, Command.PONG, Command.CANCEL])
def test_a_manager_receives_no_managers_commands(manager, worker, command):
    before = state(manager)
    actions = worker.send(worker.message(command, {Field.NUMBER: 4}))
    assert errors(actions) == [ErrorCode.DIRECTION]
    (error,) = sent(actions)
    assert (error.fields[Field.ABOUT], error.fields[Field.ABOUT_NUMBER]) == (command, 4)
    assert state(manager) == before


@pytest.mark.rule("WMP-10.5")
def test_results_for_jobs_never_given_out_are_unknown(manager, worker):
    submit(manager, b"a")
    worker.give(1)
    submit(manager, b"b")
    worker.give(1)
    # The manager counts the result of job 2, which it knows, and drops the other.
    assert errors(worker.done([2, 99])) == [ErrorCode.UNKNOWN]
    assert manager.statistics().ended == {End.OK: 1}
    assert errors(worker.done([1], manager=(b"somebody", 1))) == [ErrorCode.UNKNOWN]
    status = worker.numbered(Command.STATUS, Columns([9], [1], fractions=[None], texts=["?"]))
    assert errors(worker.send(status)) == [ErrorCode.UNKNOWN]
    assert manager.statistics().leased == 1


@pytest.mark.rule("WMP-10.6")
def test_an_error_with_an_unknown_code_is_counted(manager, worker):
    message = Message(Command.ERROR, (7, b"m"), (b"w1", 1), {Field.CODE: "brand-new"})
    (drop,) = manager.handle(Received(b"l", message), 0.0)
    assert isinstance(drop, Drop)
    assert manager.statistics().dropped == {"ERROR": 1}


def test_closing_answers_open_gives_with_no_at_once(manager, worker):
    submit(manager, b"a")
    worker.give(2, hold=5.0)
    actions = manager.handle(Closed(), 0.0)
    assert [m.command for m in sent(actions)] == [Command.NO]
    assert actions[-1] == Halt(None)


# -- the end


def test_draining_finishes_the_jobs_releases_the_locks_and_stops(manager, worker):
    submit(manager, b"a")
    assert not any(isinstance(a, Halt) for a in manager.handle(Drained(), 0.0))
    with pytest.raises(LocalProtocolError, match="draining"):
        submit(manager, b"too late")

    worker.give(2, hold=5.0)
    actions = worker.done([1])

    assert [m.command for m in sent(actions)] == [Command.NO]
    assert actions[-1] == Halt(None)
    assert manager.statistics().ended == {End.OK: 1}


def test_a_stopping_manager_acknowledges_the_received_results(manager, worker):
    submit(manager, b"a")
    worker.give(1)
    manager.handle(Drained(), 0.0)
    (pong,) = sent(worker.done([1]))
    assert (pong.command, pong.fields[Field.ACK]) == (Command.PONG, 1)


def test_an_idle_manager_has_no_timer_and_a_connected_one_only_expiry(manager, worker):
    assert manager.deadline() is None
    worker.ready(1)
    assert manager.deadline() == 6.0
    worker.bye()
    assert manager.deadline() is None
