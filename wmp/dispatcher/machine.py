"""The machine of a dispatcher: which step runs when, and which requests follow from it.

The machine has no clock, no store and no socket. Everything that must outlive it is in the store;
the machine has only times, and what is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from typing import Final

from attrs import define, field

from wmp.dispatcher.dispatch_events import (
    CallbackAnswered,
    CancellationAnswered,
    DispatcherAction,
    DispatcherEvent,
    DispatcherStep,
    InstanceReplaced,
    JobPosted,
    PingWorker,
    PostJob,
    ReportRefusal,
    ReportUnserved,
    RunStep,
    SendCallback,
    SendCancellation,
    StepEnded,
    StepFailed,
    StoreChanged,
    TimePassed,
    WorkerPinged,
    WorkerRegistered,
)
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.steps.callback_steps import EndCallback, Sweep, Swept, TakeCallbacks
from wmp.dispatcher.steps.checking import Cancellation, Check, Checked, EndCancelled
from wmp.dispatcher.steps.crew import CrewMember, PublishCrew
from wmp.dispatcher.steps.placing import Assign, Place, Placed
from wmp.dispatcher.steps.refusals import NoteAccepted, TakeBack, TakenBack
from wmp.dispatcher.steps.unserved import LookForUnserved
from wmp.dispatcher.steps.worker_steps import ClaimPings, NotePing, PingNoted

_FRESH: Final = 7.0
"""Seconds after the start of a transaction in which jobs may be sent (DSP-3.8)."""
_AGAIN: Final = 0.25
"""Seconds between two checks that changes of the store cause, and before a step is tried again."""
_FOREIGN: Final = 0.05
"""Seconds from a change by another process to the next dispatching.

