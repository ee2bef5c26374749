"""The tables made from the journals of worlds match the worlds, for every job.

A world has the true values: its history of each job, and the machines' own tables at the end. The
journals of all worlds make one journal, so that Spark runs only once.
"""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from tests.ablation import manager_side
from tests.ablation.test_worlds import DEPTH, WORLDS
from tests.spark.folds.worlds import build, play, write
from wmp.checks.job_history import INVARIANTS
from wmp.core.manager.machine import ManagerMachine
from wmp.core.worker.machine import WorkerMachine
from wmp.journal.schema import name_of_peer
from wmp.spark.folds.findings import FINDINGS
from wmp.spark.journals.schema import TABLES
from wmp.testing.simulator.faults import Fault
from wmp.testing.state.manager_state import all_jobs

SEEDS = range(24)


RIVALS = "one process for each identity"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Worlds in which all safeguards are on."""
    folder = tmp_path_factory.mktemp("sound")
    return [play(seed, folder) for seed in SEEDS]


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """Worlds in which jobs have start times, expiries and run limits, fail and are tried again."""
    folder = tmp_path_factory.mktemp("timed")
    return [play(seed, folder, name=f"t{seed}", timed=True) for seed in range(12)]


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Worlds without a safeguard, by safeguard.

    Each world is that of the first seed that breaks a claim which a journal can show. For a claim
    that only passing time breaks, there are two worlds, because a journal may not show that the
    time passed.
    """
    folder = tmp_path_factory.mktemp("broken")
    by_switches = {}
    for number, (switches, _, seeds) in enumerate([*WORLDS, *DEPTH]):
        switches = switches if isinstance(switches, tuple) else (switches,)
        played = (play(seed, folder, *switches, name=f"x{number}-{seed}") for seed in seeds)
        seen = [
            simulation
            for simulation in played
            if simulation.violation and simulation.violation.name in FINDINGS
        ]
        by_switches[switches] = seen[: 2 if manager_side.expiry in switches else 1]
    return by_switches


UNSEEN = {manager_side.refusal}
"""Switches whose worlds break a rule that journals do not show."""

OWN_RULES = {
    manager_side.expiry: "WMP-9.3",
    manager_side.reconnect_grace: "WMP-9.16",
}
"""Safeguards whose absence has a finding of its own, by switch."""


