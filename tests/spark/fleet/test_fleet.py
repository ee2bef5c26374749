"""Workers inside executors on one machine: kills, lives, scaling, and deadlocks of task slots."""

from __future__ import annotations

import json
import os
import signal
import threading
import time

import pytest

import wmp
from tests.spark.fleet.fleet_work import plain
from wmp.errors import ClosedError, ConfigError
from wmp.spark import Fleet
from wmp.spark.fleet import fleet as fleet_module
from wmp.spark.fleet.spark_jobs import SparkJobs
from wmp.spark.fleet.table import FleetTable, MemberState

WORK = "tests.spark.fleet.fleet_work:work"


@pytest.fixture
def manager():
    with wmp.Manager("tcp://127.0.0.1:*") as manager:
        yield manager


def until(true, seconds=120.0):
    """Wait for a condition; the bound only makes a hang a failure."""
    end = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < end, "the condition did not come"
        time.sleep(0.02)
    return value


def submit(manager, numbers, folder=None):
    jobs = {}
    for number in numbers:
        row = {"number": number} | ({"folder": str(folder)} if folder else {})
        jobs[number] = manager.submit(json.dumps(row).encode(), max_worker_losses=10)
    return jobs


def check(jobs):
    assert {n: job.result(120) for n, job in jobs.items()} == {n: plain(n) for n in jobs}


class Busy:
    """A Spark job whose tasks hold slots until the block ends."""

    def __init__(self, spark, tasks, folder):
        self.spark, self.tasks, self.folder = spark, tasks, folder

    def __enter__(self):
        folder, tasks = str(self.folder), self.tasks

        def hold(batches):
            import os
            import time

            for batch in batches:
                open(f"{folder}/busy{os.getpid()}", "w").close()
                end = time.monotonic() + 120
                while not os.path.exists(f"{folder}/idle") and time.monotonic() < end:
                    time.sleep(0.02)
                yield batch

        def run():
            self.spark.range(0, tasks, 1, tasks).mapInArrow(hold, "id long").collect()

        self.thread = threading.Thread(target=run)
        self.thread.start()
        return self

    def holding(self):
        return len(list(self.folder.glob("busy*")))

    def __exit__(self, *exc):
        (self.folder / "idle").touch()
        self.thread.join()


@pytest.mark.rule("FLEET-1.1", "FLEET-1.2", "FLEET-3.2", "FLEET-3.4", "FLEET-4.1")
def test_killed_workers_come_again_and_every_job_ends(spark, manager, tmp_path):
    with Fleet(spark, WORK, workers=3, slots=4, managers=manager.endpoints) as fleet:
        fleet.wait(3, 120)
        held = submit(manager, range(6), tmp_path)
        until(lambda: len({path.name.partition(".")[0] for path in tmp_path.iterdir()}) == 6)
        before = {path.number: path.beat.pid for path in fleet.members}
        victim = int(next(tmp_path.iterdir()).name.partition(".")[2])
        os.kill(victim, signal.SIGKILL)
        (tmp_path / "open").touch()
        check(held | submit(manager, range(6, 200)))
        number = next(n for n, pid in before.items() if pid == victim)
        until(lambda: fleet.members[number].life == 2 and fleet.running == 3)
        assert [path.life for path in fleet.members if path.number != number] == [1, 1]

        with pytest.raises(ConfigError, match="need 5 task slots, and Spark has 4"):
            fleet.scale(4)
        fleet.scale(1)
        fleet.wait(timeout=120)
        check(submit(manager, range(50)))
        fleet.scale(2)
        fleet.wait(timeout=120)
        assert fleet.running == 2
        check(submit(manager, range(50)))
    assert all(path.state is MemberState.ENDED for path in fleet.members)
    with pytest.raises(ClosedError):
        fleet.scale(1)


@pytest.mark.rule("FLEET-1.4", "FLEET-3.1", "FLEET-3.3")
def test_lives_end_and_begin_again_without_a_lost_job(spark, manager):
    target = "tests.spark.fleet.fleet_work:ready"
    numbers = iter(range(1_000_000))
    with Fleet(spark, target, workers=2, life=0.5, managers=manager.endpoints) as fleet:
        while min(member.life for member in fleet.members) < 3:
            check(submit(manager, [next(numbers) for _ in range(20)]))
        assert fleet.failure is None
        assert not any(member.last_error for member in fleet.members)


