"""GIVE, TAKE and NO (sections 4 and 5), as tests of a worker."""

from __future__ import annotations

from wmp.conformance.cases.worker.handshake import SHORT, fill, slowly
from wmp.conformance.peers.conversations import WorkerConversation
from wmp.conformance.peers.offered_lock import OfferedLock
from wmp.conformance.peers.played_manager import PlayedManager
from wmp.conformance.script.case import case
from wmp.message import Command, ErrorCode, Outcome


def _lock_everything(talk: WorkerConversation, manager: PlayedManager) -> OfferedLock:
    """Take one lock over the whole capacity."""
    lock = manager.woken(64)
    talk.settle()
    return lock


def _has_no_capacity_for(talk: WorkerConversation, manager: PlayedManager, rule: str = "") -> None:
    """Send WAKE, and check that the worker has no capacity."""
    manager.clear()
    manager.wake(1)
    received = manager.expect(
        Command.READY,
        Command.GIVE,
        where=lambda received: received["credit"] == 0 or manager.is_open(received),
        rule="WMP-3.9",
    )
    if received.command is Command.GIVE:
        lock = talk.book.locks[received["lock"]]
        talk.check(
            lock.locked == 0, "GIVE locks resources, although none are free", rule or "WMP-4.1"
        )
        talk.unimplemented("the worker has a window, and therefore always has capacity")


def _has_capacity_for(
    talk: WorkerConversation, manager: PlayedManager, within: float, what: str, rule: str = ""
) -> OfferedLock:
    return manager.lock(within + talk.wire.grace, rule, what)


@case("WMP-4.1")
def started_jobs_fit(talk: WorkerConversation) -> None:
    """Running jobs never exceed the resources: two on one slot take twice as long."""
    manager, other = talk.met(), talk.met()
    began = talk.now
    jobs = manager.run(slowly(talk, 1.0), role="slow")
    jobs += other.take(999, slowly(talk, 1.0), role="slow", ids=[1])
    ends = []
    for granter, job in ((manager, jobs[0]), (other, jobs[1])):
        granter.done_of(job, None, within=3.0 + 2 * talk.wire.grace)
        outcome = granter.answered[(granter.identity, granter.epoch), job, 1]
        if outcome == Outcome.OK:
            ends.append(talk.now - began)
    if len(ends) == 2:
        minimum = 2.0 - 1e-6
        talk.check(
            max(ends) >= minimum,
            f"two jobs of 1 unit on one slot took {max(ends):.2f} units; expected 2 or more",
        )


@case("WMP-4.1", slots=2)
def locks_fit(talk: WorkerConversation) -> None:
    """Locks of several managers together fit into the resources."""
    managers = [talk.met() for _ in range(3)]
    for manager in managers:
        manager.wake(2)
    talk.wait(0.5)
    for manager in managers:
        for number in list(manager.locks):
            manager.take(number, slowly(talk, 1.0), role="slow")
        manager.wake(3)
    talk.wait(2.5 + talk.wire.grace)


@case("WMP-4.1")
def running_jobs_fit(talk: WorkerConversation) -> None:
    """The resources of a running job are locked for no other job until its handler ends."""
    manager, other = talk.met(), talk.met()
    (job,) = manager.run(slowly(talk, 1.0), role="slow")
    talk.wait(0.2)
    other.wake(1)
    manager.done_of(job, within=1.0 + talk.wire.grace)


@case("WMP-4.2", slots=2)
def window(talk: WorkerConversation) -> None:
    """``want`` may exceed the jobs that run at once by a window."""
    manager = talk.met()
    lock = manager.woken(64)
    talk.inform(f"after WAKE for 64 jobs, GIVE has want {lock.want} and window {lock.window}")


@case("WMP-4.8")
def a_lock_is_its_peers(talk: WorkerConversation) -> None:
    """NO from another manager leaves a lock untouched."""
    first, second = talk.met(), talk.met()
    lock = _lock_everything(talk, first)
    talk.means = {"WMP-4.1": "WMP-4.8"}
    second.no(lock.number)
    _has_no_capacity_for(talk, second, "WMP-4.8")
    jobs = first.take(lock.number, b"still mine")
    answer = first.done_of(jobs[0], rule="WMP-4.8")
    talk.check(
        answer == b"still mine", f"the result of role echo is {answer!r}; expected the payload"
    )


