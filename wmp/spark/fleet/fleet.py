"""A fleet: workers inside Spark's executors, each a Spark job under a thread of this process.

The rules are in ``specs/fleet.md``. Spark starts and restarts processes; WMP distributes the jobs.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from attrs import evolve

from wmp.duration import Duration, in_seconds
from wmp.errors import ClosedError, ConfigError, TransportError, WMPError
from wmp.runtime.common.checks import check_seconds
from wmp.runtime.common.threads import ThreadEnded, start_thread
from wmp.spark.fleet.control import FleetControl, own_address
from wmp.spark.fleet.executor_check import check_executors
from wmp.spark.fleet.member import MemberPlan, run_member
from wmp.spark.fleet.spark_jobs import SparkJobs, one_line
from wmp.spark.fleet.table import Beat, FleetMember, FleetTable, MemberState, Order
from wmp.spark.fleet.task_slots import check_spare, read_settings
from wmp.spark.session.session import use_this_python

if TYPE_CHECKING:
    from pyspark.resource import ResourceProfile
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("wmp")

_LOOK: Final = 1.0
"""Seconds between two looks at Spark's task slots."""
_CANCELLED: Final = 20.0
"""Seconds that Spark may need to end cancelled jobs."""
_MARGIN: Final = 5.0
"""Seconds from the end of a drain to the end of its Spark job."""
_SPREAD: Final = 8
"""Lives of as many members end one after another, so that they do not end all at once."""


