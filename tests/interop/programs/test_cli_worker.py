"""`wmp worker`: functions and commands, endpoints, pools, signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import textwrap

import pytest

import wmp
from tests.interop.programs.forks import ForkedProgram
from tests.interop.programs.forks import wmp as program
from tests.interop.programs.programs import WMP, Program
from tests.waiting import WAIT, wait_until

pytestmark = pytest.mark.interop

WORK = """
    import logging, os, pathlib, time, wmp, wmp.aio

    def shout(payload):
        return payload.upper()

    def where(payload):
        return str(os.getpid())

    def wait(payload):
        here = pathlib.Path(payload.decode())
        here.joinpath("begun").touch()
        while not here.joinpath("go").exists():
            time.sleep(0.01)
        return "waited"

    def log(payload):
        logging.getLogger("mine").info("working on %s", payload)
        logging.getLogger("mine").debug("too much")
        return payload

    handlers = {"shout": shout, "where": where, "wait": wait}

    ready = wmp.Worker("ipc://first", handlers=handlers)
    ready_aio = wmp.aio.Worker("ipc://first", handlers=handlers)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a module ``work``; the working directory, where ipc names begin."""
    (tmp_path / "work.py").write_text(textwrap.dedent(WORK))
    # The names of ipc sockets are short and relative to the folder.
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def manager(folder):
    with wmp.Manager("ipc://first") as manager:
        yield manager


def test_a_command_does_jobs_and_drains_at_sigterm(manager):
    with program("worker", "--role", "wc", "--connect", "ipc://first", "--", "wc", "-w") as worker:
        results = list(manager.map([b"to be", b"or not to be", b""], role="wc", timeout=WAIT))

        assert [int(result) for result in results] == [2, 4, 0]
        worker.wait_for_line("wmp: worker: ready: connected to manager ")
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0
        assert "Traceback" not in worker.stderr


def test_a_failed_command_reports_its_exit_code_and_stderr(manager):
    argv = ("worker", "--connect", "ipc://first", "--", "sh", "-c", "echo oh no >&2; exit 3")
    with program(*argv), pytest.raises(wmp.JobFailed, match=r"exit code 3: oh no$"):
        manager.submit(b"", timeout=WAIT).result()


def test_flags_behind_two_dashes_are_the_commands_own(manager):
    argv = ("worker", "--connect", "ipc://first", "--", "echo", "--role", "x", "--", "--help")
    with program(*argv):
        assert manager.submit(b"", timeout=WAIT).result() == b"--role x -- --help\n"


def test_a_function_is_found_from_the_current_directory(manager):
    with program("worker", "work:shout", "--connect", "ipc://first") as worker:
        assert manager.submit(b"hello", timeout=WAIT).result() == b"HELLO"
        worker.signal(signal.SIGINT)
        assert worker.ends() == 0


def test_a_function_may_have_a_role(manager):
    with program("worker", "work:shout", "--connect", "ipc://first", "--role", "loud"):
        assert manager.submit(b"hello", role="loud", timeout=WAIT).result() == b"HELLO"


def test_a_function_and_a_command_may_have_several_roles(manager):
    roles = ("--connect", "ipc://first", "--role", "one", "--role", "two")
    with program("worker", "work:shout", *roles) as worker:
        for role in ("one", "two"):
            assert manager.submit(b"hello", role=role, timeout=WAIT).result() == b"HELLO"
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0
    with program("worker", *roles, "--", "rev"):
        for role in ("one", "two"):
            assert manager.submit(b"abc", role=role, timeout=WAIT).result().strip() == b"cba"


def test_every_manager_that_answers_is_reported(folder):
    with program("worker", "work:shout", "--connect", "ipc://first") as worker:
        with wmp.Manager("ipc://first", label="the first") as manager:
            worker.wait_for_line("ready: connected to manager the first")
            manager.submit(b"", timeout=WAIT).result()
        worker.wait_for_line("lost the connection to the manager at ipc://first; retrying")
        with wmp.Manager("ipc://first", label="the second"):
            worker.wait_for_line("ready: connected to manager the second")
        assert "misrouted" not in worker.stderr


def test_functions_run_in_processes(manager):
    argv = ("worker", "work:where", "--connect", "ipc://first", "--pool", "process", "--slots", "2")
    with program(*argv) as worker:
        pids = {int(pid) for pid in manager.map([b""] * 50, timeout=WAIT)}

        assert not pids & {os.getpid(), worker.process.pid}
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0


def test_a_mapping_brings_its_roles(manager):
    with program("worker", "work:handlers", "--connect", "ipc://first"):
        assert manager.submit(b"hello", role="shout", timeout=WAIT).result() == b"HELLO"
        assert manager.submit(b"", role="where", timeout=WAIT).result().isdigit()


def test_resources_are_offered(manager):
    argv = ("worker", "work:shout", "--connect", "ipc://first", "--slots", "3")
    with program(*argv, "--resource", "gpu=2", "--resource", "memory=8"):
        needs = {"slots": 3, "gpu": 2, "memory": 8}
        assert manager.submit(b"a", needs=needs, timeout=WAIT).result() == b"A"
        with pytest.raises(wmp.JobTimeout):
            manager.submit(b"a", needs={"gpu": 3}, timeout=0.3).result()


def test_a_ready_made_worker_gets_more_endpoints(manager):
    argv = ("worker", "work:ready", "--connect", "ipc://second")
    with wmp.Manager("ipc://second") as second, program(*argv):
        assert manager.submit(b"one", role="shout", timeout=WAIT).result() == b"ONE"
        assert second.submit(b"two", role="shout", timeout=WAIT).result() == b"TWO"


@pytest.mark.parametrize(
    ("argv", "where"),
    [
        (("--connect", "ipc://first", "--connect", "ipc://2nd"), " at ipc://first, ipc://2nd"),
        (("work:ready",), ""),
        (("work:ready_aio",), ""),
    ],
)
def test_a_worker_gives_up_after_the_wait_without_a_manager(folder, argv, where):
    command = () if argv[0].startswith("work:") else ("--", "rev")
    with program("worker", *argv, "--wait", "0.3", *command) as worker:
        assert worker.ends() == 2
        assert worker.stderr.splitlines()[-1] == (
            f"wmp: no manager answered{where} within 0.3 s; "
            "start a manager there, or wait longer with --wait"
        )
        assert "Traceback" not in worker.stderr


def test_a_worker_gives_up_no_manager_that_is_there_and_ends_behind_the_last(folder):
    argv = ("worker", "work:shout", "--connect", "ipc://first", "--wait", "1.5")
    with wmp.Manager("ipc://first") as manager, program(*argv) as worker:
        worker.wait_for_line("ready: connected to manager")
        with pytest.raises(subprocess.TimeoutExpired):
            worker.process.wait(2.0)
        assert manager.submit(b"hello", timeout=WAIT).result() == b"HELLO"
        manager.close()

        assert worker.ends() == 2
        assert "no manager answered at ipc://first within 1.5 s" in worker.stderr


def test_the_time_that_worker_processes_take_to_start_is_no_waiting(manager, folder):
    (folder / "slow.py").write_text(
        "import multiprocessing, time\n"
        "if multiprocessing.parent_process() is not None:\n"
        "    time.sleep(2.0)\n"
        "from work import shout\n"
        "def handle(payload):\n"
        "    return shout(payload)\n"
    )
    argv = ("worker", "slow:handle", "--connect", "ipc://first", "--pool", "process")
    with program(*argv, "--wait", "1.5") as worker:
        assert manager.submit(b"hello", timeout=WAIT).result() == b"HELLO"
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0


def test_running_jobs_are_finished_at_sigterm(manager, folder):
    with program("worker", "work:handlers", "--connect", "ipc://first") as worker:
        job = manager.submit(str(folder).encode(), role="wait")
        wait_until((folder / "begun").exists)
        worker.signal(signal.SIGTERM)
        worker.wait_for_line("draining")
        (folder / "go").touch()

        assert job.result(WAIT) == b"waited"
        assert worker.ends() == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_stops_at_once(manager, folder, second):
    with program("worker", "work:handlers", "--connect", "ipc://first") as worker:
        manager.submit(str(folder).encode(), role="wait")
        wait_until((folder / "begun").exists)
        worker.signal(signal.SIGTERM)
        worker.wait_for_line("draining")
        worker.signal(second)
        worker.wait_for_line("stopping at once")

        # The worker dropped a job, so the exit code is not 0.
        assert worker.ends() == 128 + second
    manager.close(0)


@pytest.mark.parametrize(
    ("worker", "number"),
    [("handlers", signal.SIGTERM), ("ready", signal.SIGINT), ("ready_aio", signal.SIGTERM)],
)
def test_draining_ends_when_its_time_is_over(manager, folder, worker, number):
    pool = ("--pool", "process") if worker == "handlers" else ()
    argv = ("worker", f"work:{worker}", "--drain-timeout", "0.5", *pool)
    with program(*argv, "--connect", "ipc://first") as worker:
        job = manager.submit(str(folder).encode(), role="wait")
        wait_until((folder / "begun").exists)
        worker.signal(number)
        line = worker.wait_for_line("draining; waiting for at most 0.5 s for 1 job: ")
        assert f"job {job.id} (role 'wait') of " in line
        assert f"job {job.id} (role 'wait')" in worker.wait_for_line(
            "the drain timeout of 0.5 s ended"
        )
        assert worker.ends() == 128 + number
        assert "Traceback" not in worker.stderr
    (folder / "go").touch()
    with program("worker", "work:handlers", "--connect", "ipc://first"):
        assert job.result(WAIT) == b"waited"


def test_draining_in_time_is_a_good_end(manager, folder):
    argv = ("worker", "work:handlers", "--connect", "ipc://first", "--drain-timeout", "1e9")
    with program(*argv) as worker:
        job = manager.submit(str(folder).encode(), role="wait")
        wait_until((folder / "begun").exists)
        worker.signal(signal.SIGTERM)
        worker.wait_for_line("draining; waiting for at most 1e+09 s for 1 job")
        (folder / "go").touch()
        assert job.result(WAIT) == b"waited"
        assert worker.ends() == 0


def test_a_signal_while_handlers_are_imported_is_not_forgotten(folder):
    (folder / "slow.py").write_text(
        "import pathlib, time\n"
        "def shout(payload): return payload.upper()\n"
        "if __name__ == 'slow' and pathlib.Path('main').exists():\n"
        "    pathlib.Path('begun').touch()\n"
        "    while not pathlib.Path('go').exists(): time.sleep(0.01)\n"
        "pathlib.Path('main').touch()\n"
    )
    argv = ("worker", "slow:shout", "--connect", "ipc://first", "--pool", "process")
    with program(*argv) as worker:
        wait_until((folder / "begun").exists)  # the process of the pool imports the module
        worker.signal(signal.SIGTERM)
        worker.wait_for_line("draining")
        (folder / "go").touch()

        assert worker.ends() == 0


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:*", "ipc://here"])
def test_the_end_of_a_killed_worker_is_noticed_by_its_connection(folder, endpoint):
    # With this `max_silence` the manager would notice the silence too late for the test.
    with wmp.Manager(endpoint, max_silence=300.0, reconnect_grace=0.1) as manager:
        with program("worker", "work:wait", "--connect", *manager.endpoints) as worker:
            job = manager.submit(str(folder), max_worker_losses=0)
            wait_until((folder / "begun").exists)
            worker.signal(signal.SIGKILL)
            with pytest.raises(wmp.WorkerLost) as lost:
                job.result(WAIT)
        assert lost.value.cause == "the connection ended"


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_lines_that_handlers_log_name_the_time_and_the_job(manager, pool):
    with program("worker", "work:log", "--pool", pool, "--connect", "ipc://first") as worker:
        assert manager.submit(b"one").result(WAIT) == b"one"
        line = worker.wait_for_line("working on")
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d job 1 \(default\) INFO mine: working on b'one'", line
        )
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0
        assert "too much" not in worker.stderr


def test_a_manager_is_reported_before_its_end(folder):
    with program("worker", "work:shout", "--connect", "ipc://first") as worker:
        for count in (1, 2, 3):
            with wmp.Manager("ipc://first") as manager:
                assert manager.submit(b"one").result(WAIT) == b"ONE"
            worker.wait_for_count("lost the connection", count)
        lines = [line for line in worker.stderr.splitlines() if "ready:" in line or "lost" in line]
        assert ["ready:" in line for line in lines] == [True, False] * 3


@pytest.mark.deep
@pytest.mark.parametrize("name", ["ready:worker", "ready:worker_aio", "changing:work"])
def test_a_watched_worker_starts_again_when_its_module_changes(manager, folder, name):
    def write(result: str) -> None:
        # Python compares the size and the time of a source file with those of its compiled file.
        path.write_text(f"import wmp, wmp.aio\ndef work(payload): return {result!r}\n{more}")

    path = folder / f"{name.partition(':')[0]}.py"
    more = "worker = wmp.Worker('ipc://first', handlers=work)\n"
    more += "worker_aio = wmp.aio.Worker('ipc://first', handlers=work)\n"
    write("one")
    connect = ("--connect", "ipc://first")
    with Program(*WMP, "worker", name, "--watch", *connect, cwd=folder) as worker:
        assert manager.submit(b"", timeout=WAIT).result() == b"one"
        path.write_text("def work(:\n")
        worker.wait_for_line("cannot be compiled")
        write("second")
        worker.wait_for_line("replacing this process")
        wait_until(lambda: manager.submit(b"", timeout=WAIT).result() == b"second")
        path.write_text("import nothing_of_that_name\n")
        worker.wait_for_line("waiting for a change")
        write("the third")
        wait_until(lambda: manager.submit(b"", timeout=WAIT).result() == b"the third")
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0


def test_flags_come_from_the_environment_and_a_file(manager, folder):
    (folder / "wmp.toml").write_text('[worker]\ntarget = "work:shout"\nrole = ["loud"]\n')
    env = {"WMP_WORKER_CONNECT": "ipc://first", "WMP_CONFIG": "wmp.toml"}
    with ForkedProgram(*WMP, "worker", "--log-format", "json", env=env) as worker:
        job = manager.submit(b"hello", role="loud", timeout=WAIT)
        assert job.result() == b"HELLO"
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0
        lines = [json.loads(line) for line in worker.stderr.splitlines()]
        assert {"time", "level", "logger", "message"} <= set(lines[0])


def test_a_flag_of_the_environment_cannot_change_a_ready_made_worker(folder):
    env = {"WMP_WORKER_SLOTS": "3"}
    with ForkedProgram(*WMP, "worker", "work:ready", env=env) as worker:
        assert worker.ends() == 2
        assert "leave out --slots of the environment" in worker.stderr


def test_only_the_module_of_a_function_is_watched(folder):
    with program("worker", "--watch", "--", "cat") as worker:
        assert worker.ends() == 2
        assert "--watch is for the module of a function" in worker.stderr
