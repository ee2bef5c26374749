"""Peers from the specification alone (examples/independent/), with each other and with wmp."""

import importlib.util
import json
import re
import signal
import socket
import sys
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import pytest
import zmq

from tests.interop.programs.forks import ForkedProgram
from tests.interop.programs.programs import ROOT, WMP, WMP_DEVICE, Program, copy_node_worker
from tests.waiting import WAIT_MS

EXAMPLES, VECTORS = ROOT / "examples" / "independent", ROOT / "specs" / "vectors"
JOBS = 400


def load(path: Path) -> ModuleType:
    """Load a module that is in no package."""
    module_spec = importlib.util.spec_from_file_location(f"minimal_{path.stem}", path)
    assert module_spec
    assert module_spec.loader
    module = sys.modules[module_spec.name] = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return module


wire = load(EXAMPLES / "messages.py")
pytestmark = pytest.mark.interop


class Peer(Program):
    """A peer of these tests: a process that takes orders and prints events."""

    def __init__(self, *command: object, cwd: Path = ROOT) -> None:
        super().__init__(*map(str, command), cwd=cwd)

    def order(self, *lines: str) -> None:
        """Write lines to stdin."""
        self.feed("".join(f"{line}\n" for line in lines).encode())

    def event(self) -> str:
        """Return the next line that does not only answer a line of stdin."""
        while (line := self.line()).startswith(("submitted ", "cancelling ")):
            pass
        return line

    def ended(self, number: int) -> dict[str, str]:
        """Return this many lines `ended NAME …` by name; each name comes once."""
        verdicts: dict[str, str] = {}
        while len(verdicts) < number:
            word, name, end = self.event().split(" ", 2)
            assert (word, name in verdicts) == ("ended", False), (word, name, end)
            verdicts[name] = end
        return verdicts

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.signal(number)
        return self.ends()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        assert kind or "Traceback" not in self.stderr, self.stderr


def minimal(kind: str, *words: object) -> Peer:
    return Peer(sys.executable, EXAMPLES / f"{kind}.py", *words)


class OurPeer(Peer, ForkedProgram):
    """A program of this project."""


