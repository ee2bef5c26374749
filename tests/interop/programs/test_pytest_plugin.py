"""The pytest plugin for users' tests: real runs of pytest, most of them in this process."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import wmp.testing.handlers.trial  # noqa: F401 - a run forgets what it imports first
from tests.waiting import RUN

pytest_plugins = "pytester"

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parents[3]

# By the module's name, so that the plugin of this source tree runs even if another is installed.
PLUGIN = ("-p", "no:wmp", "-p", "wmp.testing.plugin", "-p", "no:cacheprovider")

HANDLERS = """
from collections import Counter

import pytest

import wmp.testing

ORDERS = [b"order-%d" % number for number in range(8)]
played = []


@wmp.testing.simulate(seeds=20)
def test_careless(world):
    paid = Counter()

    def pay(order):
        paid[order] += 1

    world.worker(pay, count=2)
    list(world.map(ORDERS))
    world.run()
    assert set(paid.values()) == {1}


@wmp.testing.simulate(seeds=20)
def test_careful(world):
    paid = {}

    def pay(order):
        paid.setdefault(order, 1)

    world.worker(pay, count=2)
    list(world.map(ORDERS))
    world.run()
    assert set(paid) == set(ORDERS)
"""


@pytest.fixture
def run(pytester):
    """Run pytest on a file."""

    def run(source, *options):
        pytester.makepyfile(test_orders=source)
        return pytester.runpytest_inprocess(*PLUGIN, *options)

    return run


def outcomes(result):
    """Return pytest's counts, except that of warnings."""
    counted = result.parseoutcomes()
    return {name: counted.get(name, 0) for name in ("passed", "failed", "skipped", "errors")}


def test_a_handler_that_must_not_run_twice_is_found_and_played_again(run):
    result = run(HANDLERS, "-rfs")
    output = result.stdout.str()
    seed = int(re.search(r"FAILED test_orders\.py::test_careless\[seed(\d+)\]", output)[1])

    assert outcomes(result) == {
        "passed": 20 + seed,
        "failed": 1,
        "skipped": 19 - seed,
        "errors": 0,
    }
    assert seed, "without faults it is right"
    assert f"simulated world, seed {seed}" in output
    assert re.search(
        r"handlers were called more than once for: job \d \(b'order-\d'\) \d times", output
    )
    assert re.search(
        r"\d calls the handler, attempt \d: it (returns|is ended before line 1\d)", output
    )
    assert f"seed {seed} of test_careless has failed already" in output
    again = f"pytest test_orders.py::test_careless --wmp-seed {seed}"
    assert f"play it again: {again}\n" in output

    # The printed command plays only this world.
    result = run(HANDLERS, *again.split()[1:], "--wmp-trace")
    assert outcomes(result) == {"passed": 0, "failed": 1, "skipped": 0, "errors": 0}
    section = output[output.index(" calls of handlers") : output.index("the last steps:")]
    assert section in result.stdout.str(), "it is not the same world"
    assert re.search(r"manager: got READY of b'worker \d'", result.stdout.str())


def test_seeds_are_chosen_by_option(run):
    result = run(HANDLERS, "-k", "careful", "--wmp-seed", "100:107", "-v")
    assert outcomes(result)["passed"] == 7
    result.stdout.fnmatch_lines(["*::test_careful?seed106? PASSED*"])
    for wrong in ("x", "3:1"):
        result = run(HANDLERS, f"--wmp-seed={wrong}")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        output = result.stderr.str() + result.stdout.str()
        assert f"argument --wmp-seed: '{wrong}' is not a seed or a range of seeds; write" in output


def test_a_failure_without_faults_is_reported_as_a_fault_of_the_test(run):
    result = run("""
        import wmp.testing

        @wmp.testing.simulate
        def test_wrong(world):
            world.worker(bytes.upper)
            assert world.submit(b"a").result() == b"a"
        """)
    assert outcomes(result) == {"passed": 0, "failed": 1, "skipped": 49, "errors": 0}
    result.stdout.fnmatch_lines(
        ["seed 0 has no faults, so the handlers or the test fail without a fault too"]
    )


def test_each_seed_has_fixtures_of_its_own_and_other_parameters(run):
    result = run(
        """
        import pytest, wmp.testing

        @pytest.fixture
        def bank(tmp_path):
            return tmp_path / "paid"

        class TestOrders:
            @pytest.mark.parametrize("orders", [1, 3])
            @wmp.testing.simulate(seeds=5, faults=["kill", "drop"])
            def test_in_a_class(self, world, bank, orders):
                assert not bank.exists()

                def pay(order):
                    before = bank.read_text() if bank.exists() else ""
                    bank.write_text(before + "paid")

                world.worker(pay)
                list(world.map([b"order"] * orders))
                world.run()
                assert len(bank.read_text()) >= 4 * orders
                assert orders == 1 or world.seed != 2
        """,
        "-v",
    )
    assert outcomes(result) == {"passed": 7, "failed": 1, "skipped": 2, "errors": 0}
    output = result.stdout.str()
    again = re.search(r"play it again: pytest '(.*)' --wmp-seed 2\n", output)[1]
    assert re.fullmatch(r"test_orders.py::TestOrders::test_in_a_class\[(seed2-3|3-seed2)\]", again)
    result = run((Path.cwd() / "test_orders.py").read_text(), again, "--wmp-seed", "2")
    assert outcomes(result)["failed"] == 1


def test_the_fixture_will_do_and_so_will_unittest(run):
    result = run(
        """
        import unittest, wmp.testing

        def test_fixture(wmp_world):
            wmp_world.worker(bytes.upper)
            assert wmp_world.submit(b"a").result() == b"A"

        class Test(unittest.TestCase):
            @wmp.testing.simulate(seeds=3)
            def test_case(self, world):
                world.worker(bytes.upper)
                self.assertEqual(world.submit(b"a").result(), b"A")
        """,
        "--wmp-seed",
        "4:6",
    )
    assert outcomes(result) == {"passed": 3, "failed": 0, "skipped": 0, "errors": 0}


def test_the_plugin_loads_nothing_until_it_is_used(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile("""
        import sys

        def test_nothing_is_there():
            assert "wmp.testing.plugin" in sys.modules
            loaded = {name for name in sys.modules if name.partition(".")[0] in ("wmp", "zmq")}
            # The kit's plugin is there too, where the library is installed.
            kit = {"wmp.conformance", "wmp.conformance.plugin"}
            library = {"wmp", "wmp.duration", "wmp.errors", "wmp.lazy"}
            assert loaded - kit == library | {"wmp.testing", "wmp.testing.plugin"}
        """)
    result = pytester.runpytest_subprocess(*PLUGIN)
    assert outcomes(result)["passed"] == 1, result.stdout.str()


def test_pytest_is_not_needed_without_it():
    program = (
        "import sys; sys.modules['pytest'] = None; sys.modules['hypothesis'] = None\n"
        "import wmp.testing\n"
        "@wmp.testing.simulate(seeds=3)\n"
        "def test(world):\n"
        "    world.worker(bytes.upper)\n"
        "    assert world.submit(b'a').result() == b'A'\n"
        "test()"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=RUN)


def test_it_is_installed_as_a_plugin():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    assert "wmp = wmp.testing.plugin" in config["options.entry_points"]["pytest11"]
    plugins = [point.value for point in entry_points(group="pytest11") if point.name == "wmp"]
    assert set(plugins) <= {"wmp.testing.plugin"}, "another one is installed; install this one"
