"""The journals of a gateway, of a manager and of a worker around it show no violation."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

import wmp
from tests.interop.gateways.foreign_workers import WORKERS
from tests.spark.folds.plain import fold, table
from tests.waiting import WAIT, wait_until
from wmp.gateways import ClientDoor, Gateway, LazyClient, WorkerDoor
from wmp.spark.pipeline.totals import Totals

ANY = "tcp://127.0.0.1:*"


@pytest.mark.deep
@pytest.mark.interop
def test_the_journals_of_a_mixed_fleet_show_no_violation(tmp_path):
    with contextlib.ExitStack() as stack:
        manager = stack.enter_context(wmp.Manager(journal=tmp_path))
        doors = ClientDoor(ANY), WorkerDoor(ANY, protocol="paranoid-pirate")
        gateway = stack.enter_context(
            Gateway(*doors, connect=manager.endpoints, bind=ANY, journal=tmp_path)
        )
        (front,), (back,) = gateway.doors
        pirates = [stack.enter_context(WORKERS["paranoid-pirate"](back)) for _ in range(3)]
        native = wmp.Worker(*gateway.endpoints, handlers=bytes.upper, journal=tmp_path)
        stack.enter_context(native)
        wait_until(lambda: len(gateway.workers()["paranoid-pirate"]) == 3)
        pool = stack.enter_context(ThreadPoolExecutor(3))
        clients = [stack.enter_context(LazyClient(front, timeout=WAIT)) for _ in range(3)]
        results = [
            pool.submit(lambda client=client: [client.request(b"%d" % n) for n in range(40)])
            for client in clients
        ]
        assert len(list(manager.map([b"job %d" % n for n in range(100)]))) == 100
        pirates[0].__exit__()
        assert [len(client.result()) for client in results] == [40, 40, 40]

    paths = sorted(tmp_path.glob("*.jsonl"))
    sink = fold([line for path in paths for line in path.read_text().splitlines()])
    assert table(sink, "violations") == []
    totals = Totals()
    totals.add(sink.counts)
    shares = [row[-1] for row in totals.utilisation(sink.known) if row[-3] > 0]
    assert len(shares) >= 2  # of the group of the Pirates, and of the WMP worker
    assert all(share > 0 for share in shares)
