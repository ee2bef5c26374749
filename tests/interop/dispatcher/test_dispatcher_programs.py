"""``wmp dispatcher`` and its workers as processes: the lines of the example, and kills."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.interop.dispatcher.dispatcher_kills import KillRun
from tests.interop.programs.programs import ENVIRON, ROOT, Program, wmp
from tests.waiting import RUN, WAIT

pytestmark = pytest.mark.interop

EXAMPLE = ROOT / "examples" / "dispatcher"
FENCE = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("work.py", "client.mjs"):
        shutil.copy(EXAMPLE / name, tmp_path)
    return tmp_path


@pytest.fixture
def dispatcher(folder: Path) -> Iterator[tuple[Program, str, str]]:
    """Yield a dispatcher, its URL, and its address for WMP workers."""
    argv = ("--store", "jobs.db", "--http", "127.0.0.1:0", "--bind", "tcp://127.0.0.1:*")
    with wmp("dispatcher", *argv, cwd=folder) as program:
        url = program.wait_for_line("serves http").split(" serves ")[1].split()[0]
        endpoint = program.wait_for_line("WMP workers connect to").split()[-1]
        yield program, url, endpoint
        program.signal(signal.SIGTERM)
        assert program.ends() == 0


def curl(folder: Path, line: str) -> dict[str, object]:
    done = subprocess.run(
        line, shell=True, cwd=folder, env=ENVIRON, capture_output=True, timeout=RUN, check=True
    )
    result: dict[str, object] = json.loads(done.stdout)
    return result


def wait_ended(folder: Path, line: str) -> dict[str, object]:
    for _ in range(500):
        document = curl(folder, line)
        if document["status"] in ("s", "f", "x"):
            return document
    raise AssertionError(f"the job has not ended: {document}")


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_the_lines_of_the_example_work(folder: Path, dispatcher: tuple[Program, str, str]) -> None:
    _, url, endpoint = dispatcher
    blocks = FENCE.findall((EXAMPLE / "README.md").read_text(encoding="utf-8"))
    lines = [
        block.replace("http://127.0.0.1:8081", url).replace("tcp://127.0.0.1:5570", endpoint)
        for block in blocks
    ]
    assert [block.split()[:2] for block in lines[:2]] == [["wmp", "dispatcher"], ["wmp", "worker"]]
    worker = lines[1].split()[1:]
    with wmp(*worker, "--http", "127.0.0.1:0", cwd=folder) as program:
        program.wait_for_line("registered as")
        created = curl(folder, lines[2])
        assert created["_id"] == "000000000000000000000001"
        assert curl(folder, lines[2])["_id"] == created["_id"]
        ended = wait_ended(folder, lines[3])
        assert (ended["status"], ended["result"]) == ("s", {"run": 1, "width": 320})
        capacity, workers, failed, history = (
            curl(folder, block) for block in lines[4].strip().splitlines()
        )
        assert capacity["maxJobs"] == 2
        assert len(workers["workers"]) == 1  # type: ignore[arg-type]
        assert failed == {"jobs": [], "next": None}
        assert history["attempts"] == []
        assert curl(folder, lines[5])["status"] == "s"
        if shutil.which("node"):
            answer = curl(folder, f"node client.mjs {url}")
            assert answer == {"status": "s", "result": {"run": 1, "width": 320}}
        program.signal(signal.SIGTERM)
        assert program.ends() == 0
    # A WMP worker does jobs of the same queue.
    with wmp(*lines[6].split()[1:], cwd=folder) as program:
        program.wait_for_line("connected to manager")
        second = curl(folder, lines[2].replace("picture-1", "picture-2"))
        line = lines[3].replace("000000000000000000000001", str(second["_id"]))
        assert wait_ended(folder, line)["result"] == {"run": 1, "width": 320}


def test_a_command_does_the_jobs_of_a_dispatcher(
    folder: Path, dispatcher: tuple[Program, str, str]
) -> None:
    _, url, endpoint = dispatcher
    places = (("--dispatcher", url, "--http", "127.0.0.1:0"), ("--connect", endpoint))
    for flags, ready in zip(places, ("registered as", "connected to manager"), strict=True):
        command = ("--role", "copy", "--output", "json", *flags, "--", "cat")
        with wmp("worker", *command, cwd=folder) as program:
            program.wait_for_line(ready)
            job = httpx.post(
                f"{url}/dispatcher/jobs/",
                json={"type": "copy", "payload": "hello"},
                timeout=WAIT,
                trust_env=False,
            ).json()
            line = f"curl -s {url}/dispatcher/jobs/{job['_id']}"
            ended = wait_ended(folder, line)
            assert ended["status"] == "s", ended
            assert ended["result"] == {
                "_id": job["_id"],
                "type": "copy",
                "workflow": None,
                "run": None,
                "payload": "hello",
            }
            program.signal(signal.SIGTERM)
            assert program.ends() == 0


def code_for(url: str, host: str, path: str) -> int:
    """Return the code of the answer to a request with this ``Host``."""
    return httpx.get(url + path, headers={"Host": host}, timeout=WAIT, trust_env=False).status_code


@pytest.mark.rule("DSP-6.10")
def test_the_flag_allow_host_adds_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "wmp.toml").write_text('[dispatcher]\nallow-host = ["a.example", "b.example"]\n')
    argv = ("--store", "jobs.db", "--http", "127.0.0.1:0", "--address", "http://c.example:80/")
    jobs = "/dispatcher/jobs/"
    with wmp("dispatcher", *argv, "--config", "wmp.toml", cwd=folder) as program:
        url = program.wait_for_line("serves http").split(" serves ")[1].split()[0]
        names = ("a.example:8081", "b.example", "c.example", "evil.example")
        assert [code_for(url, name, jobs) for name in names] == [200, 200, 200, 403]
        assert code_for(url, "evil.example", "/healthz") == 200
    flags = ("--http", "127.0.0.1:0", "--hostname", "d.example", "--allow-host", "e.example")
    with wmp("worker", "work:handlers", "--dispatcher", url, *flags, cwd=folder) as program:
        url = program.wait_for_line("worker serves http").split(" serves ")[1].split()[0]
        names = ("d.example", "e.example", "evil.example")
        assert [code_for(url, name, "/health_check/") for name in names] == [200, 200, 403]
    monkeypatch.setitem(ENVIRON, "WMP_DISPATCHER_ALLOW_HOST", "http://f.example")
    with wmp("dispatcher", *argv, cwd=folder) as program:
        program.wait_for_line("--allow-host is 'http://f.example'; expected a name or an address")
        assert program.ends() == 2


@pytest.mark.rule("DSP-5.9", "DSP-5.10")
def test_a_worker_waits_for_its_first_dispatcher_and_stops_when_all_are_gone(folder: Path) -> None:
    with socket.socket() as reserved:
        # A bound socket that does not listen keeps the port from other programs.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        worker = ("work:handlers", "--dispatcher", f"http://{address}", "--http", "127.0.0.1:0")
        interval = "workers.ping_interval=200"
        with wmp("worker", *worker, cwd=folder) as program:
            text = f"no dispatcher has registered this worker yet: http://{address}: ConnectError: "
            program.wait_for_count(text, 2)
            with wmp(
                *("dispatcher", "--store", "jobs.db", "--http", address, "--set", interval),
                cwd=folder,
            ):
                program.wait_for_line("registered as")
            assert program.ends() == 1
            assert "no dispatcher was reached in 3 contacts" in program.stderr


@pytest.mark.deep
def test_every_job_ends_although_every_process_is_killed(tmp_path: Path) -> None:
    run = KillRun(tmp_path, jobs=400, dispatchers=3, http_workers=4, wmp_workers=4)
    run.run(timeout=RUN)
    report = run.report()
    assert (report["open"], report["lost"], report["wrong"]) == (0, 0, 0), report
    assert report["never executed"] == 0
    assert report["kills"] == 11


@pytest.mark.rule("DSP-10.2", "DSP-11.1", "DSP-11.3")
def test_flags_open_the_registration_and_allow_targets(folder: Path) -> None:
    with socket.socket() as reserved:
        # Nobody listens here, so no request arrives.
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        worker = {"hostname": "127.0.0.1", "port": port, "maxJobs": 1}
        argv = ("--store", "jobs.db", "--http", "127.0.0.1:0", "--bind", "tcp://127.0.0.1:*")
        with wmp("dispatcher", *argv, cwd=folder) as program:
            url = program.wait_for_line("serves http").split(" serves ")[1].split()[0]
            wmp_port = int(program.wait_for_line("WMP workers connect to").rpartition(":")[2])
            assert _register(url, worker) == [200, 409]
            for own in (int(url.rpartition(":")[2]), wmp_port):
                assert _register(url, {**worker, "port": own}) == [403, 403]
            assert _register(url, {**worker, "hostname": "192.0.2.8"}) == [403, 403]
        for flag in (("--open-registration",), ("--profile", "seed")):
            allowed = ("--allow-target", f"192.0.2.0/24:{port}")
            with wmp("dispatcher", *argv, *flag, *allowed, cwd=folder) as program:
                url = program.wait_for_line("serves http").split(" serves ")[1].split()[0]
                assert _register(url, {**worker, "hostname": "192.0.2.8", "port": 1}) == [403, 403]
                assert _register(url, {**worker, "port": port}) == [200, 200]
        flags = ("--allow-target", "169.254.0.0/16")
        with wmp("dispatcher", *argv, *flags, cwd=folder) as program:
            program.wait_for_line("no request is ever sent to a link-local address")
            assert program.ends() == 2


def _register(url: str, worker: dict[str, object]) -> list[int]:
    """Register a worker twice without its secret; return the codes of the answers."""
    return [
        httpx.put(
            f"{url}/dispatcher/workers/", json=worker, timeout=WAIT, trust_env=False
        ).status_code
        for _ in range(2)
    ]


def test_a_dispatcher_and_its_manager_write_journals(tmp_path: Path) -> None:
    argv = ("--store", "jobs.db", "--http", "127.0.0.1:0", "--bind", "tcp://127.0.0.1:*")
    with wmp("dispatcher", *argv, "--journal", "journal", cwd=tmp_path) as program:
        url = program.wait_for_line("serves http").split(" serves ")[1].split()[0]
        program.wait_for_line("WMP workers connect to")
        new = {"type": "echo", "payload": 1}
        job = httpx.post(f"{url}/dispatcher/jobs/", json=new, timeout=WAIT, trust_env=False).json()
        program.signal(signal.SIGTERM)
        assert program.ends() == 0
    segments = [
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for path in sorted((tmp_path / "journal").iterdir())
    ]
    labels = sorted(lines[0]["label"].split()[0] for lines in segments)
    assert len(labels) == 2
    assert "dispatcher" in labels
    assert {lines[-1]["what"] for lines in segments} == {"stop"}
    (submitted,) = (line for lines in segments for line in lines if line["what"] == "submitted")
    assert f"{submitted['ids'][0]:024x}" == job["_id"]
