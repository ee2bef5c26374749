"""A small fleet in virtual time that runs the steps of a story."""

from __future__ import annotations

from attrs import define, field

from tests.property.test_network_property import RESOURCES, ROLES
from tests.spark.folds.seen import Seen
from wmp import codec
from wmp.balance import least_recently_used
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.message import Outcome
from wmp.testing.simulator.journals import Journals
from wmp.testing.simulator.network import Network

__all__ = ["MANAGERS", "WORKERS", "Fleet"]

MANAGERS, WORKERS = ("m1", "m2"), ("w1", "w2")


@define(eq=False)
class Fleet(Network):
    """Managers m1 and m2, a worker w1 connected to both, and a worker w2 behind a device. All write
    journals.

    Identities end in the fleet's number, so that one journal can have many fleets.
    """

    number: int = 0
    journals: Journals = None  # type: ignore[assignment]
    seen: Seen = None  # type: ignore[assignment]
    epochs: dict[str, int] = field(init=False)
    submitted: list[tuple[str, int]] = field(factory=list, init=False)

    def __attrs_post_init__(self):
        self.epochs = dict.fromkeys((*MANAGERS, *WORKERS, "d"), 1)
        for name in MANAGERS:
            self.add(name, self.make(name))
        self.add("d", self.make("d"), MANAGERS)
        self.add("w1", self.make("w1"), MANAGERS)
        self.add("w2", self.make("w2"), ["d"])
        for name in WORKERS:
            self.connect(name)

    def make(self, name):
        who = {"identity": f"{name}.{self.number}".encode(), "epoch": self.epochs[name]}
        if name == "d":
            return DeviceMachine(DeviceSettings(**who, upstreams=2))
        if name in MANAGERS:
            return ManagerMachine(ManagerSettings(**who), least_recently_used)
        # Locks time out earlier than leases, so jobs may arrive late without a lost lease.
        what = {"roles": ROLES, "resources": RESOURCES[name], "hold": 1.0, "lock_timeout": 1.0}
        return WorkerMachine(WorkerSettings(**who, **what), len(self.uplinks.get(name, ())) or 2)

    def handled(self, name, event, actions):
        self.journals.step(name, self.nodes[name].settings, event, actions, self.now)
        self.seen.step(self.nodes[name], event, actions, self.now)

    # -- steps; a step without a target does nothing

    def step(self, what, *how):
        """Run one step of a story."""
        self.now += 1e-4
        getattr(self, f"do_{what}")(*how)

    def do_submit(self, name, count, kind, timeout, max_worker_losses):
        ids = self.submit(
            name, [b"x"] * count, kind, timeout=timeout, max_worker_losses=max_worker_losses
        )
        self.submitted += [(name, id) for id in ids]

    def do_submit_with(self, name, kind, times):
        """Submit a job with further terms, as fields of ``Submitted``."""
        ids = self.submit(name, [b"x"], kind, **times)
        self.submitted += [(name, id) for id in ids]

    def do_fail(self, index, wait):
        """Let a handler fail; it asks for another attempt after ``wait`` ms, or for none."""
        if lanes := list(self.running()):
            name, lane = lanes[index % len(lanes)]
            self.end(
                name, lane, Outcome.ERROR, b"", "failed\nbuiltins.OSError builtins.Exception", wait
            )

    def do_settle(self):
        self.settle()

    def do_flow(self, count):
        """Deliver messages while all handlers continue to run."""
        for _ in range(count):
            self.do_move(0, "deliver")

    def do_until(self, command, how):
        """Deliver messages until this command is the next message of a pipe.

        Then apply ``how`` to it.
        """
        for _ in range(60):
            for pipe in self.busy():
                if codec.peek(self.pipes[pipe][0]).command is command:
                    if how != "stay":
                        getattr(self, how)(pipe)
                    return
            self.do_move(0, "deliver")

    def do_move(self, index, how):
        if pipes := self.busy():
            getattr(self, how)(pipes[index % len(pipes)])

    def do_finish(self, index, outcome):
        if lanes := list(self.running()):
            name, lane = lanes[index % len(lanes)]
            if outcome is Outcome.LOST:
                self.bereave(name, lane)
            else:
                self.finish(name, lane, outcome)

    def do_cancel(self, index):
        if self.submitted:
            name, id = self.submitted[index % len(self.submitted)]
            self.cancel(name, [id])

    def do_wait(self, seconds):
        self.advance(self.now + seconds)

    def do_restart(self, name):
        self.epochs[name] += 1
        self.replace(name, self.make(name))
        if name not in (*MANAGERS, "d"):
            self.connect(name)

    def do_silence(self, name, seconds):
        """Stop a process for some time: it gets no message, and none of its timers rings."""
        self.down.add(name)
        self.do_wait(seconds)
        self.down.clear()
