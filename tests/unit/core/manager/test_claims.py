"""Claims to an identity (spec §15): the holder's route decides, and never the epoch alone."""

from __future__ import annotations

import pytest

from tests.unit.core.worker import workers
from tests.unit.core.worker.workers import finish, give, met, reasons, runs, until
from wmp.actions import Halt, Interrupt
from wmp.balance import least_recently_used
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings
from wmp.errors import Superseded
from wmp.events import Connected, Received, Submitted, Ticked, Undelivered
from wmp.message import Command, ErrorCode, Field, Kind, Limits, Message
from wmp.testing.peers.scripted_manager import ScriptedManager
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent

LAST = Limits.UINT
"""The greatest epoch, so that no later start can have a greater one."""
BELOW = (b"d", 3, b"local 1")
BESIDE = (b"d", 3, b"local 2")
"""Hops of two peers behind one device."""


def make_manager(**options):
    return ManagerMachine(ManagerSettings(identity=b"m", epoch=7, **options), least_recently_used)


@pytest.fixture
def manager():
    return make_manager()


def make_holder(manager):
    """Return the honest worker, which holds the identity, one lease and credit."""
    worker = ScriptedWorker(manager, epoch=5, link=b"honest")
    manager.handle(Submitted([1], [b"secret"], Kind()), 0.0)
    worker.give(1)
    worker.ready(1)
    return worker


@pytest.fixture
def holder(manager):
    return make_holder(manager)


def claim(manager, **options):
    options = {"epoch": LAST, "link": b"elsewhere", "session": 1, **options}
    return ScriptedWorker(manager, **options)


def challenge_in(actions):
    """Return the number of the challenge among these actions, or None."""
    numbers = [m.fields[Field.CHALLENGE] for m in sent(actions) if Field.CHALLENGE in m.fields]
    assert len(numbers) <= 1
    return numbers[0] if numbers else None


def refusals(actions):
    """Return (link, to, peer) of each ERROR superseded."""
    return [
        (action.link, action.message.to, action.message.fields[Field.ABOUT_PEER])
        for action in actions
        if getattr(action, "message", None) is not None
        and type(action).__name__ == "Send"
        and action.message.fields.get(Field.CODE) == ErrorCode.SUPERSEDED
    ]


def row(manager):
    (row,) = manager.statistics().workers
    return row.credit, row.leased


# -- a worker's identity at a manager


@pytest.mark.rule("WMP-15.1", "WMP-15.3", "WMP-9.6")
@pytest.mark.parametrize("epoch", [4, 5, 6, LAST])
@pytest.mark.parametrize("what", ["ready", "give", "done", "ping", "bye"])
def test_a_message_over_another_route_is_not_acted_on_and_the_holder_is_asked(
    manager, holder, epoch, what
):
    thief = claim(manager, epoch=epoch)
    before = row(manager)

    actions = thief.done([1]) if what == "done" else getattr(thief, what)()

    (challenge,) = sent(actions)
    assert (challenge.command, challenge.to) == (Command.PONG, (5, b"w1"))
    assert challenge_in(actions) == 1
    assert reasons(actions) == ["claimed"]
    assert row(manager) == before
    assert manager.statistics().ended == {}


@pytest.mark.rule("WMP-15.5")
@pytest.mark.parametrize("epoch", [4, 6, LAST])
def test_a_claim_fails_when_the_holder_answers(manager, holder, epoch):
    number = challenge_in(claim(manager, epoch=epoch).ready(8))

    actions = holder.ping(answer=number)

    assert refusals(actions) == [(b"elsewhere", (epoch, b"w1"), (b"w1", epoch))]
    assert row(manager) == (1, 1)
    assert not sent(manager.handle(Ticked(), 2.0), Command.TAKE)
    assert manager.statistics().requeued == {}


@pytest.mark.rule("WMP-15.5")
def test_a_second_route_of_the_same_epoch_gets_no_report(manager, holder):
    number = challenge_in(claim(manager, epoch=5).ready(8))
    assert refusals(holder.ping(answer=number)) == []


@pytest.mark.rule("WMP-15.5")
def test_an_answer_over_the_claims_own_route_does_not_count(manager, holder):
    thief = claim(manager)
    number = challenge_in(thief.ready(8))
    assert refusals(thief.ping(answer=number)) == []
    holder.now = 0.9
    assert len(refusals(holder.ping(answer=number))) == 1


