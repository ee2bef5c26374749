"""The thread that runs the steps of a dispatcher in transactions of its store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from attrs import define

from wmp.errors import ClosedError, InstanceEnded, StoreError, StoreUnavailable, StoreUnusable
from wmp.message import Peer
from wmp.runtime.common.threads import start_thread
from wmp.store.contract import StoreInstance
from wmp.store.transaction import StoreTransaction, TransactingStore

logger = logging.getLogger("wmp")

_IDLE: Final = 1.0
_MAX: Final = 256
"""Steps that one transaction has at most."""
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
_PATIENCE: Final = 5.0
"""Seconds for which steps wait for a store that is away; then they fail."""
_REMIND: Final = 30.0


class StoreStep(Protocol):
    """Reads, decides and writes in one transaction."""

    def run(self, store: StoreTransaction, /) -> Any:
        """Run the step; it may run again when the transaction is repeated."""


@define(eq=False)
class _Waiting:
    step: StoreStep
    future: asyncio.Future[Any]
    since: float


class StoreThread:
    """Runs steps, many in one transaction, and notices the writes of others.

    Args:
        open_store: Opens the store, on the thread.
        label: Label of the instance.
        changed: Called on the loop when another process has written.
        replaced: Called on the loop when another instance was begun.
        unusable: Called on the loop when the thread has ended, because the store cannot be used
            until somebody repairs it.
    """

    def __init__(
        self,
        open_store: Callable[[], TransactingStore],
        label: str,
        *,
        changed: Callable[[], object],
        replaced: Callable[[], object],
        unusable: Callable[[StoreUnusable], object],
    ) -> None:
        self._open_store = open_store
        self._label = label
        self._changed, self._replaced, self._unusable = changed, replaced, unusable
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._steps: deque[_Waiting] = deque()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._closing = False
        self._broken: StoreUnusable | None = None
        """Why the thread has ended by itself."""
        self._ended = asyncio.Event()
        self._ids: Iterator[int] = iter(())
        self._me: StoreInstance | None = None
        self.owner: Peer = (b"", 0)
        """Identity and generation of the store, once it is open."""
        self.renewed = float("-inf")
        """When the last transaction began that was committed, on the monotonic clock."""
        self.away: str | None = None
        """Why the store does not answer; None while it does."""
        self._complained_at = float("-inf")

    @property
    def number(self) -> int:
        """Number of the dispatcher."""
        assert self._me is not None, "the store is opened first"
        return self._me.number

    # -- calls from the loop --------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store and begin an instance.

        Raises:
            ConfigError: There can be no store.
            StoreError: The store cannot be opened.
        """
        if start_thread(self._main, "dispatcher-store", failed=lambda ended: None) is None:
            raise StoreUnavailable("cannot start the thread of the store; end other threads")
        await self._ready

    async def run(self, step: StoreStep) -> Any:
        """Run a step; return its outcome after the commit.

        Raises:
            StoreError: The store is away, and the step may have been committed; or the store
                cannot be used any more.
            ClosedError: The dispatcher ends.
        """
        if self._broken is not None:
            raise self._broken
        if self._closing:
            raise ClosedError("the dispatcher ends")
        waiting = _Waiting(step, self._loop.create_future(), time.monotonic())
        self._steps.append(waiting)
        self._ring()
        return await waiting.future

    async def take_id(self) -> int:
        """Return a number for a new job."""
        number = next(self._ids, None)
        while number is None:
            block = await self.run(_NewBlock())
            self._ids = iter(block)
            number = next(self._ids, None)
        return int(number)

    async def close(self) -> None:
        """Run the steps that wait, and end the instance. Idempotent."""
        self._closing = True
        if self._me is not None:
            self._ring()
            await self._ended.wait()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # a full pipe wakes the thread already
            os.write(self._writer, b"\0")

    # -- the thread -----------------------------------------------------------------------------

    def _call(self, function: Callable[..., object], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(function, *arguments)

    def _main(self) -> None:
        try:
            store = self._open_store()
            try:
                self._begin(store)
            except BaseException:
                store.close()
                raise
        except Exception as error:  # noqa: BLE001 - raised by ``start``
            self._call(self._ready.set_exception, error)
            return
        self._call(self._ready.set_result, None)
        ended: Exception = ClosedError("the dispatcher ends")
        try:
            self._serve(store)
        except StoreUnusable as error:  # DSP-3.13
            logger.error("dispatcher: %s. The dispatcher ends", error)
            ended = self._broken = error
            self.away = str(error)
            self._call(self._unusable, error)
        finally:
            with contextlib.suppress(StoreError):
                if self._me is not None:
                    store.end(self._me)
            store.close()
            self._call(self._fail_all, ended)
            self._call(self._ended.set)

    def _fail_all(self, error: Exception) -> None:
        """Fail the steps that wait, on the loop, which adds no others."""
        while self._steps:
            _fail(self._steps.popleft().future, error)

    def _begin(self, store: TransactingStore) -> None:
        self._me = store.begin(secrets.token_bytes(16), self._label)
        self.owner = store.identity, store.generation
        self._ids = iter(self._me.block)

    def _serve(self, store: TransactingStore) -> None:
        """Run steps until the dispatcher ends.

        Raises:
            StoreUnusable: To try again is useless, or does harm.
        """
        pause = _FIRST_PAUSE
        while not self._closing or self._steps:
            try:
                if not self._steps:
                    foreign = store.wait(self._reader, _IDLE)
                    with contextlib.suppress(OSError):
                        os.read(self._reader, 4096)
                    if foreign:
                        self._call(self._changed)
                    continue
                self._run_some(store)
            except InstanceEnded as error:
                logger.warning("dispatcher: %s", error)
                try:
                    self._begin(store)
                    self._call(self._replaced)
                except StoreUnusable:
                    raise
                except StoreError as failed:
                    self._complain(failed)
                    time.sleep(pause)
            except StoreUnusable:
                raise
            except StoreError as error:
                self._complain(error)
                self._give_up(error)
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                pause = _FIRST_PAUSE
                if self.away is not None:
                    self.away = None
                    logger.warning("dispatcher: the store answers again")

    def _run_some(self, store: TransactingStore) -> None:
        """Run the steps that wait in one transaction.

        Raises:
            StoreError: Nothing is known to be committed; the steps wait on.
        """
        some = [self._steps[index] for index in range(min(len(self._steps), _MAX))]
        try:
            outcomes = self._transact(store, some)
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 - logged below
            # One of the steps has a defect: the others run without it.
            outcomes = []
            for waiting in some:
                try:
                    outcomes += self._transact(store, [waiting])
                except StoreError:
                    raise
                except Exception as error:
                    logger.exception("dispatcher: a step failed: %s", type(waiting.step).__name__)
                    outcomes.append(error)
        for waiting, outcome in zip(some, outcomes, strict=True):
            self._steps.popleft()
            settle = _fail if isinstance(outcome, Exception) else _succeed
            self._call(settle, waiting.future, outcome)

    def _transact(self, store: TransactingStore, some: list[_Waiting]) -> list[Any]:
        began = time.monotonic()
        assert self._me is not None
        outcomes = store.transact(
            self._me, lambda open_: [waiting.step.run(open_) for waiting in some]
        )
        self.renewed = began
        return outcomes

    def _give_up(self, error: StoreError) -> None:
        """Fail the steps that have waited for too long."""
        until = time.monotonic() - _PATIENCE
        while self._steps and (self._closing or self._steps[0].since <= until):
            self._call(_fail, self._steps.popleft().future, error)

    def _complain(self, error: StoreError) -> None:
        self.away = str(error)
        now = time.monotonic()
        if now - self._complained_at >= _REMIND:
            self._complained_at = now
            logger.error("dispatcher: %s. Requests wait, or are answered by 503", error)


class _NewBlock:
    def run(self, store: StoreTransaction) -> range:
        return store.block()


def _succeed(future: asyncio.Future[Any], outcome: Any) -> None:
    if not future.done():
        future.set_result(outcome)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
