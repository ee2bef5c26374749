"""Each public parameter that is a time takes a number of seconds or a ``timedelta``.

The first test finds the parameters, so that a new parameter cannot be forgotten. mypy checks that
each of them is converted, because ``Duration`` is not a ``float``. The second test makes each
object with a ``timedelta``; ``tests/interop/nodes/test_duration_waits.py`` calls each method.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

import wmp
from wmp.duration import Duration, in_seconds

PACKAGES = {
    "wmp": "",
    "wmp.aio": "",
    "wmp.gateways": "",
    "wmp.gateways.aio": "",
    "wmp.conformance": "",
    "wmp.rows": "pyarrow",
    "wmp.joblib": "joblib",
    "wmp.spark": "pyspark",
}
"""The packages with public names, and what each needs besides the core install."""

RETURNED = (
    "wmp.aio.stored_results:AsyncJobHandle",
    "wmp.aio.stored_results:AsyncResults",
    "wmp.calls.chain:Chain",
    "wmp.calls.chain:Gathered",
    "wmp.calls.chain:TaskJob",
    "wmp.calls.local:LocalManager",
    "wmp.calls.task:AioTask",
    "wmp.dispatcher.http_client:BoundedClient",
    "wmp.dispatcher.http_worker:HttpWorker",
    "wmp.dispatcher.serving:serve_worker",
    "wmp.rows.process_managers:close_managers",
    "wmp.runtime.common.journal:Journal",
    "wmp.stored_results:StoredJobHandle",
    "wmp.stored_results:StoredResults",
)
"""Public names that calls of other public names take or return, and what programs use."""

NOT_TIMES = {
    ("Backoff", "factor"),
    ("RunningJob.report", "fraction"),
    ("exponential", "factor"),
    ("Status", "fraction"),
    ("Status", "history"),
    ("CaseResult", "units"),
    ("TranscriptLine", "at"),
    ("JournalReport", "seconds"),
    ("NumbersReport", "seconds"),
    ("NumbersReport", "summary"),
}
"""Numbers that are no seconds, and parts of records that this library makes."""

MOMENTS = {"start_at", "since", "until"}
"""Parameters that are points in time."""

INSIDE = {
    ("RunningJob", "deadline"),
    ("SqliteStore", "clock"),
    ("SqliteStore", "monotonic"),
    ("PostgresStore", "clock"),
    ("PostgresStore", "monotonic"),
    ("SqliteStore.wait", "timeout"),
    ("PostgresStore.wait", "timeout"),
}
"""Times that only this library passes: to handles that it makes, and to a store by its manager."""


def _public(package: str) -> Iterator[tuple[str, Any]]:
    module = importlib.import_module(package)
    for name in getattr(module, "__all__", ()):
        yield name, getattr(module, name)


def _owners(name: str, member: Any) -> Iterator[tuple[str, Any]]:
    """Yield the signatures of a function, or of a class and its public methods."""
    if inspect.isclass(member):
        if not issubclass(member, BaseException) or member is wmp.RetryLater:
            yield name, member
        for key in dir(member):
            method = inspect.getattr_static(member, key)
            if isinstance(method, staticmethod | classmethod):
                method = method.__func__
            module = getattr(method, "__module__", None) or ""
            if key[0] != "_" and inspect.isfunction(method) and module.startswith("wmp"):
                yield f"{name}.{key}", method
    elif callable(member):
        yield name, member


def parameters(name: str, member: Any) -> Iterator[tuple[str, str, str]]:
    """Yield owner, parameter and annotation of everything that a caller passes."""
    if typing.is_typeddict(member):
        for key, value in member.__annotations__.items():
            yield name, key, getattr(value, "__forward_arg__", str(value))
        return
    for owner, function in _owners(name, member):
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            continue
        for key, parameter in signature.parameters.items():
            yield owner, key, str(parameter.annotation)


def _described_in_seconds(member: Any, name: str) -> bool:
    text = inspect.getdoc(member) or ""
    return re.search(rf"^\s*{name}: (?:\w+ )?[Ss]econds\b", text, re.MULTILINE) is not None


def test_each_parameter_that_is_a_time_takes_a_timedelta() -> None:
    wrong, durations = [], set()
    members = []
    for package, needed in PACKAGES.items():
        if needed and importlib.util.find_spec(needed) is None:
            continue
        members += [(package, name, member) for name, member in _public(package)]
    for home in RETURNED:
        module, _, name = home.partition(":")
        if module.startswith("wmp.rows") and importlib.util.find_spec("pyarrow") is None:
            continue
        members.append((module, name, getattr(importlib.import_module(module), name)))
    for package, name, member in members:
        for owner, key, annotation in parameters(name, member):
            if re.search(r"\bDuration\b", annotation):
                durations.add((owner, key))
            elif key in MOMENTS or (owner, key) in NOT_TIMES | INSIDE:
                continue
            elif re.search(r"\bfloat\b", annotation) or _described_in_seconds(member, key):
                wrong.append(f"{package}: {owner}({key}: {annotation})")

    assert not wrong, f"annotate as Duration, and convert with in_seconds: {wrong}"
    assert len(durations) > 80
    assert {("Manager.drain", "timeout"), ("Transport", "linger")} <= durations


def test_every_option_that_submit_shows_is_checked() -> None:
    shown = {key for _, key, note in parameters("submit", wmp.SubmitOptions) if "Duration" in note}

    assert shown == {"timeout", "expires", "run_limit", "delay", "result_ttl"}


THREE = timedelta(seconds=3)

SETTINGS = (
    "Transport",
    "Retry",
    "RetryLater",
    "exponential",
    "Journal",
    "SqliteStore",
    "local",
    "ClientDoor",
    "WorkerDoor",
    "MajordomoDoor",
    "MajordomoService",
    "RoundRobinDoor",
    "TitanicLimits",
)
"""Settings and objects that are the same in both APIs."""


def _made(api: Any) -> dict[str, Callable[..., Any]]:
    """Return what makes an object of each class whose settings are times."""
    tcp, manager = "tcp://127.0.0.1:5570", api.Manager
    there = wmp.gateways.aio if api is wmp.aio else wmp.gateways
    star = {"local": "tcp://127.0.0.1:5580", "remote": "tcp://127.0.0.1:5581"}
    return {
        "Manager": manager,
        "Worker": lambda **more: api.Worker(
            tcp, handlers=len, **({"pool": "process"} if "cancel_grace" in more else {}), **more
        ),
        "Device": lambda **more: api.Device(bind=tcp, connect="tcp://127.0.0.1:5571", **more),
        "BinaryStar": lambda **more: there.BinaryStar("primary", **star, **more),
        "StarClient": lambda **more: there.StarClient(tcp, "tcp://127.0.0.1:5571", **more),
        "Failover": lambda **more: there.Failover(tcp, **more),
        "Shotgun": lambda **more: there.Shotgun(tcp, **more),
        "Agent": lambda **more: there.Agent(tcp, **more),
        "FreelanceServer": lambda **more: there.FreelanceServer(tcp, handler=len, **more),
        "LazyClient": lambda **more: there.LazyClient(tcp, **more),
        "ParanoidWorker": lambda **more: there.ParanoidWorker(tcp, len, **more),
        "PingPongWorker": lambda **more: there.PingPongWorker(tcp, len, **more),
        "MajordomoClient": lambda **more: there.MajordomoClient(tcp, **more),
        "MajordomoPipelinedClient": lambda **more: there.MajordomoPipelinedClient(tcp, **more),
        "MajordomoWorker": lambda **more: there.MajordomoWorker(tcp, "echo", len, **more),
        "FrontDoor": lambda **more: there.FrontDoor(tcp, manager=manager(), **more),
        "Gateway": lambda **more: there.Gateway(
            wmp.gateways.ClientDoor("tcp://127.0.0.1:5590", protocol="pirates"),
            bind="tcp://127.0.0.1:5591",
            **more,
        ),
        "RoundRobinServer": lambda **more: there.RoundRobinServer(tcp, **more),
        "RoundRobinWorker": lambda **more: there.RoundRobinWorker(tcp, {1: len}, **more),
        "RoundRobinClient": lambda **more: there.RoundRobinClient(tcp, **more),
    }


def _plain(tmp_path: Path) -> dict[str, Callable[..., Any]]:
    def sqlite(**more: Any) -> Any:
        store = wmp.SqliteStore(tmp_path / "jobs.db", **more)
        store.close()
        return store

    def local(**more: Any) -> Any:
        manager = wmp.local(1, **more)
        manager.close()  # it has a context of its own
        return manager

    from wmp.runtime.common.journal import Journal

    doors = wmp.gateways
    return {
        "Transport": wmp.Transport,
        "Retry": wmp.Retry,
        "RetryLater": wmp.RetryLater,
        "exponential": lambda **more: wmp.exponential(**{"first": 1, "maximum": 60} | more),
        "Journal": lambda **more: Journal(tmp_path, **more),
        "SqliteStore": sqlite,
        "local": local,
        "ClientDoor": lambda **more: doors.ClientDoor(
            "tcp://127.0.0.1:5590", **{"protocol": "pirates"} | more
        ),
        "WorkerDoor": lambda **more: doors.WorkerDoor(
            "tcp://127.0.0.1:5590", protocol="paranoid-pirate", **more
        ),
        "MajordomoDoor": lambda **more: doors.MajordomoDoor("tcp://127.0.0.1:5590", **more),
        "MajordomoService": lambda **more: doors.MajordomoService("echo", **more),
        "TitanicLimits": doors.TitanicLimits,
        "RoundRobinDoor": lambda **more: doors.RoundRobinDoor("tcp://127.0.0.1:5590", **more),
    }


def _timedeltas(value: Any, path: str, seen: set[int]) -> Iterator[str]:
    """Yield the paths from an object to each ``timedelta`` that it holds."""
    if isinstance(value, timedelta):
        yield path
        return
    module = type(value).__module__
    if id(value) in seen or not (module.startswith("wmp") or module == "builtins"):
        return
    seen.add(id(value))
    if isinstance(value, dict):
        held: dict[Any, Any] = dict(value)
    elif isinstance(value, list | tuple | set | frozenset):
        held = dict(enumerate(value))
    elif inspect.isroutine(value) or isinstance(value, type | str | bytes):
        return
    else:
        held = dict(getattr(value, "__dict__", {}))
        if attrs.has(type(value)):
            held |= {f.name: getattr(value, f.name, None) for f in attrs.fields(type(value))}
        for kind in type(value).__mro__:
            for name in getattr(kind, "__slots__", ()):
                held.setdefault(name, getattr(value, name, None))
    for key, item in held.items():
        yield from _timedeltas(item, f"{path}.{key}", seen)


def _times_of(member: Any) -> list[str]:
    signature = inspect.signature(member)
    return [k for k, p in signature.parameters.items() if "Duration" in str(p.annotation)]


def _cases() -> list[Any]:
    cases = []
    for api in (wmp, wmp.aio):
        package = importlib.import_module("wmp.gateways" + (".aio" if api is wmp.aio else ""))
        for name in _made(api):
            member = getattr(api, name, None) or getattr(package, name)
            cases += [(api.__name__, name, key) for key in _times_of(member)]
    return cases


@pytest.mark.parametrize(("api", "name", "key"), _cases())
def test_a_node_is_made_with_a_timedelta(api: str, name: str, key: str) -> None:
    make = _made(importlib.import_module(api))[name]

    async def check() -> None:
        assert not list(_timedeltas(make(**{key: THREE}), name, set()))

    asyncio.run(check())


@pytest.mark.parametrize(
    "name",
    SETTINGS,
)
def test_a_setting_is_made_with_a_timedelta(name: str, tmp_path: Path) -> None:
    make = _plain(tmp_path)[name]
    member = getattr(wmp, name, None) or getattr(wmp.gateways, name, None) or make
    keys = {"Journal": ["segment_age", "flush", "beat"]}
    for key in keys.get(name) or _times_of(member):
        more = {"protocol": "freelance-agent"} if key == "remember" else {}
        built = make(**{key: THREE} | more)

        assert not list(_timedeltas(built, name, set())), key


def test_each_class_with_a_time_is_made_here(tmp_path: Path) -> None:
    known = {*_made(wmp), *_plain(tmp_path)}
    # A Titanic needs a broker, and a store on PostgreSQL a server. Executors take options of jobs.
    known |= {"Titanic", "PostgresStore", "Executor"}
    for package in ("wmp", "wmp.aio", "wmp.gateways", "wmp.gateways.aio"):
        for name, member in _public(package):
            if callable(member) and not typing.is_typeddict(member):
                try:
                    times = _times_of(member)
                except (TypeError, ValueError):
                    continue
                assert not times or name in known, f"add {name} to the objects that are made"


def test_the_alias_can_be_resolved() -> None:
    hints = typing.get_type_hints(wmp.Manager.drain)

    assert timedelta in typing.get_args(hints["timeout"])
    assert float in typing.get_args(Duration)
    assert in_seconds(timedelta(minutes=1)) == 60.0
    assert in_seconds(2) == 2
    assert in_seconds(None) is None
