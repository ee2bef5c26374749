"""The holder of an identity (section 15), as tests of a manager."""

from __future__ import annotations

from wmp.conformance.peers.conversations import ManagerConversation
from wmp.conformance.peers.played_worker import PlayedWorker
from wmp.conformance.script.case import case
from wmp.message import Command, ErrorCode, Peer

_DEVICE = (b"device", 3, b"\x00\x01\x02")


def _rival(talk: ManagerConversation, holder: PlayedWorker, ahead: int) -> PlayedWorker:
    """Make a process of the holder's identity on another connection."""
    epoch = holder.epoch + ahead
    name = f"{holder.name} {ahead:+}"
    return talk.worker(
        name, identity=holder.identity, epoch=epoch, testee=holder.testee, lively=False
    )


def _refusal(talk: ManagerConversation, claimant: PlayedWorker) -> None:
    """Wait for ERROR superseded to a process that does not hold its identity.

    Raises:
        Broken: No ERROR arrived, or another one.
    """
    error = claimant.expect(Command.ERROR, within=1.0 + 2 * talk.wire.grace, rule="WMP-15.5")
    code, about = error["code"], error["about_peer"]
    expected: Peer = (claimant.identity, claimant.epoch)
    good = code == ErrorCode.SUPERSEDED and about is not None and tuple(about) == expected
    text = f"ERROR is {code!r} about {about!r}; expected 'superseded' about {expected!r}"
    talk.check(good, text, "WMP-9.8")


@case("WMP-15.4", "WMP-9.2")
def challenge(talk: ManagerConversation) -> None:
    """A challenge is answered at once, over its route."""
    worker = talk.met()
    pong = worker.ask(challenge=77)
    talk.check(pong["answer"] == 77, f"PONG has answer {pong['answer']}; expected 77")
    pong = worker.ask()
    talk.check(
        pong["answer"] is None, "PONG has an answer; expected none, because PING had no challenge"
    )


@case("WMP-15.1", "WMP-15.3", "WMP-15.5", "WMP-9.6", "WMP-9.8")
def claim_of_another_epoch(talk: ManagerConversation) -> None:
    """A message of a held identity over another route has no effect, whatever its epoch is."""
    worker, other = talk.met(), talk.met()
    name = talk.submit()
    job = worker.take_job()
    for ahead in (1, -1):
        claimant = _rival(talk, worker, ahead)
        talk.means = {"WMP-9.2": "WMP-15.1", "WMP-4.6": "WMP-15.1"}
        worker.clear()
        claimant.ready(4)
        if ahead == 1:  # soon after a claim, another may fail without a challenge (WMP-15.5)
            worker.expect(
                Command.PONG,
                where=lambda received: received["challenge"] is not None,
                rule="WMP-15.3",
                what="the manager must ask the holder about the claim",
            )
        claimant.ping(to=())
        what = "another process holds the identity"
        claimant.never(Command.WAKE, Command.PONG, rule="WMP-15.1", what=what)
        _refusal(talk, claimant)
        claimant.give(1, hold=4.0)
        claimant.bye()
        talk.settle()
    talk.check(
        not other.take(),
        "another worker received the job, although the holder of the identity has its lease",
        "WMP-15.1",
    )
    talk.submit(b"another")
    claimant.never(Command.WAKE, Command.TAKE, what="another process holds the identity")
    worker.done(job)
    talk.end_of(name)
    other.done(other.take_job())


@case("WMP-15.5", "WMP-15.3", "WMP-15.1")
def claim_of_the_same_epoch(talk: ManagerConversation) -> None:
    """A second route of a worker has no effect while the first is alive, and gets no ERROR."""
    worker = talk.met()
    second = _rival(talk, worker, 0)
    for _ in range(3):
        second.ping(to=())
        what = "the other route of this worker holds the identity"
        second.never(Command.PONG, during=0.25, rule="WMP-15.1", what=what)
        second.never(Command.ERROR, during=0.25, what=what)
    pong = worker.ask()
    talk.check(
        pong["session"] == worker.session,
        f"the holder has session {pong['session']}; expected {worker.session}: a claim ends no "
        "session",
    )