@pytest.mark.rule("WMP-15.5")
def test_an_answer_to_another_challenge_does_not_count(manager, holder):
    number = challenge_in(claim(manager).ready(8))
    assert refusals(holder.ping(answer=number + 1)) == []
    assert refusals(holder.ping()) == []


@pytest.mark.rule("WMP-15.4", "WMP-7.5")
def test_an_answer_without_a_session_opens_no_session(manager, holder):
    holder.ping(session=None, ack=None, answer=1)
    assert manager.statistics().workers[0].leased == 1


@pytest.mark.rule("WMP-15.5")
def test_many_claims_make_the_holder_answer_seldom(manager, holder):
    thief = claim(manager)
    challenges = []
    for hundredth in range(100):
        thief.now = holder.now = hundredth / 100
        number = challenge_in(thief.ready(8))
        if number is not None:
            challenges.append(number)
            holder.ping(answer=number)
    assert challenges == [1, *challenges[1:]]
    assert len(challenges) <= 5


@pytest.mark.rule("WMP-15.3")
def test_there_is_one_challenge_at_a_time(manager, holder):
    assert challenge_in(claim(manager).ready(8)) is not None
    assert sent(claim(manager, epoch=9, link=b"a third").ready(8)) == []


@pytest.mark.rule("WMP-15.6", "WMP-9.7")
@pytest.mark.parametrize("epoch", [4, 6])
@pytest.mark.parametrize("how", ["silence", "undelivered", "unreachable"])
def test_another_epoch_takes_over_when_the_holder_is_not_there(manager, holder, how, epoch):
    """A worker that was killed starts again. Its clock may have gone back."""
    heir = claim(manager, epoch=epoch, session=0)
    actions = heir.ready(8)
    (challenge,) = sent(actions)

    actions = leave(manager, challenge, how)

    (pong,) = sent(actions, Command.PONG)
    assert (pong.to, pong.fields[Field.SESSION]) == ((epoch, b"w1"), 2)
    assert pong.fields[Field.AGAIN] is True
    assert manager.statistics().requeued == {"the worker restarted": 1}
    heir.note(actions)
    (take,) = sent(heir.give(1), Command.TAKE)
    assert list(take.columns.attempts) == [2]


def leave(manager, challenge, how):
    """Let the holder leave without BYE. There are three ways in which the manager notices this."""
    if how == "silence":
        assert manager.handle(Ticked(), 0.9) == []
        return manager.handle(Ticked(), 1.0)
    if how == "undelivered":
        return manager.handle(Undelivered(b"honest", challenge), 0.1)
    fields = {Field.CODE: ErrorCode.UNREACHABLE, Field.ABOUT_PEER: (b"w1", 5)}
    error = Message(Command.ERROR, (7, b"m"), (b"device", 1), fields)
    return manager.handle(Received(b"honest", error), 0.1)


@pytest.mark.rule("WMP-15.6", "WMP-7.3")
def test_the_session_goes_on_over_the_new_route_of_the_same_epoch(manager, holder):
    holder.link = b"new connection"
    (challenge,) = sent(holder.ready(8))

    actions = manager.handle(Undelivered(b"honest", challenge), 0.1)

    take, pong = sent(actions)
    assert (take.command, take.fields[Field.NUMBER]) == (Command.TAKE, 1)
    assert (pong.command, pong.fields[Field.AGAIN], pong.fields[Field.SESSION]) == (
        Command.PONG,
        True,
        1,
    )
    assert manager.statistics().workers[0].leased == 1
    assert manager.statistics().requeued == {}


@pytest.mark.rule("WMP-15.6")
def test_a_worker_that_forgot_the_session_gets_no_replay(manager, holder):
    holder.link = b"new connection"
    (challenge,) = sent(holder.ping(session=None, ack=None))
    actions = manager.handle(Undelivered(b"honest", challenge), 0.1)
    assert [m.command for m in sent(actions)] == [Command.PONG]


@pytest.mark.rule("WMP-15.7", "WMP-9.11")
def test_a_goodbye_over_a_new_route_counts_when_the_old_route_is_lost(manager, holder):
    holder.link = b"new connection"
    (challenge,) = sent(holder.bye())
    manager.handle(Undelivered(b"honest", challenge), 0.1)
    assert manager.statistics().workers == ()
    assert manager.statistics().requeued == {"the worker sent BYE": 1}


