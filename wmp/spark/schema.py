"""The tables of the pipeline: their columns, types and meanings.

Times are of type ``timestamp`` on the common clock of all nodes (``nodes.clock``). Durations are
``bigint`` in µs; ``nodes.clock_error`` bounds the error of a duration between two nodes. A process
is (identity, epoch); a job is (owner, owner_epoch, job). An unknown value is null.

The columns of ``events`` are those of :mod:`wmp.journal.schema`, which this module reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from wmp.journal import schema as journal
from wmp.journal.schema import Type

__all__ = ["CORRUPT", "NUMBERS", "PHASES", "TABLES", "Table", "TableColumn", "ddl", "journal_ddl"]

CORRUPT: Final = "_corrupt"
"""Name of the column for the text of a line that does not match the schema."""


@frozen
class TableColumn:
    """A column of a table."""

    name: str
    type: str
    """Name of the type in Spark: ``string``, ``bigint``, ``timestamp``, …"""
    doc: str


@frozen
class Table:
    """A table: the meaning of a row, and the columns."""

    name: str
    row: str
    """Meaning of one row."""
    columns: tuple[TableColumn, ...]


_TYPES: Final[Mapping[Type, str]] = {
    Type.INTEGER: "bigint",
    Type.TEXT: "string",
    Type.TRUTH: "boolean",
    Type.INTEGERS: "array<bigint>",
    Type.TEXTS: "array<string>",
    Type.AMOUNTS: "map<string,bigint>",
    Type.NUMBERS: "map<string,double>",
}


def _table(name: str, row: str, *columns: TableColumn) -> Table:
    return Table(name, row, columns)


def _c(name: str, type: str, doc: str) -> TableColumn:
    return TableColumn(name, type, doc)


_JOB: Final = (
    _c("owner", "string", "identity of the manager to which the job was submitted"),
    _c("owner_epoch", "bigint", "epoch of the node that the previous column names"),
    _c("job", "bigint", "number of the job at this manager"),
)
_WORKER: Final = (
    _c("worker", "string", "identity of the worker"),
    _c("worker_epoch", "bigint", "epoch of the node that the previous column names"),
)
_MANAGER: Final = (
    _c("manager", "string", "identity of the manager"),
    _c("manager_epoch", "bigint", "epoch of the node that the previous column names"),
)
_PROCESS: Final = (
    _c("node", "string", "identity of the node"),
    _c("epoch", "bigint", "epoch of the node that the previous column names"),
)
_SPREAD: Final = (
    _c("count", "bigint", "samples"),
    _c("mean", "double", "µs: the mean"),
    _c("p50", "bigint", "µs: 50 % of the samples are this long or shorter"),
    _c("p90", "bigint", "µs: 90 % of the samples are this long or shorter"),
    _c("p95", "bigint", "µs: 95 % of the samples are this long or shorter"),
    _c("p99", "bigint", "µs: 99 % of the samples are this long or shorter"),
    _c("p999", "bigint", "µs: 99.9 % of the samples are this long or shorter"),
    _c("most", "bigint", "µs: the longest"),
)

PHASES: Final[Mapping[str, str]] = {
    "ready to wake": "from READY sent to WAKE received, at the worker",
    "wake to give": "from WAKE received to GIVE sent, at the worker",
    "give to take": "from GIVE sent to TAKE received, at the worker",
    "give to no": "from GIVE sent to NO received, at the worker",
    "take to done": "from TAKE received to DONE sent, at the worker; of each job",
    "queue wait": "from submission to TAKE sent, at the manager; of each job's first lease",
    "take trip": "from TAKE sent to TAKE received, on two clocks; of each lease",
    "lane wait": "from TAKE received to the job handed to a lane, at the worker",
    "handler": "the run of the handler, at the worker",
    "done wait": "from the end of the handler to DONE sent, at the worker",
    "done trip": "from DONE sent to DONE received, on two clocks; of each lease",
    "lease": "from TAKE sent to DONE received, at the manager; of each lease",
    "total": "from submission to end, at the manager; of each job",
}
"""Measured phases with their begin and end. Most phases are measured on one clock."""

NUMBERS: Final[Mapping[str, str]] = {
    "nodes": "processes that wrote a journal",
    "managers": "processes that are managers",
    "workers": "processes that are workers",
    "devices": "processes that are devices",
    "lines": "lines read",
    "lines missing": "numbered lines that are missing or could not be read",
    "lines repeated": "lines that were left out, because an identical line was read",
    "without an end": "processes that were killed or still run",
    "seconds": "seconds from the first line to the last",
    "clock error": "µs by which the common clock may be wrong",
    "nodes missing": "processes without a journal that other journals name",
    "bad lines": "lines that could not be read",
    "jobs": "jobs submitted",
    **{f"jobs {end}": f"jobs that ended {end}"
       for end in ("ok", "error", "cancelled", "timeout", "lost")},
    "jobs open": "jobs without a known end",
    "jobs tried again": "jobs with more than one lease",
    "jobs per second": "jobs that ended in a second, from the first submission to the last end",
    "leases": "leases granted",
    "leases over": "leases that ended without a result",
    "leases handed back": "leases that workers handed back before the job began",
    "leases refused": "leases that workers refused",
    "wakes": "WAKEs received by workers",
    "wakes wasted": "WAKEs that brought no job",
    "locks": "GIVEs sent",
    "locks taken": "GIVEs answered by TAKE",
    "locks refused": "GIVEs answered by NO",
    "locks timed out": "GIVEs never answered",
    "jobs late": "jobs that came after their lock was closed",
    "violations": "certain violations",
    "uncertain violations": "possible violations, which may be due to gaps in the journals",
    "drops": "messages ignored, whole or in part",
}  # fmt: skip
"""The numbers of the table ``summary`` with their meanings."""

TABLES: Final[Mapping[str, Table]] = {
    table.name: table
    for table in (
        _table(
            "events",
            "one readable line of a journal",
            *(_c(c.name, _TYPES[c.type], c.doc) for c in journal.COLUMNS),
            _c("file", "string", "name of the segment"),
        ),
        _table(
            "bad_lines",
            "one reason for unreadable lines in one segment",
            _c("file", "string", "name of the segment"),
            _c("reason", "string", "`torn` (the end of a segment is cut off), `garbage`, or the "
               "name of the missing column"),
            _c("lines", "bigint", "number of these lines"),
            _c("example", "string", "the beginning of one of these lines"),
        ),
        _table(
            "nodes",
            "one process that wrote a journal",
            *_PROCESS,
            _c("kind", "string", "manager, worker or device"),
            _c("label", "string", "name of the node for readers"),
            _c("host", "string", "name of the machine on which the process runs"),
            _c("pid", "bigint", "number of the process on that machine"),
            _c("release", "string", "version of the program that wrote the journal"),
            _c("roles", "array<string>", "roles of the worker; null for other nodes"),
            _c("resources", "map<string,bigint>", "resources of the worker; null for other nodes"),
            _c("settings", "map<string,double>", "settings of the node that are numbers; times in "
               "s"),
            _c("segments", "bigint", "segments read"),
            _c("lines", "bigint", "lines read"),
            _c("missing", "bigint", "numbered lines that are missing or could not be read"),
            _c("first", "timestamp", "time of its first line"),
            _c("last", "timestamp", "time of its last line"),
            _c("clock", "bigint", "µs: add this to `at` to get µs since 1970 on the common clock"),
            _c("clock_error", "bigint", "µs by which `clock` may be wrong; null: no other clock "
               "was compared, and the node's own wall clock is used"),
            _c("end", "string", "how the process ended: `stop` (all work finished), `close` (at "
               "once, with work left), `halt` (by an error), or null (killed, or still running)"),
            _c("reason", "string", "the error that halted the node"),
        ),
        _table(
            "missing_nodes",
            "one process without a journal that other journals name",
            *_PROCESS,
            _c("messages", "bigint", "number of lines of other journals whose source or target is "
               "this process"),
        ),
        _table(
            "links",
            "one message on one connection, recorded at both ends of the connection",
            _c("command", "string", "the command"),
            _c("source", "string", "identity of the end node that made the message"),
            _c("source_epoch", "bigint", "epoch of the node that the previous column names"),
            _c("target", "string", "identity of the end node that receives the message"),
            _c("target_epoch", "bigint", "epoch of the node that the previous column names"),
            _c("session", "bigint", "session of a numbered message"),
            _c("number", "bigint", "place in the stream; lock of a GIVE, number of a READY"),
            _c("hops", "bigint", "number of devices that the message had passed before"),
            _c("via", "array<string>", "identities of all devices on the route of the message"),
            _c("sender", "string", "identity of the node at this end"),
            _c("sender_epoch", "bigint", "epoch of the node that the previous column names"),
            _c("sent_n", "bigint", "its line"),
            _c("sent_at", "bigint", "time on the monotonic clock of this node, µs"),
            _c("sent", "timestamp", "when"),
            _c("receiver", "string", "identity of the node at the other end"),
            _c("receiver_epoch", "bigint", "epoch of the node that the previous column names"),
            _c("received_n", "bigint", "its line"),
            _c("received_at", "bigint", "time on the monotonic clock of this node, µs"),
            _c("received", "timestamp", "when"),
            _c("trip", "bigint", "µs from sending to receiving, with corrected clocks"),
        ),
        _table(
            "offsets",
            "two processes of which each received messages of the other",
            *_PROCESS,
            _c("peer", "string", "identity of the other process, whose (identity, epoch) is the "
               "greater one"),
            _c("peer_epoch", "bigint", "epoch of the node that the previous column names"),
            _c("forward", "bigint", "µs: least difference of the clocks for messages from the "
               "node to the peer"),
            _c("backward", "bigint", "µs: least difference of the clocks for messages from the "
               "peer to the node"),
            _c("messages", "bigint", "messages paired"),
            _c("offset", "bigint", "µs by which the peer's monotonic clock is ahead"),
            _c("error", "bigint", "µs by which `offset` may be wrong: half of the shortest round "
               "trip"),
        ),
        _table(
            "jobs",
            "one job",
            *_JOB,
            _c("role", "string", "its role"),
            _c("needs", "map<string,bigint>", "resources that the job takes"),
            _c("priority", "bigint", "jobs of a higher priority are granted first"),
            _c("retries", "bigint", "number of lost leases after which the job is still queued "
               "again"),
            _c("submitted", "timestamp", "when the manager accepted the job"),
            _c("asked", "timestamp", "when the submitter cancelled the job"),
            _c("ended", "timestamp", "when the submitter received the end"),
            _c("end", "string", "ok, error, cancelled, timeout, lost; null: unknown"),
            _c("state", "string", "state in the table of jobs: queued, leased, cancelling, "
               "ended"),
            _c("attempts", "bigint", "leases granted"),
            _c("over", "bigint", "leases that ended without a result"),
            _c("executions", "bigint", "number of times that the job was handed to a lane"),
            *_WORKER,
            _c("queue_wait", "bigint", "µs from submission to the first TAKE"),
            _c("total", "bigint", "µs from submission to the end"),
        ),
        _table(
            "attempts",
            "one lease of a job",
            *_JOB,
            _c("attempt", "bigint", "number of the lease, from 1"),
            *_WORKER,
            _c("role", "string", "role of the job"),
            _c("lock", "bigint", "number of the lock of the GIVE that the TAKE answers"),
            _c("via", "array<string>", "identities of all devices on the route of the TAKE"),
            _c("granted", "timestamp", "when TAKE was sent for the first time"),
            _c("received", "timestamp", "TAKE received"),
            _c("started", "timestamp", "when the job was handed to a lane"),
            _c("finished", "timestamp", "when the handler ended"),
            _c("done", "timestamp", "when DONE was sent for the first time"),
            _c("accepted", "timestamp", "when the manager received the first DONE that it did not "
               "ignore"),
            _c("lost", "timestamp", "when the manager counted the lease as lost"),
            _c("lane", "bigint", "lane at the worker"),
            _c("outcome", "string", "outcome in DONE: ok, error, refused, cancelled, lost"),
            _c("cause", "string", "why the job was queued again or ended: the manager's note, "
               "or refused, handed back, lost at the worker, timeout; null: none of these"),
            _c("take_trip", "bigint", "µs"),
            _c("lane_wait", "bigint", "µs"),
            _c("handler", "bigint", "µs"),
            _c("done_wait", "bigint", "µs"),
            _c("done_trip", "bigint", "µs"),
            _c("lease", "bigint", "µs"),
        ),
        _table(
            "executions",
            "one job in one lane of a worker",
            *_WORKER,
            _c("lane", "bigint", "number of the lane"),
            *_JOB,
            _c("attempt", "bigint", "number of the lease when the job was handed to the lane"),
            _c("role", "string", "its role"),
            _c("needs", "map<string,bigint>", "resources that the lane takes"),
            _c("handed", "timestamp", "when the job was handed to the lane"),
            _c("began", "timestamp", "when the lane began the job: at once, or at the end of the "
               "job before it"),
            _c("ended", "timestamp", "when the job ended; null: unknown"),
            _c("outcome", "string", "ok, error, cancelled, lost, recalled; null: unknown"),
            _c("handler", "bigint", "µs from began to ended"),
        ),
        _table(
            "locks",
            "one lock of a worker",
            *_WORKER,
            _c("lock", "bigint", "its number"),
            *_MANAGER,
            _c("roles", "array<string>", "roles that GIVE named"),
            _c("want", "bigint", "largest number of jobs that GIVE wanted"),
            _c("hold", "bigint", "ms that the manager might keep the GIVE"),
            _c("given", "timestamp", "when GIVE was sent"),
            _c("answered", "timestamp", "when the first TAKE or NO was received"),
            _c("closed", "timestamp", "when the lock released its last resources"),
            _c("state", "string", "last state of the lock in the table of locks"),
            _c("answer", "string", "TAKE, NO, timeout, forget; null: none yet"),
            _c("withdrawn", "boolean", "whether GIVE with want 0 was sent"),
            _c("jobs", "bigint", "jobs that came"),
            _c("late", "bigint", "number of jobs that came after the lock was closed"),
        ),
        _table(
            "wakes",
            "one WAKE that a worker received",
            *_WORKER,
            *_MANAGER,
            _c("role", "string", "role of the jobs that wait"),
            _c("count", "bigint", "number of jobs that the WAKE announced"),
            _c("received", "timestamp", "when"),
            _c("answer", "string", "next message to this manager: GIVE or READY; null: none"),
            _c("lock", "bigint", "lock of this GIVE"),
            _c("jobs", "bigint", "number of jobs that came for this GIVE"),
            _c("wasted", "boolean", "whether the WAKE brought no job"),
        ),
        _table(
            "conversations",
            "one handshake, from READY to DONE",
            *_WORKER,
            *_MANAGER,
            _c("lock", "bigint", "number of the lock"),
            _c("ready", "timestamp", "when the last READY before the WAKE was sent"),
            _c("woken", "timestamp", "when the WAKE that the GIVE answers was received; null: a "
               "held GIVE"),
            _c("given", "timestamp", "when GIVE was sent"),
            _c("answered", "timestamp", "when TAKE or NO was received"),
            _c("done", "timestamp", "when the last DONE of the jobs was sent"),
            _c("answer", "string", "TAKE, NO, timeout, forget; null: none yet"),
            _c("jobs", "bigint", "jobs that came"),
            _c("device", "string", "identity of the device next to the worker; null: no device"),
        ),
        _table(
            "violations",
            "one violation of a rule or an invariant; at most 100 of each name and certainty",
            _c("violation", "string", "its key"),
            _c("name", "string", "name of the invariant, or number of the rule"),
            _c("text", "string", "text of the rule or invariant"),
            _c("detail", "string", "what was observed"),
            _c("certain", "boolean", "false: gaps in the journals may explain the violation"),
            *_PROCESS,
            *_JOB,
            _c("attempt", "bigint", "of the job"),
            *_WORKER,
            _c("lock", "bigint", "number of the lock"),
            _c("time", "timestamp", "when the violation was observed"),
            _c("events", "array<struct<node:string,epoch:bigint,n:bigint>>", "its lines"),
        ),
        _table(
            "violation_events",
            "one line of the story of a violation",
            _c("violation", "string", "key of the violation, as in `violations`"),
            _c("place", "bigint", "place of the line in the story, from 1 in the order of time"),
            *_PROCESS,
            _c("n", "bigint", "number of the line"),
            _c("time", "timestamp", "when"),
            _c("what", "string", "kind of line"),
            _c("command", "string", "the command"),
            _c("source", "string", "identity of the node that made the message"),
            _c("target", "string", "identity of the node that receives the message"),
            _c("ids", "array<bigint>", "jobs"),
            _c("attempts", "array<bigint>", "their leases"),
            _c("text", "string", "all other fields of the line, as text"),
        ),
        _table(
            "findings",
            "one rule or invariant that was broken",
            _c("name", "string", "name of the invariant, or number of the rule"),
            _c("text", "string", "text of the rule or invariant"),
            _c("certain", "boolean", "false: gaps in the journals may explain these violations"),
            _c("violations", "bigint", "number of the violations"),
        ),
        _table(
            "latency",
            "one phase of one group of samples",
            _c("phase", "string", "which"),
            _c("by", "string", "all, role, manager, worker, device or hour"),
            _c("key", "string", "name of the role, …; empty for all"),
            *_SPREAD,
        ),
        _table(
            "histogram",
            "one bar of a histogram: samples of a phase between two powers of 2^(1/4)",
            _c("phase", "string", "which"),
            _c("role", "string", "role of the jobs; null for handshakes"),
            _c("low", "double", "µs: from here"),
            _c("high", "double", "µs: the upper end, exclusive"),
            _c("count", "bigint", "samples"),
        ),
        _table(
            "utilisation",
            "one resource of one worker in one stretch of time",
            *_WORKER,
            _c("resource", "string", "slots, …"),
            _c("time", "timestamp", "begin of the stretch"),
            _c("length", "bigint", "µs of this stretch during which the worker ran"),
            _c("have", "bigint", "amount that the worker has; the mean, rounded up, if it changed"),
            _c("busy", "bigint", "sum over the lanes: amount × µs of use"),
            _c("share", "double", "busy / (length × amount)"),
        ),
        _table(
            "fairness",
            "one way in which jobs are shared among workers or managers",
            _c("by", "string", "`workers of a manager` or `managers of a worker`"),
            *_PROCESS,
            _c("measure", "string", "measure of the share: `jobs`, or `handler` (µs in handlers)"),
            _c("parties", "bigint", "number of parties that share"),
            _c("least", "bigint", "smallest share"),
            _c("most", "bigint", "largest share"),
            _c("max_min", "double", "most divided by least; null when least is 0"),
            _c("jain", "double", "Jain's index of fairness: 1 for equal shares, 1/parties when "
               "one party has all"),
        ),
        _table(
            "activity",
            "one role in one stretch of time",
            _c("role", "string", "which"),
            _c("time", "timestamp", "begin of the stretch"),
            _c("length", "bigint", "µs"),
            _c("submitted", "bigint", "jobs"),
            _c("ended", "bigint", "jobs"),
            _c("failed", "bigint", "number of jobs that ended otherwise than ok"),
            _c("mean_total", "double", "µs: mean time from submission to end"),
        ),
        _table(
            "requeues",
            "one cause of leases that ended without a result",
            _c("cause", "string", "as attempts.cause"),
            _c("role", "string", "role of the jobs"),
            *_WORKER,
            _c("leases", "bigint", "number of these leases"),
        ),
        _table(
            "device_hops",
            "one direction through one device",
            _c("device", "string", "identity of the device"),
            _c("direction", "string", "up (to managers) or down"),
            *_SPREAD,
            _c("direct", "bigint", "µs: the median of the connections without a device; null: "
               "there are none"),
        ),
        _table(
            "drops",
            "one reason for which one process ignored messages",
            *_PROCESS,
            _c("reason", "string", "why"),
            _c("lines", "bigint", "how often"),
        ),
        _table(
            "summary",
            "one number about all journals",
            _c("name", "string", "what"),
            _c("value", "double", "how much"),
            _c("doc", "string", "meaning of the number, with its unit"),
        ),
    )
}  # fmt: skip
"""All tables by name, in the order of their making."""


def ddl(table: str) -> str:
    """Return the schema of a table in Spark's syntax."""
    return ", ".join(f"`{column.name}` {column.type}" for column in TABLES[table].columns)


def journal_ddl() -> str:
    """Return the schema of the lines of a journal; any column may be absent."""
    columns = [f"`{column.name}` {_TYPES[column.type]}" for column in journal.COLUMNS]
    return ", ".join([*columns, f"{CORRUPT} string"])
