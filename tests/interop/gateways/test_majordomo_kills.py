"""A Majordomo broker is killed and started again under load; no request is lost."""

from __future__ import annotations

import contextlib
import sys
import threading

import pytest

from tests.interop.programs.programs import WMP, Program
from tests.waiting import WAIT, wait_until
from wmp.errors import NoReply
from wmp.gateways import MajordomoClient, MajordomoWorker

pytestmark = pytest.mark.interop

FRONT = "ipc://broker"


class Fleet:
    """A broker and a worker of the guide in processes, a worker here, and clients."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self.replies, self.wrong, self.abandoned = 0, 0, 0
        self.ended = threading.Event()
        self.broker = self._start_broker()
        self.worker = self._start_worker()
        settings = {"heartbeat": 0.2, "reconnect": 0.1}
        stack.enter_context(MajordomoWorker(FRONT, "shout", bytes.upper, **settings))
        self.threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(3)]
        for thread in self.threads:
            thread.start()
        stack.callback(self.end)

    def _start_broker(self) -> Program:
        gateway = self._stack.enter_context(Program(*WMP, "gateway", "--majordomo", FRONT))
        gateway.wait_for_line("clients and workers of majordomo connect to")
        return gateway

    def _start_worker(self) -> Program:
        module = ("-m", "tests.interop.gateways.majordomo_peers", "worker", FRONT, "shout", "0.2")
        return self._stack.enter_context(Program(sys.executable, *module))

    def _ask(self, client: int) -> None:
        number = 0
        with MajordomoClient(FRONT, timeout=1.0, tries=200) as asker:
            while not self.ended.is_set():
                number += 1
                body = b"%d of %d" % (number, client)
                try:
                    reply = asker.request("shout", body)
                except NoReply:
                    self.abandoned += 1
                    continue
                self.wrong += reply != body.upper()
                self.replies += 1

    def served(self) -> None:
        """Wait until the clients got further replies."""
        aim = self.replies + 20
        wait_until(lambda: self.replies >= aim or self.wrong > 0, "further replies")

    def kill(self, number: int) -> None:
        """Kill the broker, and now and then the worker, and start it again."""
        if number % 5 == 3:
            self.worker.process.kill()
            self.worker = self._start_worker()
        self.broker.process.kill()
        self.broker.process.wait(WAIT)
        self.broker = self._start_broker()

    def end(self) -> None:
        """Let the clients end."""
        self.ended.set()
        for thread in self.threads:
            thread.join(WAIT)


@pytest.mark.parametrize("kills", [1, pytest.param(50, marks=pytest.mark.deep)])
def test_no_request_is_lost_while_the_broker_is_killed(kills, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as stack:
        fleet = Fleet(stack)
        fleet.served()
        for number in range(kills):
            fleet.kill(number)
            fleet.served()
        fleet.end()
        assert (fleet.wrong, fleet.abandoned) == (0, 0)
        assert fleet.replies >= 20 * kills
