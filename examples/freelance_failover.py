"""A failover client of Freelance: one server after the other, until one replies.

The messages are those of the ZeroMQ guide, so either side may be another program. The first server
ends in the middle. The client then waits once for its ``timeout``, and stays with the next server.
"""

from wmp.gateways import Failover, FreelanceServer


def make_server(name: str) -> FreelanceServer:
    """Make a server that is not started yet."""

    def answer(body: bytes) -> bytes:
        return f"{body.decode()} from {name}".encode()

    return FreelanceServer("tcp://127.0.0.1:*", handler=answer, model="failover")


first, second = make_server("the first server"), make_server("the second server")
with (
    first,
    second,
    Failover(*first.endpoints, *second.endpoints, timeout=0.5) as client,
):
    print(client.request(b"one").decode())
    first.close()
    print(client.request(b"two").decode())
    print(client.request(b"three").decode())
    print(f"requests sent again: {client.statistics().resent}")