@pytest.mark.rule("WMP-15.7", "WMP-9.3")
@pytest.mark.parametrize("epoch", [4, 6])
def test_a_goodbye_of_another_epoch_keeps_no_silent_worker(epoch):
    manager = make_manager(max_silence=1.0, challenge=10.0)
    ScriptedWorker(manager, epoch=5, link=b"honest").ready(1)
    assert challenge_in(claim(manager, epoch=epoch, now=0.9).bye()) == 1
    assert len(manager.statistics().workers) == 1

    manager.handle(Ticked(), 1.0)

    assert manager.statistics().workers == ()


@pytest.mark.rule("WMP-15.6")
def test_a_claim_is_admitted_when_the_holder_is_silent_for_expire():
    manager = make_manager(max_silence=1.0, challenge=10.0)
    ScriptedWorker(manager, epoch=5, link=b"honest").ready(1)
    heir = claim(manager, epoch=6, now=0.9)
    heir.ready(8)
    (pong,) = sent(manager.handle(Ticked(), 1.0), Command.PONG)
    assert pong.to == (6, b"w1")
    assert manager.handle(Ticked(), 1.5) == []
    assert len(manager.statistics().workers) == 1


@pytest.mark.rule("WMP-15.6")
def test_a_challenge_lasts_half_of_expire_at_most():
    manager = make_manager(max_silence=1.0)
    ScriptedWorker(manager, epoch=5, link=b"honest").ready(1)
    claim(manager, epoch=6).ready(8)
    assert manager.deadline() == 0.5
    worker = workers.make(2)
    serving = met(worker, max_silence=1.2)
    serving.pong()
    worker.handle(Connected(1), 0.0)
    serving.link = 1
    serving.pong()

    admitted = [now for now, actions in until(worker, 1.0) if sent(actions, Command.PING)]

    assert 0.6 in admitted
    assert worker.statistics().managers[0].link == 1


@pytest.mark.rule("WMP-15.2")
def test_a_message_over_a_new_route_is_admitted_at_once_when_the_old_route_is_lost(manager, holder):
    (pong,) = sent(holder.ping(), Command.PONG)
    manager.handle(Undelivered(b"honest", pong), 0.0)
    heir = claim(manager, epoch=4, session=0)
    assert challenge_in(heir.ready(8)) is None
    assert manager.statistics().workers[0].credit + manager.statistics().queued >= 1
    assert manager.statistics().requeued == {"the worker restarted": 1}


@pytest.mark.rule("WMP-15.2", "WMP-15.3")
def test_a_peer_replaces_itself_over_its_own_route_by_a_greater_epoch_only(manager, holder):
    late = claim(manager, epoch=4, link=b"honest")
    assert challenge_in(late.ready(8)) == 1
    assert manager.statistics().requeued == {}
    new = claim(manager, epoch=6, link=b"honest", session=0)
    assert challenge_in(new.ready(8)) is None
    assert manager.statistics().requeued == {"the worker restarted": 1}


@pytest.mark.rule("WMP-15.1", "WMP-12.2")
def test_hops_are_a_part_of_the_route(manager):
    """Two workers are behind one device: the device's hop keeps them apart."""
    honest = ScriptedWorker(manager, epoch=5, link=b"device", hops=BELOW)
    honest.ready(1)
    thief = claim(manager, link=b"device", hops=BESIDE)
    assert challenge_in(thief.ready(8)) == 1
    assert challenge_in(claim(manager, link=b"device", hops=(*BELOW[:2], b"x")).ready(8)) is None


@pytest.mark.rule("WMP-15.6")
def test_an_identity_is_free_when_its_last_holder_left_whatever_the_epoch_was(manager):
    """A thief that came first used the greatest epoch, and then left."""
    thief = claim(manager)
    thief.ready(1)
    honest = ScriptedWorker(manager, epoch=5, link=b"honest")
    number = challenge_in(honest.ready(1))
    assert refusals(thief.ping(answer=number)) == [(b"honest", (5, b"w1"), (b"w1", 5))]

    thief.bye()

    honest.ready(1)
    assert [(w.identity, w.credit) for w in manager.statistics().workers] == [(b"w1", 1)]


@pytest.mark.rule("WMP-15.4")
def test_a_manager_answers_a_challenge(manager, holder):
    (pong,) = sent(holder.ping(challenge=77), Command.PONG)
    assert pong.fields.get(Field.ANSWER) == 77


# -- ERRORs at a manager


def error(manager, link, source, code, peer, to=(7, b"m")):
    fields = {Field.CODE: code, Field.ABOUT_PEER: peer}
    return manager.handle(Received(link, Message(Command.ERROR, to, source, fields)), 0.0)


