"""A Pirate queue moves to WMP in three steps, while its clients go on.

1. A gateway takes the place of the queue, at its addresses. Clients and workers change nothing: a
   client sends its request again, and a worker sends READY on its new connection.
2. WMP workers connect to the gateway beside the Pirate workers, which then end one by one.
3. A WMP manager takes the place of each client.

The queue here is a few lines of plain pyzmq, as in the ZeroMQ guide.
"""

import threading
import time

import zmq

import wmp
from wmp.gateways import ClientDoor, Gateway, LazyClient, SimpleWorker, WorkerDoor

done = threading.Event()
replies: list[bytes] = []


def old_queue(context: zmq.Context, front: zmq.Socket, back: zmq.Socket) -> None:
    """Pass requests to workers that are ready, and their replies to clients."""
    workers: list[bytes] = []
    while not done.is_set():
        if back.poll(10):
            worker, _, *reply = back.recv_multipart()
            workers.append(worker)
            if reply != [b"\x01"]:
                front.send_multipart(reply)
        if workers and front.poll(0):
            back.send_multipart([workers.pop(0), b"", *front.recv_multipart()])
    context.destroy(linger=0)


def ask(endpoint: str) -> None:
    """Send requests without a pause, as a client that knows nothing of the move."""
    with LazyClient(endpoint, timeout=0.5, tries=50) as client:
        while len(replies) < 300:
            replies.append(client.request(b"request %d" % len(replies)))


def wait_for(count: int) -> None:
    """Wait until the client has so many replies."""
    while len(replies) < count:
        time.sleep(0.01)


context = zmq.Context()
sockets = context.socket(zmq.ROUTER), context.socket(zmq.ROUTER)
ports = [socket.bind_to_random_port("tcp://127.0.0.1") for socket in sockets]
front, back = (f"tcp://127.0.0.1:{port}" for port in ports)
queue = threading.Thread(target=old_queue, args=(context, *sockets))
queue.start()
pirates = [SimpleWorker(back, bytes.upper) for _ in range(2)]
for pirate in pirates:
    pirate.start()
client = threading.Thread(target=ask, args=(front,))
client.start()
wait_for(100)
print("the old queue has answered 100 requests")

done.set()
queue.join()
doors = ClientDoor(front), WorkerDoor(back, protocol="simple-pirate")
with Gateway(*doors, bind="tcp://127.0.0.1:*") as gateway:
    wait_for(200)
    print("1. the gateway has taken the place of the queue")
    with wmp.Worker(*gateway.endpoints, handlers=bytes.upper, slots=2):
        for pirate in pirates:
            pirate.close()
        wait_for(300)
        client.join()
        print("2. WMP workers have taken the place of the Pirate workers")
with wmp.Manager() as manager, wmp.Worker(*manager.endpoints, handlers=bytes.upper):
    print("3. a manager asks for itself:", manager.submit(b"hello").result().decode())
assert replies == [b"REQUEST %d" % number for number in range(300)]
print(f"all {len(replies)} requests have their replies")