@pytest.fixture(scope="module")
def tables(spark, sound, timed, broken, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    worlds = [*sound, *timed, *(simulation for some in broken.values() for simulation in some)]
    return build(spark, [write(worlds, folder / "journal")], folder / "out").tables


@pytest.fixture(scope="module")
def violations(tables):
    """Return the names of the violations found, by world; each violation must be certain."""
    names: dict[str, set[str]] = {}
    for row in tables.read("violations").collect():
        assert row.certain, row
        names.setdefault(row.node.partition(".")[0], set()).add(row.name)
    return names


def test_worlds_with_times_and_failures_show_no_violation(tables, timed):
    assert [world.violation for world in timed if world.violation] == []
    broken_rules = tables.read("violations").where(
        F.col("owner").startswith("t") | F.col("node").startswith("t")
    )

    assert [row.asDict() for row in broken_rules.collect()] == []


def test_worlds_have_every_kind_of_fault(sound):
    struck = Counter()
    for simulation in sound:
        assert simulation.violation is None, f"seed {simulation.world.seed}: {simulation.violation}"
        struck.update(simulation.world.simulation.injector.counts)

    assert {fault for fault in Fault if not struck[fault]} == set()


def test_nothing_is_found_in_sound_worlds(sound, violations):
    wrong = {
        simulation.name: violations[simulation.name]
        for simulation in sound
        if simulation.name in violations
    }

    assert wrong == {}


def test_each_broken_safeguard_is_found_and_named(broken, violations):
    # A journal does not show when a stopped manager read its clock again.
    wrong, shown = {}, set()
    for switches, worlds in broken.items():
        if UNSEEN.intersection(switches):
            continue
        named = []
        rules = {rule for switch, rule in OWN_RULES.items() if switch in switches}
        for simulation in worlds:
            seen = violations.get(simulation.name, set()) & INVARIANTS.keys()
            if rules:
                named.append(bool(rules & violations.get(simulation.name, set())))
                continue
            if simulation.violation.name == RIVALS and not seen:
                # A manager that served the process and was killed is in its lines, too.
                continue
            shown.add(simulation.violation.name)
            named.append(simulation.violation.name in seen)
            if seen != {simulation.violation.name}:
                wrong[simulation.name, switches] = simulation.violation.name, seen
        if named and not any(named):
            wrong[switches] = "never found"

    assert wrong == {}
    assert shown >= {
        "every job ends", "executions", "leases are lost for a cause", "no stale result",
        "no double booking", "cancelled stays cancelled", "worker losses are kept",
        "ends have a cause", "runs are counted", RIVALS,
    }  # fmt: skip


def test_each_violation_has_its_story(tables):
    violations, story = tables.read("violations"), tables.read("violation_events")
    events = tables.read("events")

    assert violations.where(F.col("text").isNull()).count() == 0
    stories = story.groupBy("violation").agg(
        F.count("*").alias("lines"), F.max("place").alias("last")
    )
    whole = violations.join(stories, "violation", "left")
    assert whole.where((F.col("lines") != F.size("events")) | F.col("lines").isNull()).count() == 0
    assert whole.where(F.col("lines") != F.col("last")).count() == 0
    assert story.join(events, ["node", "epoch", "n"], "left_anti").count() == 0


def expected_jobs(worlds):
    """Return the end and the attempts of each (owner, epoch, job), by the history of the world."""
    for simulation in worlds:
        for (identity, epoch), jobs in simulation.world.history.jobs.items():
            owner = f"{simulation.name}.{name_of_peer(identity)}"
            for id, job in jobs.items():
                end = None if job.end is None else job.end.value
                yield owner, epoch, id, end, job.attempt, job.over


def test_jobs_end_as_their_submitters_saw(spark, sound, tables):
    columns = "owner string, owner_epoch bigint, job bigint, end string, attempts bigint"
    rows = [row[:5] for row in expected_jobs(sound)]
    names = [row[0] for row in rows]
    mine = tables.read("jobs").where(
        F.split("owner", "\\.")[0].isin(*{n.split(".")[0] for n in names})
    )

    assertDataFrameEqual(
        mine.select("owner", "owner_epoch", "job", "end", "attempts"),
        spark.createDataFrame(rows, columns),
    )


def test_states_of_jobs_equal_the_states_at_their_managers(spark, sound, tables):
    """The tables are rebuilt from lines. A job's state in them equals its state in the machine."""
    rows = []
    for simulation in sound:
        for name, node in simulation.world.simulation.network.nodes.items():
            if isinstance(node, ManagerMachine) and simulation.world.simulation.network.alive(name):
                peer = (
                    f"{simulation.name}.{name_of_peer(node.settings.identity)}",
                    node.settings.epoch,
                )
                held = all_jobs(node)
                known = simulation.world.history.jobs.get(
                    (node.settings.identity, node.settings.epoch), {}
                )
                for id in known:
                    state = held[id].state.name.lower() if id in held else "ended"
                    rows.append((*peer, id, state))
    expected = spark.createDataFrame(
        rows, "owner string, owner_epoch bigint, job bigint, state string"
    )
    mine = tables.read("jobs").join(F.broadcast(expected.select("owner", "owner_epoch").distinct()),
                                    ["owner", "owner_epoch"])  # fmt: skip

    assertDataFrameEqual(mine.select("owner", "owner_epoch", "job", "state"), expected)


def test_locks_are_in_the_states_that_their_workers_have_them_in(spark, sound, tables):
    rows, workers = [], []
    for simulation in sound:
        for name, node in simulation.world.simulation.network.nodes.items():
            if isinstance(node, WorkerMachine) and simulation.world.simulation.network.alive(name):
                peer = (
                    f"{simulation.name}.{name_of_peer(node.settings.identity)}",
                    node.settings.epoch,
                )
                workers.append(peer)
                for remote in node._links.managers.values():
                    manager = f"{simulation.name}.{name_of_peer(remote.identity)}", remote.epoch
                    for number, lock in node._locks.of(remote.identity).items():
                        rows.append((*peer, number, *manager, lock.state.value, lock.want))
    columns = (
        "worker string, worker_epoch bigint, lock bigint, manager string, manager_epoch bigint, "
        "state string, left bigint"
    )
    alive = spark.createDataFrame(workers, "worker string, worker_epoch bigint")
    locks = tables.read("locks").join(F.broadcast(alive), ["worker", "worker_epoch"])
    mine = locks.where(F.col("state") != "closed").withColumn("left", F.col("want") - F.col("jobs"))

    assertDataFrameEqual(
        mine.select("worker", "worker_epoch", "lock", "manager", "manager_epoch", "state", "left"),
        spark.createDataFrame(rows, columns),
    )


def test_executions_are_those_that_worlds_counted(sound, tables):
    """A stopped lane may begin fewer jobs than the lane was given."""
    counted = {
        f"{simulation.name}.{name.rstrip('+')}": 0
        for simulation in sound
        for name in simulation.world.topology.workers
    }
    for simulation in sound:
        for name, begun in simulation.world.simulation.runner.begun.items():
            counted[f"{simulation.name}.{name.rstrip('+')}"] += begun
    rows = tables.read("executions").where(F.coalesce("outcome", F.lit("")) != "recalled")
    handed = {row.worker: row["count"] for row in rows.groupBy("worker").count().collect()}

    few = {name: (begun, handed.get(name, 0)) for name, begun in counted.items()}
    assert [name for name, (begun, seen) in few.items() if seen < begun] == []
    assert sum(seen for _, seen in few.values()) <= 1.1 * sum(begun for begun, _ in few.values())


def test_clocks_are_put_right(sound, tables):
    """The worlds have the error of each clock, and the pipeline corrects this error."""
    nodes = {(row.node, row.epoch): row for row in tables.read("nodes").collect()}
    checked = 0
    for row in tables.read("offsets").collect():
        world = next(
            (
                simulation.world
                for simulation in sound
                if row.node.startswith(f"{simulation.name}.")
            ),
            None,
        )
        if world is None:
            continue
        ends = [who.partition(".")[2] for who in (row.node, row.peer)]
        skew = [world.faults.skew.get(name, (0.0, 1.0)) for name in ends]
        if any(rate != 1.0 for _, rate in skew) and skew[0] != skew[1]:
            continue  # the rates of the clocks are not corrected
        if any(
            f"{name}+" in world.topology.uplinks or f"{name}+" in world.topology.managers
            for name in ends
        ):
            continue
        truth = (skew[1][0] - skew[0][0]) * 1e6
        assert abs(row.offset - truth) <= row.error + 1, row
        assert nodes[row.peer, row.peer_epoch].clock_error is None or row.error >= 0
        checked += 1

    assert checked > 20


def test_tables_have_the_columns_of_the_schema(tables):
    for table in TABLES.values():
        columns = [(name, kind) for name, kind in tables.read(table.name).dtypes]
        assert columns == [(c.name, c.type) for c in table.columns], table.name


def test_measures_of_different_tables_agree(tables):
    """Sums over different tables agree."""
    jobs, attempts = tables.read("jobs"), tables.read("attempts")
    latency = tables.read("latency")

    def count(phase: str) -> int:
        rows = latency.where((F.col("phase") == phase) & (F.col("by") == "all")).collect()
        return rows[0]["count"]

    assert count("total") == jobs.where(F.col("ended").isNotNull()).count()
    assert (
        count("lease")
        == attempts.where(F.col("accepted").isNotNull() & F.col("granted").isNotNull()).count()
    )
    for phase in ("handler", "queue wait", "take trip"):
        by_role = latency.where((F.col("phase") == phase) & (F.col("by") == "role"))
        assert by_role.agg(F.sum("count")).collect()[0][0] == count(phase)
        bars = tables.read("histogram").where(F.col("phase") == phase)
        assert bars.agg(F.sum("count")).collect()[0][0] == count(phase)
    requeued = tables.read("requeues").agg(F.sum("leases")).collect()[0][0]
    assert requeued == attempts.where(F.col("cause").isNotNull()).count()
    activity = tables.read("activity").agg(F.sum("submitted"), F.sum("ended")).collect()[0]
    assert tuple(activity) == (jobs.count(), count("total"))
    over = tables.read("utilisation").where("share > 1.0001 and have > 0").select("worker")
    booked = tables.read("violations").where("name = 'no double booking'").select("worker")
    assert over.join(booked, "worker", "left_anti").count() == 0
    jain = tables.read("fairness").where(F.col("jain").isNotNull())
    assert jain.where("jain > 1.0001 or jain < 0.9999 / parties").count() == 0
