"""``wmp demo --star``: a pair of managers. The active one is killed, and the other takes over."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from attrs import define, field

from wmp.cli.demo.processes import ChildMessage, DemoProcess
from wmp.cli.demo.runner import PING, SLOTS, STALL, DemoRunner
from wmp.errors import ClosedError, ConfigError, WMPError
from wmp.gateways.binary_star.blocking import StarClient
from wmp.message import counted

_LENGTH: Final = 8.0
"""Seconds that the demo should take without kills."""

_LONGEST: Final = 0.2
"""Maximum number of seconds by which a job is made longer."""

_KILLS: Final = (0.3, 0.65)
"""Parts of the results after which the active manager is killed."""

_FEWEST: Final = 20
"""Minimum number of files, so that some requests are left after each kill."""

_HEARTBEAT: Final = 0.3
_TIMEOUT: Final = 0.5
_SETTLE: Final = 0.7
"""Seconds; see :class:`~wmp.gateways.StarClient`."""

_LOOK: Final = 0.02
"""Seconds for which the demo waits for a message of a process before it looks for replies."""


@define(eq=False)
class StarDemo(DemoRunner):
    """Clients have files counted by a pair of managers, whose active one is killed twice.

    Each client sends one file after the other to a door of the active manager. Requests in progress
    end with their manager, and their clients send them again to the other manager.
    """

    folder: str = ""
    """Folder of the sockets."""
    killed: list[str] = field(factory=list)
    """Labels of the managers that were killed, in order."""
    takeovers: list[float] = field(factory=list)
    """Seconds between each kill and the takeover."""
    resent: int = 0
    """Number of requests that were sent again."""
    _active: DemoProcess | None = None
    _started: int = 0
    """Number of workers that run."""
    _ready: set[str] = field(factory=set)
    """Labels of the managers that run."""
    _gone_at: float = 0.0
    _replies: SimpleQueue[tuple[int, bytes]] = field(factory=SimpleQueue)

    def run(self) -> None:
        """Start all processes, have all files counted, kill the active manager twice.

        Raises:
            ConfigError: There are too few files.
            WMPError: A process ended that was not killed, or nothing happened for too long.
        """
        total = len(self.names)
        if self.kill and total < _FEWEST:
            raise ConfigError(
                f"{counted(total, 'file is', 'files are')} too few for two kills: set --files to "
                f"{_FEWEST} or more, or add --no-kill"
            )
        self.pause = min(_LONGEST, _LENGTH * self.count * SLOTS / total)
        self._print(f"starting 2 managers as a pair, {counted(self.count, 'worker')}")
        self._start()
        clients = [
            StarClient(*self._both("door"), timeout=_TIMEOUT, settle=_SETTLE)
            for _ in range(self.count * SLOTS)
        ]
        todo = deque(range(total))
        self._print(f"{counted(total, 'file')} from {counted(len(clients), 'client')}")
        threads = [
            threading.Thread(target=self._ask, args=(client, todo), daemon=True)
            for client in clients
        ]
        begin = time.monotonic()
        try:
            for client, thread in zip(clients, threads, strict=True):
                client.start()
                thread.start()
            self._follow(total)
            self.seconds = time.monotonic() - begin
            self.resent = sum(client.statistics().resent for client in clients)
        finally:
            for client in clients:
                client.close()
        while self._unchecked:
            self._check()

    def verdict(self) -> list[str]:
        """Return the last lines of the demo."""
        total, lost = len(self.names), len(self.names) - len(self.seen)
        jobs = ", ".join(f"{worker.label} {self.done[worker.label]}" for worker in self.workers)
        lines = [
            f"{total} files, {self.size / 1e6:.1f} MB in {self.seconds:.1f} s; jobs done: {jobs}"
        ]
        for label, seconds in zip(self.killed, self.takeovers, strict=False):
            lines.append(f"{label} was killed, and the other took over after {seconds:.1f} s")
        lines.append(f"requests sent again by their clients: {self.resent}")
        lines.append(f"{len(self.right)} of {total} replies are correct; lost: {lost}")
        return lines

    def _start(self) -> dict[DemoProcess, str]:
        start = self.children.start
        for own, other, role in (("A", "B", "primary"), ("B", "A", "backup")):
            manager = start(
                "pair",
                label=f"manager {own}",
                role=role,
                bind=self._endpoint("wmp", own),
                door=self._endpoint("door", own),
                local=self._endpoint("state", own),
                remote=self._endpoint("state", other),
                heartbeat=_HEARTBEAT,
            )
            self.managers.append(manager)
        self._take_until(lambda: len(self._ready) == len(self.managers))
        for number in range(self.count):
            self.workers.append(
                start(
                    "worker",
                    label=f"worker {number + 1}",
                    connect=self._both("wmp"),
                    slots=SLOTS,
                    window=0,
                    ping=PING,
                    pause=self.pause,
                    text=True,
                )
            )
        self._take_until(lambda: self._started == self.count and self._active is not None)
        return {}

    def _take_until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._take(*self._receive())

    def _endpoint(self, what: str, name: str) -> str:
        return f"ipc://{self.folder}/{what}-{name}"

    def _both(self, what: str) -> tuple[str, str]:
        return self._endpoint(what, "A"), self._endpoint(what, "B")

    def _ask(self, client: StarClient, todo: deque[int]) -> None:
        """Send files until none is left."""
        with contextlib.suppress(IndexError, ClosedError):  # the demo ended before
            while True:
                index = todo.popleft()
                reply = client.request(Path(self.names[index]).read_bytes())
                assert isinstance(reply, bytes)
                self._replies.put((index, reply))

    def _follow(self, total: int) -> None:
        """Take replies until all have come, and kill the active manager meanwhile."""
        kills, quiet = deque(_KILLS if self.kill else ()), time.monotonic()
        while len(self.seen) < total:
            received = self.children.receive(_LOOK)
            if received is not None:
                self._take(*received)
            before = len(self.seen)
            with contextlib.suppress(Empty):
                while True:
                    index, reply = self._replies.get_nowait()
                    self._note({"done": [[index, *json.loads(reply)]], "failed": []})
            now = time.monotonic()
            if len(self.seen) > before or received is not None:
                quiet = now
            elif now - quiet > STALL:
                raise WMPError(
                    f"no progress for {STALL:g} s: {len(self.seen)} of {total} replies have come; "
                    "add --verbose to see the reasons"
                )
            if kills and len(self.seen) >= total * kills[0] and len(self._ready) == 2:
                self._kill()
                kills.popleft()

    def _kill(self) -> None:
        victim, self._active = self._active, None
        if victim is None:
            return
        self._ready.discard(victim.label)
        self.killed.append(victim.label)
        self._gone_at = time.monotonic()
        victim.kill()
        part = len(self.seen) / len(self.names)
        self._print(f"{part:4.0%}  {victim.label} was killed (SIGKILL) while it was active")

    def _take(self, child: DemoProcess, message: ChildMessage) -> None:
        """Take the message of a process."""
        if "active" in message:
            self._active = child
            after = ""
            if self.killed:
                self.takeovers.append(time.monotonic() - self._gone_at)
                after = f" after {self.takeovers[-1]:.1f} s"
            self._print(f"{'':4}  {child.label} is active{after}")
        elif "ended" in message:
            self.children.again(child)
        elif "started" in message:
            self._started += 1
        elif "bound" in message:
            self._ready.add(child.label)
            if self.killed:
                self._print(f"{'':4}  {child.label} is back, on standby")
