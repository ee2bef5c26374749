"""Corruptions of the journals of a sound fleet, each with the name of the finding that it causes.

A corruption changes lines of one end or of both, and leaves no gap in the numbers. So each finding
must be certain.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import define

from tests.property.test_network_property import KINDS
from tests.spark.folds.seen import Seen
from tests.spark.folds.story_fleet import Fleet
from wmp.journal.schema import EVENT_LINES
from wmp.message import Kind, Outcome
from wmp.retry import Retry
from wmp.testing.simulator.journals import Journals

PLAIN, OK, ERROR = KINDS[0], Outcome.OK, Outcome.ERROR
FLOW = ("flow", 40)
STORY = [
    ("submit", "m1", 4, PLAIN, None, 1), FLOW, ("finish", 0, OK), FLOW, ("finish", 0, ERROR), FLOW,
    ("submit", "m2", 4, PLAIN, None, 1), FLOW, ("cancel", 3), FLOW, ("cancel", 7), FLOW,
    ("submit", "m1", 6, PLAIN, None, 0), FLOW, ("cancel", 12), ("settle",), ("wait", 2.5),
    ("settle",),
    ("submit_with", "m1", PLAIN, {
        "timeout": 30.0, "expires": 20.0, "run_limit": 9.0, "delay": 0.5, "retry": Retry(2)}),
    ("wait", 0.8), FLOW, ("fail", 0, None), ("wait", 2.0), FLOW, ("settle",),
    ("submit_with", "m2", Kind(codec="json"), {}), FLOW, ("fail", 0, 200), ("wait", 0.5), FLOW,
    ("settle",),
    ("submit_with", "m2", Kind("nobody"), {"timeout": 0.5}), ("wait", 1.0), ("settle",),
]  # fmt: skip

Row = dict[str, Any]
BOTH = "messages arrive as sent"


def sound_journal(folder: Path) -> list[Row]:
    """Return the lines of the fleet."""
    fleet = Fleet(number=0, journals=Journals(folder), seen=Seen())
    for step in STORY:
        fleet.step(*step)
    fleet.journals.close(lambda name: True)
    return [
        json.loads(line)
        for path in sorted(folder.iterdir())
        for line in path.read_text(encoding="ascii").splitlines()
    ]


@define
class Journal:
    """Lines that are changed in place."""

    rows: list[Row]

    def find(self, what: str, command: str | None = None, *, at: str = "", index: int = 0,
             **columns: Any) -> Row:  # fmt: skip
        """Return a line of this kind; ``at`` is the beginning of its node's name."""
        matches = [
            row
            for row in self.rows
            if row["what"] == what
            and row.get("command") == command
            and row["node"].startswith(at)
            and all(row.get(name) == value for name, value in columns.items())
        ]
        return matches[index]

    def blank(self, row: Row) -> None:
        """Turn a line into a line that shows nothing."""
        kept = ("v", "node", "epoch", "n", "step", "at", "wall")
        blank = "ticked" if row["what"] in EVENT_LINES else "write"
        for name in [name for name in row if name not in kept]:
            del row[name]
        row["what"] = blank

    def insert(self, after: Row, row: Row) -> Row:
        """Insert a line after another; the numbers and steps of later lines grow by one."""
        mine = [
            line for line in self.rows if line["node"] == after["node"] and line["n"] > after["n"]
        ]
        for line in mine:
            line["n"] += 1
            line["step"] += 1
        new = {**row, "n": after["n"] + 1, "step": after["step"] + 1, "at": after["at"],
               "wall": after["wall"], "node": after["node"], "epoch": after["epoch"]}  # fmt: skip
        self.rows.insert(self.rows.index(after) + 1, new)
        return new

    def last(self, at: str) -> Row:
        """Return the last line of a node before its stop."""
        return [row for row in self.rows if row["node"].startswith(at)][-2]


Corruption = Callable[[Journal], None]
CORRUPTIONS: dict[str, tuple[str, Corruption]] = {}


def corruption(expected: str) -> Callable[[Corruption], Corruption]:
    """Register a corruption with the finding that it causes."""

    def register(make: Corruption) -> Corruption:
        CORRUPTIONS[make.__name__] = expected, make
        return make

    return register


