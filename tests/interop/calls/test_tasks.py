"""Tasks: submitted, mapped, chained and gathered, at workers of their module."""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import assert_type

import pytest

import wmp
import wmp.aio
from tests.interop.calls import call_functions as functions
from tests.interop.programs.forks import wmp as program
from tests.waiting import WAIT, wait_until

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def manager() -> Iterator[wmp.Manager]:
    """The only open manager of this process, with a worker of the tasks."""
    with (
        wmp.Manager(codec="cbor") as manager,
        wmp.Worker(*manager.endpoints, handlers=wmp.handlers_of(functions.__name__), slots=2),
    ):
        manager.wait_for_workers(timeout=WAIT)
        yield manager


def test_a_task_is_submitted_to_the_open_manager(manager: wmp.Manager) -> None:
    seen: list[str | None] = []
    job = functions.scale.using(on_status=lambda status: seen.append(status.text)).submit(4, by=3)

    assert job.result(WAIT) == 12
    assert isinstance(job, wmp.Job)
    wait_until(lambda: seen == ["half"])
    assert functions.shout.submit("loud").result(WAIT) == "LOUD"


@pytest.mark.rule("CALL-4.2")
def test_wrong_arguments_are_an_error_of_the_submitter(manager: wmp.Manager) -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'value'"):
        functions.scale.submit(by=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="object"):
        functions.double.submit(object())


def test_a_task_is_mapped_over_iterables(manager: wmp.Manager) -> None:
    assert list(functions.scale.map(range(5), by=2)) == [0, 2, 4, 6, 8]
    with pytest.raises(TypeError, match="too many positional arguments"):
        list(functions.double.map([1], [2]))


def test_the_settings_of_a_task_are_those_of_its_jobs(manager: wmp.Manager) -> None:
    assert functions.flaky.submit("x").result(WAIT) == 3
    with pytest.raises(wmp.JobFailed, match="ConnectionError") as caught:
        functions.flaky.using(retry=wmp.Retry(times=1, on=(ConnectionError,), backoff=0)).submit(
            "x"
        ).result(WAIT)
    assert [failure.attempt for failure in caught.value.history] == [1, 2]


def test_with_several_managers_a_task_needs_the_name_of_its_own(manager: wmp.Manager) -> None:
    with wmp.Manager() as other:
        with pytest.raises(wmp.ConfigError, match="2 managers are open in this process"):
            functions.double.submit(1)
        with pytest.raises(wmp.ConfigError, match="has the codec 'bytes'"):
            functions.double.using(other).submit(1)
        assert functions.double.using(manager).submit(1).result(WAIT) == 2


def test_chains_and_groups_are_futures(manager: wmp.Manager) -> None:
    chain = functions.double.submit(1).then(functions.scale, by=5).then(functions.double)
    group = wmp.gather(*(functions.double.submit(number) for number in range(4)))

    assert chain.result(WAIT) == 20
    assert group.result(WAIT) == [0, 2, 4, 6]
    assert wmp.gather(chain, functions.double.submit(1)).then(functions.total).result(WAIT) == 22
    assert wmp.gather().result(0) == []


def test_results_have_the_types_of_the_functions(manager: wmp.Manager) -> None:
    # mypy checks these types.
    assert_type(functions.scale.submit(1, by=2).result(WAIT), int)
    assert_type(functions.shout.submit("a").result(WAIT), str)
    assert_type(wmp.gather(functions.scale.submit(1)).result(WAIT), list[int])
    chain = wmp.gather(functions.scale.submit(1)).then(functions.total)
    assert assert_type(chain.result(WAIT), int) == 10


def test_an_error_ends_chain_and_group(manager: wmp.Manager) -> None:
    bad = functions.double.submit(None)
    chain = bad.then(functions.double)

    with pytest.raises(wmp.JobFailed, match="TypeError"):
        chain.result(WAIT)
    with pytest.raises(wmp.JobFailed, match="TypeError"):
        wmp.gather(functions.double.submit(1), bad).result(WAIT)


def test_a_chain_that_waits_can_be_cancelled(manager: wmp.Manager) -> None:
    first = functions.double.using(delay=60).submit(1)
    chain = first.then(functions.double)
    group = wmp.gather(first, chain)

    assert chain.cancel()
    assert first.cancelled()
    for future in (chain, group):
        with pytest.raises(concurrent.futures.CancelledError):
            future.result(WAIT)


def test_an_asyncio_manager_submits_the_payload_of_a_task() -> None:
    async def main() -> str:
        handlers = wmp.handlers_of(functions.__name__)
        async with (
            wmp.aio.Manager(codec="cbor") as manager,
            wmp.aio.Worker(*manager.endpoints, handlers=handlers),
        ):
            payload = functions.shout.payload("loud")
            return await (await manager.submit(payload, role=functions.shout.role))

    assert asyncio.run(main()) == "LOUD"


TASKS = """
    import wmp

    @wmp.task
    def shout(text: str) -> str:
        return text.upper()

    def whisper(text):
        return text.lower()
"""


@pytest.mark.rule("CALL-1.3")
@pytest.mark.parametrize(
    "how", [("--functions",), ("--function", "whisper"), ("--config", "wmp.toml")]
)
def test_the_program_serves_the_tasks_and_the_functions_of_a_module_that_flags_ask_for(
    how: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wmp.toml").write_text("[worker]\nfunctions = true\n")
    (tmp_path / "some_tasks.py").write_text(textwrap.dedent(TASKS))
    monkeypatch.syspath_prepend(str(tmp_path))
    import some_tasks

    with (
        wmp.Manager(codec="cbor") as manager,
        wmp.Executor(manager) as executor,
        program(
            "worker", "some_tasks", *how, "--connect", *manager.endpoints, cwd=tmp_path
        ) as worker,
    ):
        assert some_tasks.shout.using(manager).submit("hello").result(WAIT) == "HELLO"
        assert executor.submit(some_tasks.whisper, "HELLO").result(WAIT) == "hello"
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0, worker.stderr


def test_the_program_serves_one_task_under_a_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "routed_tasks.py").write_text(textwrap.dedent(TASKS))
    monkeypatch.syspath_prepend(str(tmp_path))
    import routed_tasks

    options = ("--role", "gpu", "--connect")
    with (
        wmp.Manager(codec="cbor") as manager,
        program("worker", "routed_tasks:shout", *options, *manager.endpoints, cwd=tmp_path),
    ):
        routed = routed_tasks.shout.using(manager, role="gpu")
        assert routed.submit("hello").result(WAIT) == "HELLO"


@pytest.mark.deep
@pytest.mark.rule("CALL-1.3")
def test_the_program_runs_pickled_functions_if_asked(tmp_path: Path) -> None:
    with (
        wmp.Manager() as manager,
        wmp.Executor(manager, pickle=True) as executor,
        program("worker", "--pickle", "--connect", *manager.endpoints, cwd=tmp_path) as worker,
    ):
        assert executor.submit(lambda: 7).result(WAIT) == 7
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0, worker.stderr