@case("WMP-4.8", "WMP-6.6", slots=2)
def a_job_is_its_owners(talk: WorkerConversation) -> None:
    """Jobs of two owners with one number are two jobs, and each DONE names its owner."""
    manager = talk.met()
    own = manager.run(slowly(talk, 0.5), role="slow", ids=[7])
    manager.owner = (b"elsewhere", 77)
    theirs = manager.run(slowly(talk, 0.5), role="slow", ids=[7])
    manager.owner = None
    talk.check(
        own == theirs == [7],
        "the kit numbered its own jobs wrongly; report this as a fault of the kit",
    )
    owners = set()
    for _ in range(2):
        done = manager.expect(Command.DONE, within=2.0 + talk.wire.grace)
        owners.add(tuple(done["manager"]))
    expected = {(manager.identity, manager.epoch), (b"elsewhere", 77)}
    talk.check(owners == expected, f"DONE names the owners {owners}; expected {expected}")


@case("WMP-4.9", slots=2)
def take_closes_its_lock(talk: WorkerConversation) -> None:
    """A TAKE closes its lock: the rest of the lock is free at once."""
    first, second = talk.met(), talk.met()
    lock = _lock_everything(talk, first)
    if lock.want < 2:
        talk.unimplemented("GIVE has want 1 after WAKE for more jobs, and the case needs 2")
    first.take(lock.number, slowly(talk, 3.0), role="slow")
    second.wake(1)
    _has_capacity_for(talk, second, 0.0, "TAKE closed the lock and one of the two slots is free")


@case("WMP-4.9", slots=2)
def more_keeps_the_lock(talk: WorkerConversation) -> None:
    """With ``more`` the lock stays open for its rest."""
    first, second = talk.met(), talk.met()
    lock = _lock_everything(talk, first)
    if lock.want < 2:
        talk.unimplemented("GIVE has want 1 after WAKE for more jobs, and the case needs 2")
    each = 2.0 + 4 * talk.wire.grace
    jobs = first.take(lock.number, slowly(talk, each), role="slow", more=True)
    if lock.locked > 0:
        _has_no_capacity_for(talk, second, "WMP-4.9")
    began = talk.now
    jobs += first.take(lock.number, slowly(talk, each), role="slow")
    for job in jobs:
        first.done_of(job, within=2 * each + talk.wire.grace, rule="WMP-4.9")
    took = talk.now - began
    talk.check(
        took < 1.5 * each,
        f"two jobs of {each:g} units on two slots took {took:.2f} units; expected less than "
        f"{1.5 * each:g}",
    )


@case("WMP-4.10")
def no_releases(talk: WorkerConversation) -> None:
    """NO releases the rest of a lock at once."""
    first, second = talk.met(), talk.met()
    lock = first.woken(64)
    _has_no_capacity_for(talk, second)
    first.no(lock.number)
    # On a busy machine the script may be late. A GIVE after the time of the lock shows nothing: a
    # worker that ignores NO sends one, too.
    ends, grace = lock.at + 5.0 + lock.hold, talk.wire.grace
    within = min(0.0, ends - 2 * grace - talk.now)
    _has_capacity_for(talk, second, within, "NO released the lock of the other manager")


@case("WMP-4.11")
def lock_timeout(talk: WorkerConversation) -> None:
    """An unanswered lock is released 5 units after the end of its hold."""
    first, second = talk.met(), talk.met()
    lock = _lock_everything(talk, first)
    _has_no_capacity_for(talk, second)
    first.locks.pop(lock.number)  # the worker must release the lock
    _has_capacity_for(
        talk, second, 5.0 + lock.hold, "the lock of the other manager had no answer for 5 units"
    )
    kept = talk.now - lock.at
    talk.check(
        kept >= 5.0 + lock.hold - talk.wire.grace - 1e-6,
        f"the worker released the lock after {kept:.2f} units; expected {5.0 + lock.hold:g} or "
        "more",
    )


