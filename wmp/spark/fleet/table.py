"""The members of a fleet and the rules of their admission, without I/O or clock.

A **member** is one worker of the fleet. It has **lives**: each life is one Spark job of one task.
A **process** of a life is a run of its task; Spark runs a task again when its executor is lost.
The fleet's threads report here what happened, and when. The answers are what to do.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Final

from attrs import define, field, frozen

from wmp.errors import ConfigError

FAILURES: Final = 5
"""Lives of one member that may fail one after another before any manager was met (FLEET-3.5)."""

LOST_AFTER: Final = 4.0
"""Seconds without a report after which another process of the same life may begin (FLEET-2.4)."""

_BACKOFF: Final = 0.25
"""Seconds before the life after the first failure; twice as many after each further failure."""


class MemberState(enum.Enum):
    """The stage of a member in its life."""

    WAITING = "waiting"
    """Its Spark job is submitted, and no process has reported."""
    RUNNING = "running"
    """A process has reported, and its worker runs."""
    DRAINING = "draining"
    """It was ordered to drain."""
    BETWEEN = "between"
    """A life has ended, and the next has not been submitted."""
    ENDED = "ended"
    """It has no further life."""


class Order(enum.Enum):
    """The fleet's answer to a report."""

    SERVE = "serve"
    WAIT = "wait"
    """Start no worker yet: another process of this life still reports."""
    DRAIN = "drain"


@frozen(kw_only=True)
class Beat:
    """One report of a process: who and where it is, and what its worker does."""

    member: int
    life: int
    process: str
    """A name that no other process has."""
    host: str = ""
    pid: int = 0
    executor: str = ""
    managers: int = 0
    held: int = 0


@frozen(kw_only=True)
class Slots:
    """Running and waiting tasks of Spark jobs that are not the fleet's, where Spark shows them."""

    running: int
    waiting: int


@define(kw_only=True)
class FleetMember:
    """One worker of the fleet."""

    number: int
    state: MemberState = MemberState.BETWEEN
    life: int = 0
    """Lives that have begun."""
    met: bool = False
    """Whether the present life met a manager."""
    retired: bool = False
    """Whether the fleet shrank by this member."""
    failures: int = 0
    """Lives that failed one after another without having met a manager."""
    beat: Beat | None = None
    """The last report of the present life."""
    seen: float = 0.0
    """The time of that report."""
    last_error: str = ""


