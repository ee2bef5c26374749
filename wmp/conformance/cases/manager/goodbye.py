"""The messages after BYE (sections 9 and 15), as tests of a manager."""

from __future__ import annotations

from wmp.conformance.peers.conversations import ManagerConversation
from wmp.conformance.script.case import case
from wmp.message import Columns, Command, ErrorCode

_DEVICE = (b"device", 3, b"\x00\x01\x02")


@case("WMP-9.11")
def late_messages_after_goodbye(talk: ManagerConversation) -> None:
    """A GIVE and a DONE that arrive after BYE have no answer and no effect."""
    worker, other = talk.met(), talk.met()
    name = talk.submit(max_worker_losses=5)
    job = worker.take_job()
    columns = Columns([job.id], [job.attempt], outcomes=[0], payloads=[b"too late"])
    done = worker.compose(Command.DONE, columns, manager=job.owner)
    give = worker.compose_give(1)
    worker.bye()
    worker.inbox.clear()
    talk.means = dict.fromkeys(("WMP-4.4", "WMP-4.6"), "WMP-9.11")  # answers to the late GIVE
    worker.transmit(give)
    worker.transmit(done)
    worker.never(Command.TAKE, Command.NO, Command.PONG, what="the worker has sent BYE")
    talk.means = {}
    talk.not_ended(name)
    again = other.take()
    talk.check(len(again) == 1, "another worker received NO; expected the job after BYE")
    other.done(*again)
    talk.end_of(name)


@case("WMP-15.7", "WMP-15.2")
def goodbye_of_another_epoch(talk: ManagerConversation) -> None:
    """BYE of another epoch changes nothing, also while the holder has no route."""
    worker, other = talk.met("behind", hops=_DEVICE), talk.met()
    name = talk.submit(max_worker_losses=5)
    job = worker.take_job()
    worker.lively = False
    worker.error(
        ErrorCode.UNREACHABLE,
        source=_DEVICE[:2],
        about=int(Command.TAKE),
        about_peer=(worker.identity, worker.epoch),
    )
    talk.settle()
    talk.check(not other.take(), "ERROR unreachable ends a lease; expected none", "WMP-9.12")
    for ahead in (1, -1):
        epoch = worker.epoch + ahead
        stranger = talk.worker(
            f"behind {ahead:+}", identity=worker.identity, epoch=epoch, testee=worker.testee
        )
        stranger.lively = False
        stranger.transmit(stranger.compose_bye())
    talk.means = {"WMP-6.4": "WMP-15.7"}
    talk.settle()
    talk.check(
        not other.take(),
        "another worker received the job, although only other epochs of its worker have sent BYE",
    )
    worker.lively = True
    worker.move(talk.wire.dial(), hops=())
    worker.ask()
    worker.done(job)
    talk.end_of(name)
