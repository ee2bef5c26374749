"""The invariants of a manager hold, and a violation is detected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from wmp.core.manager.job_lifecycle import JobState
from wmp.core.manager.machine import ManagerMachine
from wmp.core.manager.timers import HoldTimer, WakeTimer, WorkerSilenceTimer
from wmp.core.protocol.timers import ResendTimer
from wmp.events import Cancelled, Submitted
from wmp.message import Kind, Outcome
from wmp.testing.peers.scripted_worker import ScriptedWorker

BIG = Kind(needs=(("slots", 9),))


@pytest.fixture
def busy(manager: ManagerMachine) -> ManagerMachine:
    """A manager with a grant, records, waiting jobs, an open GIVE, an open WAKE and credit."""
    worker = ScriptedWorker(manager, b"w1", link=b"l1")
    other = ScriptedWorker(manager, b"w2", link=b"l2", resources={"slots": 16}, roles=("big",))
    manager.handle(Submitted(range(1, 6), [b"x"] * 5, Kind(), timeout=60.0), 0.0)
    worker.give(3)
    manager.handle(Submitted([6, 7], [b"y"] * 2, Kind(), priority=1), 0.0)
    worker.give(2)
    worker.done([6], [b"back"], outcome=Outcome.CANCELLED)
    manager.handle(Submitted([8, 9], [b"z"] * 2, Kind("big", BIG.needs)), 0.0)
    other.ready(5)
    idle = ScriptedWorker(manager, b"w3", link=b"l3", roles=("rare",))
    idle.ready(2)
    ScriptedWorker(manager, b"w4", link=b"l4", roles=("rare",)).give(2, hold=30.0)
    manager.handle(Cancelled([4, 7]), 0.0)
    manager.check_invariants()
    return manager


def worker(manager: ManagerMachine, name: bytes = b"w1") -> Any:
    return manager._workers[name]


def record(manager: ManagerMachine) -> Any:
    return next(iter(worker(manager).leases.values()))


def grant(manager: ManagerMachine) -> Any:
    return next(iter(worker(manager).grants.values()))


def queue(manager: ManagerMachine, role: str = "default") -> Any:
    return next(q for q in manager._scheduler.queues if q.kind.role == role)


def batch(manager: ManagerMachine) -> Any:
    return next(b for b in manager._scheduler.queues.batches if b.ids)


def give(manager: ManagerMachine) -> Any:
    return next(iter(worker(manager, b"w4").gives.values()))


def profiles(manager: ManagerMachine) -> Any:
    return manager._scheduler.selection.profiles


def profile(manager: ManagerMachine, name: bytes = b"w3") -> Any:
    return profiles(manager)._of[name]


def eligible(manager: ManagerMachine) -> Any:
    return next(iter(profiles(manager)._eligible.values()))


def no_capacity(manager: ManagerMachine, name: bytes) -> None:
    worker(manager, name).has_capacity = False
    profile(manager, name).with_capacity -= 1


def add(name: str, amount: int = 1) -> Callable[[Any], None]:
    return lambda thing: setattr(thing, name, getattr(thing, name) + amount)


def change(name: str, value: object) -> Callable[[Any], None]:
    return lambda thing: setattr(thing, name, value)


BREACHES: dict[str, tuple[str, Callable[[ManagerMachine], object]]] = {
    "silence": ("timer for its silence", lambda m: m._timers.clear(WorkerSilenceTimer(b"w1"))),
    "gap": ("consecutive numbers", lambda m: worker(m).stream.kept.popleft()),
    "stream size": ("size of a stream", lambda m: add("size")(worker(m).stream)),
    "kept bytes": ("sum of the sizes of all streams", lambda m: add("kept_bytes")(m._outbound)),
    "resend": ("resend timer", lambda m: m._timers.clear(ResendTimer(b"w1"))),
    "window": ("not exceed its credit", lambda m: change("window", 9)(worker(m, b"w3"))),
    "lock": ("stand under its lock", lambda m: change("last_lock", 0)(worker(m, b"w4"))),
    "want": ("must want jobs", lambda m: change("want", 0)(give(m))),
    "give window": ("not exceed its want", lambda m: change("window", 9)(give(m))),
    "give worker": (
        "name the worker that holds it",
        lambda m: change("worker", worker(m))(give(m)),
    ),
    "hold": ("timer for its hold", lambda m: m._timers.clear(HoldTimer(b"w4", 1))),
    "offer": ("equal a fresh offer", lambda m: change("done", 5)(worker(m, b"w2"))),
    "lease": (
        "record of a leased job must be found",
        lambda m: m._scheduler.leases._parts.pop(record(m).id),
    ),
    "lease state": (
        "the state LEASED or CANCELLING",
        lambda m: change("state", JobState.ENDED)(record(m)),
    ),
    "lease holder": (
        "leased job must name its worker",
        lambda m: change("holder", b"w2")(record(m)),
    ),
    "lease take": ("leased job must name a TAKE", lambda m: change("take", 99)(record(m))),
    "grant left": ("left of a grant", lambda m: add("left")(grant(m))),
    "grant holder": ("grant must name its worker", lambda m: change("holder", b"w2")(grant(m))),
    "grant take": ("grant must name a TAKE", lambda m: change("take", 99)(grant(m))),
    "grant first": (
        "under its first number",
        lambda m: worker(m).grants.update({99: worker(m).grants.pop(grant(m).ids[0])}),
    ),
    "granted": ("granted of a worker must be", lambda m: add("granted")(worker(m))),
    "held": ("held of a worker must count", lambda m: worker(m).held.update({Kind(): 99})),
    "record of nobody": (
        "must be among the leases of its worker",
        lambda m: m._scheduler.leases._parts.update({99: record(m)}),
    ),
    "deadline": ("must have a timer if it has a deadline", lambda m: m._timers.clear(1)),
    "holder gone": ("known worker", lambda m: m._workers.pop(b"w1")),
    "waiting": ("waiting of a queue must be", lambda m: add("waiting")(queue(m))),
    "dead": ("dead of a queue must be", lambda m: add("dead")(queue(m))),
    "woken": ("woken of a queue must be", lambda m: add("woken")(queue(m, "big"))),
    "wake timer": (
        "open WAKEs must have a timer",
        lambda m: m._timers.clear(WakeTimer(queue(m, "big").kind)),
    ),
    "wake queue": (
        "an open WAKE must have a queue",
        lambda m: worker(m, b"w3").woken.update({BIG: 1}),
    ),
    "wake count": (
        "must be for 1 job or more",
        lambda m: worker(m, b"w3").woken.update({Kind(): 0}),
    ),
    "order": ("priorities from high to low", lambda m: queue(m)._order.append(5)),
    "batch line": ("in the line of its kind and priority", lambda m: add("priority")(batch(m))),
    "batch columns": ("as many payloads as numbers", lambda m: change("payloads", ())(batch(m))),
    "members": ("members of a profile", lambda m: add("members")(profile(m))),
    "with_capacity": ("with_capacity of a profile", lambda m: add("with_capacity")(profile(m))),
    "capacity": ("exactly those with credit or an open GIVE", lambda m: no_capacity(m, b"w4")),
    "busy": ("busy must count", lambda m: worker(m, b"w4").busy.count(Kind("none"), 1)),
    "kind": ("only kinds that the selection knows", lambda m: profiles(m)._eligible.clear()),
    "roles": (
        "found by each of its roles",
        lambda m: next(iter(profiles(m)._by_role.values())).clear(),
    ),
    "suited": (
        "the profiles that have its role and needs",
        lambda m: [p.eligible.clear() for p in profiles(m)._all.values()],
    ),
    "eligible": ("with_capacity of a kind", lambda m: add("with_capacity")(eligible(m))),
    "lines of credit": (
        "suit it and have credit",
        lambda m: eligible(m).credited.update(x=profile(m)),
    ),
    "lines of GIVEs": (
        "suit it and have open GIVEs",
        lambda m: eligible(m).giving.update(x=profile(m)),
    ),
    "credited": (
        "exactly those with credit",
        lambda m: profile(m).credited.pop(b"w3"),
    ),
    "giving": (
        "exactly those with an open GIVE",
        lambda m: profile(m, b"w4").giving.clear(),
    ),
    "profile": (
        "known worker",
        lambda m: profiles(m)._of.update(x=profile(m)),
    ),
    "end": ("must be reported", lambda m: m._scheduler.leases._ids.append(1)),
}


@pytest.mark.parametrize("name", BREACHES)
def test_a_breach_is_seen(busy: ManagerMachine, name: str) -> None:
    text, breach = BREACHES[name]
    if name == "offer":
        worker(busy, b"w2").offer()
    breach(busy)
    with pytest.raises(AssertionError, match=text):
        busy.check_invariants()
