"""A Lazy Pirate client beside a server that fails now and then: each request gets its reply.

The messages are those of the ZeroMQ guide, so either side may be another program.
"""

import wmp
from wmp.gateways.pirates import LazyClient, LazyServer

failures = {"2", "4"}


def square(body: bytes) -> str:
    """Do a request. If this raises, no reply is sent, and the client sends the request again."""
    text = body.decode()
    if text in failures:
        failures.remove(text)
        raise wmp.RetryLater(0)
    return str(int(text) ** 2)


with (
    LazyServer("tcp://127.0.0.1:*", handler=square) as server,
    LazyClient(*server.endpoints, timeout=0.5, tries=3) as client,
):
    for number in range(1, 6):
        print(number, "squared is", client.request(str(number)).decode())
    seen = client.statistics()
    print(f"{seen.requests} requests, {seen.resent} of them were sent twice")
