"""The benchmarks run, check their results, and write their figures. No time is asserted."""

from __future__ import annotations

import json
import struct
import sys
import time
from types import SimpleNamespace

import pytest

from benchmarks import starts
from benchmarks.fairness import idle_gaps, idle_waits, labor
from benchmarks.floor import RUNGS
from benchmarks.ours import GROUPS
from benchmarks.report import SHOWN, TARGETS, judge
from benchmarks.work import Failure, make, through
from tests.interop.programs.forks import Ended, forks
from tests.interop.programs.programs import ROOT

# A bound for hangs: on a busy machine a run takes a minute.
# A busy machine takes minutes for figures of many groups.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(660)]

WORDS = ("p50", "p99", "cpu")
GROUPS_RUN = ("map", "submit", "latency", "device")


def run(*arguments: str) -> Ended:
    return forks().run(sys.executable, "-m", "benchmarks", *arguments, cwd=ROOT)


@pytest.mark.parametrize("groups", [("submit",), pytest.param(GROUPS_RUN, marks=pytest.mark.deep)])
def test_figures_are_verified_and_written_by_name(tmp_path, groups):
    path, rows = tmp_path / "figures.json", tmp_path / "figures.md"

    process = run("--tiny", "--only", ",".join(groups), "--json", str(path), "--table", str(rows))

    assert process.returncode == 0, process.stderr
    written = rows.read_text(encoding="utf-8").splitlines()
    assert [row.count("|") for row in written] == [4] * len(written)
    assert {SHOWN[name] for name in ("raw", "submit_100")} <= {
        row.split("|")[1].strip() for row in written
    }
    assert "Traceback" not in process.stderr
    figures = json.loads(path.read_text(encoding="utf-8"))
    about = figures.pop("about")
    assert about["skipped"] == {}
    expected = {"raw"}
    if "map" in groups:
        expected |= {"raw_10k", "raw_1m"}
    if "latency" in groups:
        expected |= {f"raw_latency_{word}" for word in WORDS}
    for group in groups:
        for case in GROUPS[group]:
            expected |= {*case.rates}
            if case.latency:
                expected |= {f"{case.latency}_{word}" for word in WORDS}
    if "device" in groups:
        expected |= {
            f"device_{what}_{jobs}" for what in ("cost", "proxy", "own") for jobs in (1, 16, 256)
        }
    assert set(figures) == expected
    for name, figure in figures.items():
        assert figure["verified"] is True, name
        assert figure["repeats"] >= 1, name
        assert figure["minimum"] <= figure["median"] <= figure["maximum"], name
        assert figure["unit"] in ("jobs/s", "µs", "µs CPU"), name
        if not name.startswith(("device_cost", "device_proxy", "device_own")):
            assert figure["ratio"] > 0, name
            assert figure["against"] in figures, name
            assert name in process.stdout


def test_saved_figures_are_shown_again_without_measuring(tmp_path):
    path, rows = tmp_path / "figures.json", tmp_path / "figures.md"
    figure = {"median": 3000.0, "minimum": 1.0, "maximum": 4000.0, "unit": "jobs/s"}
    figures = {"map_100": figure | {"ratio": 3.0, "ratio_minimum": 2.0, "ratio_maximum": 4.0}}
    path.write_text(
        json.dumps(figures | {"about": {"skipped": {"nats_100": "none"}, "curves": {}}})
    )

    process = run("--from", str(path), "--table", str(rows))

    assert process.returncode == 0, process.stderr
    assert rows.read_text().endswith(f"| {SHOWN['map_100']} | 3,000 jobs/s | 3.00 (2.00–4.00) |\n")
    assert "skipped: none" in process.stdout


def test_a_file_without_figures_is_reported(tmp_path):
    path = tmp_path / "figures.json"
    path.write_text("[]")
    process = run("--from", str(path))
    assert process.returncode == 1
    assert process.stderr.startswith(f"{path} is no file that --json wrote: ")
    assert process.stderr.count("\n") == 1


@pytest.mark.deep
def test_journals_are_measured_beside_the_same_without(tmp_path):
    path = tmp_path / "figures.json"

    process = run("--tiny", "--only", "journal", "--json", str(path))

    assert process.returncode == 0, process.stderr
    assert "the journals took" in process.stderr
    figures = json.loads(path.read_text(encoding="utf-8"))
    for name in ("map_100", "map_10k", "single"):
        assert figures[f"journal_{name}"]["ratio"] > 0
        assert figures[f"journal_{name}_cpu"]["unit"] == "µs CPU"


@pytest.mark.deep
def test_the_ladder_to_a_lone_job_is_measured(tmp_path):
    path = tmp_path / "figures.json"

    process = run("--tiny", "--only", "floor", "--json", str(path))

    assert process.returncode == 0, process.stderr
    figures = json.loads(path.read_text(encoding="utf-8"))
    for rung in RUNGS:
        assert figures[f"floor_{rung}_p50"]["ratio"] > 0
    for part in ("manager", "worker", "codec"):
        assert (
            figures[f"floor_held_{part}"]["messages"] < figures[f"floor_plain_{part}"]["messages"]
        )


