"""Corruptions of the terms of jobs, of lanes, of acks and of the lines of devices.

Importing this module adds them to ``CORRUPTIONS``.
"""

from __future__ import annotations

from typing import Any

from tests.spark.folds.corruptions import (
    BOTH,
    CORRUPTIONS,
    RESOLVE,
    Corruption,
    Journal,
    Row,
    changed,
    changed_alike,
    corruption,
    plus,
)

TERMS, TAKEN = "a TAKE states its job", "a lane runs what its TAKE brought"
TIMES, RETRIES, LANES = "times are kept", "retries are kept", "a lane ends each job once"
SUBMITTED = ("submitted", None, "m")
GIVEN = ("send", "TAKE", "m")
LIMITED = {"run_limit": 9_000_000}
"""The job with all terms."""
FIRST, LATER = {"limits": [9000], "attempts": [1]}, {"limits": [9000], "attempts": [2]}
"""Its TAKEs."""

# -- the terms of a submission

for _title, _expected, _column, _value in (
    ("a later start than that of the first lease", TIMES, "delay", 5_000_000),
    ("a start at once of a job that its TAKE lets expire later", TERMS, "delay", None),
    ("an expiry before the first lease", TIMES, "expires_in", 1000),
    ("a later expiry than that of the TAKE", TERMS, "expires_in", 90_000_000),
    ("no expiry of a job whose TAKE has one", TERMS, "expires_in", None),
    ("another run limit than that of the TAKE", TERMS, "run_limit", 4_000_000),
    ("no run limit of a job whose TAKE has one", TERMS, "run_limit", None),
    ("a later deadline than that of the TAKE", TERMS, "timeout", 90_000_000),
    ("no deadline of a job whose TAKE has one", TERMS, "timeout", None),
    ("fewer retries than the job was tried again", RETRIES, "retries", 0),
    ("no retries of a job whose TAKE has no count of failures", TERMS, "retries", None),
    ("another role than that of the TAKE", TERMS, "role", "strange"),
    ("other needs than those of the TAKE", TERMS, "needs", {"slots": 7}),
    ("another codec than that of the TAKE", TERMS, "codec", "json"),
):
    changed(_expected, _title, SUBMITTED, _column, lambda _, value=_value: value, **LIMITED)
changed("ends have a cause", "a timeout before the deadline", SUBMITTED, "timeout",
        lambda _: 90_000_000, role="nobody")  # fmt: skip
changed(TERMS, "a delay of a job that was leased at once", SUBMITTED, "retries", lambda _: 3)
changed(TIMES, "a start time after the lease", SUBMITTED, "delay", lambda _: 3_000_000)
changed(TERMS, "a deadline that no TAKE has", SUBMITTED, "timeout", lambda _: 60_000_000)
changed(TERMS, "an expiry that no TAKE has", SUBMITTED, "expires_in", lambda _: 60_000_000)
changed(TERMS, "a run limit that no TAKE has", SUBMITTED, "run_limit", lambda _: 60_000_000)
changed("worker losses are kept", "a job lost with more losses allowed", RESOLVE, "ends",
        lambda _: ["lost"], ends=["error"])  # fmt: skip

# -- the terms of a lease, at both ends

for _title, _where, _change in (
    ("the deadline of a TAKE at both ends", FIRST, {"left": [90_000]}),
    ("no deadline of a TAKE at both ends", FIRST, {"left": None}),
    ("the expiry of a TAKE at both ends", FIRST, {"expires": [90_000]}),
    ("no expiry of a TAKE at both ends", FIRST, {"expires": None}),
    ("the run limit of a TAKE at both ends", FIRST, {"limits": [1]}),
    ("no run limit of a TAKE at both ends", FIRST, {"limits": None}),
    ("the failures of a TAKE at both ends", FIRST, {"failed": [3]}),
    ("the failures of a second TAKE at both ends", {"codec": "json", "attempts": [2]},
     {"failed": [0]}),
    ("the needs of a TAKE at both ends", FIRST, {"needs": {"slots": 9}}),
    ("the codec of a TAKE at both ends", FIRST, {"codec": "pickle"}),
    ("the role of a TAKE with terms at both ends", FIRST, {"role": "cook"}),
    ("the run limit of a second TAKE at both ends", LATER, {"limits": [1]}),
):  # fmt: skip
    changed_alike(TERMS, _title, "TAKE", "m", 0, where=_where, **_change)