def changed(
    expected: str, title: str, where: tuple[str, str | None, str], column: str,
    change: Callable[[Any], Any], **columns: Any,
) -> None:  # fmt: skip
    """Register the change of one column of the first such line."""
    what, command, at = where

    def make(journal: Journal) -> None:
        row = journal.find(what, command, at=at, **columns)
        set_columns(row, {column: change(row.get(column))})

    CORRUPTIONS[title] = expected, make


def set_columns(row: Row, values: Row) -> None:
    """Change columns of a line; None removes a column."""
    row |= values
    for name in [name for name, value in values.items() if value is None]:
        row.pop(name)


def only_heads(values: Row) -> Row:
    """Return the columns that a device reads."""
    return {name: value for name, value in values.items() if name not in OF_JOBS}


OF_JOBS = ("ids", "attempts", "outcomes", "left", "expires", "limits", "failed", "waits")


def plus(value: int) -> int:
    return value + 1


def other(values: list[int]) -> list[int]:
    return [value + 1 for value in values]


# -- one end: the manager

OK_END = {"ends": ["ok"]}
RESOLVE = ("resolve", None, "m")
changed(
    "WMP-6.2",
    "an end that its DONE does not report",
    RESOLVE,
    "ends",
    lambda _: ["error"],
    **OK_END,
)
changed("ends have a cause", "an end as cancelled of a job that nobody cancelled", RESOLVE, "ends",
        lambda _: ["cancelled"], **OK_END)  # fmt: skip
changed(
    "ends have a cause",
    "a timeout without a deadline",
    RESOLVE,
    "ends",
    lambda _: ["timeout"],
    **OK_END,
)
changed(
    "worker losses are kept",
    "a job given up with worker losses left",
    RESOLVE,
    "ends",
    lambda _: ["lost"],
    **OK_END,
)
changed(
    "no stale result",
    "a result of another worker",
    RESOLVE,
    "source",
    lambda _: "w2.0",
    source="w1.0",
    **OK_END,
)
changed("no stale result", "a result of another attempt", RESOLVE, "attempts", other, **OK_END)
changed("WMP-3.4", "a WAKE above the credit", ("send", "WAKE", "m"), "count", lambda _: 99)


def standby_after(command: str) -> Corruption:
    """Return a change: the next PONG to the worker of this message tells it of a standby."""

    def make(journal: Journal) -> None:
        sent = journal.find("send", command, at="m1")
        pongs = (row for row in journal.rows if row["node"] == sent["node"] and row["n"] > sent["n"]
                 and row["what"] == "send" and row.get("command") == "PONG"
                 and row["target"] == sent["target"])  # fmt: skip
        next(pongs)["standby"] = True

    return make


CORRUPTIONS["a WAKE on standby"] = "WMP-17.1", standby_after("WAKE")
CORRUPTIONS["a TAKE on standby"] = "WMP-17.1", standby_after("TAKE")


@corruption("every job ends")
def a_job_without_end(journal: Journal) -> None:
    journal.blank(journal.find("resolve", at="m", **OK_END))


@corruption("one end for each job")
def two_ends_of_a_job(journal: Journal) -> None:
    row = journal.find("resolve", at="m", **OK_END)
    journal.insert(row, row)


@corruption("WMP-6.2")
def an_end_without_a_done(journal: Journal) -> None:
    end = journal.find("resolve", at="m", **OK_END)
    done = [row for row in journal.rows if row["node"] == end["node"] and row["n"] < end["n"]
            and row.get("command") == "DONE" and row["what"] == "received"][-1]  # fmt: skip
    journal.blank(done)


@corruption("WMP-6.1")
def an_end_as_cancelled_while_a_worker_has_the_job(journal: Journal) -> None:
    journal.blank(journal.find("received", "DONE", at="m", outcomes=[int(Outcome.CANCELLED)]))


@corruption("WMP-6.1")
def a_lease_before_the_submission(journal: Journal) -> None:
    submitted = journal.find("submitted", at="m1")
    again = dict(submitted)
    journal.blank(submitted)
    journal.insert(journal.find("send", "TAKE", at="m1"), again)


@corruption("leases are lost for a cause")
def a_lease_while_another_worker_has_the_job(journal: Journal) -> None:
    take = journal.find("send", "TAKE", at="m")
    attempts = other(take["attempts"])
    journal.insert(take, {**take, "number": take["number"] + 1, "attempts": attempts})