@pytest.mark.rule("WMP-15.10", "WMP-9.8")
@pytest.mark.parametrize("to", [(7, b"m"), ()])
def test_no_message_stops_a_manager(manager, holder, to):
    for source in ((b"w1", 5), (b"w1", LAST), (b"stranger", 1)):
        for link in (b"honest", b"elsewhere"):
            for code in ("superseded", "unreachable", "misrouted"):
                actions = error(manager, link, source, code, (b"m", 7), to)
                assert not [a for a in actions if isinstance(a, Halt)]
    assert sent(ScriptedWorker(manager, b"w2", link=b"another").ping(), Command.PONG)


@pytest.mark.rule("WMP-15.8")
def test_a_worker_that_serves_another_manager_of_the_identity_is_forgotten(manager, holder):
    assert error(manager, b"elsewhere", (b"w1", 5), "superseded", (b"m", 7))[1:] == []
    assert error(manager, b"honest", (b"w1", 6), "superseded", (b"m", 7))[1:] == []
    assert error(manager, b"honest", (b"w1", 5), "superseded", (b"m", 7), ())[1:] == []
    assert manager.statistics().leased == 1
    error(manager, b"honest", (b"w1", 5), "superseded", (b"m", 7))
    assert manager.statistics().workers == ()
    assert list(manager.statistics().requeued.values()) == [1]


@pytest.mark.rule("WMP-15.8", "WMP-9.12")
@pytest.mark.parametrize("code", ["unreachable", "misrouted", "superseded"])
def test_a_route_is_lost_by_the_report_of_a_node_on_it_only(manager, code):
    hops = (b"low", 2, b"a", b"top", 3, b"b")
    worker = ScriptedWorker(manager, epoch=5, link=b"top's", hops=hops)
    worker.ready(4)
    off = [
        (b"top's", (b"rival", 1, b"low", 2, b"another", b"top", 3, b"b")),
        (b"top's", (b"rival", 1, b"top", 3, b"another")),
        (b"top's", (b"top", 3, b"top", 3, b"another")),
        (b"elsewhere", (b"top", 3)),
        (b"elsewhere", (b"w1", 5, *hops)),
    ]
    for link, source in off:
        error(manager, link, source, code, (b"w1", 5))
        assert manager.statistics().workers[0].credit == 4, source
    for source in [(b"top", 9), (b"low", 9, b"top", 3, b"b"), (b"another", 1, *hops)]:
        worker.ready(4)
        error(manager, b"top's", source, code, (b"w1", 5))
        assert manager.statistics().workers[0].credit == 0, source


# -- a manager's identity at a worker


def make_worker():
    return workers.make(2, resources={"slots": 2})


def make_serving(worker):
    """Return the honest manager behind link 0. Link 1 is connected to a stranger."""
    manager = met(worker)
    worker.handle(Connected(1), 0.0)
    return manager


@pytest.fixture
def worker():
    return make_worker()


@pytest.fixture
def serving(worker):
    return make_serving(worker)


@pytest.mark.rule("WMP-15.1", "WMP-15.3", "WMP-9.6")
@pytest.mark.parametrize("epoch", [0, 1, 2, LAST])
@pytest.mark.parametrize("what", ["wake", "pong", "cancel"])
def test_a_managers_message_over_another_link_is_not_acted_on(worker, serving, epoch, what):
    (run,) = runs(give(serving))
    thief = ScriptedManager(worker, epoch=epoch, link=1)

    actions = thief.cancel(1, session=1) if what == "cancel" else getattr(thief, what)()

    (challenge,) = sent(actions)
    assert (challenge.command, challenge.to) == (Command.PING, (1, b"m1"))
    assert challenge_in(actions) == 1
    assert not [a for a in actions if isinstance(a, Interrupt)]
    assert reasons(actions) == ["claimed"]
    (done,) = sent(finish(worker, run), Command.DONE)
    assert done.to == (1, b"m1")
    assert worker.statistics().locks == 0


@pytest.mark.rule("WMP-15.5")
def test_a_managers_claim_fails_when_the_holder_answers(worker, serving):
    number = challenge_in(ScriptedManager(worker, epoch=LAST, link=1).pong())
    assert refusals(serving.pong(answer=number + 1)) == []
    assert refusals(serving.pong(answer=number)) == [(1, (LAST, b"m1"), (b"m1", LAST))]
    assert worker.statistics().managers[0].epoch == 1


