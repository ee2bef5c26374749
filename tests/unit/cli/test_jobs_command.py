"""``wmp jobs`` on a store that a manager uses."""

from __future__ import annotations

import contextlib
import io
import json
import sqlite3

import pytest

from tests.unit.store.stores import Client, Clock, sqlite_store
from wmp.cli.common import entry_point
from wmp.errors import StoreUnusable
from wmp.message import Kind
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.write_batch import StoredFailure

Input, State = StoredJobInput, StoredJobState


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


@pytest.fixture
def client(path):
    store = sqlite_store(path, Clock())
    yield Client(store)
    store.close()


@pytest.fixture
def wmp(monkeypatch):
    """Return a function that runs the program and returns (exit code, stdout, stderr)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["wmp", *map(str, arguments)])
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as ended,
        ):
            entry_point.start("wmp", "wmp.cli.program")
        return ended.value.code, out.getvalue(), err.getvalue()

    return run


@pytest.fixture
def four(client):
    """Add a queued job, one that failed, one that is reserved, one that is done."""
    queued, failed = client.add(b"later", delay_ms=60_000), client.add(b"bad", kind=Kind("resize"))
    client.reserve(kind=Kind("resize"))
    client.change(Input.FAIL, failed, [1], payloads=[b"no error report"])
    done = client.add(b"x" * 3000, keys=["k\x1b1"])
    client.reserve()
    client.change(Input.SUCCEED, done, [1], payloads=[b"\xff\x00"])
    reserved = client.add(b"y")
    client.reserve()
    return [queued[0], failed[0], reserved[0], done[0]]


def test_jobs_are_listed_and_filtered(wmp, path, four):
    code, out, err = wmp("jobs", "list", path)
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert [(line[0], line[1]) for line in lines] == [
        ("1", "queued"),
        ("2", "error"),
        ("3", "ok"),
        ("4", "reserved"),
    ]
    assert "due=" in out
    assert "key=k\\x1b1" in out
    code, out, err = wmp("jobs", "list", path, "--state", "ok", "--state", "error", "--json")
    assert [json.loads(line)["state"] for line in out.splitlines()] == ["error", "ok"]
    code, out, err = wmp("jobs", "list", path, "--limit", 1, "--after", 2)
    assert (len(out.splitlines()), err) == (
        1,
        "wmp: there are more jobs; continue with --after 3\n",
    )
    assert wmp("jobs", "list", path, "--role", "none") == (0, "", "wmp: no job matches\n")


def test_a_job_is_shown_with_its_result_or_error(wmp, path, four):
    code, out, _ = wmp("jobs", "show", path, four[3], "--json")
    shown = json.loads(out)
    assert (code, shown["state"], shown["result"]) == (0, "ok", "0xff00")
    assert shown["payload"].endswith("x … 3000 bytes")
    code, out, _ = wmp("jobs", "show", path, four[1])
    assert "JobFailed: UnreadableError: " in out
    code, out, _ = wmp("jobs", "show", path, "--key", "k\x1b1", "--json")
    assert json.loads(out)["id"] == four[3]
    code, out, err = wmp("jobs", "show", path, 99)
    assert (code, out) == (1, "")
    assert "the store has no job 99" in err
    code, _, err = wmp("jobs", "show", path, "--key", "nobody")
    assert code == 1
    assert "the store has no job with the key 'nobody'" in err
    code, _, err = wmp("jobs", "show", path)
    assert code == 2
    assert "name one job" in err


def test_a_job_that_waits_is_shown_with_the_reason(wmp, path, client, four):
    def waits(id: int) -> str:
        return json.loads(wmp("jobs", "show", path, id, "--json")[1]).get("waits", "")

    assert waits(four[0]).startswith("is delayed until 2027-")
    assert waits(four[2]).startswith("manager 'test' (instance 1) has reserved attempt 1: a worker")
    assert waits(four[3]) == ""
    client.change(Input.CANCEL, [four[2]])
    assert waits(four[2]).startswith("cancellation is requested; manager 'test' (instance 1) waits")
    (due,) = client.add(b"z", delay_ms=-10 * 365 * 86_400_000)
    assert "no manager has a worker with free capacity for role 'echo' and slots=1" in waits(due)
    hint = "(managers: 'test' (instance 1)"
    assert waits(due).endswith(f"{hint})")
    other = client.store.begin(b"d", "dispatcher host:1")
    assert waits(due).endswith(
        f"{hint}, 'dispatcher host:1' (instance 2)); a dispatcher states the cause, in `waits` of "
        "GET /dispatcher/jobs/ID"
    )
    client.store.end(other)
    client.store.end(client.me)
    assert waits(due) == "no manager uses the store; start one with workers of the role"
    assert waits(four[2]).startswith("manager 'test' (instance 1), which had reserved the job, has")


def test_a_job_is_shown_with_its_failed_attempts(wmp, path, client):
    (id,) = client.add(b"x")
    client.reserve()
    failures = [StoredFailure(1, "lathe\x1b", "ValueError: no")]
    client.change(Input.AGAIN, [id], [1], waits_ms=[90_000], failures=failures)

    shown = json.loads(wmp("jobs", "show", path, id, "--json")[1])
    assert shown["waits"].startswith("is tried again at 2027-")
    assert [row["error"] for row in shown["history"]] == ["ValueError: no"]
    assert r"attempt 1 at worker lathe\x1b: ValueError: no" in wmp("jobs", "show", path, id)[1]


def test_dead_letters_are_queued_again(wmp, path, client, four):
    assert wmp("jobs", "retry", path, "--role", "resize") == (0, "1 job queued again\n", "")
    assert client.job(four[1]).state is State.QUEUED
    code, out, err = wmp("jobs", "retry", path, four[3])
    assert (code, out) == (1, "0 jobs queued again\n")
    assert "1 job not queued again" in err
    assert "for a cancelled job add --state cancelled, for a job with a result --state ok" in err
    assert wmp("jobs", "retry", path, four[3], "--state", "ok")[0] == 0


def test_a_cancelled_job_is_queued_again_by_its_state(wmp, path, client, four):
    wmp("jobs", "cancel", path, four[0])
    code, out, err = wmp("jobs", "retry", path, four[0])
    assert (code, out) == (1, "0 jobs queued again\n")
    assert "for a cancelled job add --state cancelled" in err
    assert client.job(four[0]).state is State.CANCELLED
    assert wmp("jobs", "retry", path, four[0], "--state", "cancelled")[1] == "1 job queued again\n"
    assert client.job(four[0]).state is State.QUEUED


def test_jobs_are_cancelled_and_the_manager_finds_this(wmp, path, client, four):
    code, out, err = wmp("jobs", "cancel", path, four[0], four[2])
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "1 job cancelled",
        "cancellation of 1 job requested: managers have reserved them, and stop their workers",
    ]
    assert client.job(four[0]).state is State.CANCELLED
    news = client.store.news(client.me)
    assert news.cancelling == [four[2]]
    assert [job.id for job in news.ended] == [four[0]]


def test_ended_jobs_are_removed(wmp, path, client, four):
    assert wmp("jobs", "purge", path, "--state", "ok") == (0, "1 job removed\n", "")
    assert client.job(four[3]) is None
    code, _, err = wmp("jobs", "purge", path, "--state", "queued")
    assert code == 2
    assert "a job in state queued cannot be removed" in err


@pytest.mark.parametrize("command", ["retry", "cancel", "purge"])
def test_a_change_names_its_jobs_and_an_existing_store(wmp, path, tmp_path, client, command):
    code, _, err = wmp("jobs", command, path)
    assert code == 2
    assert "choose them by --state, --role, --key" in err
    code, _, err = wmp("jobs", command, tmp_path / "none.db", 1)
    assert code == 2
    assert "there is no store" in err
    assert not (tmp_path / "none.db").exists()


def test_a_store_is_summarised(wmp, path, four):
    code, out, err = wmp("jobs", "stat", path, "--json", "--check")
    rows = json.loads(out)
    assert (code, err, rows["damaged"]) == (0, "", 0)
    assert [rows[name] for name in ("queued", "reserved", "ok", "error", "lost")] == [
        1,
        1,
        1,
        1,
        0,
    ]
    assert rows["bytes"] > 0
    assert "queued" in wmp("jobs", "stat", path)[1]


def test_a_store_is_copied_while_it_is_used(wmp, path, tmp_path, client, four):
    copy = tmp_path / "copy.db"
    code, out, _ = wmp("jobs", "backup", path, copy)
    assert code == 0
    assert f"{copy} has " in out
    code, _, err = wmp("jobs", "backup", path, copy)
    assert code == 2
    assert "exists" in err


def test_a_generation_is_begun_by_hand(wmp, path, client):
    before = client.store.generation
    code, out, _ = wmp("jobs", "restore", "--in-place", path)
    assert code == 0
    assert int(out.split()[-1]) > before
    with pytest.raises(StoreUnusable, match="restored copy"):
        client.apply()


def test_a_backup_is_restored_and_checked(wmp, path, client, tmp_path):
    client.add(b"old")
    copy = tmp_path / "copy.db"
    assert wmp("jobs", "backup", path, copy)[0] == 0
    code, _, err = wmp("jobs", "restore", copy, path)
    assert code != 0
    assert "a process uses the store" in err
    client.add(b"new")
    client.store.close()
    code, out, _ = wmp("jobs", "restore", copy, path)
    assert code == 0
    assert "is restored from" in out
    assert "the earlier store is kept as" in out
    code, out, _ = wmp("jobs", "check", path)
    assert code == 0
    assert out.endswith("is whole: 1 job\n")


def test_the_old_name_of_restore_names_the_new_one(wmp, path, client):
    code, _, err = wmp("jobs", "restored", path)
    assert code == 2
    assert "wmp jobs restore --in-place" in err


def test_a_damaged_store_is_reported_by_check(wmp, path, client):
    client.add(*[bytes(400)] * 2000)
    client.store.close()
    with path.open("r+b") as file:
        file.seek(60 * 4096)
        file.write(b"\xa5" * 40 * 4096)
    code, _, err = wmp("jobs", "check", path)
    assert code == 1
    assert "is damaged" in err
    assert "wmp jobs restore COPY STORE" in err


@pytest.mark.parametrize("command", [["list"], ["show", "--key", "k\x1b]0;t\x07\u202e"]])
def test_no_value_of_a_job_reaches_the_terminal_raw(wmp, path, client, command):
    hostile = "k\x1b]0;t\x07\u202e"
    kind = Kind(hostile, ((hostile, 1),), hostile)
    client.add(hostile.encode(), kind=kind, keys=[hostile])
    code, out, _ = wmp("jobs", command[0], path, *command[1:])
    assert code == 0
    assert "k\\x1b]0;t\\x07\\u202e" in out
    assert not [char for char in out if not char.isprintable() and char != "\n"]


@pytest.mark.parametrize("command", [["list"], ["show", "1"], ["stat"]])
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE terms SET spec = 'no JSON'",
        "UPDATE terms SET spec = '[1]'",
        "UPDATE kinds SET needs = '{\"slots\": 1}'",
        "DELETE FROM terms",
        "DELETE FROM kinds",
        "UPDATE jobs SET state = 99",
        "UPDATE meta SET identity = 'text'",
        "DELETE FROM meta",
    ],
)
def test_a_row_without_a_meaning_is_a_corrupted_store(wmp, path, client, command, damage):
    client.add(b"x")
    client.store.close()
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("PRAGMA ignore_check_constraints = ON")
        file.execute(damage)
    code, out, err = wmp("jobs", command[0], path, *command[1:])
    if command == ["stat"] and (" terms" in damage or "kinds" in damage):
        assert code == 0, "a count of states reads neither terms nor kinds"
        return
    assert (code, out) == (1, "")
    assert "is corrupted (a row cannot be read" in err
    assert "restore a backup" in err


def test_an_error_of_sqlite_may_contain_any_bytes(wmp, path, client):
    client.store.close()
    data = bytearray(path.read_bytes())
    at = data.index(b"CREATE TABLE")
    data[at : at + 7] = b"\xd7\xff\xd7\xff\xd7\xff\xd7"
    path.write_bytes(data)
    code, _, err = wmp("jobs", "list", path)
    assert code == 1
    assert "is corrupted" in err
