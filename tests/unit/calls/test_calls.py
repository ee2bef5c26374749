"""Handlers of calls, pickles and tasks, without sockets and processes."""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import dataclasses
import pickle
import struct
import sys
import types
from datetime import date
from importlib.machinery import ModuleSpec
from typing import Any

import pytest

import wmp
from tests.interop.calls import call_functions as functions
from wmp.calls import pickles
from wmp.calls.call import PickledCall
from wmp.calls.handlers import PICKLED_ROLE, ModuleCalls, PickledCalls, module_role, path_of
from wmp.calls.pickles import add_carried, pack_call, pickle_value, split_call, take_carried
from wmp.codec import unpack_error
from wmp.errors import ConfigError, JobFailed
from wmp.runtime.codecs import payload_codecs
from wmp.runtime.executors.handlers import RunningJob, describe_error, serve
from wmp.runtime.executors.process_executor import _imports_main
from wmp.runtime.sockets.endpoints import check_unpickling
from wmp.runtime.sockets.security import Security
from wmp.runtime.submission.results import result_of

MODULE = functions.__name__


class Host:
    def __init__(self) -> None:
        self.cancelled: set[int] = set()

    def report(self, job: RunningJob, fraction: float | None, text: str | None) -> None:
        self.last = fraction, text


def running() -> RunningJob:
    return RunningJob(Host(), 1, 1, b"m", "role", None)


# -- calls by import path ----------------------------------------------------------------------


@pytest.mark.rule("CALL-2.1", "CALL-2.2")
def test_a_call_by_import_path_has_arguments_or_columns() -> None:
    calls = ModuleCalls(MODULE)

    assert calls(["capture", [1], {"two": 2}]) == [[1], {"two": 2}]
    assert calls(["add", [[1, 2], [3, 4]]]) == [4, 6]
    assert ModuleCalls(MODULE, ("BadError",))(["BadError", ["a", "b"], {}]).args == ("a",)


@pytest.mark.rule("CALL-2.2")
def test_an_exception_that_ends_iterations_ends_its_chunk_with_an_error() -> None:
    rows = [[2], [3], [4], [6]]
    calls = ModuleCalls(MODULE)

    with pytest.raises(StopIteration):
        calls(["first_even", [rows]])
    with pytest.raises(StopIteration):
        PickledCalls()(pack_call(pickle_value(functions.first_even), pickle_value([rows])))
    assert calls(["first_even", [[[2], [3, 4]]]]) == [2, 4]


@pytest.mark.rule("CALL-2.1")
def test_a_chunk_with_unequal_columns_is_an_error() -> None:
    with pytest.raises(ValueError, match="have 1, 2 arguments; expected equal numbers"):
        ModuleCalls(MODULE)(["add", [[1, 2], [3]]])
    with pytest.raises(TypeError, match="is of type dict; expected a list"):
        ModuleCalls(MODULE)(["add", [[1, 2], {3: 4, 5: 6}]])


@pytest.mark.rule("CALL-2.1")
@pytest.mark.parametrize("wrong", [None, [], ["add"], ["add", 1], [1, [], {}], ["add", [], []], {}])
def test_a_payload_that_is_no_call_is_an_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match="an array of a name"):
        ModuleCalls(MODULE)(wrong)


@pytest.mark.rule("CALL-2.3")
@pytest.mark.parametrize(
    "name",
    ["_private", "add.__globals__", "os.system", "os._exit", "Path", "nothing", "STATE", "", "."],
)
def test_only_public_callables_of_the_module_itself_are_called(name: str) -> None:
    with pytest.raises(LookupError):
        ModuleCalls(MODULE)([name, [], {}])
    with pytest.raises(ConfigError, match="cannot serve"):
        ModuleCalls(MODULE, ("add", name))


