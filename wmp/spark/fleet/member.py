"""One process of a fleet's member: the task of Spark that runs a worker. It runs in an executor.

The fleet's driver sends a :class:`MemberPlan` with the task. The process reports to the driver, and
the answers order it to serve or to drain. Without answers it drains, so that no worker outlives its
fleet for long.
"""

from __future__ import annotations

import importlib
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Thread
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import zmq
from attrs import asdict, field, frozen

from wmp import blocking
from wmp.calls.served import handlers_of
from wmp.calls.target import load_target
from wmp.errors import ConfigError, TransportError, WMPError
from wmp.message import DEFAULT_ROLE
from wmp.spark.fleet.table import Beat, Order

if TYPE_CHECKING:
    import pyarrow

INTERVAL: Final = 0.5
"""Seconds between two reports."""

UNANSWERED: Final = 8.0
"""Seconds after which a process without any answer gives up (FLEET-2.3)."""


@frozen(kw_only=True)
class MemberPlan:
    """The work of one life of a member."""

    worker: Any
    """``module:attribute``, ``module``, a handler, or a mapping from roles to handlers."""
    managers: tuple[str, ...]
    settings: Mapping[str, Any]
    """Further arguments of :class:`wmp.Worker`."""
    member: int
    life: int
    seconds: float
    """After this time the worker drains, and the life ends."""
    drain: float
    """Seconds that jobs have to finish."""
    silence: float
    """Seconds without an answer of the fleet after which the worker drains."""
    control: str
    """Endpoint of the fleet."""
    token: str = field(repr=False)
    server_key: bytes | None = None
    """CURVE key of the fleet; None where libzmq lacks CURVE."""


def run_member(plan: MemberPlan) -> Iterator[pyarrow.RecordBatch]:
    """Run one process of a member; yield one row that describes its end.

    Raises:
        ConfigError: The worker cannot be made.
        TransportError: The fleet did not answer.
        WMPError: The worker failed.
    """
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"end": [json.dumps(MemberProcess(plan).run())]})


class MemberProcess:
    """Runs the worker of one life on a thread, and the conversation with the fleet on this one."""

    def __init__(self, plan: MemberPlan) -> None:
        self._plan = plan
        self._beat = Beat(
            member=plan.member,
            life=plan.life,
            process=secrets.token_hex(8),
            host=socket.gethostname(),
            pid=os.getpid(),
            executor=os.environ.get("SPARK_EXECUTOR_ID", ""),
        )
        self._worker: blocking.Worker | None = None
        self._error: BaseException | None = None
        self._reason = ""
        """Why the worker drains; empty while it serves."""

    def run(self) -> dict[str, Any]:
        """Serve until the end of this life; return what happened."""
        plan = self._plan
        with _dialled(plan) as control:
            answer = self._await_begin(control)
            if answer is not Order.SERVE:
                return {"reason": "not wanted", **asdict(self._beat)}
            with _visible(has_resources()) as resources:
                self._worker = make_worker(plan, resources)
                thread = Thread(target=self._serve, name="wmp-member", daemon=True)
                thread.start()
                self._watch(control, thread)
        if self._error is not None and not isinstance(self._error, TimeoutError):
            raise self._error
        return {"reason": self._reason, "late": str(self._error or ""), **asdict(self._beat)}

    def _serve(self) -> None:
        assert self._worker is not None
        try:
            self._worker.run(self._plan.drain)
        except BaseException as error:  # noqa: BLE001 - raised by the task's thread
            self._error = error

    def _await_begin(self, control: zmq.Socket[bytes]) -> Order:
        """Report until the fleet orders to serve or to drain.

        Raises:
            TransportError: The fleet did not answer for ``UNANSWERED`` seconds.
        """
        answered = time.monotonic()
        while True:
            answer = self._ask(control)
            now = time.monotonic()
            if answer is not None:
                answered = now
                if answer is not Order.WAIT:
                    return answer
            elif now - answered >= UNANSWERED:
                raise TransportError(
                    f"the fleet at {self._plan.control} did not answer {self._beat.host} for "
                    f"{UNANSWERED:g} s; open that address to the executors, or set control= to an "
                    "address of the driver that they reach"
                )

    def _watch(self, control: zmq.Socket[bytes], thread: Thread) -> None:
        """Report while the worker runs; drain when ordered, alone, or at the end of this life."""
        plan, begun = self._plan, time.monotonic()
        answered = begun
        while thread.is_alive():
            answer = self._ask(control)
            now = time.monotonic()
            if answer is not None:
                answered = now
            if self._reason:
                continue
            if answer is Order.DRAIN:
                self._drain("ordered")
            elif now - answered >= plan.silence:
                self._drain(f"no answer of the fleet for {plan.silence:g} s")
            elif now - begun >= plan.seconds:
                self._drain("end of life")

    def _drain(self, reason: str) -> None:
        self._reason = reason
        assert self._worker is not None
        self._worker.interrupt()

    def _ask(self, control: zmq.Socket[bytes]) -> Order | None:
        """Report once, and wait for the answer or for ``INTERVAL``; return the last answer."""
        until = time.monotonic() + INTERVAL
        row = asdict(self._with_load())
        body = json.dumps(row | {"token": self._plan.token}).encode()
        try:
            control.send(body, zmq.DONTWAIT)
        except zmq.Again:
            pass  # the fleet is not there; the loop counts its silence
        answer = None
        while (left := until - time.monotonic()) > 0:
            if control.poll(int(left * 1000) + 1):
                answer = Order(control.recv().decode())
                if answer is not Order.SERVE or self._worker is None:
                    break
        return answer

    def _with_load(self) -> Beat:
        from attrs import evolve

        if self._worker is None:
            return self._beat
        try:
            seen = self._worker.statistics()
        except (WMPError, RuntimeError):
            return self._beat  # the worker begins or ends
        self._beat = evolve(self._beat, managers=len(seen.managers), held=seen.held)
        return self._beat


