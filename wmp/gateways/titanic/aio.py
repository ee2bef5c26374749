"""Titanic (9/TSP) for asyncio: requests to a Majordomo broker that outlive every process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import logging
import math
import os
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, Unpack

from attrs import frozen

from wmp.aio.node import AsyncProgram
from wmp.core.protocol.settings import ManagerSettings
from wmp.duration import Duration
from wmp.errors import NoReply, StoreError, WMPError
from wmp.foreign import Frames
from wmp.gateways.common.aio import as_body
from wmp.gateways.majordomo.aio_client import MajordomoClient
from wmp.gateways.majordomo.aio_worker import MajordomoWorker
from wmp.gateways.majordomo.wire import MAX_BODY, role_of, service_of
from wmp.gateways.titanic.quotas import refuse_service
from wmp.gateways.titanic.requests import (
    RequestRefused,
    TakenRequest,
    TitanicLimits,
    TitanicRequests,
)
from wmp.message import Frame
from wmp.runtime.common.checks import check_count, check_seconds
from wmp.runtime.common.journal import CLOSE, Journal, make_journal
from wmp.runtime.common.recorder import Recorder
from wmp.runtime.common.threads import aside
from wmp.runtime.manager.store_committer import open_store
from wmp.runtime.node.node import make_identity, make_label, new_epoch
from wmp.runtime.sockets.socket_settings import (
    SocketOptions,
    shows_socket_options,
)
from wmp.store.contract import Store

logger = logging.getLogger("wmp")

_TICK: Final = 1.0
"""Seconds between two looks at the store and at the services."""
_LONGEST: Final = 32.0
"""Longest wait in seconds of a request that got no reply."""
_LOOKUPS: Final = 256
"""Maximum number of services without workers that one turn looks up."""
_FIRST: Final = 16
"""How many of them are looked up before a service gets a further request under way."""
_TOKEN: Final = 16
"""Bytes of an address that differ for each request (MDP-4.3); the rest names the client."""


@frozen
class TitanicStatistics:
    """Counts of a Titanic server since its start; a snapshot."""

    stored: int
    replied: int
    """Number of requests whose replies were stored."""
    repeated: int
    """Number of requests that got no reply, and wait to be sent again."""
    in_flight: int
    refused: int
    """Number of requests that were not stored: nested ones, and those above a share."""


class Titanic(AsyncProgram):
    """Stores requests for the services of a Majordomo broker, and does them when it can.

    Clients use the services ``titanic.request``, ``titanic.reply`` and ``titanic.close`` of the
    broker. This server is their worker, and sends the stored requests to the broker as a client. So
    it works with any Majordomo broker, and workers change nothing. Several servers may share a
    broker and a store.

    Args:
        endpoint: Address of the broker.
        store: File of a store on SQLite, which is made if it is missing, or a
            :class:`~wmp.SqliteStore`. Nothing else may use this file.
        timeout: Seconds within which a service must reply. After that its request is sent again.
        in_flight: Maximum number of requests that are sent and have no reply.
        heartbeat: Seconds between two signs of life to the broker.
        limits: Limits of the stored requests: number, bytes and lifetimes; None for the defaults.
        journal: Folder for the files of the journal, or a
            :class:`~wmp.runtime.common.journal.Journal`. The stored requests are its jobs.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        endpoint: str,
        *,
        store: Store | str | os.PathLike[str],
        timeout: Duration = 60.0,
        in_flight: int = 16,
        heartbeat: Duration = 2.5,
        limits: TitanicLimits | None = None,
        journal: Journal | str | os.PathLike[str] | None = None,
        **options: Unpack[SocketOptions],
    ) -> None:
        seconds = check_seconds("timeout", timeout, zero=False)
        self._endpoint = endpoint
        self._folder = make_journal(journal)
        self._recorder: Recorder | None = None
        self._client = MajordomoClient(
            endpoint,
            timeout=seconds,
            tries=1,
            sockets=check_count("in_flight", in_flight, 1),
            **options,
        )
        # A lookup must not wait for the requests, and no worker for a lost broker.
        self._lookup = MajordomoClient(
            endpoint,
            timeout=min(seconds, 2.5),
            tries=1,
            sockets=1,
            **options,
        )
        services = {
            "titanic.request": self._store_request,
            "titanic.reply": self._look_up,
            "titanic.close": self._close_request,
        }
        self._workers = [
            MajordomoWorker(
                endpoint,
                service,
                handler,
                heartbeat=heartbeat,
                as_list=True,
                **options,
            )
            for service, handler in services.items()
        ]
        super().__init__(self._client._node)
        self._given = store
        self._maximum = in_flight
        self._limits = TitanicLimits() if limits is None else limits
        self._requests: TitanicRequests | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: Counter[str] = Counter()
        """Number of requests under way by service."""
        self._failures: dict[int, int] = {}
        """Number of times in a row that a request got no reply."""
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pump: asyncio.Task[None] | None = None
        self._stored = self._replied = self._repeated = self._refused = 0
        self._looked: OrderedDict[str, None] = OrderedDict()
        """Services without workers, the one that was looked up least recently first."""

    async def start(self) -> None:
        """Open the store, connect and begin to serve; ``run`` and ``async with`` call this method.
        Idempotent.

        Raises:
            ConfigError: The endpoint or the store cannot be used, or no journal can be written.
            StoreError: The store cannot be opened.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The server was closed.
        """
        self._node.check_open()
        if self._requests is not None:
            return
        self._loop = asyncio.get_running_loop()
        if self._folder is not None:
            label = f"titanic {make_label(None)}"
            settings = ManagerSettings(identity=make_identity(None), epoch=new_epoch(), label=label)
            self._recorder = Recorder.begin(self._folder, settings, (self._endpoint,), self._loop)
        self._requests = await asyncio.to_thread(
            lambda: TitanicRequests(
                open_store(self._given), limits=self._limits, record=self._record
            )
        )
        for part in (self._client, self._lookup, *self._workers):
            await part.start()
        self._pump = asyncio.create_task(self._serve())

    def _record(self, event: object, *actions: object) -> None:
        """Write to the journal what happened now, from any thread."""
        if self._recorder is not None and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop ends
                step, now = self._recorder.step, time.monotonic()
                self._loop.call_soon_threadsafe(step, event, actions, now)

    # -- the three services, each on a thread of its worker

    def _store_request(self, frames: list[bytes]) -> list[bytes]:
        service = role_of(frames[0])
        if service is None or len(frames) < 2:
            return [b"500 expected the name of a service, and a body"]
        why = refuse_service(service)
        if why:
            self._refused += 1
            return [b"500 " + why.encode()]
        return self._ask(lambda requests: self._stored_as(requests, service, frames[1:]))

    def _stored_as(
        self, requests: TitanicRequests, service: str, body: Sequence[Frame]
    ) -> list[bytes]:
        address = self._workers[0]._client_address()
        client = address[_TOKEN:] if len(address) >= _TOKEN else address
        try:
            id = requests.request(service, tuple(body), client, lambda: self._served(service))
        except RequestRefused as error:
            self._refused += 1
            return [b"500 " + str(error).encode()]
        self._stored += 1
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop ends
                self._loop.call_soon_threadsafe(self._wake.set)
        return [b"200", id.encode()]

    def _served(self, service: str) -> bool:
        """Return whether a service has a worker; called on a thread of a worker."""
        assert self._loop is not None
        lookup = self._lookup.has(service_of(service))
        try:
            return asyncio.run_coroutine_threadsafe(lookup, self._loop).result()
        except (WMPError, RuntimeError, concurrent.futures.CancelledError):
            lookup.close()
            return False  # there is no broker, or the loop ends

    def _look_up(self, frames: list[bytes]) -> list[bytes]:
        def look(requests: TitanicRequests) -> list[bytes]:
            status, body = requests.reply(_id_of(frames))
            if len(body) >= MAX_BODY:
                return [b"500 the reply has too many frames"]
            return [status, *map(bytes, body)]

        return self._ask(look)

    def _close_request(self, frames: list[bytes]) -> list[bytes]:
        def forget(requests: TitanicRequests) -> list[bytes]:
            requests.close_request(_id_of(frames))
            return [b"200"]

        return self._ask(forget)

    def _ask(self, what: Callable[[TitanicRequests], list[bytes]]) -> list[bytes]:
        assert self._requests is not None
        try:
            return what(self._requests)
        except StoreError as error:
            logger.error("titanic: a request gets 500: %s", error)
            return [b"500 " + str(error).encode("ascii", "replace")[:200]]

    # -- the stored requests

    async def _serve(self) -> None:
        """Do the requests until the end. An error that nobody expects ends the server."""
        try:
            await self._go_on()
        except Exception as error:
            logger.exception("titanic: the server ends after %s", type(error).__name__)
            self._node.halted(error)

    async def _go_on(self) -> None:
        """Do the requests that wait, when their services have workers."""
        requests = self._requests
        assert requests is not None
        loop = asyncio.get_running_loop()
        renew_at = loop.time()
        while True:
            try:
                if loop.time() >= renew_at:
                    renew_at = loop.time() + _TICK
                    await asyncio.to_thread(requests.renew)
                if len(self._tasks) < self._maximum:
                    await self._begin(requests)
            except StoreError as error:
                logger.error("titanic: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(renew_at):
                    await self._wake.wait()
            self._wake.clear()

    async def _begin(self, requests: TitanicRequests) -> None:
        services = await asyncio.to_thread(requests.waiting)
        services = self._due(requests, services)
        for index, service in enumerate(services):
            free = self._maximum - len(self._tasks)
            if free < 1:
                return
            share = math.ceil(free / (len(services) - index))
            try:
                staffed = await self._lookup.has(service_of(service))
            except NoReply:
                return  # there is no broker
            if not staffed:
                requests.quotas.staffed.discard(service)
                self._looked.pop(service, None)
                self._looked[service] = None
                continue
            requests.quotas.staffed.add(service)
            self._looked.pop(service, None)
            for taken in await asyncio.to_thread(requests.take, service, share):
                task = asyncio.create_task(self._do(requests, service, taken))
                self._tasks.add(task)
                self._busy[service] += 1
                task.add_done_callback(functools.partial(self._done, service))

    def _due(self, requests: TitanicRequests, services: list[str]) -> list[str]:
        """Return the services to look up in this turn.

        Of those without a worker only some are looked up: a thousand of them must not delay one
        with workers (MDP-8.11).
        """
        staffed = requests.quotas.staffed
        served = [service for service in services if service in staffed]
        others = dict.fromkeys(service for service in services if service not in staffed)
        for service in [service for service in self._looked if service not in others]:
            del self._looked[service]
        fresh = [service for service in others if service not in self._looked][:_LOOKUPS]
        looked = list(self._looked)
        first = [*served, *fresh, *looked[:_FIRST]]
        # No service waits for all requests of another one (MDP-8.9).
        first.sort(key=self._busy.__getitem__)
        return first + looked[_FIRST:_LOOKUPS]

    def _done(self, service: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._busy[service] -= 1
        if not self._busy[service]:
            del self._busy[service]
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error(
                "titanic: a request is sent again after %s: %s", type(error).__name__, error
            )

    async def _do(self, requests: TitanicRequests, service: str, taken: TakenRequest) -> None:
        """Send a stored request, and store its reply."""
        try:
            reply = as_body(
                await self._client.request(service_of(service), list(map(bytes, taken.body)))
            )
        except WMPError as error:
            await self._give_back(requests, taken, isinstance(error, NoReply))
            return
        except asyncio.CancelledError:
            await asyncio.shield(self._give_back(requests, taken, False))
            raise
        self._failures.pop(taken.id, None)
        await self._keep(requests, taken, reply)

    async def _keep(self, requests: TitanicRequests, taken: TakenRequest, reply: Frames) -> None:
        """Store a reply; try until the store takes it."""
        while True:
            try:
                await asyncio.to_thread(requests.finish, taken, reply)
            except StoreError as error:
                logger.error("titanic: a reply waits for the store: %s", error)
                await asyncio.sleep(_TICK)
            else:
                self._replied += 1
                return

    async def _give_back(
        self, requests: TitanicRequests, taken: TakenRequest, failed: bool
    ) -> None:
        failures = self._failures.get(taken.id, 0) + failed
        wait = min(2.0 ** (failures - 1), _LONGEST) if failed else 0.0
        if await asyncio.to_thread(requests.give_back, taken, wait):
            self._repeated += 1
            self._failures[taken.id] = failures
        else:
            self._failures.pop(taken.id, None)

    # -- the end

    def interrupt(self) -> None:
        """Act as after a signal: end. Requests without a reply stay in the store.

        Call this method on the loop.
        """
        self._node.halted(None)

    async def close(self) -> None:
        """Stop. Requests without a reply stay in the store, and are sent again. Idempotent."""
        pump, self._pump = self._pump, None
        tasks = [*self._tasks, *([] if pump is None else [pump])]
        for worker in self._workers:
            await worker.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for part in (self._client, self._lookup):
            await part.close()
        requests, self._requests = self._requests, None
        if requests is not None:
            await asyncio.to_thread(requests.close)
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            await asyncio.sleep(0)  # the steps that other threads have posted come first
            recorder.stop()
            await aside(recorder.wait, "titanic-journal", CLOSE + 1.0)

    async def _abort(self) -> None:
        await self.close()

    def statistics(self) -> TitanicStatistics:
        """Return a snapshot of the counts."""
        return TitanicStatistics(
            self._stored, self._replied, self._repeated, len(self._tasks), self._refused
        )


def _id_of(frames: list[bytes]) -> str:
    """Return the id that a client sent; a text that is not an id for other frames."""
    return frames[0].decode("ascii", "replace") if len(frames) == 1 else ""
