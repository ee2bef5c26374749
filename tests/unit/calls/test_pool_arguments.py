"""The arguments of ``ProcessPoolExecutor`` at :class:`wmp.Executor`."""

from __future__ import annotations

import multiprocessing
import os

import pytest

import wmp


def test_max_workers_is_another_name_of_workers():
    with wmp.Executor(max_workers=2, mp_context=multiprocessing.get_context("spawn")) as executor:
        assert executor._own is not None
        executor._own.wait_for_workers(1)
        assert executor._own.statistics().workers[0].resources["slots"] == 2
        assert executor.submit(abs, -1).result() == 1
    with pytest.raises(wmp.ConfigError, match="are the same; leave out one"):
        wmp.Executor(max_workers=1, workers=1)
    with pytest.raises(wmp.ConfigError, match="workers is 0"):
        wmp.Executor(max_workers=0)


def test_another_process_takes_over_after_max_tasks_per_child():
    with wmp.Executor(max_workers=1, max_tasks_per_child=1) as executor:
        first, second = (executor.submit(os.getpid).result() for _ in range(2))
    assert first != second


@pytest.mark.parametrize("context", [multiprocessing.get_context("fork"), object()])
def test_another_way_to_start_processes_is_refused(context):
    with pytest.raises(wmp.ConfigError, match="'spawn' only"):
        wmp.Executor(max_workers=1, mp_context=context)


def test_a_number_in_the_place_of_the_manager_names_workers():
    with pytest.raises(wmp.ConfigError, match="or workers=N"):
        wmp.Executor(4)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["max_workers", "max_tasks_per_child"])
def test_processes_of_a_manager_have_no_such_arguments(name):
    with (
        wmp.Manager(codec="cbor") as manager,
        pytest.raises(wmp.ConfigError, match="is for an executor with worker processes"),
    ):
        wmp.Executor(manager, **{name: 1})