def make_worker(plan: MemberPlan, resources: Mapping[str, int]) -> blocking.Worker:
    """Return the worker of a plan, which has not started.

    Args:
        plan: The plan.
        resources: Amounts that Spark gave to the task. The plan's own amounts override them.

    Raises:
        ConfigError: The target cannot be imported, or is not a handler.
    """
    settings = dict(plan.settings)
    settings["resources"] = {**resources, **(settings.get("resources") or {})}
    settings.setdefault("on_hang", "stop")  # the end of the process ends its threads
    target = plan.worker
    if isinstance(target, str):
        target = load_target(target)
        if isinstance(target, blocking.Worker):
            # Spark uses a Python process for many tasks, and a worker serves only once.
            importlib.reload(importlib.import_module(plan.worker.partition(":")[0]))
            target = load_target(plan.worker)
            target.connect(*plan.managers)
            return target  # type: ignore[no-any-return]
        if isinstance(target, ModuleType):
            target = handlers_of(plan.worker)
    if not (callable(target) or isinstance(target, Mapping)):
        raise ConfigError(
            f"the worker of the fleet is of type {type(target).__name__}; expected a function, a "
            "mapping from roles to functions, a module, or a wmp.Worker"
        )
    handlers = target if isinstance(target, Mapping) else {DEFAULT_ROLE: target}
    label = settings.pop("label", None) or f"member {plan.member} on {socket.gethostname()}"
    return blocking.Worker(*plan.managers, handlers=handlers, label=label, **settings)


def has_resources() -> dict[str, tuple[str, ...]]:
    """Return the addresses of the resources that Spark gave to this task, by name."""
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None:
        return {}
    return {name: tuple(resource.addresses) for name, resource in task.resources().items()}


@contextmanager
def _visible(resources: Mapping[str, tuple[str, ...]]) -> Iterator[dict[str, int]]:
    """Let libraries see the task's GPUs only; yield the amount of each resource."""
    name, before = "CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES")
    if "gpu" in resources:
        os.environ[name] = ",".join(resources["gpu"])
    try:
        yield {name: len(addresses) for name, addresses in resources.items()}
    finally:
        # Spark uses this process for other tasks, too.
        if "gpu" in resources:
            os.environ.pop(name, None)
            if before is not None:
                os.environ[name] = before


@contextmanager
def _dialled(plan: MemberPlan) -> Iterator[zmq.Socket[bytes]]:
    """Yield a socket that is connected to the fleet."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    control = context.socket(zmq.DEALER)
    control.linger = 0
    control.sndhwm = 10
    if plan.server_key is not None:
        control.curve_publickey, control.curve_secretkey = zmq.curve_keypair()
        control.curve_serverkey = plan.server_key
    control.connect(plan.control)
    try:
        yield control
    finally:
        control.close()
        context.term()
