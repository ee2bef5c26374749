"""What happens to a dispatcher, and what it wants done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from wmp.core.manager.unserved import WaitingRow
from wmp.dispatcher.records import WorkerRecord
from wmp.dispatcher.steps.callback_steps import Callback, EndCallback, Sweep, TakeCallbacks
from wmp.dispatcher.steps.checking import Cancellation, Check, EndCancelled
from wmp.dispatcher.steps.crew import PublishCrew
from wmp.dispatcher.steps.placing import Assign, DispatchedJob, Place
from wmp.dispatcher.steps.refusals import NoteAccepted, RefusedPost, TakeBack
from wmp.dispatcher.steps.unserved import LookForUnserved
from wmp.dispatcher.steps.worker_steps import ClaimPings, NotePing

DispatcherStep = (
    Place
    | Assign
    | Check
    | TakeBack
    | EndCancelled
    | ClaimPings
    | NotePing
    | Sweep
    | TakeCallbacks
    | EndCallback
    | LookForUnserved
    | NoteAccepted
    | PublishCrew
)


@frozen
class TimePassed:
    """A deadline of the machine is over, or the dispatcher has started."""


@frozen
class StoreChanged:
    """Jobs, workers or places changed, by this process or by another one."""

    callbacks: bool = False
    """Whether callbacks were added."""
    foreign: bool = False
    """Whether another process made the change."""


@frozen
class WorkerRegistered:
    """A worker registered here; a health check follows at once (DSP-10.5)."""


@frozen
class StepEnded:
    """A step was committed."""

    step: DispatcherStep
    outcome: Any


@frozen
class StepFailed:
    """A step was not committed, as far as known: the store is away, or the instance ended."""

    step: DispatcherStep


@frozen
class InstanceReplaced:
    """The dispatcher has another number: its old instance was ended."""


@frozen
class JobPosted:
    """A worker answered a job, or did not."""

    assignment: DispatchedJob
    refusal: RefusedPost | None
    """Why the worker did not accept the job; None: it has the job, or nobody knows."""
    accepted: bool = False
    """Whether the worker answered that it has the job."""


@frozen
class WorkerPinged:
    """A health check ended."""

    worker: int
    began: int
    error: str | None
    jobs: Sequence[tuple[int, int | None]] | None = None


@frozen
class CancellationAnswered:
    """A worker answered a cancellation, or did not."""

    cancellation: Cancellation
    answered: bool


@frozen
class CallbackAnswered:
    """A callback was answered, or not."""

    callback: Callback
    error: str | None


DispatcherEvent = (
    TimePassed
    | StoreChanged
    | WorkerRegistered
    | StepEnded
    | StepFailed
    | InstanceReplaced
    | JobPosted
    | WorkerPinged
    | CancellationAnswered
    | CallbackAnswered
)


@frozen
class RunStep:
    """Run a step in a transaction of the store."""

    step: DispatcherStep


@frozen
class PostJob:
    """Send a job to its worker."""

    assignment: DispatchedJob


@frozen
class PingWorker:
    """Send a health check."""

    worker: WorkerRecord
    began: int


@frozen
class SendCancellation:
    """Send a cancellation to a worker."""

    cancellation: Cancellation


@frozen
class SendCallback:
    """Send the callback of a job."""

    callback: Callback


@frozen
class ReportUnserved:
    """Log the queued jobs of types that no worker knows (DSP-3.12)."""

    rows: Sequence[WaitingRow]


@frozen
class ReportRefusal:
    """Log that a worker did not accept a job (DSP-3.14)."""

    line: str


DispatcherAction = (
    RunStep
    | PostJob
    | PingWorker
    | SendCancellation
    | SendCallback
    | ReportUnserved
    | ReportRefusal
)
