"""The adapter of handlers: a handler takes a record batch, a frame of pandas or a row (ROWS-3)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, Literal, Protocol, TypeVar

import pyarrow

from wmp.errors import ConfigError, HandlerVerdict, JobCancelled
from wmp.message import DEFAULT_ROLE
from wmp.retry import Retry
from wmp.rows.payloads import ResultRequest, read_request
from wmp.rows.result_tables import as_batch, failed_rows, from_rows
from wmp.runtime.executors.handlers import serve

Takes = Literal["batch", "pandas", "row"]

_KINDS: Final = ("batch", "pandas", "row")
_F = TypeVar("_F", bound=Callable[..., Any])


class _Registry(Protocol):
    def handler(
        self, role: str = ..., *, needs: Mapping[str, int] | None = ..., retry: Retry | None = ...
    ) -> Callable[[Any], Any]: ...


def handler(
    worker: _Registry,
    role: str = DEFAULT_ROLE,
    *,
    takes: Takes = "batch",
    needs: Mapping[str, int] | None = None,
    retry: Retry | None = None,
) -> Callable[[_F], Callable[..., Any]]:
    """Register the decorated function at a worker, as a handler of tables.

    ::

        @wmp.rows.handler(worker, "embed", takes="pandas")
        def embed(frame):
            return frame.assign(length=frame.text.str.len())

    Args:
        worker: A ``wmp.Worker`` or a ``wmp.aio.Worker``.
        role: As for ``worker.handler``.
        takes: As for :func:`row_handler`.
        needs: As for ``worker.handler``.
        retry: As for ``worker.handler``.

    Raises:
        ConfigError: ``takes`` is wrong, or the worker refuses the handler.
    """

    def register(function: _F) -> Callable[..., Any]:
        adapted = row_handler(takes)(function)
        worker.handler(role, needs=needs, retry=retry)(adapted)
        return adapted

    return register


def row_handler(takes: Takes = "batch") -> Callable[[_F], Callable[..., Any]]:
    """Make a handler of tables of the decorated function, for ``wmp worker`` and ``handlers=``.

    Args:
        takes: The first argument of the function: ``"batch"``, a ``pyarrow.RecordBatch``;
            ``"pandas"``, a ``pandas.DataFrame``; ``"row"``, a dictionary, with one call for each
            row. A second required argument gets the running job.

    Raises:
        ConfigError: ``takes`` is wrong.
    """
    if takes not in _KINDS:
        raise ConfigError(f"takes is {takes!r}; expected one of {', '.join(_KINDS)}")

    def adapt(function: _F) -> Callable[..., Any]:
        # The worker's own rule decides whether the function gets the job.
        served = serve(DEFAULT_ROLE, function)
        with_job, is_async = served.takes_job, served.is_async
        run = _rows if takes == "row" else functools.partial(_table, takes)

        @functools.wraps(function)
        def call(payload: Any, job: Any) -> Any:
            steps = run(function, (job,) if with_job else (), payload)
            try:
                value = next(steps)
                while True:
                    value = steps.send(value)
            except StopIteration as end:
                return end.value

        @functools.wraps(function)
        async def call_async(payload: Any, job: Any) -> Any:
            steps = run(function, (job,) if with_job else (), payload)
            try:
                awaitable = next(steps)
                while True:
                    try:
                        value = await awaitable
                    except Exception as error:  # noqa: BLE001 - the adapter decides about it
                        awaitable = steps.throw(error)
                    else:
                        awaitable = steps.send(value)
            except StopIteration as end:
                return end.value

        adapted: Callable[..., Any] = call_async if is_async else call
        # A worker reads the parameters of the adapter, and not those of the function.
        adapted.__signature__ = inspect.signature(_shape)  # type: ignore[attr-defined]
        adapted.__annotations__ = {}
        return adapted

    return adapt


def _shape(payload: Any, job: Any) -> None:
    """Show the parameters of an adapted handler."""


_Steps = Generator[Any, Any, pyarrow.RecordBatch]
"""Yields what the handler returned, and gets its value: a coroutine must be awaited for it."""


def _table(takes: str, function: Callable[..., Any], more: tuple[Any, ...], payload: Any) -> _Steps:
    batch, request, wanted = _opened(payload)
    result = yield function(batch.to_pandas() if takes == "pandas" else batch, *more)
    result_batch = as_batch(result, wanted)
    if request.error is None:
        return result_batch
    return _with_error_column(result_batch, request)


def _rows(function: Callable[..., Any], more: tuple[Any, ...], payload: Any) -> _Steps:
    batch, request, wanted = _opened(payload)
    ends: list[list[Mapping[str, Any]] | str] = []
    for index, row in enumerate(batch.to_pylist()):
        try:
            ends.append(_as_rows((yield function(row, *more))))
        except (JobCancelled, HandlerVerdict):
            raise
        except Exception as error:  # noqa: BLE001 - code of the application
            ends.append(_failed(error, index, batch, request))
    try:
        return _joined(ends, batch, request, wanted)
    except (TypeError, ValueError):
        # A value does not convert. Find the row, so that the error names it.
        for index, end in enumerate(ends):
            try:
                from_rows([] if isinstance(end, str) else end, wanted)
            except (TypeError, ValueError) as error:
                ends[index] = _failed(error, index, batch, request)
        return _joined(ends, batch, request, wanted)


def _failed(
    error: Exception, index: int, batch: pyarrow.RecordBatch, request: ResultRequest
) -> str:
    """Return the text for the error column; without this column raise the error (ROWS-3.4)."""
    if request.error is None:
        error.add_note(f"in row {index} of the {batch.num_rows} rows of the job")
        raise error
    return f"{type(error).__name__}: {error}"


def _joined(
    ends: list[list[Mapping[str, Any]] | str],
    batch: pyarrow.RecordBatch,
    request: ResultRequest,
    wanted: pyarrow.Schema | None,
) -> pyarrow.RecordBatch:
    """Return the results of all rows, in their order, as one record batch."""
    if request.error is None or request.schema is None:
        rows = [row for end in ends if not isinstance(end, str) for row in end]
        return from_rows(rows, wanted)
    parts, good = [], list[Mapping[str, Any]]()
    for index, end in enumerate(ends):
        if isinstance(end, str):
            parts.append(_with_error_column(from_rows(good, wanted), request))
            good = []
            row = batch.slice(index, 1)
            parts.append(failed_rows(row, request.schema, request.error, [end]))
        else:
            good += end
    parts.append(_with_error_column(from_rows(good, wanted), request))
    return pyarrow.concat_batches(parts)


def _opened(payload: Any) -> tuple[pyarrow.RecordBatch, ResultRequest, pyarrow.Schema | None]:
    """Return the rows of a payload, the request, and the schema that the handler's result has.

    Raises:
        TypeError: The payload is not a table (ROWS-3.5).
    """
    if not isinstance(payload, pyarrow.RecordBatch):
        raise TypeError(
            f"the payload is {type(payload).__name__}, and no table; submit record batches with "
            "wmp.Manager(codec='arrow') after import wmp.rows"
        )
    request = read_request(payload)
    wanted = request.schema
    if wanted is not None and request.error is not None:
        wanted = wanted.remove(wanted.get_field_index(request.error))
    return payload.replace_schema_metadata(None), request, wanted


def _with_error_column(result: pyarrow.RecordBatch, request: ResultRequest) -> pyarrow.RecordBatch:
    assert request.schema is not None
    columns = {name: result.column(name) for name in result.schema.names}
    for field in request.schema:
        if field.name == request.error:
            columns[field.name] = pyarrow.nulls(result.num_rows, field.type)
    arrays = [columns[name] for name in request.schema.names]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=request.schema)


def _as_rows(result: Any) -> list[Mapping[str, Any]]:
    if result is None:
        return []
    rows = result if isinstance(result, list) else [result]
    for row in rows:
        if not isinstance(row, Mapping):
            raise TypeError(
                f"the handler returned {type(row).__name__}; expected a dictionary, a list of "
                "dictionaries, or None"
            )
    return rows
