"""A job whose handler fails is tried again, by its settings or by an error of the handler."""

import wmp

calls: dict[bytes, int] = {}


def fetch(page: bytes) -> str:
    """Fail in the first two attempts of each page; succeed in the third."""
    calls[page] = calls.get(page, 0) + 1
    if calls[page] <= 2:
        raise ConnectionError("no route to the server")
    return f"{page.decode()} was fetched in attempt {calls[page]}"


def greet(name: bytes, job: wmp.RunningJob) -> str:
    """Request another attempt soon, or end the job without another attempt."""
    if not name:
        raise wmp.Reject("the name of the page is empty")
    if job.attempt == 1:
        raise wmp.RetryLater(0.05)
    return f"hello, {name.decode()}"


# At most five more attempts, after 0.01, 0.02, 0.04, … and at most 1 second, with jitter.
AGAIN = wmp.Retry(times=5, on=(ConnectionError,), backoff=wmp.exponential(0.01, 1))

with (
    wmp.Manager() as manager,
    wmp.Worker(*manager.endpoints, handlers={"fetch": fetch, "greet": greet}),
):
    for line in manager.map([b"a", b"b"], role="fetch", retry=AGAIN):
        print(line.decode())

    # A job waits in its manager for another attempt, or for its start, and takes no slot.
    late = manager.submit(b"Ada", role="greet", delay=0.1)
    print(late.result(timeout=10).decode())

    # The error names each attempt: its number, worker, time and exception.
    try:
        manager.submit(b"c", role="fetch", retry=wmp.Retry(times=1, backoff=0.01)).result(10)
    except wmp.JobFailed as error:
        print(f"failed: {error}; attempts {[failure.attempt for failure in error.history]}")

    # One bad input of a map need not end the other jobs.
    for result in manager.map([b"Bob", b"", b"Eve"], role="greet", return_exceptions=True):
        print(result.decode() if isinstance(result, bytes) else f"failed: {result}")
