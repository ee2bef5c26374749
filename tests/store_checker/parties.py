"""The programs of the checker: ``python -m tests.store_checker.parties WHAT FOLDER NAME …``.

All may be killed at any moment. The next life of a submitter goes on from its log: it submits what
was asked and has not ended once more, with the same keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

import httpx

import wmp
from tests.store_checker.party_log import PartyLog, expected, payload_of
from wmp import aio
from wmp.dispatcher import serving
from wmp.dispatcher.settings import settings_of
from wmp.gateways import StarClient
from wmp.gateways import aio as gateways
from wmp.store import opening
from wmp.store.opening import make_store

CHUNK = 50
"""Jobs that are submitted at once."""
LANES = 3
"""Chunks that are under way."""


def opened(address: str, clock: Path) -> Any:
    """Open a store. A store on SQLite has a clock that is set by a file, in seconds of error."""
    if "://" in address:
        return make_store(address)

    def now() -> float:
        return time.time() + float(struct.unpack("d", clock.read_bytes())[0])

    return wmp.SqliteStore(address, clock=now, reserve=1 << 20)


class Submitter:
    """Submits chunks of jobs and writes a log."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.log = PartyLog(folder / f"{name}.log")
        self.left = sorted(self.log.asked - self.log.ended.keys())
        self.numbers = itertools.count(max(self.log.asked, default=-1) + 1)

    def next_chunk(self) -> list[int]:
        """Return what comes next; nothing if there are enough jobs."""
        chunk, self.left = self.left[:CHUNK], self.left[CHUNK:]
        if not chunk and not (self.folder / "enough").exists():
            chunk = [next(self.numbers) for _ in range(CHUNK)]
            self.log.write(asks=chunk)
        return chunk

    async def run(self, manager: aio.Manager) -> None:
        """Submit until there are enough jobs, and all have ended."""
        await asyncio.gather(*[self._lane(manager) for _ in range(LANES)])

    async def _lane(self, manager: aio.Manager) -> None:
        while chunk := self.next_chunk():
            await self._play(manager, chunk)

    async def _play(self, manager: aio.Manager, chunk: list[int]) -> None:
        """Submit jobs and wait for their results, again after each error of the store."""
        while True:
            try:
                jobs = await asyncio.gather(
                    *[
                        manager.submit(
                            payload_of(self.name, number),
                            key=f"{self.name}-{number}",
                            unique="kept",
                            max_worker_losses=1000,
                        )
                        for number in chunk
                    ]
                )
                break
            except wmp.StoreError:
                await asyncio.sleep(0.1)
        self.log.write(acks=chunk)
        results = await asyncio.gather(*jobs, return_exceptions=True)
        if any(isinstance(result, wmp.ClosedError | asyncio.CancelledError) for result in results):
            raise wmp.ClosedError("the manager has ended")
        wrong = [
            f"job {number} of {self.name} ended with {result!r}"
            for number, result in zip(chunk, results, strict=True)
            if isinstance(result, BaseException)
        ]
        ends = [
            (number, bytes(result).decode())
            for number, result in zip(chunk, results, strict=True)
            if not isinstance(result, BaseException)
        ]
        self.log.write(ends=ends, **({"wrong": wrong} if wrong else {}))


async def submit(folder: Path, name: str, address: str, endpoint: str) -> None:
    """Be a manager that submits."""
    store = opened(address, folder / "clock")
    async with aio.Manager(endpoint, store=store, identity=name) as manager:
        await Submitter(folder, name).run(manager)
        await manager.close(0.0)