@case("WMP-15.6", "WMP-9.7")
def silent_holder(talk: ManagerConversation) -> None:
    """A process takes over the identity of a holder that does not answer, whatever its epoch is."""
    worker, other = talk.met(), talk.met()
    name = talk.submit(max_worker_losses=5)
    worker.take()
    before = worker.session
    for ahead in (-1, 1):
        worker.lively = False
        heir = _rival(talk, worker, ahead)
        for job in list(worker.held.values()):
            job.free = True
        heir.ping(to=())
        pong = heir.expect(Command.PONG, within=1.0 + 2 * talk.wire.grace)
        talk.check(
            pong["session"] > before,
            f"session is {pong['session']}; expected more than {before}",
            "WMP-9.7",
        )
        before = pong["session"]
        worker, heir.lively = heir, True
    again = other.take()
    talk.check(
        len(again) == 1,
        "another worker received NO; expected the job, because the worker that held the job "
        "has a newer epoch",
        "WMP-9.7",
    )
    other.done(*again)
    talk.end_of(name)


@case("WMP-15.2", "WMP-9.7")
def greater_epoch_of_the_holder(talk: ManagerConversation) -> None:
    """A greater epoch over the route of the holder is admitted at once."""
    worker = talk.met()
    worker.restart()
    worker.ping(to=())
    worker.expect(Command.PONG)


@case("WMP-15.7", "WMP-9.11")
def goodbye_over_a_new_route(talk: ManagerConversation) -> None:
    """BYE over a new route counts as BYE of the holder once the old route is lost."""
    worker, other = talk.met(), talk.met()
    name = talk.submit(max_worker_losses=5)
    worker.take_job()
    assert worker.connection is not None
    talk.wire.hang_up(worker.connection)
    worker.connection = talk.wire.dial()
    worker.settle()
    worker.bye()
    talk.wait(1.0 + talk.wire.grace)
    again = other.take()
    talk.check(
        len(again) == 1,
        "another worker received NO; expected the job, because the worker that held the job "
        "has sent BYE",
    )
    other.done(*again)
    talk.end_of(name)


@case("WMP-15.8", "WMP-9.12")
def report_from_elsewhere(talk: ManagerConversation) -> None:
    """ERROR unreachable counts only from a node on the route, and with a receiver."""
    worker = talk.met("behind", hops=_DEVICE)
    about = {"about": int(Command.TAKE), "about_peer": worker.path[:2]}
    worker.ready(5)
    stranger = talk.worker("stranger", testee=worker.testee, lively=False)
    stranger.error(ErrorCode.UNREACHABLE, **about)
    beside = (b"beside", 1, *_DEVICE[:2], b"\x00\x09")
    worker.error(ErrorCode.UNREACHABLE, source=beside, **about)
    worker.error(ErrorCode.UNREACHABLE, source=_DEVICE[:2], to=(), **about)
    pong = worker.ask()
    talk.check(
        pong["credit"] == 5,
        f"PONG names credit {pong['credit']}; expected 5: these ERRORs change nothing",
    )


@case("WMP-15.10", "WMP-9.8")
def superseded(talk: ManagerConversation) -> None:
    """No ERROR superseded stops a manager, from a known worker or from an unknown one."""
    worker = talk.met()
    assert worker.testee is not None
    identity, epoch = worker.testee
    worker.error(ErrorCode.SUPERSEDED, to=(), about_peer=worker.testee)
    stranger = talk.worker("stranger", testee=worker.testee, lively=False)
    stranger.error(ErrorCode.SUPERSEDED, about_peer=worker.testee)
    worker.error(ErrorCode.SUPERSEDED, about_peer=(identity, epoch - 1))
    talk.wire.may_end = True
    talk.settle()
    worker.error(ErrorCode.SUPERSEDED, about_peer=worker.testee)
    talk.wait(2.0)
    talk.check(
        not talk.wire.ended, "the manager ended on ERROR superseded; expected it to continue"
    )
    talk.wire.may_end = False
