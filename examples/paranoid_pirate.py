"""A Paranoid Pirate queue (6/PPP) with four workers and a Lazy Pirate client.

The messages are those of the ZeroMQ guide, so each part may be another program.
``--misbehave`` lets workers crash and be slow at random, as the programs of the guide do: the
workers end one by one, and at last the client gives up. ``--second 0.05`` makes all times shorter.
"""

import argparse
import random
import threading
import time

from wmp import NoReply
from wmp.gateways.gateway import ClientDoor, Gateway, WorkerDoor
from wmp.gateways.pirates import LazyClient, ParanoidWorker

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--misbehave", action="store_true", help="let workers crash and be slow")
parser.add_argument("--second", type=float, default=1.0, help="length of a second")
parser.add_argument("--requests", type=int, default=5, help="requests without --misbehave")
options = parser.parse_args()
second = options.second


class Clumsy:
    """A worker whose handler may simulate problems."""

    def __init__(self, name: str, endpoint: str) -> None:
        self.name, self.cycles = name, 0
        self.worker = ParanoidWorker(endpoint, self.work, heartbeat=second, reopen=second)
        self.worker.start()
        print(f"I: ({name}) worker ready")

    def work(self, body: bytes) -> bytes:
        self.cycles += 1
        if options.misbehave and self.cycles > 3:
            if random.randrange(5) == 0:
                print(f"I: ({self.name}) simulating a crash")
                threading.Thread(target=self.worker.close, args=(0,)).start()
                time.sleep(second)
                return b""
            elif random.randrange(5) == 0:
                print(f"I: ({self.name}) simulating CPU overload")
                time.sleep(3 * second)
        print(f"I: ({self.name}) normal reply")
        time.sleep(second / 10)
        return body


def retry(number: int) -> None:
    """Report that no reply has come to the last try."""
    print("W: no response from server, retrying...")
    print("I: connecting to server...")


doors = (
    ClientDoor("tcp://127.0.0.1:*"),
    WorkerDoor("tcp://127.0.0.1:*", protocol="paranoid-pirate", heartbeat=second),
)
with Gateway(*doors) as queue:
    (front,), (back,) = queue.doors
    workers = [Clumsy(f"{number:04X}", back) for number in random.sample(range(0x10000), 4)]
    sequence = 0
    print("I: connecting to server...")
    with LazyClient(front, timeout=2.5 * second, tries=3, on_retry=retry) as client:
        try:
            while options.misbehave or sequence < options.requests:
                sequence += 1
                reply = client.request(str(sequence))
                print(f"I: server replied OK ({reply.decode()})")
        except NoReply:
            print("E: server seems to be offline, abandoning")
    for one in workers:
        one.worker.close(0)
