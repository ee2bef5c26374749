"""One process of ``wmp demo``: a manager, a device or a worker, controlled by its parent.

The parent writes requests as lines of JSON to stdin, and reads reports as lines of JSON from
stdout. The process ends when stdin ends: no process of a demo outlives the parent.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, NoReturn, TypeVar

from wmp.blocking import Device, Job, Manager, Worker
from wmp.errors import ClosedError, TransportError
from wmp.runtime.executors.handlers import RunningJob
from wmp.store.opening import WritableStore, make_store

ROLE: Final = "count"

_Node = TypeVar("_Node", Manager, Device)

_PATIENCE: Final = 3.0
"""Seconds within which this process ends after the end of stdin."""

_START: Final = 30.0
"""Seconds within which all workers must have connected."""

_GRACE: Final = 1.0
"""Seconds after which the jobs of a killed manager are queued again in the store."""

_TAKEN: Final = 5.0
"""Seconds within which the port of a killed process must be free again."""

_lock = threading.Lock()


def count(data: bytes) -> list[Any]:
    """Do the work of one job: words and hash of a file."""
    return [len(data.split()), hashlib.sha256(data).hexdigest()]


def main() -> NoReturn:
    """Run the node that the first line names, until stdin ends."""
    # Only the parent reacts to Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders = _orders()
    first = next(orders, None)
    if first is not None:
        part, config = first["part"], first["config"]
        level = logging.DEBUG if first["verbose"] else logging.ERROR
        logging.basicConfig(level=level, format=f"{config['label']}: %(message)s")
        _PARTS[part](config, orders)
    sys.exit(0)


def _orders() -> Iterator[dict[str, Any]]:
    """Yield the messages of the parent."""
    for line in sys.stdin:
        if not line.endswith("\n"):
            break  # The parent was interrupted in the middle of a line.
        yield json.loads(line)
    # From here on no cleanup is needed: the process may end at any point.
    timer = threading.Timer(_PATIENCE, os._exit, (1,))
    timer.daemon = True
    timer.start()


def _report(**fields: Any) -> None:
    line = memoryview(json.dumps(fields).encode() + b"\n")
    # If the parent has gone, the end of stdin ends this process. Nothing is buffered, because
    # Python would report at its end that it could not write the buffer.
    with _lock, contextlib.suppress(BrokenPipeError):
        while line:
            line = line[os.write(1, line) :]


def _manage(config: dict[str, Any], orders: Iterator[dict[str, Any]]) -> None:
    manager = _bound(
        lambda: Manager(
            config["bind"],
            identity=config["label"].replace(" ", "-"),
            label=config["label"],
            codec="cbor",
            max_silence=config["max_silence"],
            max_worker_losses=config["max_worker_losses"],
            journal=config["journal"],
            store=_store(config["store"]),
        )
    )
    try:
        _report(bound=manager.endpoints[0])
        for order in orders:
            if "meet" in order:
                manager.wait_for_workers(order["meet"], role=ROLE, timeout=_START)
                _report(met=order["meet"])
            else:
                args = (manager, order["files"], config["store"] is not None)
                threading.Thread(target=_spread, args=args, daemon=True).start()
    finally:
        manager.close(0.0)


def _serve(config: dict[str, Any], orders: Iterator[dict[str, Any]]) -> None:
    """Be one manager of a pair, with a door for clients."""
    # Only this part needs the doors.
    from wmp.gateways.binary_star.blocking import BinaryStar
    from wmp.gateways.queue_doors.blocking import FrontDoor

    star = BinaryStar(
        config["role"],
        local=config["local"],
        remote=config["remote"],
        heartbeat=config["heartbeat"],
    )
    manager = Manager(
        config["bind"],
        identity=config["label"].replace(" ", "-"),
        label=config["label"],
        star=star,
        journal=config["journal"],
    )

    def report() -> None:
        with contextlib.suppress(ClosedError):
            manager.wait_active()
            _report(active=True)

    with manager, FrontDoor(config["door"], manager=manager, role=ROLE, join=True):
        _report(bound=config["bind"])
        threading.Thread(target=report, daemon=True).start()
        for _ in orders:
            pass
        manager.close(0.0)


def _bound(make: Callable[[], _Node]) -> _Node:
    """Start a node; a port that it had before may still be in use for a short time."""
    until = time.monotonic() + _TAKEN
    while True:
        node = make()
        try:
            node.start()
        except TransportError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return node


def _store(path: str | None) -> WritableStore | None:
    return None if path is None else make_store(path, grace=_GRACE)


def _spread(manager: Manager, files: list[tuple[int, str]], stored: bool) -> None:
    """Submit files and pass on the results as they come.

    A file has one stored job, whichever process submits it.
    """
    ended: SimpleQueue[tuple[int, Job]] = SimpleQueue()

    def note(index: int, job: Job) -> None:
        ended.put((index, job))

    def submit() -> None:
        with contextlib.suppress(ClosedError):  # The parent reads no more.
            for index, name in files:
                unique: dict[str, Any] = (
                    {"key": f"file {index}", "unique": "kept"} if stored else {}
                )
                job = manager.submit(Path(name).read_bytes(), role=ROLE, **unique)
                job.add_done_callback(functools.partial(note, index))

    threading.Thread(target=submit, daemon=True).start()
    left = len(files)
    while left:
        rows: list[tuple[int, Job]] = [ended.get()]
        while not ended.empty():
            rows.append(ended.get())
        left -= len(rows)
        done, failed = [], []
        for index, job in rows:
            error = job.exception()
            if error is None:
                done.append([index, *job.result()])
            else:
                failed.append([index, str(error)])
        _report(done=done, failed=failed)
    with contextlib.suppress(ClosedError):
        statistics = manager.statistics()
        _report(requeued=dict(statistics.requeued), dropped=dict(statistics.dropped))


def _pass_on(config: dict[str, Any], orders: Iterator[dict[str, Any]]) -> None:
    device = _bound(
        lambda: Device(
            bind=config["bind"],
            connect=config["connect"],
            bind_managers=config.get("bind_managers", ()),
            identity=config["label"].replace(" ", "-"),
            label=config["label"],
            journal=config["journal"],
        )
    )
    with device:
        _report(bound=device.endpoints[0], above=next(iter(device.manager_endpoints), None))
        for _ in orders:
            pass


def _work(config: dict[str, Any], orders: Iterator[dict[str, Any]]) -> None:
    still = threading.Event()

    def handle(data: bytes, job: RunningJob) -> list[Any] | bytes:
        if still.is_set():
            # The parent process kills this worker while the worker has a job.
            _report(holding=job.id)
            threading.Event().wait()
        time.sleep(config["pause"])
        row = [*count(data), config["label"], job.attempt]
        # Requests of a door have no codec.
        return json.dumps(row).encode() if config.get("text") else row

    worker = Worker(
        *config["connect"],
        handlers={ROLE: handle},
        slots=config["slots"],
        window=config["window"],
        identity=config["label"].replace(" ", "-"),
        label=config["label"],
        ping=config["ping"],
        journal=config["journal"],
    )
    worker.start()
    try:
        _report(started=os.getpid())
        for _ in orders:
            still.set()
    finally:
        worker.close(1.0)


_PARTS: Final = {"manager": _manage, "pair": _serve, "device": _pass_on, "worker": _work}


if __name__ == "__main__":
    main()
