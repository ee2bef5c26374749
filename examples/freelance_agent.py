"""An agent of Freelance (10/FLP): requests go to the first server that is alive.

The messages are those of the ZeroMQ guide, so either side may be another program. The first server
ends while it has a request. The agent notices this by the end of the connection, and sends the
request to the next server. Servers can be added at any time.
"""

import threading
import time

import wmp
from wmp.gateways import Agent, FreelanceServer

begun = threading.Event()


def stuck(body: bytes, job: wmp.RunningJob) -> bytes:
    """Do a request until nobody wants its result."""
    begun.set()
    while not job.cancelled:
        time.sleep(0.01)
    return b""


first = FreelanceServer("tcp://127.0.0.1:*", handler=stuck)
second = FreelanceServer("tcp://127.0.0.1:*", handler=bytes.upper)
with first, second, Agent(*first.endpoints) as agent:
    while not agent.alive:  # else the second server may be alive before the first one
        time.sleep(0.01)
    agent.connect(*second.endpoints)

    def end_first() -> None:
        """End the first server in the middle of a request."""
        begun.wait(10)
        first.close(0)

    threading.Thread(target=end_first).start()
    print(agent.request(b"hello").decode())
    print(f"servers that are alive: {len(agent.alive)}")
    print(f"requests sent again: {agent.statistics().resent}")
