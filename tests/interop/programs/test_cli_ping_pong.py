"""``wmp worker --ping-pong``: a worker of a ping-pong broker as a program."""

from __future__ import annotations

import signal

import pytest
import zmq

from tests.interop.gateways.test_gateways import back, front, places, queue_of
from tests.interop.programs.programs import WMP, Program
from tests.waiting import WAIT, wait_until
from wmp.gateways import LazyClient

pytestmark = pytest.mark.interop

NOWHERE = "tcp://127.0.0.1:9"


@pytest.mark.rule("PING-1.1")
def test_a_command_does_jobs_of_a_ping_pong_door():
    with (
        queue_of("ping-pong") as gateway,
        Program(*WMP, "worker", "--ping-pong", back(gateway), "--", "tr", "a-z", "A-Z") as worker,
        LazyClient(front(gateway), timeout=WAIT) as client,
    ):
        wait_until(lambda: places(gateway) == 1)
        for number in range(3):
            assert client.request(b"job %d" % number) == b"JOB %d" % number
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(WAIT) == 0
    assert "Traceback" not in worker.stderr


@pytest.mark.parametrize("target", ["work:shout", "work:handlers"])
def test_a_function_does_jobs_of_a_bare_broker(target, tmp_path):
    source = "def shout(body: bytes) -> bytes:\n    return body.upper()\n\n\n"
    (tmp_path / "work.py").write_text(f"{source}handlers = {{'any': shout}}\n")
    with zmq.Context() as context, context.socket(zmq.ROUTER) as broker:
        broker.linger = 0
        address = f"tcp://127.0.0.1:{broker.bind_to_random_port('tcp://127.0.0.1')}"
        with Program(*WMP, "worker", target, "--ping-pong", address, cwd=tmp_path) as worker:
            assert broker.poll(WAIT * 1000)
            peer, *frames = broker.recv_multipart()
            assert frames == [b"", b"READY"]
            broker.send_multipart([peer, b"", b"PONG"])
            broker.send_multipart([peer, b"", b"job"])
            word = b"PING"
            while word in (b"PING", b"READY"):
                assert broker.poll(WAIT * 1000)
                word = broker.recv_multipart()[2]
                broker.send_multipart([peer, b"", b"PONG"])
            assert word == b"JOB"
            broker.send_multipart([peer, b"", b"EXIT"])
            assert worker.process.wait(WAIT) == 0


@pytest.mark.parametrize(("pause", "code"), [("0.2", 0), ("1000", 143)])
def test_a_signal_lets_the_job_end_within_the_drain_timeout(pause, code):
    limit = ("--drain-timeout", "0.5" if code else "0")
    command = ("sh", "-c", f"echo began >&2; sleep {pause}; cat")
    with (
        queue_of("ping-pong") as gateway,
        Program(*WMP, "worker", "--ping-pong", back(gateway), *limit, "--", *command) as worker,
        zmq.Context() as context,
        context.socket(zmq.REQ) as client,
    ):
        client.linger = 0
        client.connect(front(gateway))
        client.send(b"body")
        wait_until(lambda: gateway.statistics().doors[1].requests == 1)
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(WAIT) == code
        if not code:
            assert client.poll(WAIT * 1000)
            assert client.recv() == b"body"


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("--slots", "2", "--", "cat"), "--slots has no effect with --ping-pong"),
        (("--role", "a", "--", "cat"), "--role has no effect with --ping-pong"),
        (("--connect", NOWHERE, "--", "cat"), "--connect has no effect with --ping-pong"),
        (("--dispatcher", "http://127.0.0.1:1", "--", "cat"), "--dispatcher has no effect"),
        (("--pool", "process", "--", "cat"), "--pool applies to functions only"),
        (("os",), "os is of type module; a ping-pong worker has one handler"),
        ((), "the command line must name one handler"),
    ],
)
def test_flags_that_have_no_effect_are_refused(argv, text):
    with Program(*WMP, "worker", "--ping-pong", NOWHERE, *argv) as worker:
        worker.wait_for_line(text)
        assert worker.process.wait(WAIT) == 2
