"""A worker or a device of wmp in a separate process; started by ``python -m benchmarks``.

``python -m benchmarks.node worker ENDPOINT… [--pool P] [--hold S]`` or ``python -m benchmarks.node
device ENDPOINT`` or ``python -m benchmarks.node proxy ENDPOINT``. The proxy runs no code of wmp.
Device and proxy print the address that they bind.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading

import zmq

import wmp
from benchmarks.fairness import labor
from benchmarks.jobs import compute, wait
from benchmarks.work import echo

HANDLERS = {"echo": echo, "labor": labor, "compute": compute, "wait": wait}


def _worker(options: argparse.Namespace) -> None:
    handler = HANDLERS[options.handler]
    worker = wmp.Worker(
        *options.endpoints,
        handlers=dict.fromkeys(options.roles.split(","), handler),
        slots=options.slots,
        pool=options.pool,
        hold=options.hold,
        window=options.window,
        **json.loads(options.settings),
    )
    worker.run()


def _device(options: argparse.Namespace) -> None:
    with wmp.Device(bind="tcp://127.0.0.1:*", connect=options.endpoints) as device:
        print(json.dumps(device.endpoints[0]), flush=True)
        device.run()


def _proxy(options: argparse.Namespace) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    below, above = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    port = below.bind_to_random_port("tcp://127.0.0.1")
    above.connect(*options.endpoints)
    print(json.dumps(f"tcp://127.0.0.1:{port}"), flush=True)
    zmq.proxy(below, above)


def _end_with_parent() -> None:
    """End with the parent, which holds the other end of standard input until the parent ends."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


KINDS = {"worker": _worker, "device": _device, "proxy": _proxy}


def main() -> None:
    """Run one node until SIGTERM, or until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.node")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("endpoints", nargs="+")
    parser.add_argument("--handler", choices=HANDLERS, default="echo")
    parser.add_argument("--roles", default="default")
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--pool", default="thread")
    parser.add_argument("--hold", type=float, default=5.0)
    parser.add_argument("--window", type=int)
    parser.add_argument("--settings", default="{}", help="others, as JSON")
    options = parser.parse_args()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    KINDS[options.kind](options)


if __name__ == "__main__":
    main()
