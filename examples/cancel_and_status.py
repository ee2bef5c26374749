"""A job is a future: it reports progress, can be cancelled, and has a time limit."""

import threading
import time

import wmp

halfway = threading.Event()


def slow(payload: bytes, job: wmp.RunningJob) -> str:
    """Report progress; a handler with a second argument receives the running job."""
    steps = int(payload)
    for step in range(steps):
        if job.cancelled:
            # The result is not wanted any more. The handler only has to check this at intervals.
            raise wmp.JobCancelled("seen, and stopped")
        job.report(step / steps, f"step {step} of {steps}")
        time.sleep(0.02)
    return f"{steps} steps"


def show(status: wmp.Status) -> None:
    """Called on a separate thread for each report. At most 20 reports a second are sent."""
    if status.fraction is not None and status.fraction > 0.5 and not halfway.is_set():
        print(f"more than half of the job is done: {status.text}")
        halfway.set()


def broken(payload: bytes) -> str:
    """Raise an error."""
    return str(1 / int(payload))


with (
    wmp.Manager() as manager,
    wmp.Worker(*manager.endpoints, handlers={"slow": slow, "broken": broken}),
):
    job = manager.submit(b"20", role="slow", on_status=show)
    print(f"done: {job.result(timeout=10).decode()}")
    assert halfway.wait(10)

    # stop() sends a request to the worker. The answer is definite: JobCancelled, or the result if
    # the result came first. cancel() only cancels a job that no worker has yet, as in
    # concurrent.futures.
    started = threading.Event()
    job = manager.submit(b"10000", role="slow", on_status=lambda status: started.set())
    started.wait(10)
    job.stop()
    try:
        job.result(timeout=10)
    except wmp.JobCancelled as error:
        print(f"cancelled: {error}")

    try:
        manager.submit(b"10000", role="slow", timeout=0.2).result(timeout=10)
    except wmp.JobTimeout as error:
        print(f"timed out: {error}")

    # An exception of the handler arrives here as JobFailed, with the worker's traceback.
    try:
        manager.submit(b"0", role="broken").result(timeout=10)
    except wmp.JobFailed as error:
        print(f"failed: {error}")