@case("WMP-4.11")
def report_of_a_released_lock(talk: WorkerConversation) -> None:
    """When a lock is released without an answer, its manager receives READY at once."""
    first, _ = talk.met(), talk.met()
    lock = _lock_everything(talk, first)
    first.answers = False  # a PONG would also cause a READY (WMP-3.13)
    first.locks.pop(lock.number)
    # The GIVE may have been on its way for some time, so the worker's 5 units began earlier.
    released, grace = lock.at + 5.0 + lock.hold, talk.wire.grace + 1e-6
    first.expect(
        Command.READY,
        within=released - talk.now + grace,
        where=lambda ready: ready.at >= released - grace and bool(ready["credit"]),
        what="the manager may otherwise wait for the GIVE whose lock the worker has released",
    )


@case("WMP-4.11", "WMP-5.4", profile="held-give")
def withdrawn_lock(talk: WorkerConversation) -> None:
    """A withdrawn lock without an answer is released 5 units after its withdrawal."""
    first = talk.met()
    lock = held_by(talk, first)
    first.answers = False
    second = talk.met()
    first.expect(
        Command.GIVE,
        within=0.5 + talk.wire.grace,
        where=lambda received: received["want"] == 0 and received["lock"] == lock.number,
        rule="WMP-5.4",
    )
    since = talk.now
    first.answers = True
    first.pong()
    _has_no_capacity_for(talk, second)
    first.locks.pop(lock.number, None)  # the worker must release the lock
    _has_capacity_for(talk, second, 5.0, "the withdrawn lock was left unanswered for 5 units")
    kept = talk.now - since
    minimum = 5.0 - 2 * talk.wire.grace - 1e-6
    talk.check(
        kept >= minimum,
        f"the lock was released {kept:.2f} units after its withdrawal; expected {minimum:.2f} or "
        "more",
    )


@case("WMP-4.12")
def late_take_with_capacity(talk: WorkerConversation) -> None:
    """A TAKE whose lock is gone runs if there is capacity."""
    manager, _ = talk.met(), talk.met()
    lock = _lock_everything(talk, manager)
    manager.no(lock.number)
    (job,) = manager.take(lock.number, b"late")
    answer = manager.done_of(job, rule="WMP-4.12")
    talk.check(answer == b"late", f"the result of role echo is {answer!r}; expected the payload")


@case("WMP-4.12")
def late_take_beside_another_lock(talk: WorkerConversation) -> None:
    """A TAKE whose lock is gone runs on what another lock of the same manager keeps."""
    manager, _ = talk.met(), talk.met()
    gone = _lock_everything(talk, manager)
    manager.no(gone.number)
    other = _lock_everything(talk, manager)
    (job,) = manager.take(gone.number, b"late")
    manager.done_of(job, None, rule="WMP-4.12")
    key = (manager.identity, manager.epoch), job, 1
    talk.check(
        manager.answered[key] != Outcome.REFUSED,
        f"the worker refused a late job, although the open lock {other.number} of the same manager "
        "keeps resources; expected that the job runs on these resources",
        "WMP-4.12",
        "should",
    )


@case("WMP-4.12")
def late_take_without_capacity(talk: WorkerConversation) -> None:
    """A TAKE whose lock is gone is refused, job by job, if there is no capacity."""
    first, second = talk.met(), talk.met()
    lock = second.woken(1)
    second.no(lock.number)
    before = fill(talk, first, 3.0)
    within = 4.0 + 6 * talk.wire.grace + 2 * SHORT * len(before)
    jobs = second.take(lock.number, b"late", b"later")
    for job in jobs:
        second.done_of(job, None, within=within, rule="WMP-4.12")
        key = (second.identity, second.epoch), job, 1
        outcome = second.answered[key]
        talk.check(
            outcome in (Outcome.OK, Outcome.REFUSED) or key in second.handed_back,
            f"job {job} ended as {Outcome(outcome).name.lower()}; expected refused or ok",
        )


