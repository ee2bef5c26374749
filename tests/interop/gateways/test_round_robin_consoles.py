"""The consoles of round robin: as commands, and typed into pseudo-terminals."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import sys
import threading
import time
from contextlib import ExitStack

import pytest

from tests.interop.programs.forks import forks
from tests.interop.programs.programs import ENVIRON
from tests.waiting import WAIT, wait_until
from wmp.cli.program import command
from wmp.cli.round_robin import _many
from wmp.errors import ClosedError, ConfigError, NoReply
from wmp.gateways import RoundRobinClient, RoundRobinServer, RoundRobinWorker, pack_stream

pytestmark = pytest.mark.interop

HANDLERS = {0x01: lambda frames: b"", 0x0A: lambda frames: pack_stream(int(frames[2]))}


@pytest.fixture
def server():
    with RoundRobinServer("tcp://127.0.0.1:*") as server:
        yield server


def run(capsys, *arguments: str) -> tuple[int, list[str]]:
    """Run a console in this process; return the exit code and the lines of stdout."""
    code = command.main(["round-robin", *arguments], "wmp", standalone_mode=False)
    return code, capsys.readouterr().out.splitlines()


def test_a_client_is_scriptable(server, capsys, monkeypatch):
    address = server.addresses[0]
    with RoundRobinWorker(address, HANDLERS):
        script = "ping; pingt; data; bulkping 20; bulkdata 12"
        code, lines = run(capsys, "client", "-d", "0", "--json", "--do", script, address)
        rows = [json.loads(line) for line in lines]
        assert code == 0
        assert [row["command"] for row in rows] == script.replace(" 20", "").replace(
            " 12", ""
        ).split("; ")
        assert rows[2]["bytes"] == 1024
        assert rows[3] == {"command": "bulkping", "type": "PING", "total": 20, "success": 20}

        monkeypatch.setattr(sys, "stdin", io.StringIO("bulkping 20\nquit\nping\n"))
        code, lines = run(capsys, "client", "-d", "0", address)
        assert code == 0
        assert lines[:2] == ["PING: 2 of 20", "PING: 4 of 20"]
        assert lines[-2].split() == ["type", "#", "total", "#", "success"]
        assert lines[-1].split() == ["PING", "20", "20"]


def test_a_worker_has_nine_children_and_deregisters(server, capsys, monkeypatch):
    address = server.addresses[0]
    rows = []

    def read():
        for line in ("bulk", "register", "register", "bulk", "look", "endbulk", "look"):
            if line == "look":
                rows.append(len(server.table()))
            else:
                yield line
        wait_until(lambda: len(server.table()) == 1)
        yield "deregister"
        wait_until(lambda: not server.table())
        yield "what"

    monkeypatch.setattr(sys, "stdin", read())
    monkeypatch.setattr("wmp.cli.common.console._is_terminal", lambda: False)
    code, lines = run(capsys, "worker", "-d", "5", "--slots", "3", address)
    assert code == 1
    assert rows[0] == 10
    assert lines[0] == "error: this worker is not registered; use register before bulk"
    assert lines[1] == "registered with 3 slots"
    assert lines[2].startswith("error: this worker is registered")
    assert lines[3] == "started 9 child workers; 10 workers in all"
    assert lines[4:13] == [f"child {n}: no message" for n in range(1, 10)]
    assert lines[13:15] == ["ended 9 child workers", "deregistered"]
    assert lines[15] == (
        "error: there is no command 'what'; expected one of register, deregister, bulk, endbulk, "
        "wait, help, quit"
    )


def test_a_server_shows_its_table_and_its_queue(capsys):
    code, lines = run(
        capsys, "server", "-d", "0", "--do", "workers; queue; workers 1", "tcp://127.0.0.1:*"
    )
    assert code == 1
    assert lines == [
        "0 workers",
        "0 queued, 0 in progress, 0 dropped",
        lines[2],
    ]
    assert lines[2] == (
        "error: the command workers got 1 argument; expected 0: workers: Show the table: the "
        "address and the free slots of each worker."
    )


def test_help_lists_the_commands_with_their_arguments(capsys):
    code, lines = run(capsys, "client", "-d", "0", "--do", "help; bulkping; bulkping no")
    assert code == 1
    assert lines[:7] == [
        "ping: Send an EXEC PING, which has no answer.",
        "pingt: Send a TRACKEXEC PING, and wait for the answer.",
        "data: Ask for a STREAM of 1024 bytes.",
        "bulkping N: Send N TRACKEXEC PINGs, ten at a time.",
        "bulkdata N: Ask for N STREAMs, ten at a time.",
        "help: List the commands.",
        "quit: End this console, as the end of input does.",
    ]
    assert lines[7:] == [
        "error: the command bulkping got 0 arguments; expected 1: " + lines[3],
        "error: the number of messages is 'no'; expected 1 or more",
    ]


def test_sigterm_ends_a_console_with_the_exit_code_of_shells(server, capsys, monkeypatch):
    def read():
        yield "workers"
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(sys, "stdin", read())
    monkeypatch.setattr("wmp.cli.common.console._is_terminal", lambda: False)
    code, lines = run(capsys, "server", "-d", "0", "tcp://127.0.0.1:*")
    assert (code, lines) == (143, ["0 workers"])


def test_a_server_open_to_the_network_needs_keys_or_a_flag(capsys):
    with pytest.raises(ConfigError, match="add --open to serve"):
        run(capsys, "server", "-d", "0", "--do", "workers", "tcp://0.0.0.0:6714")


def test_a_server_may_have_workers_of_wmp(capsys):
    bind = ("--bind", "tcp://127.0.0.1:*")
    code, lines = run(capsys, "server", "-d", "1", *bind, "--do", "workers", "tcp://127.0.0.1:*")
    assert code == 0
    assert lines[0].startswith("clients and workers connect to tcp://127.0.0.1:")
    assert lines[1].startswith("WMP workers connect to tcp://127.0.0.1:")


# -- commands, errors and levels


@pytest.mark.parametrize(
    ("level", "ping", "summaries"), [("0", [], 0), ("1", ["did PING"], 0), ("5", ["did PING"], 2)]
)
def test_a_worker_shows_what_its_level_names(server, capsys, monkeypatch, level, ping, summaries):
    address = server.addresses[0]
    monkeypatch.setattr("wmp.cli.round_robin._CHILDREN", 2)

    def read():
        yield "register"
        with RoundRobinClient(address) as client:
            client.call(0x01)
        yield "bulk; endbulk"

    monkeypatch.setattr(sys, "stdin", read())
    monkeypatch.setattr("wmp.cli.common.console._is_terminal", lambda: False)
    code, lines = run(capsys, "worker", "-d", level, address)
    assert code == 0
    children = [f"child {n}: no message" for n in range(1, summaries + 1)]
    assert lines == [
        "registered with 10 slots",
        *ping,
        "started 2 child workers; 3 workers in all",
        *children,
        "ended 2 child workers",
    ]


def test_an_error_is_shown_at_every_level(capsys):
    for level in ("0", "1", "5"):
        code, lines = run(capsys, "worker", "-d", level, "--do", "bulk")
        assert code == 1
        assert lines == ["error: this worker is not registered; use register before bulk"]


@pytest.mark.parametrize("flags", [("-d", "0"), ("-d", "1", "--json"), ("-d", "1")])
def test_a_server_describes_messages_only_if_they_are_shown(capsys, monkeypatch, flags):
    servers = {}

    def make(*bind, **settings):
        servers.update(settings)
        return RoundRobinServer(*bind)

    monkeypatch.setattr("wmp.cli.round_robin.RoundRobinServer", make)
    run(capsys, "server", *flags, "--name", "here", "--do", "workers", "tcp://127.0.0.1:*")
    assert (servers["watch"] is not None) is (flags == ("-d", "1"))
    assert servers["name"] == "here"


@pytest.mark.parametrize("answer", [[], [b"a", b"b"], [b"a"]])
def test_an_answer_of_another_form_is_an_error_of_the_command(server, capsys, answer):
    address = server.addresses[0]
    with RoundRobinWorker(address, {0x0A: lambda frames: answer or b""}):
        code, lines = run(capsys, "client", "-d", "0", "--do", "data; bulkdata 2", address)
    assert code == 1
    expected = (
        "a stream of 1 bytes has no head"
        if len(answer) == 1
        else f"STREAM was answered by {len(answer)} frames; expected 1"
    )
    assert lines[0].startswith(f"error: {expected}")
    assert lines[-1].split() == ["STREAM", "2", "0"]


def test_bulk_keeps_ten_messages_in_flight_and_counts_only_successes():
    full, lock = threading.Barrier(10), threading.Lock()
    now = maximum = calls = 0

    def act() -> int:
        nonlocal now, maximum, calls
        with lock:
            now, calls = now + 1, calls + 1
            maximum, call = max(maximum, now), calls
        full.wait(WAIT)
        with lock:
            now -= 1
        if call % 3 == 0:
            raise ClosedError("closed")
        if call % 5 == 0:
            raise NoReply("none")
        return 0

    reported: list[int] = []
    # 3, 6, 9, 12, 15, 18 and 5, 10, 20 fail.
    assert _many(act, 20, reported.append) == 11
    assert maximum == 10
    assert reported == list(range(2, 21, 2))


def test_a_defect_in_bulk_is_no_outcome():
    def act() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        _many(act, 3, lambda n: None)


def test_a_bulk_that_fails_leaves_no_child_behind(capsys, monkeypatch):
    running = []

    class Fake:
        def __init__(self, *arguments, **settings):
            pass

        def start(self):
            if len(running) == 4:
                raise NoReply("no answer")
            running.append(self)

        def close(self):
            running.remove(self)

    def read():
        yield "register; bulk"
        yield f"{len(running)} run"

    monkeypatch.setattr("wmp.cli.round_robin.RoundRobinWorker", Fake)
    monkeypatch.setattr(sys, "stdin", read())
    monkeypatch.setattr("wmp.cli.common.console._is_terminal", lambda: False)
    code, lines = run(capsys, "worker", "-d", "0")
    assert code == 1
    assert lines[:2] == ["registered with 10 slots", "error: no answer"]
    assert lines[2].startswith("error: there is no command '1'")
    assert running == []


# -- the session of the description


class Typed:
    """A console at a pseudo-terminal."""

    def __init__(self, kind: str, level: int, address: str) -> None:
        self._end, other = pty.openpty()
        self._kind = kind
        self._shown = ""
        """Output since the last text that was expected."""
        program = "import sys; from wmp_programs import wmp; sys.argv[:] = sys.argv[1:]; wmp()"
        arguments = ("wmp", "round-robin", kind, "-d", str(level), address)
        environment = {**ENVIRON, "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm"}
        self.process = forks().start(
            *(sys.executable, "-c", program, *arguments),
            env=environment,
            input=other,
            output=other,
            errors=other,
        )
        os.close(other)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(WAIT)
        os.close(self._end)

    def type(self, line: str, *expected: str) -> None:
        """Type a line; wait for patterns that follow, in this order."""
        os.write(self._end, line.encode() + b"\r")
        for pattern in expected:
            self.expect(pattern)

    def complete(self, start: str, command: str) -> None:
        """Type the start of a command and Tab; wait for the rest."""
        os.write(self._end, start.encode() + b"\t")
        # The line is drawn anew, or the rest of the command behind its start.
        self.expect(f"{command}|{command.removeprefix(start)}")

    def expect(self, pattern: str) -> None:
        """Wait until the console shows a pattern, behind the texts that were expected before."""
        end = time.monotonic() + WAIT
        while (match := re.search(pattern, self._shown)) is None:
            ready, _, _ = select.select([self._end], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"the {self._kind} shows no {pattern!r}, but {self._shown!r}"
            read = os.read(self._end, 65536).decode(errors="replace")
            self._shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", read)
        self._shown = self._shown[match.end() :]

    def quit(self) -> None:
        self.type("quit")
        assert self.process.wait(WAIT) == 0

    def end_input(self) -> None:
        """Type Ctrl-D, which ends the input."""
        os.write(self._end, b"\x04")
        assert self.process.wait(WAIT) == 0


@pytest.fixture
def consoles():
    """The three consoles at terminals of their own, and the address of the server."""
    with RoundRobinServer("tcp://127.0.0.1:*") as free:
        address = free.addresses[0]
    with ExitStack() as stack:
        consoles = [
            Typed(kind, level, address)
            for kind, level in (("server", 1), ("worker", 5), ("client", 1))
        ]
        for console in consoles:
            stack.callback(console.close)
        for console, kind in zip(consoles, ("server", "worker", "client"), strict=True):
            console.expect(f"{kind}>")
        yield (*consoles, re.escape(address))


def test_a_short_session_with_history_and_completion(consoles):
    server, worker, client, address = consoles
    row = rf"{address}:\d+  free slots 10 of 10\n"
    worker.type("register", "registered with 10 slots")
    server.expect("TRACKEXEC REGISTER from")
    server.complete("wor", "workers")
    server.type("", row, "1 worker\n")
    server.type("\x1b[A", row, "1 worker\n")  # the line before
    client.type("pingt", r"TRACKEXEC PING was answered in \d+\.\d ms")
    worker.expect("did PING")
    worker.complete("endb", "endbulk")
    worker.type("", "error: no children run; use bulk first")
    worker.quit()
    server.expect("EXEC DEREGISTER from")
    server.type("workers", r"(?<!\d)0 workers\n")
    server.quit()
    client.end_input()


@pytest.mark.deep
def test_the_session_of_the_description_typed_into_three_consoles(consoles):
    server, worker, client, address = consoles
    row = rf"{address}:\d+  free slots 10 of 10\n"
    worker.type("register", "registered with 10 slots")
    server.expect("TRACKEXEC REGISTER from")
    server.expect("RESPONSE to")
    server.type("workers", rf"{row}1 worker\n")
    client.type("pingt", r"TRACKEXEC PING was answered in \d+\.\d ms")
    server.expect("TRACKEXEC of command 01 from")
    server.expect("TRACKEXEC of command 01 to")
    server.expect("RESPONSE from")
    server.expect("RESPONSE to")
    server.expect("EXEC INCREMENT from")
    worker.expect("did PING")
    client.type("ping", "sent EXEC PING")
    server.expect(r"(?<!TRACK)EXEC of command 01 from")
    server.expect(r"(?<!TRACK)EXEC of command 01 to")
    worker.expect("did PING")
    server.expect("EXEC INCREMENT from")
    worker.type("bulk", "started 9 child workers; 10 workers in all")
    for _ in range(9):
        server.expect("TRACKEXEC REGISTER from")
    server.type("workers", rf"({row}){{10}}10 workers\n")
    marks = [f"{{}}: {n} of 100\n" for n in range(10, 101, 10)]
    head = r"type +# total +# success\n"
    client.type("bulkping 100", *(mark.format("PING") for mark in marks), head)
    client.expect(r"PING +100 +100\n")
    client.type("bulkdata 100", *(mark.format("STREAM") for mark in marks), head)
    client.expect(r"STREAM +100 +100\n")
    counts = r"PING \d+ \(\d+ done\), STREAM \d+ \(\d+ done\)\n"
    summaries = [rf"child {n}: {counts}" for n in range(1, 10)]
    worker.type("endbulk", *summaries, "ended 9 child workers")
    for _ in range(9):
        server.expect("EXEC DEREGISTER from")
    server.type("workers", rf"{row}1 worker\n")
    worker.type("deregister", "deregistered")
    server.expect("EXEC DEREGISTER from")
    server.type("workers", r"(?<!\d)0 workers\n")
    worker.quit()
    server.quit()
    client.quit()