for _column, _value in (
    ("left", [7]), ("expires", [7]), ("limits", [7]), ("failed", [7]), ("codec", "pickle"),
    ("bytes", 77), ("ack", 77), ("session", 77), ("owner", "strange"), ("more", True),
):  # fmt: skip
    changed(BOTH, f"another {_column} at the receiver of a TAKE with terms",
            ("received", "TAKE", "w"), _column, lambda _, value=_value: value, **FIRST)  # fmt: skip
changed(BOTH, "another wait at the receiver of DONE", ("received", "DONE", "m"), "waits",
        lambda _: [7], waits=[200])  # fmt: skip
changed_alike(TIMES, "a longer wait in DONE than the manager waited, at both ends", "DONE", "w",
              where={"waits": [200]}, waits=[60_000])  # fmt: skip
changed_alike(RETRIES, "no wait in a DONE whose job is tried again, at both ends", "DONE", "w",
              where={"waits": [200]}, waits=None)  # fmt: skip
changed_alike(RETRIES, "a wait in a DONE whose job is not tried again, at both ends", "DONE", "w",
              where={"outcomes": [1], "waits": None}, waits=[1])  # fmt: skip
changed_alike("WMP-6.8", "the attempt of a CANCEL at both ends", "CANCEL", "m", attempts=[7])
changed_alike("WMP-6.6", "an attempt in DONE that no TAKE brought", "DONE", "w",
              where={"outcomes": [3]}, attempts=[7])  # fmt: skip


@corruption("WMP-6.1")
def a_job_submitted_twice(journal: Journal) -> None:
    row = journal.find("submitted", at="m")
    journal.insert(row, row)


@corruption("WMP-6.1")
def a_lease_of_a_job_that_nobody_submitted(journal: Journal) -> None:
    journal.blank(journal.find("submitted", at="m"))


@corruption("WMP-6.1")
def an_end_of_a_job_that_nobody_submitted(journal: Journal) -> None:
    row = journal.find("resolve", at="m", ends=["timeout"])
    row["ids"] = [66]


# -- lanes

for _title, _column, _value in (
    ("an attempt of a lane that is not that of its TAKE", "attempts", [7]),
    ("a role of a lane that is not that of its TAKE", "role", "cook"),
    ("needs of a lane that are not those of its TAKE", "needs", {}),
    ("a codec of a lane that is not that of its TAKE", "codec", "pickle"),
    ("a limit of a lane that is not that of its TAKE", "limits", [7]),
):
    changed(TAKEN, _title, ("run", None, "w"), _column, lambda _, value=_value: value)
changed(LANES, "an end of a lane that does not exist", ("finished", None, "w"), "lane",
        lambda _: 999)  # fmt: skip
changed(LANES, "an end of a job that its lane does not have", ("finished", None, "w"), "ids",
        lambda _: [77])  # fmt: skip


@corruption(LANES)
def a_lane_that_finishes_twice(journal: Journal) -> None:
    row = journal.find("finished", at="w")
    journal.insert(row, row)


@corruption(LANES)
def a_lane_that_gets_jobs_twice(journal: Journal) -> None:
    run = journal.find("run", at="w")
    journal.insert(run, {**run, "ids": [88], "attempts": [1], "needs": {}})


@corruption(TIMES)
def a_job_begun_after_its_expiry(journal: Journal) -> None:
    run = journal.find("run", at="w", limits=[9000])
    for row in journal.rows:
        if row["node"] == run["node"] and row["n"] >= run["n"]:
            row["at"] += 50_000_000


# -- offers, acks and challenges

changed("WMP-3.1", "a READY with other resources", ("send", "READY", "w"), "resources",
        lambda _: {"slots": 99})  # fmt: skip
changed("WMP-3.1", "a READY with another role", ("send", "READY", "w"), "roles",
        lambda _: ["strange"])  # fmt: skip
changed("WMP-3.1", "a GIVE with another role", ("send", "GIVE", "w"), "roles",
        lambda _: ["strange"])  # fmt: skip
changed("WMP-2.5", "a message of another source", ("send", "PONG", "m"), "source",
        lambda _: "m9.0")  # fmt: skip
changed("WMP-2.5", "a message of another epoch", ("send", "PING", "w"), "source_epoch",
        lambda _: 7)  # fmt: skip
