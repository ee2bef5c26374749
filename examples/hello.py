"""A manager, a worker and a job in one file. Usually they are in different processes."""

import wmp


def greet(payload: bytes) -> str:
    """Do a job: the argument is bytes, the result is bytes or text."""
    return f"hello, {payload.decode()}"


# The system chooses the port here. A real manager binds a known port: Manager("tcp://…:5570").
with wmp.Manager() as manager, wmp.Worker(*manager.endpoints, handlers=greet):
    job = manager.submit(b"world")
    print(job.result(timeout=10).decode())
