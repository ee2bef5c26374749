"""A server of round robin with two workers and a client, in one process.

The messages are those of the LMQ layer, so each part may be another program, for example one of the
consoles of ``wmp round-robin``.
"""

from concurrent.futures import ThreadPoolExecutor

from wmp.gateways import RoundRobinClient, RoundRobinServer, RoundRobinWorker

SHOUT = 0x20
"""A command of this application. 0x07, 0x08 and 0x09 are those of the server."""


def shout(frames: list[bytes]) -> bytes:
    """Do a message: its frames are the command and the arguments."""
    return frames[1].upper()


with RoundRobinServer("tcp://127.0.0.1:*") as server:
    (address,) = server.addresses
    with (
        RoundRobinWorker(address, {SHOUT: shout}, slots=2) as first,
        RoundRobinWorker(address, {SHOUT: shout}, slots=1) as second,
        RoundRobinClient(address) as client,
    ):
        print("slots:", sorted(row.slots for row in server.table()))
        with ThreadPoolExecutor(10) as executor:
            answers = executor.map(lambda n: client.call(SHOUT, f"message {n}"), range(30))
            print("last answer:", list(answers)[-1][0].decode())
        print("messages:", sum(server.statistics().requests for server in (first, second)))