@case("WMP-4.13")
def no_for_a_released_lock(talk: WorkerConversation) -> None:
    """NO for a lock that was released already is a race, and gets no answer."""
    manager, _ = talk.met(), talk.met()
    lock = manager.woken(1)
    manager.no(lock.number)
    manager.clear()
    manager.no(lock.number)
    manager.never(Command.ERROR, what="NO for a lock that was released already is not a mistake")


@case("WMP-4.13", profile="secure")
def no_for_no_lock(talk: WorkerConversation) -> None:
    """NO for a lock that was never given gets ERROR unknown."""
    manager, _ = talk.met(), talk.met()
    lock = manager.woken(1)
    manager.no(lock.number)
    manager.clear()
    manager.no(lock.number + 1000)
    error = manager.expect(
        Command.ERROR, what="the worker sent no GIVE with the lock that NO names"
    )
    talk.check(
        error["code"] == ErrorCode.UNKNOWN, f"ERROR has code {error['code']!r}; expected 'unknown'"
    )


@case("WMP-4.14")
def a_job_held_already(talk: WorkerConversation) -> None:
    """If two TAKEs grant one job, the higher attempt counts, and only this attempt is answered."""
    talk.means = {"WMP-6.6": "WMP-4.14"}
    manager, _ = talk.met(), talk.met()
    manager.run(slowly(talk, 1.0), role="slow", ids=[5], attempt=2)
    again = manager.last_lock
    manager.take(again, slowly(talk, 1.0), role="slow", ids=[5], attempt=4)
    owner = (manager.identity, manager.epoch)
    held = manager.given[owner, 5]
    manager.take(again, slowly(talk, 1.0), role="slow", ids=[5], attempt=3)
    manager.given[owner, 5] = held  # the lower attempt is dropped
    manager.done_of(5, within=3.0 + talk.wire.grace, rule="WMP-4.14")
    # If the worker hands attempt 4 back, the kit grants an attempt above it.
    talk.check(
        all(key[:2] == (owner, 5) and key[2] >= 4 for key in manager.answered),
        f"the worker answered {list(manager.answered)}; expected only attempt 4",
    )
    manager.never(
        Command.DONE, during=2.0, again=False, what="the worker has already answered the job"
    )


@case("WMP-4.15")
def a_role_without_handler(talk: WorkerConversation) -> None:
    """A job of a role without handler is refused."""
    manager = talk.met()
    lock = manager.woken(1)
    (job,) = manager.take(lock.number, b"who does this?", role="nobody's")
    manager.done_of(job, Outcome.REFUSED, rule="WMP-4.15")


@case("WMP-4.17")
def refused_jobs_hold_nothing(talk: WorkerConversation) -> None:
    """A refused job holds no resources: the worker locks them for the next job."""
    talk.means = {"WMP-3.8": "WMP-4.17", "WMP-4.10": "WMP-4.17"}
    manager, _ = talk.met(), talk.met()
    lock = manager.woken(1)
    for _ in range(3):
        talk.check(
            lock.locked > 0,
            "the GIVE locks no resources; expected locked resources, because no job runs",
        )
        (job,) = manager.take(lock.number, b"who does this?", role="nobody's")
        manager.done_of(job, Outcome.REFUSED, rule="WMP-4.15")
        manager.wake(1)
        lock = manager.lock(rule="WMP-4.17", what="no job runs")


@case("WMP-4.17", profile="status-cancel")
def expired_jobs_hold_nothing(talk: WorkerConversation) -> None:
    """A job whose deadline passed before it began holds no resources."""
    manager, _ = talk.met(), talk.met()
    lock = manager.woken(1)
    (job,) = manager.take(lock.number, b"too late", left=0.0)
    manager.done_of(job, Outcome.CANCELLED, rule="WMP-6.7")
    lock = manager.woken(1)
    talk.check(
        lock.locked > 0,
        "the GIVE locks no resources; expected locked resources, because no job runs",
    )


