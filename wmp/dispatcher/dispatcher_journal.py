"""The journal of a dispatcher: the jobs of its clients, and the leases of HTTP workers.

The lines are those of a manager with a store, so that `wmp report` reads them. HTTP messages are
in no journal.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from attrs import define, field

from wmp.actions import End, Note, Resolve
from wmp.core.protocol.settings import ManagerSettings
from wmp.dispatcher.job_document import CODEC
from wmp.dispatcher.records import WorkerRecord
from wmp.dispatcher.steps.checking import Check
from wmp.dispatcher.steps.job_steps import CancelJob, Create, Finish, LookForEnds
from wmp.dispatcher.steps.placing import Assign, Place
from wmp.dispatcher.steps.refusals import TakeBack, TakenBack
from wmp.dispatcher.steps.taking_back import LostDispatch
from wmp.events import Cancelled, InstanceBegun, Leased, Returned, Submitted, Ticked
from wmp.message import Kind, Outcome, Peer
from wmp.runtime.common.journal import Journal
from wmp.runtime.common.recorder import Recorder
from wmp.runtime.node.node import make_identity, new_epoch

_MAX: Final = 1000
"""Maximum number of jobs whose ends are looked for at a time."""
_OUTCOMES: Final[Mapping[str, Outcome]] = {
    "s": Outcome.OK,
    "f": Outcome.ERROR,
    "x": Outcome.CANCELLED,
}


@define(eq=False)
class DispatcherJournal:
    """Writes the journal of one dispatcher. All methods are called on the loop's thread.

    Raises:
        ConfigError: No file can be created in the folder.
    """

    journal: Journal
    label: str
    store: Peer
    """Identity and generation of the store, which owns all jobs."""
    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop)
    _recorder: Recorder = field(init=False)
    _open: dict[int, None] = field(factory=dict, init=False)
    """The jobs that clients created here, and whose ends are not written."""

    def __attrs_post_init__(self) -> None:
        settings = ManagerSettings(
            identity=make_identity(None), epoch=new_epoch(), label=self.label
        )
        self._recorder = Recorder.begin(self.journal, settings, (), self._loop)
        self._record(InstanceBegun(store=self.store))

    def _record(self, event: object, *actions: object) -> None:
        self._recorder.step(event, actions, self._loop.time())

    def committed(self, step: object, outcome: Any, called: float) -> None:
        """Write what a step changed.

        Args:
            step: The step.
            outcome: Its outcome after the commit.
            called: When the step was asked for, on the loop's clock.
        """
        match step:
            case Create() if outcome.document is not None and not outcome.joined:
                self._created(step, called)
            case CancelJob(id) if outcome is not None and not outcome[1]:
                self._record(Cancelled([id]))
            case Finish() if outcome.counts:
                self._finished(step)
            case Place() | Assign():
                for given in outcome.assignments:
                    worker = _peer(given.worker)
                    self._record(Leased(given.role, [given.id], [given.attempt], worker))
            case TakeBack():
                self._refused(outcome)
            case Check():
                for lost in outcome.lost:
                    self._lost(lost)
            case LookForEnds():
                self._ended(outcome)

    def _created(self, step: Create, called: float) -> None:
        new = step.job
        delay = 0.0 if new.due is None else max(0.0, new.due / 1000 - time.time())
        self._open[step.id] = None
        self._record(
            Submitted(
                [step.id],
                [b""],
                Kind(new.type, codec=CODEC),
                new.priority,
                max_worker_losses=step.settings.max_worker_losses,
                run_limit=new.timeout / 1000,
                delay=delay,
                called=[called],
            )
        )

    def _finished(self, step: Finish) -> None:
        returned = Returned([step.id], [step.attempt], [_OUTCOMES[step.status]])
        if step.status == "x" or step.id not in self._open:
            self._record(returned)
        else:
            end = End.OK if step.status == "s" else End.ERROR
            del self._open[step.id]
            self._record(returned, Resolve([step.id], [end], [b""], [step.attempt]))

    def _refused(self, taken: TakenBack) -> None:
        lost = taken.lost
        if lost is None:
            return
        if not taken.failed:
            self._lost(lost)
            return
        resolve = Resolve([lost.id], [End.ERROR], [b""], [lost.attempt])
        ends = (resolve,) if self._open.pop(lost.id, 0) is None else ()
        self._record(Returned([lost.id], [lost.attempt], [Outcome.ERROR]), *ends)

    def _lost(self, lost: LostDispatch) -> None:
        peer = (b"worker", 0) if lost.worker is None else _peer(lost.worker)
        note = Note(lost.cause, peer, owner=self.store, ids=[lost.id], attempts=[lost.attempt])
        self._record(Ticked(), note)

    # -- jobs that others ended

    def look(self) -> LookForEnds | None:
        """Return the step that looks for ends; None if no end is awaited."""
        if not self._open:
            return None
        some = list(islice(self._open, _MAX))
        for id in some:  # the others are looked for before these are again
            del self._open[id]
        self._open.update(dict.fromkeys(some))
        return LookForEnds(sorted(some))

    def _ended(self, ends: Mapping[int, tuple[End, int] | None]) -> None:
        for id, end in ends.items():
            if id in self._open:
                del self._open[id]
                if end is not None:
                    word, attempt = end
                    self._record(Ticked(), Resolve([id], [word], [b""], [attempt]))

    # -- the end

    def stop(self) -> None:
        """Write the last line. :meth:`wait` waits for the disk. Idempotent."""
        self._recorder.stop()

    def wait(self) -> None:
        """Wait until all lines are in the file, for a bounded time; any thread may call this."""
        self._recorder.wait()


def _peer(worker: WorkerRecord) -> Peer:
    return f"{worker.hostname}:{worker.port}".encode(), worker.id