MIXED = """
import os
from json import dumps
from subprocess import run as start
import wmp

def resize(width): return width * 2
shrink = resize
shout = lambda text: text.upper()
_hidden = resize

class Store:
    def load(self): return "loaded"

@wmp.task
def double(value): return value * 2
"""


@pytest.fixture
def mixed(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with a task, a function, and what else a module may have."""
    module = types.ModuleType("mixed")
    monkeypatch.setitem(sys.modules, "mixed", module)
    exec(MIXED, vars(module))
    return "mixed"


@pytest.mark.rule("CALL-2.3")
@pytest.mark.parametrize(
    "name", ["shrink", "shout", "dumps", "start", "os.system", "Store", "Store.load", "_hidden"]
)
def test_only_the_functions_that_were_asked_for_are_called(mixed: str, name: str) -> None:
    every = ModuleCalls(mixed)

    assert every.names == {"resize", "double"}
    assert every(["resize", [2], {}]) == 4
    for calls in (every, ModuleCalls(mixed, ("resize",))):
        with pytest.raises(LookupError, match="does not serve"):
            calls([name, [], {}])
    with pytest.raises(LookupError, match="does not serve"):
        ModuleCalls(mixed, ("double",))(["resize", [2], {}])


@pytest.mark.rule("CALL-2.3")
def test_a_class_a_method_and_a_lambda_are_called_by_name_only(mixed: str) -> None:
    calls = ModuleCalls(mixed, ("Store", "Store.load", "shout"))

    assert calls(["Store.load", [calls(["Store", [], {}])], {}]) == "loaded"
    assert calls(["shout", ["a"], {}]) == "A"


@pytest.mark.rule("CALL-1.3")
def test_the_functions_of_a_module_are_served_only_if_asked_for(mixed: str) -> None:
    assert set(wmp.handlers_of(mixed)) == {"mixed.double"}
    assert set(wmp.handlers_of(mixed, functions=True)) == {"mixed.double", "call:mixed"}
    named = wmp.handlers_of(mixed, functions=["resize"])["call:mixed"]
    assert pickle.loads(pickle.dumps(named)).names == {"resize"}  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"cannot serve 'cut' of mixed: .*no function 'cut'"):
        wmp.handlers_of(mixed, functions="cut")
    with pytest.raises(ConfigError, match="names resize of 2 modules; expected one module"):
        wmp.handlers_of(mixed, "json", functions=["resize"])
    with pytest.raises(ConfigError, match="names no function; name at least one"):
        wmp.handlers_of(mixed, functions=[])


@pytest.mark.rule("CALL-2.4")
def test_only_functions_that_their_path_leads_to_have_a_path() -> None:
    def local() -> None: ...

    assert path_of(functions.add) == (MODULE, "add")
    assert path_of(functions.double) == (MODULE, "double")
    assert path_of(len) == ("builtins", "len")
    main = type("f", (), {"__module__": "__main__", "__qualname__": "f"})
    for function in (local, lambda: 1, functions._private, [].append, print.__call__, main, 3):
        assert path_of(function) is None


@pytest.mark.rule("CALL-1.1", "CALL-1.3")
def test_a_worker_offers_the_modules_and_pickles_that_it_was_started_with() -> None:
    served = wmp.handlers_of("textwrap", "json", functions=True)
    assert set(served) == {"call:textwrap", "call:json"}
    assert set(wmp.handlers_of(pickle=True)) == {PICKLED_ROLE}
    assert module_role("textwrap") == "call:textwrap"
    with pytest.raises(ConfigError, match="'__main__'; expected a module with a name"):
        wmp.handlers_of("__main__")


def test_a_module_without_functions_and_tasks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = types.ModuleType("empty")
    exec("import os\nfrom json import dumps\ndef _private(): ...\nnumber = 3", vars(empty))
    monkeypatch.setitem(sys.modules, "empty", empty)

    with pytest.raises(
        ConfigError, match=r"'empty' has no task and no public function .*empty:NAME"
    ):
        wmp.handlers_of("empty", functions=True)
    exec("def public(): ...", vars(empty))
    assert set(wmp.handlers_of("empty", functions=True)) == {"call:empty"}
    with pytest.raises(ConfigError, match=r"'empty' has no task, .* --functions .*empty:NAME"):
        wmp.handlers_of("empty")


def test_handlers_can_be_sent_to_worker_processes() -> None:
    for handler in wmp.handlers_of(MODULE, functions=True, pickle=True).values():
        served = pickle.loads(pickle.dumps(serve("role", handler)))
        assert served.role == "role"
        assert not _imports_main(served.call)
    assert _imports_main(len)


# -- pickled calls -----------------------------------------------------------------------------


@pytest.mark.rule("CALL-1.2")
def test_the_role_of_pickled_calls_has_the_version_of_python() -> None:
    assert "pickled-call:{}.{}".format(*sys.version_info) == PICKLED_ROLE


@pytest.mark.rule("CALL-3.1", "CALL-3.2")
def test_a_pickled_call_has_a_length_and_two_pickles() -> None:
    function, arguments = pickle.dumps(functions.add), pickle.dumps(((1,), {"right": 5}))
    payload = struct.pack(">I", len(function)) + function + arguments

    assert pack_call(function, arguments) == payload
    assert pickle.loads(PickledCalls()(payload)) == 6
    columns = pickle.dumps([[1, 2], [3, 4]])
    assert pickle.loads(PickledCalls()(pack_call(function, columns))) == [4, 6]


@pytest.mark.rule("CALL-3.6")
@pytest.mark.parametrize("wrong", [b"", b"\0\0\0", b"\0\0\0\5abc"])
def test_a_payload_that_is_no_pickled_call_is_an_error(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="a pickled call has"):
        split_call(wrong)
    with pytest.raises(ValueError, match="a pickled call has"):
        PickledCalls()(wrong)


def failed(error: BaseException) -> JobFailed:
    """Return the error as the submitter receives it."""
    try:
        raise error
    except BaseException as raised:
        add_carried(raised)
        return JobFailed(*unpack_error(describe_error(raised)))


@pytest.mark.rule("CALL-3.3")
def test_an_exception_is_carried_in_the_last_line_of_the_traceback() -> None:
    error = failed(functions.StrangeError("left", 3))
    line = error.remote_traceback.splitlines()[-1]
    assert line.startswith("pickled exception: ")
    assert pickle.loads(base64.b64decode(line.split()[-1])).right == 3

    original = take_carried(error)

    assert isinstance(original, functions.StrangeError)
    assert original.__cause__ is error
    assert error.remote_traceback.endswith("StrangeError: left 3\n")
    assert "pickled" not in str(error.__notes__)


@pytest.mark.rule("CALL-3.3")
def test_the_exception_of_a_group_is_carried_too() -> None:
    error = failed(ExceptionGroup("several", [ValueError("one"), KeyError("two")]))

    original = take_carried(error)

    assert isinstance(original, ExceptionGroup)
    assert "pickled" not in error.remote_traceback


@pytest.mark.rule("CALL-3.3")
def test_a_large_exception_arrives_as_text() -> None:
    error = failed(ValueError("x" * 40_000))

    assert take_carried(error) is error
    assert "pickled" not in error.remote_traceback


def test_what_is_carried_and_cannot_be_unpickled_is_noted() -> None:
    error = JobFailed("E", "text", "Traceback\npickled exception: AAAA")

    assert take_carried(error) is error
    assert error.remote_traceback == "Traceback"
    assert "cannot be unpickled here" in error.__notes__[-1]


class LeavesProgram:
    """A value whose class leaves the program that unpickles it."""

    def __reduce__(self) -> Any:
        return sys.exit, ("gone",)


@pytest.mark.rule("VALUE-1.4")
def test_a_result_that_ends_the_program_is_an_error_of_its_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = PickledCall(None, None, lambda call: None)  # type: ignore[arg-type]

    _, error = call._result_of(1, pickle.dumps(LeavesProgram()), "bytes")

    assert isinstance(error, JobFailed)
    assert isinstance(error.__cause__, SystemExit)
    carried = base64.b64encode(pickle.dumps(LeavesProgram())).decode()
    failed_there = JobFailed("E", "text", f"Traceback\npickled exception: {carried}")
    assert take_carried(failed_there) is failed_there
    monkeypatch.setattr(payload_codecs, "_registered", {})
    wmp.register_codec("leaving", pickle.dumps, pickle.loads)
    _, error = result_of(1, pickle.dumps(LeavesProgram()), "leaving")
    assert isinstance(error, JobFailed)


def test_code_without_a_name_needs_cloudpickle(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pickle_value([1, len]) == pickle.dumps([1, len], pickle.HIGHEST_PROTOCOL)
    assert pickle.loads(pickle_value(lambda: 5))() == 5

    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(TypeError, match=r"run: pip install 'worker-manager-protocol\[pickle\]'"):
        pickle_value(lambda: 5)
    for text in ("__main__", ["a", "__main__"]):
        assert pickle.loads(pickle_value(text)) == text
    monkeypatch.setattr(pickles, "can_pickle_code", lambda: False)
    monkeypatch.setattr("wmp.calls.served.can_pickle_code", lambda: False)
    with pytest.raises(ConfigError, match="pickled calls need the package cloudpickle"):
        wmp.handlers_of(pickle=True)


def test_values_are_pickled_while_another_thread_imports_cloudpickle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", types.ModuleType("cloudpickle"))

    assert pickle.loads(pickle_value([1, 2])) == [1, 2]


@pytest.mark.rule("CALL-3.5")
def test_unpickling_off_this_host_needs_keys() -> None:
    keys = Security.generate()
    local = ["tcp://127.0.0.1:5570", "ipc://socket", "inproc://name"]

    check_unpickling("a worker", local, None)
    check_unpickling("a worker", ["tcp://192.0.2.1:5570"], keys)
    with pytest.raises(ConfigError, match=r"a worker that runs pickled calls refuses tcp://192"):
        check_unpickling("a worker", [*local, "tcp://192.0.2.1:5570"], None)


# -- tasks -------------------------------------------------------------------------------------


def test_a_task_stays_a_function() -> None:
    assert functions.double(4) == 8
    assert functions.double.__name__ == "double"
    assert asyncio.run(functions.shout("a")) == "A"
    assert pickle.loads(pickle.dumps(functions.double)) is functions.double


def test_the_methods_of_other_libraries_are_answered_with_those_of_a_task() -> None:
    task: Any = functions.double
    for name, hint in [
        ("delay", r"use submit\(…\), which takes the arguments"),
        ("apply_async", r"using\(delay=…, priority=…\).submit"),
        ("enqueue", r"use submit"),
        ("nothing", "a task has no attribute 'nothing'$"),
    ]:
        with pytest.raises(AttributeError, match=hint):
            getattr(task, name)
    assert not hasattr(task, "delay")


@pytest.mark.rule("CALL-4.1")
def test_the_role_of_a_task_is_its_name_or_another() -> None:
    assert functions.double.role == f"{MODULE}.double"
    assert functions.scale.role == "scale"
    assert set(wmp.handlers_of(MODULE)) == {
        *(f"{MODULE}.double", "scale", "flaky", "slow", "total"),
    }


@pytest.mark.rule("CALL-4.1")
def test_a_task_of_the_program_has_the_role_that_workers_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    add.__module__, add.__qualname__ = "__main__", "add"
    program = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", program)
    assert wmp.task(add).role == "__main__.add"  # a console has no file
    program.__file__ = "/app/tasks.py"
    assert wmp.task(add).role == "tasks.add"
    program.__spec__ = ModuleSpec("app.tasks", None)
    assert wmp.task(add).role == "app.tasks.add"


@pytest.mark.rule("CALL-4.2")
def test_arguments_are_bound_before_a_job_is_submitted() -> None:
    assert functions.scale.payload(3, by=2) == [[3], {"by": 2}]
    assert functions.scale.payload(value=3) == [[3], {}]
    for args, kwargs in [((), {}), ((1, 2), {}), ((1,), {"to": 3})]:
        with pytest.raises(TypeError, match=r"^scale\(value: "):
            functions.scale.submit(*args, **kwargs)  # type: ignore[arg-type]


@pytest.mark.rule("CALL-4.3")
@pytest.mark.parametrize("wrong", [None, [], [[1]], [[1], []], [1, {}], b"x"])
def test_a_payload_that_is_no_arguments_is_an_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match="expected an array of a list of arguments and a dict"):
        functions.double.handler(wrong, running())


@pytest.mark.rule("CALL-4.1")
def test_the_handler_of_a_task_calls_it_with_the_job_at_hand() -> None:
    job = running()

    assert functions.scale.handler([[3], {"by": 2}], job) == 6
    assert job._host.last == (0.5, "half")  # type: ignore[attr-defined]
    assert asyncio.run(functions.shout.handler([["b"], {}], job)) == "B"
    with pytest.raises(RuntimeError, match="found no job"):
        wmp.current_job()


@dataclasses.dataclass
class PaperSize:
    width: int
    day: date


@wmp.task
def measured(size: PaperSize, *more: int, at: date = date.min, **rest: int) -> Any:
    return size, more, at, rest


@pytest.mark.rule("CALL-4.1")
def test_the_arguments_of_a_task_have_the_annotated_types() -> None:
    sent = [[{"width": 3, "day": "2020-01-02"}, 5], {"at": "2020-01-03", "x": 1}]
    size = PaperSize(3, date(2020, 1, 2))

    assert measured.handler(sent, running()) == (size, (5,), date(2020, 1, 3), {"x": 1})
    with pytest.raises(TypeError, match="the argument size is not a valid PaperSize: "):
        measured.handler([[7], {}], running())


@pytest.mark.parametrize(("kind", "steps"), [(KeyboardInterrupt, ["stop"]), (ValueError, [])])
def test_ctrl_c_stops_the_calls_of_an_executor(
    kind: type[BaseException], steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    for name in ("stop", "shutdown"):
        monkeypatch.setattr(wmp.Executor, name, lambda self, name=name: done.append(name))

    with pytest.raises(kind), object.__new__(wmp.Executor):
        raise kind

    assert done == [*steps, "shutdown"]


def test_gathered_futures_that_are_cancelled_end_for_those_who_wait() -> None:
    running_part: concurrent.futures.Future[int] = concurrent.futures.Future()
    running_part.set_running_or_notify_cancel()
    whole = wmp.gather(running_part)

    assert whole.cancel()
    assert whole.cancel()
    assert concurrent.futures.wait([whole], timeout=0).done == {whole}


def test_wrong_tasks_are_refused_where_they_are_made() -> None:
    with pytest.raises(ConfigError, match="a job has no option 'timeouts'; did you mean 'timeout'"):
        wmp.task(timeouts=3)(len)
    with pytest.raises(ConfigError, match=r"expected a wmp.Manager or a wmp.aio.Manager"):
        functions.scale.using(object())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="expected a function"):
        wmp.task(3)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="task scale has no manager; open one"):
        functions.scale.submit(3)
    with pytest.raises(ConfigError, match="key is for a single job of task scale; use submit"):
        functions.scale.using(key="x").map([3])


def test_two_tasks_of_one_role_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    @wmp.task(role="scale")
    def other(value: int) -> int:
        return value

    monkeypatch.setattr(functions, "other", other, raising=False)

    with pytest.raises(ConfigError, match=r"have the role 'scale'; give each task its own role"):
        wmp.handlers_of(MODULE)
