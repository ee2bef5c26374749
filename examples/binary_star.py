"""A Binary Star: two servers, one of which serves, and a client that finds the one that does.

The primary ends in the middle. The backup takes over at the next request. The messages are those of
the ZeroMQ guide, so each part may be another program.
"""

import secrets

import wmp
from wmp.gateways import BinaryStar, LazyServer, StarClient

STATES = ("tcp://127.0.0.1:7503", "tcp://127.0.0.1:7504")
# Two programs share a file: BinaryStar(key="star.key"). Nodes of the guide have no key.
KEY = secrets.token_bytes(32)


def make_server(name: str, star: BinaryStar) -> LazyServer:
    """Make a server that answers only while its node is active."""

    def answer(body: bytes) -> bytes:
        if not star.vote():
            raise wmp.Reject("this node is passive")
        return f"{body.decode()} from the {name}".encode()

    return LazyServer("tcp://127.0.0.1:*", handler=answer)


primary = BinaryStar("primary", local=STATES[0], remote=STATES[1], key=KEY, heartbeat=0.1)
backup = BinaryStar("backup", local=STATES[1], remote=STATES[0], key=KEY, heartbeat=0.1)
first, second = make_server("primary", primary), make_server("backup", backup)
with primary, backup, first, second:
    with StarClient(*first.endpoints, *second.endpoints, timeout=0.5, settle=0.2) as client:
        print(client.request(b"one").decode())
        first.close()
        primary.close()
        print(client.request(b"two").decode())
        print(client.request(b"three").decode())
    print(f"the backup is {backup.state.name.lower()}")
