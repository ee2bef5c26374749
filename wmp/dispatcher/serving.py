"""The programs: a dispatcher with its manager, and an HTTP worker with its own manager."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import zmq

from wmp import aio
from wmp.dispatcher.api import make_api
from wmp.dispatcher.http_guard import check_host_name
from wmp.dispatcher.http_parts import check_open, split_address
from wmp.dispatcher.http_server import HttpServer, bound_socket, quiet_libraries
from wmp.dispatcher.http_worker import HttpWorker
from wmp.dispatcher.service import Dispatcher
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.steps.crew import CrewMember
from wmp.dispatcher.targets import Targets, read_target
from wmp.dispatcher.tokens import TokenTable
from wmp.duration import Duration
from wmp.errors import ConfigError
from wmp.runtime.node.signals import caught, on_signals
from wmp.runtime.sockets.security import Security
from wmp.store.opening import printable_address, store_opener
from wmp.store.transaction import TransactingStore

_LOCAL: Final = "inproc://http-worker"
_EVERY: Final = ("0.0.0.0", "::")


class _StoreManager(aio.Manager):
    """The manager of a dispatcher, for WMP workers."""

    def wants(self) -> Mapping[str, Sequence[int]]:
        """Return what the waiting requests of workers want, by role (DSP-3.7)."""
        wants: dict[str, list[int]] = {}
        for worker in list(self._machine._workers.values()):
            want = sum(give.want for give in list(worker.gives.values()))
            for role in worker.roles if want else ():
                wants.setdefault(role, []).append(want)
        return wants

    def offers(self) -> Collection[str]:
        """Return the roles of the connected workers (DSP-3.12)."""
        workers = list(self._machine._workers.values())
        return {role for worker in workers for role in worker.roles}

    def crew(self) -> Sequence[CrewMember]:
        """Return the connected workers that have sent READY (DSP-5.13)."""
        members = []
        for worker in list(self._machine._workers.values()):
            if worker.ready:
                slots = worker.resources.get("slots", 0)
                free = min(slots, worker.fresh_offer().spare)
                identity, name = worker.identity.hex(), worker.name
                members.append(CrewMember(identity, name, worker.roles, slots, free))
        return members


async def serve_dispatcher(
    store: str,
    http: str,
    settings: DispatcherSettings,
    *,
    reserve: int | None = None,
    group: str | None = None,
    bind: Sequence[str] = (),
    address: str | None = None,
    allow_hosts: Sequence[str] = (),
    allow_targets: Sequence[str] = (),
    open_registration: bool = False,
    token: str | TokenTable | None = None,
    security: Security | None = None,
    journal: str | os.PathLike[str] | None = None,
    report: Callable[[str], object],
) -> int:
    """Serve until a signal comes; return the exit code.

    Args:
        store: Path of a store on SQLite, or URL of one on PostgreSQL.
        http: HOST:PORT to listen on.
        settings: The settings.
        reserve: Bytes that a store in a file keeps on its disk; None for the default.
        group: Group that may use a new store in a file, too; None for nobody but the user.
        bind: Endpoints for WMP workers.
        address: URL of this dispatcher for workers; by default made of ``http``.
        allow_hosts: Further names and addresses of this dispatcher (DSP-6.10).
        allow_targets: Hosts and networks to which requests may be sent (DSP-11.1).
        open_registration: Whether workers without the secret of their registration are accepted.
        token: Bearer token, or a table of tokens.
        security: Keys for the endpoints.
        journal: Folder for the journals of the dispatcher and of its manager for WMP workers.
        report: Called with each line for the user.

    Raises:
        ConfigError: An address or the store cannot be used.
        StoreError: The store cannot be opened, or cannot be used any more (DSP-3.13).
    """
    host, port = split_address(http, "--http")
    check_open(host, token, "--http")
    named = socket.gethostname() if host in _EVERY else host
    hosts = _hosts(host, named, _host_of(address), allowed=allow_hosts)
    targets = Targets([read_target(text) for text in allow_targets])
    quiet_libraries()
    stopped = asyncio.Event()
    with on_signals(stopped.set):
        open_file = store_opener(store, reserve=reserve, group=group)
        of_manager = open_file() if bind and open_file is not None else store
        manager: _StoreManager | None = None
        if bind:
            manager = _StoreManager(*bind, store=of_manager, security=security, journal=journal)
        bound = bound_socket(host, port)
        targets.add_own_ports([bound.getsockname()[1]])
        dispatcher = Dispatcher(
            open_file or (lambda: _open_store(store)),
            settings,
            address=address or f"http://{named}:{bound.getsockname()[1]}",
            token=token,
            wants=None if manager is None else manager.wants,
            offers=None if manager is None else manager.offers,
            crew=None if manager is None else manager.crew,
            open_registration=open_registration,
            targets=targets,
            label=f"dispatcher {socket.gethostname()}:{os.getpid()}",
            journal=journal,
        )
        server = HttpServer(make_api(dispatcher, hosts), host, port, bound)
        async with dispatcher:
            if manager is not None:
                await manager.start()
                targets.add_own_ports(_ports(manager.endpoints))
            try:
                async with server:
                    report(
                        f"dispatcher {dispatcher.number} serves {server.url} with store "
                        f"{printable_address(store)}"
                    )
                    if manager is not None:
                        report(f"WMP workers connect to {', '.join(manager.endpoints)}")
                    ends = [] if manager is None else [manager.wait_ended()]
                    await _first(stopped.wait(), dispatcher.wait_ended(), *ends)
            finally:
                if manager is not None:
                    await manager.close(0.0)
    return 0


def _ports(endpoints: Iterable[str]) -> Iterator[int]:
    """Yield the ports of the endpoints of TCP."""
    for endpoint in endpoints:
        port = endpoint.rpartition(":")[2]
        if endpoint.startswith("tcp://") and port.isdigit():
            yield int(port)


def _host_of(address: str | None) -> str | None:
    """Return the host of the URL of ``--address``.

    Raises:
        ConfigError: It is no URL with a host.
    """
    if address is None:
        return None
    try:
        host = urlsplit(address).hostname
    except ValueError:
        host = None
    if not host:
        raise ConfigError(
            f"--address is {address!r}; expected a URL, for example http://jobs.example.com:8081"
        )
    return host


def _hosts(*own: str | None, allowed: Sequence[str]) -> list[str]:
    """Return the names and addresses of a server.

    Raises:
        ConfigError: An allowed one is neither a name nor an address.
    """
    checked = [check_host_name(host, "--allow-host") for host in allowed]
    return [host for host in own if host is not None] + checked


def _open_store(address: str) -> TransactingStore:
    """Open a store.

    Raises:
        ConfigError: There can be no store at the address.
        StoreError: The store cannot be opened.
    """
    from wmp.store.opening import make_store

    return make_store(address)


async def serve_worker(
    dispatchers: Sequence[str],
    http: str,
    make_worker: Callable[[str, Any], aio.Worker],
    types: Sequence[str],
    slots: int,
    *,
    hostname: str | None = None,
    allow_hosts: Sequence[str] = (),
    token: str | None = None,
    drain_timeout: Duration | None = None,
    report: Callable[[str], object],
) -> int:
    """Serve as an HTTP worker until a signal comes or no dispatcher is reached.

    Args:
        dispatchers: URLs of dispatchers.
        http: HOST:PORT to listen on.
        make_worker: Makes the local worker of an endpoint and a context.
        types: Types of jobs.
        slots: Number of jobs that run at the same time.
        hostname: Name under which dispatchers reach this worker.
        allow_hosts: Further names and addresses of this worker (DSP-6.10).
        token: Bearer token.
        drain_timeout: Seconds that jobs in progress have; None for no limit.
        report: Called with each line for the user.

    Returns:
        0 after a signal, 1 when no dispatcher was reached.
    """
    host, port = split_address(http, "--http")
    check_open(host, token, "--http")
    named = hostname or (socket.gethostname() if host in _EVERY else host)
    hosts = _hosts(host, named, allowed=allow_hosts)
    quiet_libraries()
    for url in dispatchers:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(
                f"--dispatcher is {url!r}; expected a URL, for example http://127.0.0.1:8081"
            )
    stopped = asyncio.Event()
    context: Any = zmq.Context()
    try:
        with on_signals(stopped.set):
            manager = aio.Manager(_LOCAL, codec="json", max_worker_losses=0, context=context)
            async with manager, make_worker(_LOCAL, context):
                http_worker = HttpWorker(manager, dispatchers, types, slots, token, hosts=hosts)
                async with HttpServer(http_worker.app, host, port) as server:
                    http_worker.start(named, server.port)
                    report(f"worker serves {server.url} for {', '.join(dispatchers)}")
                    await _first(stopped.wait(), http_worker.alone.wait())
                    await http_worker.close(drain_timeout)
                    # Jobs that were stopped do not hold the end of this process.
                    await manager.close(0.0)
                return 1 if http_worker.alone.is_set() and not caught else 0
    finally:
        context.destroy(linger=0)


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait until the first of several waits is over; raise its error."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
