"""Connections of foreign peers that chose their routing ids: the order of ends and begins."""

from __future__ import annotations

import asyncio

import pytest
import zmq

from tests.waiting import WAIT, WAIT_MS
from wmp.gateways import ClientDoor, WorkerDoor
from wmp.gateways.aio import Gateway
from wmp.gateways.common.attendance import Attendance
from wmp.runtime.driver.foreign_driver import ForeignDriver

pytestmark = pytest.mark.interop

ANY = "tcp://127.0.0.1:*"
NAME = b"a chosen name"


def worker(context, endpoint):
    socket = context.socket(zmq.DEALER)
    socket.routing_id = NAME
    socket.connect(endpoint)
    socket.send(b"\x01")
    return socket


@pytest.mark.parametrize(("again", "ordered"), [(True, True), (True, False), (False, True)])
def test_a_worker_that_connects_again_under_its_id_stays_known(
    again, ordered, context, monkeypatch
):
    if not ordered:
        monkeypatch.setattr(ForeignDriver, "_begin_anew", lambda *_: None)

    def known(gateway):
        return gateway.workers()["paranoid-pirate"]

    async def main():
        door = WorkerDoor(ANY, protocol="paranoid-pirate", heartbeat=30.0)
        async with asyncio.timeout(WAIT), Gateway(ClientDoor(ANY), door) as gateway:
            driver = gateway._node.driver
            port = driver._doors[1]
            old = worker(context, gateway.doors[1][0])
            while not known(gateway):
                await asyncio.sleep(0)

            # The loop does not run here, so the reports and the messages wait together.
            old.close(0)
            assert port._monitor.poll(WAIT_MS)
            new = None
            while again and not port.readable():
                # libzmq ignores a connection with the id of a connection that it has not removed.
                if new is not None:
                    new.close(0)
                new = worker(context, gateway.doors[1][0])
                port.socket.poll(200)
            driver._on_readable(port)
            port.look_at_monitor()  # the loop does so within 0.1 s
            for _ in range(50):
                await asyncio.sleep(0)

            assert known(gateway) == ({NAME: Attendance.IDLE} if again and ordered else {})
            if new is not None:
                new.close(0)

    asyncio.run(main())