@define
class FleetTable:
    """The state of a fleet: its members.

    Args:
        admission: Seconds for which Spark may have no free slot before this is an error.
        spare: Task slots that the fleet leaves to other Spark jobs.
    """

    admission: float
    spare: int = 1
    members: dict[int, FleetMember] = field(factory=dict)
    stopping: bool = False
    _count: int = 0
    _served: float | None = None
    """When a member last ran; None while none was wanted."""
    _crowded: float | None = None
    """Since when other jobs wait while the fleet alone holds slots."""

    # -- the number of members ---------------------------------------------------------------

    def scale(self, count: int, now: float) -> list[int]:
        """Want ``count`` members; return the numbers of the new ones.

        Members that have not begun are retired first, then the youngest.
        """
        kept = [member for member in self.members.values() if self._wanted(member)]
        kept.sort(key=lambda member: (member.state is not MemberState.RUNNING, member.number))
        for member in kept[count:]:
            member.retired = True
            if member.state is MemberState.RUNNING:
                member.state = MemberState.DRAINING
        fresh = list(range(self._count, self._count + max(0, count - len(kept))))
        self._count += len(fresh)
        for number in fresh:
            self.members[number] = FleetMember(number=number)
        if not kept or not count:
            self._served = now if count else None
        return fresh

    def stop(self) -> None:
        """Want no member."""
        self.stopping = True
        for member in self.members.values():
            if member.state is MemberState.RUNNING:
                member.state = MemberState.DRAINING

    def lives_on(self, number: int) -> bool:
        """Return whether a member shall have another life."""
        return self._wanted(self.members[number])

    def unstarted(self) -> list[int]:
        """Return the members whose Spark job is not wanted and has not begun: cancel these."""
        return [
            member.number
            for member in self.members.values()
            if member.state is MemberState.WAITING and not self._wanted(member)
        ]

    # -- lives -------------------------------------------------------------------------------

    def submitted(self, number: int) -> int:
        """Note that a member's Spark job is submitted; return the number of this life, from 1."""
        member = self.members[number]
        member.state, member.met, member.beat = MemberState.WAITING, False, None
        member.life += 1
        return member.life

    def reported(self, beat: Beat, now: float) -> Order:
        """Note a report; return the order for its process."""
        member = self.members.get(beat.member)
        if member is None or beat.life != member.life or member.state is MemberState.ENDED:
            return Order.DRAIN  # an earlier life that Spark still runs
        known = member.beat
        if (
            known is not None
            and known.process != beat.process
            and now - member.seen < LOST_AFTER
            and member.state is not MemberState.BETWEEN
        ):
            return Order.WAIT
        if member.state is MemberState.BETWEEN:
            return Order.DRAIN
        member.beat, member.seen = beat, now
        member.met = member.met or beat.managers > 0
        if not self._wanted(member):
            member.state = MemberState.DRAINING
            return Order.DRAIN
        member.state = MemberState.RUNNING
        return Order.SERVE

    def ended(self, number: int, error: str | None) -> float:
        """Note the end of a life; return the seconds until the next life may be submitted.

        Args:
            number: The member.
            error: Why the life failed; None for a life that drained.

        Raises:
            ConfigError: The member failed too often (FLEET-3.5).
        """
        member = self.members[number]
        member.state = MemberState.BETWEEN if self._wanted(member) else MemberState.ENDED
        if error is None or member.met:
            member.failures = 0
        if error is None:
            return 0.0
        member.last_error = error
        if not self._wanted(member):
            return 0.0
        member.failures += 1
        if member.failures >= FAILURES:
            raise ConfigError(
                f"member {number} of the fleet failed {FAILURES} times in a row before a manager "
                f"answered; the last error is: {error}; correct the worker, or its managers"
            )
        return float(_BACKOFF * 2 ** (member.failures - 1))

    # -- admission ---------------------------------------------------------------------------

    def check(self, slots: Slots | None, now: float) -> None:
        """Recognise a deadlock of task slots.

        Args:
            slots: The tasks of other Spark jobs; None where Spark does not show them.
            now: Seconds.

        Raises:
            ConfigError: No member could begin for ``admission`` seconds (FLEET-4.3), or the fleet
                held all task slots for that time while another job waited (FLEET-4.4).
        """
        if self.stopping:
            return
        wanted = [member for member in self.members.values() if self._wanted(member)]
        holding = [member for member in self.members.values() if self._holds(member, now)]
        if holding or not wanted or self._served is None:
            self._served = now
        elif now - self._served >= self.admission:
            what = f"any of the {len(wanted)} workers of the fleet"
            raise ConfigError(shut_out(what, self.admission, slots))
        if not (holding and self.spare and slots and slots.waiting and not slots.running):
            self._crowded = None
        elif self._crowded is None:
            self._crowded = now
        elif now - self._crowded >= self.admission:
            raise ConfigError(self.crowded(len(holding)))

    def counts(self) -> Mapping[MemberState, int]:
        """Return the number of members in each state."""
        return {
            state: sum(member.state is state for member in self.members.values())
            for state in MemberState
        }

    def crowded(self, holding: int) -> str:
        """Return the error of a fleet that leaves no task slot to other jobs."""
        return (
            f"the {holding} workers of the fleet hold every task slot of Spark, and another job "
            f"has waited for a slot for {self.admission:g} s; set workers={max(1, holding - 1)} or "
            "less, or give Spark more slots (local[N], spark.executor.instances, "
            "spark.executor.cores, spark.cores.max); spare=0 turns this check off"
        )

    def _wanted(self, member: FleetMember) -> bool:
        return not (self.stopping or member.retired or member.state is MemberState.ENDED)

    def _holds(self, member: FleetMember, now: float) -> bool:
        """Return whether a process of the member runs, so that it holds a task slot."""
        if member.state not in (MemberState.RUNNING, MemberState.DRAINING):
            return False
        return now - member.seen < max(LOST_AFTER, self.admission / 2)

    def __iter__(self) -> Iterator[FleetMember]:
        return iter(self.members.values())


def shut_out(what: str, seconds: float, slots: Slots | None) -> str:
    """Return the error of a fleet for which Spark has no free task slot.

    Args:
        what: The thing that did not begin.
        seconds: How long the fleet waited.
        slots: The tasks of other Spark jobs; None where Spark does not show them.
    """
    if slots is None:
        why = "other jobs hold every task slot, or no executor runs"
    elif slots.running:
        why = f"other jobs hold every task slot ({slots.running} of their tasks run)"
    else:
        why = "no executor has a free slot, and Spark shows no task of another job"
    return (
        f"Spark did not start {what} for {seconds:g} s: {why}; start the fleet before the jobs "
        "that need it, use fewer partitions in these jobs, or give Spark more slots (local[N], "
        "spark.executor.instances, spark.executor.cores, spark.cores.max); on a cluster that "
        "starts executors on demand, set admission= to the seconds of such a start"
    )
