"""The requests of the workers of a door: each worker has one, a job of any lane of its group.

Jobs arrive as ``Run`` of a lane when a worker is free (:mod:`wmp.gateways.common.job_lanes`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from attrs import define, field

from wmp.actions import Run
from wmp.codec import pack_error
from wmp.events import Begun
from wmp.foreign import Emit, Frames, Of
from wmp.gateways.common.attendance import Attendance
from wmp.gateways.common.body import FRAMES_CODEC, to_payload
from wmp.gateways.common.job_lanes import JobLane, JobLanes
from wmp.message import Frame, Outcome, Peer


class LaneBusyTimer(NamedTuple):
    """The oldest request at a worker may have taken too long."""

    what: Literal["busy"] = "busy"


_BUSY: Final = LaneBusyTimer()


@define(eq=False)
class Attendant:
    """A worker as its door knows it."""

    port: int
    peer: bytes
    state: Attendance = Attendance.UNKNOWN
    lane: JobLane | None = None
    """The lane of the job that the worker has; None without a request."""
    job: int = 0
    """The number of this job."""
    token: bytes = b""
    """The token of its newest request."""
    last_at: float = 0.0
    """When its newest message arrived."""
    sent_at: float = 0.0
    """When the newest message was sent to the worker."""
    given_at: float = 0.0
    """When the worker got its newest request."""
    answered: bool = True
    """Whether a message arrived since the last sign of life that the door sent."""
    tried: bool = False
    """Whether the worker got its request before it was proven, and has not ended it."""
    proven: bool = False
    """Whether the last request of the worker ended with a reply."""


_W = TypeVar("_W", bound=Attendant)


@define(eq=False)
class LaneRequests(JobLanes, Generic[_W]):
    """The requests that the workers of a door have, and the jobs that wait for them.

    Args:
        timers: The timers of the door, which gets ``LaneBusyTimer`` and ``LaneReportTimer``.
        home: The manager whose submitters take results of any codec.
        busy_timeout: Seconds after which a request has taken too long; None for no limit.
        write: Returns the request to a worker for a job, and sets the token of the worker; or
            returns a text that explains why the payload fits no request.
    """

    home: Peer | None
    busy_timeout: float | None
    write: Callable[[_W, Run, int, Frame], Frames | str]
    given: int = field(default=0, init=False)
    """Number of requests that workers got."""
    replies: int = field(default=0, init=False)
    lost: int = field(default=0, init=False)
    """Number of requests that ended with their workers."""
    _busy: dict[_W, None] = field(factory=dict, init=False)
    """The workers with requests."""
    _timed: bool = field(default=False, init=False)
    """Whether ``LaneBusyTimer`` is set."""

    def begin(self, group: str, worker: _W, now: float, actions: list[Any]) -> bool:
        """Give an idle worker the first job that waits; return whether the worker has one."""
        if not self._begin(group, worker, now, actions):
            return False
        self._busy[worker] = None
        return True

    def take_reply(
        self, worker: _W, body: Frames, now: float, actions: list[Any], *, last: bool = False
    ) -> bool:
        """End the job of a worker by its reply, and give the worker the next one.

        Args:
            worker: A worker with a request.
            body: The body of its reply.
            now: Seconds.
            actions: Gets what follows.
            last: Whether the worker gets no further job.

        Returns:
            Whether the worker has a request.
        """
        lane = worker.lane
        assert lane is not None
        worker.lane = None
        self.replies += 1
        codec = lane.run.kind.codec
        if codec or len(body) != 1:
            self._take_frames(lane, worker.job, body, now, actions)
        else:
            self.end_job(lane, worker.job, Outcome.OK, body[0], now, actions)
        if not last and self._begin(lane.group, worker, now, actions):
            return True
        del self._busy[worker]
        return False

    def lose(self, worker: _W, cause: str, now: float, actions: list[Any]) -> None:
        """End the request of a worker as lost; a worker without a request is ignored."""
        if worker.lane is not None:
            self.lost += 1
            self._take_away(worker, Outcome.LOST, cause.encode(), now, actions)

    def interrupt(
        self, group: str, number: int, ids: Collection[int], now: float, actions: list[Any]
    ) -> list[_W]:
        """End jobs of a lane whose results are not wanted; return the workers that had them."""
        lane = self.cancel_waiting(group, number, ids, now, actions)
        ended = [worker for worker in self._busy if worker.lane is lane and worker.job in ids]
        for worker in ended:
            self._take_away(worker, Outcome.CANCELLED, b"", now, actions)
        return ended

    def overdue(self, now: float) -> list[_W]:
        """Return the workers whose requests have taken too long; watch the others on."""
        limit = self.busy_timeout
        assert limit is not None
        late = [worker for worker in self._busy if worker.given_at + limit <= now]
        times = [worker.given_at for worker in self._busy if worker.given_at + limit > now]
        self._timed = bool(times)
        if times:
            self.timers.set(_BUSY, min(times) + limit)
        return late

    # -- inner parts

    def _begin(self, group: str, worker: _W, now: float, actions: list[Any]) -> bool:
        while (job := self.next(group, now, actions)) is not None:
            lane, row = job
            run = lane.run
            id = run.ids[row]
            message = self.write(worker, run, id, run.payloads[row])
            if isinstance(message, str):
                error = pack_error("UnfitPayload", message)
                self.end_job(lane, id, Outcome.ERROR, error, now, actions)
                continue
            self.given += 1
            worker.lane, worker.job = lane, id
            worker.given_at = worker.sent_at = now
            if run.limits is not None:
                actions.append(Of(group, Begun(run.lane, id)))
            if self.busy_timeout is not None and not self._timed:
                self._timed = True
                self.timers.set(_BUSY, now + self.busy_timeout)
            actions.append(Emit(worker.port, worker.peer, message))
            return True
        return False

    def _take_frames(
        self, lane: JobLane, id: int, body: Frames, now: float, actions: list[Any]
    ) -> None:
        """End a job by a reply of several frames, or a job whose codec is not that of bytes."""
        codec = lane.run.kind.codec
        if len(body) > 1 and codec != FRAMES_CODEC and lane.run.manager != self.home:
            text = f"the reply has {len(body)} frames; submit the job with the codec 'frames'"
            error = pack_error("SeveralFrames", text)
            self.end_job(lane, id, Outcome.ERROR, error, now, actions)
            return
        used, payload = to_payload(body, as_list=codec == FRAMES_CODEC)
        other = None if used == codec or not used else used
        self.end_job(lane, id, Outcome.OK, payload, now, actions, other)

    def _take_away(
        self, worker: _W, outcome: Outcome, payload: bytes, now: float, actions: list[Any]
    ) -> None:
        """End the request that a worker has without a reply."""
        lane = worker.lane
        assert lane is not None
        worker.lane = None
        del self._busy[worker]
        self.end_job(lane, worker.job, outcome, payload, now, actions)
        self.flush(lane, actions)
