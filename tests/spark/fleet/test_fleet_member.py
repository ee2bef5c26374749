"""One process of a member and the fleet's end of its reports, without Spark."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import zmq
from pyspark.resource import ResourceInformation

import wmp
from tests.spark.fleet.fleet_work import plain
from tests.waiting import RUN, WAIT
from wmp.errors import ConfigError, TransportError
from wmp.spark import ship
from wmp.spark.fleet import member as fleet_member
from wmp.spark.fleet.control import FleetControl
from wmp.spark.fleet.member import MemberPlan, MemberProcess, make_worker
from wmp.spark.fleet.table import Order


def plan(control, managers, **other):
    given = {
        "worker": "tests.spark.fleet.fleet_work:work",
        "managers": tuple(managers),
        "settings": {"slots": 2},
        "member": 0,
        "life": 1,
        "seconds": 600.0,
        "drain": 10.0,
        "silence": 30.0,
        "control": control.endpoint,
        "token": control.token,
        "server_key": control.server_key,
    }
    return MemberPlan(**given | other)


class Driver:
    """Answers reports on a thread, with orders that the test chooses."""

    def __init__(self, order=Order.SERVE):
        self.order, self.beats, self.serving = order, [], True
        self.control = FleetControl("tcp://127.0.0.1")

    def __enter__(self):
        def run():
            while self.serving:
                self.control.answer(0.02, self.note)

        self.thread = threading.Thread(target=run)
        self.thread.start()
        return self

    def note(self, beat):
        self.beats.append(beat)
        return self.order(beat) if callable(self.order) else self.order

    def silence(self):
        self.serving = False
        self.thread.join()

    def __exit__(self, *exc):
        self.silence()
        self.control.close()


@pytest.fixture
def manager():
    with wmp.Manager("tcp://127.0.0.1:*") as manager:
        yield manager


@pytest.mark.rule("FLEET-2.1", "FLEET-3.1")
def test_a_worker_begins_at_the_order_and_ends_with_its_life(manager):
    orders = iter([Order.WAIT, Order.WAIT])
    with Driver(lambda beat: next(orders, Order.SERVE)) as driver:
        job = manager.submit(json.dumps({"number": 3}).encode())
        end = MemberProcess(plan(driver.control, manager.endpoints, seconds=1.5)).run()
        assert job.result(WAIT) == plain(3)
    assert (end["reason"], end["late"]) == ("end of life", "")
    assert [beat.managers for beat in driver.beats[:3]] == [0, 0, 0]
    assert driver.beats[-1].managers == 1


@pytest.mark.rule("FLEET-2.1")
def test_a_process_that_is_not_wanted_starts_no_worker(manager):
    with Driver(Order.DRAIN) as driver:
        end = MemberProcess(plan(driver.control, manager.endpoints)).run()
    assert end["reason"] == "not wanted"
    assert len(driver.beats) == 1


@pytest.mark.rule("FLEET-2.3")
def test_without_any_order_a_process_gives_up(manager, monkeypatch):
    monkeypatch.setattr(fleet_member, "UNANSWERED", 1.0)
    with Driver() as driver:
        driver.silence()
        with pytest.raises(TransportError, match=r"tcp://127.0.0.1:\d+ did not answer .* control="):
            MemberProcess(plan(driver.control, manager.endpoints)).run()


@pytest.mark.rule("FLEET-2.3")
def test_without_further_orders_a_worker_drains(manager):
    with Driver() as driver:
        process = MemberProcess(plan(driver.control, manager.endpoints, silence=1.0))
        ends = []
        thread = threading.Thread(target=lambda: ends.append(process.run()))
        thread.start()
        until = time.monotonic() + WAIT
        while not (driver.beats and driver.beats[-1].managers):
            assert time.monotonic() < until
            time.sleep(0.02)
        driver.silence()
        thread.join(WAIT)
    assert ends
    assert ends[0]["reason"] == "no answer of the fleet for 1 s"


@pytest.mark.rule("FLEET-2.2")
@pytest.mark.parametrize("other", [{"token": "guessed"}, {"server_key": None}])
def test_a_stranger_gets_no_answer(manager, monkeypatch, other):
    if "server_key" in other and not zmq.has("curve"):
        pytest.skip("libzmq lacks CURVE")
    monkeypatch.setattr(fleet_member, "UNANSWERED", 1.0)
    with Driver() as driver:
        with pytest.raises(TransportError):
            MemberProcess(plan(driver.control, manager.endpoints, **other)).run()
        assert driver.beats == []


@pytest.mark.rule("FLEET-1.3")
def test_resources_of_the_task_become_resources_of_the_worker(monkeypatch):
    class Task:
        def resources(self):
            return {"gpu": ResourceInformation("gpu", ["2", "3"])}

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("pyspark.TaskContext.get", Task)
    assert fleet_member.has_resources() == {"gpu": ("2", "3")}
    with (
        wmp.Manager("tcp://127.0.0.1:*") as manager,
        Driver() as driver,
    ):
        job = manager.submit(b"", needs={"gpu": 2})
        job.add_done_callback(lambda job: setattr(driver, "order", Order.DRAIN))
        shown = "tests.spark.fleet.fleet_work:shown"
        MemberProcess(plan(driver.control, manager.endpoints, worker=shown)).run()
        assert job.result(0) == b"2,3"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


@pytest.mark.rule("FLEET-1.3")
def test_amounts_of_the_program_take_the_place_of_spark_s():
    with Driver() as driver:
        tasks = plan(driver.control, ["tcp://127.0.0.1:9"], settings={"resources": {"gpu": 5}})
        worker = make_worker(tasks, {"gpu": 2, "fpga": 1})
    assert worker._inner._settings.resources == {"slots": 1, "gpu": 5, "fpga": 1}


@pytest.mark.rule("FLEET-1.4")
def test_a_worker_of_a_module_is_made_anew():
    with Driver() as driver:
        tasks = plan(
            driver.control, ["tcp://127.0.0.1:9"], worker="tests.spark.fleet.fleet_work:ready"
        )
        assert make_worker(tasks, {}) is not make_worker(tasks, {})


def test_a_worker_that_is_no_handler():
    with (
        Driver() as driver,
        pytest.raises(ConfigError, match="of type int; expected a function"),
    ):
        make_worker(plan(driver.control, ["tcp://127.0.0.1:9"], worker=5), {})


@pytest.mark.parametrize("endpoint", ["ipc:///tmp/x", "127.0.0.1:5570"])
def test_an_address_of_the_fleet_that_cannot_be_used(endpoint):
    with pytest.raises(ConfigError, match="expected tcp://HOST"):
        FleetControl(endpoint)


def test_an_address_that_is_taken():
    with Driver() as driver, pytest.raises(ConfigError, match=r"cannot bind .* set control="):
        FleetControl(driver.control.endpoint)


class Session:
    """Takes the file that would be sent to executors."""

    def __init__(self, folder):
        self.folder = folder

    def addArtifacts(self, path, pyfile):
        assert pyfile
        self.path = Path(path)
        shutil.copy(path, self.folder / "sent.zip")


@pytest.mark.rule("FLEET-5.3")
def test_shipped_modules_are_imported_from_the_file(tmp_path):
    session = Session(tmp_path)
    assert ship(session, "pyspark_wmp") == ["pyspark_wmp", "wmp"]
    assert session.path.exists()  # an executor may start, and fetch the file, at any time
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'sent.zip')!r})\n"
        "import wmp, wmp.spark.fleet.member; print(wmp.__file__)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=RUN,
    )
    assert ran.stdout.strip() == str(tmp_path / "sent.zip" / "wmp" / "__init__.py"), ran.stderr


def test_a_module_without_a_file_is_not_shipped(tmp_path):
    with pytest.raises(ConfigError, match="no file of the module 'no_such_module'"):
        ship(Session(tmp_path), "no_such_module")