class Fleet:
    """Runs workers inside the executors of a Spark session, with ``with``.

    Args:
        spark: The session; classic or Spark Connect.
        worker: ``"module:attribute"``, ``"module"`` with tasks, or an object: a function, or a
            mapping from roles to functions. A name is imported on the executors. An object is sent
            there.
        workers: Workers at first; :meth:`scale` changes their number.
        managers: Endpoints of managers or devices that the executors reach.
        slots: Jobs that one worker does at once.
        resources: Amounts of resources of each worker; GPUs that Spark gives to the task are added.
        life: Seconds after which a worker drains, ends and begins again, so that Spark may give its
            executor back.
        drain: Seconds that running jobs have when a worker drains.
        spare: Task slots that stay free for other Spark jobs. 0 turns this check off.
        admission: Seconds for which Spark may start no worker, or no other job.
        control: ``tcp://HOST`` or ``tcp://HOST:PORT``: an address of this process that the
            executors reach. By default the address of Spark's driver, or of this client.
        silence: Seconds without an answer of this process after which a worker drains.
        profile: Spark's own description of the resources of these tasks.
        settings: Further arguments of :class:`wmp.Worker`: ``pool``, ``security``, ``retry``, ….

    Raises:
        ConfigError: An argument cannot be used.
    """

    def __init__(
        self,
        spark: SparkSession,
        worker: Any,
        *,
        workers: int = 1,
        managers: Iterable[str],
        slots: int = 1,
        resources: Mapping[str, int] | None = None,
        life: Duration = 600.0,
        drain: Duration = 60.0,
        spare: int = 1,
        admission: Duration = 20.0,
        control: str | None = None,
        silence: Duration = 30.0,
        profile: ResourceProfile | None = None,
        **settings: Any,
    ) -> None:
        managers = (managers,) if isinstance(managers, str) else tuple(managers)
        if not managers:
            raise ConfigError(
                "a fleet has no managers; name endpoints that the executors reach: managers=[...]"
            )
        self._spark = spark
        self._profile = profile
        self._settings = read_settings(spark)
        self._count = _check_count("workers", workers)
        self._spare = _check_count("spare", spare)
        self._control_at = control
        self._table = FleetTable(check_seconds("admission", admission), self._spare)
        self._plan = MemberPlan(
            worker=worker,
            managers=managers,
            settings={"slots": slots, "resources": dict(resources or {}), **settings},
            member=0,
            life=0,
            seconds=check_seconds("life", life),
            drain=check_seconds("drain", drain),
            silence=check_seconds("silence", silence),
            control="",
            token="",
        )
        self._jobs = SparkJobs(spark, f"wmp-fleet-{secrets.token_hex(4)}-")
        self._changed = threading.Condition()
        """Guards the table and all fields below."""
        self._threads: dict[int, threading.Thread] = {}
        self._failure: BaseException | None = None
        self._closed = False
        self.executors = ""
        """The findings of the check of the executors, in one line."""

    # -- begin and end -----------------------------------------------------------------------

    def start(self) -> None:
        """Check the executors and the slots, and start the workers; ``with`` calls this method.

        Returns when one worker has begun.

        Raises:
            ConfigError: The executors lack something, there are too few task slots, or no worker
                began within ``admission`` seconds.
            ClosedError: The fleet was started before.
        """
        with self._changed:
            if self._closed or self._threads:
                raise ClosedError("the fleet was started before; make a new Fleet")
        check_spare(self._settings, self._count, self._spare)
        use_this_python(self._spark)
        target = self._plan.worker if isinstance(self._plan.worker, str) else None
        self.executors = check_executors(
            self._jobs, target, max(1, self._count), self._table.admission
        )
        logger.info("fleet: %s", self.executors)
        endpoint, bind = (self._control_at, None) if self._control_at else own_address(self._spark)
        self._control = FleetControl(endpoint, bind)
        self._plan = evolve(
            self._plan,
            control=self._control.endpoint,
            token=self._control.token,
            server_key=self._control.server_key,
        )
        self._listening = True
        self._listener = self._begin(self._listen, "wmp-fleet")
        try:
            self._grow(self._count)
            self._begin(self._look, "wmp-fleet-slots")
            if self._count:
                self.wait(1)
        except BaseException:
            self.close(0.0)
            raise

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        if error is None:
            self.check()

    def close(self, drain: Duration | None = None) -> None:
        """Drain the workers, then cancel the Spark jobs that are left. Idempotent, and bounded.

        Args:
            drain: Seconds that running jobs have; by default the fleet's own ``drain``.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._table.stop()
            self._changed.notify_all()
            threads = dict(self._threads)
        seconds = self._plan.drain if drain is None else in_seconds(drain)
        try:
            self._cancel_unstarted()
            self._join(threads, seconds + _MARGIN if seconds else 0.0)
        finally:
            # After a second Ctrl-C the fleet waits for no job, but its Spark jobs must still end.
            self._cancel(threads)
            self._listening = False
            if hasattr(self, "_control"):
                self._listener.join(_MARGIN)
                self._control.close()

    def _cancel(self, threads: Mapping[int, threading.Thread]) -> None:
        left = [number for number, thread in threads.items() if thread.is_alive()]
        until = time.monotonic() + _CANCELLED
        while left and time.monotonic() < until:
            for number in left:
                self._jobs.cancel(str(number))
            self._join({number: threads[number] for number in left}, 1.0)
            left = [number for number in left if threads[number].is_alive()]
        if left:
            logger.error(
                "fleet: Spark did not end %d cancelled jobs within %g s", len(left), _CANCELLED
            )

    def _join(self, threads: Mapping[int, threading.Thread], seconds: float) -> None:
        until = time.monotonic() + seconds
        for thread in threads.values():
            thread.join(max(0.0, until - time.monotonic()))

    # -- the number of workers ---------------------------------------------------------------

    def scale(self, workers: int) -> None:
        """Want another number of workers. Returns at once; :meth:`wait` waits.

        Workers that are not wanted drain, and their Spark jobs end.

        Raises:
            ConfigError: There are too few task slots; nothing changes.
            ClosedError: The fleet is closed.
        """
        self.check()
        check_spare(self._settings, _check_count("workers", workers), self._spare)
        self._grow(workers)
        self._cancel_unstarted()

    def _grow(self, workers: int) -> None:
        with self._changed:
            if self._closed:
                raise ClosedError("the fleet is closed; make a new Fleet")
            for number in self._table.scale(workers, time.monotonic()):
                self._threads[number] = self._begin(self._supervise, f"wmp-member-{number}", number)
            self._changed.notify_all()

    def _cancel_unstarted(self) -> None:
        with self._changed:
            unstarted = self._table.unstarted()
        for number in unstarted:
            self._jobs.cancel(str(number))

    def wait(self, workers: int | None = None, timeout: Duration | None = None) -> None:
        """Wait until ``workers`` workers run; by default all that are wanted, and no other.

        Args:
            workers: Number of workers that run; None for exactly those that are wanted.
            timeout: Seconds to wait at most.

        Raises:
            TimeoutError: They do not run after ``timeout`` seconds.
            ConfigError, WMPError: The fleet has ended with this error.
        """

        def ready() -> bool:
            if self._failure is not None:
                return True
            counts = self._table.counts()
            running = counts[MemberState.RUNNING]
            if workers is not None:
                return running >= workers
            return running + counts[MemberState.ENDED] == len(self._table.members)

        timeout = in_seconds(timeout)
        with self._changed:
            done = self._changed.wait_for(ready, timeout)
        self.check()
        if not done:
            raise TimeoutError(f"after {timeout} s the fleet has {self.running} running workers")

    def check(self) -> None:
        """Raise the error with which the fleet has ended, if it has."""
        if self._failure is not None:
            raise self._failure

    @property
    def failure(self) -> BaseException | None:
        """The error with which the fleet has ended; None while it serves."""
        return self._failure

    @property
    def running(self) -> int:
        """Number of workers that run and are not draining."""
        with self._changed:
            return self._table.counts()[MemberState.RUNNING]

    @property
    def members(self) -> list[FleetMember]:
        """A copy of the state of each worker that the fleet ever had."""
        with self._changed:
            return [evolve(member) for member in self._table]

    # -- threads -----------------------------------------------------------------------------

    def _begin(self, target: Callable[..., object], name: str, *args: Any) -> threading.Thread:
        thread = start_thread(target, name, *args, failed=self._thread_ended)
        if thread is None:
            raise TransportError(f"cannot start the thread {name}; end other threads or processes")
        return thread

    def _thread_ended(self, ended: ThreadEnded) -> None:
        """End the fleet with an error: no thread of it may be missing (FLEET-3.6)."""
        cause = ended.cause
        if not isinstance(cause, WMPError):
            cause = ClosedError(f"the thread {ended.name} of the fleet ended: {ended.cause!r}")
            cause.__cause__ = ended.cause
        with self._changed:
            if self._failure is None and not self._closed:
                self._failure = cause
                logger.error("fleet: ending: %s", cause)
            self._table.stop()
            self._changed.notify_all()
        self._cancel_unstarted()

    def _supervise(self, number: int) -> None:
        """Run the lives of one member, one Spark job after another."""
        while True:
            with self._changed:
                if not self._table.lives_on(number):
                    self._table.ended(number, None)
                    self._changed.notify_all()
                    return
                life = self._table.submitted(number)
            error = self._live(evolve(self._plan, **self._life(number, life)))
            with self._changed:
                pause = self._table.ended(number, error)
                self._changed.notify_all()
                if error is not None and self._table.lives_on(number):
                    logger.warning("fleet: worker %d comes again, because %s", number, error)
                self._changed.wait_for(lambda: not self._table.lives_on(number), pause)

    def _life(self, number: int, life: int) -> dict[str, Any]:
        early = (number % _SPREAD) / _SPREAD / 4
        return {"member": number, "life": life, "seconds": self._plan.seconds * (1 - early)}

    def _live(self, plan: MemberPlan) -> str | None:
        """Run one Spark job to its end; return why it failed."""
        profile = self._profile

        def task(batches: Iterator[Any]) -> Iterator[Any]:
            for _ in batches:
                yield from run_member(plan)

        def make() -> DataFrame:
            frame = self._spark.range(0, 1, 1, 1)
            return frame.mapInArrow(task, "end string", False, profile)

        try:
            self._jobs.collect(str(plan.member), f"wmp: worker {plan.member} of a fleet", make)
        # After every end of the job the next life tries again, and the table counts the failures.
        except Exception as error:  # noqa: BLE001 - the supervisor handles it
            return one_line(error)
        return None

    def _listen(self) -> None:
        """Answer the reports of the members."""

        def order(beat: Beat) -> Order:
            with self._changed:
                answer = self._table.reported(beat, time.monotonic())
                self._changed.notify_all()
                return answer

        while self._listening:
            self._control.answer(0.2, order)

    def _look(self) -> None:
        """Look for a deadlock of task slots until the fleet ends."""
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._table.stopping, _LOOK):
                    return
                names = [str(number) for number in self._threads]
            others = self._jobs.others(names)
            with self._changed:
                self._table.check(others, time.monotonic())


def _check_count(name: str, count: int) -> int:
    if count < 0:
        raise ConfigError(f"{name} is {count!r}; expected 0 or more")
    return count
