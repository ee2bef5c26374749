"""The names of violations, and the text of each rule or invariant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wmp.checks.job_history import INVARIANTS

_INVARIANTS: Final = (
    "every job ends", "one end for each job", "executions", "leases are lost for a cause",
    "no stale result", "cancelled stays cancelled", "worker losses are kept", "ends have a cause",
    "no double booking", "runs are counted", "one process for each identity", "times are kept",
    "retries are kept",
)  # fmt: skip
"""The invariants that journals can show to be broken."""

FINDINGS: Final[Mapping[str, str]] = {
    **{name: INVARIANTS[name] for name in _INVARIANTS},
    "messages arrive as sent": "a received message was sent by its source, with the same columns",
    "one line for each number": "a process writes one line with each number",
    "a stop is the last line": "a process writes no line after its stop",
    "lines follow one another": (
        "each event begins the next step, the clock never goes back, and the wall clock moves with "
        "it but at a beat"
    ),
    "start lines agree": (
        "all segments of a process begin with the same facts and count up from 1, and its messages "
        "have its label"
    ),
    "lost lines are counted": "a line about a loss stands before the line that counts the loss",
    "a TAKE states its job": (
        "a TAKE has the role, needs, codec, times, limits and number of failures of its job"
    ),
    "a lane runs what its TAKE brought": (
        "a lane has the attempt, role, needs, codec and limit of the newest TAKE of a job"
    ),
    "a lane ends each job once": (
        "a lane begins, interrupts and ends only jobs that it has, and ends each job once"
    ),
    "WMP-1.2": "a node sends to a peer over a connection over which messages of the peer came",
    "WMP-2.5": "a manager or worker sends its own messages, with its identity and epoch",
    "WMP-3.1": "a READY has the roles and the resources of its worker",
    "WMP-3.2": "every READY with new content has a greater number than the one before",
    "WMP-3.4": "a WAKE asks for no more jobs than the remembered credit",
    "WMP-4.1": "a lock number is greater than every earlier one of its epoch",
    "WMP-4.6": "a TAKE has a role of the GIVE and no more jobs than the GIVE still wants",
    "WMP-4.13": "a TAKE or NO names a lock for which a GIVE was sent",
    "WMP-6.1": "every step of a job is in the manager's table of jobs",
    "WMP-6.2": "the end of a job is that of a DONE of its lease",
    "WMP-6.6": "each job of a TAKE is answered by exactly one entry of DONE",
    "WMP-6.8": "a CANCEL names an attempt that was granted",
    "WMP-6.9": "the progress of a job is reported to its submitter after a STATUS",
    "WMP-6.10": "a job that has begun is answered with the outcome that it reached",
    "WMP-7.1": "the numbers of a stream start at 1 in a session and grow by 1",
    "WMP-7.2": "an ack is the highest number that was received in order",
    "WMP-7.4": "an ack names a number that was sent",
    "WMP-8.1": "a device passes READY and PING without a receiver to every upstream",
    "WMP-8.2": "a device passes a message to its receiver, and no message that it did not receive",
    "WMP-8.3": "a device adds its own hop to a message, and changes the route in no other way",
    "WMP-8.4": "a device passes on the fields of a message as they came",
    "WMP-8.9": "a device passes messages from above to below, and from below to above",
    "WMP-9.2": "a PONG names a lock and a READY that its receiver sent, and the manager's times",
    "WMP-9.3": "a manager gives a worker up after `max_silence` without a message",
    "WMP-9.16": ("after the end of its connection a worker keeps its leases for `reconnect_grace`"),
    "WMP-14.2": "an attempt of a stored job is granted to one worker",
    "WMP-14.3": "a manager stores no more results than it acknowledges",
    "WMP-15.4": "an answer has the number of a challenge that came",
    "WMP-17.1": "a manager on standby sends no WAKE and no TAKE",
}
"""Text of the invariant or rule, by the name of the finding."""