def wmp(name: str, *words: object, cwd: Path = ROOT) -> OurPeer:
    return OurPeer(*{"wmp": WMP, "wmp-device": WMP_DEVICE}[name], *words, cwd=cwd)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A folder with the worker for Node.js and the package that it needs."""
    copy_node_worker(tmp_path)
    return tmp_path


@pytest.fixture
def endpoint() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


another = endpoint  # a second peer on the same address


@pytest.fixture
def handlers(tmp_path: Path) -> Path:
    """A folder in which `wmp worker` finds the same roles."""
    (tmp_path / "handlers.py").write_text(
        "import time\n"
        "def echo(payload): return payload\n"
        "def fail(payload): raise RuntimeError('always')\n"
        "def slow(payload): time.sleep(int(payload) / 1000); return payload\n"
        "table = {'echo': echo, 'fail': fail, 'slow': slow}\n"
    )
    return tmp_path


# --- golden messages ---


def value(it: Any) -> Any:
    """Return the value for which the JSON of the vectors stands."""
    if isinstance(it, dict):
        if "hex" in it:
            return bytes.fromhex(it["hex"])
        return {value(key): value(item) for key, item in it["map"]}
    return [value(item) for item in it] if isinstance(it, list) else it


def vectors(name: str) -> list[dict[str, Any]]:
    vectors: list[dict[str, Any]] = json.loads((VECTORS / f"{name}.json").read_text())
    assert vectors
    return vectors


def message_of(vector: dict[str, Any]) -> Any:
    message = vector["message"]
    fields = {key: value(item) for key, item in message["fields"]}
    columns = {key: value(column) for key, column in message.get("columns", {}).items()}
    command = getattr(wire, message["command"])
    return wire.Message(command, value(message["to"]), value(message["from"]), fields, columns)


def frames_of(vector: dict[str, Any]) -> list[bytes]:
    return [bytes.fromhex(frame) for frame in vector["frames"]]


def test_the_minimal_codec_decodes_valid_messages() -> None:
    for vector in vectors("valid") + vectors("tolerated"):
        wanted, got = message_of(vector), wire.decode(frames_of(vector))
        wanted.fields = {key: item for key, item in wanted.fields.items() if key in wire.FIELDS}
        wanted.columns = {key: x for key, x in wanted.columns.items() if key in wire.ENTRIES}
        assert got == wanted, vector["name"]


def test_the_minimal_codec_makes_the_same_bytes() -> None:
    for vector in vectors("valid"):
        assert wire.encode(message_of(vector)) == frames_of(vector), vector["name"]


def refusal(vector: dict[str, Any]) -> Any:
    try:
        wire.decode(frames_of(vector))
    except wire.Refused as error:
        return error
    return pytest.fail(f"{vector['name']} is not refused")


def test_the_minimal_codec_refuses_invalid_messages() -> None:
    for vector in vectors("invalid"):
        name = vector["name"]
        refused = refusal(vector)
        assert refused.code == vector["error"], name
        assert refused.back == value(vector["from"])[::-1], name
        assert refused.command == vector["command"], name


# --- the peers ---


def do_every_kind(manager: Program) -> None:
    """Do thousands of jobs, a job that fails, a cancelled job, large jobs and an empty job."""
    large = b"large".hex() * 20_000
    manager.order(*(f"submit e{n} echo {n:08x}" for n in range(JOBS)))
    manager.order("submit f fail 00", "submit empty echo -", "submit s slow 313030")
    manager.order(f"submit large echo {large}")
    ends = manager.ended(JOBS + 4)
    assert all(ends[f"e{n}"] == f"ok {n:08x}" for n in range(JOBS))
    assert ends["f"].startswith("error ")
    assert (ends["empty"], ends["s"], ends["large"]) == ("ok -", "ok 313030", f"ok {large}")


def test_minimal_manager_and_minimal_worker(endpoint: str) -> None:
    with minimal("manager", endpoint) as manager, minimal("worker", endpoint) as worker:
        do_every_kind(manager)
        manager.order("submit c slow 3939393939", "submit t slow 3939393939 timeout=300")
        manager.order("submit late nobody 00", "cancel late", "submit u echo 00 colour=red")
        assert manager.event() == "ended late cancelled -"
        assert manager.event() == "unknown u colour"
        assert manager.event() == "ended t timeout -"
        manager.order("cancel c", "submit after echo 01")
        assert manager.ended(2) == {"c": "cancelled -", "after": "ok 01"}
        assert (worker.stop(), manager.stop()) == (0, 0)
        assert manager.stderr == worker.stderr == ""


def test_minimal_manager_and_our_worker(endpoint: str, handlers: Path) -> None:
    words = ("worker", "handlers:table", "--connect", endpoint, "--slots", 4)
    with minimal("manager", endpoint) as manager, wmp("wmp", *words, cwd=handlers) as worker:
        do_every_kind(manager)
        assert (worker.stop(), manager.stop()) == (0, 0)
        assert manager.stderr == ""


def test_our_map_and_minimal_worker(endpoint: str) -> None:
    words = ("map", "--bind", endpoint, "--role", "echo")
    with wmp("wmp", *words) as mapping, minimal("worker", endpoint, "--slots", 8) as worker:
        mapping.order(*(f"line {n}" for n in range(JOBS)))
        mapping.end_input()
        assert [mapping.line() for _ in range(JOBS)] == [f"line {n}" for n in range(JOBS)]
        assert mapping.ends() == 0
        assert worker.stop() == 0
        assert worker.stderr == ""


def test_both_through_a_device(endpoint: str, another: str, handlers: Path) -> None:
    words = ("worker", "handlers:table", "--connect", another)
    with (
        wmp("wmp-device", "--bind", another, "--connect", endpoint),
        minimal("manager", endpoint) as manager,
    ):
        with minimal("worker", another) as worker:
            do_every_kind(manager)
            assert worker.stop() == 0
        with wmp("wmp", *words, cwd=handlers) as worker:
            do_every_kind(manager)
            assert worker.stop() == 0
        assert manager.stderr == ""


def test_minimal_manager_and_the_worker_for_node(endpoint: str, node: Path) -> None:
    words = ("node", node / "worker.mjs", endpoint, "--slots", 8, "--identity", "one")
    with minimal("manager", endpoint) as manager:
        with Peer(*words) as worker:
            do_every_kind(manager)
            manager.order("submit c slow 3939393939", "submit e echo 00")
            assert manager.event() == "ended e ok 00"
            manager.order("cancel c")
            assert manager.event() == "ended c cancelled -"
            manager.order(*(f"submit e{n} echo {n:08x}" for n in range(JOBS)))
            first = manager.ended(2)
            worker.stop(signal.SIGKILL)
        with Peer(*words) as worker:
            ends = {**first, **manager.ended(JOBS - 2)}
            assert ends == {f"e{n}": f"ok {n:08x}" for n in range(JOBS)}
            assert worker.stop() == 0
            assert worker.stderr == ""


def test_our_map_and_the_worker_for_node_through_a_device(
    endpoint: str, another: str, node: Path
) -> None:
    with (
        wmp("wmp-device", "--bind", another, "--connect", endpoint),
        wmp("wmp", "map", "--bind", endpoint, "--role", "echo") as mapping,
        Peer("node", node / "worker.mjs", another) as worker,
    ):
        mapping.order(*(f"line {n}" for n in range(JOBS)))
        mapping.end_input()
        assert [mapping.line() for _ in range(JOBS)] == [f"line {n}" for n in range(JOBS)]
        assert mapping.ends() == 0
        assert worker.stop() == 0
        assert worker.stderr == ""


# --- a peer that is killed ---


@pytest.mark.parametrize("whose", ["minimal", "ours"])
def test_a_killed_worker_loses_no_job_of_the_minimal_manager(
    endpoint: str, handlers: Path, whose: str
) -> None:
    def start() -> Program:
        if whose == "minimal":
            return minimal("worker", endpoint, "--identity", "one")
        words = ("--connect", endpoint, "--slots", 4, "--identity", "one")
        return wmp("wmp", "worker", "handlers:table", *words, cwd=handlers)

    with minimal("manager", endpoint) as manager:
        with start() as worker:
            manager.order(*(f"submit s{n} slow 313030" for n in range(8)))
            manager.order(*(f"submit e{n} echo {n:08x}" for n in range(JOBS)))
            first = manager.ended(2)
            worker.stop(signal.SIGKILL)
        with start():
            ends = {**first, **manager.ended(JOBS + 6)}
    assert len(ends) == JOBS + 8
    assert all(end.startswith("ok ") for end in ends.values())


def test_a_killed_minimal_worker_loses_no_job_of_our_manager(endpoint: str) -> None:
    words = ("map", "--bind", endpoint, "--role", "echo")
    with wmp("wmp", *words) as mapping:
        with minimal("worker", endpoint, "--identity", "one") as worker:
            mapping.order(*(f"line {n}" for n in range(JOBS)))
            first = mapping.line()
            worker.stop(signal.SIGKILL)
        with minimal("worker", endpoint, "--identity", "one"):
            mapping.end_input()
            lines = [first, *(mapping.line() for _ in range(JOBS - 1))]
            assert lines == [f"line {n}" for n in range(JOBS)]
            assert mapping.ends() == 0


@pytest.mark.parametrize("whose", ["minimal", "ours"])
def test_workers_find_a_minimal_manager_that_was_killed(
    endpoint: str, handlers: Path, whose: str
) -> None:
    words = ("worker", "handlers:table", "--connect", endpoint, "--slots", 4)
    start = minimal("worker", endpoint) if whose == "minimal" else wmp("wmp", *words, cwd=handlers)
    with start:
        for _ in range(2):
            with minimal("manager", endpoint) as manager:
                manager.order("submit s slow 3939393939", "submit e echo 00")
                assert manager.ended(1) == {"e": "ok 00"}
                manager.stop(signal.SIGKILL)
        with minimal("manager", endpoint) as manager:
            manager.order("submit e echo 01")
            assert manager.ended(1) == {"e": "ok 01"}


def test_the_minimal_worker_finds_our_manager_that_was_killed(endpoint: str) -> None:
    words = ("map", "--bind", endpoint, "--role", "echo")
    with minimal("worker", endpoint):
        for end in (signal.SIGKILL, signal.SIGTERM):
            with wmp("wmp", *words) as mapping:
                mapping.order("a line")
                assert mapping.line() == "a line"
                mapping.stop(end)


def test_the_second_of_two_with_one_identity_stops(endpoint: str) -> None:
    with (
        minimal("manager", endpoint) as manager,
        minimal("worker", endpoint, "--identity", "one"),
    ):
        manager.order("submit a echo 01")
        assert manager.event() == "ended a ok 01"
        with minimal("worker", endpoint, "--identity", "one") as second:
            assert second.ends() == 1
            manager.order("submit b echo 02")
            assert manager.event() == "ended b ok 02"
    assert "another process" in second.stderr


# --- invalid messages ---


def refusals(peer: zmq.Socket[bytes], route: list[bytes]) -> None:
    """Every invalid message is answered by the right ERROR; an invalid ERROR is not answered."""
    for vector in vectors("invalid"):
        if not vector["frames"] or vector["command"] == wire.ERROR:
            continue
        peer.send_multipart([*route, *frames_of(vector)])
        while True:
            assert peer.poll(WAIT_MS), vector["name"]
            answer = wire.decode(peer.recv_multipart()[len(route) :])
            if answer.command == wire.ERROR:
                break
        assert answer.fields["code"] == vector["error"], vector["name"]
        assert answer.to == value(vector["from"])[::-1], vector["name"]


def test_the_minimal_manager_survives_malformed_messages(
    endpoint: str, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    with minimal("manager", endpoint) as manager, context.socket(zmq.DEALER) as stranger:
        stranger.connect(endpoint)
        refusals(stranger, [])
        with minimal("worker", endpoint):
            do_every_kind(manager)


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_the_minimal_workers_survive_malformed_messages(
    language: str, request: pytest.FixtureRequest, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    with context.socket(zmq.ROUTER) as stranger:
        stranger.setsockopt(zmq.ROUTER_MANDATORY, 1)
        port = stranger.bind_to_random_port("tcp://127.0.0.1")
        if language == "python":
            command = (sys.executable, EXAMPLES / "worker.py")
        else:
            command = ("node", request.getfixturevalue("node") / "worker.mjs")
        with Peer(*command, f"tcp://127.0.0.1:{port}") as worker:
            route, *_ = stranger.recv_multipart()
            refusals(stranger, [route])
            assert worker.stop() == 0
            assert worker.stderr == ""


def test_they_are_small_and_share_nothing_with_wmp() -> None:
    for path in EXAMPLES.glob("*.py"):
        text = path.read_text()
        assert not re.search(r"^\s*(import|from) wmp", text, re.MULTILINE), path
        assert len(text.splitlines()) < (235 if path.stem in ("worker", "manager") else 295), path
    text = (ROOT / "examples" / "javascript" / "worker.mjs").read_text()
    assert len(text.splitlines()) < 250