def held_by(talk: WorkerConversation, manager: PlayedManager) -> OfferedLock:
    """Return a lock whose GIVE the manager holds; the worker does not speak 5.1 if none comes."""
    received = manager.wait_for(
        Command.GIVE, within=2.0, where=lambda h: manager.is_open(h) and bool(h["hold"])
    )
    if received is None:
        talk.unimplemented("the worker sent no GIVE with hold")
        raise AssertionError
    lock: OfferedLock = talk.book.locks[received["lock"]]
    return lock


@case("WMP-5.1")
def held_give(talk: WorkerConversation) -> None:
    """A worker may send GIVE with ``hold`` unasked; a job then starts after one trip."""
    manager = talk.met()
    lock = held_by(talk, manager)
    (job,) = manager.take(lock.number, b"in one trip")
    manager.done_of(job)
    talk.inform(f"the worker sent GIVE with hold {lock.hold:g} units")


@case("WMP-5.2", profile="held-give")
def no_held_give_while_another_waits(talk: WorkerConversation) -> None:
    """No held GIVE goes out while a WAKE of another manager is pending."""
    first = talk.met()
    held_by(talk, first)
    second = talk.met()
    jobs = fill(talk, first, 1.5)
    second.clear()
    first.clear()
    second.wake(1)
    within = 2.0 + 6 * talk.wire.grace + 2 * SHORT * len(jobs)

    def held() -> bool:
        gives = [
            received
            for received in first.inbox
            if received.command is Command.GIVE and received["want"]
        ]
        return any(give["hold"] for give in gives)

    talk.until(
        lambda: held() or any(second.is_open(received) for received in second.inbox),
        within,
        "WMP-3.9",
        "the other manager received no GIVE for its WAKE",
    )
    talk.check(
        not held(),
        "the worker sent GIVE with hold; expected none while a WAKE of another manager is pending",
    )


@case("WMP-5.4", profile="held-give")
def second_manager(talk: WorkerConversation) -> None:
    """Held GIVEs are withdrawn when a second manager appears."""
    first = talk.met()
    lock = held_by(talk, first)
    talk.met()
    first.expect(
        Command.GIVE,
        within=0.5 + talk.wire.grace,
        where=lambda received: received["want"] == 0 and received["lock"] == lock.number,
        what="the worker now has one slot for two managers, and must withdraw the GIVE",
    )


@case("WMP-5.5", profile="held-give")
def lost_give(talk: WorkerConversation) -> None:
    """A lock is released if PONG shows that the manager did not receive the GIVE."""
    first, second = talk.met(), talk.met()
    lock = _lock_everything(talk, first)
    _has_no_capacity_for(talk, second)
    first.locks.pop(lock.number)
    first.last_lock = lock.number - 1
    _has_capacity_for(
        talk, second, 4.0 + lock.hold, "PONG shows that the manager did not receive the GIVE"
    )


@case("WMP-4.11", slots=2)
def more_does_not_start_the_time_anew(talk: WorkerConversation) -> None:
    """A lock is released 5 units after its GIVE, also when a TAKE with ``more`` used a part."""
    first, second = talk.met(), talk.met()
    lock = first.woken(64)
    if lock.want < 2 or lock.locked < 2:
        talk.unimplemented("the GIVE does not lock two places, and the case needs two")
    talk.wait(max(0.0, lock.at + lock.hold + 3.0 - talk.now))
    lasts = 6.0 + 4 * talk.wire.grace
    (job,) = first.take(lock.number, slowly(talk, lasts), role="slow", more=True)
    second.wake(1)
    first.locks.pop(lock.number, None)  # the worker must release the lock
    within = lock.at + 5.0 + lock.hold - talk.now
    what = "5 units have passed since the GIVE of the other manager, of which one place was used"
    _has_capacity_for(talk, second, within, what)
    kept, minimum = talk.now - lock.at, 5.0 + lock.hold - talk.wire.grace - 1e-6
    talk.check(
        kept >= minimum,
        f"the worker released the lock after {kept:.2f} units; expected {minimum:.2f} or more",
    )
    first.done_of(job, None, within=lasts + talk.wire.grace)
