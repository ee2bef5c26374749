"""The options of a job: shown by name, refused by name, and described in one docstring."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

import wmp
from wmp import aio, blocking
from wmp.runtime.submission.submit_options import LONE_OPTIONS, OPTION_DEFAULTS

ONE = ("submit", "submit_nowait")
MANY = ("submit_many", "map")


def named(manager: type, method: str) -> dict[str, Any]:
    parameters = inspect.signature(getattr(manager, method)).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


@pytest.mark.parametrize("manager", [aio.Manager, blocking.Manager])
@pytest.mark.parametrize("method", ONE + MANY)
def test_the_signature_lists_the_options_with_their_defaults(manager: type, method: str) -> None:
    left_out = LONE_OPTIONS if method in MANY else frozenset()
    expected = {name: value for name, value in OPTION_DEFAULTS.items() if name not in left_out}
    if method == "map":
        expected["stored"] = False

    shown = named(manager, method)

    assert {name: shown[name] for name in expected} == expected
    assert not left_out & shown.keys()


def test_one_docstring_describes_every_option() -> None:
    text = inspect.getdoc(wmp.SubmitOptions) or ""

    assert [name for name in OPTION_DEFAULTS if f"\n    {name}: " not in text] == []
    assert OPTION_DEFAULTS.keys() == wmp.SubmitOptions.__annotations__.keys()


def test_an_executor_lists_the_options_of_calls_and_refuses_the_others() -> None:
    keyword_only = named(wmp.Executor, "__init__")

    assert {"needs", "timeout", "expires", "checksum", "retry"} <= keyword_only.keys()
    assert not {"role", "stored", "key"} & keyword_only.keys()
    with pytest.raises(TypeError, match=r"'role' is not an option of an executor"):
        wmp.Executor(role="resize")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"no option 'timeoutt'; did you mean 'timeout'"):
        wmp.Executor(timeoutt=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"prioritty": 1}, "a job has no option 'prioritty'; did you mean 'priority'"),
        ({"keep": 1.0}, "a job has no option 'keep'; the name of this option is 'result_ttl'"),
        ({"xyz": 1}, "a job has no option 'xyz'; expected some of checksum, delay"),
    ],
)
def test_an_unknown_option_is_refused_by_name(options: dict[str, Any], text: str) -> None:
    async def submit() -> None:
        async with aio.Manager() as manager:
            with pytest.raises(TypeError, match=text):
                manager.submit_nowait(b"", **options)
            with pytest.raises(TypeError, match=text):
                await manager.submit(b"", **options)
            with pytest.raises(TypeError, match=text):
                await manager.submit_many([b""], **options)
            with pytest.raises(TypeError, match=text):
                await anext(manager.map([b""], **options))
            assert manager.statistics().queued == 0

    asyncio.run(submit())


@pytest.mark.parametrize("name", sorted(LONE_OPTIONS))
def test_an_option_of_a_single_job_does_not_fit_several(name: str) -> None:
    options: dict[str, Any] = {name: None}
    with wmp.Manager() as manager:
        with pytest.raises(TypeError, match=f"'{name}' is an option of a single job; use submit"):
            manager.submit_many([b""], **options)
        with pytest.raises(TypeError, match=f"'{name}' is an option of a single job; use submit"):
            next(manager.map([b""], **options))


def test_the_earlier_name_of_orphan_ttl_is_refused_with_the_new_name() -> None:
    text = "a manager has no setting 'keep'; the name of this setting is 'orphan_ttl'"

    with pytest.raises(wmp.ConfigError, match=text):
        wmp.Manager(keep=60)
