"""A shotgun client of Freelance: each request goes to all servers, and the first reply counts.

The messages are those of the ZeroMQ guide, so either side may be another program. The slowest
server decides nothing. Each server does every request.
"""

import time

from wmp.gateways import FreelanceServer, Shotgun


def make_server(seconds: float) -> FreelanceServer:
    """Make a server that is not started yet."""

    def answer(body: bytes) -> bytes:
        time.sleep(seconds)
        return f"{body.decode()} after {seconds:g} s".encode()

    return FreelanceServer("tcp://127.0.0.1:*", handler=answer, model="shotgun")


with make_server(0.3) as slow, make_server(0.0) as fast:
    with Shotgun(*slow.endpoints, *fast.endpoints) as client:
        for body in (b"one", b"two", b"three"):
            print(client.request(body).decode())
        while slow.statistics().requests < 3:  # the last request may be on its way
            time.sleep(0.01)
    slow.drain()
    print(f"requests at the slow server: {slow.statistics().requests}")