@pytest.mark.rule("WMP-15.6", "WMP-9.7")
@pytest.mark.parametrize("epoch", [0, 2])
@pytest.mark.parametrize("how", ["silence", "undelivered", "unreachable", "superseded"])
def test_a_manager_elsewhere_takes_over_when_the_holder_is_not_there(worker, serving, how, epoch):
    (run,) = runs(give(serving))
    heir = ScriptedManager(worker, epoch=epoch, link=1)
    (challenge,) = sent(heir.pong())

    if how == "silence":
        actions = [a for _, actions in until(worker, 1.0) for a in actions]
    elif how == "undelivered":
        actions = worker.handle(Undelivered(0, challenge), 0.1)
    else:
        actions = serving.error(how, about_peer=(b"m1", 1))

    assert [a for a in actions if isinstance(a, Interrupt)] == [Interrupt(run.lane, [1])]
    ping, *_ = [m for m in sent(actions, Command.PING) if m.to == (epoch, b"m1")]
    assert Field.SESSION not in ping.fields
    (known,) = worker.statistics().managers
    assert (known.epoch, known.link) == (epoch, 1)
    worker.check_invariants()


@pytest.mark.rule("WMP-15.6")
def test_the_session_goes_on_over_another_link(worker, serving):
    (run,) = runs(give(serving))
    serving.link = 1
    (challenge,) = sent(serving.pong())
    worker.handle(Undelivered(0, challenge), 0.1)
    assert worker.statistics().held == 1
    assert sent(finish(worker, run), Command.DONE)
    worker.check_invariants()


def moved(worker, session):
    """Return the manager of a session whose route has moved to link 1, and its script there."""
    before = make_serving(worker)
    before.session = session
    before.pong()
    before.wake()
    after = ScriptedManager(worker, epoch=1, link=1)
    (challenge,) = sent(after.pong())
    (ping,) = sent(worker.handle(Undelivered(0, challenge), 0.1), Command.PING)
    assert ping.fields[Field.SESSION] == session
    return after


@pytest.mark.rule("WMP-15.11")
def test_the_session_of_a_stranger_ends_when_the_manager_names_an_older_one(worker):
    manager = moved(worker, session=LAST)
    pings = sent(manager.pong(), Command.PING)
    assert [Field.SESSION in ping.fields for ping in pings] == [False]
    manager.pong()
    (run,) = runs(give(manager))
    assert sent(finish(worker, run), Command.DONE)
    worker.check_invariants()


@pytest.mark.rule("WMP-15.11", "WMP-7.8")
def test_a_session_that_was_named_over_the_new_route_stays(worker):
    manager = moved(worker, session=5)
    manager.session = 5
    manager.pong()
    manager.session = 4
    assert sent(manager.pong(), Command.PING) == []
    manager.session = 5
    assert runs(give(manager))


@pytest.mark.rule("WMP-15.6")
def test_a_manager_whose_clock_went_back_is_served_again(worker, serving):
    """The new process is at the same endpoint.

    A message to the old process shows that it is gone.
    """
    new = ScriptedManager(worker, epoch=0)
    (challenge,) = sent(new.pong())
    assert challenge.to == (1, b"m1")
    new.error("superseded", about_peer=(b"m1", 1))
    assert worker.statistics().managers[0].epoch == 0
    assert sent(new.wake(), Command.GIVE)


@pytest.mark.rule("WMP-15.6")
def test_a_silent_holder_yields_at_its_expire_and_the_worker_goes_on():
    worker = workers.make(2, challenge=60.0)
    serving = met(worker, max_silence=2.0)
    serving.pong()
    worker.handle(Connected(1), 0.0)
    serving.link, serving.now = 1, 1.5
    serving.pong()
    list(until(worker, 2.5))
    (known,) = worker.statistics().managers
    assert known.link == 1
    worker.check_invariants()


@pytest.mark.rule("WMP-15.4")
def test_a_worker_answers_a_challenge(worker, serving):
    (ping,) = sent(serving.pong(challenge=9), Command.PING)
    assert ping.fields[Field.ANSWER] == 9
    assert ping.fields[Field.SESSION] == 1


@pytest.mark.rule("WMP-15.4")
@pytest.mark.parametrize("epoch", [1, 2])
def test_a_worker_answers_a_challenge_over_every_route(worker, serving, epoch):
    elsewhere = ScriptedManager(worker, epoch=epoch, link=1)
    _, ping = sent(elsewhere.pong(challenge=9))
    assert (ping.to, ping.fields[Field.ANSWER]) == ((epoch, b"m1"), 9)
    assert (Field.SESSION in ping.fields) == (epoch == 1)


