"""The time that a device adds to messages is measured between its neighbours."""

from __future__ import annotations

import json

from tests.spark.folds.killed import report_on
from tests.spark.folds.worlds import save

DEVICE = "0x00ff"
ROUTE = {"source": "w", "source_epoch": 1, "target": "m", "target_epoch": 1, "via": [DEVICE]}
WORK = {"session": 1, "ack": 0, "owner": "m", "owner_epoch": 1, "outcomes": [0]}


def line(node: str, n: int, at: int, what: str, **columns: object) -> str:
    head = {"v": 1, "node": node, "epoch": 1, "n": n, "step": n, "at": at, "wall": at + 5}
    return json.dumps({**head, "what": what, **columns})


def test_a_device_is_measured_from_the_sending_before_it_to_the_receipt_after_it(tmp_path):
    lines = []
    for node, kind in (("w", "worker"), (DEVICE, "device"), ("m", "manager")):
        lines.append(line(node, 0, 0, "start", kind=kind, segment=1, settings={}))
    for number, (sent, passed, received) in enumerate([(100, 130, 190), (200, 230, 250)], 1):
        done = {"command": "DONE", **ROUTE, **WORK, "number": number}
        jobs = {"ids": [number], "attempts": [1], "bytes": 0}
        head = {name: value for name, value in done.items() if name != "outcomes"}
        lines += [
            line("w", number, sent, "send", link="#0", hops=0, **done, **jobs),
            line(DEVICE, 2 * number - 1, passed, "received", link="w", hops=0, **head),
            line(DEVICE, 2 * number, passed, "send", link="#0", hops=1, **head),
            line("m", number, received, "received", link=DEVICE, hops=1, **done, **jobs),
        ]
    save(tmp_path / "journal" / "all-1-000001.jsonl", lines)

    result = report_on(tmp_path / "journal", tmp_path / "out")

    (row,) = result.tables.dataset("device_hops").to_table().to_pylist()
    assert (row["device"], row["direction"], row["count"]) == (DEVICE, "up", 2)
    assert (row["p50"], row["most"], row["mean"]) == (50, 90, 70.0)
