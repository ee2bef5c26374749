"""A worker of this library at a Simple Pirate queue that is another program.

The queue here is a few lines of plain pyzmq. Workers of a Paranoid Pirate queue and of a ping-pong
broker are used in the same way: ParanoidWorker, and PingPongWorker of wmp.gateways.
"""

import threading

import zmq

from wmp.gateways import LazyClient, SimpleWorker

context = zmq.Context()
front, back = context.socket(zmq.ROUTER), context.socket(zmq.ROUTER)
ports = [socket.bind_to_random_port("tcp://127.0.0.1") for socket in (front, back)]
for_clients, for_workers = (f"tcp://127.0.0.1:{port}" for port in ports)


def queue(requests: int) -> None:
    """Pass requests to the worker that is ready, and its replies to the clients."""
    while requests:
        worker, _, *reply = back.recv_multipart()
        if reply != [b"\x01"]:
            front.send_multipart(reply)
            requests -= 1
        if requests:
            back.send_multipart([worker, b"", *front.recv_multipart()])


thread = threading.Thread(target=queue, args=(3,))
thread.start()
with SimpleWorker(for_workers, bytes.upper) as worker, LazyClient(for_clients) as client:
    for word in ("one", "two", "three"):
        print(word, "became", client.request(word).decode())
    thread.join()
    print(f"the worker sent {worker.statistics().replies} replies")
context.destroy(linger=0)
