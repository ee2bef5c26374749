"""The processes of the tests with real faults: submitting managers, devices and workers.

Each process reads requests from stdin and writes events to stdout, both as lines of JSON. It ends
when stdin ends. A worker also keeps a log with a line for each job, written before the job begins.
So the log of a killed worker names the jobs that it began.

A submitting manager is observed as in the simulation: all events and actions of its machine go to a
history, which checks the invariants. Virtual worlds and real processes use the same history, so
both must keep the same promises.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from tests.interop.faults.fault_handlers import LABEL, LOG, digest, gate, hang, work
from wmp import aio
from wmp.actions import End, Resolve, Send
from wmp.checks.job_history import History, Violation
from wmp.checks.observer import Observer
from wmp.events import Received, Submitted
from wmp.message import Command, Frame


def say(**words: Any) -> None:
    """Report to the parent in one write, so that a kill leaves whole lines or a torn last line."""
    line = memoryview(json.dumps(words).encode() + b"\n")
    while line:
        line = line[os.write(1, line) :]


class Watched:
    """A manager machine whose events and actions go to a history."""

    def __init__(self, machine: Any, history: History) -> None:
        self._machine = machine
        self._witness = Observer(history)
        self._history = history
        self.me = (machine.settings.identity, machine.settings.epoch)
        self.broken: list[str] = []
        self.heard = 0
        """DONEs that arrived, accepted or not."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def handle(self, event: Any, now: float) -> Sequence[Any]:
        """Handle the event, and report it and its actions to the history."""
        actions: Sequence[Any] = self._machine.handle(event, now)
        if isinstance(event, Received) and event.message.command is Command.DONE:
            self.heard += 1
        try:
            if isinstance(event, Submitted):
                rows = zip(event.ids, event.payloads, strict=True)
                for id, payload in rows:
                    results = {End.OK: digest(payload).encode()}
                    self._history.accepted(self.me, id, results, event.max_worker_losses)
            self._witness.manager_did(
                self._machine.settings, event, [self._plain(action) for action in actions], now
            )
        except Violation as violation:
            self.broken.append(str(violation))
        return actions

    def _plain(self, action: Any) -> Any:
        """Remove the attempt from results, because the history compares them with results known
        before.
        """
        if not isinstance(action, Resolve):
            return action
        plain: list[Frame] = []
        for payload, end, attempt in zip(
            action.payloads, action.ends, action.attempts, strict=True
        ):
            if end is not End.OK:
                plain.append(payload)
                continue
            maker, by, _ = bytes(payload).split()
            if int(by) != attempt:
                detail = f"a result of attempt {int(by)} counts as that of attempt {attempt}"
                self.broken.append(str(Violation("no stale result", detail)))
            plain.append(maker)
        return attrs.evolve(action, payloads=plain)


async def _orders(obey: Callable[[dict[str, Any]], None]) -> None:
    """Yield the parent's requests until stdin ends."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def read() -> None:
        for line in sys.stdin.buffer:
            loop.call_soon_threadsafe(obey, json.loads(line))
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=read, daemon=True).start()
    await ended.wait()


async def manage(config: dict[str, Any]) -> None:
    """Run managers and submit jobs to them. The parent sends inputs and receives results."""
    history = History()
    managers = [aio.Manager(*party["bind"], **party["options"]) for party in config["managers"]]
    watched = [Watched(manager._machine, history) for manager in managers]
    done: list[list[Any]] = []

    def flush() -> None:
        say(done=done)
        done.clear()

    def note(index: int, job: aio.Job) -> None:
        if not done:
            asyncio.get_running_loop().call_soon(flush)
        error = job.exception()
        if error is None:
            done.append([index, job.id, job.result().decode()])
        else:
            done.append([index, job.id, None, f"{type(error).__name__}: {error}"])

    def obey(order: dict[str, Any]) -> None:
        if "ask" in order:
            says = [manager.statistics() for manager in managers]
            say(
                answer=order["ask"],
                workers=[[row.label for row in party.workers if row.roles] for party in says],
                requeued=[dict(party.requeued) for party in says],
                dropped=[dict(party.dropped) for party in says],
                heard=[party.heard for party in watched],
                left=[party.queued + party.leased for party in says],
                broken=[text for party in watched for text in party.broken],
                waits=history.waits()[:5],
            )
            return
        manager = managers[order["manager"]]
        for index in order["submit"]:
            job = manager.submit_nowait(
                f"{config['generation']} {index}", role=order["role"], max_worker_losses=1000
            )
            job.add_done_callback(functools.partial(note, index))

    for manager, party in zip(managers, watched, strict=True):
        manager._machine = party  # type: ignore[assignment]
        await manager.start()
    say(bound=[list(manager.endpoints) for manager in managers], at=time.monotonic())
    await _orders(obey)
    for manager in managers:
        await manager.close(0.0)


class Pinging:
    """A worker machine that reports its PINGs."""

    def __init__(self, machine: Any) -> None:
        self._machine = machine
        self.pinged: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def handle(self, event: Any, now: float) -> Sequence[Any]:
        """Handle the event, and note when PING was sent."""
        actions: Sequence[Any] = self._machine.handle(event, now)
        for action in actions:
            if isinstance(action, Send) and action.message.command is Command.PING:
                self.pinged.append(time.monotonic())
        return actions


async def serve(config: dict[str, Any]) -> None:
    """Run a worker."""
    os.environ[LOG], os.environ[LABEL] = config["log"], config["options"]["label"]
    worker = aio.Worker(
        *config["connect"], handlers={"work": work, "hang": hang, "gate": gate}, **config["options"]
    )
    await worker.start()
    assert worker._node.driver is not None
    pinging = worker._node.driver.machine = Pinging(worker._machine)

    def obey(order: dict[str, Any]) -> None:
        says = worker.statistics()
        say(
            answer=order["ask"],
            managers=[row.label for row in says.managers],
            pinged=pinging.pinged,
            running=says.running,
            dropped=dict(says.dropped),
        )

    say(started=os.getpid())
    await _orders(obey)
    await worker.close(0.0)


async def pass_on(config: dict[str, Any]) -> None:
    """Run a device."""
    async with aio.Device(**config["options"]):
        say(started=os.getpid())
        await _orders(lambda order: None)


_PARTS = {"manager": manage, "worker": serve, "device": pass_on}


def main() -> None:
    """Run the part that the first line of stdin names."""
    config = json.loads(sys.stdin.buffer.readline())
    asyncio.run(_PARTS[config["part"]](config))
