"""Move a service from Majordomo to WMP in three steps, while a client sends requests.

The client compares every reply. It never changes before step 3, and loses no request.
"""

import tempfile
import threading

import plain

import wmp
from wmp.gateways import Gateway, MajordomoDoor


class Loop:
    """A function on a thread, until it is asked to end."""

    def __init__(self, function, *arguments) -> None:
        self.ended = threading.Event()
        self._thread = threading.Thread(target=function, args=(*arguments, self.ended))
        self._thread.start()

    def end(self) -> None:
        self.ended.set()
        self._thread.join()


def shout(body: bytes) -> bytes:
    """Return the body in capitals."""
    return body.upper()


def old_worker(endpoint: str, ended: threading.Event) -> None:
    """Run a Majordomo worker."""
    plain.work(endpoint, b"shout", shout, ended, 0.2)


replies = 0


def old_client(endpoint: str, ended: threading.Event) -> None:
    """Send requests, and compare their replies."""
    global replies
    while not ended.is_set():
        body = b"request %d" % replies
        assert plain.request(endpoint, b"shout", body, 300) == body.upper()
        replies += 1


def served(step: str) -> None:
    """Wait until the client got further replies."""
    aim = replies + 50
    while replies < aim:
        threading.Event().wait(0.01)
    print(f"{step}: the client is served")


with tempfile.TemporaryDirectory() as folder:
    address, manager_address = f"ipc://{folder}/majordomo", f"ipc://{folder}/manager"
    broker = Loop(plain.broke, address)
    workers = [Loop(old_worker, address) for _ in range(2)]
    client = Loop(old_client, address)
    served("before")

    # Step 1: a gateway takes the place of the broker, at its address.
    broker.end()
    door = MajordomoDoor(address, heartbeat=0.2)
    with Gateway(door, bind=manager_address) as gateway:
        served("step 1, the gateway in the place of the broker")

        # Step 2: WMP workers take the places of the old ones, one by one.
        with wmp.Worker(manager_address, handlers={"shout": shout}):
            served("step 2, both kinds of workers")
            for worker in workers:
                worker.end()
            served("step 2, WMP workers alone")
            client.end()

    # Step 3: a manager takes the place of the gateway. Its clients are programs of WMP.
    with (
        wmp.Manager(manager_address) as manager,
        wmp.Worker(manager_address, handlers={"shout": shout}),
    ):
        print("step 3:", manager.submit(b"a job of wmp", role="shout").result().decode())

print("requests without a reply: 0")