# -- ERRORs at a worker


@pytest.mark.rule("WMP-15.9")
def test_one_of_two_managers_does_not_stop_a_worker(worker, serving):
    other = met(worker, identity=b"m2", link=1)
    (run,) = runs(give(serving))
    for second in range(10):
        other.now = serving.now = float(second)
        actions = other.error("superseded", about_peer=(b"w", 5))
        assert not [a for a in actions if isinstance(a, Halt)]
        serving.pong()
    assert [row.identity for row in worker.statistics().managers] == [b"m1"]
    assert sent(finish(worker, run, now=9.0), Command.DONE)


@pytest.mark.rule("WMP-15.9")
def test_a_worker_that_is_refused_behind_one_of_two_links_looks_on(worker):
    refusing = met(worker)
    for second in range(10):
        refusing.now = float(second)
        refusing.error("superseded", about_peer=(b"w", 5))
        list(until(worker, refusing.now))
    assert worker.deadline() is not None


@pytest.mark.rule("WMP-15.9", "WMP-9.8")
@pytest.mark.parametrize("known", [True, False], ids=["served before", "never served"])
def test_a_worker_that_no_manager_serves_stops_after_three_intervals(known):
    worker = workers.make()
    refusing = met(worker) if known else ScriptedManager(worker)
    if not known:
        worker.handle(Connected(0), 0.0)
    stopped = []
    for tenth in range(40):
        refusing.now = tenth / 10
        actions = refusing.error("superseded", about_peer=(b"w", 5))
        stopped += [(refusing.now, a.error) for a in actions if isinstance(a, Halt)]
    ((now, reason),) = stopped
    assert now == 3.0
    assert isinstance(reason, Superseded)
    assert "identity of its own" in str(reason)
    assert worker.deadline() is None
    assert worker.handle(Ticked(), 9.0) == []


@pytest.mark.rule("WMP-15.9")
def test_a_worker_that_is_served_again_is_not_counted_as_refused():
    worker = workers.make()
    manager = met(worker)
    for second in (0.0, 2.0, 4.0, 6.0, 8.0):
        manager.now = second
        manager.error("superseded", about_peer=(b"w", 5))
        manager.pong()
    assert worker.deadline() is not None


@pytest.mark.rule("WMP-15.8")
def test_a_refusal_over_another_link_or_without_a_receiver_changes_nothing(worker, serving):
    thief = ScriptedManager(worker, link=1)
    about = {"about_peer": (b"w", 5)}
    for actions in (
        thief.error("superseded", **about),
        serving.error("superseded", to=(), **about),
        serving.error("superseded", about_peer=(b"w", 4)),
    ):
        assert reasons(actions) == ["ERROR superseded"]
        assert len(actions) == 1
    assert len(worker.statistics().managers) == 1


@pytest.mark.rule("WMP-15.8", "WMP-9.12")
@pytest.mark.parametrize("code", ["unreachable", "misrouted", "superseded"])
def test_a_manager_is_lost_by_the_report_of_a_node_on_its_route_only(worker, code):
    worker.handle(Connected(0), 0.0)
    worker.handle(Connected(1), 0.0)
    manager = ScriptedManager(worker, hops=(b"d", 3, 0))
    manager.pong()
    manager.pong()
    about = {"about_peer": (b"m1", 1)}
    for link, source in [
        (0, (b"m2", 1, b"d", 3, 1)),
        (1, (b"d", 3)),
        (1, (b"m1", 1, b"d", 3, 0)),
    ]:
        message = manager.compose(Command.ERROR, code=code, source=source, **about)
        worker.handle(Received(link, message), 0.0)
        assert worker.statistics().managers[0].reachable, (link, source)
    message = manager.compose(Command.ERROR, code=code, source=(b"d", 3), **about)
    worker.handle(Received(0, message), 0.0)
    assert not any(row.reachable for row in worker.statistics().managers)


@pytest.mark.rule("WMP-15.7", "WMP-15.2")
@pytest.mark.parametrize("epoch", [4, 6])
def test_a_goodbye_of_another_epoch_changes_nothing_while_the_holder_has_no_route(
    manager, holder, epoch
):
    (pong,) = sent(holder.ping())
    manager.handle(Undelivered(b"honest", pong), 0.1)
    claim(manager, epoch=epoch).bye()

    (worker,) = manager.statistics().workers
    assert worker.leased == 1
