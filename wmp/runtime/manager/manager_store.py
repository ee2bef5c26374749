"""The store of one manager, from its opening to its end."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

from wmp.actions import Acknowledge, Decline, Write
from wmp.errors import StoreUnavailable
from wmp.runtime.common.threads import aside
from wmp.runtime.driver.inbox import Inbox
from wmp.runtime.manager.store_committer import StoreCommitter, open_store
from wmp.runtime.node.node import Node
from wmp.runtime.submission.submissions import Submissions
from wmp.store.contract import Store

logger = logging.getLogger("wmp")

_SILENT: Final = 1.0
"""Seconds for which the end of a manager waits before a line is logged."""

_OPEN: Final = 30.0
"""Seconds that the store has to open."""
_T = TypeVar("_T")

_CLOSE: Final = 8.0
"""Seconds that the last batches have to be written."""


class ManagerStore:
    """Opens the store, performs the manager's actions about it, and closes it.

    Args:
        given: The store, or the path of a store on SQLite.
        submissions: The jobs of the manager.
        inbox: The inbox of the manager's driver.
    """

    def __init__(
        self, given: Store | str | os.PathLike[str], submissions: Submissions, inbox: Inbox
    ) -> None:
        self._given = given
        self._submissions = submissions
        self._inbox = inbox
        self._store: Store | None = None
        """The open store in which no instance was begun yet."""
        self._committer: StoreCommitter | None = None

    async def open(self) -> None:
        """Open the store, on a separate thread: this waits for the disk.

        Raises:
            ConfigError: A store cannot be created at the path.
            StoreError: The store cannot be opened.
        """
        self._store = await self._ask(lambda: open_store(self._given))

    async def begin(self, identity: bytes, label: str) -> None:
        """Begin an instance in the open store, on a separate thread.

        Raises:
            StoreError: The store refused.
        """
        store = self._store
        assert store is not None, "the store is opened first"
        instance = await self._ask(lambda: store.begin(identity, label))
        self._store = None
        self._committer = StoreCommitter(store, instance, self._submissions, self._inbox, "manager")

    async def _ask(self, ask: Callable[[], _T]) -> _T:
        """Return what the store answers, on a separate thread."""
        answers: list[_T | Exception] = []

        def call() -> None:
            try:
                answers.append(ask())
            except Exception as error:  # noqa: BLE001 - raised below, on the caller's thread
                answers.append(error)

        await aside(call, "manager-store-open", _OPEN)
        if not answers:
            raise StoreUnavailable(
                f"the store {self._given} did not answer within {_OPEN:g} s; check its disk, and "
                "the other processes that use it"
            )
        (answer,) = answers
        if isinstance(answer, Exception):
            raise answer
        return answer

    def start(self) -> None:
        """Begin to write."""
        self._opened().start()

    def write(self, action: Write) -> None:
        """Apply a batch soon."""
        self._opened().write(action)

    def acknowledge(self, action: Acknowledge) -> None:
        """Report to submitters that jobs are stored."""
        self._submissions.acknowledge(action)

    def decline(self, action: Decline) -> None:
        """Report to submitters that the store does not take jobs."""
        self._submissions.decline(action)

    async def wait_submitted(self, node: Node, until: float | None) -> bool:
        """Wait until the jobs that were submitted here have ended; return whether they did.

        The manager may also have jobs of other processes. It gives them back in the end.
        """
        return await _wait_while(lambda: len(self._submissions) > 0 and node.running, until)

    async def wait_kept(self, node: Node, until: float) -> None:
        """Wait until no submitted job would end with the manager (STORE-12.7)."""
        logged = min(until, time.monotonic() + _SILENT)

        def wait() -> bool:
            return node.running and self._submissions.has_unkept()

        if await _wait_while(wait, logged) or logged == until:
            return
        logger.warning(
            "manager: waits up to %.3g s for jobs that are not stored; stored jobs stay in the "
            "store",
            until - time.monotonic(),
        )
        await _wait_while(wait, until)

    async def close(self) -> None:
        """Let the last batches be written, and end the instance. Idempotent."""
        committer, self._committer = self._committer, None
        store, self._store = self._store, None
        if committer is not None:
            await aside(committer.close, "manager-store-close", _CLOSE)
        elif store is not None:
            await aside(store.close, "manager-store-close", _CLOSE)

    def _opened(self) -> StoreCommitter:
        assert self._committer is not None, "the store is opened before the driver starts"
        return self._committer


async def _wait_while(wait: Callable[[], bool], until: float | None) -> bool:
    """Wait as long as a condition holds; return False when the time came first."""
    pause = 0.001
    while wait():
        now = time.monotonic()
        if until is not None and now >= until:
            return False
        await asyncio.sleep(pause if until is None else min(pause, until - now))
        pause = min(2 * pause, 0.05)
    return True