@pytest.mark.rule("FLEET-4.3")
@pytest.mark.parametrize(
    ("checked", "what"),
    [(True, "the check of the executors"), (False, "any of the 1 workers of the fleet")],
)
def test_other_jobs_on_every_slot_are_recognised(
    spark, manager, tmp_path, monkeypatch, checked, what
):
    fleet = Fleet(spark, WORK, workers=1, managers=manager.endpoints, admission=2.0)
    if not checked:
        monkeypatch.setattr(fleet_module, "check_executors", lambda *_: "")
    with Busy(spark, 4, tmp_path) as busy:
        until(lambda: busy.holding() == 4)
        # Spark shows the tasks a little later.
        until(lambda: SparkJobs(spark, "none").others([]).running == 4)
        with pytest.raises(ConfigError, match=rf"did not start {what} .*\(4 of their tasks run"):
            fleet.start()


@pytest.mark.rule("FLEET-4.4")
@pytest.mark.parametrize("checked", [True, False])
def test_a_fleet_on_every_slot_is_recognised(spark, manager, tmp_path, monkeypatch, checked):
    monkeypatch.setattr(fleet_module, "check_spare", lambda *_: None)
    looks = []
    real = FleetTable.check

    def check_table(self, slots, now):
        looks.append(slots)
        if checked:
            real(self, slots, now)

    monkeypatch.setattr(FleetTable, "check", check_table)
    fleet = Fleet(spark, WORK, workers=4, managers=manager.endpoints, admission=120)
    fleet.start()
    try:
        fleet.wait(4, 120)
        fleet._table.admission = 2.0  # a busy machine may need longer for the start
        with Busy(spark, 2, tmp_path) as busy:
            if checked:
                until(lambda: fleet.failure is not None)
                assert "4 workers of the fleet hold every task slot" in str(fleet.failure)
                until(lambda: busy.holding() == 2)  # the members drained
            else:  # without the check the other job waits on
                until(lambda: sum(bool(look and look.waiting == 2) for look in looks) > 4)
                assert fleet.failure is None
                assert busy.holding() == 0
                fleet.close()
    finally:
        fleet.close()


@pytest.mark.rule("FLEET-3.6")
def test_a_thread_that_dies_ends_the_fleet_with_its_error(spark, manager, monkeypatch):
    def broken(self, number, error):
        raise RuntimeError("a defect")

    fleet = Fleet(spark, WORK, workers=1, managers=manager.endpoints)
    fleet.start()
    monkeypatch.setattr(FleetTable, "ended", broken)
    os.kill(fleet.members[0].beat.pid, signal.SIGKILL)
    until(lambda: fleet.failure)
    for act in (fleet.check, lambda: fleet.scale(2), lambda: fleet.__exit__(None, None, None)):
        with pytest.raises(ClosedError, match=r"wmp-member-0 of the fleet ended: .*a defect"):
            act()


@pytest.mark.rule("FLEET-5.1", "FLEET-5.2")
def test_what_executors_lack_is_one_line(spark, manager):
    fleet = Fleet(spark, "no_such_module:work", workers=1, managers=manager.endpoints)
    with pytest.raises(
        ConfigError, match=r"cannot import no_such_module: ModuleNotFoundError"
    ) as e:
        fleet.start()
    assert len(str(e.value).splitlines()) == 1
    assert "wmp.spark.ship" in str(e.value)


@pytest.mark.rule("FLEET-3.5")
def test_a_worker_that_cannot_be_made_ends_the_fleet(spark, manager):
    fleet = Fleet(spark, "tests.spark.fleet.fleet_work:absent", managers=manager.endpoints)
    with pytest.raises(ConfigError, match=r"5 times in a row .* has no attribute 'absent'"), fleet:
        until(lambda: fleet.failure)


def test_arguments_that_cannot_be_used(spark):
    with pytest.raises(ConfigError, match="no managers"):
        Fleet(spark, WORK, managers=[])
    with pytest.raises(ConfigError, match="workers is -1"):
        Fleet(spark, WORK, workers=-1, managers=["tcp://127.0.0.1:5570"])
