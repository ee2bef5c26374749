"""Results as a table, as JSON and as a picture. Used by ``python -m benchmarks``."""

from __future__ import annotations

import base64
import io
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import cbor2
import zmq
from attrs import define

import wmp
from benchmarks.figure import Skip

__all__ = [
    "SHOWN",
    "TARGETS",
    "Figures",
    "about",
    "as_json",
    "draw",
    "from_json",
    "judge",
    "markdown",
    "table",
]

TARGETS: dict[str, tuple[str, float, str]] = {
    "map_100": ("≥", 3.0, "raw"),
    "map_10k": ("≥", 0.8, "raw_10k"),
    "map_1m": ("≥", 0.8, "raw_1m"),
    "submit_100": ("≥", 1.0, "raw"),
    "latency_p50": ("≤", 2.0, "raw_latency_p50"),
    "latency_plain_p50": ("≤", 3.0, "raw_latency_p50"),
    "executor_chunk64_100": ("≤", 1.0, "map_100"),
    "device_map_100": ("≥", 0.8, "map_100"),
    "device_own_256": ("≤", 1.2, "device_own_1"),
    "arrays_1m": ("≥", 0.9, "bytes of the same size"),
    "journal_map_100": ("≥", 0.9, "the same without"),
    "store_add": ("≥", 100_000, ""),
    "store_reserve_few": ("≥", 30_000, ""),
    "store_finish_few": ("≥", 30_000, ""),
    "store_reserve_many": ("≥", 0.25, "store_reserve_few"),
    "store_finish_many": ("≥", 0.25, "store_finish_few"),
    "store_jobs": ("≥", 15_000, ""),
    "store_jobs_process": ("≥", 0.25, "store_jobs_unstored"),
    "growth_idle_job_10000": ("≤", 1.1, "growth_idle_job_10"),
    "growth_idle_memory": ("≤", 8.0, ""),
    "growth_queued_memory": ("≤", 600.0, ""),
    "growth_queued_rate_1000000": ("≥", 0.8, "growth_queued_rate_1000"),
    "work_cpu_1ms": ("≥", 1.0, "work_cpu_1ms_executor"),
    "work_cpu_1ms_used": ("≥", 0.9, ""),
    "work_cpu_10ms_used": ("≥", 0.9, ""),
    "work_cpu_pareto": ("≥", 1.0, "work_cpu_pareto_executor"),
    "work_wait_5ms": ("≥", 0.9, "work_wait_5ms_executor"),
    "calls_map_100_chunk64": ("≥", 1.0, "calls_map_100_chunk64_pool"),
    "calls_grid": ("≥", 0.9, "calls_grid_loky"),
    "starts_manager_p95": ("≤", 200.0, ""),
    "starts_worker_p95": ("≤", 200.0, ""),
}
"""The targets: a figure, and the least or greatest multiple of another figure that it should have.

Without another figure the number is the target itself. A missed target is no failure.
"""


class Figures(Protocol):
    """The measured figures: of a bench, or from a file."""

    figures: dict[str, dict[str, Any]]
    curves: dict[str, dict[str, Any]]
    skipped: dict[str, str]


@define
class _Read:
    figures: dict[str, dict[str, Any]]
    curves: dict[str, dict[str, Any]]
    skipped: dict[str, str]


