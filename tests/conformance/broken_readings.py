"""Broken peers that read a sentence of the specification in another way than it is meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve

from tests.conformance.broken_peers import Bend, Link, Patch, bent, changed, columned, switched
from wmp.core.manager import machine as manager_machine
from wmp.core.manager.failures import Failures
from wmp.core.manager.job_lifecycle import JobState
from wmp.core.manager.queues import Queue
from wmp.core.manager.scheduler import Scheduler
from wmp.core.protocol.outbound import Arrival, Outbound, Stream
from wmp.core.worker.locks import Locks
from wmp.core.worker.machine import WorkerMachine
from wmp.core.worker.remote_manager import RemoteManager
from wmp.core.worker.sessions import Sessions
from wmp.core.worker.timers import LockTimer
from wmp.message import Command, ErrorCode, Field, Frame, Message

M, W = "manager", "worker"
C = Command


# -- heads that cannot be read


@bent(M, "WMP-2.1")
@bent(W, "WMP-2.1")
@bent("device", "WMP-2.1")
class CountsTheItemsBeforeTheVersion(Bend):
    def reads(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        self.six = bool(frames) and bytes(frames[0][:1]) == b"\x86"
        return frames

    def says(self, link: Link, message: Message) -> Message:
        if message.fields.get(Field.CODE) == ErrorCode.VERSION and self.six:
            return changed(message, code=ErrorCode.MALFORMED)
        return message


@bent(M, "WMP-10.2")
@bent(W, "WMP-10.2")
class ReadsNoSenderOfABadHead(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.command is not C.ERROR or message.fields[Field.CODE] != ErrorCode.MALFORMED:
            return message
        return evolve(message, to=())


@bent(M, "WMP-10.7")
@bent(W, "WMP-10.7")
class ReadsNoNumberOfABadHead(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.command is C.ERROR and "head of" in message.fields.get(Field.TEXT, ""):
            return changed(message, session=None, about_number=None)
        return message


@bent(M, "WMP-19.9")
class GivesJobsToItsOwnCapacity(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is C.READY and Field.FORWARDS in message.fields:
            return changed(message, forwards=None)
        return message


@bent(M, "WMP-18.1")
@bent(W, "WMP-18.1")
@bent("device", "WMP-18.1")
class NamesNoVersions(Bend):
    def says(self, link: Link, message: Message) -> Message:
        return changed(message, versions=None) if Field.VERSIONS in message.fields else message


class ReadsChecksumsModulo(Bend):
    """Compares the last 32 bits of a checksum only."""

    def wait_for(self, link: Link, message: Message) -> Message:
        columns = message.columns
        if columns is None or columns.checksums is None:
            return message
        sums = [
            None if checksum is None else checksum & 0xFFFFFFFF for checksum in columns.checksums
        ]
        return columned(message, checksums=sums)


bent(M, "WMP-2.13")(ReadsChecksumsModulo)
bent(W, "WMP-2.12")(ReadsChecksumsModulo)


# -- managers


@bent(M, "WMP-4.16")
class CountsTheWindowOfAReadyTwiceOver(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        window = message.fields.get(Field.WINDOW, 0)
        return changed(message, window=2 * window) if window else message


def takes_late_messages(patch: Patch) -> None:
    patch.setattr(manager_machine, "is_late", lambda message: False)


switched(M, "WMP-9.11", takes_late_messages, "takes late messages for a new worker")


@bent(M, "WMP-15.7")
class TakesAGoodbyeOfAnyEpoch(Bend):
    """Takes the holder of an identity for the sender of each BYE."""

    def __attrs_post_init__(self) -> None:
        self.epochs: dict[Any, Any] = {}

    def wait_for(self, link: Link, message: Message) -> Message:
        identity = message.source[0]
        if message.command is not C.BYE:
            self.epochs.setdefault(identity, message.source[1])
            return message
        epoch = self.epochs.get(identity, message.source[1])
        return evolve(message, source=(identity, epoch, *message.source[2:]))


def queues_later_events_behind(patch: Patch) -> None:
    put = Queue.put_back

    def put_back(self: Queue, job: Any) -> None:
        put(self, job)
        line = self._line(job.priority)
        if len(line.back) > 1 and line.back[1].id < job.id:
            line.back.popleft()
            line.new.append(job)

    patch.setattr(Queue, "put_back", put_back)


switched(M, "WMP-6.28", queues_later_events_behind, "queues the jobs of a later event last")


def tries_cancelled_jobs_again(patch: Patch) -> None:
    settle = Failures.settle

    def forget(self: Failures, worker: Any, returned: Any, now: float) -> bool:
        job = returned[0]
        if job.state is JobState.CANCELLING:
            job.state = JobState.LEASED
        return settle(self, worker, returned, now)

    patch.setattr(Failures, "settle", forget)


switched(M, "WMP-6.12", tries_cancelled_jobs_again, "tries a cancelled job again")


@bent(M, "WMP-7.15")
class NamesANewSessionOnlyWhenAsked(Bend):
    def __attrs_post_init__(self) -> None:
        self.asked = False

    def wait_for(self, link: Link, message: Message) -> Message:
        self.asked = message.command is C.PING
        return message

    def says(self, link: Link, message: Message) -> Message | None:
        return None if message.command is C.PONG and not self.asked else message


def keeps_gives_of_a_lost_route(patch: Patch) -> None:
    patch.setattr(Scheduler, "lose_route", lambda self, worker, now: None)


switched(M, "WMP-9.20", keeps_gives_of_a_lost_route, "keeps the GIVEs of a lost route")


def takes_any_error_for_a_refusal(patch: Patch) -> None:
    def refused(self: Any, peer: Any, error: Message) -> Any:
        stream = peer.stream
        return stream.kept[0] if stream is not None and stream.kept else None

    patch.setattr(Outbound, "refused", refused)


for role in (M, W):
    switched(role, "WMP-7.11", takes_any_error_for_a_refusal, "takes any ERROR for a refusal")


# -- workers


def enters_by_any_number(patch: Patch) -> None:
    enter = RemoteManager.enter

    def believe(self: RemoteManager, session: int | None, *, begins: bool) -> Any:
        return enter(self, session, begins=True)

    def arrive(self: Stream, number: int) -> Arrival:
        if not self.received:
            self.received = number
            return Arrival.NEXT
        return arrived(self, number)

    arrived = Stream.arrive
    patch.setattr(RemoteManager, "enter", believe)
    patch.setattr(Stream, "arrive", arrive)


switched(W, "WMP-7.16", enters_by_any_number, "enters a session by any number")


def starts_the_time_anew(patch: Patch) -> None:
    """Let each TAKE start the time of its lock anew."""
    take, received = Locks.take, WorkerMachine._received
    clock = [0.0]

    def keep_time(self: WorkerMachine, link: Any, message: Message, now: float) -> None:
        clock[0] = now
        received(self, link, message, now)

    def extend(self: Locks, manager: Any, number: int, count: int, *, more: bool) -> int:
        kept = take(self, manager, number, count, more=more)
        if number in self.of(manager.identity):
            due = clock[0] + self.outbound.settings.lock_timeout
            self.outbound.timers.set(LockTimer(manager.identity, number), due)
        return kept

    patch.setattr(WorkerMachine, "_received", keep_time)
    patch.setattr(Locks, "take", extend)


switched(W, "WMP-4.11", starts_the_time_anew, "starts the time of a lock anew")


@bent(W, "WMP-3.8")
class RunsJobsWithoutNeedsOnASlot(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is C.TAKE and not message.fields[Field.NEEDS]:
            return changed(message, needs={"slots": 1})
        return message


@bent(W, "WMP-7.10")
class IgnoresAPongWithAnAck(Bend):
    """Enters no session of a PONG that acknowledges something."""

    def __attrs_post_init__(self) -> None:
        self.entered: set[Any] = set()

    def says(self, link: Link, message: Message) -> Message:
        if Field.SESSION in message.fields:
            self.entered.add(message.to)
        return message

    def wait_for(self, link: Link, message: Message) -> Message | None:
        known = message.source[::-1] in self.entered
        acknowledges = message.command is C.PONG and message.fields.get(Field.ACK, 0)
        return None if acknowledges and not known else message


def counts_repeats_of_each_message(patch: Patch) -> None:
    acknowledge = Stream.acknowledge

    def keep_count(self: Stream, number: int) -> bool:
        before = self.fruitless
        acknowledged = acknowledge(self, number)
        if self.kept:
            self.fruitless = before
        return acknowledged

    patch.setattr(Stream, "acknowledge", keep_count)


switched(W, "WMP-7.12", counts_repeats_of_each_message, "counts the repeats of each message")


def waits_for_the_manager(patch: Patch) -> None:
    def leave(self: Sessions, manager: Any, now: float) -> None:
        manager.forgotten = manager.stream.session
        self.lose(manager)
        manager.session_requested = False

    patch.setattr(Sessions, "leave", leave)


switched(W, "WMP-7.15", waits_for_the_manager, "waits for the manager after a refusal")