@pytest.mark.deep
def test_calls_of_functions_are_measured_beside_other_pools(tmp_path):
    path = tmp_path / "figures.json"

    process = run("--tiny", "--only", "calls", "--json", str(path))

    assert process.returncode == 0, process.stderr
    figures = json.loads(path.read_text(encoding="utf-8"))
    for name in ("calls_map_100_chunk1", "calls_map_100_chunk64"):
        assert figures[name]["against"] == f"{name}_pool"
        assert figures[name]["ratio"] > 0


@pytest.mark.deep
def test_growth_and_fairness_run(tmp_path):
    path = tmp_path / "figures.json"

    process = run("--tiny", "--only", "growth,fairness,work,starts", "--json", str(path))

    assert process.returncode == 0, process.stderr
    figures = json.loads(path.read_text(encoding="utf-8"))
    curves = figures["about"]["curves"]
    assert len(curves) == 7
    for curve in curves.values():
        assert all(len(values) == len(curve["x"]) for values in curve["lines"].values())
    assert {
        "growth_idle_memory",
        "growth_queued_memory",
        "fairness_busiest",
        "fairness_behind",
        "fairness_beside_none",
        "fairness_beside_busy_apart_1000",
        "work_cpu_0.1ms",
        "work_cpu_pareto_executor16",
        "work_wait_5ms_one_used",
        "starts_manager_p50",
        "starts_worker_p95",
    } <= set(figures)


def test_first_results_after_starts_are_measured_and_judged(monkeypatch):
    monkeypatch.setattr(starts, "_PAUSE", (0.0, 0.01))
    bench = SimpleNamespace(figures={}, say=lambda name: None)

    starts.measure(bench, tiny=True)

    assert set(bench.figures) == {
        f"starts_{end}_{rank}" for end in ("manager", "worker") for rank in ("p50", "p95")
    }
    for end in ("manager", "worker"):
        p50, p95 = (bench.figures[f"starts_{end}_{rank}"]["median"] for rank in ("p50", "p95"))
        assert 0 < p50 <= p95
        text, met = judge(bench.figures, f"starts_{end}_p95")
        assert text.startswith("≤ 200 ms")
        assert met is (p95 <= 200)


@pytest.mark.deep
def test_a_server_of_round_robin_is_measured_beside_a_plain_proxy():
    process = forks().run(sys.executable, "-m", "benchmarks.round_robin", "--tiny", cwd=ROOT)

    assert process.returncode == 0, process.stderr
    figures = dict(line.split()[:2] for line in process.stdout.splitlines())
    assert {"server_echo", "plain_proxy_echo", "server_cpu", "plain_proxy_cpu"} <= set(figures)
    assert float(figures["server_echo"]) > 0


@pytest.mark.deep
def test_a_majordomo_broker_is_measured_beside_a_plain_one():
    process = forks().run(sys.executable, "-m", "benchmarks.majordomo", "--tiny", cwd=ROOT)

    assert process.returncode == 0, process.stderr
    figures = dict(line.split()[:2] for line in process.stdout.splitlines())
    cases = {"alone", "workers", "services", "spread"}
    assert {"plain_broker", "broker", *cases, "one_by_one", "at_once"} <= set(figures)


def test_a_target_names_figures_that_can_be_there():
    for sign, times, _ in TARGETS.values():
        assert sign in ("≥", "≤")
        assert times > 0


def test_an_unknown_group_is_reported_with_the_known_groups():
    process = run("--only", "map,nonsense")

    assert process.returncode == 2
    assert "no group 'nonsense'" in process.stderr
    assert "latency" in process.stderr


@pytest.mark.parametrize(
    "spoil",
    [
        lambda results: [*results[:-1], b"wrong"],
        lambda results: results[:-1],
        lambda results: results[::-1],
    ],
    ids=["wrong", "missing", "out of order"],
)
def test_a_bad_result_ends_the_run(spoil):
    payloads = make(10, 100)

    assert through(list, payloads) >= 0
    with pytest.raises(Failure):
        through(spoil, payloads)


def test_a_wait_counts_only_while_a_worker_is_idle():
    # One worker is busy from 0 to 4, the other from 0 to 1 and from 3 to 4.
    busy = {1: [(0.0, 4.0)], 2: [(0.0, 1.0), (3.0, 4.0)]}

    waits = idle_waits([(0.0, 0.0), (0.0, 1.0), (0.0, 3.0), (2.0, 4.0)], busy)

    assert waits == pytest.approx([0.0, 0.0, 2.0, 1.0])


def test_gaps_end_when_no_job_waits():
    # No job waits after the last job has begun, at 3.
    busy = {1: [(0.5, 1.0)], 2: [(0.0, 1.0), (3.0, 4.0)]}

    assert sorted(idle_gaps(0.0, busy)) == pytest.approx([0.5, 2.0, 2.0])


def test_labor_takes_the_requested_time():
    pid, start, end = struct.unpack("!Qdd", labor(struct.pack("!d", 0.01)))

    assert pid > 0
    assert end - start >= 0.01


def test_work_done_before_the_first_result_is_asked_for_counts():
    def eager(payloads):
        time.sleep(0.05)
        return iter(payloads)

    assert through(eager, make(3, 100)) >= 0.05


@pytest.mark.deep
def test_arrays_are_measured_beside_bytes(tmp_path):
    pytest.importorskip("numpy")
    path = tmp_path / "figures.json"

    process = run("--tiny", "--only", "arrays", "--json", str(path))

    assert process.returncode == 0, process.stderr
    assert json.loads(path.read_text(encoding="utf-8"))["arrays_1m"]["ratio"] > 0
