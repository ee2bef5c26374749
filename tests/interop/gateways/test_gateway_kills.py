"""Processes of each protocol are killed with SIGKILL under load; every request gets its reply.

``WMP_SEED`` repeats an order of kills; the exact moments differ from run to run.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading

import pytest

from tests.interop.programs.forks import ForkedProgram
from tests.interop.programs.programs import WMP
from tests.waiting import WAIT, wait_until
from wmp.errors import NoReply
from wmp.gateways import LazyClient, ParanoidWorker, PingPongWorker, SimpleWorker

pytestmark = pytest.mark.interop

SEED = int(os.environ.get("WMP_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)

OURS = {
    "simple-pirate": lambda at: SimpleWorker(at, bytes.upper),
    "paranoid-pirate": lambda at: ParanoidWorker(at, bytes.upper, heartbeat=0.2, reopen=0.2),
    "ping-pong": lambda at: PingPongWorker(at, bytes.upper, ping=0.2, broker_timeout=0.2),
}


class Fleet:
    """A gateway and plain workers in processes, and clients that compare every reply."""

    def __init__(self, stack: contextlib.ExitStack, protocol: str) -> None:
        self._stack = stack
        self._protocol = protocol
        self.draw = random.Random(SEED)
        self.replies, self.wrong, self.kills = 0, 0, 0
        self.ended = threading.Event()
        self.gateway = self._start_gateway()
        self.workers = [self._start_worker() for _ in range(3)]
        # One worker of this library is never killed, and returns by itself.
        stack.enter_context(OURS[protocol]("ipc://back"))
        self.threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(3)]
        for thread in self.threads:
            thread.start()
        stack.callback(self.end)

    def _start_gateway(self) -> ForkedProgram:
        flags = (f"--{self._protocol}", "ipc://front", "ipc://back")
        process = self._stack.enter_context(ForkedProgram(*WMP, "gateway", *flags))
        process.wait_for_line(f"workers of {self._protocol} connect to")
        return process

    def _start_worker(self) -> ForkedProgram:
        module = (
            "-m",
            "tests.interop.gateways.foreign_workers",
            self._protocol,
            "ipc://back",
            "0.005",
        )
        return self._stack.enter_context(ForkedProgram(sys.executable, *module))

    def _ask(self, client: int) -> None:
        number = 0
        with LazyClient("ipc://front", timeout=0.5, tries=100) as asker:
            while not self.ended.is_set():
                number += 1
                body = b"%d of %d" % (number, client)
                try:
                    reply = asker.request(body)
                except NoReply:
                    self.wrong += 1
                    return
                self.wrong += reply != body.upper()
                self.replies += 1

    def served(self) -> None:
        """Wait until the clients got further replies."""
        aim = self.replies + 20
        wait_until(lambda: self.replies >= aim or self.wrong > 0, "further replies")

    def kill(self) -> None:
        """Kill a worker, or the gateway, and start it again."""
        self.kills += 1
        if self.draw.random() < 0.3:
            self.gateway.process.kill()
            self.gateway.process.wait(WAIT)
            self.gateway = self._start_gateway()
            if self._protocol == "simple-pirate":
                # REQ workers of the guide do not survive a restart of their queue.
                for worker in self.workers:
                    worker.process.kill()
                self.workers = [self._start_worker() for _ in self.workers]
            return
        index = self.draw.randrange(len(self.workers))
        self.workers[index].process.kill()
        self.workers[index] = self._start_worker()

    def end(self) -> None:
        """Let the clients end."""
        self.ended.set()
        for thread in self.threads:
            thread.join(WAIT)


def play(protocol, kills):
    with contextlib.ExitStack() as stack:
        fleet = Fleet(stack, protocol)
        fleet.served()
        for _ in range(kills):
            fleet.kill()
            fleet.served()
        fleet.end()
        assert fleet.wrong == 0, SEED
        assert fleet.replies >= 20 * kills


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize("protocol", OURS)
def test_every_request_gets_its_reply_while_processes_are_killed(protocol):
    play(protocol, 20)


def test_every_request_gets_its_reply_while_some_are_killed():
    play("paranoid-pirate", 1)
