"""Jobs of tasks at their submitter: futures that continue with further tasks."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack

from wmp.blocking.job import Job
from wmp.blocking.manager import Manager
from wmp.blocking.node import open_parts
from wmp.errors import ConfigError
from wmp.runtime.submission.submit_options import SubmitOptions

_P = ParamSpec("_P")
_R = TypeVar("_R")
_S = TypeVar("_S")
_S_co = TypeVar("_S_co", covariant=True)


class Awaited(Protocol[_S_co]):
    """The part of a future that has the type of its result."""

    def result(self, timeout: float | None = None) -> _S_co: ...


class NextTask(Protocol[_P, _S_co]):
    """A task that continues a chain."""

    def pinned(self) -> NextTask[_P, _S_co]:
        """Return this task with the manager that it uses now."""

    def submit(self, *args: _P.args, **kwargs: _P.kwargs) -> Awaited[_S_co]: ...


class TaskJob(Job[_R]):
    """The job of a task. Its result has the type that the function returns."""

    def then(
        self, task: NextTask[Concatenate[_R, _P], _S], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> Chain[_S]:
        """Submit a task with this job's result as its first argument when this job has ended.

        Returns:
            The future of the second job. An error of this job ends it too.
        """
        return Chain(self, task, args, kwargs)


class _Derived(concurrent.futures.Future[_R]):
    """A future that other futures end."""

    _notified = False

    def _end_cancelled(self) -> bool:
        """End as cancelled, unless this future has ended otherwise. ``wait`` ends then too."""
        if not super().cancel():
            return False
        with self._condition:
            first, self._notified = not self._notified, True
        if first:
            self.set_running_or_notify_cancel()
        return True


class Chain(_Derived[_R]):
    """The future of a task that begins when another future has ended.

    Args:
        first: The future whose result is the first argument.
        task: The task.
        args: Further arguments.
        kwargs: Named arguments.
    """

    def __init__(
        self,
        first: concurrent.futures.Future[Any],
        task: NextTask[..., _R],
        args: Iterable[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self._stage: concurrent.futures.Future[Any] = first
        self._rest = (tuple(args), dict(kwargs))
        # The manager is chosen now, because several may be open when the first future has ended.
        self._task = task.pinned()
        first.add_done_callback(self._continue)

    def then(
        self, task: NextTask[Concatenate[_R, _P], _S], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> Chain[_S]:
        """Submit a further task with the result of this one; see :meth:`TaskJob.then`."""
        return Chain(self, task, args, kwargs)

    def cancel(self) -> bool:
        """Cancel the job in progress if no worker has it, and with it this future."""
        if self.done():
            return self.cancelled()
        return self._stage.cancel() and (self._end_cancelled() or self.cancelled())

    def _continue(self, first: concurrent.futures.Future[Any]) -> None:
        if self.done():
            return
        error = _error_of(first)
        if error is None:
            args, kwargs = self._rest
            try:
                submitted: object = self._task.submit(first.result(), *args, **kwargs)
            except BaseException as problem:  # noqa: BLE001 - the future's owner gets it
                self.set_exception(problem)
                return
            assert isinstance(submitted, concurrent.futures.Future)
            job = self._stage = submitted
            job.add_done_callback(self._finish)
        else:
            self._fail(error)

    def _finish(self, job: concurrent.futures.Future[Any]) -> None:
        error = _error_of(job)
        if error is None:
            self.set_result(job.result())
        else:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, concurrent.futures.CancelledError):
            self._end_cancelled()
        else:
            self.set_exception(error)


def gather(*futures: concurrent.futures.Future[_R]) -> Gathered[_R]:
    """Return a future of the results of all futures, in their order.

    The first error of a future is the error of the whole. The other futures continue.
    """
    return Gathered(futures)


class Gathered(_Derived[list[_R]]):
    """The future of the results of several futures; :func:`gather` makes it."""

    def __init__(self, futures: Iterable[concurrent.futures.Future[_R]]) -> None:
        super().__init__()
        self._parts = list(futures)
        self._left = set(range(len(self._parts)))
        if not self._parts:
            self.set_result([])
        for place, part in enumerate(self._parts):
            part.add_done_callback(lambda part, place=place: self._ended(place, part))  # type: ignore[misc]

    def then(
        self, task: NextTask[Concatenate[list[_R], _P], _S], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> Chain[_S]:
        """Submit a task with the list of results; see :meth:`TaskJob.then`."""
        return Chain(self, task, args, kwargs)

    def cancel(self) -> bool:
        """Cancel the futures that can be cancelled; return whether this future is cancelled."""
        for part in self._parts:
            part.cancel()
        return self._end_cancelled()

    def _ended(self, place: int, part: concurrent.futures.Future[_R]) -> None:
        with self._condition:
            self._left.discard(place)
            last = not self._left
            if self.done():
                return
            error = _error_of(part)
            if error is None and not last:
                return
        try:
            if error is None:
                self.set_result([one.result() for one in self._parts])
            elif isinstance(error, concurrent.futures.CancelledError):
                self._end_cancelled()
            else:
                self.set_exception(error)
        except concurrent.futures.InvalidStateError:
            return  # another part ended with an error first


def _error_of(future: concurrent.futures.Future[Any]) -> BaseException | None:
    """Return the error of a future that has ended, also its cancellation."""
    try:
        return future.exception()
    except concurrent.futures.CancelledError as error:
        return error


def only_manager(role: str) -> Manager:
    """Return the manager that is open in this process.

    Raises:
        ConfigError: No manager is open, or several are.
    """
    found = [part for part in open_parts() if isinstance(part, Manager) and not part._hidden]
    if len(found) == 1:
        return found[0]
    raise ConfigError(
        f"task {role} has no manager; open one with wmp.Manager(codec='cbor')"
        if not found
        else f"{len(found)} managers are open in this process; name that of task {role}: "
        "task.using(manager).submit(…)"
    )


def submit_task(
    manager: Manager,
    payload: list[Any],
    **options: Unpack[SubmitOptions],
) -> TaskJob[Any]:
    """Submit a job of a task, as :meth:`wmp.Manager.submit` does."""
    intake = manager._inner.intake
    terms = intake.terms.make(options)
    job: TaskJob[Any] = TaskJob(intake.submissions, manager._portal)
    return manager._submit(job, payload, terms, options)
