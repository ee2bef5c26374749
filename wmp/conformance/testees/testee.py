"""This project's manager, worker and device as testees (``specs/testee.md``).

::

    python -m wmp.conformance.testees.testee manager --bind tcp://127.0.0.1:5570 --unit 200
    python -m wmp.conformance.testees.testee worker --connect tcp://127.0.0.1:5570 --slots 2
    python -m wmp.conformance.testees.testee device --bind tcp://127.0.0.1:5571 --connect tcp://h:5570
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import stat
import sys
from collections.abc import Callable, Sequence
from typing import Any

import wmp.aio
from wmp import errors
from wmp.aio import Job
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.retry import Retry

_MANAGER = ("announce", "max_silence", "wake_timeout", "resend", "reply_margin")
_WORKER = (
    "ping",
    "min_silence",
    "hold",
    "lock_timeout",
    "resend",
    "ready_backoff_max",
    "reconnect_backoff_max",
)
_ENDS: tuple[tuple[type[Exception], str], ...] = (
    (errors.JobCancelled, "cancelled"),
    (errors.JobTimeout, "timeout"),
    (errors.WorkerLost, "lost"),
    (errors.JobFailed, "error"),
)


def _scaled(names: Sequence[str], settings: Any, unit: int) -> dict[str, Any]:
    return {name: getattr(settings, name) * unit / 1000 for name in names}


def echo(payload: bytes) -> bytes:
    """Return the payload."""
    return payload


def fail(payload: bytes) -> bytes:
    """Fail."""
    raise RuntimeError("the role fail always fails")


async def slow(payload: bytes) -> bytes:
    """Take as many milliseconds as the payload gives."""
    await asyncio.sleep(int(payload or b"0") / 1000)
    return payload


def die(payload: bytes) -> bytes:
    """End the process that runs this handler."""
    os._exit(3)


async def _manage(bind: Sequence[str], connect: Sequence[str], unit: int) -> None:
    defaults = ManagerSettings(identity=b"-", epoch=0)
    manager = wmp.aio.Manager(*bind, connect=connect, **_scaled(_MANAGER, defaults, unit))
    jobs: dict[str, Job] = {}
    options: dict[str, Callable[[str], Any]] = {
        "timeout": lambda ms: int(ms) / 1000,
        "expires": lambda ms: int(ms) / 1000,
        "run_limit": lambda ms: int(ms) / 1000,
        "delay": lambda ms: int(ms) / 1000,
        "wait": lambda ms: int(ms) / 1000,
        "retries": int,
        "max_worker_losses": int,
        "priority": int,
    }

    def obey(line: str) -> None:
        match line.split():
            case ["submit", name, role, data, *wishes]:
                chosen: dict[str, Any] = {}
                for key, _, value in (wish.partition("=") for wish in wishes):
                    if key not in options:
                        print("unknown", name, key)
                        return
                    chosen[key] = options[key](value)
                if (retries := chosen.pop("retries", None)) is not None:
                    wait = chosen.pop("wait", 0.0)
                    chosen["retry"] = Retry(times=retries, backoff=wait, jitter=False)
                payload = b"" if data == "-" else bytes.fromhex(data)
                job = jobs[name] = manager.submit_nowait(
                    payload, role=role, on_status=lambda status: report(name, status), **chosen
                )
                print("submitted", name)
                job.add_done_callback(lambda job: ended(name, job))
            case ["cancel", name] if name in jobs:
                jobs[name].cancel()
                print("cancelling", name)

    def report(name: str, status: Any) -> None:
        fraction = "-" if status.fraction is None else status.fraction
        print("status", name, fraction, (status.text or "").encode().hex() or "-")

    def ended(name: str, job: Job) -> None:
        error = job.exception()
        if error is None:
            print("ended", name, "ok", job.result().hex() or "-")
        elif outcome := next((word for kind, word in _ENDS if isinstance(error, kind)), ""):
            print("ended", name, outcome, str(error).encode().hex() or "-")

    async with manager:
        over = _until_stopped()

        async def listen() -> None:
            mode = os.fstat(sys.stdin.fileno()).st_mode
            if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or sys.stdin.isatty()):
                return  # no commands can arrive here
            loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=1 << 28)
            await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
            while line := await reader.readline():
                obey(line.decode())

        tasks = [
            asyncio.create_task(listen()),
            asyncio.create_task(over.wait()),
            asyncio.create_task(manager.node.wait_ended()),
        ]
        await asyncio.wait(tasks[1:], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await manager.close(0)


async def _work(connect: Sequence[str], unit: int, slots: int, hold: bool, dies: bool) -> None:
    defaults = WorkerSettings(identity=b"-", epoch=0)
    settings = _scaled(_WORKER, defaults, unit)
    handlers: dict[str, Any] = {"echo": echo, "fail": fail, "slow": slow}
    if dies:
        handlers["die"] = die
    if not hold:
        settings["hold"] = 0.0
    pool = "process" if dies else "thread"
    worker = wmp.aio.Worker(*connect, handlers=handlers, slots=slots, pool=pool, **settings)
    await worker.run()  # SIGTERM makes the worker drain


async def _pass_on(
    bind: Sequence[str], connect: Sequence[str], managers: Sequence[str], unit: int
) -> None:
    max_silence = DeviceSettings(identity=b"-", epoch=0, upstreams=0).max_silence * unit / 1000
    async with wmp.aio.Device(
        bind=bind, connect=connect, bind_managers=managers, max_silence=max_silence
    ):
        await _until_stopped().wait()


def _until_stopped() -> asyncio.Event:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    return over


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one testee; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m wmp.conformance.testees.testee",
        description="Run a peer of this project for the conformance kit.",
    )
    parser.add_argument("kind", choices=["manager", "worker", "device"])
    parser.add_argument("--bind", default="tcp://127.0.0.1:*")
    parser.add_argument("--connect", default="")
    parser.add_argument("--managers", default="", help="address to which managers dial in (device)")
    parser.add_argument(
        "--unit", type=int, default=1000, help="milliseconds that one second of the timers takes"
    )
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--no-hold", action="store_true", help="send no GIVE with hold")
    parser.add_argument(
        "--die",
        action="store_true",
        help="run jobs in processes, and offer the role die, whose handler ends its process",
    )
    chosen = parser.parse_args(arguments)
    if chosen.kind != "manager" and not chosen.connect:
        parser.error(f"a {chosen.kind} needs an endpoint: --connect tcp://…")
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    bind, connect, managers = (
        text.split(",") if text else [] for text in (chosen.bind, chosen.connect, chosen.managers)
    )
    try:
        match chosen.kind:
            case "manager":
                asyncio.run(_manage(bind, connect, chosen.unit))
            case "worker":
                hold, dies = not chosen.no_hold, chosen.die
                asyncio.run(_work(connect, chosen.unit, chosen.slots, hold, dies))
            case _:
                asyncio.run(_pass_on(bind, connect, managers, chosen.unit))
    except errors.WMPError as error:
        print(error, file=sys.stderr)
        return 0 if isinstance(error, errors.Superseded) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