async def pair(folder: Path, name: str, store: str, own: str, other: str) -> None:
    """Be one manager of a pair, with a door. The active one submits; both write one log."""
    role = "primary" if own == "a" else "backup"
    star = gateways.BinaryStar(
        role, local=f"ipc://{folder}/state-{own}", remote=f"ipc://{folder}/state-{other}"
    )
    manager = aio.Manager(
        f"ipc://{folder}/pair-{own}",
        store=opened(store, folder / "clock"),
        identity=f"pair-{own}",
        star=star,
    )
    door = gateways.FrontDoor(f"ipc://{folder}/door-{own}", manager=manager, join=True)
    async with manager, door:
        ended = asyncio.ensure_future(manager.wait_ended())
        active = asyncio.ensure_future(manager.wait_active())
        await asyncio.wait([ended, active], return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            work = asyncio.ensure_future(Submitter(folder, name).run(manager))
            await asyncio.wait([ended, work], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
                while not (folder / "asked").exists():  # the clients at the doors go on
                    await asyncio.sleep(0.1)
        await manager.close(0.0)


def ask(folder: Path, name: str) -> None:
    """Be a client of the pair: single requests, each with the seconds that it took."""
    log = PartyLog(folder / f"{name}.log")
    left = sorted(log.asked - log.ended.keys())
    numbers = itertools.count(max(log.asked, default=-1) + 1)
    doors = (f"ipc://{folder}/door-a", f"ipc://{folder}/door-b")
    with StarClient(*doors) as client:
        while left or not (folder / "enough").exists():
            number = left.pop() if left else next(numbers)
            log.write(asks=[number])
            began = time.monotonic()
            reply = client.request(payload_of(name, number))
            waited = time.monotonic() - began
            log.write(acks=[number], ends=[(number, reply.decode())], waits=[round(waited, 3)])


def create(folder: Path, name: str, url: str) -> None:
    """Be a client of a dispatcher."""
    log = PartyLog(folder / f"{name}.log")
    left = sorted(log.asked - log.ended.keys())
    numbers = itertools.count(max(log.asked, default=-1) + 1)
    with httpx.Client(base_url=url, timeout=30.0, trust_env=False) as client:

        def answered(method: str, path: str, **more: Any) -> dict[str, Any]:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    answer = client.request(method, path, **more)
                    if answer.status_code < 300:
                        listed: dict[str, Any] = answer.json()
                        return listed
                    if answer.status_code != 503:
                        log.write(wrong=[f"{method} {path}: {answer.status_code} {answer.text}"])
                time.sleep(0.05)

        while left or not (folder / "enough").exists():
            chunk, left = left[:20], left[20:]
            if not chunk:
                chunk = [next(numbers) for _ in range(20)]
                log.write(asks=chunk)
            ids = {}
            for number in chunk:
                body = {"type": "http", "payload": payload_of(name, number).decode()}
                headers = {"Idempotency-Key": f"{name}-{number}"}
                ids[number] = answered("POST", "/dispatcher/jobs/", json=body, headers=headers)[
                    "_id"
                ]
            log.write(acks=chunk)
            for number, id in ids.items():
                while True:
                    document = answered("GET", f"/dispatcher/jobs/{id}")
                    if document["execution"]["ended"] is not None:
                        break
                    time.sleep(0.02)
                log.write(ends=[(number, str(document["result"]))])


async def dispatch(folder: Path, name: str, store: str, http: str, bind: str) -> None:
    """Be a dispatcher. All programs of a host have the same clock, so this one has it, too."""
    opening.make_store = lambda store: opened(store, folder / "clock")
    settings = settings_of({"jobs.max_worker_losses": 1000})
    await serving.serve_dispatcher(store, http, settings, bind=[bind], report=logging.warning)


def work(folder: Path, name: str, *endpoints: str) -> None:
    """Be a worker."""

    def http(job: dict[str, Any]) -> str:
        return expected(job["payload"].encode())

    handlers = {"default": lambda payload: expected(bytes(payload)).encode(), "http": http}
    wmp.Worker(*endpoints, handlers=handlers, slots=8, pool="inline").run()


def main() -> None:
    """Run one program."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(message)s")
    what, folder, *rest = sys.argv[1:]
    programs = {
        function.__name__: function for function in (submit, pair, ask, dispatch, create, work)
    }
    program: Any = programs[what]
    coroutine = program(Path(folder), *rest)
    try:
        if asyncio.iscoroutine(coroutine):
            asyncio.run(coroutine)
    except (wmp.WMPError, OSError) as error:  # the checker starts the program again
        logging.warning("%s: %s", what, error)
        os._exit(1)


if __name__ == "__main__":
    main()