The process that made the change dispatches at once. If all dispatchers did so, each change would
cost as many transactions as there are dispatchers, and these run one after the other.
"""
_CALLBACKS: Final = 1.0
"""Seconds between two looks for callbacks that are due."""


_LOOK: Final = 2.0
"""Seconds between two looks for jobs of types that no worker knows."""


def _no_wants() -> Mapping[str, Sequence[int]]:
    return {}


def _no_offers() -> Collection[str]:
    return ()


@define(eq=False)
class DispatcherMachine:
    """Decides for one dispatcher. ``now`` is in seconds of a clock that never jumps."""

    settings: DispatcherSettings
    wants: Callable[[], Mapping[str, Sequence[int]]] = _no_wants
    """Returns the waiting requests of WMP workers, by type."""
    offers: Callable[[], Collection[str]] = _no_offers
    """Returns the types that the connected WMP workers know."""
    crew: Callable[[], Sequence[CrewMember]] | None = None
    """Returns the connected WMP workers; None for a dispatcher to which none can connect."""
    _published: Sequence[CrewMember] = ()
    """The WMP workers that the other dispatchers know of this one."""
    _running: set[type[DispatcherStep]] = field(factory=set)
    """The periodic steps that are under way."""
    _due: dict[type[DispatcherStep], float] = field(factory=dict)
    """When each periodic step is due."""
    _cooling: dict[tuple[int, int], float] = field(factory=dict)
    """When each job in `d` gets its worker."""
    _awaited: set[tuple[int, int]] = field(factory=set)
    """Jobs whose cancellations are under way."""
    _postponed_steps: list[tuple[float, DispatcherStep]] = field(factory=list)
    """Steps that were not committed, and when each runs again."""
    _callbacks: set[int] = field(factory=set)
    """Numbers of the callbacks that are under way."""
    _head_start_over: bool = False
    _checked_at: float = -inf
    _sweep_after: int = -1

    def __attrs_post_init__(self) -> None:
        for step in (Place, Check, ClaimPings, Sweep, TakeCallbacks, LookForUnserved):
            self._due[step] = -inf
        if self.crew is not None:
            self._due[PublishCrew] = -inf

    def deadline(self) -> float | None:
        """Return when the machine wants :class:`TimePassed`; None for never."""
        waiting = [when for step, when in self._due.items() if step not in self._running]
        waiting += [when for when, _ in self._postponed_steps]
        return min([*waiting, *self._cooling.values()], default=None)

    def may_send(self, renewed: float, now: float) -> bool:
        """Return whether a job may be sent (DSP-3.8); ``renewed``: start of the last commit."""
        return now - renewed <= _FRESH

    def handle(self, event: DispatcherEvent, now: float) -> list[DispatcherAction]:
        """Take an event; return what follows."""
        actions: list[DispatcherAction] = []
        match event:
            case TimePassed():
                pass
            case WorkerRegistered():
                self._soon(ClaimPings, now)
            case StoreChanged(callbacks, foreign):
                if callbacks:
                    self._soon(TakeCallbacks, now)
                self._soon(Place, now + _FOREIGN if foreign else now)
                self._soon(Check, max(now, self._checked_at + _AGAIN))
            case InstanceReplaced():
                # The dispatches of the old instance are adopted by the next check.
                self._cooling.clear()
                self._published = ()
                self._soon(Check, now)
            case StepEnded():
                self._ended(event, now, actions)
            case StepFailed(step):
                self._failed(step, now)
            case JobPosted(assignment, refusal, accepted):
                if refusal is not None:
                    step = TakeBack(self.settings, assignment.id, assignment.attempt, refusal)
                    actions.append(RunStep(step))
                elif accepted and assignment.worker.refusals:
                    actions.append(RunStep(NoteAccepted(assignment.worker.id)))
            case WorkerPinged(worker, began, error, jobs):
                actions.append(RunStep(NotePing(self.settings, worker, began, error, jobs)))
            case CancellationAnswered(cancellation, answered):
                self._awaited.discard((cancellation.id, cancellation.attempt))
                if answered and cancellation.awaited:
                    actions.append(RunStep(EndCancelled(cancellation.id, cancellation.attempt)))
            case CallbackAnswered(callback, error):
                step = EndCallback(self.settings, callback.id, callback.attempt, error)
                actions.append(RunStep(step))
        self._run_due(now, actions)
        return actions

    def _soon(self, step: type[DispatcherStep], when: float) -> None:
        self._due[step] = min(self._due[step], when)

    # -- steps that are due ---------------------------------------------------------------------

    def _run_due(self, now: float, actions: list[DispatcherAction]) -> None:
        settings = self.settings
        for step, when in self._due.items():
            if when > now or step in self._running:
                continue
            if step is PublishCrew:
                self._publish(now, actions)
                continue
            self._running.add(step)
            if step is Place:
                self._due[Place] = now + settings.timer_interval / 1000
                wants = {} if self._head_start_over else self.wants()
                self._head_start_over = False
                actions.append(RunStep(Place(settings, wants)))
            elif step is Check:
                self._due[Check] = now + settings.job_verification_interval / 1000
                self._checked_at = now
                actions.append(RunStep(Check(settings)))
            elif step is ClaimPings:
                self._due[ClaimPings] = now + settings.timer_interval / 1000
                actions.append(RunStep(ClaimPings(settings)))
            elif step is Sweep:
                self._due[Sweep] = now + settings.timer_interval / 1000
                actions.append(RunStep(Sweep(self._sweep_after)))
            elif step is LookForUnserved:
                self._due[LookForUnserved] = now + _LOOK
                actions.append(RunStep(LookForUnserved(self.offers())))
            else:
                self._due[TakeCallbacks] = now + _CALLBACKS
                actions.append(RunStep(TakeCallbacks(frozenset(self._callbacks))))
        again = [step for when, step in self._postponed_steps if when <= now]
        if again:
            self._postponed_steps = [entry for entry in self._postponed_steps if entry[0] > now]
            actions += [RunStep(step) for step in again]
        ready = [job for job, when in self._cooling.items() if when <= now]
        if ready:
            for job in ready:
                del self._cooling[job]
            actions.append(RunStep(Assign(settings, ready)))

    def _publish(self, now: float, actions: list[DispatcherAction]) -> None:
        """Publish the WMP workers here to the other dispatchers, if these have changed."""
        self._due[PublishCrew] = now + self.settings.timer_interval / 1000
        members = () if self.crew is None else tuple(self.crew())
        if members != self._published:
            self._running.add(PublishCrew)
            actions.append(RunStep(PublishCrew(members)))

    # -- outcomes -------------------------------------------------------------------------------

    def _ended(self, event: StepEnded, now: float, actions: list[DispatcherAction]) -> None:
        """Act on the outcome of a step."""
        step, outcome = event.step, event.outcome
        self._running.discard(type(step))
        match step:
            case Place() | Assign():
                self._placed(outcome, now, actions)
            case Check():
                checked: Checked = outcome
                self._cancel(checked.cancellations, actions)
                if checked.changed:
                    self._soon(Place, now)
            case ClaimPings():
                for worker, began in outcome:
                    actions.append(PingWorker(worker, began))
            case NotePing():
                noted: PingNoted = outcome
                self._cancel(noted.cancellations, actions)
                if noted.changed:
                    self._soon(Check, now)
                    self._soon(Place, now)
            case Sweep():
                swept: Swept = outcome
                self._sweep_after = swept.after
                if swept.callbacks:
                    self._soon(TakeCallbacks, now)
            case TakeCallbacks():
                self._callbacks.update(callback.id for callback in outcome)
                actions += [SendCallback(callback) for callback in outcome]
            case TakeBack():
                taken: TakenBack = outcome
                if taken.cancellation is not None:
                    self._cancel([taken.cancellation], actions)
                if taken.line is not None:
                    actions.append(ReportRefusal(taken.line))
                self._soon(Place, now)
            case EndCancelled() | NoteAccepted():
                self._soon(Place, now)
            case PublishCrew(members):
                self._published = members
            case LookForUnserved():
                actions.append(ReportUnserved(outcome))
            case EndCallback():
                self._callbacks.discard(step.id)
                self._soon(TakeCallbacks, now)

    def _placed(self, placed: Placed, now: float, actions: list[DispatcherAction]) -> None:
        actions += [PostJob(assignment) for assignment in placed.assignments]
        ready = now + self.settings.cooldown_period / 1000
        self._cooling.update(dict.fromkeys(placed.cooling, ready))
        if placed.more:
            self._soon(Place, now)
        if placed.next_due is not None:
            self._soon(Place, now + placed.next_due / 1000)
        if placed.left:
            self._head_start_over = True
            self._soon(Place, now + self.settings.head_start / 1000)

    def _cancel(
        self, cancellations: Sequence[Cancellation], actions: list[DispatcherAction]
    ) -> None:
        """Send cancellations that are not under way."""
        for cancellation in cancellations:
            key = cancellation.id, cancellation.attempt
            if key not in self._awaited:
                self._awaited.add(key)
                actions.append(SendCancellation(cancellation))

    def _failed(self, step: DispatcherStep, now: float) -> None:
        """Try a step again soon."""
        self._running.discard(type(step))
        if type(step) in self._due:
            self._soon(type(step), now + _AGAIN)
        elif not isinstance(step, NotePing):
            # A health check that was written although the step failed would count twice. All other
            # steps have no effect the second time.
            self._postponed_steps.append((now + _AGAIN, step))
