"""The program ``wmp-conformance``, used as by the author of a worker in another language."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conformance import broken_workers  # noqa: F401 - it registers broken workers
from tests.conformance.broken_peers import BROKEN_PEERS, Bent
from tests.interop.programs.programs import ENVIRON, ROOT, Program
from tests.waiting import RUN, WAIT
from wmp.conformance.engine.check import cases_for, run_all
from wmp.conformance.report.report import ConformanceReport, ReportEntry, entry_of
from wmp.conformance.script.case import Verdict
from wmp.conformance.script.rules import PROFILES
from wmp.conformance.testees.library_testees import LibraryWorker
from wmp_programs import conformance as main

pytestmark = pytest.mark.interop

KIT = (sys.executable, "-c", "import wmp_programs; wmp_programs.conformance()")
HERE = Path(__file__).parent
DEAF = f"{shlex.quote(sys.executable)} {HERE / 'deaf_worker.py'}"
WORDS = "--connect {endpoint} --unit {unit} --slots {slots}"
GOOD = f"{DEAF} --good {WORDS}"
BAD = f"{DEAF} {WORDS}"
QUICK = ("--unit", "100")


def run(
    *words: str, cwd: Path, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*KIT, *words],
        cwd=cwd,
        env={**ENVIRON, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=RUN,
    )


def run_here(*words: str) -> object:
    """Run the program in this process; return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["wmp-conformance", *words])
        with pytest.raises(SystemExit) as ended:
            main()
    return ended.value.code


