"""A Majordomo broker (7/MDP) with two services: one worker of Majordomo, one of WMP.

The messages are those of the ZeroMQ guide, so the broker, the client and the first worker may each
be another program.
"""

import wmp
from wmp.gateways import (
    Gateway,
    MajordomoClient,
    MajordomoDoor,
    MajordomoPipelinedClient,
    MajordomoService,
    MajordomoWorker,
    remember,
)

seats = []


@remember(key=lambda frames: (frames[0], frames[1]))  # the client and its number
def book(frames: list[bytes]) -> bytes:
    """Book a seat."""
    seats.append(frames[2])
    return b"seat %d for %s" % (len(seats), frames[2])


door = MajordomoDoor("tcp://127.0.0.1:*", services=[MajordomoService("book", max_worker_losses=0)])
with Gateway(door, bind="tcp://127.0.0.1:*") as broker:
    (address,) = broker.doors[0]
    with (
        MajordomoWorker(address, "echo", lambda body: body),
        wmp.Worker(*broker.endpoints, handlers={"book": book}),
        MajordomoClient(address, timeout=10) as client,
        MajordomoPipelinedClient(address) as pipelined,
    ):
        print("echo:", client.request("echo", b"Hello world").decode())

        # A request that is sent again, as after a lost reply, books one seat.
        for number in (b"1", b"1", b"2"):
            print(client.request("book", [b"client 7", number, b"ada"]).decode())

        # Many requests on one socket; replies have no number.
        for number in range(1000):
            pipelined.send("echo", b"%d" % number)
        print("sum of the replies:", sum(int(pipelined.recv(10)[1]) for _ in range(1000)))

        print("is there a service:", client.has("echo"), client.has("nobody"))
