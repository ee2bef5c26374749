"""Calls of functions: ``python -m benchmarks --only calls``.

``wmp.Executor`` with worker processes of its own beside the process pool of Python, with the same
function, chunks and number of processes; a grid search of scikit-learn beside joblib's own backend.
Starts of processes are not measured.
"""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Mapping
from typing import Any, Final

import wmp
from benchmarks.figure import Bench, beside, summary
from benchmarks.work import echo, make, through

__all__ = ["measure"]

_PROCESSES: Final = 2
_CHUNKS: Final = (1, 64)


def measure(bench: Bench, *, tiny: bool) -> None:
    """Measure both, in turns, and add the figures."""
    _maps(bench, tiny=tiny)
    _grid(bench, tiny=tiny)


def _maps(bench: Bench, *, tiny: bool) -> None:
    with (
        concurrent.futures.ProcessPoolExecutor(_PROCESSES) as pool,
        wmp.Executor(workers=_PROCESSES) as executor,
    ):
        for chunk in _CHUNKS:
            payloads = make(300 if tiny else 50_000 if chunk > 1 else 5_000, 100)

            def rate(maker: concurrent.futures.Executor) -> float:
                # ``noqa``: both names are bound in this round
                seconds = through(
                    lambda given: maker.map(echo, given, chunksize=chunk),  # noqa: B023
                    payloads,  # noqa: B023
                )
                return len(payloads) / seconds  # noqa: B023

            rate(pool)
            rate(executor)
            rounds = [(rate(pool), rate(executor)) for _ in range(bench.scale.repeats)]
            name = f"calls_map_100_chunk{chunk}"
            _add(bench, name, f"{name}_pool", "jobs/s", rounds)


def _grid(bench: Bench, *, tiny: bool) -> None:
    names = ["calls_grid", "calls_grid_loky"]
    try:
        import joblib
        from sklearn.datasets import load_digits
        from sklearn.model_selection import GridSearchCV
        from sklearn.svm import SVC

        import wmp.joblib  # noqa: F401 - registers the backend
    except ImportError as error:
        bench.skip(names, f"{error.name} is not installed: pip install scikit-learn joblib")
        return
    rows = 200 if tiny else 1000
    data, target = load_digits(return_X_y=True)
    grid: Mapping[str, Any] = {"C": [0.1, 1, 10, 100], "gamma": [0.0001, 0.001, 0.01]}

    def search(backend: str) -> tuple[float, Any]:
        search = GridSearchCV(SVC(), {"C": [1, 10]} if tiny else grid, cv=3)
        start = time.perf_counter()
        with joblib.parallel_config(backend, n_jobs=_PROCESSES):
            search.fit(data[:rows], target[:rows])
        return 1 / (time.perf_counter() - start), search.best_params_

    best = {str(search(backend)[1]) for backend in ("loky", "wmp")}
    if len(best) != 1:
        raise RuntimeError(f"the searches differ: {best}")
    rounds = [(search("loky")[0], search("wmp")[0]) for _ in range(bench.scale.repeats)]
    _add(bench, "calls_grid", "calls_grid_loky", "searches/s", rounds)


def _add(
    bench: Bench, ours: str, theirs: str, unit: str, rounds: list[tuple[float, float]]
) -> None:
    """Add the figures of rounds of (the other's rate, our rate)."""
    others, own = [rate for rate, _ in rounds], [rate for _, rate in rounds]
    bench.figures[theirs] = summary(others, unit, verified=True)
    bench.figures[ours] = beside(own, unit, others, theirs)
    bench.say(ours)
