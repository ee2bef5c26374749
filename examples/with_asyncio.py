"""The same API for asyncio. Hundreds of handlers that are coroutines run on one loop."""

import asyncio

import wmp.aio


async def fetch(payload: bytes) -> str:
    """Wait without using the processor."""
    await asyncio.sleep(0.05)
    return f"{payload.decode()} was fetched"


async def main() -> None:
    """Submit, stop waiting, take results as jobs end, and map."""
    async with (
        wmp.aio.Manager() as manager,
        wmp.aio.Worker(*manager.endpoints, handlers=fetch, slots=100),
    ):
        # submit() returns a job; awaiting the job returns its result.
        job = await manager.submit(b"the first page")
        print((await job).decode())

        # A cancelled wait cancels the job, also at the worker.
        try:
            await asyncio.wait_for(await manager.submit(b"a slow page"), timeout=0.01)
        except TimeoutError:
            print("one page was too slow and timed out")

        jobs = [await manager.submit(f"page {n}") for n in range(300)]
        count = 0
        async for ended in manager.as_completed(jobs):
            assert ended.result().endswith(b"was fetched")
            count += 1
        print(f"{count} pages were fetched, up to 100 at the same time")

        async for result in manager.map([b"a", b"b", b"c"]):
            print(result.decode())


asyncio.run(main())
