"""A dispatcher whose store cannot be used any more ends with the error of the store."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.unit.dispatcher.http_net import Net, dispatcher_on
from tests.waiting import WAIT
from wmp.dispatcher import serving
from wmp.dispatcher.settings import DispatcherSettings
from wmp.errors import StoreUnusable
from wmp.store.sqlite.sqlite_reader import SqliteReader

JOBS = "/dispatcher/jobs/"


def replace(path: Path) -> None:
    """Replace the file of a store by a copy of it."""
    copy = path.with_name("copy.db")
    reader = SqliteReader.open(path)
    reader.backup(copy)
    reader.close()
    os.replace(copy, path)


@pytest.mark.rule("DSP-3.13")
def test_a_dispatcher_whose_store_is_replaced_ends_and_names_the_cause(tmp_path: Path) -> None:
    async def test() -> None:
        net = Net()
        async with (
            dispatcher_on(net, 8081, tmp_path / "jobs.db") as dispatcher,
            net.client(8081) as client,
        ):
            assert (await client.post(JOBS, json={"type": "echo"})).status_code == 201
            replace(tmp_path / "jobs.db")
            # The sweep of the next second notices the other file.
            with pytest.raises(StoreUnusable, match="was replaced while this process used it"):
                await asyncio.wait_for(dispatcher.wait_ended(), WAIT)
            for path in (JOBS, "/healthz"):
                answer = await client.get(path)
                assert (answer.status_code, "start the process again" in answer.text) == (503, True)

    asyncio.run(test())


@pytest.mark.rule("DSP-3.13")
@pytest.mark.parametrize("bind", [(), ("tcp://127.0.0.1:*",)], ids=["alone", "with a manager"])
def test_the_program_ends_with_the_error(tmp_path: Path, bind: tuple[str, ...]) -> None:
    path = tmp_path / "jobs.db"

    async def test() -> None:
        serves = asyncio.Event()
        served = asyncio.ensure_future(
            serving.serve_dispatcher(
                str(path),
                "127.0.0.1:0",
                DispatcherSettings(),
                bind=bind,
                report=lambda line: serves.set(),
            )
        )
        await asyncio.wait_for(serves.wait(), WAIT)
        replace(path)
        with pytest.raises(StoreUnusable, match="was replaced while this process used it"):
            await asyncio.wait_for(served, WAIT)

    asyncio.run(test())
