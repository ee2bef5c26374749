"""The holder of an identity (section 15), as tests of a worker."""

from __future__ import annotations

from wmp.conformance.peers.conversations import WorkerConversation
from wmp.conformance.peers.played_manager import PlayedManager
from wmp.conformance.script.case import case
from wmp.message import Command, ErrorCode, Peer


def _rival(talk: WorkerConversation, holder: PlayedManager, ahead: int) -> PlayedManager:
    """Make a process of the holder's identity on another route."""
    return talk.manager(
        f"{holder.name} {ahead:+}",
        identity=holder.identity,
        epoch=holder.epoch + ahead,
        answers=False,
    )


@case("WMP-15.4")
def challenge(talk: WorkerConversation) -> None:
    """A challenge over a known or unknown route is answered at once over the same route."""
    manager, _ = talk.met(), talk.met()
    for peer in (manager, _rival(talk, manager, 1)):
        peer.pong(challenge=77)
        peer.expect(
            Command.PING,
            where=lambda received: received["answer"] == 77,
            what="the worker must answer a challenge",
        )


@case("WMP-15.1", "WMP-15.3", "WMP-15.5", "WMP-9.6", "WMP-9.8")
def claim_to_a_manager(talk: WorkerConversation) -> None:
    """A message of a known manager over another route has no effect, whatever its epoch is."""
    talk.means = {"WMP-7.2": "WMP-15.1"}  # an ack shows that a message was accepted
    manager, _ = talk.met(), talk.met()
    for ahead in (1, -1):
        claimant = _rival(talk, manager, ahead)
        manager.clear()
        claimant.pong()
        if ahead == 1:  # soon after a claim, another may fail without a challenge (WMP-15.5)
            manager.expect(
                Command.PING,
                where=lambda received: received["challenge"] is not None,
                rule="WMP-15.3",
                what="the worker must ask the holder about the claim",
            )
        what = "another process holds the identity"
        replies = Command.READY, Command.PING, Command.GIVE
        claimant.never(*replies, where=_is_directed, rule="WMP-15.1", what=what)
        error = claimant.expect(Command.ERROR, within=1.0 + 2 * talk.wire.grace, rule="WMP-15.5")
        code, about = error["code"], error["about_peer"]
        expected: Peer = (claimant.identity, claimant.epoch)
        good = code == ErrorCode.SUPERSEDED and about is not None and tuple(about) == expected
        text = f"ERROR is {code!r} about {about!r}; expected 'superseded' about {expected!r}"
        talk.check(good, text, "WMP-9.8")
        claimant.wake(1)
        claimant.never(*replies, where=_is_directed, what=what)
    (job,) = manager.run()
    manager.done_of(job)


def _is_directed(received: object) -> bool:
    return bool(received.message.to)  # type: ignore[attr-defined]


@case("WMP-15.5", "WMP-15.3", "WMP-15.1")
def second_route_of_a_manager(talk: WorkerConversation) -> None:
    """A second route of a manager has no effect while the first is alive, and gets no ERROR."""
    talk.means = {"WMP-7.2": "WMP-15.1"}  # an ack shows that a message was accepted
    manager, _ = talk.met(), talk.met()
    second = _rival(talk, manager, 0)
    for _ in range(3):
        second.pong()
        what = "the other route of this manager holds the identity"
        second.never(Command.ERROR, during=0.5, where=_is_directed, what=what)
        acts = Command.READY, Command.PING, Command.GIVE
        second.never(*acts, during=0.0, where=_is_directed, rule="WMP-15.1", what=what)
    (job,) = manager.run()
    manager.done_of(job)


@case("WMP-15.6", "WMP-9.7")
def silent_holder(talk: WorkerConversation) -> None:
    """A manager takes over the identity of a silent manager, whatever its epoch is."""
    manager, _ = talk.met(), talk.met()
    manager.answers = False
    heir = _rival(talk, manager, -1)
    heir.pong()
    heir.expect(Command.PING, where=_is_directed, within=1.0 + 2 * talk.wire.grace)
    manager.locks.clear()
    heir.answers = True
    (job,) = heir.run()
    heir.done_of(job)


@case("WMP-15.2", "WMP-9.7")
def greater_epoch_of_the_holder(talk: WorkerConversation) -> None:
    """A greater epoch over the route of the holder is admitted at once."""
    talk.means = {"WMP-7.2": "WMP-9.7"}  # the ack counts messages of the older epoch
    manager, _ = talk.met(), talk.met()
    manager.restart()
    manager.wake(1)
    manager.expect(Command.GIVE, where=manager.is_open)


@case("WMP-15.8", "WMP-9.12")
def report_from_elsewhere(talk: WorkerConversation) -> None:
    """ERROR superseded about a manager counts only from a node on its route, with a receiver."""
    _, manager = talk.met(), talk.met("behind")
    (job,) = manager.run(b"\x01", role="echo")
    manager.done_of(job)
    manager.clear()
    about = {"about_peer": (manager.identity, manager.epoch)}
    beside = (b"beside", 1, *manager.hops[:2], 99)
    manager.error(ErrorCode.SUPERSEDED, source=beside, **about)
    manager.error(ErrorCode.SUPERSEDED, source=manager.hops[:2], to=(), **about)
    # A worker that had forgotten the manager would know no session: its PING would name none.
    ping = manager.expect(Command.PING, where=_is_directed, within=3.0 + talk.wire.grace)
    talk.check(
        ping["session"] == manager.session,
        f"PING names session {ping['session']}; expected {manager.session}: these ERRORs change "
        "nothing",
    )


@case("WMP-15.9", "WMP-9.8")
def superseded(talk: WorkerConversation) -> None:
    """A worker stops when all its managers refuse it, after three intervals and not before."""
    talk.means = {"WMP-10.1": "WMP-15.9"}  # the worker ended too early
    manager = talk.met()
    manager.answers = False
    began = talk.now
    while talk.now < began + 6.0 + talk.wire.patience and not talk.wire.ended:
        talk.wire.may_end = talk.over = talk.now > began + 2.9 - talk.wire.grace
        manager.error(ErrorCode.SUPERSEDED, about_peer=manager.testee)
        manager.locks.clear()
        talk.wait(0.5)
    talk.check(
        talk.wire.ended,
        "the worker still runs; expected its end, because its only manager refuses it",
    )


@case("WMP-15.9")
def refused_by_one_of_two(talk: WorkerConversation) -> None:
    """A worker continues while one of its managers serves it."""
    talk.means = {"WMP-10.1": "WMP-15.9"}  # the worker ended
    refusing, serving = talk.met(), talk.met()
    refusing.answers = False
    for _ in range(10):
        refusing.error(ErrorCode.SUPERSEDED, about_peer=refusing.testee)
        refusing.locks.clear()
        talk.wait(0.5)
    (job,) = serving.run()
    serving.done_of(job)


@case("WMP-15.11")
def session_of_a_stranger(talk: WorkerConversation) -> None:
    """A session that a stranger began under the identity of a manager ends with its route."""
    stranger, _ = talk.met(session=1 << 40), talk.met()
    stranger.answers = False
    manager = _rival(talk, stranger, 0)
    manager.pong()
    manager.expect(Command.PING, where=_is_directed, within=1.0 + 2 * talk.wire.grace)
    manager.clear()
    manager.pong()
    manager.expect(
        Command.PING,
        where=lambda received: _is_directed(received) and received["session"] is None,
        what="the manager does not know the session, so the worker must request another",
    )
    stranger.locks.clear()
    manager.answers = True
    (job,) = manager.run()
    manager.done_of(job)
