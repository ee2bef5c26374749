"""Tasks with an asyncio manager, and tasks under roles of their own."""

from __future__ import annotations

import asyncio

import pytest

import wmp
from tests.waiting import WAIT
from wmp import aio

pytestmark = pytest.mark.interop


@wmp.task
def add(left: int, right: int = 1) -> int:
    return left + right


@wmp.task(role="strong", timeout=WAIT)
async def double(number: int) -> int:
    return 2 * number


HANDLERS = {add.role: add.handler, "strong": double.handler, "gpu": add.handler}


def test_a_task_is_submitted_to_an_asyncio_manager() -> None:
    async def main() -> None:
        async with (
            aio.Manager(codec="cbor") as manager,
            aio.Worker(*manager.endpoints, handlers=HANDLERS),
        ):
            adding = add.using(manager)
            job = await adding.submit(2, right=3)
            assert await asyncio.wait_for(job, WAIT) == 5
            assert await double.using(manager, priority=2)(4) == 8
            assert [result async for result in adding.map([1, 2], right=10)] == [11, 12]
            gpu = adding.using(role="gpu")
            assert (gpu.role, repr(gpu)) == ("gpu", "<AioTask gpu>")
            assert await gpu(1) == 2
            with pytest.raises(TypeError, match="missing a required argument"):
                await adding.submit()  # type: ignore[call-arg]

    asyncio.run(main())


def test_an_asyncio_manager_without_arguments_is_refused() -> None:
    async def main() -> None:
        async with aio.Manager() as manager:
            with pytest.raises(wmp.ConfigError, match="has the codec 'bytes'"):
                await add.using(manager).submit(1)
            with pytest.raises(wmp.ConfigError, match="has the codec 'bytes'"):
                add.using(manager).map([1])

    asyncio.run(main())


def test_unknown_options_and_managers_are_refused() -> None:
    with pytest.raises(wmp.ConfigError, match="did you mean 'priority'"):
        add.using(prioriti=1)  # type: ignore[call-arg]
    with pytest.raises(wmp.ConfigError, match=r"expected a wmp.Manager or a wmp.aio.Manager"):
        add.using(3)  # type: ignore[arg-type]


def test_the_tasks_of_one_module_go_to_different_roles() -> None:
    with (
        wmp.Manager(codec="cbor") as manager,
        wmp.Worker(*manager.endpoints, handlers={"left": add.handler, "right": double.handler}),
    ):
        assert add.using(manager, role="left").submit(1).result(WAIT) == 2
        assert double.using(manager, role="right").submit(1).result(WAIT) == 2
