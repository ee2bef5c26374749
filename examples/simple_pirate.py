"""A Simple Pirate queue with four workers and a Lazy Pirate client.

The messages are those of the ZeroMQ guide, so each part may be another program.
``--misbehave`` lets workers crash and be slow at random, as the programs of the guide do: the
workers end one by one, and at last the client gives up. ``--second 0.05`` makes all times shorter.

All parts run in this program. With ``queue``, ``worker`` or ``client`` one part runs alone; stop
the queue with Ctrl-C, or put ``wmp gateway --simple-pirate FRONT BACK`` in its place::

    python examples/simple_pirate.py queue &
    for i in 1 2 3 4; do
        python examples/simple_pirate.py worker --misbehave &
        sleep 1
    done
    python examples/simple_pirate.py client --misbehave
"""

import argparse
import contextlib
import os
import random
import threading
import time

from wmp import NoReply
from wmp.gateways import ClientDoor, Gateway, LazyClient, SimpleWorker, WorkerDoor

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parts = ("all", "queue", "worker", "client")
parser.add_argument("part", nargs="?", choices=parts, default="all", help="the part to run")
parser.add_argument(
    "--front", default="tcp://127.0.0.1:5555", help="address of the queue for clients"
)
parser.add_argument(
    "--back", default="tcp://127.0.0.1:5556", help="address of the queue for workers"
)
parser.add_argument("--misbehave", action="store_true", help="let workers crash and be slow")
parser.add_argument("--second", type=float, default=1.0, help="length of a second")
parser.add_argument("--requests", type=int, default=5, help="requests without --misbehave")
options = parser.parse_args()
second = options.second


def make_queue(front: str, back: str) -> Gateway:
    """Make a queue. The workers of the other protocol get the requests of the clients."""
    return Gateway(ClientDoor(front), WorkerDoor(back, protocol="simple-pirate"))


class Clumsy:
    """A worker whose handler may simulate problems."""

    def __init__(self, endpoint: str) -> None:
        self.name, self.cycles = f"{random.randrange(0x10000):04X}", 0
        self.worker = SimpleWorker(endpoint, self.work)
        self.worker.start()
        print(f"I: ({self.name}) worker ready", flush=True)

    def work(self, body: bytes) -> bytes:
        self.cycles += 1
        if options.misbehave and self.cycles > 3:
            if random.randrange(5) == 0:
                print(f"I: ({self.name}) simulating a crash", flush=True)
                if options.part == "worker":
                    os._exit(1)
                threading.Thread(target=self.worker.close, args=(0,)).start()
                time.sleep(second)
                return b""
            elif random.randrange(5) == 0:
                print(f"I: ({self.name}) simulating CPU overload", flush=True)
                time.sleep(3 * second)
        print(f"I: ({self.name}) normal reply", flush=True)
        time.sleep(second / 10)
        return body


def retry(number: int) -> None:
    """Report that no reply has come to the last try."""
    print("W: no response from server, retrying...")
    print("I: connecting to server...", flush=True)


def ask(front: str) -> None:
    """Send one request after the other."""
    sequence = 0
    print("I: connecting to server...")
    with LazyClient(front, timeout=2.5 * second, tries=3, on_retry=retry) as client:
        try:
            while options.misbehave or sequence < options.requests:
                sequence += 1
                reply = client.request(str(sequence))
                print(f"I: server replied OK ({reply.decode()})", flush=True)
        except NoReply:
            print("E: server seems to be offline, abandoning")


match options.part:
    case "queue":
        with make_queue(options.front, options.back) as queue:
            queue.run()
    case "worker":
        with contextlib.closing(Clumsy(options.back).worker) as worker:
            worker.run()
    case "client":
        ask(options.front)
    case "all":
        with make_queue("tcp://127.0.0.1:*", "tcp://127.0.0.1:*") as queue:
            (front,), (back,) = queue.doors
            workers = [Clumsy(back) for _ in range(4)]
            ask(front)
            for clumsy in workers:
                clumsy.worker.close(0)
