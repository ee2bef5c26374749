"""Unix commands as handlers, with real processes."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import wmp
from tests.waiting import WAIT
from wmp.errors import ConfigError, JobCancelled
from wmp.runtime.executors.handlers import RunningJob, serve
from wmp.runtime.node.command import CommandFailed, CommandHandler

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Unix commands")


class Host:
    def __init__(self) -> None:
        self.cancelled: set[int] = set()

    def report(self, job: RunningJob, fraction: float | None, text: str | None) -> None: ...


def make_job(host: Host, left: float | None = None) -> RunningJob:
    deadline = None if left is None else time.monotonic() + left
    return RunningJob(host, 1, 1, b"m", "command", deadline)


@pytest.fixture
def host() -> Host:
    return Host()


def test_payload_is_stdin_and_stdout_is_the_result(host: Host) -> None:
    handler = CommandHandler(["tr", "a-z", "A-Z"])
    assert handler(b"abc", make_job(host)) == b"ABC"
    assert serve("tr", handler).takes_job


@pytest.mark.parametrize(
    ("payload", "output", "result"),
    [
        (b"\xff", None, b"\xff"),
        ("é", None, "é"),
        ("é", "bytes", "é".encode()),
        (b"[1]", "json", [1]),
        ({"a": [1, None]}, None, '{"a":[1,null]}'),
        ({"a": [1, None]}, "json", {"a": [1, None]}),
        (7, "json", 7),
        (None, "text", "null"),
        ((1, 2), "text", "[1,2]"),
        ([b"\xff"], None, b"\xff"),
    ],
)
def test_a_payload_that_is_no_bytes_is_text_or_json(
    host: Host, payload: Any, output: Any, result: Any
) -> None:
    handler = CommandHandler(["cat"], output)
    reply = pickle.loads(pickle.dumps(handler))(payload, make_job(host))
    assert (type(reply), reply) == (type(result), result)


@pytest.mark.parametrize(
    ("payload", "output", "error"),
    [
        ({"a": b"x"}, None, "cannot be written to the stdin of cat: .*submit bytes, text, or a"),
        ([b"a", b"b"], None, "a payload of type list cannot be written"),
        ({1.5: 2}, None, "a dict with a key of type float"),
        (b"\xff", "text", "stdout is not UTF-8 at byte 0; .*--output bytes"),
        (b"{", "json", "stdout is not one JSON value: .*--output text"),
        (b"", "json", "stdout is not one JSON value"),
        (b"NaN", "json", "stdout is not one JSON value: .*NaN is not a"),
    ],
)
def test_what_stdin_or_the_result_cannot_carry_is_named(
    host: Host, payload: Any, output: Any, error: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        CommandHandler(["cat"], output)(payload, make_job(host))


def test_an_unknown_output_is_refused() -> None:
    with pytest.raises(ConfigError, match="output is 'yaml'; expected json, text, bytes"):
        CommandHandler(["cat"], "yaml")  # type: ignore[arg-type]


@pytest.mark.interop
@pytest.mark.parametrize("codec", ["bytes", "text", "json", "cbor", "cbor-tags", "frames"])
def test_a_command_does_the_jobs_of_every_codec(codec: str) -> None:
    with (
        wmp.Manager(codec=codec) as manager,
        wmp.Worker(*manager.endpoints, handlers=CommandHandler(["tr", "a-z", "A-Z"])),
    ):
        if codec not in ("text", "json"):
            result = manager.submit(b"hi").result(WAIT)
            assert result == ([b"HI"] if codec == "frames" else b"HI")
        if codec not in ("bytes", "frames"):
            assert manager.submit("hi").result(WAIT) == "HI"
        if codec in ("json", "cbor", "cbor-tags"):
            assert manager.submit({"a": 1}).result(WAIT) == '{"A":1}'


def test_more_than_a_pipe_holds_goes_both_ways(host: Host) -> None:
    data = os.urandom(3 << 20)
    assert CommandHandler(["cat"])(data, make_job(host)) == data


def test_a_command_that_takes_its_time_gets_all_of_its_input(host: Host, tmp_path: Path) -> None:
    """The delay is longer than two polls of the cancelled flag."""
    data = os.urandom(3 << 20)
    assert CommandHandler(["sh", "-c", "sleep 0.3; cat"])(data, make_job(host)) == data


def test_a_command_that_does_not_read_its_input_is_no_error(host: Host) -> None:
    assert CommandHandler(["true"])(b"x" * (1 << 20), make_job(host)) == b""


def test_a_non_zero_exit_reports_command_code_and_the_end_of_stderr(host: Host) -> None:
    script = "import sys; sys.stderr.write('x' * 5000 + 'the end'); sys.exit(3)"
    with pytest.raises(CommandFailed, match="exit code 3") as caught:
        CommandHandler([sys.executable, "-c", script])(b"", make_job(host))
    text = str(caught.value)
    assert text.startswith(sys.executable)
    assert text.endswith("xthe end")
    assert text.count("x" * 2000) == 1
    assert "x" * 2049 not in text
    assert caught.value.returncode == 3


def test_a_signal_is_named(host: Host) -> None:
    with pytest.raises(CommandFailed, match="killed by SIGKILL"):
        CommandHandler(["sh", "-c", "kill -9 $$"])(b"", make_job(host))


def test_a_command_that_cannot_run_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="'no-such-command-anywhere' was not found"):
        CommandHandler(["no-such-command-anywhere"])
    with pytest.raises(ConfigError, match="the command is empty"):
        CommandHandler([])
    with pytest.raises(ConfigError, match="expected a list"):
        CommandHandler("wc -l")


def spawning(fifo: Path) -> CommandHandler:
    """A command that ignores SIGTERM, with a child that ignores it too; both hold ``fifo`` open."""
    os.mkfifo(fifo)
    script = f"trap '' TERM; exec 3>'{fifo}'; echo up >&3; sleep 600 & sleep 600"
    return CommandHandler(["sh", "-c", script])


def test_cancelling_kills_the_whole_process_group(host: Host, tmp_path: Path) -> None:
    handler = spawning(tmp_path / "fifo")
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(handler, b"", make_job(host))
        with open(tmp_path / "fifo", "rb") as fifo:
            assert fifo.readline() == b"up\n"
            host.cancelled.add(1)
            # The file ends when the last process that holds the other end is gone.
            assert fifo.read() == b""
        with pytest.raises(JobCancelled):
            result.result(WAIT)


def test_the_deadline_kills_it(host: Host) -> None:
    with pytest.raises(CommandFailed, match="the job timed out"):
        CommandHandler(["sleep", "600"])(b"", make_job(host, left=0.2))


def test_many_commands_run_at_once_and_a_failure_disturbs_no_other(host: Host) -> None:
    barrier = threading.Barrier(16)

    def run(number: int) -> bytes:
        handler = CommandHandler(["sh", "-c", f"test {number} != 7 && cat"])
        barrier.wait(WAIT)
        return handler(b"%d" % number, make_job(host))

    with ThreadPoolExecutor(16) as threads:
        results = [threads.submit(run, number) for number in range(16)]
        for number, result in enumerate(results):
            if number == 7:
                assert isinstance(result.exception(30), CommandFailed)
            else:
                assert result.result(WAIT) == b"%d" % number


def test_a_ctrl_c_at_the_terminal_does_not_reach_it(host: Host) -> None:
    script = "import os; print(os.getpgid(0) == os.getpid())"
    assert CommandHandler([sys.executable, "-c", script])(b"", make_job(host)) == b"True\n"