@corruption("cancelled stays cancelled")
def a_lease_after_the_end(journal: Journal) -> None:
    take, end = journal.find("send", "TAKE", at="m1"), journal.find("resolve", at="m1", **OK_END)
    numbers = [row["number"] for row in journal.rows if row["node"] == take["node"]
               and row["what"] == "send" and row.get("target") == take["target"]
               and "number" in row and row["n"] < end["n"]]  # fmt: skip
    again = {**take, "ids": end["ids"], "attempts": [9], "number": max(numbers) + 1}
    again.pop("last", None)
    journal.insert(end, again)


@corruption("WMP-7.1")
def a_number_left_out_by_a_manager(journal: Journal) -> None:
    journal.find("send", "TAKE", at="m", index=-1)["number"] += 1


@corruption("WMP-7.1")
def numbers_swapped_at_the_manager(journal: Journal) -> None:
    first = journal.find("received", "DONE", at="m1")
    second = journal.find(
        "received", "DONE", at="m1", source=first["source"], number=first["number"] + 1
    )
    first["number"], second["number"] = second["number"], first["number"]


# -- one end: the worker

changed("WMP-6.10", "an error of a lane that DONE calls ok", ("finished", None, "w"), "outcomes",
        lambda _: [1], outcomes=[0])  # fmt: skip
changed("WMP-6.10", "an error in DONE that no lane reported", ("send", "DONE", "w"), "outcomes",
        lambda _: [1], outcomes=[0])  # fmt: skip
changed("WMP-4.6", "a TAKE of another role", ("received", "TAKE", "w"), "role", lambda _: "strange")
changed("WMP-4.13", "a TAKE for an unknown lock", ("received", "TAKE", "w"), "lock", lambda _: 999)
changed("WMP-4.13", "a NO for an unknown lock", ("received", "NO", "w"), "lock", lambda _: 999)
changed("no double booking", "a lane of too many resources", ("run", None, "w"), "needs",
        lambda needs: dict.fromkeys(needs, 99))  # fmt: skip


@corruption("WMP-4.6")
def more_jobs_than_wanted(journal: Journal) -> None:
    take = journal.find("received", "TAKE", at="w")
    ids = [*take["ids"], 90, 91, 92, 93, 94, 95, 96, 97, 98]
    take.pop("last", None)
    take["ids"], take["attempts"] = ids, [1]


@corruption("WMP-4.1")
def a_lock_number_used_twice(journal: Journal) -> None:
    first = journal.find("send", "GIVE", at="w1")
    journal.find("send", "GIVE", at="w1", index=2)["lock"] = first["lock"]


@corruption("WMP-3.2")
def a_ready_with_a_lower_number(journal: Journal) -> None:
    journal.find("send", "READY", at="w1", index=-1)["ready"] = 0


@corruption("WMP-6.10")
def a_done_of_a_job_that_no_lane_ran(journal: Journal) -> None:
    run = journal.find("run", at="w")
    end = journal.find("finished", at="w", lane=run["lane"])
    journal.blank(run)
    journal.blank(end)


@corruption("WMP-6.6")
def a_job_handed_to_two_lanes(journal: Journal) -> None:
    run = journal.find("run", at="w")
    journal.insert(run, {**run, "lane": 999, "needs": {}})


@corruption("executions")
def a_lease_begun_twice(journal: Journal) -> None:
    run = journal.find("run", at="w")
    journal.insert(run, {**run, "lane": 999, "needs": {}})


@corruption("WMP-6.6")
def a_job_answered_twice(journal: Journal) -> None:
    done = journal.find("send", "DONE", at="w", index=-1)
    journal.insert(done, {**done, "number": done["number"] + 1})


@corruption("cancelled stays cancelled")
def a_job_begun_after_its_answer(journal: Journal) -> None:
    run = journal.find("run", at="w")
    take = next(row for row in journal.rows if row["node"] == run["node"]
                and row.get("command") == "TAKE" and row["owner"] == run["owner"])  # fmt: skip
    done = journal.find("send", "DONE", at=run["node"], owner=run["owner"])
    answer = {**done, "ids": run["ids"], "attempts": run["attempts"], "outcomes": [3], "number": 1}
    answer.pop("last", None)
    journal.insert(take, answer)


