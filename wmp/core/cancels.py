"""What a manager asks of jobs that a worker holds: not to be done, or to be handed back.

Theory of operation. A worker of quick jobs may have many waiting, which is worth it for as long
as they are quick. Whether they are shows in what comes back: a worker that holds more than it
can have begun is looked at every ``recall`` seconds, and one that has ended none in between is
*stuck*, most likely behind a job that takes long. What waits there is asked back for as many as
others have room for, and until it has ended a job nothing more is given it to wait while
others have room (WMP-6.18).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define

from wmp.core.grants import Granted
from wmp.core.jobs import Job, State
from wmp.core.offers import Offers
from wmp.core.peers import RemoteWorker, capacity
from wmp.core.post import Post
from wmp.core.queues import Queues
from wmp.message import Columns, Command, Field, Limits

__all__ = ["Cancels"]


@define(eq=False)
class Cancels:
    """Sends CANCEL.

    Invariant: while a worker holds more jobs than it can have begun, it is looked at again.
    """

    post: Post
    offers: Offers
    queues: Queues
    granted: Granted
    recall: float
    """Seconds between two looks at a worker."""

    def ask(self, jobs: Sequence[Job], now: float, *, unstarted: bool = False) -> None:
        """CANCEL these jobs at the worker that holds them all; or only what has not begun."""
        worker = jobs[0].worker
        assert worker is not None
        for start in range(0, len(jobs), Limits.JOBS):
            some = jobs[start : start + Limits.JOBS]
            columns = Columns([job.id for job in some], [job.attempt for job in some])
            fields: dict[int | str, Any] = {Field.MANAGER: self.post.me}
            if unstarted:
                fields[Field.UNSTARTED] = True
            self.post.push(worker, Command.CANCEL, fields, columns, now)

    def watch(self, worker: RemoteWorker, now: float) -> None:
        """It was given jobs: look at it later if some of them wait there."""
        name = ("recall", worker.identity)
        if worker.leased > 1 and name not in self.post.timers and _behind(worker) > 0:
            self.post.timers.set(name, now + self.recall)

    def look(self, worker: RemoteWorker, now: float) -> None:
        """See whether a worker has ended a job since the last look, and do what follows."""
        behind = _behind(worker)
        if behind <= 0:
            return
        if worker.moved:
            worker.moved = False
        else:
            worker.stuck = True
            # Who has not acknowledged that it was asked may not be there: once is enough.
            if all(kept.command is not Command.CANCEL for kept in worker.stream.kept):
                self._ask_back(worker, behind, now)
        self.post.timers.set(("recall", worker.identity), now + self.recall)

    def forget(self, worker: RemoteWorker) -> None:
        """All that it held is lost."""
        worker.moved, worker.stuck = True, False
        self.post.timers.clear(("recall", worker.identity))

    def _ask_back(self, worker: RemoteWorker, behind: int, now: float) -> None:
        """Ask for the youngest of what waits there, as far as others have room."""
        asked: list[Job] = []
        for kind in worker.held:
            queue = self.queues.get(kind)
            # What waits here goes first, and has been offered to whoever has room.
            most = 0 if queue.waiting else min(worker.held[kind], behind - len(asked))
            count = self.offers.room_for(queue, most) if most > 0 else 0
            if count > 0:
                held = [job for job in self.granted.of(worker) if job.queue.kind == kind]
                asked += [job for job in held[-count:] if job.state is State.LEASED]
            self.queues.tidy(queue)
        if asked:
            self.ask(asked, now, unstarted=True)


def _behind(worker: RemoteWorker) -> int:
    """How many jobs at least a worker holds and cannot have begun."""
    begun = max((capacity(dict(kind.needs), worker.resources) for kind in worker.held), default=0)
    return worker.leased - begun
