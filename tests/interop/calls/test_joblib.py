"""The backend ``wmp`` of joblib: results, errors, nested calls, and workers of a manager."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import wmp
from tests.interop.calls import call_functions as functions
from tests.waiting import WAIT, children, wait_until

joblib = pytest.importorskip("joblib", reason="the extra `joblib` is not installed")

import wmp.joblib as backend  # noqa: E402 - only with the extra

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module", autouse=True)
def kept() -> Iterator[None]:
    """End the processes that the backend keeps."""
    yield
    for kept in backend._kept:
        kept.executor.shutdown()


def parallel(**settings: object) -> joblib.Parallel:
    return joblib.Parallel(**settings)


def test_a_parallel_runs_in_worker_processes_that_are_kept() -> None:
    with joblib.parallel_config("wmp", n_jobs=2):
        squares = parallel()(joblib.delayed(lambda n: n * n)(n) for n in range(20))
        first = set(parallel()(joblib.delayed(functions.where)() for _ in range(10)))
    with joblib.parallel_config("wmp", n_jobs=2):
        second = set(parallel()(joblib.delayed(functions.where)() for _ in range(10)))

    assert squares == [n * n for n in range(20)]
    assert os.getpid() not in first
    assert first | second <= children(os.getpid())


def test_one_job_runs_here() -> None:
    with joblib.parallel_config("wmp", n_jobs=1):
        assert parallel()(joblib.delayed(functions.where)() for _ in range(2)) == [os.getpid()] * 2


def test_options_of_jobs_apply_to_each_batch() -> None:
    with (
        joblib.parallel_config("wmp", n_jobs=2, run_limit=0.2),
        pytest.raises(wmp.JobTimeout, match="run"),
    ):
        parallel()(joblib.delayed(time.sleep)(600) for _ in range(2))


def test_results_can_be_a_generator() -> None:
    with joblib.parallel_config("wmp", n_jobs=2):
        results = parallel(return_as="generator")(joblib.delayed(abs)(-n) for n in range(9))
        assert list(results) == list(range(9))


def test_an_error_is_the_original_and_ends_the_rest() -> None:
    with joblib.parallel_config("wmp", n_jobs=2):
        with pytest.raises(ValueError, match="bad 3"):
            parallel()(joblib.delayed(functions.fail_at)(n) for n in range(50))
        assert parallel()(joblib.delayed(abs)(n) for n in (-1, -2)) == [1, 2]


@pytest.mark.deep
def test_a_time_limit_ends_the_batches_that_run(tmp_path: Path) -> None:
    path = str(tmp_path / "never")
    with joblib.parallel_config("wmp", n_jobs=2):
        with pytest.raises(multiprocessing.TimeoutError):
            parallel(timeout=0.3)(joblib.delayed(functions.wait_for)(path) for _ in range(2))
        assert parallel()(joblib.delayed(abs)(n) for n in (-1, -2)) == [1, 2]


@pytest.mark.deep
def test_two_parallels_at_once_do_not_end_each_others_batches(tmp_path: Path) -> None:
    path = str(tmp_path / "go")
    with joblib.parallel_config("wmp", n_jobs=2):
        results = parallel(return_as="generator")(
            joblib.delayed(functions.wait_for)(path) for _ in range(2)
        )
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    for jobs in (2, 3):
        with (
            joblib.parallel_config("wmp", n_jobs=jobs),
            pytest.raises((ValueError, multiprocessing.TimeoutError)),
        ):
            parallel(timeout=0.1)(joblib.delayed(functions.fail_at)(n) for n in (3, 3))
    (tmp_path / "go").touch()
    assert len(list(results)) == 2


def nested(depth: int) -> list[str]:
    """Return the names of the backends of nested calls."""
    names: list[str] = []

    def down(left: int) -> list[str]:
        name = type(joblib.parallel.get_active_backend()[0]).__name__
        if not left:
            return [name]
        return [name, *joblib.Parallel(n_jobs=2)(joblib.delayed(down)(left - 1) for _ in "ab")[0]]

    names += down(depth)
    return names


@pytest.mark.deep
def test_nested_calls_use_threads_and_then_none() -> None:
    with joblib.parallel_config("wmp", n_jobs=2):
        results = parallel()(joblib.delayed(nested)(2) for _ in range(2))

    assert results == [["ThreadingBackend", "SequentialBackend", "SequentialBackend"]] * 2


def test_a_call_inside_a_batch_uses_threads_and_a_part_of_the_cores() -> None:
    outer = backend.WmpBackend(nesting_level=0, inner_max_num_threads=3)

    inner, _ = outer.get_nested_backend()
    assert type(inner).__name__ == "ThreadingBackend"
    assert outer._prepare_worker_env(n_jobs=2)["OMP_NUM_THREADS"] == "3"


@pytest.mark.deep
def test_libraries_below_get_a_part_of_the_cores() -> None:
    with joblib.parallel_config("wmp", n_jobs=2, inner_max_num_threads=3):
        values = parallel()(joblib.delayed(functions.variable)("OMP_NUM_THREADS") for _ in range(4))

    assert values == ["3"] * 4


def test_the_workers_of_a_manager_do_the_batches() -> None:
    with (
        wmp.Manager() as manager,
        wmp.Worker(*manager.endpoints, handlers=wmp.handlers_of(pickle=True), slots=3),
    ):
        manager.wait_for_workers(timeout=WAIT)
        with joblib.parallel_config("wmp", manager=manager, n_jobs=-1):
            assert joblib.effective_n_jobs() == 3
            threads = parallel()(joblib.delayed(threading.get_ident)() for _ in range(6))
        assert threading.get_ident() not in threads
        wait_until(lambda: manager.statistics().queued == 0)


def test_a_number_of_jobs_without_meaning_is_refused() -> None:
    with joblib.parallel_config("wmp"), pytest.raises(ValueError, match="no meaning"):
        parallel(n_jobs=0)(joblib.delayed(time.sleep)(0) for _ in range(1))


@pytest.mark.deep
def test_a_grid_search_of_scikit_learn_finds_the_same() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from sklearn.datasets import load_iris
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    data, target = load_iris(return_X_y=True)
    results = []
    for name in ("threading", "wmp"):
        search = GridSearchCV(SVC(), {"C": [0.1, 1, 10], "gamma": [0.01, 0.1]}, cv=3)
        with joblib.parallel_config(name, n_jobs=2):
            search.fit(data, target)
        results.append((search.best_params_, search.cv_results_["mean_test_score"].tolist()))

    assert results[0] == results[1]