@corruption("WMP-7.1")
def a_number_left_out_by_a_worker(journal: Journal) -> None:
    journal.find("send", "DONE", at="w", index=-1)["number"] += 1


@corruption("WMP-7.1")
def a_number_accepted_twice(journal: Journal) -> None:
    take = journal.find("received", "TAKE", at="w1")
    journal.insert(take, {**take, "ids": [77], "attempts": [1]})


@corruption("one process for each identity")
def a_worker_superseded_by_nobody(journal: Journal) -> None:
    row = journal.last("w1")
    journal.blank(row)
    row.update(what="halt", reason="Superseded", text="another process has the identity")


# -- both ends

for _title, _command, _receiver, _column, _change in (
    ("another outcome at the receiver of DONE", "DONE", "m", "outcomes", lambda _: [4]),
    ("another job at the receiver of DONE", "DONE", "m", "ids", other),
    ("another attempt at the receiver of DONE", "DONE", "m", "attempts", other),
    ("another session at the receiver of DONE", "DONE", "m", "session", plus),
    ("another number at the receiver of DONE", "DONE", "m", "number", lambda _: 500),
    ("another owner at the receiver of DONE", "DONE", "m", "owner_epoch", plus),
    ("another job at the receiver of TAKE", "TAKE", "w", "ids", other),
    ("another attempt at the receiver of TAKE", "TAKE", "w", "attempts", other),
    ("another lock at the receiver of TAKE", "TAKE", "w", "lock", plus),
    ("other needs at the receiver of TAKE", "TAKE", "w", "needs", lambda _: {"slots": 7}),
    ("another role at the receiver of TAKE", "TAKE", "w", "role", lambda _: "strange"),
    ("another number at the receiver of TAKE", "TAKE", "w", "number", lambda _: 500),
    ("another lock at the receiver of NO", "NO", "w", "lock", plus),
    ("another lock at the receiver of GIVE", "GIVE", "m", "lock", lambda _: 777),
    ("another want at the receiver of GIVE", "GIVE", "m", "want", plus),
    ("another hold at the receiver of GIVE", "GIVE", "m", "hold", lambda _: 12345),
    ("other roles at the receiver of GIVE", "GIVE", "m", "roles", lambda _: ["strange"]),
    ("another credit at the receiver of READY", "READY", "m", "credit", plus),
    ("another number at the receiver of READY", "READY", "m", "ready", lambda _: 777),
    ("other resources at the receiver of READY", "READY", "m", "resources", lambda _: {"x": 1}),
    ("another count at the receiver of WAKE", "WAKE", "w", "count", plus),
    ("another role at the receiver of WAKE", "WAKE", "w", "role", lambda _: "strange"),
    ("another job at the receiver of CANCEL", "CANCEL", "w", "ids", other),
    ("another attempt at the receiver of CANCEL", "CANCEL", "w", "attempts", other),
    ("another time at the receiver of PONG", "PONG", "w", "max_silence", lambda _: 1),
    ("a standby at the receiver of PONG", "PONG", "w", "standby", lambda _: True),
):
    changed(BOTH, _title, ("received", _command, _receiver), _column, _change)


@corruption(BOTH)
def a_done_that_nobody_sent(journal: Journal) -> None:
    done = journal.find("received", "DONE", at="m", index=-1)
    journal.insert(done, {**done, "number": done["number"] + 1, "ids": [1], "attempts": [1]})


@corruption(BOTH)
def a_cancel_that_nobody_sent(journal: Journal) -> None:
    take = journal.find("received", "TAKE", at="w1", index=-1)
    cancel = {**journal.find("received", "CANCEL", at="w"), "source": take["source"]}
    journal.insert(take, {**cancel, "number": 600, "target": take["target"]})


@corruption(BOTH)
def a_done_that_its_worker_did_not_write(journal: Journal) -> None:
    journal.blank(journal.find("send", "DONE", at="w1"))


@corruption(BOTH)
def another_outcome_behind_a_device(journal: Journal) -> None:
    journal.find("received", "DONE", at="m", source="w2.0")["outcomes"] = [4]


@corruption(BOTH)
def a_journal_copied_under_another_epoch(journal: Journal) -> None:
    rows = [row for row in journal.rows if row["node"] == "w1.0"]
    text = json.dumps(rows).replace('"epoch": 1,', '"epoch": 2,')
    text = text.replace(
        '"target": "w1.0", "target_epoch": 1', '"target": "w1.0", "target_epoch": 2'
    )
    journal.rows += json.loads(text)


