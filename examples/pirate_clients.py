"""Lazy Pirate clients are served by WMP workers: the first end of a Pirate queue that moves.

The door stands in the place of the queue. The clients change nothing, and may be other programs.
"""

import wmp
from wmp.gateways import FrontDoor, LazyClient

with (
    wmp.Manager() as manager,
    wmp.Worker(*manager.endpoints, handlers=bytes.title, slots=4) as worker,
    FrontDoor("tcp://127.0.0.1:*", manager=manager) as door,
    LazyClient(*door.endpoints) as client,
):
    for word in (b"one", b"two", b"three"):
        print(word.decode(), "became", client.request(word).decode())
    print(f"the door sent {door.statistics().replies} replies")
