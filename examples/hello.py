"""A manager, a worker, a job: in one file here, in three places as a rule."""

import wmp


def greet(payload: bytes) -> str:
    """Do a job: bytes come, bytes or text go."""
    return f"hello, {payload.decode()}"


# Ports are chosen by the system; a real manager binds to a known one: Manager("tcp://…:5570").
with wmp.Manager() as manager, wmp.Worker(*manager.endpoints, handlers=greet):
    job = manager.submit(b"world")
    print(job.result(timeout=10).decode())
