"""The job log, the halt and the watch for workers of `wmp map`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wmp.actions import End, Resolve, Send
from wmp.cli.common.halt import HaltCount, HaltRule
from wmp.cli.common.worker_watch import WorkerWatch
from wmp.cli.map.feed import MapInput, inputs
from wmp.cli.map.joblog import JobLog, JobLogRow, exit_of
from wmp.errors import ConfigError, JobFailed, JobTimeout
from wmp.events import Received
from wmp.message import Columns, Command, Field, Message
from wmp.runtime.driver.lease_times import LeaseTimes

HEADER = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n"


def row(number: int, code: int = 0, name: str = "") -> JobLogRow:
    command = f"wc {name or number}"
    return JobLogRow(number, "ada:17", 1700000000.25, 0.5, 10, 3, code, 0, command)


def written(path: Path, rows: Iterable[JobLogRow], **options: Any) -> str:
    with JobLog(str(path), "wc", **options) as log:
        for row in rows:
            log.add(row)
    return path.read_text()


def test_a_job_log_has_the_columns_of_gnu_parallel(tmp_path: Path) -> None:
    text = written(tmp_path / "log", [row(1), row(2, 3)])

    assert text == (
        HEADER
        + "1\tada:17\t1700000000.250\t     0.500\t10\t3\t0\t0\twc 1\n"
        + "2\tada:17\t1700000000.250\t     0.500\t10\t3\t3\t0\twc 2\n"
    )


def test_a_new_run_begins_a_new_log_unless_a_plus_keeps_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    first = written(path, [row(1)])
    assert written(path, [row(2)]) == first.replace("\twc 1", "\twc 2").replace("\n1\t", "\n2\t")

    with JobLog(f"+{path}", "wc") as log:
        assert not log.skips(2, "2")
        log.add(row(3))
    assert [line.split("\t")[0] for line in path.read_text().splitlines()] == ["Seq", "2", "3"]


def test_a_file_that_is_no_job_log_is_not_replaced(tmp_path: Path) -> None:
    path, link = tmp_path / "orders.txt", tmp_path / "link"
    path.write_text("precious\n" * 1000)
    link.symlink_to(path)
    for name in (path, link):
        with pytest.raises(ConfigError, match=r"is not a job log.*begins with 'precious"):
            JobLog(str(name), "wc")
    assert path.read_text() == "precious\n" * 1000
    path.write_text("")
    assert written(path, [row(1)]).startswith(HEADER)


@pytest.mark.parametrize(("failed", "skipped"), [(False, {1, 2}), (True, {1})])
def test_a_run_that_resumes_skips_the_jobs_of_the_log(
    failed: bool, skipped: set[int], tmp_path: Path
) -> None:
    path = tmp_path / "log"
    written(path, [row(1, 1), row(1), row(2, 1)])

    with JobLog(str(path), "wc", resume=True, failed=failed) as log:
        assert {number for number in range(1, 5) if log.skips(number, str(number))} == skipped


def test_a_line_without_an_end_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    text = written(path, [row(1)])
    path.write_text(text + "2\tada:17\t17000")

    with JobLog(str(path), "wc", resume=True) as log:
        assert not log.skips(2, "2")
        log.add(row(3))
    assert path.read_text() == text + row(3).line()


def test_other_inputs_under_the_numbers_of_the_log_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log"
    written(path, [row(1, name="a.txt")])

    with JobLog(str(path), "wc", resume=True) as log:
        assert log.skips(1, "a.txt")
        with pytest.raises(ConfigError, match=r"job 1 was 'wc a.txt', and is 'wc b.txt' now"):
            log.skips(1, "b.txt")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("hello\n", "is not a job log: its first line is 'hello'"),
        ("hello", "is not a job log: its first line is 'hello'"),
        (HEADER + "one\n", "line 2 is 'one'; expected nine columns"),
    ],
)
def test_another_file_is_not_continued(text: str, error: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(text)

    with pytest.raises(ConfigError, match=error):
        JobLog(str(tmp_path / "log"), "wc", resume=True)
    assert (tmp_path / "log").read_text() == text


def test_a_log_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write the job log"):
        JobLog(str(tmp_path / "missing" / "log"), "wc")


def test_names_are_escaped_in_the_log(tmp_path: Path) -> None:
    with JobLog(str(tmp_path / "log"), "wc") as log:
        assert log.command("a\tb\n\udcff") == r"wc a\tb\n\udcff"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, (0, 0)),
        (JobFailed("CommandFailed", "wc -w: exit code 3: no such file"), (3, 0)),
        (JobFailed("CommandFailed", "wc -w: exit code 3"), (3, 0)),
        (JobFailed("CommandFailed", "wc -w: killed by SIGKILL"), (0, 9)),
        (JobFailed("ValueError", "a: exit code 3"), (1, 0)),
        (JobTimeout("job 1 timed out"), (1, 0)),
    ],
)
def test_exit_codes_are_those_of_commands(
    error: Exception | None, expected: tuple[int, int]
) -> None:
    assert exit_of(error) == expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("now,fail=1", "now,fail=1"),
        ("soon,success=10%", "soon,success=10%"),
        ("1", "soon,fail=1"),
        ("2", "now,fail=1"),
        ("-1", "soon,success=1"),
        ("-2", "now,success=1"),
        ("30%", "soon,fail=30%"),
    ],
)
def test_rules_are_those_of_gnu_parallel(text: str, shown: str) -> None:
    assert str(HaltRule.parse(text)) == shown


@pytest.mark.parametrize("text", ["never", "0"])
def test_no_rule(text: str) -> None:
    assert HaltRule.parse(text) is None


@pytest.mark.parametrize(
    "text", ["", "3", "now", "now,fail", "fail=1", "now,fail=0", "now,fail=101%"]
)
def test_another_text_is_no_rule(text: str) -> None:
    with pytest.raises(ConfigError, match="expected never, or now or soon"):
        HaltRule.parse(text)


@pytest.mark.parametrize(
    ("rule", "codes", "applies", "code"),
    [
        ("soon,fail=2", [0, 3, 0], False, 0),
        ("soon,fail=2", [3, 4, 5], True, 4),
        ("soon,success=2", [1, 0, 0], True, 0),
        ("soon,done=3", [0, 0, 7], True, 7),
        ("soon,fail=30%", [1, 1], False, 0),
        ("soon,fail=30%", [1, 1, 2], True, 2),
    ],
)
def test_a_rule_applies_at_its_number_of_jobs(
    rule: str, codes: list[int], applies: bool, code: int
) -> None:
    parsed = HaltRule.parse(rule)
    assert parsed is not None
    count = HaltCount(parsed)
    for status in codes:
        count.add(status)

    assert count.applies(10) is applies
    assert count.code == code


def test_a_percentage_waits_for_the_number_of_jobs() -> None:
    parsed = HaltRule.parse("now,fail=1%")
    assert parsed is not None
    count = HaltCount(parsed)
    count.add(1)

    assert not count.applies(None)
    assert count.applies(1)


def test_files_of_skipped_inputs_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"text")
    names = [str(tmp_path / "a"), str(tmp_path / "b")]

    first, second = inputs(names, lines=False, skips=lambda number, name: number == 1)

    assert first == MapInput(names[0], b"", skipped=True)
    assert second == MapInput(names[1], b"text")


def test_lines_of_several_files_are_numbered_through(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n2\n")
    (tmp_path / "b").write_bytes(b"3\n")
    questions: list[tuple[int, str]] = []

    def skips(number: int, name: str) -> bool:
        questions.append((number, name.rpartition("/")[2]))
        return number == 2

    items = list(inputs([str(tmp_path / "a"), str(tmp_path / "b")], True, skips))

    assert questions == [(1, "a:1"), (2, "a:2"), (3, "b:1")]
    assert [(item.payload, item.skipped) for item in items] == [
        (b"1", False),
        (b"", True),
        (b"3", False),
    ]


def test_times_of_jobs_come_from_the_steps_of_the_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 103.5, 200.0])
    monkeypatch.setattr("time.time", lambda: next(clock))
    times = LeaseTimes()
    ready = Message(Command.READY, source=(b"w", 1), fields={Field.LABEL: "ada:17"})
    take = Message(
        Command.TAKE, to=(b"d", b"w"), columns=Columns(ids=[4], attempts=[1], payloads=[b""])
    )
    times.step(Received(b"", ready), [], 0.0)
    times.step(None, [Send(b"", take)], 0.0)
    times.step(None, [Resolve([4, 5], [End.OK] * 2, [b""] * 2, [1, 0])], 0.0)

    sent = times.take(4)
    assert (sent.host, sent.sent, sent.ended) == ("ada:17", 100.0, 103.5)
    assert times.take(5).host == ""
    assert times.take(4).sent == 200.0


def test_a_misspelt_role_is_reported_with_the_most_similar_role_and_no_control_characters() -> None:
    # A role of a peer may be a command to the terminal.
    workers = [SimpleNamespace(roles=("resize",)), SimpleNamespace(roles=("\x1b]0;title\x07",))]
    seen = SimpleNamespace(workers=workers, waiting=[SimpleNamespace(unserved="no worker")])
    manager: Any = SimpleNamespace(statistics=lambda: seen)
    bar: Any = None
    watch = WorkerWatch(manager, bar, "rezise", 1e-9, "ipc://here", "wmp worker")
    watch.look()
    watch._next = 0.0
    with pytest.raises(ConfigError) as raised:
        watch.look()
    assert "offer '\\x1b]0;title\\x07', 'resize'; did you mean 'resize'?)" in str(raised.value)
