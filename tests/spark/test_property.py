"""Whatever happens to a small fleet: rebuilt from its journals, jobs and locks are in the states in
which the machines themselves have them, and nothing is found to be wrong."""

from __future__ import annotations

from attrs import define, field
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.test_network_property import KINDS, manager, worker
from wmp.core.device import Device
from wmp.core.settings import DeviceSettings
from wmp.message import Outcome
from wmp.spark.events import events, parse
from wmp.spark.executions import executions
from wmp.spark.facts import facts
from wmp.spark.histories import histories
from wmp.spark.journals import LINES
from wmp.spark.leases import leases
from wmp.spark.locks import lock_states
from wmp.spark.processes import processes
from wmp.testing.journals import Journals
from wmp.testing.network import Network

MANAGERS, WORKERS = ("m1", "m2"), ("w1", "w2")
ANY = st.integers(0, 2**16)

STEP = st.one_of(
    st.tuples(
        st.just("submit"), st.sampled_from(MANAGERS), st.integers(1, 4), st.sampled_from(KINDS),
        st.sampled_from([None, 0.5]), st.integers(0, 2),
    ),
    st.tuples(st.just("settle")),
    st.tuples(st.just("flow"), st.integers(1, 40)),
    st.tuples(st.just("flow"), st.integers(1, 40)),
    st.tuples(st.just("move"), ANY, st.sampled_from(["deliver", "drop", "repeat", "refuse"])),
    st.tuples(st.just("finish"), ANY, st.sampled_from([Outcome.OK, Outcome.ERROR])),
    st.tuples(st.just("cancel"), ANY),
    st.tuples(st.just("wait"), st.sampled_from([0.01, 0.3, 3.0, 7.0])),
    st.tuples(st.just("restart"), st.sampled_from([*WORKERS, "d"])),
)  # fmt: skip
STORY = st.lists(STEP, min_size=12, max_size=40)


@define(eq=False)
class Fleet(Network):
    """m1 and m2; w1 is connected to both, w2 to a device that is: with journals."""

    journals: Journals = None  # type: ignore[assignment]
    epochs: dict[str, int] = field(init=False)
    submitted: list[tuple[str, int]] = field(factory=list, init=False)

    def __attrs_post_init__(self):
        self.epochs = dict.fromkeys((*WORKERS, "d"), 1)
        for name in MANAGERS:
            self.add(name, manager(name))
        self.add("d", self.make("d"), MANAGERS)
        self.add("w1", self.make("w1"), MANAGERS)
        self.add("w2", self.make("w2"), ["d"])
        for name in WORKERS:
            self.connect(name)

    def make(self, name):
        epoch = self.epochs[name]
        if name == "d":
            return Device(DeviceSettings(identity=b"d", epoch=epoch, upstreams=2))
        return worker(name, 2 if name == "w1" else 1, epoch)

    def handled(self, name, event, actions):
        self.journals.step(name, self.nodes[name].settings, event, actions, self.now)

    def step(self, what, *how):
        """One step of a story; one for which there is nothing is passed over."""
        self.now += 1e-4
        getattr(self, f"do_{what}")(*how)

    def do_submit(self, name, count, kind, timeout, retries):
        ids = self.submit(name, [b"x"] * count, kind, timeout=timeout, retries=retries)
        self.submitted += [(name, id) for id in ids]

    def do_settle(self):
        self.settle()

    def do_flow(self, count):
        """Messages arrive, and nobody has done any work meanwhile."""
        for _ in range(count):
            self.do_move(0, "deliver")

    def do_move(self, place, how):
        if pipes := self.busy():
            getattr(self, how)(pipes[place % len(pipes)])

    def do_finish(self, place, outcome):
        if lanes := list(self.running()):
            self.finish(*lanes[place % len(lanes)], outcome)

    def do_cancel(self, place):
        if self.submitted:
            name, id = self.submitted[place % len(self.submitted)]
            self.cancel(name, [id])

    def do_wait(self, seconds):
        self.advance(self.now + seconds)

    def do_restart(self, name):
        self.epochs[name] += 1
        self.replace(name, self.make(name))
        if name != "d":
            self.connect(name)

    def jobs(self):
        """(manager, id, state) of each job, as its manager has it."""
        for name, id in self.submitted:
            job = self.nodes[name]._dispatch.all_jobs().get(id)
            yield name, id, "ended" if job is None else job.state.name.lower()

    def locks(self):
        """(worker, epoch, number, manager, state, jobs that may come) of each that is open."""
        for name in WORKERS:
            node = self.nodes[name]
            for upstream in node._board.upstreams.values():
                for number, lock in upstream.locks.items():
                    yield (
                        name, node.settings.epoch, number, upstream.identity.decode(),
                        lock.state.value, lock.want,
                    )  # fmt: skip


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(story=STORY)
def test_what_is_rebuilt_is_what_the_machines_have(spark, tmp_path_factory, story):
    folder = tmp_path_factory.mktemp("story")
    fleet = Fleet(journals=Journals(folder))
    for step in story:
        fleet.step(*step)
    # As if all were killed now: jobs and locks need not have come to an end.
    fleet.journals.close(lambda name: False)

    text = [
        (path.name, line)
        for path in sorted(folder.iterdir())
        for line in path.read_text(encoding="ascii").splitlines()
    ]
    # All is compared here, in two questions: Spark takes longer to plan than to count.
    lines = events(parse(spark.createDataFrame(text, LINES))).cache()
    known = processes(lines)
    told = facts(lines, executions(lines)).unionByName(leases(lines, known))
    try:
        found, locks = histories(told, known).collect(), lock_states(lines).collect()
    finally:
        lines.unpersist()

    assert [row for row in found if row.kind == "violation"] == []
    states = [(row.owner, row.job, row.name) for row in found if row.kind == "state"]
    assert sorted(states) == sorted(fleet.jobs())
    assert [row.broken for row in locks if row.broken] == []
    newest = set(fleet.epochs.items())
    left = [
        (row.worker, row.worker_epoch, row.lock, row.manager, row.state, row.want - row.jobs)
        for row in locks
        if (row.worker, row.worker_epoch) in newest
        and row.given is not None
        and row.state != "closed"
    ]
    assert sorted(left) == sorted(fleet.locks())
