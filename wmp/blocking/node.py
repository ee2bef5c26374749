"""The common part of the nodes: each runs an asyncio node on the loop of a portal."""

from __future__ import annotations

import atexit
import contextlib
import warnings
import weakref
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from wmp import aio
from wmp.aio.node import AsyncPart, AsyncProgram
from wmp.duration import Duration
from wmp.errors import ClosedError
from wmp.message import named
from wmp.runtime.node.portal import Portal
from wmp.runtime.node.signals import caught_signals

_PartT = TypeVar("_PartT", bound=AsyncPart)
_ProgramT = TypeVar("_ProgramT", bound=AsyncProgram)
# Texts, because a program with one kind of node need not import the others.
_Inner = TypeVar("_Inner", "aio.Manager", "aio.Worker", "aio.Device")
_Serving = TypeVar("_Serving", "aio.Worker", "aio.Device")
_T = TypeVar("_T")

_open: weakref.WeakSet[BlockingPart[Any]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    # A node that was not closed ends together with the interpreter: at once, and with a warning
    # that Python does not show by default. Workers end first, because their BYE needs the managers.
    # In a forked process the nodes do not run, which _shut checks.
    for node in sorted(_open, key=lambda node: node._name == "manager"):
        with contextlib.suppress(Exception):
            try:
                node._warn_unclosed()
            finally:
                node._shut(0.0)


def open_parts() -> list[BlockingPart[Any]]:
    """Return the objects of this process that were started and not closed."""
    return [part for part in list(_open) if part._portal.opened]


class BlockingPart(Generic[_PartT]):
    """Starts and stops an asyncio object from a thread that may wait.

    Args:
        name: Name of the node, for errors and threads.
        inner: The object, which is not started yet.
        close: Ends the node within a number of seconds.
    """

    def __init__(
        self, name: str, inner: _PartT, close: Callable[[Duration], Coroutine[Any, Any, None]]
    ) -> None:
        self._inner: _PartT = inner
        self._close_inner = close
        self._name = name
        self._portal = Portal(name, inner.node.inbox.post)

    def __del__(self) -> None:
        # Without a portal the constructor raised an error. If the portal is not open, the node is
        # closed or was never started.
        portal: Portal | None = getattr(self, "_portal", None)
        if portal is not None and portal.opened:
            try:
                self._warn_unclosed()
            finally:
                portal.leave(self._close_inner)

    def _warn_unclosed(self) -> None:
        if self._portal.opened:
            warnings.warn(
                f"unclosed {self._name} {self._shown()}; "
                "call close(), or use it as a context manager",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def _shown(self) -> str:
        """Return a name of this object for people."""
        node = self._inner.node
        return ", ".join(node.endpoints or node.bind or node.connect)

    def start(self) -> None:
        """Begin to serve; ``with`` and ``run`` call this method. Idempotent.

        Raises:
            ConfigError: An endpoint or a handler cannot be used.
            ClosedError: The node was closed.
        """
        self._portal.open()
        _open.add(self)
        try:
            self._portal.call(self._inner.start())
        except BaseException:
            self._shut(0.0)
            raise

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._shut(0.0)

    def close(self) -> None:
        """Stop. Idempotent, and bounded in time."""
        self._shut(0.0)

    def _shut(self, timeout: Duration) -> None:
        if self._portal.opened:
            self._portal.check_thread()
        else:
            self._portal.close()
            return
        _open.discard(self)
        try:
            self._portal.call(self._close_inner(timeout))
        except ClosedError:
            pass  # another thread closed the node first
        except BaseException:
            # After Ctrl-C the node waits for no job, but its sockets must still be closed.
            with contextlib.suppress(ClosedError):
                self._portal.call(self._close_inner(0.0))
            raise
        finally:
            self._portal.close()

    def _look(self, look: Callable[[], _T]) -> _T:
        """Read from the machine on the loop, because only the loop's thread changes the machine."""
        portal = self._portal
        return portal.ask(look) if portal.opened and not portal.on_loop else look()


class BlockingProgram(BlockingPart[_ProgramT]):
    """An object that may be a whole program: it serves until it is asked to end."""

    def run(self) -> None:
        """Serve until drained, closed or ended by a signal.

        In the main thread SIGTERM and Ctrl-C have the effect of ``interrupt``.

        Raises:
            ConfigError: As for ``start``.
            ClosedError: As for ``start``.
            Superseded: Another process has this worker's identity.
        """
        self._serve(self._inner.run)

    def _serve(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # Only the main thread can catch signals, not the loop's thread.
        with caught_signals(self.interrupt, self._inner.node.inbox.post):
            self.start()
            try:
                self._portal.call(run())
            finally:
                self._shut(0.0)

    def interrupt(self) -> None:
        """Act as after a signal. Any thread may call this method."""
        self._portal.post(self._inner.interrupt)


class BlockingNode(BlockingPart[_Inner]):
    """A WMP node."""

    def _shown(self) -> str:
        return named(self.identity)

    @property
    def identity(self) -> bytes:
        """Name of this node on the wire."""
        return self._inner.identity

    def wait_ended(self) -> None:
        """Wait until the node has ended: drained, closed, or stopped by an error.

        Raises:
            WMPError: The error that stopped the node, for example ``StarConflict`` of a manager.
            ClosedError: The node is not started, or was closed.
        """
        self._portal.call(self._inner.wait_ended())


class BlockingServer(BlockingNode[_Serving], BlockingProgram[_Serving]):
    """A WMP node that may be a whole program."""
