"""The tables of the pipeline: their columns, types and meanings.

Times are of type ``timestamp`` on the common clock of all nodes (``nodes.clock``). Durations are
``bigint`` in µs; ``nodes.clock_error`` bounds the error of a duration between two nodes. A process
is (identity, epoch); a job is (owner, owner_epoch, job). An unknown value is null.

The columns of ``events`` are those of :mod:`wmp.journal.schema`, which this module reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from attrs import frozen

from wmp.journal import schema as journal
from wmp.journal.schema import Type

__all__ = ["PHASES", "TABLES", "Table", "TableColumn", "ddl"]


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

_TABLES: Final = """
events: one readable line of a journal
    (line)
    file            string         name of the segment

bad_lines: one reason for unreadable lines in one segment
    file            string         name of the segment
    reason          string         `torn` (cut off at the end), `garbage`, or the missing column
    lines           bigint         number of these lines
    example         string         the beginning of one of these lines

nodes: one process that wrote a journal
    node            process        the node
    kind            string         manager, worker or device
    label           string         name of the node for readers
    host            string         name of the machine on which the process runs
    pid             bigint         number of the process on that machine
    release         string         version of the program that wrote the journal
    roles           array<string>  roles of the worker; null for other nodes
    resources       map<string,bigint>  resources of the worker; null for other nodes
    settings        map<string,double>  settings of the node that are numbers; times in s
    segments,lines  bigint         number of its segments and lines that were read
    missing         bigint         numbered lines that are missing or could not be read
    first,last      timestamp      times of its first and of its last line
    clock           bigint         µs: `at` + clock is the time since 1970 on the common clock
    clock_error     bigint         µs by which `clock` may be wrong; null: no clock was compared
    end             string         `stop` (all work finished), `close` (at once, with work left),
                                   `halt` (by an error), or null (killed, or still running)
    reason          string         the error that halted the node

missing_nodes: one process without a journal that other journals name
    node            process        the node
    messages        bigint         lines of other journals with this source or target

links: one message on one connection, recorded at both ends of the connection
    command         string         the command
    source          process        the end node that made the message
    target          process        the end node that receives the message
    session         bigint         session of a numbered message
    number          bigint         place in the stream; lock of a GIVE, number of a READY
    hops            bigint         number of devices that the message had passed before
    via             array<string>  identities of all devices on the route of the message
    sender          process        the node at this end
    sent_n          bigint         its line
    sent_at         bigint         time on the monotonic clock of this node, µs
    sent            timestamp      when
    receiver        process        the node at the other end
    received_n      bigint         its line
    received_at     bigint         time on the monotonic clock of this node, µs
    received        timestamp      when
    trip            bigint         µs from sending to receiving, with corrected clocks

offsets: two processes of which each received messages of the other
    node            process        the one with the lesser (identity, epoch)
    peer            process        the other process
    forward,backward  bigint       µs: least difference of the clocks from node to peer, and back
    messages        bigint         messages paired
    offset          bigint         µs by which the peer's monotonic clock is ahead
    error           bigint         µs by which `offset` may be wrong: half the shortest round trip

jobs: one job
    (job)
    role            string         its role
    needs           map<string,bigint>  resources that the job takes
    priority        bigint         jobs of a higher priority are granted first
    retries         bigint         number of lost leases after which the job is queued again
    submitted       timestamp      when the manager accepted the job
    asked           timestamp      when the submitter cancelled the job
    ended           timestamp      when the submitter received the end
    end             string         ok, error, cancelled, timeout, lost; null: unknown
    state           string         in the table of jobs: queued, leased, cancelling, ended
    attempts        bigint         leases granted
    over            bigint         leases that ended without a result
    executions      bigint         number of times that the job was handed to a lane
    worker          process        the worker of the last lease
    queue_wait,total  bigint       µs of the phase of this name

