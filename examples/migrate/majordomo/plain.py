"""A client, a worker and a broker of Majordomo in plain pyzmq, like those of the ZeroMQ guide."""

import threading
import time

import zmq

CLIENT, WORKER = b"MDPC01", b"MDPW01"
READY, REQUEST, REPLY, HEARTBEAT, DISCONNECT = (bytes((n,)) for n in range(1, 6))


def request(endpoint: str, service: bytes, body: bytes, timeout: int = 1000) -> bytes:
    """Send a request until a reply comes, each time on a new REQ socket."""
    while True:
        with zmq.Context.instance().socket(zmq.REQ) as socket:
            socket.linger, socket.rcvtimeo = 0, timeout
            socket.connect(endpoint)
            socket.send_multipart([CLIENT, service, body])
            try:
                return socket.recv_multipart()[2]
            except zmq.Again:
                continue


def work(endpoint: str, service: bytes, answer, ended: threading.Event, beat: float) -> None:
    """Answer the requests for a service until ``ended`` is set."""
    while not ended.is_set():
        with zmq.Context.instance().socket(zmq.DEALER) as socket:
            socket.linger = 100
            socket.connect(endpoint)
            socket.send_multipart([b"", WORKER, READY, service])
            liveness, beat_at = 3, time.monotonic() + beat
            while liveness and not ended.is_set():
                liveness -= 1
                if socket.poll(int(beat * 1000)):
                    _, _, command, *frames = socket.recv_multipart()
                    liveness = 0 if command == DISCONNECT else 3
                    if command == REQUEST:
                        reply = [frames[0], b"", answer(frames[2])]
                        socket.send_multipart([b"", WORKER, REPLY, *reply])
                if time.monotonic() >= beat_at:
                    socket.send_multipart([b"", WORKER, HEARTBEAT])
                    beat_at = time.monotonic() + beat
            socket.send_multipart([b"", WORKER, DISCONNECT])


def broke(endpoint: str, ended: threading.Event) -> None:
    """Pass requests on to the workers of one service until ``ended`` is set."""
    with zmq.Context.instance().socket(zmq.ROUTER) as socket:
        socket.linger = 0
        socket.bind(endpoint)
        waiting: list[list[bytes]] = []
        idle: list[bytes] = []
        known: dict[bytes, bytes] = {}
        while not ended.is_set():
            if not socket.poll(20):
                for worker in idle:
                    socket.send_multipart([worker, b"", WORKER, HEARTBEAT])
                continue
            sender, _, header, *frames = socket.recv_multipart()
            if header == CLIENT:
                waiting.append([sender, b"", frames[1]])
            elif frames[0] == READY:
                known[sender] = frames[1]
                idle.append(sender)
            elif frames[0] == REPLY and sender in known:
                reply = [CLIENT, known[sender], frames[3]]
                socket.send_multipart([frames[1], b"", *reply])
                idle.append(sender)
            elif frames[0] == DISCONNECT and sender in idle:
                idle.remove(sender)
            while waiting and idle:
                message = [idle.pop(0), b"", WORKER, REQUEST, *waiting.pop(0)]
                socket.send_multipart(message)