# -- both ends alike, so that the ends of the message agree

IDENTITY = (
    "command", "source", "source_epoch", "target", "session", "number", "lock", "ready", "count",
)  # fmt: skip


def message(journal: Journal, command: str, at: str, index: int = 0, **columns: Any) -> list[Row]:
    """Return the lines of all nodes about one message."""
    sent = journal.find("send", command, at=at, index=index, **columns)
    return [
        row
        for row in journal.rows
        if row["what"] in ("send", "received")
        and all(row.get(name) == sent.get(name) for name in IDENTITY)
    ]


def changed_alike(
    expected: str, title: str, command: str, at: str, index: int = 0, /, *,
    where: Row | None = None, **change: Any,
) -> None:  # fmt: skip
    """Register a change of one message at all its nodes; without a change the message is blank."""

    def make(journal: Journal) -> None:
        for row in message(journal, command, at, index, **(where or {})):
            if not change:
                journal.blank(row)
                continue
            values = {n: new(row[n]) if callable(new) else new for n, new in change.items()}
            set_columns(row, values if row["node"][0] != "d" else only_heads(values))
            if "ids" in change:
                row.pop("last", None)

    CORRUPTIONS[title] = expected, make


RESULT = {"outcomes": [0]}
changed_alike("WMP-6.10", "an outcome that the lane did not report, at both ends", "DONE", "w",
              where=RESULT, outcomes=[1])  # fmt: skip
changed_alike("WMP-6.2", "the attempt of a DONE at both ends", "DONE", "w", where=RESULT,
              attempts=[7])  # fmt: skip
changed_alike("WMP-6.6", "the job of a DONE at both ends", "DONE", "w", where=RESULT, ids=[77])
changed_alike("WMP-7.1", "the number of a DONE at both ends", "DONE", "w", -1, number=plus)
changed_alike("WMP-6.2", "a DONE that is missing at both ends", "DONE", "w", where=RESULT)
changed_alike("WMP-4.6", "the role of a TAKE at both ends", "TAKE", "m", role="strange")
changed_alike("WMP-4.13", "the lock of a TAKE at both ends", "TAKE", "m", lock=999)
changed_alike("WMP-7.1", "the number of a TAKE at both ends", "TAKE", "m", -1, number=plus)
changed_alike("no stale result", "the attempt of a TAKE at both ends", "TAKE", "m", attempts=[7])
changed_alike("WMP-6.6", "the job of a TAKE at both ends", "TAKE", "m", ids=[77], attempts=[1])
changed_alike("no stale result", "a TAKE that is missing at both ends", "TAKE", "m")
changed_alike("WMP-4.13", "the lock of a NO at both ends", "NO", "m", lock=999)
changed_alike("WMP-4.13", "a GIVE that is missing at both ends", "GIVE", "w1")
changed_alike("WMP-4.1", "the lock of a GIVE at both ends", "GIVE", "w1", 2, lock=1)
changed_alike("WMP-3.4", "the count of a WAKE at both ends", "WAKE", "m", count=99)
changed_alike("WMP-3.4", "the credit of a READY at both ends", "READY", "w1", credit=0)
changed_alike("WMP-3.2", "the number of a READY at both ends", "READY", "w1", -1, ready=0)


@corruption("one line for each number")
def two_lines_with_one_number(journal: Journal) -> None:
    row = journal.find("received", "TAKE", at="w1")
    journal.rows.append({**row, "at": row["at"] + 1})


def after_stop(**columns: Any) -> Corruption:
    """Return a change: a worker writes one more line after its stop."""

    def make(journal: Journal) -> None:
        stop = journal.find("stop", at="w1")
        kept = {name: value for name, value in stop.items() if name not in ("what", "lines")}
        journal.insert(stop, kept | columns)

    return make


CORRUPTIONS["two stops"] = "a stop is the last line", after_stop(what="stop", lines=0)
CORRUPTIONS["a line after the stop"] = "a stop is the last line", after_stop(what="ticked")


def corrupted(rows: list[Row], make: Corruption) -> list[str]:
    """Return the corrupted lines."""
    journal = Journal(json.loads(json.dumps(rows)))
    make(journal)
    return [json.dumps(row) for row in journal.rows]