attempts: one lease of a job
    (job)
    attempt         bigint         number of the lease, from 1
    worker          process        the worker
    role            string         role of the job
    lock            bigint         number of the lock of the GIVE that the TAKE answers
    via             array<string>  identities of all devices on the route of the TAKE
    granted         timestamp      when TAKE was sent for the first time
    received        timestamp      when TAKE was received
    started         timestamp      when the job was handed to a lane
    finished        timestamp      when the handler ended
    done            timestamp      when DONE was sent for the first time
    accepted        timestamp      when the manager received a DONE that it did not ignore
    lost            timestamp      when the manager counted the lease as lost
    lane            bigint         lane at the worker
    outcome         string         outcome in DONE: ok, error, refused, cancelled, lost
    cause           string         why the job was queued again or ended: the manager's note, or
                                   refused, handed back, lost at the worker, timeout; or null
    take_trip,lane_wait,handler,done_wait,done_trip,lease  bigint  µs of the phase of this name

executions: one job in one lane of a worker
    worker          process        the worker
    lane            bigint         number of the lane
    (job)
    attempt         bigint         number of the lease when the job was handed to the lane
    role            string         its role
    needs           map<string,bigint>  resources that the lane takes
    handed          timestamp      when the job was handed to the lane
    began           timestamp      when the lane began the job: at once, or after the job before
    ended           timestamp      when the job ended; null: unknown
    outcome         string         ok, error, cancelled, lost, recalled; null: unknown
    handler         bigint         µs from began to ended

locks: one lock of a worker
    worker          process        the worker
    lock            bigint         its number
    manager         process        the manager
    roles           array<string>  roles that GIVE named
    want            bigint         largest number of jobs that GIVE wanted
    hold            bigint         ms that the manager might keep the GIVE
    given           timestamp      when GIVE was sent
    answered        timestamp      when the first TAKE or NO was received
    closed          timestamp      when the lock released its last resources
    state           string         last state of the lock in the table of locks
    answer          string         TAKE, NO, timeout, forget; null: none yet
    withdrawn       boolean        whether GIVE with want 0 was sent
    jobs            bigint         jobs that came
    late            bigint         number of jobs that came after the lock was closed

wakes: one WAKE that a worker received
    worker          process        the worker
    manager         process        the manager
    role            string         role of the jobs that wait
    count           bigint         number of jobs that the WAKE announced
    received        timestamp      when
    answer          string         next message to this manager: GIVE or READY; null: none
    lock            bigint         lock of this GIVE
    jobs            bigint         number of jobs that came for this GIVE
    wasted          boolean        whether the WAKE brought no job

conversations: one handshake, from READY to DONE
    worker          process        the worker
    manager         process        the manager
    lock            bigint         number of the lock
    ready           timestamp      when the last READY before the WAKE was sent
    woken           timestamp      when the WAKE of the GIVE was received; null: a held GIVE
    given           timestamp      when GIVE was sent
    answered        timestamp      when TAKE or NO was received
    done            timestamp      when the last DONE of the jobs was sent
    answer          string         TAKE, NO, timeout, forget; null: none yet
    jobs            bigint         jobs that came
    device          string         identity of the device next to the worker; null: no device

violations: one violation of a rule or an invariant; at most 100 of each name and certainty
    violation       string         its key
    name            string         name of the invariant, or number of the rule
    text            string         text of the rule or invariant
    detail          string         what was observed
    certain         boolean        false: gaps in the journals may explain the violation
    node            process        the node whose line shows the violation
    (job)
    attempt         bigint         of the job
    worker          process        the worker
    lock            bigint         number of the lock
    time            timestamp      when the violation was observed
    events          array<struct<node:string,epoch:bigint,n:bigint>>  its lines

violation_events: one line of the story of a violation
    violation       string         key of the violation, as in `violations`
    place           bigint         place of the line in the story, from 1 in the order of time
    node            process        the node
    n               bigint         number of the line
    time            timestamp      when
    what            string         kind of line
    command         string         the command
    source,target   string         identities of the nodes that make and get the message
    ids,attempts    array<bigint>  jobs, and their leases
    text            string         all other fields of the line, as text

findings: one rule or invariant that was broken
    name            string         name of the invariant, or number of the rule
    text            string         text of the rule or invariant
    certain         boolean        false: gaps in the journals may explain these violations
    violations      bigint         number of the violations

latency: one phase of one group of samples
    phase           string         which
    by              string         all, role, manager, worker, device or hour
    key             string         name of the role, …; empty for all
    (spread)