def about(bench: Figures, *, quick: bool) -> dict[str, Any]:
    """Return the versions, the machine and the settings with which the figures were made."""
    return {
        "quick": quick,
        "wmp": wmp.__version__,
        "python": platform.python_version(),
        "pyzmq": zmq.__version__,
        "libzmq": zmq.zmq_version(),
        "cbor2": getattr(cbor2, "__version__", ""),
        "machine": platform.platform(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "skipped": bench.skipped,
        "curves": bench.curves,
    }


def from_json(document: dict[str, Any]) -> Figures:
    """Read figures that ``as_json`` wrote."""
    rest = dict(document)
    details = rest.pop("about")
    return _Read(rest, details["curves"], details["skipped"])


def as_json(bench: Figures, *, quick: bool) -> dict[str, Any]:
    """Return every figure by its name, and other facts under ``about``."""
    return {**bench.figures, "about": about(bench, quick=quick)}


def judge(figures: dict[str, dict[str, Any]], name: str) -> tuple[str, bool] | None:
    """Return the target of a figure in words, and whether it is met; None without a target."""
    if name not in TARGETS:
        return None
    sign, times, other = TARGETS[name]
    figure = figures[name]
    if not other:
        value = figure["median"]
    elif figure.get("against") == other:
        value = figure["ratio"]
    elif other in figures and "ratio" in figure and figures[other].get("ratio"):
        # Both were measured in turn with the same echo, so compare the ratios.
        value = figure["ratio"] / figures[other]["ratio"]
    elif other in figures:
        if figures[other]["median"] <= 0:
            return None  # the run is too short for the clock of a process's CPU
        value = figure["median"] / figures[other]["median"]
    else:
        return None
    met = value >= times if sign == "≥" else value <= times
    unit = f" × {other}" if other else f" {figure['unit']}"
    return f"{sign} {times:g}{unit} (is {value:.2f})", met


def table(bench: Figures) -> Iterator[str]:
    """Return the figures as text, a line for each."""
    figures = bench.figures
    width = max(map(len, figures), default=4)
    yield (
        f"{'name':<{width}} {'median':>10} {'min':>10} {'max':>10} {'unit':<8}"
        f" {'ratio':>6} {'range':>13}  target"
    )
    for name, figure in figures.items():
        low, middle, high = (_short(figure[k]) for k in ("minimum", "median", "maximum"))
        line = f"{name:<{width}} {middle:>10} {low:>10} {high:>10} {figure['unit']:<8}"
        if "ratio_minimum" in figure:
            spread = f"{figure['ratio_minimum']:.2f}–{figure['ratio_maximum']:.2f}"
            line += f" {figure['ratio']:>6.2f} {spread:>13}"
        else:
            line += f" {'':>6} {'':>13}"
        if (verdict := judge(figures, name)) is not None:
            line += f"  {verdict[0]}: {'met' if verdict[1] else 'NOT MET'}"
        elif figure["unit"] == "jobs/s" and figure.get("size", 0) > 1000:
            line += f"  {figure['median'] * figure['size'] / 1e6:.0f} MB/s"
        yield line.rstrip()
    for name, reason in bench.skipped.items():
        yield f"{name:<{width}} skipped: {reason}"


SHOWN = {
    "raw": "a bare pyzmq echo of three frames",
    "map_100": "**`wmp` `map`**, one worker",
    "map_100_w2": "**`wmp` `map`**, two workers",
    "device_map_100": "**`wmp` `map`** through a device",
    "submit_100": "**`wmp` `submit`**, a future each",
    "aio_submit_100": "**`wmp.aio` `submit`**, a future each",
    "store_jobs": "**`wmp.aio` `submit`**, stored on the disk",
    "store_jobs_process": "**`wmp.aio` `submit`**, stored, no wait for the disk",
    "pool_chunk64_100": "`multiprocessing.Pool`, chunks of 64",
    "executor_chunk64_100": "`ProcessPoolExecutor`, chunks of 64",
    "executor_chunk1_100": "`ProcessPoolExecutor`, a job at a time",
    "guide_100": "a broker as in the ZeroMQ guide",
    "nats_100": "NATS, `nats-py`",
    "gearman_100": "gearmand, `pygearman`",
    "dask_100": "Dask distributed",
    "celery_chunk64_100": "Celery and Redis, chunks of 64",
    "celery_100": "Celery and Redis",
    "store_celery": "Celery and Redis, which keeps tasks and results on the disk",
    "store_celery_process": "Celery and Redis, which writes to the disk once a second",
    "raw_latency_p50": "one at a time: the bare echo",
    "latency_p50": "one at a time: **`wmp`**",
    "executor_chunk1_latency_p50": "one at a time: `ProcessPoolExecutor`",
    "nats_latency_p50": "one at a time: NATS",
    "gearman_latency_p50": "one at a time: gearmand",
    "dask_latency_p50": "one at a time: Dask",
    "celery_latency_p50": "one at a time: Celery and Redis",
}
"""The figures of the short table and the short picture, with their names for readers."""

_ALONE = "one at a time: "
"""Prefix of the waits in the table. In the picture they have a panel of their own."""


def markdown(figures: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Return the figures that ``SHOWN`` names as a table of Markdown, a line for each."""
    yield "| 100 B a job, 2 cores | median | × the bare echo |"
    yield "|---|---|---|"
    for name, words in SHOWN.items():
        if (figure := figures.get(name)) is None:
            continue
        ratio = "1"
        if "ratio_minimum" in figure and not name.startswith("raw"):
            ratio = "{ratio:.2f} ({ratio_minimum:.2f}–{ratio_maximum:.2f})".format(**figure)
        yield f"| {words} | {_short(figure['median'])} {figure['unit']} | {ratio} |"


def _short(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def draw(bench: Figures, path: Path, *, short: bool = False) -> None:
    """Draw bars of the ratios, and the curves; a picture, or HTML around one.

    ``short`` draws only the figures of ``SHOWN``, in one column that a page shows at full size.

    Raises:
        Skip: matplotlib is missing.
    """
    try:
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise Skip("a plot needs matplotlib: pip install -e '.[bench]'") from error
    if short:
        figures = {name: bench.figures[name] for name in SHOWN if name in bench.figures}
        bench = _Read(figures, {}, bench.skipped)
    panels = [kind for kind in ("rates", "waits") if _bars(bench, kind)] + [*bench.curves]
    columns = 2 if len(panels) > 1 and not short else 1
    rows = -(-len(panels) // columns)
    heights = [4.0] * rows
    if short:
        heights = [0.8 + 0.26 * len(_bars(bench, kind)) for kind in panels] or heights
    elif rates := _bars(bench, "rates"):
        heights[0] = max(4.0, 0.24 * len(rates))
    figure, axes = pyplot.subplots(
        rows,
        columns,
        figsize=(8 * columns, sum(heights)),
        squeeze=False,
        height_ratios=heights,
        layout="constrained",
    )
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis, panel in zip(axes.flat, panels, strict=False):
        if panel in bench.curves:
            _curve(axis, panel, bench.curves[panel])
        else:
            _bar(axis, panel, _bars(bench, panel))
    picture = io.BytesIO()
    html = path.suffix.lower() in (".html", ".htm")
    figure.savefig(
        picture, format="png" if html else path.suffix[1:] or "png", dpi=150 if short else 110
    )
    pyplot.close(figure)
    path.write_bytes(_page(bench, picture.getvalue()) if html else picture.getvalue())


def _bars(bench: Figures, kind: str) -> dict[str, dict[str, Any]]:
    unit = "jobs/s" if kind == "rates" else "µs"
    return {
        name: figure
        for name, figure in bench.figures.items()
        if figure["unit"] == unit and "ratio" in figure
    }


def _bar(axis: Any, kind: str, figures: dict[str, dict[str, Any]]) -> None:
    names = [*figures][::-1]
    ratios = [figures[name]["ratio"] for name in names]
    low, high = [], []
    for figure in map(figures.__getitem__, names):
        low.append(figure["ratio"] - figure.get("ratio_minimum", figure["ratio"]))
        high.append(figure.get("ratio_maximum", figure["ratio"]) - figure["ratio"])
    ours = ("map", "submit", "aio", "latency", "device", "chain")
    colors = [
        "0.55" if name.startswith("raw") else "tab:blue" if name.startswith(ours) else "tab:orange"
        for name in names
    ]
    labels = [_plain(SHOWN.get(name, name)) for name in names]
    bars = axis.barh(labels, ratios, xerr=[low, high], color=colors, ecolor="0.3", height=0.7)
    axis.bar_label(bars, [f"{ratio:.2g} ×" for ratio in ratios], padding=4, fontsize=8)
    axis.axvline(1.0, color="0.3", linewidth=0.8)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g} ×")
    axis.margins(x=0.15, y=0.01)
    word = (
        "jobs a second (more is better)" if kind == "rates" else "time of one job (less is better)"
    )
    axis.set_title(f"{word}, beside a bare echo", fontsize=10)
    axis.tick_params(labelsize=9)


def _plain(words: str) -> str:
    """Return the name of a figure without Markdown, and without the words of its panel's title."""
    return words.replace("*", "").replace("`", "").removeprefix(_ALONE)


def _curve(axis: Any, name: str, curve: dict[str, Any]) -> None:
    for label, values in curve["lines"].items():
        axis.plot(curve["x"][: len(values)], values, marker="o", label=label)
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    axis.set_xlabel(curve["x_label"])
    axis.set_ylabel(curve["unit"])
    axis.set_title(name, fontsize=10)
    axis.legend(fontsize=7)
    axis.grid(alpha=0.3)


def _page(bench: Figures, png: bytes) -> bytes:
    lines = "\n".join(table(bench)).replace("&", "&amp;").replace("<", "&lt;")
    picture = base64.b64encode(png).decode()
    return (
        "<!doctype html><meta charset=utf-8><title>wmp: benchmarks</title>"
        f"<img alt='the figures below' src='data:image/png;base64,{picture}'>"
        f"<pre>{lines}</pre>\n"
    ).encode()