def play(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Do what ``run`` does, in this process: the program takes a second to start."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        code = run_here(*words)
    assert isinstance(code, int)
    return subprocess.CompletedProcess(words, code, stdout.getvalue(), stderr.getvalue())


def test_a_worker_that_conforms(tmp_path: Path) -> None:
    words = ("--command", GOOD, "--name", "mine", "--case", "plain-handshake", "--case", "drawn")
    files = ("--json", "o.json", "--junit", "o.xml", "--html", "o.html", "--badge", "o.svg")
    done = run("worker", *words, "--examples", "1", *QUICK, *files, cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "mine, a worker: conforms in part (2 of all cases)" in done.stdout
    report = json.loads((tmp_path / "o.json").read_text())
    assert (report["format"], report["version"], report["testee"]) == (
        "wmp-conformance",
        1,
        "worker",
    )
    assert report["conforms"] is True
    verdicts = {case["case"]: case["verdict"] for case in report["cases"]}
    assert verdicts == {"worker/plain-handshake": "OK", "worker/drawn": "OK"}
    (suite,) = ElementTree.parse(tmp_path / "o.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "0")
    assert "mine" in (tmp_path / "o.html").read_text()
    assert "conforms in part" in (tmp_path / "o.svg").read_text()


def test_a_broken_rule_is_reported_with_a_command_to_play_it_again(tmp_path: Path) -> None:
    files = ("--json", "found.json", "--junit", "found.xml", "--html", "found.html")
    done = play("worker", "--command", BAD, "--rule", "WMP-4.10", *QUICK, *files, cwd=tmp_path)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "WMP-4.10: NO MUST release what is left of the lock." in done.stdout
    assert re.search(r"worker → m1 +GIVE ", done.stdout)
    assert re.search(r"m1 → worker +NO ", done.stdout)
    assert "stderr: here I am" in done.stdout
    again = re.search(r"play it again: (.+)", done.stdout)
    assert again is not None
    program, *words = shlex.split(again[1])
    assert program == "wmp-conformance"
    assert "--replay" in words

    played = play(*words, cwd=tmp_path)
    assert played.returncode == 1, played.stdout + played.stderr
    assert "WMP-4.10: NO MUST" in played.stdout
    assert "1 of all cases" in played.stdout

    better = play(*words, "--command", GOOD, cwd=tmp_path)
    assert better.returncode == 0, better.stdout + better.stderr

    failures = list(ElementTree.parse(tmp_path / "found.xml").getroot().iter("failure"))
    assert failures
    assert "play it again: wmp-conformance worker --replay found.json" in str(failures[0].text)


def test_a_conversation_that_was_drawn_is_played_again(tmp_path: Path) -> None:
    moves = [["wake", 0, 1, 0], ["no", 0, 0, 0], ["wait", 0, 4, 0]]
    entry = ReportEntry(
        "worker/drawn", "3 drawn moves.", ("WMP-10.1",), "core", Verdict.FAILED,
        breaks=("WMP-10.1",), seed=0, moves=moves,
    )  # fmt: skip
    before = ConformanceReport(
        "worker", "mine", GOOD, unit=100, profiles=PROFILES, entries=(entry,)
    )
    (tmp_path / "o.json").write_text(before.dumps())

    again = play("worker", "--replay", "o.json", "--json", "p.json", cwd=tmp_path)

    assert again.returncode == 0, again.stdout + again.stderr
    (case,) = json.loads((tmp_path / "p.json").read_text())["cases"]
    assert (case["case"], case["about"], case["verdict"]) == (
        "worker/drawn",
        "3 drawn moves.",
        "OK",
    )


def test_a_peer_that_fails_the_first_case_is_reported_at_once(tmp_path: Path) -> None:
    command = f"{sys.executable} -c 'raise SystemExit(\"no such library\")' {{endpoint}}"
    done = play("worker", "--command", command, "--json", "o.json", cwd=tmp_path)

    assert done.returncode == 1
    assert "worker/begins" in done.stdout
    assert re.search(
        r"play it again: wmp-conformance worker --command '.+' --unit 1000\n", done.stdout
    )
    assert "the testee ended with status 1 during the case" in done.stdout
    assert "stderr: no such library" in done.stdout
    assert done.stdout.count("play it again") == 1

    again = play("worker", "--replay", "o.json", cwd=tmp_path)
    assert again.returncode == 2
    assert "the worker of o.json did not start, so no case was played" in again.stderr


def test_cases_of_missing_profiles_are_unimplemented(tmp_path: Path) -> None:
    words = ("--command", GOOD, "--without", "held-give", "--rule", "WMP-5.1", "--json", "o.json")
    done = play("worker", *words, cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    cases = json.loads((tmp_path / "o.json").read_text())["cases"]
    assert {case["verdict"] for case in cases if case["profile"] == "held-give"} == {
        "UNIMPLEMENTED"
    }
    assert any(case["profile"] == "held-give" for case in cases)
    assert re.search(
        r"\d cases? not played: the testee does not implement the profile held-give", done.stdout
    )


def test_reports_are_put_on_one_page(tmp_path: Path) -> None:
    deaf = next(peer for peer in BROKEN_PEERS if (peer.testee, peer.rule) == ("worker", "WMP-4.9"))
    makes = {
        "good": LibraryWorker.of,
        "deaf": lambda terms: Bent(LibraryWorker.of(terms), deaf.bend(terms=terms)),
    }
    for name, make in makes.items():
        results = run_all(make, cases_for("worker", rules=["WMP-4.9"]))
        entries = tuple(entry_of(result, 1.0) for result in results)
        report = ConformanceReport(
            "worker", name, "./mine {endpoint}", whole=False, entries=entries
        )
        (tmp_path / f"{name}.json").write_text(report.dumps())

    done = play("compare", "good.json", "deaf.json", "--html", "both.html", cwd=tmp_path)

    assert done.returncode == 1
    assert "good, a worker: conforms in part" in done.stdout
    assert re.search(r"deaf, a worker: \d+ rules? broken", done.stdout)
    page = (tmp_path / "both.html").read_text()
    assert page.count('class="implementation ') == 2
    assert "wmp-conformance worker --replay deaf.json --case worker/" in page
    assert "--seed" not in page
    assert play("compare", "good.json", "--html", "one.html", cwd=tmp_path).returncode == 0


def test_cases_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here("device", "--list") == 0
    assert "device/there-and-back" in capsys.readouterr().out


USAGE = [
    ("bogus", r"no such command 'bogus'"),
    ("worker", r"the command line names no worker; add --command"),
    ("worker --command '{bad}' --rule WMP-99.1", r"there is no rule WMP-99.1"),
    (
        "worker --command '{bad}' --rule WMP-1.7",
        r"no case for a worker tests WMP-1.7: the rule is about options",
    ),
    ("worker --command '{bad}' --rule WMP-9.2", r"WMP-9.2: the rule does not bind a worker"),
    ("worker --command '{bad}' --case nothing", r"there is no case nothing for a worker.*--list"),
    ("worker --command ''", r"the command is empty"),
    ("worker --command 'a \"b'", r"cannot split the command .* No closing quotation"),
    ("worker --command './mine'", r"the command lacks \{{endpoint\}}"),
    ("device --command './mine {{bind}}'", r"the command lacks \{{connect\}}"),
    ("worker --command './not-there {{endpoint}}'", r"cannot run .*No such file"),
    ("worker --endpoint 127.0.0.1:5", r"expected tcp://HOST:PORT"),
    ("worker --command '{bad}' --json no/where.json", r"cannot write no/where.json"),
    ("worker --command '{bad}' --profile fast", r"'fast' is not one of 'core'"),
    ("worker --replay junk.json", r"junk.json is not JSON"),
    (
        "worker --replay other.json",
        r"not a report of wmp-conformance; expected a file written by --json",
    ),
    ("worker --replay newer.json", r"a report of version 99; this kit reads 1"),
    ("worker --replay none.json", r"'none.json' does not exist"),
    ("compare --html x.html", r"missing argument 'REPORT"),
]


@pytest.mark.parametrize(("words", "text"), USAGE, ids=lambda value: str(value)[:40])
def test_wrong_usage_is_reported_in_one_line(
    words: str,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "junk.json").write_text("no")
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "newer.json").write_text('{"format": "wmp-conformance", "version": 99}')
    argv = [word.replace("BAD", BAD) for word in shlex.split(words.format(bad="BAD"))]

    assert run_here(*argv) == 2
    stderr = capsys.readouterr().err
    assert re.search(text.format(), stderr), stderr
    assert len(stderr.splitlines()) == 1, stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    ("package", "along"),
    [("click", ""), ("rich", ""), ("hypothesis", ""), ("jinja2", ""), ("jinja2", "markupsafe")],
)
def test_without_the_extra_one_line_names_the_package_to_install(
    package: str, along: str, tmp_path: Path
) -> None:
    code = f"""
        import sys
        for name in {package!r}, {along!r}:
            sys.modules[name] = None
        from wmp_programs import conformance as main
        main()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), "worker", "--list"],
        cwd=tmp_path,
        env=ENVIRON,
        capture_output=True,
        text=True,
        timeout=RUN,
    )

    assert done.returncode == 2
    remedy = "run: pip install 'worker-manager-protocol[conformance]'"
    assert f"{package} is not installed; {remedy}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def alive(pid: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("number", "code"),
    [pytest.param(signal.SIGINT, 130, marks=pytest.mark.deep), (signal.SIGTERM, 143)],
)
def test_no_process_is_left_when_it_is_interrupted(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    words = ("worker", "--command", GOOD, "--unit", "1000", "--at-once", "3", "--json", "o.json")
    with Program(*KIT, *words, cwd=tmp_path, env={"PIDS": str(pids)}) as kit:
        until = time.monotonic() + WAIT
        # The first run shows that the program works; then three programs run at once.
        while not pids.exists() or len(pids.read_text().splitlines()) < 4:
            assert time.monotonic() < until, kit.stderr
            assert kit.process.poll() is None, kit.stderr
            time.sleep(0.05)
        kit.signal(number)
        assert kit.ends() == code, kit.stderr
    started = [int(line) for line in pids.read_text().splitlines()]
    assert not [pid for pid in started if alive(pid)]
    assert "Traceback" not in kit.stderr
    assert json.loads((tmp_path / "o.json").read_text())["whole"] is False


def test_a_worker_that_runs_already(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    worker = (sys.executable, str(HERE / "deaf_worker.py"), "--good")
    with Program(*worker, "--connect", address, "--unit", "200", cwd=ROOT) as running:
        words = ("--endpoint", address, "--unit", "200")
        cases = ("--case", "plain-handshake", "--case", "no-releases")
        done = play("worker", *words, *cases, cwd=tmp_path)

        assert done.returncode == 0, done.stdout + done.stderr
        assert "conforms in part (2 of all cases" in done.stdout
        running.signal(signal.SIGTERM)
        assert running.ends() == 0, running.stderr
