"""Broken workers, each with one fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve

from tests.ablation import worker_side
from tests.conformance.broken_common import (
    ERRORS,
    FORMS,
    AcknowledgesNothing,
    AcknowledgesOneTooFew,
)
from tests.conformance.broken_peers import Bend, Link, Patch, bent, changed, columned, switched
from wmp.conformance.testees.library_testees import ROLES, LibraryWorker
from wmp.conformance.wire.wire import Terms
from wmp.core.protocol.checksums import checksums_of
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.worker.capacity import Capacity
from wmp.core.worker.executions import Executions
from wmp.core.worker.locks import LockInput, Locks, LockState
from wmp.core.worker.machine import WorkerMachine
from wmp.core.worker.remote_manager import RemoteManager
from wmp.message import Command, ErrorCode, Field, Message, Outcome

W = "worker"
C = Command

for rule, bend in (*FORMS, *ERRORS):
    bent(W, rule)(bend)


def worker(terms: Terms, **settings: Any) -> LibraryWorker:
    chosen = WorkerSettings(
        identity=b"worker",
        epoch=2000,
        roles=ROLES,
        resources={"slots": terms.slots},
        **settings,
    )
    return LibraryWorker(machine=WorkerMachine(chosen, terms.endpoints))


# -- identities and routes


@bent(W, "WMP-1.1")
class CallsItselfAnotherNameToEachManager(Bend):
    def says(self, link: Link, message: Message) -> Message:
        to = bytes(message.to[-1]) if message.to else b""  # type: ignore[arg-type]
        return evolve(message, source=(b"worker-" + to, *message.source[1:]))

    def wait_for(self, link: Link, message: Message) -> Message:
        return evolve(message, to=(*message.to[:-1], b"worker")) if message.to else message


@bent(W, "WMP-1.3")
class SaysEverythingOnItsFirstLink(Bend):
    def goes(self, link: Link, message: Message) -> Link:
        return 0


@bent(W, "WMP-1.5")
class AnswersByTheFirstRoute(Bend):
    """Takes the first manager on a route for the sender of all later messages."""

    def __attrs_post_init__(self) -> None:
        self.first: dict[Any, Any] = {}

    def wait_for(self, link: Link, message: Message) -> Message:
        self.first.setdefault(message.sender, message.source[::-1])
        return message

    def says(self, link: Link, message: Message) -> Message:
        if len(message.to) < 2:
            return message
        return evolve(message, to=self.first.get(message.to[:-3:-1], message.to))


@bent(W, "WMP-1.8")
class ForgetsJobsWithTheRoute(Bend):
    """Forgets a manager once the manager's new route is admitted."""

    def __attrs_post_init__(self) -> None:
        self.left: Any = None

    def says(self, link: Link, message: Message) -> Message:
        if message.command is C.PING and message.fields.get(Field.AGAIN):
            self.left = message.to[::-1]
        return message

    def wait_for(self, link: Link, message: Message) -> Message:
        if message.source != self.left or message.command is not C.PONG:
            return message
        self.left = None
        fields: dict[int | str, Any] = {
            Field.CODE: ErrorCode.SUPERSEDED,
            Field.ABOUT_PEER: message.sender,
        }
        return Message(C.ERROR, (2000, b"worker"), message.source, fields)


# -- READY and WAKE


@bent(W, "WMP-3.1")
class SaysNoRolesAtFirst(Bend):
    def says(self, link: Link, message: Message) -> Message:
        return changed(message, roles=[]) if message.command is C.READY else message


@bent(W, "WMP-3.2")
class NumbersEveryReadyOne(Bend):
    def says(self, link: Link, message: Message) -> Message:
        return changed(message, ready=1) if message.command is C.READY else message


@bent(W, "WMP-3.2")
class NumbersTheSameReadyAnewOnEachLink(Bend):
    def __attrs_post_init__(self) -> None:
        self.number = 0

    def says(self, link: Link, message: Message) -> Message:
        if message.command is not C.READY:
            return message
        self.number += 1
        return changed(message, ready=self.number)


