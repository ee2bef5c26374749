"""Tasks: functions that submitters name by a role, and that can still be called here.

The module of a task is imported by the submitter and by the workers. A worker process imports no
sockets with this module.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextvars import ContextVar
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from wmp.errors import ConfigError
from wmp.runtime.codecs.annotations import parameter_converters
from wmp.runtime.codecs.value_converters import Converter
from wmp.runtime.executors.handlers import Handler, RunningJob
from wmp.runtime.submission.submit_options import (
    LONE_OPTIONS,
    JobOptions,
    SubmitOptions,
    unknown_option,
)

if TYPE_CHECKING:
    import concurrent.futures

    from wmp.aio import Job as AioJob
    from wmp.aio import Manager as AioManager
    from wmp.blocking.manager import Manager
    from wmp.calls.chain import TaskJob

_P = ParamSpec("_P")
_R = TypeVar("_R")

_JOB: Final[ContextVar[RunningJob | None]] = ContextVar("wmp_current_job", default=None)

_ELSEWHERE: Final = {
    "delay": "submit(…), which takes the arguments of the function",
    "apply_async": "submit(…), or using(delay=…, priority=…).submit(…)",
    "apply": "the task as a function: task(…)",
    "enqueue": "submit(…)",
    "s": "submit(…).then(task, …)",
    "si": "submit(…).then(task, …)",
    "signature": "submit(…).then(task, …)",
    "retry": "wmp.task(retry=wmp.Retry(…)), or raise wmp.RetryLater(seconds)",
    "options": "using(…)",
    "remote": "submit(…)",
    "starmap": "map(…), which takes several iterables",
    "get": "submit(…).result()",
}
"""The methods of tasks of Celery, RQ and others, and what does the same here."""

_VALUES: Final = ("bytes", "text")
"""Codecs whose payloads are not arrays."""


def current_job() -> RunningJob:
    """Return the running job of the task that calls this function, for reports and its flag.

    Raises:
        RuntimeError: No task runs here; the function was called directly.
    """
    job = _JOB.get()
    if job is None:
        raise RuntimeError(
            "current_job() found no job; call it in a task that a worker runs, on the task's thread"
        )
    return job


class TaskMaker(Protocol):
    """The decorator that :func:`task` returns."""

    @overload
    def __call__(self, function: Callable[_P, Coroutine[Any, Any, _R]], /) -> AsyncTask[_P, _R]: ...

    @overload
    def __call__(self, function: Callable[_P, _R], /) -> Task[_P, _R]: ...


@overload
def task(function: Callable[_P, Coroutine[Any, Any, _R]], /) -> AsyncTask[_P, _R]: ...


@overload
def task(function: Callable[_P, _R], /) -> Task[_P, _R]: ...


@overload
def task(
    **options: Unpack[SubmitOptions],
) -> TaskMaker: ...


def task(
    function: Callable[..., Any] | None = None,
    /,
    **options: Unpack[SubmitOptions],
) -> Any:
    """Make a task of the decorated function of a module.

    ::

        @wmp.task(retry=wmp.Retry(times=5))
        def resize(image: bytes, width: int = 100) -> bytes: ...

        resize(image)                            # calls the function here
        resize.submit(image, width=200)          # submits a job, and returns its future
        list(resize.map(images, width=200))      # a job for each image

    ``wmp worker package.module`` serves all tasks of a module. Arguments and results are values of
    the manager's codec.

    Args:
        function: The function, plain or ``async``.
        options: The options of :meth:`wmp.Manager.submit`, for each job of the task
            (:class:`wmp.SubmitOptions`). The default of ``role`` is the names of the module and of
            the function.
    """

    def decorate(function: Callable[..., Any]) -> Task[..., Any]:
        kind: type[Task[..., Any]] = AsyncTask if inspect.iscoroutinefunction(function) else Task
        return kind(function, options)

    return decorate if function is None else decorate(function)


def _module_of(function: Callable[..., Any]) -> str:
    """Return the name under which workers import the module of a function."""
    if function.__module__ != "__main__":
        return function.__module__
    # The program itself has the tasks: ``python -m app.tasks``, or ``python tasks.py``.
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    return Path(getattr(main, "__file__", None) or "__main__").stem


class Task(Generic[_P, _R]):
    """A function that can be called here and submitted as a job; :func:`task` makes it.

    Attributes:
        path: Names of the module and of the function.
        role: Role of the jobs.
    """

    imports_main = False

    def __init__(self, function: Callable[_P, _R], options: SubmitOptions) -> None:
        if not callable(function):
            raise ConfigError(f"a task is made of {function!r}; expected a function")
        if text := unknown_option(options):
            raise ConfigError(text)
        functools.update_wrapper(self, function)
        self._function = function
        self._signature = inspect.signature(function)
        self._manager: Manager | None = None
        self._converters: tuple[list[Converter | None], dict[str, Converter]] | None = None
        self.path = f"{_module_of(function)}.{function.__qualname__}"
        self.role = options.get("role") or self.path
        self._options: SubmitOptions = {**options, "role": self.role}

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.role}>"

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Any:
            hint = _ELSEWHERE.get(name)
            text = f"a task has no attribute {name!r}"
            raise AttributeError(f"{text}; use {hint}" if hint else text, name=name, obj=self)

    def __reduce__(self) -> str:
        # Worker processes find the task by its name in its module.
        return self._function.__qualname__

    # -- at the submitter -------------------------------------------------------------------

    @overload
    def using(self, manager: AioManager, **options: Unpack[SubmitOptions]) -> AioTask[_P, _R]: ...

    @overload
    def using(self, manager: Manager | None = None, **options: Unpack[SubmitOptions]) -> Self: ...

    def using(
        self, manager: Manager | AioManager | None = None, **options: Unpack[SubmitOptions]
    ) -> Self | AioTask[_P, _R]:
        """Return this task with a manager, or with other options of :meth:`wmp.Manager.submit`.

        Args:
            manager: The manager of the jobs. By default that is the only manager that is open in
                this process. With a ``wmp.aio.Manager`` the methods of the task are coroutines.
            options: For example ``delay=60``, ``priority=5``, or ``role="gpu"`` for workers that
                were started with ``wmp worker package.module:task --role gpu``.
        """
        if hasattr(manager, "intake"):
            return AioTask(self.using(None, **options), cast("AioManager", manager))
        if manager is not None and not hasattr(manager, "_inner"):
            raise ConfigError(
                f"the manager of task {self.role} is {manager!r}; expected a wmp.Manager or a "
                "wmp.aio.Manager"
            )
        other = type(self)(self._function, {**self._options, **options})
        other._manager = self._manager if manager is None else manager
        return other

    def payload(self, *args: _P.args, **kwargs: _P.kwargs) -> list[Any]:
        """Return the payload of a job that calls the function with these arguments.

        Raises:
            TypeError: The function does not take these arguments.
        """
        return self._bind(args, kwargs)

    def pinned(self) -> Self:
        """Return this task with the manager that it uses now."""
        return self.using(self._open_manager())

    def submit(self, *args: _P.args, **kwargs: _P.kwargs) -> TaskJob[_R]:
        """Submit a job that calls the function; wait while the manager is full.

        Raises:
            TypeError: The function does not take these arguments, or they cannot be encoded.
            ConfigError: No manager is open in this process, or several are.
        """
        from wmp.calls.chain import submit_task

        payload = self._bind(args, kwargs)
        return submit_task(self._open_manager(), payload, **self._options)

    def submit_after(
        self,
        others: Sequence[concurrent.futures.Future[Any]],
        args: Iterable[Any],
        kwargs: Mapping[str, Any],
        *,
        listed: bool,
    ) -> TaskJob[_R] | None:
        """Store a job whose first argument is the result of other jobs, which have not ended.

        Args:
            others: The other jobs.
            args: Further arguments.
            kwargs: Named arguments.
            listed: Whether the first argument is the list of the results; else there is one job.

        Returns:
            The job; None if the store of the manager cannot let it wait for the others.
        """
        from wmp.calls.chain import submit_after

        manager = self._open_manager()
        return submit_after(
            manager,
            others,
            lambda first: self._bind((first, *args), kwargs),
            listed=listed,
            options=self._options,
        )

    def map(self, *iterables: Iterable[Any], **fixed: Any) -> Iterator[_R]:
        """Yield the results of a job for each item of the iterables, in their order.

        Args:
            iterables: Their items are positional arguments. The shortest iterable ends the call.
            fixed: Named arguments of every call.

        Raises:
            TypeError: As for :meth:`submit`.
            JobError: As for :meth:`wmp.Manager.map`.
        """
        options = self.map_options()
        return self._open_manager().map(self.payloads(iterables, fixed), **options)

    def payloads(
        self, iterables: Iterable[Iterable[Any]], fixed: Mapping[str, Any]
    ) -> Iterator[list[Any]]:
        """Yield the payload of a job for each item of the iterables."""
        return (self._bind(args, fixed) for args in zip(*iterables, strict=False))

    @property
    def options(self) -> SubmitOptions:
        """The options of the jobs."""
        return self._options

    def map_options(self) -> JobOptions:
        """Return the options of the jobs of a ``map``.

        Raises:
            ConfigError: An option is for a single job.
        """
        if unfit := sorted(self._options.keys() & LONE_OPTIONS):
            raise ConfigError(
                f"{unfit[0]} is for a single job of task {self.role}; use submit, not map"
            )
        return cast("JobOptions", self._options)

    def _bind(self, args: Iterable[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the payload of a job (CALL-4.2)."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.role}{self._signature}: {error}") from None
        return [list(bound.args), bound.kwargs]

    def _open_manager(self) -> Manager:
        from wmp.calls.chain import only_manager

        manager = only_manager(self.role) if self._manager is None else self._manager
        self.check_codec(manager._inner.codec)
        return manager

    def check_codec(self, codec: str) -> None:
        """Check that the codec of a manager carries arguments.

        Raises:
            ConfigError: The codec carries no arguments.
        """
        if codec in _VALUES:
            raise ConfigError(
                f"the manager of task {self.role} has the codec {codec!r}, which carries no "
                "arguments; make the manager with codec='cbor'"
            )

    # -- at the worker ----------------------------------------------------------------------

    @property
    def handler(self) -> Handler:
        """The handler for ``wmp.Worker(handlers=…)``."""
        if inspect.iscoroutinefunction(self._function):
            return self._handle_async
        return self._handle

    def _handle(self, payload: Any, job: RunningJob) -> Any:
        args, kwargs = self._arguments(payload)
        before = _JOB.set(job)
        try:
            return self._function(*args, **kwargs)
        finally:
            _JOB.reset(before)

    async def _handle_async(self, payload: Any, job: RunningJob) -> Any:
        args, kwargs = self._arguments(payload)
        before = _JOB.set(job)
        try:
            result: Any = self._function(*args, **kwargs)
            return await result
        finally:
            _JOB.reset(before)

    def _converted(
        self, args: list[Any], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments as values of the annotated types."""
        if self._converters is None:
            # Not before the first job: the annotations may name what the module defines later.
            self._converters = parameter_converters(self._function)
        in_order, named = self._converters
        for index, (value, convert) in enumerate(zip(args, in_order, strict=False)):
            if convert is not None:
                args[index] = convert(value)
        for name in kwargs.keys() & named.keys():
            kwargs[name] = named[name](kwargs[name])
        return args, kwargs

    def _arguments(self, payload: Any) -> tuple[list[Any], dict[str, Any]]:
        match payload:
            case [list() as args, dict() as kwargs]:
                return self._converted(args, kwargs)
        raise TypeError(
            f"the payload of task {self.role} is of type {type(payload).__name__}; expected an "
            "array of a list of arguments and a dict of named arguments"
        )


