"""Broken managers, each with one fault."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from tests.ablation import manager_side, worker_side
from tests.conformance.broken_common import (
    ERRORS,
    FORMS,
    AcknowledgesNothing,
    AcknowledgesOneTooFew,
)
from tests.conformance.broken_peers import Bend, Link, bent, built, changed, columned, switched
from wmp import balance
from wmp.conformance.testees.library_testees import LibraryManager
from wmp.conformance.wire.wire import JobEnd, SubmittedJob
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings
from wmp.message import Columns, Command, ErrorCode, Field, Message, Outcome

M = "manager"
C = Command


# -- identities and routes


@bent(M, "WMP-1.1")
class CallsItselfAnotherNameToEachWorker(Bend):
    def says(self, link: Link, message: Message) -> Message:
        worker = message.to[-1] if message.to else b""
        name = b"manager-" + bytes(worker)  # type: ignore[arg-type]
        if Field.MANAGER in message.fields:
            message = changed(message, manager=(name, message.source[1]))
        return evolve(message, source=(name, *message.source[1:]))

    def wait_for(self, link: Link, message: Message) -> Message:
        mine = b"manager-" + message.source[0]  # type: ignore[operator]
        if message.fields.get(Field.MANAGER, ("",))[0] == mine:
            message = changed(message, manager=(b"manager", 1000))
        named = bool(message.to) and message.to[-1] == mine
        return evolve(message, to=(*message.to[:-1], b"manager")) if named else message


@bent(M, "WMP-1.2")
class AnswersOnItsFirstRoute(Bend):
    def __attrs_post_init__(self) -> None:
        self.first: dict[Any, Link] = {}

    def wait_for(self, link: Link, message: Message) -> Message:
        self.first.setdefault(message.sender[0], link)
        return message

    def goes(self, link: Link, message: Message) -> Link:
        return self.first.get(message.receiver, link)


class _TakesConnectionsForIdentities(Bend):
    def __attrs_post_init__(self) -> None:
        self.last: dict[Link, Any] = {}

    def wait_for(self, link: Link, message: Message) -> Message:
        self.last[link] = message.source
        name = link if isinstance(link, bytes) else b"link %d" % link
        return evolve(message, source=(name, *message.source[1:2]))

    def says(self, link: Link, message: Message) -> Message:
        return evolve(message, to=self.last[link][::-1]) if message.to else message


bent(M, "WMP-1.5")(_TakesConnectionsForIdentities)


@bent(M, "WMP-1.8")
class ForgetsReadyWithTheConnection(Bend):
    def __attrs_post_init__(self) -> None:
        self.first: dict[Any, Link] = {}

    def says(self, link: Link, message: Message) -> Message:
        if self.first.setdefault(message.receiver, link) != link and message.command is C.PONG:
            return changed(message, ready=None, credit=None)
        return message


for rule, bend in (*FORMS, *ERRORS):
    bent(M, rule)(bend)


# -- READY and WAKE

switched(M, "WMP-3.3", manager_side.ready_dedupe, "consumes READY twice")


@bent(M, "WMP-3.3")
class KeepsTheFirstReady(Bend):
    def __attrs_post_init__(self) -> None:
        self.known: set[Any] = set()

    def wait_for(self, link: Link, message: Message) -> Message | None:
        if message.command is C.READY:
            if message.sender in self.known:
                return None
            self.known.add(message.sender)
        return message


@bent(M, "WMP-3.3")
class KeepsTheFirstResources(Bend):
    def __attrs_post_init__(self) -> None:
        self.first: dict[Any, Any] = {}

    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is C.READY:
            resources = message.fields[Field.RESOURCES]
            return changed(message, resources=self.first.setdefault(message.sender, resources))
        return message


@bent(M, "WMP-3.4")
class WakesForMoreThanTheCredit(Bend):
    def says(self, link: Link, message: Message) -> Message:
        return changed(message, count=99) if message.command is C.WAKE else message


@bent(M, "WMP-3.4")
class BelievesThatEverybodyHasAllRoles(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is C.READY:
            return changed(message, roles=["echo", "other", "still"])
        return message


switched(M, "WMP-3.5", manager_side.wake_bound, "wakes everybody for one job")
switched(M, "WMP-3.5", manager_side.wake_timeout, "wakes nobody else when no GIVE comes")


@bent(M, "WMP-3.6")
class ForgetsJobsThatWaitedBefore(Bend):
    """Ignores a READY that arrives while jobs wait."""

    def says(self, link: Link, message: Message) -> Message | None:
        return None if message.command is C.WAKE else message


built(
    M,
    "WMP-3.7",
    "wakes by name",
    lambda terms: LibraryManager(
        machine=ManagerMachine(
            ManagerSettings(identity=b"manager", epoch=1000),
            lambda jobs, offers: sorted(offers, key=lambda offer: offer.identity),
        ),
        devices=terms.endpoints,
    ),
)


@bent(M, "WMP-3.14")
class ThinksThatCreditZeroIsNothingNew(Bend):
    def wait_for(self, link: Link, message: Message) -> Message | None:
        none = message.command is C.READY and message.fields[Field.CREDIT] == 0
        return None if none else message


# -- GIVE, TAKE, NO


@bent(M, "WMP-4.3")
class ServesOnlyWorkersWithReady(Bend):
    def __attrs_post_init__(self) -> None:
        self.credit: dict[Any, int] = {}

    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is C.READY:
            self.credit[message.sender] = message.fields[Field.CREDIT]
        if message.command is C.GIVE and not self.credit.get(message.sender):
            return changed(message, roles=["nothing"])
        return message


switched(M, "WMP-4.4", manager_side.hold_end, "never answers what is left of a held GIVE")
switched(M, "WMP-3.5", manager_side.bound_returns, "keeps waking more workers than jobs")
switched(M, "WMP-4.5", manager_side.withdrawn_unseen, "takes a withdrawal for a GIVE")
switched(M, "WMP-4.5", manager_side.lock_dedupe, "serves a GIVE twice")


@bent(M, "WMP-4.5")
class IgnoresWithdrawals(Bend):
    def wait_for(self, link: Link, message: Message) -> Message | None:
        withdrawal = message.command is C.GIVE and message.fields[Field.WANT] == 0
        return None if withdrawal else message


@bent(M, "WMP-4.6")
class GivesMoreThanIsWanted(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is C.GIVE and message.fields[Field.WANT]:
            return changed(message, want=message.fields[Field.WANT] + 5)
        return message


@bent(M, "WMP-4.6")
class GivesWhatNeedsMore(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        return changed(message, needs={"slots": 9}) if message.command is C.GIVE else message


switched(M, "WMP-6.23", manager_side.leaving_again, "counts each theft as a worker loss")
switched(M, "WMP-4.16", manager_side.lease_bound, "gives as many jobs as are wanted")


@bent(M, "WMP-4.7")
class NamesTheWorkerAsOwner(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.command is C.TAKE:
            return changed(message, manager=message.to[:-3:-1])
        return message


built(
    M,
    "WMP-5.3",
    "answers a held GIVE too late",
    lambda terms: LibraryManager(
        machine=ManagerMachine(
            ManagerSettings(identity=b"manager", epoch=1000, reply_margin=0.0), balance.any_worker
        ),
        devices=terms.endpoints,
    ),
)


@bent(M, "WMP-5.3")
class DoesNotKeepGives(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        return changed(message, hold=None) if message.command is C.GIVE else message


# -- jobs


@bent(M, "WMP-6.1")
class CountsNoAttempts(Bend):
    def __attrs_post_init__(self) -> None:
        self.real: dict[int, int] = {}

    def says(self, link: Link, message: Message) -> Message:
        if message.command is not C.TAKE:
            return message
        columns = message.columns
        assert columns is not None
        self.real.update(zip(columns.ids, columns.attempts, strict=True))
        return columned(message, attempts=[1] * len(columns.ids))

    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is not C.DONE:
            return message
        assert message.columns is not None
        ids = message.columns.ids
        return columned(message, attempts=[self.real.get(id, 1) for id in ids])


@bent(M, "WMP-2.11")
class HasAnotherChecksum(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        if message.columns is None or message.columns.checksums is None:
            return message
        return columned(message, checksums=[7] * len(message.columns.ids))


@bent(M, "WMP-2.13")
class AcceptsDamagedResults(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        return columned(message, checksums=None) if message.command is C.DONE else message


switched(M, "WMP-6.2", manager_side.fencing, "accepts a stale attempt")


@bent(M, "WMP-6.3")
class TellsEveryEndTwice(Bend):
    def ends(self, ends: list[JobEnd]) -> list[JobEnd]:
        return [*ends, *ends]


@bent(M, "WMP-6.3")
class EndsAJobAtItsFirstDone(Bend):
    def __attrs_post_init__(self) -> None:
        self.told: list[JobEnd] = []

    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is C.DONE and message.columns is not None:
            for id in message.columns.ids:
                self.told.append(JobEnd(f"job-{id}", "ok", b"whatever"))
        return message

    def ends(self, ends: list[JobEnd]) -> list[JobEnd]:
        outputs, self.told = self.told, []
        return [*ends, *outputs]


switched(M, "WMP-6.4", manager_side.lost_leases, "does not queue a lost lease again")
switched(M, "WMP-6.15", manager_side.max_worker_losses, "worker losses for ever")
switched(M, "WMP-6.17", manager_side.max_worker_losses, "counts no lost lease")
switched(M, "WMP-6.34", manager_side.unbegun_leases, "counts every lease as a run")
switched(M, "WMP-6.34", manager_side.begun_runs, "counts no run")
switched(M, "WMP-6.34", manager_side.text_of_cancelled, "ignores that a cancelled job had begun")
switched(M, "WMP-6.5", manager_side.refusal_memory, "gives a job back to who refused it")


class _CountsRefusals(Bend):
    outcome = Outcome.REFUSED

    def wait_for(self, link: Link, message: Message) -> Message:
        columns = message.columns
        if message.command is C.DONE and columns is not None:
            outcomes = [
                Outcome.LOST if end == self.outcome else end for end in columns.outcomes or ()
            ]
            return columned(message, outcomes=outcomes)
        return message


@bent(M, "WMP-6.5")
class CountsRefusals(_CountsRefusals):
    pass


@bent(M, "WMP-6.11")
class CountsWhatIsHandedBack(_CountsRefusals):
    outcome = Outcome.CANCELLED


@bent(M, "WMP-6.15")
class TakesLostForRefused(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        columns = message.columns
        if message.command is C.DONE and columns is not None:
            outcomes = [3 if end == Outcome.LOST else end for end in columns.outcomes or ()]
            return columned(message, outcomes=outcomes)
        return message


@bent(M, "WMP-6.17")
class TakesWhatItCouldNotSendForSent(Bend):
    def learns(self) -> bool:
        return False


@bent(M, "WMP-6.7")
class TellsNoDeadline(Bend):
    def says(self, link: Link, message: Message) -> Message:
        return columned(message, left_ms=None) if message.command is C.TAKE else message


@bent(M, "WMP-6.7")
class TellsADeadlineInSeconds(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.command is C.TAKE and message.columns is not None and message.columns.left_ms:
            return columned(message, left_ms=[(ms or 0) // 1000 for ms in message.columns.left_ms])
        return message


@bent(M, "WMP-6.8")
class CancelsSomethingElse(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.command is C.CANCEL and message.columns is not None:
            return columned(message, ids=[id + 100 for id in message.columns.ids])
        return message


@bent(M, "WMP-6.8")
class KnowsNoDeadlines(Bend):
    def job(self, job: SubmittedJob) -> SubmittedJob:
        return evolve(job, timeout=None)


@bent(M, "WMP-6.19")
class TellsNoExpiry(Bend):
    def says(self, link: Link, message: Message) -> Message:
        return columned(message, expires_ms=None) if message.command is C.TAKE else message


@bent(M, "WMP-6.20")
class KnowsNoExpiries(Bend):
    def job(self, job: SubmittedJob) -> SubmittedJob:
        return evolve(job, expires=None)


@bent(M, "WMP-6.20")
class EndsJobsAtTheirExpiry(Bend):
    def job(self, job: SubmittedJob) -> SubmittedJob:
        return evolve(job, expires=None, timeout=job.expires)


@bent(M, "WMP-6.22")
class TakesAnOverrunForALostLease(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is C.DONE and message.columns is not None:
            lost = {Outcome.OVERRUN: Outcome.LOST}
            outcomes = [lost.get(Outcome(end), end) for end in message.columns.outcomes or ()]
            return columned(message, outcomes=outcomes)
        return message


@bent(M, "WMP-6.24")
class KnowsNoDelays(Bend):
    def job(self, job: SubmittedJob) -> SubmittedJob:
        return evolve(job, delay=None)


@bent(M, "WMP-6.26")
class KnowsNoSettings(Bend):
    def job(self, job: SubmittedJob) -> SubmittedJob:
        return evolve(job, retries=None, wait=None)


@bent(M, "WMP-6.26")
class TriesRejectedJobsAgain(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is C.DONE and message.columns is not None and message.columns.texts:
            return columned(message, texts=None)
        return message


@bent(M, "WMP-6.26")
class TellsNoFailures(Bend):
    def says(self, link: Link, message: Message) -> Message:
        return columned(message, failed=None) if message.command is C.TAKE else message


@bent(M, "WMP-6.27")
class TriesAgainAtOnce(Bend):
    def job(self, job: SubmittedJob) -> SubmittedJob:
        return evolve(job, wait=0.0) if job.wait else job

    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is C.DONE and message.columns is not None and message.columns.waits_ms:
            return columned(message, waits_ms=[0 for _ in message.columns.ids])
        return message


switched(M, "WMP-6.12", manager_side.cancelling, "gives a cancelled job again")
switched(M, "WMP-6.12", manager_side.ended_in_the_queue, "gives a job that was cancelled")


@bent(M, "WMP-6.13")
class LastInFirstOut(Bend):
    def __attrs_post_init__(self) -> None:
        self.count = 0

    def job(self, job: SubmittedJob) -> SubmittedJob:
        self.count += 1
        return evolve(job, priority=self.count)


switched(M, "WMP-6.28", manager_side.order_of_lost_jobs, "turns lost jobs around")
switched(M, "WMP-6.28", manager_side.lost_jobs_wait, "queues lost jobs behind all others")


@bent(M, "WMP-6.29")
class TakesNoResultOfAnotherCodec(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is not C.DONE or Field.CODEC not in message.fields:
            return message
        assert message.columns is not None
        count = len(message.columns.ids)
        handed_back = columned(message, outcomes=[3] * count, payloads=[b""] * count)
        return changed(handed_back, codec=None)


@bent(M, "WMP-6.13")
class KnowsNoPriorities(Bend):
    def job(self, job: SubmittedJob) -> SubmittedJob:
        return evolve(job, priority=0)


@bent(M, "WMP-4.5")
class AnswersAWithdrawalOfNothing(Bend):
    """It answers a GIVE with ``want`` 0 by NO, whether or not a lock is open."""

    def wait_for(self, link: Link, message: Message) -> Message | None:
        if message.command is C.GIVE and not message.fields.get(Field.WANT):
            return changed(message, want=1, roles=["nothing"], needs={"slots": 1})
        return message


# -- streams and sessions

switched(M, "WMP-7.1", worker_side.stream_dedupe, "takes a duplicate")
switched(M, "WMP-7.1", worker_side.stream_order, "takes what is behind a gap")


@bent(M, "WMP-7.1")
class NumbersEverythingOne(Bend):
    def says(self, link: Link, message: Message) -> Message:
        return changed(message, number=1) if Field.NUMBER in message.fields else message


bent(M, "WMP-7.2")(AcknowledgesNothing)
bent(M, "WMP-7.2")(AcknowledgesOneTooFew)
switched(M, "WMP-7.3", manager_side.replay_by_manager, "sends nothing again on a new route")
switched(M, "WMP-7.3", manager_side.resend_by_manager, "sends nothing again with age")
switched(M, "WMP-7.3", manager_side.again_to_manager, "sends nothing again when asked")
switched(M, "WMP-7.4", worker_side.ack_bound, "believes an ack of the future")
switched(M, "WMP-7.5", manager_side.new_session, "keeps a session that was forgotten")
switched(M, "WMP-7.5", manager_side.leases_of_the_old_session, "keeps leases of an old session")


@bent(M, "WMP-7.7")
class DropsGivesOfAnotherSession(Bend):
    def __attrs_post_init__(self) -> None:
        self.sessions: dict[Any, Any] = {}

    def says(self, link: Link, message: Message) -> Message:
        self.sessions[message.to] = message.fields.get(Field.SESSION, self.sessions.get(message.to))
        return message

    def wait_for(self, link: Link, message: Message) -> Message | None:
        current = self.sessions.get(message.source[::-1])
        other = current and message.fields.get(Field.SESSION, current) != current
        return None if other and message.command is C.GIVE else message


@bent(M, "WMP-7.7")
class BelievesListsOfAnotherSession(DropsGivesOfAnotherSession):
    def wait_for(self, link: Link, message: Message) -> Message | None:
        current = self.sessions.get(message.source[::-1])
        if current and message.fields.get(Field.IDLE):
            return changed(message, session=current)
        return message


@bent(M, "WMP-7.7")
class BelievesAcksOfAnotherSession(DropsGivesOfAnotherSession):
    def wait_for(self, link: Link, message: Message) -> Message | None:
        current = self.sessions.get(message.source[::-1])
        if current and message.command is C.PING and message.fields.get(Field.ACK):
            return changed(message, session=current)
        return message


switched(M, "WMP-7.7", manager_side.session_of_results, "takes results of another session")


# -- liveness

switched(M, "WMP-9.2", manager_side.pong, "answers no PING")


@bent(M, "WMP-9.2")
class SaysNothingOfReady(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.command is C.PONG:
            return changed(message, ready=None, credit=None)
        return message


switched(M, "WMP-9.3", manager_side.expiry, "never gives a worker up")
switched(M, "WMP-9.19", manager_side.beats, "counts no beats, and promises to")
switched(M, "WMP-9.18", manager_side.beat_keys, "believes the beats of strangers")
switched(M, "WMP-9.19", manager_side.beat_answers, "answers beats over their route")
switched(M, "WMP-9.6", manager_side.older_epoch, "listens to an older epoch")
switched(M, "WMP-9.7", manager_side.newer_epoch, "takes a newer epoch for the older")


@bent(M, "WMP-9.8")
class CallsAFailedClaimMisrouted(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.fields.get(Field.CODE) == ErrorCode.SUPERSEDED:
            return changed(message, code=ErrorCode.MISROUTED)
        return message


switched(M, "WMP-15.1", manager_side.any_claim, "believes every route")
switched(M, "WMP-15.2", manager_side.restart_of_the_holder, "asks a process that has ended")
switched(M, "WMP-15.3", manager_side.claims, "believes the newest epoch")
switched(M, "WMP-15.4", manager_side.answers, "answers no challenge")
switched(M, "WMP-15.5", manager_side.refusal, "reports no failed claim")
switched(M, "WMP-15.5", manager_side.failed_claims, "reads no answer to a challenge")
switched(M, "WMP-15.6", manager_side.admission, "keeps an identity for a dead process")
switched(M, "WMP-15.7", manager_side.goodbye_of_a_claim, "is deaf to BYE over a new route")
switched(M, "WMP-15.8", manager_side.route_of_reports, "believes reports of strangers")
switched(M, "WMP-15.10", manager_side.reports_of_rivals, "stops when a worker says so")


switched(M, "WMP-9.11", manager_side.goodbye, "is deaf to BYE")


@bent(M, "WMP-9.12")
class KeepsTheCreditOfALostRoute(Bend):
    def wait_for(self, link: Link, message: Message) -> Message | None:
        return None if message.command is C.ERROR else message


@bent(M, "WMP-9.12")
class TakesUnreachableForGoodbye(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        about = message.fields.get(Field.ABOUT_PEER)
        if message.command is C.ERROR and about is not None:
            return Message(C.BYE, (1000, b"manager"), tuple(about), {})
        return message


switched(M, "WMP-9.13", manager_side.reconciliation, "does not read the list of held jobs")


@bent(M, "WMP-6.4")
class ReadsListsWithoutTheirAck(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        return changed(message, ack=99) if Field.IDLE in message.fields else message


# -- errors


@bent(M, "WMP-10.5")
class TakesResultsOfOthersForItsOwn(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is C.DONE:
            return changed(message, manager=(b"manager", 1000))
        return message


@bent(M, "WMP-10.5")
class DropsAllForOneUnknownJob(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        columns = message.columns
        if message.command is C.DONE and columns is not None and max(columns.ids) > 900:
            row = list(columns.ids).index(max(columns.ids))
            only = Columns(
                [columns.ids[row]], [1], outcomes=[0], payloads=[(columns.payloads or [b""])[row]]
            )
            return evolve(message, columns=only)
        return message


@bent(M, "WMP-10.7")
class NamesNoPlaceInItsErrors(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.command is not C.ERROR:
            return message
        return changed(message, session=None, about_number=None)


switched(M, "WMP-7.13", worker_side.refused_messages, "sends refused jobs for ever")
switched(M, "WMP-7.15", manager_side.refused_twice, "keeps a session that is blocked")
switched(M, "WMP-7.12", worker_side.endless_resends, "sends a job again for ever")


@bent(M, "WMP-10.6")
class TakesUnknownCodesForGoodbye(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is C.ERROR and "later" in message.fields.get(Field.CODE, ""):
            return Message(C.BYE, (1000, b"manager"), message.source, {})
        return message
