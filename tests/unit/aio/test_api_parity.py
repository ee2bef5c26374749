"""Both APIs have the same methods and parameters, and ``wmp`` exports the promised names."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import build_blocking
import pytest

import wmp
from tests.waiting import RUN
from wmp import aio, blocking, gateways
from wmp.gateways import aio as aio_gateways

PAIRS = {
    name: (getattr(there, name), getattr(here, name))
    for there, here in ((aio, blocking), (aio_gateways, gateways))
    for name in here.__all__  # jobs differ on purpose, see below
    if name != "Job"
    and inspect.isclass(getattr(there, name))
    and getattr(there, name) is not getattr(here, name)
}
"""The classes for asyncio and for blocking code, by their name."""

NODES = tuple(PAIRS)


def public(cls: type) -> dict[str, object]:
    return {name: getattr(cls, name) for name in dir(cls) if not name.startswith("_")}


def shape(function: object) -> list[tuple[str, object, object]]:
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    return [(p.name, p.kind, p.default) for p in parameters]


@pytest.mark.parametrize("node", NODES)
def test_both_apis_have_the_same_names(node: str) -> None:
    there, here = map(public, PAIRS[node])

    # The names `codec` and `retries` are attributes of the instance.
    assert sorted(there) == sorted(here)


@pytest.mark.parametrize("node", NODES)
def test_both_apis_take_the_same_parameters(node: str) -> None:
    there, here = PAIRS[node]

    assert shape(there) == shape(here)
    for name, member in public(there).items():
        if inspect.isfunction(member):
            assert shape(member) == shape(getattr(here, name)), name
        else:
            assert isinstance(member, property)
            assert isinstance(getattr(here, name), property)


@pytest.mark.parametrize("node", NODES)
def test_both_apis_have_the_same_docstrings(node: str) -> None:
    there, here = PAIRS[node]

    for name, member in {"the class": there, **public(there)}.items():
        docstring = inspect.getdoc(here if name == "the class" else getattr(here, name))
        assert docstring == build_blocking.adapted(inspect.getdoc(member) or ""), name
        assert docstring, name


def test_the_blocking_classes_are_those_that_the_program_writes() -> None:
    for path, text in build_blocking.generated().items():
        assert path.read_text(encoding="utf-8") == text, "run python specs/build_blocking.py"


@pytest.mark.parametrize("node", [node for node in NODES if node != "Manager"])
def test_each_blocking_class_is_written_by_the_program(node: str) -> None:
    there, here = PAIRS[node]

    assert there in build_blocking.modules()[here.__module__]


def test_a_stale_blocking_class_is_reported_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "blocking.py"
    module.write_text('"""Words of a person."""\n', encoding="utf-8")
    monkeypatch.setattr(
        build_blocking,
        "generated",
        lambda: {
            module: build_blocking.text_of(
                "wmp.gateways.ping_pong.blocking",
                [aio_gateways.PingPongWorker],
                module.read_text(encoding="utf-8"),
            )
        },
    )

    assert build_blocking.main(["--check"]) == 1
    assert build_blocking.main([]) == 0
    assert build_blocking.main(["--check"]) == 0
    text = module.read_text(encoding="utf-8")
    assert '"""Words of a person."""' in text
    assert "class PingPongWorker(BlockingForeignWorker[aio.PingPongWorker]):" in text


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("See :class:`wmp.gateways.aio.Gateway`.", "See :class:`wmp.gateways.Gateway`."),
        ("See :meth:`wmp.aio.Worker.run`.", "See :meth:`wmp.Worker.run`."),
        ("See :mod:`wmp.aio.node`.", "See :mod:`wmp.aio.node`."),
        ("``async with`` calls it.", "``with`` calls it."),
        ("Use ``await client.request(b'')``.", "Use ``client.request(b'')``."),
        ("Call\nthis method on the loop.", "Any\nthread may call this method."),
    ],
)
def test_a_docstring_is_adapted(docstring: str, expected: str) -> None:
    assert build_blocking.adapted(docstring) == expected


@pytest.mark.parametrize("node", NODES)
def test_blocking_methods_are_not_coroutines(node: str) -> None:
    for name, member in public(PAIRS[node][1]).items():
        assert not inspect.iscoroutinefunction(member), name
        assert not inspect.isasyncgenfunction(member), name


def test_both_jobs_have_the_same_names() -> None:
    # running() and the setters are part of concurrent.futures and are not for users.
    extra = {"running", "stop", "set_result", "set_exception", "set_running_or_notify_cancel"}
    there = {name for name in dir(aio.Job) if not name.startswith("_")}
    here = {name for name in dir(blocking.Job) if not name.startswith("_")} - extra

    assert here | {"id"} == there


def test_both_jobs_have_the_same_docstrings_where_their_methods_do_the_same() -> None:
    for name in build_blocking.BY_HAND[aio.Job]:
        docstring = inspect.getdoc(getattr(blocking.Job, name))
        assert docstring == build_blocking.adapted(inspect.getdoc(getattr(aio.Job, name)) or "")


def test_both_managers_annotate_their_parameters_alike() -> None:
    only_async = {"payloads", "more"}  # iterables, or async iterables
    for name, member in {"__init__": aio.Manager.__init__, **public(aio.Manager)}.items():
        if inspect.isfunction(member):
            here = inspect.signature(getattr(blocking.Manager, name)).parameters
            for parameter in inspect.signature(member).parameters.values():
                if parameter.name not in only_async:
                    expected = parameter.annotation
                    if isinstance(expected, str):
                        expected = expected.replace("PairNode", "BlockingPairNode")
                    assert here[parameter.name].annotation == expected, (name, parameter.name)


def test_a_docstring_by_hand_that_differs_is_written_anew() -> None:
    path = build_blocking.path_of("wmp.blocking.manager")
    text = path.read_text(encoding="utf-8")
    changed = text.replace("Wait until ``count`` workers are ready.", "Wait.\n\n        A while.")

    assert changed != text
    assert build_blocking.with_docstrings(aio.Manager, changed) == text


def test_a_job_has_only_the_members_for_its_submitter() -> None:
    assert {name for name in dir(aio.Job) if not name.startswith("_")} == {
        *("id", "status", "add_status_callback", "stored"),
        *("cancel", "cancelled", "done", "result", "exception", "add_done_callback"),
    }


def test_the_top_level_is_the_blocking_api_and_all_errors() -> None:
    from wmp import errors

    assert set(errors.__all__) <= set(wmp.__all__)
    for name in blocking.__all__:
        assert getattr(wmp, name) is getattr(blocking, name)
    for name in wmp.__all__:
        assert getattr(wmp, name) is not None
        assert name in dir(wmp)


def test_an_unknown_name_of_the_top_level_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Menager"):
        wmp.Menager  # noqa: B018


@pytest.mark.parametrize(
    "script",
    [
        "import sys, wmp, wmp.core.manager.machine; print('zmq' in sys.modules)",
        # A worker process starts sooner without an event loop.
        "import sys, wmp.runtime.executors.child_main; print({'asyncio', 'zmq'} & {*sys.modules})",
    ],
    ids=["the machines", "the main program of a worker process"],
)
def test_an_import_loads_no_sockets_and_no_event_loop(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=RUN, check=True
    )

    assert done.stdout.strip() in ("False", "set()")
