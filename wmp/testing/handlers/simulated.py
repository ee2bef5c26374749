"""A whole network in simulated time, for tests of users' handlers.

::

    world = SimulatedWorld(seed=17, faults=["kill", "drop"])
    world.worker(handler, slots=2)
    jobs = [world.submit(b"one"), world.submit(b"two")]
    world.run()

:func:`wmp.testing.simulate` makes such worlds from many seeds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Any

from wmp import aio
from wmp.blocking import Worker
from wmp.checks.job_history import INVARIANTS, Violation
from wmp.errors import ConfigError
from wmp.message import DEFAULT_NEEDS, DEFAULT_ROLE, Kind, Limits, counted
from wmp.runtime.codecs.payload_codecs import pack, payload_codec, wire_name
from wmp.runtime.common.checks import check_amounts, check_count, check_role, check_seconds
from wmp.runtime.executors.handlers import Handler, Served, as_handlers, serve
from wmp.testing.handlers.handler_world import HandlerWorld
from wmp.testing.simulator.faults import Fault
from wmp.testing.simulator.simulated_job import SimulatedJob

MAX_WORKER_LOSSES = 100
"""More losses than a world can cause, so a job is lost only in a test that sets a lower limit."""

_NAMED = 8
"""Number of jobs with several runs that the account names."""
_EXAMPLES = 4
"""Number of jobs whose whole story the account shows."""
_LAST = 20
"""Number of the last steps that the account shows."""


def parse_faults(names: Iterable[str | Fault] | str | None) -> frozenset[Fault]:
    """Find faults by name.

    Args:
        names: Names of faults, or single words of them: ``"kill"`` names all faults that kill.
            None names all faults.

    Raises:
        ConfigError: There is no such fault.
    """
    if names is None:
        return frozenset(Fault)
    faults: set[Fault] = set()
    for name in [names] if isinstance(names, str | Fault) else names:
        named = {f for f in Fault if name in (f, f.value)}
        named = named or {f for f in Fault if name in f.value.split()}
        if not named:
            known = ", ".join(fault.value for fault in Fault)
            raise ConfigError(f"there is no fault {name!r}; expected one of: {known}")
        faults |= named
    return frozenset(faults)


class SimulatedWorld:
    """A manager, workers, and devices between them, in simulated time and with faults.

    The machines are those that run in production; sockets, processes and clocks are simulated.
    Handlers are really called, at least once for each job, and again where faults cost a lease. A
    handler takes simulated time and no real time. It may be ended in the middle, before any of its
    lines, as if its process had been killed. The program that submits survives its manager: it
    submits jobs without a result again to the next manager.

    Only the network's time is simulated. A call of ``time.sleep`` takes real time, and
    ``time.time()`` returns real time. Pass the waiting times to handlers as arguments, or let
    handlers wait only briefly.

    The memory of a handler outlives its simulated process, unless ``factory`` makes the handler.

    Args:
        seed: Decides everything that is left to chance.
        faults: The possible faults, as in :func:`parse_faults`. Each world contains some of them.
        codec: Name of the codec of payloads and results, as for :class:`wmp.Manager`.
        trace: Whether :meth:`account` lists every step of the machines, including messages.

    Raises:
        ConfigError: An argument is wrong.
    """

    def __init__(
        self,
        seed: int,
        faults: Iterable[str | Fault] | str | None = None,
        *,
        codec: str = "bytes",
        trace: bool = False,
    ) -> None:
        payload_codec(codec)
        self.seed = check_count("seed", seed)
        self.random = Random(f"{seed}:user")
        """A random stream for the test itself."""
        self._codec = codec
        self._trace = trace
        keep = None if trace else 0
        self._world = HandlerWorld(seed=seed, kinds=parse_faults(faults), keep=keep)
        self._names: set[str] = set()
        self._keys: dict[tuple[str, str], SimulatedJob] = {}

    @property
    def now(self) -> float:
        """Simulated seconds since the world began."""
        return self._world.simulation.now

    @property
    def jobs(self) -> tuple[SimulatedJob, ...]:
        """All submitted jobs."""
        return tuple(self._world.submitter.jobs)

    @property
    def struck(self) -> dict[str, int]:
        """The number of strikes of each fault."""
        counts = self._world.simulation.injector.counts
        return {fault.value: counts[fault] for fault in Fault if counts[fault]}

    def worker(
        self,
        handlers: Mapping[str, Handler] | Handler | Worker | aio.Worker | None = None,
        *,
        factory: Callable[[], Mapping[str, Handler] | Handler] | None = None,
        slots: int | None = None,
        resources: Mapping[str, int] | None = None,
        window: int | None = None,
        takes: float | tuple[float, float] | None = None,
        count: int = 1,
    ) -> None:
        """Add a worker with the arguments of :class:`wmp.Worker`.

        Args:
            handlers: Handlers by role, or one callable for the role ``default``, ``def`` or ``async
                def``, ``f(payload)`` or ``f(payload, job)``; or a :class:`wmp.Worker` that is not
                started, whose handlers, slots and resources are used.
            factory: Makes the handlers again for every process of the worker, so that their memory
                is gone after a kill; takes the place of ``handlers``.
            slots: Number of jobs that run at the same time; 1 by default.
            resources: Amounts of resources besides slots, by name.
            window: Number of jobs that may wait beyond the slots; by default as many as keep the
                slots busy.
            takes: Simulated seconds of a call, or the least and the most seconds; by default drawn
                from the seed.
            count: The number of such workers.

        Raises:
            ConfigError: An argument is wrong.
        """
        if isinstance(handlers, Worker):
            handlers = handlers._inner
        if isinstance(handlers, aio.Worker):
            have = dict(handlers._settings.resources)
            have = {**have, **check_amounts("resources", resources or {})}
            slots = have.pop("slots", 1) if slots is None else slots
            handlers, resources = dict(handlers._handlers), have
        if (handlers is None) == (factory is None):
            raise ConfigError("worker() takes handlers or a factory; give exactly one of them")
        have = {"slots": check_count("slots", 1 if slots is None else slots, 1)}
        have |= check_amounts("resources", resources or {})
        if window is not None:
            check_count("window", window)

        def cast() -> dict[str, Served]:
            current = factory() if factory is not None else handlers
            return {role: serve(role, f) for role, f in as_handlers(current).items()}

        roles = tuple(cast())
        if not roles:
            raise ConfigError("a worker without a handler can do no job; give one handler or more")
        for _ in range(check_count("count", count, 1)):
            name = f"worker {len(self._names) + 1}"
            self._names.add(name)
            self._world.hire(name, cast, roles, have, window, _range(takes))

    def submit(
        self,
        payload: Any,
        *,
        role: str = DEFAULT_ROLE,
        needs: Mapping[str, int] | None = None,
        priority: int = 0,
        timeout: float | None = None,
        max_worker_losses: int = MAX_WORKER_LOSSES,
        key: str | None = None,
    ) -> SimulatedJob:
        """Submit a job, as :meth:`wmp.Manager.submit` does; nothing happens before the world runs.

        Args:
            payload: As for :class:`wmp.Manager`.
            role: The role of the job.
            needs: Amounts of the job's resources by name; one slot by default.
            priority: Jobs of higher priority go first.
            timeout: Simulated seconds until the job must have ended.
            max_worker_losses: Lost leases that the job survives; by default enough for every world.
            key: While a job of that key has not ended, it is returned and no other is submitted.

        Raises:
            ConfigError: An argument is wrong.
            TypeError: The payload does not fit the codec.
        """
        role = check_role(role)
        taken = DEFAULT_NEEDS
        if needs is not None:
            taken = tuple(sorted((n, a) for n, a in check_amounts("needs", needs).items() if a))
        if timeout is not None:
            check_seconds("timeout", timeout, zero=False)
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise ConfigError(f"priority is {priority!r}; expected a whole number")
        check_count("priority", abs(priority), maximum=Limits.UINT)
        check_count("max_worker_losses", max_worker_losses)
        known = self._keys.get((role, key)) if key is not None else None
        if known is not None and not known.done():
            return known
        kind = Kind(role, taken, wire_name(self._codec))
        terms = pack(payload, self._codec), kind, priority, timeout, max_worker_losses
        submitter = self._world.submitter
        number = len(submitter.jobs) + 1
        job = SimulatedJob(number, payload, self.run, submitter.withdraw, terms, key)
        if key is not None:
            self._keys[role, key] = job
        submitter.submit(job)
        return job

    def map(self, payloads: Iterable[Any], **options: Any) -> Iterator[Any]:
        """Submit a job for each payload, and yield the results in the order of the payloads.

        Args:
            payloads: The inputs; all jobs are submitted at once.
            options: As for :meth:`submit`.
        """
        jobs = [self.submit(payload, **options) for payload in payloads]
        return (job.result() for job in jobs)

    def run(self, seconds: float | None = None) -> None:
        """Let simulated time pass, with faults, until every job and every handler has ended.

        Faults strike for a while and then stop; otherwise no job would have to end.

        Args:
            seconds: Return after that much simulated time, even if jobs have not ended.

        Raises:
            ConfigError: A job fits no worker of the world.
            Violation: This library broke one of its promises: a defect of the library.
        """
        if seconds is not None:
            check_seconds("seconds", seconds)
        self._world.go(seconds)

    def account(self, error: BaseException | None = None) -> str:
        """Return an account in words: the faults, the jobs that ran more than once, the last steps.

        Args:
            error: The error that the test raised.
        """
        world = self._world
        runs = sum(job.runs for job in self.jobs)
        lines = []
        if isinstance(error, Violation):
            lines.append(
                f"“{error.name}” ({INVARIANTS[error.name]}) is a promise of wmp, so the defect is "
                "in wmp and not in the handlers; please report it with the seed"
            )
        lines.append(
            f"{counted(len(self.jobs), 'job')}, {counted(runs, 'call')} of handlers, "
            f"{self.now:.1f} simulated seconds"
        )
        struck = ", ".join(f"{name} {count}" for name, count in self.struck.items())
        lines.append(f"faults: {struck or 'none'}")
        again, story = world.again(), world.story
        if again:
            named = [f"{job} {job.runs} times" for job in again[:_NAMED]]
            more = f", and {len(again) - _NAMED} more" if len(again) > _NAMED else ""
            lines.append(f"handlers were called more than once for: {', '.join(named)}{more}")
        for job in again[:_EXAMPLES]:
            lines.append(f"what happened to {job}:")
            lines += [f"{now:10.4f}  {text}" for now, text, whose in story.notes if whose is job]
        lines.append("every step:" if self._trace else "the last steps:")
        if self._trace:
            lines += story.lines()
        for now, text, whose in () if self._trace else story.notes[-_LAST:]:
            lines.append(f"{now:10.4f}  {text if whose is None else f'{whose} {text}'}")
        return re.sub(r"\b(worker \d+)\+", r"\1's double", "\n".join(lines))


def _range(takes: float | tuple[float, float] | None) -> tuple[float, float] | None:
    if takes is None:
        return None
    minimum, maximum = takes if isinstance(takes, tuple) else (takes, takes)
    minimum, maximum = check_seconds("takes", minimum), check_seconds("takes", maximum)
    if minimum > maximum:
        raise ConfigError(f"takes is {takes!r}; expected (least, most) in seconds")
    return minimum, maximum
