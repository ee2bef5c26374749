"""Workers that differ: each offers roles and resources, and each job names its needs."""

import threading
import time

import wmp

running = 0
maximum = 0
lock = threading.Lock()


def train(payload: bytes) -> str:
    """Work that needs a graphics card to itself."""
    global running, maximum
    with lock:
        running += 1
        maximum = max(maximum, running)
    time.sleep(0.02)
    with lock:
        running -= 1
    return f"{payload.decode()} was trained"


def resize(payload: bytes) -> str:
    """Work for any processor."""
    return f"{payload.decode()} was resized"


with wmp.Manager() as manager:
    # Eight slots and two cards: at most two jobs that need a card run at once.
    big = wmp.Worker(
        *manager.endpoints,
        handlers={"train": train, "resize": resize},
        slots=8,
        resources={"gpu": 2},
        label="big",
    )
    small = wmp.Worker(*manager.endpoints, handlers={"resize": resize}, slots=2, label="small")
    with big, small:
        models = [f"model {n}".encode() for n in range(10)]
        images = [f"image {n}".encode() for n in range(10)]
        needs = {"slots": 1, "gpu": 1}
        for result in manager.map(models, role="train", needs=needs, timeout=10):
            print(result.decode())
        for result in manager.map(images, role="resize", timeout=10):
            print(result.decode())

print(f"at most {maximum} models were trained at the same time")
assert maximum <= 2