changed_alike("WMP-3.4", "the role of a WAKE at both ends", "WAKE", "m", role="strange")
changed_alike("WMP-3.4", "the needs of a WAKE at both ends", "WAKE", "m", needs={"slots": 99})
changed_alike("WMP-9.2", "a READY that never came in a PONG at both ends", "PONG", "m",
              ready=99)  # fmt: skip
changed_alike("WMP-9.2", "a lock that never came in a PONG at both ends", "PONG", "m", lock=99)
changed_alike("WMP-9.2", "another max_silence in a PONG at both ends", "PONG", "m", max_silence=1)
changed_alike("WMP-15.4", "an answer to no challenge at both ends", "PONG", "m", answer=99)
for _command, _at in (("TAKE", "m"), ("WAKE", "m"), ("PONG", "m"), ("DONE", "w"), ("GIVE", "w")):
    # The first messages of a worker have no session.
    _acked = {"ack": 0, "session": 1} if _command != "DONE" else {"ack": 1, "session": 1}
    changed_alike("WMP-7.2", f"an ack in {_command} of what was never received, at both ends",
                  _command, _at, where=_acked, ack=999)  # fmt: skip
    changed(BOTH, f"another ack at the receiver of {_command}",
            ("received", _command, "w" if _at == "m" else "m"), "ack", lambda _: 999,
            **_acked)  # fmt: skip
changed("WMP-7.4", "a received ack of what was never sent", ("received", "DONE", "m"), "ack",
        lambda _: 999)  # fmt: skip

# -- devices

DEVICE = ("send", "TAKE", "d")
for _title, _expected, _column, _value in (
    ("a TAKE redirected by a device", "WMP-8.2", "target", "w1.0"),
    ("a TAKE redirected to another epoch by a device", "WMP-8.2", "target_epoch", 7),
    ("a TAKE sent to another connection by a device", "WMP-8.2", "link", "0x77332f30"),
    ("a TAKE sent back by a device", "WMP-8.9", "link", "#0"),
    ("another source at a device", "WMP-8.2", "source", "m9.0"),
    ("another number at a device", "WMP-8.4", "number", 99),
    ("another session at a device", "WMP-8.4", "session", 99),
    ("another ack at a device", "WMP-8.4", "ack", 99),
    ("another lock at a device", "WMP-8.4", "lock", 99),
    ("another size at a device", "WMP-8.4", "bytes", 99),
    ("another route at a device", "WMP-8.3", "via", ["x.0"]),
    ("another number of hops at a device", "WMP-8.3", "hops", 5),
    ("no more hops after a device", "WMP-8.3", "hops", 0),
):
    changed(_expected, _title, DEVICE, _column, lambda _, value=_value: value)
for _column, _value in (("target", "w1.0"), ("number", 99), ("via", ["x.0"]), ("hops", 3)):
    changed(BOTH, f"another {_column} of a TAKE that came to a device", ("received", "TAKE", "d"),
            _column, lambda _, value=_value: value)  # fmt: skip
for _column, _value in (("via", ["x.0"]), ("hops", 3), ("hops", 0), ("number", 99)):
    changed(BOTH, f"another {_column} ({_value}) of a TAKE that came over a device",
            ("received", "TAKE", "w2"), _column, lambda _, value=_value: value, hops=1)  # fmt: skip


def not_passed_on(command: str, **columns: Any) -> Corruption:
    """Return a change: a device passes a message on to nobody."""

    def make(journal: Journal) -> None:
        journal.blank(journal.find("send", command, at="d", **columns))

    return make


CORRUPTIONS["a DONE that a device did not pass on"] = "WMP-8.2", not_passed_on("DONE")
CORRUPTIONS["a TAKE that a device did not pass on"] = "WMP-8.2", not_passed_on("TAKE")
CORRUPTIONS["a READY that a device passed on to one manager"] = "WMP-8.1", not_passed_on("READY")


@corruption("WMP-8.2")
def a_message_that_a_device_made_up(journal: Journal) -> None:
    row = journal.find("send", "DONE", at="d")
    journal.insert(row, {**row, "number": plus(row["number"])})


@corruption("WMP-8.2")
def a_message_that_a_device_sent_twice(journal: Journal) -> None:
    row = journal.find("send", "DONE", at="d")
    again: Row = journal.insert(row, row)
    again["step"] = row["step"]
