"""A manager that reads its stdin before its socket: messages wait in front of it for a moment.

The manager is that of the library. A relay in front of its socket keeps what arrives for ``DELAY``
seconds, in order, so that a line of stdin overtakes every message that was sent before it. With
``--cross`` the relay delays only every second connection, so that messages of the other
connections overtake these messages too.
"""

import asyncio
import itertools
import socket
import subprocess
import sys
from contextlib import suppress
from urllib.parse import urlsplit

DELAY = 0.1


async def pump(source: asyncio.StreamReader, to: asyncio.StreamWriter, delay: float) -> None:
    """Pass bytes on, each part ``delay`` seconds after its arrival."""
    loop = asyncio.get_running_loop()
    with suppress(ConnectionError):
        while part := await source.read(1 << 16):
            loop.call_later(delay, to.write, part)
    loop.call_later(delay, to.close)


async def main(endpoint: str, unit: str, *options: str) -> int:
    """Run the manager and the relay until the manager ends; return the manager's status."""
    numbers = itertools.count()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    manager = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "wmp.conformance.testees.testee", "manager"),
        *("--bind", f"tcp://127.0.0.1:{port}", "--unit", unit),
        stdin=sys.stdin,
        stderr=subprocess.DEVNULL,
    )
    pumps: set[asyncio.Task[None]] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            back, on = await asyncio.open_connection("127.0.0.1", port)
            prompt = "--cross" in options and next(numbers) % 2
            pumps.add(asyncio.create_task(pump(reader, on, 0.0 if prompt else DELAY)))
            pumps.add(asyncio.create_task(pump(back, writer, 0.0)))
            return
        writer.close()  # the manager does not listen yet, and the kit connects again

    address = urlsplit(endpoint)
    async with await asyncio.start_server(relay, address.hostname, address.port):
        return await manager.wait()


sys.exit(asyncio.run(main(*sys.argv[1:])))
