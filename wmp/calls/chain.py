"""Jobs of tasks at their submitter: futures that continue with further tasks."""

from __future__ import annotations

import concurrent.futures
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, Unpack

from attrs import evolve

from wmp.blocking.job import Job
from wmp.blocking.manager import Manager
from wmp.blocking.node import open_parts
from wmp.duration import Duration, in_seconds
from wmp.errors import ConfigError
from wmp.runtime.codecs.payload_codecs import pack
from wmp.runtime.submission.submit_options import SubmitOptions

_P = ParamSpec("_P")
_R = TypeVar("_R")
_S = TypeVar("_S")
_S_co = TypeVar("_S_co", covariant=True)


class Awaited(Protocol[_S_co]):
    """The part of a future that has the type of its result."""

    def result(self, timeout: Duration | None = None) -> _S_co: ...


class NextTask(Protocol[_P, _S_co]):
    """A task that continues a chain."""

    def pinned(self) -> NextTask[_P, _S_co]:
        """Return this task with the manager that it uses now."""

    def submit(self, *args: _P.args, **kwargs: _P.kwargs) -> Awaited[_S_co]: ...

    def submit_after(
        self,
        others: Sequence[concurrent.futures.Future[Any]],
        args: Iterable[Any],
        kwargs: Mapping[str, Any],
        *,
        listed: bool,
    ) -> Awaited[_S_co] | None: ...


class TaskJob(Job[_R]):
    """The job of a task. Its result has the type that the function returns."""

    def then(
        self, task: NextTask[Concatenate[_R, _P], _S], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> FollowUp[_S]:
        """Submit a task with this job's result as its first argument when this job has ended.

        If both jobs are stored by one manager, with the codec ``cbor`` or ``json``, the second job
        is in the store when this returns, and outlives this process. To cancel it does not cancel
        this job.

        Returns:
            The future of the second job. An error of this job ends it too.
        """
        return _follow_up(self, [self], task, args, kwargs, listed=False)


class _Derived(concurrent.futures.Future[_R]):
    """A future that other futures end."""

    _notified = False

    def result(self, timeout: Duration | None = None) -> _R:
        """Return the result; wait for it, for ``timeout`` at most."""
        return super().result(in_seconds(timeout))

    def exception(self, timeout: Duration | None = None) -> BaseException | None:
        """Return the error, or None; wait for it, for ``timeout`` at most."""
        return super().exception(in_seconds(timeout))

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
        for index, part in enumerate(self._parts):
            part.add_done_callback(lambda part, index=index: self._ended(index, part))  # type: ignore[misc]

    def then(
        self, task: NextTask[Concatenate[list[_R], _P], _S], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> FollowUp[_S]:
        """Submit a task with the list of results; see :meth:`TaskJob.then`.

        This follow-up is stored with the codec ``cbor`` only.
        """
        return _follow_up(self, self._parts, task, args, kwargs, listed=True)

    def cancel(self) -> bool:
        """Cancel the futures that can be cancelled; return whether this future is cancelled."""
        for part in self._parts:
            part.cancel()
        return self._end_cancelled()

    def _ended(self, index: int, part: concurrent.futures.Future[_R]) -> None:
        with self._condition:
            self._left.discard(index)
            last = not self._left
            if self.done():
                return
            error = _error_of(part)
            if error is None and not last:
                return
        try:
            if error is None:
                self.set_result([future.result() for future in self._parts])
            elif isinstance(error, concurrent.futures.CancelledError):
                self._end_cancelled()
            else:
                self.set_exception(error)
        except concurrent.futures.InvalidStateError:
            return  # another part ended with an error first


FollowUp: TypeAlias = Chain[_S] | TaskJob[_S]
"""The future of a task that begins when other futures have ended: in this process, or stored."""


def _follow_up(
    first: concurrent.futures.Future[Any],
    others: Sequence[concurrent.futures.Future[Any]],
    task: NextTask[..., _S],
    args: Iterable[Any],
    kwargs: Mapping[str, Any],
    *,
    listed: bool,
) -> FollowUp[_S]:
    """Return the future of a task that begins when other futures have ended."""
    args = tuple(args)
    if not first.done():
        job = task.submit_after(others, args, kwargs, listed=listed)
        if isinstance(job, TaskJob):
            return job
    return Chain(first, task, args, kwargs)


def submit_after(
    manager: Manager,
    others: Sequence[concurrent.futures.Future[Any]],
    bind: Callable[[Any], list[Any]],
    *,
    listed: bool,
    options: SubmitOptions,
) -> TaskJob[Any] | None:
    """Store a job that waits for the results of other jobs in the store of its manager.

    The store inserts the encoded results into the encoded payload (STORE-15.3). Their place is
    found by a text that stands in for each result.

    Args:
        manager: The manager.
        others: The other jobs.
        bind: Returns the payload for the first argument.
        listed: Whether the first argument is the list of the results.
        options: Options of the job.

    Returns:
        The job; None if one of the jobs is not stored by this manager, or the codec writes more
        than the items into a list.
    """
    intake = manager._inner.intake
    submissions, codec = intake.submissions, intake.codec
    ids = [
        other.id
        for other in others
        if isinstance(other, TaskJob)
        and other._submissions is submissions
        and submissions.is_stored(other.id)
    ]
    terms = intake.terms.make(options)
    if terms.stored is None or len(ids) < len(others):
        return None
    mark = uuid.uuid4().hex
    data = bytes(pack(bind([mark] * len(ids) if listed else mark), codec, intake.payload_limit))
    results = bytes(pack(mark, codec)) * len(ids)
    if data.count(results) != 1:
        return None
    splice = data.index(results)
    job: TaskJob[Any] = TaskJob(submissions, manager._portal)
    terms = evolve(terms, after=tuple(ids), splice=splice)
    return manager._submit_encoded(job, data.replace(results, b""), terms, options)


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
    managers = [part for part in open_parts() if isinstance(part, Manager) and not part._hidden]
    if len(managers) == 1:
        return managers[0]
    raise ConfigError(
        f"task {role} has no manager; open one with wmp.Manager(codec='cbor')"
        if not managers
        else f"{len(managers)} managers are open in this process; name that of task {role}: "
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
