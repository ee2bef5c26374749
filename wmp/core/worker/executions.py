"""The jobs of a worker: taken, run, cancelled, answered (spec §4.12 to §4.15, §6).

Jobs stay in columns on the whole way from TAKE to DONE. What is answered during one
``handle`` call is collected and leaves as one DONE for each manager, owner and codec.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from attrs import define, field

from wmp.actions import Interrupt, Note, Recall, Run
from wmp.core.protocol.resources import Resources, needs_of
from wmp.core.worker.capacity import Capacity
from wmp.core.worker.execution_lifecycle import ExecutionInput, ExecutionState, HeldJobs
from wmp.core.worker.outbound import WorkerOutbound
from wmp.core.worker.remote_manager import RemoteManager
from wmp.core.worker.run_queue import RunningLane, RunQueue, WaitingJobs
from wmp.events import Finished, Recalled, Reported
from wmp.message import Columns, Command, Field, Frame, Kind, Limits, Message, Outcome, Peer

__all__ = ["Executions"]

_DONE_BYTES: Final = 4 << 20
"""Payload bytes in one DONE at most; one result may exceed it alone."""
_JOB_BYTES: Final = 32
"""What an answer counts towards the byte limit besides its payload, so that a manager that
acknowledges nothing cannot make a worker keep empty results without end."""
_STATUS_KEPT: Final = 1024
"""STATUS is dropped when a manager has left so many messages unacknowledged."""

_Answers = tuple[list[int], list[int], list[int], list[Frame]]
"""ids, attempts, outcomes, payloads."""


@define(eq=False)
class Executions:
    """Jobs from TAKE to DONE."""

    board: WorkerOutbound
    lanes: RunQueue
    room: Capacity
    outcomes: Counter[int] = field(factory=Counter)
    _answers: dict[tuple[bytes, Peer, str], _Answers] = field(factory=dict)
    _look: bool = False

    # -- from managers

    def take(self, upstream: RemoteManager, link: int, message: Message, now: float) -> None:
        """Jobs came (WMP-4.8 to 4.15)."""
        fields, columns = message.fields, message.columns
        assert columns is not None
        owner: Peer = tuple(fields[Field.MANAGER])
        kind = Kind(fields[Field.ROLE], needs_of(fields[Field.NEEDS]), fields.get(Field.CODEC, ""))
        ids, attempts = columns.ids, columns.attempts
        left = columns.left or [None] * len(ids)
        payloads = columns.payloads or [b""] * len(ids)
        kept = self.room.take(
            upstream, fields[Field.LOCK], len(ids), more=fields.get(Field.MORE, False)
        )
        taken = upstream.taken.get(owner)
        if len(set(ids)) != len(ids) or (taken and not taken.attempts.keys().isdisjoint(ids)):
            rows = self._new_rows(taken, columns)
            if len(rows) < len(ids):
                self.board.drop(
                    "job held already", link, message, f"{len(ids) - len(rows)} of {len(ids)}"
                )
            ids, attempts = [ids[row] for row in rows], [attempts[row] for row in rows]
            left, payloads = [left[row] for row in rows], [payloads[row] for row in rows]
        refusal = self._why_not(kind)
        if self.room.draining:
            self._refuse(upstream, owner, kind, ids, attempts, Outcome.CANCELLED, b"")
            return
        if refusal:
            self._refuse(upstream, owner, kind, ids, attempts, Outcome.REFUSED, refusal)
            return
        # What a lock kept a place for may come although the window has shrunk since.
        room = max(kept, self.room.of(kind.needs, self.lanes.resources))
        if room < len(ids):
            reason = b"lock expired and no room"
            over = ids[room:], attempts[room:]
            self._refuse(upstream, owner, kind, *over, Outcome.REFUSED, reason)
            ids, attempts = ids[:room], attempts[:room]
            left, payloads = left[:room], payloads[:room]
        if ids:
            upstream.taken.setdefault(owner, HeldJobs()).add(ids, attempts)
            deadlines: Sequence[float | None] | None = None
            if columns.left is not None:
                deadlines = [None if ms is None else now + ms / 1000 for ms in left]
            self.lanes.park(upstream, owner, kind, ids, deadlines, payloads, now)

    def cancel(self, upstream: RemoteManager, message: Message) -> None:
        """No result is wanted, or only of what has begun (WMP-6.10)."""
        fields, columns = message.fields, message.columns
        assert columns is not None
        owner: Peer = tuple(fields[Field.MANAGER])
        unstarted = fields.get(Field.UNSTARTED, False)
        what = ExecutionInput.UNSTARTED if unstarted else ExecutionInput.CANCEL
        taken = upstream.taken.get(owner) or HeldJobs()
        absent: list[tuple[int, int]] = []
        parked: dict[int, None] = {}
        asked: dict[int, None] = {}
        for job, attempt in zip(columns.ids, columns.attempts, strict=True):
            if taken.attempts.get(job) != attempt:
                absent.append((job, attempt))
            elif (state := taken.step(job, what)) is ExecutionState.ABSENT:
                parked[job] = None
            elif state is not None:
                asked[job] = None
        kind = Kind()
        if absent:
            jobs, attempts = [row[0] for row in absent], [row[1] for row in absent]
            self._refuse(upstream, owner, kind, jobs, attempts, Outcome.CANCELLED, b"")
        if parked:
            self.lanes.remove(upstream, owner, set(parked))
            attempts = upstream.end(owner, list(parked), what)
            self._refuse(upstream, owner, kind, list(parked), attempts, Outcome.CANCELLED, b"")
        if asked:
            for lane in self.lanes.of(upstream):
                jobs = [job for job in lane.ids if job in asked] if lane.owner == owner else []
                if jobs and not lane.lost:
                    ask = Recall if unstarted else Interrupt
                    self.board.actions.append(ask(lane.number, jobs))

    def forget(self, upstream: RemoteManager) -> int:
        """The manager's session is lost: its jobs end without DONE (WMP-7.6); how many."""
        for lane in self.lanes.forget(upstream):
            self.board.actions.append(Interrupt(lane.number, list(lane.ids)))
        lost = upstream.held
        for owner, taken in upstream.taken.items():
            ids = list(taken.attempts)
            attempts = taken.remove(ids, ExecutionInput.FORGET)
            self.board.actions.append(
                Note("forget", upstream.peer, owner=owner, ids=ids, attempts=attempts)
            )
        upstream.taken.clear()
        return lost

    # -- from lanes

    def finished(self, event: Finished, now: float) -> None:
        """A lane reports results."""
        lane, ids = self._reported(event.lane, event.ids)
        if lane is None:
            return
        outcomes, payloads = event.outcomes, event.payloads
        if len(ids) < len(event.ids):
            rows = {job: row for row, job in enumerate(event.ids)}
            outcomes = [outcomes[rows[job]] for job in ids]
            payloads = [payloads[rows[job]] for job in ids]
        self.lanes.pace.record(lane.kind.role, now - lane.since, len(ids))
        self.lanes.stalled = False
        lane.since = now
        self._end(lane, ids, outcomes, payloads, ExecutionInput.FINISH)

    def recalled(self, event: Recalled) -> None:
        """A lane hands back what it had not begun."""
        lane, ids = self._reported(event.lane, event.ids)
        if lane is not None:
            outcomes = [Outcome.CANCELLED] * len(ids)
            self._end(lane, ids, outcomes, [b""] * len(ids), ExecutionInput.RECALLED)

    def reported(self, event: Reported, now: float) -> None:
        """A handler says how far it is (WMP-6.9)."""
        lane, _ = self._reported(event.lane, [event.id])
        if lane is None or lane.lost:
            return
        upstream = lane.upstream
        assert upstream.stream is not None
        if len(upstream.stream.kept) >= _STATUS_KEPT:
            self.board.drop("too much status", detail="the manager acknowledges too slowly")
            return
        text = event.text
        if text is not None:
            text = text.encode(errors="replace")[: Limits.LONG_TEXT].decode(errors="ignore")
        attempt = upstream.taken[lane.owner].attempts[event.id]
        columns = Columns([event.id], [attempt], fractions=[event.fraction], texts=[text])
        fields: dict[int | str, Any] = {Field.MANAGER: lane.owner}
        size = _JOB_BYTES + len(text or "")
        self.board.push(upstream, Command.STATUS, fields, columns, now, size)

    # -- at the end of every step

    def start(self, now: float) -> tuple[list[Run], Resources]:
        """Start what waits; returns what to run, and what is free for others."""
        runs, expired, spare = self.lanes.start(now)
        for line, ids in expired:
            self._give_back(line, ids, ExecutionInput.EXPIRE)  # WMP-6.7
        if self.board.settings.window is None:
            if self._look:
                self._relieve(now)
            if self.lanes.parked or any(len(run.ids) > 1 for run in runs):
                self._watch(now)
        self._look = False
        return runs, spare

    def look(self) -> None:
        """The alarm of those that wait rang; ``start`` sees to it, when what can start has."""
        self._look = True

    def _relieve(self, now: float) -> None:
        """Jobs may have waited too long: let somebody else do those that have (WMP-6.18)."""
        lanes, since = self.lanes, now - self._patience
        held_up: list[RemoteManager] = []
        for lane in lanes.loaded:
            if lane.since > since:
                continue
            taken = lane.upstream.taken[lane.owner]
            jobs = [
                job for job in lane.ids if taken.step(job, ExecutionInput.UNSTARTED) is not None
            ]
            if jobs:
                self.board.actions.append(Recall(lane.number, jobs))
                held_up.append(lane.upstream)
        for line in lanes.blocked(since):
            self._give_back(line, lanes.clear(line), ExecutionInput.HAND_BACK)
            held_up.append(line.upstream)
        for upstream in dict.fromkeys(held_up):
            self.room.stall(upstream, now)
        if lanes.loaded:
            self._watch(now)

    def _watch(self, now: float) -> None:
        """Jobs wait: look after them in a while (WMP-6.18)."""
        self.board.timers.arm(("patience",), now + self._patience)

    @property
    def _patience(self) -> float:
        return max(0.01, self.board.settings.patience)

    def hand_back(self) -> None:
        """The worker ends: give back what has not begun (WMP-9.10)."""
        for line, ids in self.lanes.drain():
            self._give_back(line, ids, ExecutionInput.HAND_BACK)

    def flush(self, now: float) -> None:
        """Send the answers collected, one DONE for each manager, owner and codec."""
        if not self._answers:
            return
        answers, self._answers = self._answers, {}
        for (identity, owner, codec), (ids, attempts, outcomes, payloads) in answers.items():
            upstream = self.board.upstreams[identity]
            for first, last, size in _parts(payloads):
                part = slice(first, last)
                columns = Columns(
                    ids=ids[part],
                    attempts=attempts[part],
                    outcomes=outcomes[part],
                    payloads=payloads[part],
                )
                fields: dict[int | str, Any] = {Field.MANAGER: owner}
                if codec:
                    fields[Field.CODEC] = codec
                size += _JOB_BYTES * (last - first)
                self.board.push(upstream, Command.DONE, fields, columns, now, size)

    # -- helpers

    def _why_not(self, kind: Kind) -> bytes:
        """Why jobs of ``kind`` can never run here; empty when they can."""
        settings = self.board.settings
        if kind.role not in settings.roles:
            return f"no handler for role {kind.role!r}".encode()  # WMP-4.15
        if not self.lanes.resources.capacity(kind.needs):
            return f"needs {dict(kind.needs)}, this worker has less in all".encode()
        return b""

    def _new_rows(self, taken: HeldJobs | None, columns: Columns) -> list[int]:
        """Rows of jobs that are not held; of those that are, the higher attempt counts."""
        rows: dict[int, int] = {}
        for row, (job, attempt) in enumerate(zip(columns.ids, columns.attempts, strict=True)):
            if taken is not None and job in taken.attempts:
                # WMP-4.14: what is held already answers for the newer lease too.
                if (
                    attempt > taken.attempts[job]
                    and taken.step(job, ExecutionInput.TAKE) is not None
                ):
                    taken.attempts[job] = attempt
            elif job not in rows or attempt > columns.attempts[rows[job]]:
                rows[job] = row
        return sorted(rows.values())

    def _reported(
        self, number: int, ids: Sequence[int]
    ) -> tuple[RunningLane | None, Sequence[int]]:
        """The lane and those of its jobs that have not ended; reports what is neither."""
        lane = self.lanes.running.get(number)
        if lane is None:
            self.board.drop("unknown lane", detail=f"lane {number} has no jobs left")
            return None, ()
        if len(ids) == len(lane.ids) and list(ids) == list(lane.ids):
            return lane, ids  # mostly
        each = dict.fromkeys(ids)
        if len(each) == len(ids) and each.keys() <= lane.ids.keys():
            return (lane, ids) if ids else (None, ())
        known = [job for job in each if job in lane.ids]
        self.board.drop("unknown job", detail=f"{len(ids) - len(known)} not on lane {number}")
        return (lane, known) if known else (None, ())

    def _end(
        self,
        lane: RunningLane,
        ids: Sequence[int],
        outcomes: Sequence[int],
        payloads: Sequence[Frame],
        what: ExecutionInput,
    ) -> None:
        upstream, owner = lane.upstream, lane.owner
        self.lanes.end(lane, ids)
        if lane.lost:
            self.board.drop("superseded result", detail=f"{len(ids)} jobs of a lost session")
            return
        attempts = upstream.end(owner, ids, what)
        self._answer(upstream, owner, lane.kind.codec, ids, attempts, outcomes, payloads)

    def _give_back(self, line: WaitingJobs, ids: Sequence[int], what: ExecutionInput) -> None:
        """Answer jobs that left their line without having begun."""
        attempts = line.upstream.end(line.owner, ids, what)
        self._refuse(line.upstream, line.owner, line.kind, ids, attempts, Outcome.CANCELLED, b"")

    def _refuse(
        self,
        upstream: RemoteManager,
        owner: Peer,
        kind: Kind,
        ids: Sequence[int],
        attempts: Sequence[int],
        outcome: Outcome,
        reason: bytes,
    ) -> None:
        """Answer jobs without having run them."""
        count = len(ids)
        self._answer(
            upstream, owner, kind.codec, ids, attempts, [outcome] * count, [reason] * count
        )

    def _answer(
        self,
        upstream: RemoteManager,
        owner: Peer,
        codec: str,
        ids: Iterable[int],
        attempts: Iterable[int],
        outcomes: Sequence[int],
        payloads: Iterable[Frame],
    ) -> None:
        if not outcomes:
            return
        key = (upstream.identity, owner, codec)
        answers = self._answers.get(key)
        if answers is None:
            answers = self._answers[key] = ([], [], [], [])
        answers[0].extend(ids)
        answers[1].extend(attempts)
        answers[2].extend(outcomes)
        answers[3].extend(payloads)
        first, count = outcomes[0], len(outcomes)
        if outcomes.count(first) == count:
            self.outcomes[first] += count  # mostly
        else:
            self.outcomes.update(outcomes)
        upstream.done += count


def _parts(payloads: Sequence[Frame]) -> Iterable[tuple[int, int, int]]:
    """Cut results into messages: (first, last + 1, payload bytes) of each."""
    lengths = list(map(len, payloads))
    size = sum(lengths)
    if len(lengths) <= Limits.JOBS and size <= _DONE_BYTES:
        yield 0, len(lengths), size
        return
    first = size = 0
    for row, length in enumerate(lengths):
        if row > first and (row - first == Limits.JOBS or size + length > _DONE_BYTES):
            yield first, row, size
            first, size = row, 0
        size += length
    yield first, len(lengths), size
