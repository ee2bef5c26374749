"""The messages that workers of round robin have: given, answered, taken back."""

from __future__ import annotations

from collections.abc import Collection

from attrs import define, field

from wmp.codec import pack_error, pack_frames
from wmp.foreign import Frames, GroupReport, Of
from wmp.gateways.common.body import FRAMES_CODEC, to_payload
from wmp.gateways.common.job_lanes import JobLane, JobLanes
from wmp.gateways.round_robin.pending_messages import ClientMessage
from wmp.gateways.round_robin.slot_table import GivenMessage, SlotTable, SlotWorker
from wmp.gateways.round_robin.terms import RoundRobinDoorSettings
from wmp.message import Frame, Outcome

_NUMBERS = 2**64 - 1
_TOKEN_SIZE = 17

_NO_RESPONSE = pack_error("NoResponse", "the worker did the message and sent no RESPONSE")


def has_form_of_token(address: bytes) -> bool:
    """Return whether an address looks like a token, so that no peer may have it (RR-3.3)."""
    return len(address) == _TOKEN_SIZE and address[:1] == b"~"


@define(eq=False)
class GivenMessages:
    """The messages at workers, by their tokens.

    A token begins with a tilde. No peer can have such a routing id, so no answer to a peer looks
    like an answer to a token.

    Args:
        terms: Names and limits.
        table: The table of workers.
        lanes: The jobs of the door.
    """

    terms: RoundRobinDoorSettings
    table: SlotTable
    lanes: JobLanes
    now: float = field(default=0.0, init=False)
    """The time of this step of the door."""
    at_home: int = field(default=0, init=False)
    """Number of messages of clients among them."""
    lost: int = field(default=0, init=False)
    """Number of attempts that ended with their workers."""
    _tokens: dict[bytes, GivenMessage] = field(factory=dict, init=False)
    """The messages, the oldest first."""
    _token: int = field(init=False)
    """Number of the newest token."""
    _first_token: int = field(init=False)
    ends: list[Of[GroupReport]] = field(factory=list, init=False)
    """Ends of jobs since the last ``take_ends``."""

    def __attrs_post_init__(self) -> None:
        self._token = self._first_token = (self.terms.epoch << 20) & _NUMBERS

    def __len__(self) -> int:
        return len(self._tokens)

    # -- tokens

    def new_token(self) -> bytes:
        """Return a token that was not used yet."""
        self._token = (self._token + 1) & _NUMBERS
        return b"~%016x" % self._token

    def is_token(self, address: bytes) -> bool:
        """Return whether an address is a token of this server."""
        if not has_form_of_token(address):
            return False
        try:
            number = int(address[1:], 16)
        except ValueError:
            return False
        return self._first_token < number <= self._token

    def of_token(self, token: bytes, peer: bytes) -> GivenMessage | None:
        """Return the message of a token that a worker has."""
        message = self._tokens.get(token)
        return message if message is not None and message.worker.peer == peer else None

    def of_jobs(self, lane: int, jobs: Collection[int]) -> list[GivenMessage]:
        """Return the messages of some jobs of a lane that workers have."""
        return [
            given
            for given in self._tokens.values()
            if given.lane.run.lane == lane and given.job in jobs
        ]

    # -- the life of a message

    def take_ends(self) -> list[Of[GroupReport]]:
        """Return the ends of jobs since the last call."""
        ends, self.ends = self.ends, []
        return ends

    def give(
        self,
        lane: JobLane,
        job: int,
        worker: SlotWorker,
        asker: ClientMessage | None,
        *,
        tracked: bool,
    ) -> bytes:
        """Give the message of a job to a worker whose slot was taken; return its token."""
        token = self.new_token()
        given = GivenMessage(lane, job, token, tracked, worker, asker, self.now)
        self._tokens[token] = worker.assignments[token] = given
        self.at_home += lane.run.manager == self.terms.home
        if not tracked:
            worker.untracked.append(given)
        return token

    def answer(self, given: GivenMessage, body: Frames) -> None:
        """Take the RESPONSE of a worker."""
        run, worker = given.lane.run, given.worker
        self.table.answer(worker)
        requested = run.kind.codec
        if len(body) > 1 and requested != FRAMES_CODEC and run.manager != self.terms.home:
            text = f"the reply has {len(body)} frames; submit the job with the codec 'frames'"
            self.finish(given, Outcome.ERROR, pack_error("SeveralFrames", text), over=True)
        else:
            codec, payload = to_payload(body or (b"",), as_list=requested == FRAMES_CODEC)
            other = None if codec == requested or not codec else codec
            if given.asker is not None:
                given.asker.answer = (payload, body, worker.peer)
            self.finish(given, Outcome.OK, payload, codec=other, over=True)
        self._end_silent(worker)

    def answer_late(self, worker: SlotWorker, token: bytes) -> None:
        """Take the RESPONSE to a message that has ended; any other token is ignored."""
        if token in worker.late:
            worker.late.remove(token)
            self.table.answer(worker)
            self._end_silent(worker)

    def increment(self, worker: SlotWorker) -> None:
        """End what INCREMENT ends (RR-4.5, RR-4.6); the slot was given back."""
        if worker.answered:
            self.table.pay(worker)
        elif worker.untracked:
            oldest = worker.untracked.popleft()
            if not oldest.ended:
                self.finish(oldest, Outcome.OK, b"")
        else:
            worker.note_silent()
            self._end_silent(worker)
        if not worker.debt:
            self._clear(worker)

    def take_unsent(self, worker: SlotWorker, token: bytes) -> None:
        """Take a message back that did not reach its worker; any other token is ignored."""
        given = worker.assignments.get(token)
        if given is None:
            given = next((message for message in worker.untracked if message.token == token), None)
        if given is None and token not in worker.late:
            return
        worker.late.discard(token)
        if given is not None and not given.tracked:
            worker.untracked.remove(given)
        if given is not None and not given.ended:
            # Nothing has begun, so another worker may do an EXEC, too.
            self.finish(given, Outcome.LOST, b"the message could not be sent", over=True)
        self.table.forgive(worker)
        self._end_silent(worker)
        if not worker.debt:
            self._clear(worker)

    def take_back(self, worker: SlotWorker, cause: str) -> None:
        """Take a worker out of the table, and its messages back (RR-4.8)."""
        self.table.remove(worker)
        for given in tuple(worker.assignments.values()):
            self._lose(given, cause)

    def end_overdue(self, now: float) -> float | None:
        """End the messages that workers have for too long (RR-4.11).

        Returns:
            The time at which the oldest other message is overdue.
        """
        limit = self.terms.busy_timeout
        while limit is not None and self._tokens:
            oldest = next(iter(self._tokens.values()))
            if oldest.given_at + limit > now:
                return oldest.given_at + limit
            self._lose(oldest, f"the worker took more than {limit:g} s")
        return None

    def _lose(self, given: GivenMessage, cause: str) -> None:
        """Let another worker do a message. An EXEC ends, because it may have been done."""
        if given.tracked:
            self.finish(given, Outcome.LOST, cause.encode())
        else:
            self.finish(given, Outcome.ERROR, pack_error("WorkerLost", cause))

    def _end_silent(self, worker: SlotWorker) -> None:
        """End the messages to which no answer can come any more (RR-4.6)."""
        if worker.silent:
            for token in worker.take_silent():
                worker.late.discard(token)
                if (given := worker.assignments.get(token)) is not None:
                    self.finish(given, Outcome.ERROR, _NO_RESPONSE, over=True)

    def _clear(self, worker: SlotWorker) -> None:
        """End all messages of a worker that has given back the slots of all its messages."""
        for given in tuple(worker.assignments.values()):
            self.finish(given, Outcome.ERROR, _NO_RESPONSE, over=True)
        self.table.expect_nothing(worker)
        worker.answered = 0
        worker.clear_debt()

    def finish(
        self,
        given: GivenMessage,
        outcome: Outcome,
        payload: bytes | Frame,
        *,
        codec: str | None = None,
        over: bool = False,
    ) -> None:
        """End the job of a message.

        Args:
            given: The message.
            outcome: Outcome of the job.
            payload: Its result.
            codec: Codec of the result.
            over: Whether the worker can send no answer any more.
        """
        lane, worker, token = given.lane, given.worker, given.token
        del self._tokens[token], worker.assignments[token]
        given.ended = True
        self.at_home -= lane.run.manager == self.terms.home
        if not given.tracked:
            if outcome is Outcome.OK:
                payload = pack_frames((b"",)) if lane.run.kind.codec == FRAMES_CODEC else b""
        elif not over and worker.debt:
            worker.late.add(token)
        self.lost += outcome is Outcome.LOST
        self.lanes.end_job(lane, given.job, outcome, payload, self.now, self.ends, codec)
        if outcome is not Outcome.OK:
            self.lanes.flush(lane, self.ends)