@bent(W, "WMP-3.8")
class SleepsThroughWake(Bend):
    def wait_for(self, link: Link, message: Message) -> Message | None:
        return None if message.command is C.WAKE else message


@bent(W, "WMP-3.9")
class IsSilentAboutRolesThatItLacks(Bend):
    def wait_for(self, link: Link, message: Message) -> Message | None:
        lacks = message.command is C.WAKE and message.fields[Field.ROLE] not in ROLES
        return None if lacks else message


@bent(W, "WMP-3.9")
class GivesLocksForRolesThatItLacks(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is C.WAKE and message.fields[Field.ROLE] not in ROLES:
            return changed(message, role="echo")
        return message


switched(W, "WMP-3.9", worker_side.vain_wake, "keeps a WAKE that it can never serve")
switched(W, "WMP-3.9", worker_side.pending_wake, "forgets a WAKE that comes while it is busy")


@bent(W, "WMP-3.9")
class DoesNotSayThatItIsBusy(Bend):
    def says(self, link: Link, message: Message) -> Message | None:
        busy = message.command is C.READY and message.fields[Field.CREDIT] == 0
        return None if busy else message


switched(W, "WMP-3.10", worker_side.turns, "serves who was served last")


@bent(W, "WMP-3.11")
class TellsOfRoomAfterTheWork(Bend):
    def __attrs_post_init__(self) -> None:
        self.busy = False

    def wait_for(self, link: Link, message: Message) -> Message:
        self.busy = self.busy or message.command is C.TAKE
        return message

    def says(self, link: Link, message: Message) -> Message | None:
        if message.command is C.DONE:
            self.busy = False
        return None if self.busy and message.command in (C.READY, C.GIVE) else message


switched(W, "WMP-3.12", worker_side.ready_backoff, "repeats READY without backoff")
switched(W, "WMP-3.13", worker_side.ready_by_pong, "does not read what PONG remembers")

# -- locks

switched(W, "WMP-4.1", worker_side.resources_check, "counts no resources")


@bent(W, "WMP-4.1")
class BeginsLocksAtOneAgain(Bend):
    def says(self, link: Link, message: Message) -> Message:
        return changed(message, lock=1) if message.command is C.GIVE else message


@bent(W, "WMP-4.1")
class LocksWhatRunningJobsUse(Bend):
    """Answers WAKE by GIVE although its slots are in use."""

    def __attrs_post_init__(self) -> None:
        self.lock = 0

    def says(self, link: Link, message: Message) -> Message:
        if message.command is C.GIVE:
            self.lock = message.fields[Field.LOCK]
        busy = message.command is C.READY and message.to and message.fields[Field.CREDIT] == 0
        if not busy:
            return message
        self.lock += 1
        fields: dict[int | str, Any] = {
            Field.LOCK: self.lock,
            Field.WANT: 1,
            Field.ROLES: ["slow"],
            Field.NEEDS: {"slots": 1},
        }
        return evolve(message, command=C.GIVE, fields=fields)


def lock_by_number(patch: Patch) -> None:
    """WMP-4.8: a lock is found by its number alone, without its manager."""
    no = Locks.no

    def anybodys(self: Locks, manager: Any, link: int, message: Any, now: float) -> None:
        number = message.fields[Field.LOCK]
        for other in self.outbound.links.managers.values():
            if number in self.of(other.identity):
                manager = other
        no(self, manager, link, message, now)

    patch.setattr(Locks, "no", anybodys)


def owner_of_jobs(patch: Patch) -> None:
    """WMP-4.8: a job is found by its number alone, without its owner."""
    take = Executions.take

    def own(self: Executions, manager: Any, link: Any, message: Any, *rest: Any) -> None:
        fields = {**message.fields, Field.MANAGER: (manager.identity, manager.epoch)}
        take(self, manager, link, evolve(message, fields=fields), *rest)

    patch.setattr(Executions, "take", own)


def no_release(patch: Patch) -> None:
    """WMP-4.10: the worker notes NO and keeps the lock."""
    patch.setattr(Locks, "no", lambda self, manager, link, message, now: None)


switched(W, "WMP-4.8", lock_by_number)
switched(W, "WMP-4.8", owner_of_jobs, "forgets the manager identity on DONE")


@bent(W, "WMP-4.9")
class AlwaysExpectsMore(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        return changed(message, more=True) if message.command is C.TAKE else message


@bent(W, "WMP-4.9")
class NeverExpectsMore(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        return changed(message, more=None) if message.command is C.TAKE else message


switched(W, "WMP-4.10", no_release, "ignores NO")
switched(W, "WMP-4.11", worker_side.lock_timeout, "never unlocks")


@bent(W, "WMP-4.11")
class ReleasesLocksInSilence(Bend):
    """Sends no READY after it released a lock that had no answer for too long."""

    gave = -9.0

    def says(self, link: Link, message: Message) -> Message | None:
        if message.command is C.GIVE and not message.fields.get(Field.HOLD):
            self.gave = self.now
        late = 4.9 < self.now - self.gave < 5.1
        return None if late and message.command is C.READY else message


switched(W, "WMP-4.11", worker_side.withdrawn_lock, "keeps a withdrawn lock")
switched(W, "WMP-4.17", worker_side.refused_jobs, "keeps resources for a refused job")


def drops_late_takes(patch: Patch) -> None:
    """WMP-4.12: a TAKE whose lock is gone is ignored."""
    count, take = Capacity.take, Executions.take
    late = False

    def strict(self: Capacity, manager: Any, fields: Any, *rest: Any) -> int:
        nonlocal late
        late = fields[Field.LOCK] not in self.locks.of(manager.identity)
        return count(self, manager, fields, *rest)

    def ignore(self: Executions, *rest: Any) -> None:
        if not late:
            take(self, *rest)

    patch.setattr(Capacity, "take", strict)
    patch.setattr(Executions, "take", ignore)


switched(W, "WMP-4.12", drops_late_takes)
switched(W, "WMP-4.12", worker_side.late_take_beside_a_lock, "refuses a late job beside a lock")


@bent(W, "WMP-4.13")
class SaysNothingOfLocksNeverGiven(Bend):
    def says(self, link: Link, message: Message) -> Message | None:
        unknown = message.fields.get(Field.CODE) == ErrorCode.UNKNOWN
        return None if unknown else message


@bent(W, "WMP-4.13")
class TakesEveryNoWithoutLockForAnError(Bend):
    def __attrs_post_init__(self) -> None:
        self.seen: set[Any] = set()

    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is C.NO:
            key = message.sender, message.fields[Field.LOCK]
            if key in self.seen:
                return changed(message, lock=1 << 40)
            self.seen.add(key)
        return message


switched(W, "WMP-4.14", worker_side.held_already, "takes a job twice")


@bent(W, "WMP-6.6")
class RunsAJobTwice(Bend):
    """Answers each entry of a TAKE, and not each job."""

    def says(self, link: Link, message: Message) -> Message | Sequence[Message]:
        if message.command is C.DONE and list(message.columns.ids) == [5]:  # type: ignore[union-attr]
            return [message, columned(changed(message, number=message.fields[0] + 1), attempts=[1])]
        return message


@bent(W, "WMP-4.15")
class FailsJobsOfUnknownRoles(Bend):
    def says(self, link: Link, message: Message) -> Message:
        columns = message.columns
        if message.command is C.DONE and columns is not None:
            outcomes = [
                1 if outcome == Outcome.REFUSED else outcome for outcome in columns.outcomes or ()
            ]
            return columned(message, outcomes=outcomes)
        return message


# -- held GIVE


def never_withdraws(patch: Patch) -> None:
    """WMP-5.4: held GIVEs stay open when another manager sends WAKE."""
    patch.setattr(Locks, "withdraw", lambda self, manager, now: None)


@bent(W, "WMP-5.2")
class HoldsWhatAnotherWaitsFor(Bend):
    """Offers a freed place by a held GIVE to the manager that had it, though another waits."""

    def __attrs_post_init__(self) -> None:
        self.pending: Any = None
        self.taker: Any = None

    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is C.TAKE:
            self.taker = message.source[::-1]
        return message

    def says(self, link: Link, message: Message) -> Message:
        if message.command is C.READY and message.to and not message.fields[Field.CREDIT]:
            self.pending = message.to
        if message.command is C.GIVE and message.to == self.pending and message.to != self.taker:
            self.pending = None
            return evolve(changed(message, hold=4000), to=self.taker)
        return message


switched(W, "WMP-5.4", never_withdraws)
switched(W, "WMP-5.5", worker_side.lost_give, "waits for the answer to a GIVE that was lost")


def waits_for_the_end(patch: Patch) -> None:
    """WMP-17.4: held GIVEs are withdrawn, and their places wait for the answer."""
    patch.setattr(Locks, "take_back", Locks.withdraw)


def waits_for_takes(patch: Patch) -> None:
    """WMP-17.4: places of GIVEs without hold wait for the answer."""

    def held_alone(self: Locks, manager: RemoteManager, now: float) -> None:
        self.withdraw(manager, now)
        for lock in list(self.of(manager.identity).values()):
            if lock.state is LockState.WITHDRAWN:
                self._close(manager, lock, LockInput.FORGET)

    patch.setattr(Locks, "take_back", held_alone)


@bent(W, "WMP-17.3")
class IgnoresStandby(Bend):
    """Counts a manager on standby like any other manager."""

    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is C.PONG and Field.STANDBY in message.fields:
            return changed(message, standby=None)
        return message


switched(W, "WMP-17.4", waits_for_the_end)
switched(W, "WMP-17.4", waits_for_takes)


@bent(W, "WMP-19.1")
class NamesItselfAsForwardingManager(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.command is C.READY:
            return changed(message, forwards=(message.source[0],))
        return message


# -- jobs


@bent(W, "WMP-6.6")
class AnswersToTheWrongOwner(Bend):
    def says(self, link: Link, message: Message) -> Message:
        return changed(message, manager=(b"x", 1)) if message.command is C.DONE else message


@bent(W, "WMP-6.6")
class ForgetsTheAttempt(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.command is C.DONE and message.columns is not None:
            return columned(message, attempts=[1] * len(message.columns.ids))
        return message


@bent(W, "WMP-6.6")
class ReportsErrorsAsText(Bend):
    def says(self, link: Link, message: Message) -> Message:
        columns = message.columns
        if message.command is C.DONE and columns and Outcome.ERROR in (columns.outcomes or ()):
            return columned(message, payloads=[b"no"] * len(columns.ids))
        return message


@bent(W, "WMP-6.7")
class KnowsNoDeadlines(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        return columned(message, left_ms=None) if message.command is C.TAKE else message


@bent(W, "WMP-6.19")
class KnowsNoExpiries(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        return columned(message, expires_ms=None) if message.command is C.TAKE else message


@bent(W, "WMP-6.21")
class KnowsNoLimits(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        return columned(message, limits_ms=None) if message.command is C.TAKE else message


@bent(W, "WMP-6.25")
class AlwaysAsksForAnotherAttempt(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.command is C.DONE and message.columns is not None:
            return columned(message, waits_ms=[1000 for _ in message.columns.ids])
        return message


def no_cancel(patch: Patch) -> None:
    """WMP-6.10: CANCEL is not answered."""
    patch.setattr(Executions, "cancel", lambda self, manager, message: None)


switched(W, "WMP-6.10", no_cancel, "is deaf to CANCEL")


@bent(W, "WMP-6.10")
class CancelsWhatHasBegun(Bend):
    """Ignores ``unstarted``."""

    def wait_for(self, link: Link, message: Message) -> Message:
        return changed(message, unstarted=None) if message.command is C.CANCEL else message


def promises(patch: Patch) -> None:
    """WMP-6.18: held GIVEs and the reported window stay when waiting jobs are handed back."""
    patch.setattr(Capacity, "stall", lambda self, manager, now: None)


switched(W, "WMP-6.18", promises, "hands jobs back that it still asks for")


@bent(W, "WMP-6.14")
class CallsADeathAnError(Bend):
    def says(self, link: Link, message: Message) -> Message:
        columns = message.columns
        if message.command is C.DONE and columns is not None:
            outcomes = [
                1 if outcome == Outcome.LOST else outcome for outcome in columns.outcomes or ()
            ]
            return columned(message, outcomes=outcomes)
        return message


@bent(W, "WMP-2.12")
class DoesDamagedJobs(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is C.TAKE and message.columns is not None:
            sums = message.columns.checksums
            fitting = None if sums is None else checksums_of(message.columns.payloads or ())
            return columned(message, checksums=fitting)
        return message


@bent(W, "WMP-2.11")
class WritesTheChecksumOfTheJob(Bend):
    def says(self, link: Link, message: Message) -> Message:
        columns = message.columns
        if message.command is C.DONE and columns is not None and columns.checksums is not None:
            return columned(message, checksums=[1] * len(columns.ids))
        return message


# -- streams and sessions

switched(W, "WMP-7.1", worker_side.stream_dedupe, "takes a duplicate")
switched(W, "WMP-7.1", worker_side.stream_order, "takes what is behind a gap")


bent(W, "WMP-7.2")(AcknowledgesNothing)
bent(W, "WMP-7.2")(AcknowledgesOneTooFew)
switched(W, "WMP-7.3", worker_side.replay_by_worker, "sends nothing again on a new route")
switched(W, "WMP-7.3", worker_side.resend_by_worker, "never resends")
switched(W, "WMP-7.3", worker_side.again_to_worker, "sends nothing again when asked")
switched(W, "WMP-7.4", worker_side.ack_bound, "believes an ack of the future")
switched(W, "WMP-7.6", worker_side.old_session, "keeps what was of an old session")


@bent(W, "WMP-7.6")
class BelievesAcksOfAnOlderSession(Bend):
    def __attrs_post_init__(self) -> None:
        self.sessions: dict[Any, int] = {}

    def wait_for(self, link: Link, message: Message) -> Message | None:
        session = message.fields.get(Field.SESSION, 0)
        newest = self.sessions[message.source] = max(self.sessions.get(message.source, 0), session)
        if message.command is C.PONG and session < newest:
            return changed(message, session=newest)
        return message


switched(W, "WMP-7.6", worker_side.message_of_old_session, "acts on an old session")


@bent(W, "WMP-7.10")
class NamesASessionThatItNeverEntered(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.to and message.command is not C.ERROR and Field.SESSION not in message.fields:
            return changed(message, session=1, ack=0)
        return message


switched(W, "WMP-7.10", worker_side.first_number, "waits for PONG before it enters a session")
switched(W, "WMP-7.8", worker_side.forgotten_session, "enters a session that it had forgotten")
switched(W, "WMP-7.8", worker_side.forgotten_number, "forgets which session it had forgotten")


@bent(W, "WMP-7.9")
class KeepsResultsForAWhileOnly(Bend):
    def __attrs_post_init__(self) -> None:
        self.since: dict[Any, float] = {}

    def says(self, link: Link, message: Message) -> Message | None:
        if message.command is C.DONE:
            key = message.to, message.fields[Field.SESSION], message.fields[Field.NUMBER]
            if self.now - self.since.setdefault(key, self.now) > 5:
                return None
        return message


# -- errors


@bent(W, "WMP-10.4")
class PutsUpWithItsOwnCommands(Bend):
    def says(self, link: Link, message: Message) -> Message | None:
        return None if message.fields.get(Field.CODE) == ErrorCode.DIRECTION else message


@bent(W, "WMP-10.7")
class NamesNoPlaceInItsErrors(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.command is not C.ERROR:
            return message
        return changed(message, session=None, about_number=None)


switched(W, "WMP-7.14", worker_side.refused_messages, "sends refused results for ever")
switched(W, "WMP-7.15", worker_side.refused_twice, "keeps a session that is blocked")
switched(W, "WMP-7.12", worker_side.endless_resends, "sends a result again for ever")


@bent(W, "WMP-10.6")
class TakesUnknownCodesForSuperseded(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        if "later" in message.fields.get(Field.CODE, ""):
            return changed(message, code=ErrorCode.SUPERSEDED)
        return message
