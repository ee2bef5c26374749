"""``wmp jobs``: shows and changes the jobs of a store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from wmp.cli.common.entry_point import FAILED, complain
from wmp.cli.common.options import ProgramCommand
from wmp.cli.common.waiting_job import when, why_waiting
from wmp.message import counted, printable
from wmp.store.contract import JobFilter, StoredJob
from wmp.store.opening import (
    ReadableStore,
    open_reader,
    open_writer,
    printable_address,
    restore_store,
)
from wmp.store.stored_job import ENDED, OPEN, StoredJobInput, StoredJobState
from wmp.store.write_batch import JobChanges, StoredFailure, WriteBatch
from wmp.stored_results import newest, outcome_of

_PROGRAM: Final = "wmp"
_PAGE: Final = 500
"""Jobs that are read or changed at a time."""
_SHOWN: Final = 2000
"""Maximum number of bytes of a payload that is shown."""

_STATES: Final = {
    state.name.lower(): state for state in StoredJobState if state is not StoredJobState.ABSENT
}
_DEAD: Final = (StoredJobState.ERROR, StoredJobState.TIMEOUT, StoredJobState.LOST)

_F = TypeVar("_F", bound=Callable[..., Any])

_STORE: Final = click.argument("store", metavar="STORE", type=str)
_IDS: Final = click.argument("ids", metavar="[NUMBER]…", nargs=-1, type=int)
_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _filters(function: _F) -> _F:
    """Add the options that choose jobs."""
    for option in (
        click.option("--key", metavar="TEXT", help="Choose jobs with this key."),
        click.option("--role", metavar="TEXT", help="Choose jobs of this role."),
        click.option(
            "--state",
            "states",
            metavar="STATE",
            multiple=True,
            type=click.Choice(list(_STATES)),
            help=f"Choose jobs in this state: {', '.join(_STATES)}; running jobs are reserved.",
        ),
    ):
        function = option(function)
    return function


def _where(
    ids: Sequence[int], states: Sequence[str], role: str | None, key: str | None
) -> JobFilter:
    return JobFilter(
        ids=ids or None,
        key=key,
        role=role,
        states=[_STATES[name] for name in states] or None,
    )


@click.group(
    short_help="Show and change the jobs of a store.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def jobs() -> None:
    """Show and change the jobs of a store (specs/store.md).

    A manager that uses the store goes on meanwhile.
    """


@jobs.command(
    name="list",
    cls=ProgramCommand,
    short_help="Print the jobs of a store.",
    epilog="""
    wmp jobs list jobs.db
    wmp jobs list jobs.db --state error --state lost --role resize
    wmp jobs list jobs.db --json --limit 10
    """,
)
@_STORE
@_filters
@click.option(
    "--limit",
    metavar="NUMBER",
    type=click.IntRange(1),
    default=100,
    help="Print at most this many jobs.",
)
@click.option("--after", metavar="NUMBER", type=int, default=0, help="Start after this job.")
@_JSON
def _list(
    store: str,
    states: tuple[str, ...],
    role: str | None,
    key: str | None,
    limit: int,
    after: int,
    as_json: bool,
) -> int:
    """Print the jobs of a store in the order of their numbers, one on a line."""
    with _reading(store) as reader:
        jobs = reader.list(_where((), states, role, key), after=after, limit=limit + 1)
    for job in jobs[:limit]:
        print(json.dumps(_fields(job)) if as_json else _line(job))
    if len(jobs) > limit:
        complain(_PROGRAM, f"there are more jobs; continue with --after {jobs[limit - 1].id}")
    elif not jobs:
        complain(_PROGRAM, "no job matches")
    return 0


@jobs.command(
    name="show",
    cls=ProgramCommand,
    short_help="Print everything about one job.",
    epilog="""
    wmp jobs show jobs.db 17
    wmp jobs show jobs.db --key invoice-4711
    wmp jobs show jobs.db --key invoice-4711 --role print
    """,
)
@_STORE
@click.argument("id", metavar="[NUMBER]", type=int, required=False)
@click.option("--key", metavar="TEXT", help="Key of the job, in place of its number.")
@click.option("--role", metavar="TEXT", help="Role of the job, if several roles have the key.")
@_JSON
def _show(store: str, id: int | None, key: str | None, role: str | None, as_json: bool) -> int:
    """Print a job, its payload, its failed attempts, and its result or error.

    A line `waits` states why a job that has not ended waits.
    Of several jobs with one key the open job is shown, else the job that ended last.
    """
    if (id is None) == (key is None):
        raise click.UsageError("name one job: its number, or --key")
    where = JobFilter(key=key, role=role) if id is None else JobFilter(ids=[id])
    with _reading(store) as reader:
        job = newest(reader.list(where, payloads=True))
        waits = None if job is None else why_waiting(job, reader.instances(), time.time() * 1000)
    if job is None:
        name = f"job with the key {key!r}" if id is None else f"job {id}"
        complain(
            _PROGRAM,
            f"the store has no {name}: it was never stored, or it was purged; "
            "wmp jobs list prints the jobs",
        )
        return FAILED
    fields = _fields(job) | {"payload": _bytes(job.payload), **_outcome(job)}
    if waits is not None:
        fields["waits"] = waits
    history = [_failure(failure) for failure in job.history]
    if as_json:
        print(json.dumps(fields | {"history": history}))
    else:
        width = max(map(len, fields))
        for name, value in fields.items():
            print(f"{name:<{width}}  {printable(str(value))}")
        for row in history:
            print(
                f"{row['at']}  attempt {row['attempt']} at worker {row['worker']}: {row['error']}"
            )
    return 0


@jobs.command(
    name="stat",
    cls=ProgramCommand,
    short_help="Print a summary of a store.",
    epilog="""
    wmp jobs stat jobs.db
    wmp jobs stat jobs.db --json
    """,
)
@_STORE
@click.option("--check", is_flag=True, help="Read the whole file, and report damaged pages.")
@_JSON
def _stat(store: str, check: bool, as_json: bool) -> int:
    """Print the number of jobs in each state, and the bytes on the disk."""
    with _reading(store) as reader:
        counts = reader.counts()
        size = reader.size()
        damage = reader.check() if check else []
    summary = {
        **{name: counts.get(state, 0) for name, state in _STATES.items()},
        "bytes": size,
        "generation": reader.generation,
    }
    if check:
        summary["damaged"] = len(damage)
    if as_json:
        print(json.dumps(summary))
    else:
        for name, value in summary.items():
            print(f"{name:<11}{value:>12}")
    for text in damage:
        complain(_PROGRAM, f"{printable_address(store)} is damaged: {text}")
    return FAILED if damage else 0


def _command(name: str, short: str, epilog: str) -> Callable[[_F], Any]:
    """Return the decorator of a command that changes jobs."""

    def decorate(function: _F) -> Any:
        command = jobs.command(name=name, cls=ProgramCommand, short_help=short, epilog=epilog)
        return command(_STORE(_IDS(_filters(function))))

    return decorate


@_command(
    "retry",
    "Queue ended jobs again.",
    """
    wmp jobs retry jobs.db 17 18
    wmp jobs retry jobs.db --state lost --state error --role resize
    """,
)
def _retry(
    store: str, ids: tuple[int, ...], states: tuple[str, ...], role: str | None, key: str | None
) -> int:
    """Queue ended jobs again, with their payloads and without their old times.

    Without --state only dead letters are queued: jobs that ended as error, timeout or lost. Add
    --state cancelled for cancelled jobs.
    """
    return _change(store, StoredJobInput.REVIVE, "queued again", ids, states, role, key, _DEAD)


@_command(
    "cancel",
    "Cancel jobs that have not ended.",
    """
    wmp jobs cancel jobs.db 17
    wmp jobs cancel jobs.db --role resize
    """,
)
def _cancel(
    store: str, ids: tuple[int, ...], states: tuple[str, ...], role: str | None, key: str | None
) -> int:
    """Cancel jobs. A job that a manager has reserved is cancelled when its worker has stopped.

    The manager learns of the request, and stops its worker. A result that comes first counts.
    """
    return _change(store, StoredJobInput.CANCEL, "cancelled", ids, states, role, key, OPEN)


@_command(
    "purge",
    "Remove ended jobs with their results.",
    """
    wmp jobs purge jobs.db 17
    wmp jobs purge jobs.db --state ok --state cancelled
    """,
)
def _purge(
    store: str, ids: tuple[int, ...], states: tuple[str, ...], role: str | None, key: str | None
) -> int:
    """Remove ended jobs at once, before their time to live has passed."""
    return _change(store, StoredJobInput.FORGET, "removed", ids, states, role, key, ENDED)


@jobs.command(
    name="backup",
    cls=ProgramCommand,
    short_help="Copy a store that is in use.",
    epilog="""
    wmp jobs backup jobs.db jobs-monday.db
    """,
)
@_STORE
@click.argument("copy", metavar="COPY", type=click.Path(path_type=Path))
def _backup(store: str, copy: Path) -> int:
    """Write a consistent copy of a store to the new file COPY, while managers use the store.

    A manager that opens the copy begins a new generation: results for jobs of the old one do not
    count.
    """
    with _reading(store) as reader:
        reader.backup(copy)
    click.echo(f"{copy} has {counted(copy.stat().st_size, 'byte')}")
    return 0


@jobs.command(
    name="restore",
    cls=ProgramCommand,
    short_help="Put a backup in the place of a store.",
    epilog="""
    wmp jobs restore jobs-monday.db jobs.db
    wmp jobs restore --in-place jobs.db
    """,
)
@click.argument("places", metavar="[COPY] STORE", nargs=-1, required=True)
@click.option(
    "--in-place",
    is_flag=True,
    help="Name only STORE, whose content was replaced, and start a new generation.",
)
def _restore(places: tuple[str, ...], in_place: bool) -> int:
    """Put a copy of COPY in the place of STORE, and start a new generation.

    End all managers and dispatchers of STORE first.
    COPY is a file that `wmp jobs backup` wrote, or another file of a store; it stays as it is.
    The earlier file of STORE is kept with its log, and its new name is printed.
    Results for jobs of the old generation do not count.

    Use --in-place after a snapshot of the disk, or of the database server, was restored.
    """
    if in_place:
        if len(places) != 1:
            raise click.UsageError("with --in-place, name the store and nothing else")
        writer = open_writer(places[0])
        try:
            writer.restored()
        finally:
            writer.close()
        click.echo(f"the generation is {writer.generation}")
        return 0
    if len(places) != 2:
        raise click.UsageError("name COPY and STORE, or STORE with --in-place")
    copy, store = places
    kept = restore_store(copy, store)
    with _reading(store) as reader:
        click.echo(f"{store} is restored from {copy}; the generation is {reader.generation}")
    if kept is not None:
        click.echo(f"the earlier store is kept as {kept}")
    return 0


@jobs.command(name="restored", cls=ProgramCommand, hidden=True)
@_STORE
def _restored(store: str) -> int:
    """Name the command that replaced this one."""
    raise click.UsageError(
        f"this command is called `wmp jobs restore --in-place {printable_address(store)}` now"
    )


@jobs.command(
    name="check",
    cls=ProgramCommand,
    short_help="Check that a store is whole.",
    epilog="""
    wmp jobs check jobs.db
    """,
)
@_STORE
def _check(store: str) -> int:
    """Read the whole store, and report damaged pages.

    The command also reports a log that does not belong to the file, because the file was replaced.
    """
    with _reading(store) as reader:
        damage = reader.check()
        number = sum(reader.counts().values()) if not damage else 0
    for text in damage:
        complain(_PROGRAM, f"{printable_address(store)} is damaged: {text}")
    if damage:
        complain(_PROGRAM, "run `wmp jobs restore COPY STORE` to put a backup in place")
        return FAILED
    click.echo(f"{printable_address(store)} is whole: {counted(number, 'job')}")
    return 0


# -- parts ---------------------------------------------------------------------------------------


@contextmanager
def _reading(store: str) -> Iterator[ReadableStore]:
    reader = open_reader(store)
    try:
        yield reader
    finally:
        reader.close()


def _states_hint(what: StoredJobInput, states: Sequence[str]) -> str:
    """Return the option by which jobs in further states are queued again."""
    if what is not StoredJobInput.REVIVE or states:
        return ""
    return "; for a cancelled job add --state cancelled, for a job with a result --state ok"


def _change(
    store: str,
    what: StoredJobInput,
    done: str,
    ids: Sequence[int],
    states: Sequence[str],
    role: str | None,
    key: str | None,
    possible: Sequence[StoredJobState],
) -> int:
    """Give one input to the chosen jobs; print how many were changed."""
    if not (ids or states or role is not None or key is not None):
        raise click.UsageError(
            "name jobs by their numbers, or choose them by --state, --role, --key"
        )
    for name in states:
        if _STATES[name] not in possible and what is not StoredJobInput.REVIVE:
            raise click.UsageError(f"a job in state {name} cannot be {done}")
    names = list(states) or [name for name, state in _STATES.items() if state in possible]
    where = _where(ids, names, role, key)
    changed = requested = number = after = 0
    writer = open_writer(store)
    try:
        me = writer.begin(b"wmp jobs", "wmp jobs")
        while page := writer.list(where, after=after, limit=_PAGE):
            after, number = page[-1].id, number + 1
            change = JobChanges(what, [job.id for job in page])
            (answer,) = writer.apply(me, number, WriteBatch(changes=[change])).changes
            before = [job.state for job in page]
            after_each = [new for old, new in zip(before, answer.states, strict=True) if old != new]
            changed += len(after_each)
            requested += after_each.count(StoredJobState.CANCELLING)
        writer.end(me)
    finally:
        writer.close()
    click.echo(f"{counted(changed - requested, 'job')} {done}")
    if requested:
        click.echo(
            f"cancellation of {counted(requested, 'job')} requested: managers have reserved them, "
            "and stop their workers"
        )
    if ids and changed < len(set(ids)):
        complain(
            _PROGRAM,
            f"{counted(len(set(ids)) - changed, 'job')} not {done}: absent, or in another state; "
            f"see wmp jobs show{_states_hint(what, states)}",
        )
        return FAILED
    return 0


def _line(job: StoredJob) -> str:
    """Return a job as one line."""
    parts = [f"{job.id:<8}", f"{job.state_name:<10}", f"{printable(job.kind.role):<16}"]
    parts.append(when(job.created) or "")
    parts += [
        f"{name}={value}"
        for name, value in (
            ("attempt", job.attempt),
            ("lost", job.lost),
            ("failed", job.failed),
            ("priority", job.priority),
            ("worker", printable(job.worker) if job.running and job.worker else None),
            ("progress", _progress(job)),
            ("key", None if job.key is None else printable(job.key)),
        )
        if value
    ]
    if job.state is StoredJobState.QUEUED and job.due > time.time() * 1000:
        parts.append(f"due={when(job.due)}")
    return " ".join(parts).rstrip()


def _fields(job: StoredJob) -> dict[str, Any]:
    """Return a job without payload and result."""
    return {
        "id": job.id,
        "state": job.state_name,
        "role": job.kind.role,
        "needs": dict(job.kind.needs),
        "codec": job.kind.codec,
        "key": job.key,
        "priority": job.priority,
        "attempt": job.attempt,
        "lost": job.lost,
        "max_worker_losses": job.terms.max_worker_losses,
        "failed": job.failed,
        "instance": job.instance,
        "worker": None if job.worker is None else printable(job.worker),
        "begun": when(job.begun),
        "progress": _progress(job),
        "created": when(job.created),
        "due": when(job.due),
        "deadline": when(job.deadline_ms),
        "expires": when(job.expires_at_ms),
        "ended": when(job.ended),
        "purge": when(job.purge),
    }


def _progress(job: StoredJob) -> str | None:
    """Return the last report of the current attempt as text; None without one."""
    if job.ran != job.attempt:
        return None
    parts = [] if job.fraction is None else [f"{job.fraction:.0%}"]
    parts += [printable(job.note)] if job.note else []
    return " ".join(parts) or None


def _outcome(job: StoredJob) -> dict[str, Any]:
    if job.state in OPEN:
        return {}
    if job.state is StoredJobState.OK:
        return {"result": _bytes(job.result)}
    _, error = outcome_of(job)
    return {"error": f"{type(error).__name__}: {printable(str(error))}"}


def _failure(failure: StoredFailure) -> dict[str, Any]:
    return {
        "attempt": failure.attempt,
        "worker": printable(failure.worker),
        "at": when(failure.at),
        "error": printable(failure.error),
    }


def _bytes(data: bytes | None) -> str | None:
    """Return the start of a payload as text: UTF-8 if it is such, else hex digits."""
    if data is None:
        return None
    begin = data[:_SHOWN]
    try:
        text = printable(begin.decode())
    except UnicodeDecodeError:
        text = f"0x{begin.hex()}"
    return text if len(data) <= _SHOWN else f"{text} … {counted(len(data), 'byte')}"