histogram: one bar of a histogram: samples of a phase between two powers of 2^(1/4)
    phase           string         which
    role            string         role of the jobs; null for handshakes
    low,high        double         µs: the ends of the bar; the upper end is exclusive
    count           bigint         samples

utilisation: one resource of one worker in one stretch of time
    worker          process        the worker
    resource        string         slots, …
    time            timestamp      begin of the stretch
    length          bigint         µs of this stretch during which the worker ran
    have            bigint         amount of the worker; the mean, rounded up, if it changed
    busy            bigint         sum over the lanes: amount × µs of use
    share           double         busy / (length × amount)

fairness: one way in which jobs are shared among workers or managers
    by              string         `workers of a manager` or `managers of a worker`
    node            process        this manager or worker
    measure         string         measure of the share: `jobs`, or `handler` (µs in handlers)
    parties         bigint         number of parties that share
    least,most      bigint         smallest and largest share
    max_min         double         most divided by least; null when least is 0
    jain            double         Jain's index: 1 for equal shares, 1/parties if one has all

activity: one role in one stretch of time
    role            string         which
    time            timestamp      begin of the stretch
    length          bigint         µs
    submitted,ended,failed  bigint  jobs; of those that ended, some ended otherwise than ok
    mean_total      double         µs: mean time from submission to end

requeues: one cause of leases that ended without a result
    cause           string         as attempts.cause
    role            string         role of the jobs
    worker          process        the worker
    leases          bigint         number of these leases

device_hops: one direction through one device
    device          string         identity of the device
    direction       string         up (to managers) or down
    (spread)
    direct          bigint         µs: median of the connections without a device; null: none

drops: one reason for which one process ignored messages
    node            process        the node
    reason          string         why
    lines           bigint         how often

summary: one number about all journals
    name            string         what
    value           double         how much
    doc             string         meaning of the number, with its unit
"""
"""Each table with its columns: names, type, meaning. A meaning may continue on the next line.

The type ``process`` stands for two columns: an identity, and the epoch of the same node. A word in
parentheses stands for the columns of ``_GROUPS``.
"""

_TYPES: Final[Mapping[Type, str]] = {
    Type.INTEGER: "bigint",
    Type.TEXT: "string",
    Type.TRUTH: "boolean",
    Type.INTEGERS: "array<bigint>",
    Type.TEXTS: "array<string>",
    Type.AMOUNTS: "map<string,bigint>",
    Type.NUMBERS: "map<string,double>",
}
_GROUPS: Final[Mapping[str, str]] = {
    "(line)": "\n".join(f"{one.name} {_TYPES[one.type]} {one.doc}" for one in journal.COLUMNS),
    "(job)": """
        owner       process    the manager to which the job was submitted
        job         bigint     number of the job at this manager""",
    "(spread)": """
        count       bigint     samples
        mean        double     µs: the mean
        p50,p90,p95,p99,p999  bigint  µs: 50 % (… 99.9 %) of the samples are not longer
        most        bigint     µs: the longest""",
}


def _columns(text: str) -> Iterator[TableColumn]:
    """Return the columns that these lines describe."""
    for line in text.replace("\n" + " " * 35, " ").split("\n"):
        if (group := _GROUPS.get(line.strip())) is not None:
            yield from _columns(group)
        elif line.strip():
            names, kind, doc = line.split(None, 2)
            for name in names.split(","):
                if kind == "process":
                    yield TableColumn(name, "string", f"identity of {doc}")
                    epoch = "epoch" if name == "node" else f"{name}_epoch"
                    yield TableColumn(epoch, "bigint", "epoch of the same node")
                else:
                    yield TableColumn(name, kind, doc)


def _tables() -> Iterator[Table]:
    for text in _TABLES.strip().split("\n\n"):
        head, _, lines = text.partition("\n")
        name, _, row = head.partition(": ")
        yield Table(name, row, tuple(_columns(lines)))


TABLES: Final[Mapping[str, Table]] = {table.name: table for table in _tables()}
"""All tables by name, in the order of their making."""


def ddl(table: str) -> str:
    """Return the schema of a table in Spark's syntax."""
    return ", ".join(f"`{column.name}` {column.type}" for column in TABLES[table].columns)