class AsyncTask(Task[_P, _R]):
    """A task of an ``async`` function: a call here returns a coroutine, and a job its result."""

    if TYPE_CHECKING:

        def __call__(  # type: ignore[override]
            self, *args: _P.args, **kwargs: _P.kwargs
        ) -> Coroutine[Any, Any, _R]: ...


class AioTask(Generic[_P, _R]):
    """A task with a ``wmp.aio.Manager``; ``task.using(manager)`` makes it.

    Attributes:
        role: Role of the jobs.
    """

    def __init__(self, task: Task[_P, _R], manager: AioManager) -> None:
        self._task = task
        self._manager = manager
        self.role = task.role

    def __repr__(self) -> str:
        return f"<AioTask {self.role}>"

    def using(self, **options: Unpack[SubmitOptions]) -> AioTask[_P, _R]:
        """Return this task with other options of :meth:`wmp.aio.Manager.submit`."""
        return AioTask(self._task.using(**options), self._manager)

    async def submit(self, *args: _P.args, **kwargs: _P.kwargs) -> AioJob:
        """Submit a job that calls the function; wait while the manager is full.

        Raises:
            TypeError: The function does not take these arguments, or they cannot be encoded.
            ConfigError: The codec of the manager carries no arguments.
        """
        payload = self._task.payload(*args, **kwargs)
        self._task.check_codec(self._manager.intake.codec)
        return await self._manager.submit(payload, **self._task.options)

    async def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Submit a job, and return its result.

        Raises:
            JobError: The job ended without a result.
        """
        job = await self.submit(*args, **kwargs)
        return cast("_R", await job)

    def map(self, *iterables: Iterable[Any], **fixed: Any) -> AsyncIterator[_R]:
        """Yield the results of a job for each item of the iterables, in their order.

        Args:
            iterables: Their items are positional arguments. The shortest iterable ends the call.
            fixed: Named arguments of every call.

        Raises:
            TypeError: As for :meth:`submit`.
            JobError: As for :meth:`wmp.aio.Manager.map`.
        """
        self._task.check_codec(self._manager.intake.codec)
        rows = self._task.payloads(iterables, fixed)
        return self._manager.map(rows, **self._task.map_options())
