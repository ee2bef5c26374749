"""The globals that an initializer sets are those that the calls of its executor read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import wmp
from tests.interop.calls import call_functions as functions
from tests.waiting import RUN, WAIT

pytestmark = pytest.mark.interop

SCRIPT = Path(__file__).with_name("initializer_script.py")


@pytest.mark.rule("CALL-5.6")
def test_calls_read_what_the_initializer_of_the_main_program_has_set() -> None:
    pytest.importorskip("cloudpickle")
    run = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=RUN, check=False
    )
    assert run.returncode == 0, run.stderr
    output = json.loads(run.stdout)

    # The pool of Python is the judge: by a global, a dict, a class, a function and a counter.
    assert output["expected"] == [
        *("1 by connection to db1", "db1", "db1", "db1"),
        *(11, 12, 12, "2 by connection to db1"),
    ]
    assert output["seen"] == output["partial"] == output["expected"]
    assert output["mapped"] == [f"{number} by connection to db1" for number in range(4)]
    # A global that the initializer does not name comes with each call, as without an initializer.
    assert output["changed"] == ["1 old", "2 new", "1 new"]


@pytest.mark.rule("CALL-5.6")
def test_an_initializer_inside_of_a_function_sets_the_globals_of_its_module() -> None:
    pytest.importorskip("cloudpickle")
    setter = functions.state_setter()
    with wmp.Executor(workers=1, initializer=setter, initargs=("ready",)) as executor:
        assert executor.submit(functions.get_module_state).result(WAIT) == "ready"
        assert executor.submit(lambda: functions.get_module_state()).result(WAIT) == "ready"
        assert executor.submit(functions.state_getter()).result(WAIT) == "ready"
