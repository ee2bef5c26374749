"""Numbered messages that the receiver never accepts: other messages replace them (spec §7)."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.unit.core.manager import managers
from tests.unit.core.manager.managers import lease, resolved, submit
from tests.unit.core.worker import workers
from tests.unit.core.worker.workers import finish, give, met, runs
from wmp import codec
from wmp.actions import End
from wmp.core.device import DeviceMachine
from wmp.core.protocol.settings import DeviceSettings
from wmp.errors import DecodeError
from wmp.events import Disconnected, Garbled, Reported, Ticked
from wmp.message import Columns, Command, ErrorCode, Field, Message, Outcome
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent

TINY = codec.CodecLimits(payload=3)


def garbled(machine, link, message, limits=TINY):
    """Let the frames of a message arrive at a machine that cannot read all of them."""
    frames = codec.encode(message)
    read = codec.peek if isinstance(machine, DeviceMachine) else codec.decode
    with pytest.raises(DecodeError) as caught:
        read(frames, limits)
    return machine.handle(Garbled(link, caught.value), 0.0)


def refusal(machine_or_peer, number, about, code=ErrorCode.LIMIT, **fields):
    """Send ERROR about a numbered message, as the peer that cannot read it does."""
    named = {"session": machine_or_peer.session, "text": "too long", **fields}
    message = machine_or_peer.compose_error(code, about=int(about), about_number=number, **named)
    return machine_or_peer.send(message)


@pytest.fixture
def serving():
    return workers.make()


@pytest.fixture
def holder(serving):
    return met(serving)


# -- another version


@pytest.mark.rule("WMP-18.1")
@pytest.mark.parametrize("kind", ["manager", "worker", "device"])
def test_error_version_names_the_versions_that_are_read(kind):
    machine = {
        "manager": managers.make,
        "worker": workers.make,
        "device": lambda: DeviceMachine(DeviceSettings(identity=b"d", epoch=5, upstreams=1)),
    }[kind]()
    with pytest.raises(DecodeError) as caught:
        codec.decode([b"\x85\x02\x09\x80\x82\x41x\x01\xa0"])

    (error,) = sent(machine.handle(Garbled(b"link" if kind != "worker" else 0, caught.value), 0.0))

    assert error.fields[Field.CODE] == ErrorCode.VERSION
    assert error.fields[Field.VERSIONS] == (1,)


# -- the receiver


@pytest.mark.rule("WMP-10.7", "WMP-7.1")
def test_error_about_a_numbered_message_names_its_place_and_does_not_accept_it(manager, worker):
    lease(manager, worker, b"1")
    done = worker.compose_done([(1, 1)], [b"too long"], [Outcome.OK], number=1)

    (error,) = sent(garbled(manager, worker.link, done))

    values = [error.fields.get(key) for key in (Field.SESSION, Field.ABOUT, Field.ABOUT_NUMBER)]
    assert values == [worker.session, Command.DONE, 1]
    assert error.fields[Field.CODE] == ErrorCode.LIMIT
    assert [end for _, end, _ in resolved(worker.done([1], number=1))] == [End.OK]


@pytest.mark.rule("WMP-10.7")
def test_a_worker_names_the_place_of_a_take_that_it_cannot_read(serving, holder):
    holder.wake()
    take = holder.compose_take(1, [b"too long"], number=1)

    (error,) = sent(garbled(serving, 0, take))

    values = [error.fields.get(key) for key in (Field.SESSION, Field.ABOUT, Field.ABOUT_NUMBER)]
    assert values == [1, Command.TAKE, 1]
    assert runs(holder.take(1, number=1))


@pytest.mark.rule("WMP-10.7")
def test_error_of_a_device_names_the_receiver_too():
    device = DeviceMachine(DeviceSettings(identity=b"d", epoch=5, upstreams=1))
    columns = Columns([1], [1], payloads=[b"job"])
    fields = {Field.NUMBER: 3, Field.SESSION: 2, Field.LOCK: 1, Field.ROLE: "r"}
    fields |= {Field.NEEDS: {}, Field.MANAGER: (b"m", 1)}
    take = Message(Command.TAKE, (b"l", 5, b"d", 7, b"w"), (b"m", 1), fields, columns)

    (error,) = sent(garbled(device, 0, take, codec.CodecLimits(columns=3)))

    assert error.fields[Field.ABOUT_PEER] == (b"w", 7)
    assert (error.fields[Field.SESSION], error.fields[Field.ABOUT_NUMBER]) == (2, 3)


@pytest.mark.rule("WMP-10.7")
def test_error_about_a_message_for_another_node_names_no_place(manager, worker):
    worker.ping()
    columns = Columns([1], [1], outcomes=[0], payloads=[b"too long"])
    done = evolve(worker.numbered(Command.DONE, columns), to=(9, b"other"))

    (error,) = sent(garbled(manager, worker.link, done))

    assert Field.SESSION not in error.fields


# -- the sender: a manager


@pytest.mark.rule("WMP-7.11")
@pytest.mark.parametrize("code", [ErrorCode.LIMIT, ErrorCode.MALFORMED])
def test_a_refused_take_becomes_no_and_its_leases_are_lost(manager, worker, code):
    lease(manager, worker, b"1", max_worker_losses=1)

    actions = refusal(worker, 1, Command.TAKE, code)

    (no,) = sent(actions, Command.NO)
    assert (no.fields[Field.NUMBER], no.fields[Field.LOCK]) == (1, 1)
    assert manager.statistics().leased == 0
    (take,) = sent(worker.give(2), Command.TAKE)
    assert (take.fields[Field.NUMBER], take.columns.attempts) == (2, [2])
    manager.check_invariants()


@pytest.mark.rule("WMP-7.13")
def test_jobs_of_a_refused_take_go_out_alone_and_only_the_refused_job_pays(manager, worker):
    submit(manager, b"1", b"2", b"3", max_worker_losses=0)
    worker.give(3)
    assert resolved(refusal(worker, 1, Command.TAKE)) == []

    takes = sent(worker.give(3), Command.TAKE)

    assert [list(take.columns.ids) for take in takes] == [[1], [2], [3]]
    ((id, end, _),) = resolved(refusal(worker, takes[1].fields[Field.NUMBER], Command.TAKE))
    assert (id, end) == (2, End.LOST)
    assert manager.statistics().leased == 2
    manager.check_invariants()


@pytest.mark.rule("WMP-7.13")
def test_jobs_of_refused_takes_end_as_lost_when_they_were_lost_too_often(manager, worker):
    lease(manager, worker, b"1", max_worker_losses=0)

    ((_, end, payload),) = resolved(refusal(worker, 1, Command.TAKE))

    assert end is End.LOST
    assert payload.endswith(b"the worker refused the TAKE: too long")


@pytest.mark.rule("WMP-7.11")
@pytest.mark.parametrize(
    "wrong",
    [
        {"session": 9},
        {"session": None},
        {"about": int(Command.NO)},
        {"about_number": 2},
        {"code": ErrorCode.UNKNOWN},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_an_error_about_another_message_replaces_nothing(manager, worker, wrong):
    lease(manager, worker, b"1")
    fields = {"session": 1, "about": int(Command.TAKE), "about_number": 1, **wrong}
    code = fields.pop("code", ErrorCode.LIMIT)

    assert not sent(worker.send(worker.compose_error(code, **fields)))
    assert manager.statistics().leased == 1


@pytest.mark.rule("WMP-7.11", "WMP-15.8")
def test_an_error_from_another_route_replaces_nothing(manager, worker):
    lease(manager, worker, b"1")
    stranger = ScriptedWorker(manager, identity=b"w2", link=b"link-2")
    stranger.ping()
    stranger.session = worker.session

    refusal(stranger, 1, Command.TAKE, about_peer=worker.peer)

    assert manager.statistics().leased == 1


@pytest.mark.rule("WMP-7.11")
def test_a_device_on_the_route_can_refuse_a_take():
    manager = managers.make()
    worker = ScriptedWorker(manager, hops=(b"d", 3, b"local"))
    lease(manager, worker, b"1")

    refusal(worker, 1, Command.TAKE, source=(b"d", 3), about_peer=worker.peer)

    assert manager.statistics().leased == 0


@pytest.mark.rule("WMP-7.15")
def test_a_worker_that_refuses_the_replacement_too_gets_a_new_session(manager, worker):
    lease(manager, worker, b"1")
    refusal(worker, 1, Command.TAKE)

    (pong,) = sent(refusal(worker, 1, Command.NO), Command.PONG)

    assert pong.fields[Field.SESSION] == 2
    manager.check_invariants()


@pytest.mark.rule("WMP-7.12")
def test_a_take_that_is_never_acknowledged_counts_as_refused_in_the_end(manager, worker):
    lease(manager, worker, b"1")
    commands, now = [], 0.0
    while Command.NO not in commands:
        now = manager.deadline()
        commands += [message.command for message in sent(manager.handle(Ticked(), now))]
        worker.now = now
        worker.send(worker.compose_ready(0, ready=1, session=None, ack=None))

    assert commands.count(Command.TAKE) == 10
    assert now == pytest.approx(33.0)
    assert manager.statistics().leased == 0


@pytest.mark.rule("WMP-6.34", "WMP-7.12", "WMP-7.13")
@pytest.mark.parametrize(("refused", "runs"), [(True, 0), (False, 1)], ids=["refused", "lost acks"])
def test_jobs_may_have_begun_unless_an_error_refused_their_take(manager, worker, refused, runs):
    submit(manager, b"1", b"2", max_worker_losses=0)
    worker.give(2)
    if refused:
        refusal(worker, 1, Command.TAKE)
    while manager.statistics().leased:
        worker.now = manager.deadline()
        manager.handle(Ticked(), worker.now)
        worker.send(worker.compose_ready(0, ready=1, session=None, ack=None))

    takes = sent(worker.give(2), Command.TAKE)

    assert [list(take.columns.ids) for take in takes] == [[1], [2]]
    assert [take.columns.attempts for take in takes] == [[2], [2]]
    earlier = [(take.columns.begun or [1])[0] for take in takes]
    assert earlier == [runs, runs]
    manager.check_invariants()


@pytest.mark.rule("WMP-7.12")
def test_a_take_that_ends_each_connection_counts_as_refused_in_the_end(manager, worker):
    """A peer whose sockets refuse the size of a message closes the connection each time."""
    lease(manager, worker, b"1")
    commands = []
    for number in range(12):
        worker.now = number * 0.5
        manager.handle(Disconnected(worker.link), worker.now)
        worker.link = b"link-%d" % (number + 2)
        commands += [m.command for m in sent(worker.ping(ack=0))]
        if manager.deadline() <= worker.now + 0.1:
            actions = manager.handle(Ticked(), manager.deadline())
            commands += [message.command for message in sent(actions)]

    assert commands.count(Command.TAKE) == 10
    assert commands.index(Command.NO) > 10
    assert manager.statistics().leased == 0


# -- the sender: a worker


@pytest.mark.rule("WMP-7.14")
def test_a_refused_result_becomes_lost_under_its_number(serving, holder):
    (run,) = runs(give(holder))
    finish(serving, run)

    (done,) = sent(refusal(holder, 1, Command.DONE), Command.DONE)

    assert done.fields[Field.NUMBER] == 1
    assert done.columns.outcomes == [Outcome.LOST]
    assert done.columns.payloads == [b"the manager refused the result: too long"]
    assert done.columns.ids == [1]
    serving.check_invariants()


@pytest.mark.rule("WMP-7.14")
def test_results_of_a_refused_done_go_out_one_by_one(serving, holder):
    holder.take(9, b"1", b"2", role="nobody's")

    messages = sent(refusal(holder, 1, Command.DONE), Command.DONE)

    rows = [(m.fields[Field.NUMBER], m.columns.ids, m.columns.outcomes) for m in messages]
    assert rows == [(1, [1], [Outcome.REFUSED]), (2, [2], [Outcome.REFUSED])]
    (done, after) = sent(refusal(holder, 1, Command.DONE), Command.DONE)
    assert (done.columns.ids, done.columns.outcomes) == ([1], [Outcome.LOST])
    assert after.columns.outcomes == [Outcome.REFUSED]
    serving.check_invariants()


@pytest.mark.rule("WMP-7.15")
def test_a_worker_whose_replacement_is_refused_too_forgets_the_session(serving, holder):
    (run,) = runs(give(holder))
    finish(serving, run)
    refusal(holder, 1, Command.DONE)

    pings = sent(refusal(holder, 1, Command.DONE), Command.PING)

    assert [Field.SESSION in ping.fields for ping in pings] == [False]
    assert not runs(holder.take(1, ids=[7])), "the session was forgotten"


@pytest.mark.rule("WMP-7.12")
def test_a_result_that_is_never_acknowledged_counts_as_refused_in_the_end(serving, holder):
    (run,) = runs(give(holder))
    finish(serving, run)
    outcomes, now = [], 0.0
    while Outcome.LOST not in outcomes:
        now = serving.deadline()
        for message in sent(serving.handle(Ticked(), now), Command.DONE):
            outcomes += message.columns.outcomes
        holder.now = now
        holder.pong(ack=0)

    assert outcomes == [Outcome.OK] * 10 + [Outcome.LOST]
    assert now == pytest.approx(33.0)


@pytest.mark.rule("WMP-7.14")
def test_a_refused_status_loses_its_text(serving, holder):
    (run,) = runs(give(holder))
    serving.handle(Reported(run.lane, 1, 0.5, "half"), 0.0)

    (status,) = sent(refusal(holder, 1, Command.STATUS), Command.STATUS)

    assert (status.fields[Field.NUMBER], status.columns.ids) == (1, [1])
    assert (status.columns.fractions, status.columns.texts) == (None, None)
