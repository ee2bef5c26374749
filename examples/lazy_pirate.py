"""A Lazy Pirate client beside a server.

The messages are those of the ZeroMQ guide, so either side may be another program. ``--misbehave``
lets the server crash or be slow at random, as the server of the guide does: the client sends its
request again, and gives up at last. ``--second 0.05`` makes all times shorter.
"""

import argparse
import random
import threading
import time

from wmp import NoReply
from wmp.gateways import LazyClient, LazyServer

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--misbehave", action="store_true", help="let the server crash and be slow")
parser.add_argument("--second", type=float, default=1.0, help="length of a second")
options = parser.parse_args()
second, cycles = options.second, 0


def echo(body: bytes) -> bytes:
    """Do a request. If this raises, no reply is sent, and the client sends the request again."""
    global cycles
    cycles += 1
    if options.misbehave and cycles > 3:
        if random.randrange(4) == 0:
            print("I: simulating a crash")
            threading.Thread(target=server.close, args=(0,)).start()
            time.sleep(second)
            return b""
        if random.randrange(4) == 0:
            print("I: simulating CPU overload")
            time.sleep(2 * second)
    print(f"I: normal request ({body.decode()})")
    time.sleep(second / 10)
    return body


def retry(number: int) -> None:
    """Report that no reply has come to the last try."""
    print("W: no response from server, retrying...")
    print("I: connecting to server...")


server = LazyServer("tcp://127.0.0.1:*", handler=echo)
with server:
    print("I: connecting to server...")
    with LazyClient(*server.endpoints, timeout=2.5 * second, tries=3, on_retry=retry) as client:
        sequence = 0
        try:
            while options.misbehave or sequence < 5:
                sequence += 1
                reply = client.request(str(sequence))
                print(f"I: server replied OK ({reply.decode()})")
        except NoReply:
            print("E: server seems to be offline, abandoning")
        seen = client.statistics()
        print(f"{seen.requests} requests, sent {seen.requests + seen.resent} times in all")
