"""Every example runs unchanged, and prints the expected output."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import signal
import sys

import pytest

from tests.interop.programs.forks import ForkedProgram, wmp
from tests.interop.programs.programs import ROOT

pytestmark = pytest.mark.interop

FOLDER = ROOT / "examples"

# The expected output of each example; an example without an entry fails.
SAYS = {
    "binary_star.py": (
        r"one from the primary\ntwo from the backup\nthree from the backup",
        r"the backup is active",
    ),
    "cancel_and_status.py": (
        r"more than half of the job is done: step \d+ of 20",
        r"done: 20 steps",
        r"cancelled: ",
        r"timed out: ",
        r"failed: ZeroDivisionError: division by zero",
    ),
    "drive_the_core.py": (r"manager ── TAKE, \d+ bytes", r"job 3 ended ok: TO BE", r"── BYE"),
    "flaky_handler.py": (
        r"a was fetched in attempt 3\nb was fetched in attempt 3",
        r"hello, Ada",
        r"failed: ConnectionError: no route to the server; attempts \[1, 2\]",
        r"hello, Bob\nfailed: Reject: the name of the page is empty\nhello, Eve",
    ),
    "forwarding.py": (r"evil", r"all 300 jobs ended, with the results reward"),
    "freelance_agent.py": (r"HELLO\nservers that are alive: 1\nrequests sent again: 1",),
    "freelance_failover.py": (
        r"one from the first server\ntwo from the second server\nthree from the second server",
        r"requests sent again: 1",
    ),
    "freelance_shotgun.py": (
        r"one after 0 s\ntwo after 0 s\nthree after 0 s",
        r"requests at the slow server: 3",
    ),
    "hello.py": (r"hello, world",),
    "is_it_repeatable.py": (
        r"test_pay: paid twice: order-\d",
        r"test_pay_if_unknown: paid twice: order-\d",
        r"the handler is stopped before line \d+ of is_it_repeatable.py, in pay_if_unknown\(\)",
        r"test_pay_by_number: passed in 50 simulated networks",
    ),
    "lazy_pirate.py": (
        r"server replied OK \(1\)",
        r"server replied OK \(5\)",
        r"5 requests, sent 5 times in all",
    ),
    "manager_pair.py": (
        r"orders-a serves: ONE\norders-b refuses: the manager is on standby",
        r"orders-b serves: FOUR\nthe job of orders-a: THREE",
    ),
    "move_a_queue.py": (
        r"1\. the gateway has taken the place of the queue",
        r"2\. WMP workers have taken the place of the Pirate workers",
        r"3\. a manager asks for itself: HELLO\nall 300 requests have their replies",
    ),
    "own_policy.py": (r"worker far did \d jobs", r"worker near did (1\d|20) jobs"),
    "pandas_frames.py": (
        r"10 jobs returned 10000 rows; the type of days is datetime64\[[nu]s\]",
        r"2026-01-07 +\d+\.\d",
    ),
    "paranoid_pirate.py": (r"worker ready", r"server replied OK \(5\)"),
    "ping_pong.py": (r"worker ready", r"server replied OK \(5\)"),
    "pirate_clients.py": (
        r"one became One\ntwo became Two\nthree became Three",
        r"the door sent 3 replies",
    ),
    "pirate_worker.py": (
        r"one became ONE\ntwo became TWO\nthree became THREE",
        r"the worker sent 3 replies",
    ),
    "process_pool.py": (r"168 primes below 1000", r"[12] worker processes counted them"),
    "majordomo.py": (
        r"echo: Hello world\nseat 1 for ada\nseat 1 for ada\nseat 2 for ada",
        r"sum of the replies: 499500",
        r"is there a service: True False",
    ),
    "roles_and_resources.py": (
        r"model 9 was trained",
        r"at most [12] models were trained at the same time",
    ),
    "round_robin.py": (r"slots: \[1, 2\]", r"last answer: MESSAGE 29\nmessages: 30"),
    "simple_pirate.py": (r"worker ready", r"server replied OK \(5\)"),
    "spread.py": (r"the first 10000 squares is 333283335000", r"a worker did \d+ jobs"),
    "stored_jobs.py": (
        r"bob's job: still open",
        r"joined: hello, bob\njoined: hello, eve",
        r"bob's job: hello, bob$",
    ),
    "through_a_device.py": (
        r"evil",
        r"all 100 jobs ended, with the results reward",
        r"passed on \d+ messages",
    ),
    "unix_command.py": (r"cat\nbee\nant\n", r"exit code 3: this goes wrong"),
    "with_asyncio.py": (r"one page was too slow", r"300 pages", r"a was fetched\nb was fetched"),
}


NEEDS = {"pandas_frames.py": ("pyarrow", "pandas")}
"""The packages that an example needs besides those of the tests. The lane of Spark has them."""


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.py")))
def test_an_example_runs_and_prints_the_expected_lines(name, tmp_path, forks):
    for package in NEEDS.get(name, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}")
    process = forks.run(sys.executable, "-W", "error", str(FOLDER / name), cwd=tmp_path)

    assert process.returncode == 0, process.stderr
    assert "Traceback" not in process.stderr
    for line in SAYS[name]:
        assert re.search(line, process.stdout), process.stdout


SECONDS = ("0.1", "0.5", "2.5")
"""Lengths of a second of the guide, the shortest first. On a busy machine a client may give up
before a worker has crashed; then the programs run again, with longer seconds."""

MISBEHAVING = ("simple_pirate.py", "lazy_pirate.py", "paranoid_pirate.py", "ping_pong.py")


@pytest.mark.deep
@pytest.mark.parametrize("name", MISBEHAVING)
def test_the_workers_of_the_guide_die_one_by_one_and_the_client_gives_up(name, tmp_path, forks):
    for second in SECONDS:
        options = ("--misbehave", "--second", second)
        process = forks.run(sys.executable, str(FOLDER / name), *options, cwd=tmp_path)
        assert process.returncode == 0, process.stderr
        if "I: server replied OK (3)\n" in process.stdout:
            break
    replies, _, rest = process.stdout.partition("E: server seems to be offline, abandoning\n")
    assert "I: server replied OK (3)\n" in replies
    assert replies.count("W: no response from server, retrying...") >= 2
    assert "server replied OK" not in rest
    assert process.stdout.count("simulating a crash") <= 4


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("paranoid_pirate.py", None),
        pytest.param("paranoid_pirate.py", "--paranoid-pirate", marks=pytest.mark.deep),
        pytest.param("simple_pirate.py", "--simple-pirate", marks=pytest.mark.deep),
        pytest.param("ping_pong.py", "--ping-pong", marks=pytest.mark.deep),
    ],
)
def test_the_script_of_the_guide_with_a_queue_four_workers_and_a_client(name, flag, tmp_path):
    for second in SECONDS:
        folder = tmp_path / second
        folder.mkdir()
        output, workers = story_of_the_guide(name, flag, second, folder)
        assert output.endswith("E: server seems to be offline, abandoning\n")
        if "I: server replied OK (3)\n" in output and "simulating" in workers:
            break
    else:
        pytest.fail(f"with seconds of {second} s, the workers are too slow: {output}\n{workers}")
    assert output.count("W: no response from server, retrying...") >= 2


def story_of_the_guide(name, flag, second, folder):
    """Let a queue, four workers and a client run until the client gives up; return the output of
    the client, and that of the workers."""
    addresses = ("ipc://front", "ipc://back")
    options = ("--misbehave", "--second", second, "--front", addresses[0], "--back", addresses[1])

    def part(which):
        return ForkedProgram(sys.executable, str(FOLDER / name), which, *options, cwd=folder)

    with contextlib.ExitStack() as stack:
        queue = stack.enter_context(
            part("queue") if flag is None else wmp("gateway", flag, *addresses, cwd=folder)
        )
        workers = [stack.enter_context(part("worker")) for _ in range(4)]
        for worker in workers:
            worker.wait_for_line("worker ready", on="stdout")
        client = stack.enter_context(part("client"))
        assert client.ends() == 0
        assert queue.process.poll() is None  # the queue never stops
        queue.signal(signal.SIGTERM)
        assert queue.ends() == 0

        for worker in workers:
            worker.process.kill()  # a worker may be slow instead of dead
            worker.ends()
        said_by_workers = b"".join(worker.stdout for worker in workers)
        return client.stdout.decode(), said_by_workers.decode()


def test_the_list_of_examples_is_complete():
    listed = re.findall(r"\]\((\w+\.py)\)", (FOLDER / "README.md").read_text(encoding="utf-8"))

    assert sorted(listed) == sorted(SAYS)
    assert sorted(listed) == sorted(path.name for path in FOLDER.glob("*.py"))
