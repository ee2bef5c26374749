"""A manager of a pair: on standby until its node of a Binary Star is active (WMP section 17)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from wmp.actions import ManagerAction
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings
from wmp.errors import ClosedError, OnStandby
from wmp.events import Cancelled, ManagerEvent, Received, Relieved
from wmp.message import Command
from wmp.runtime.manager.manager_store import ManagerStore
from wmp.runtime.node.node import Node
from wmp.runtime.submission.submissions import Submissions

logger = logging.getLogger("wmp")

_VOTES: Final = (Command.READY, Command.PING)
"""Messages of workers that are votes (STAR-4.2)."""

_CLOSE: Final = 5.0
"""Seconds that ``close`` gives the store to begin, because a store that begins cannot be closed."""

_SILENT: Final = 1.0
"""Seconds that ``wait`` waits before it logs a line."""


class PairNode(Protocol):
    """A node that decides which manager of a pair serves, such as
    :class:`~wmp.gateways.aio.BinaryStar`. All calls are made on the loop.
    """

    @property
    def active(self) -> bool:
        """Whether this manager serves."""

    async def start(self) -> None:
        """Begin to report the state to the other node."""

    async def close(self) -> None:
        """Close the sockets. Idempotent."""

    def _serves(self) -> bool:
        """Record a vote; return whether this manager serves."""

    def _on_takeover(self, call: Callable[[], None]) -> None:
        """Have ``call`` called when the node becomes active."""

    def _on_end(self, call: Callable[[Exception], None]) -> None:
        """Have ``call`` called when the node ends with an error."""


class Standby:
    """The machine of a manager on standby, and the end of the standby.

    Until then each READY and PING of a worker is a vote. With a store, the manager begins in the
    store before it serves: a manager on standby reserves no stored jobs.

    Args:
        star: Decides whether this manager serves.
        machine: The manager's machine, on standby.
        node: Serves the manager.
        submissions: The jobs of the manager, which are refused until the end of the standby.
        store: The open store of the manager, in which no instance was begun; None without a store.
    """

    def __init__(
        self,
        star: PairNode,
        machine: ManagerMachine,
        node: Node,
        submissions: Submissions,
        store: ManagerStore | None,
    ) -> None:
        self.star = star
        self.deadline = machine.deadline
        self._machine = machine
        self._node = node
        self._submissions = submissions
        self._store = store
        self._over = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._takeover: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        submissions.refuse(
            OnStandby(
                "the manager is on standby, because the other manager of its pair may serve; "
                "submit there, or wait with wait_active()"
            )
        )

    @property
    def settings(self) -> ManagerSettings:
        """The settings of the manager."""
        return self._machine.settings

    @property
    def over(self) -> bool:
        """Whether the manager takes jobs."""
        return self._over.is_set() and self._node.running

    def handle(self, event: ManagerEvent, now: float) -> Sequence[ManagerAction]:
        """Let the manager take one event. A worker's READY or PING is a vote."""
        if type(event) is Received and event.message.command in _VOTES:
            self.star._serves()
        return self._machine.handle(event, now)

    async def start(self) -> None:
        """Start the node that decides; the manager's own node serves already.

        Raises:
            ConfigError: An address cannot be used.
            TransportError: Too few file descriptors are left in this process.
        """
        self._loop = asyncio.get_running_loop()
        self.star._on_takeover(self._begin)
        self.star._on_end(self._end)
        await self.star.start()

    async def wait(self, timeout: float | None) -> None:
        """Wait until the manager takes jobs; see :meth:`wmp.aio.Manager.wait_active`."""
        try:
            async with asyncio.timeout(timeout):
                if not await self._soon():
                    logger.warning(
                        "manager at %s: waiting on standby to become active; this node of the pair "
                        "needs its peer, or a request or worker as its vote",
                        ", ".join(self._node.endpoints),
                    )
                    await self._over.wait()
        except TimeoutError:
            raise TimeoutError(
                f"the manager is still on standby after {timeout} s; check that the other manager "
                "of the pair serves, or that a worker connects to this one"
            ) from None
        self._node.raise_error()
        if not self.over:
            raise ClosedError("the manager ended during wait_active()")

    async def _soon(self) -> bool:
        try:
            async with asyncio.timeout(_SILENT):
                return await self._over.wait()
        except TimeoutError:
            return False

    def vote(self, then: Callable[[], object]) -> None:
        """Record a request of a client as a vote; call ``then`` if this manager serves after that.

        Call this method from any thread. ``then`` is called on the manager's loop.
        """

        def call() -> None:
            if self.star._serves():
                then()

        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(call)

    def _begin(self) -> None:
        if self._store is None:
            self._relieve()
        else:
            task = self._begin_stored(self._store)
            self._takeover = asyncio.get_running_loop().create_task(task)

    async def _begin_stored(self, store: ManagerStore) -> None:
        settings = self._machine.settings
        try:
            await store.begin(settings.identity, settings.label)
            store.start()
        except Exception as error:  # noqa: BLE001 - the manager ends with this error
            self._end(error)
            return
        self._relieve()

    def _relieve(self) -> None:
        driver = self._node.driver
        if driver is None or not self._node.running:
            return
        # In this order: jobs that are submitted from now on come after the end of the standby.
        self._node.inbox.post(Relieved())
        self._submissions.admit()
        driver.machine = self._machine  # no message is a vote any more
        self._over.set()

    def _end(self, error: Exception) -> None:
        """End the manager: its pair has ended with an error."""
        asyncio.get_running_loop().call_soon(self._close, error)

    def _close(self, error: Exception) -> None:
        if outstanding := self._submissions.fail(error):
            self._node.inbox.post(Cancelled(outstanding))
        self._node.halted(error)
        if self._node.running and self._node.driver is not None:
            self._node.driver.close_machine()  # workers get BYE
        self._over.set()

    def yield_place(self) -> None:
        """Let the other manager take over, because this one has ended."""
        self._over.set()
        if self._closing is None and self._loop is not None and not self._loop.is_closed():
            self._closing = self._loop.create_task(self.star.close())

    async def close(self) -> None:
        """Close the node that decides. Idempotent."""
        self._over.set()
        await self.star.close()
        if self._closing is not None:
            await self._closing
        if self._takeover is not None:
            await asyncio.wait([self._takeover], timeout=_CLOSE)
