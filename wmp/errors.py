"""Every exception of ``wmp``, and nothing else.

::

    WMPError
    ├── ProtocolError            a rule of specs/wmp.md was broken (abstract)
    │   ├── LocalProtocolError   by this side: a bug here, or misuse of a machine
    │   └── RemoteProtocolError  by the peer
    │       └── DecodeError      frames that are not a WMP message (ValueError)
    ├── JobError                 one job did not end in a result (abstract)
    │   ├── JobFailed            its handler raised
    │   ├── JobCancelled         its submitter cancelled it (CancelledError)
    │   ├── JobTimeout           its time ran out (TimeoutError)
    │   └── WorkerLost           its workers were lost too often (BrokenExecutor)
    ├── HandlerVerdict           a handler states what becomes of its job (abstract)
    │   ├── RetryLater           try the job again after some seconds
    │   └── Reject               never try the job again
    ├── InitializerFailed        an executor's workers cannot work (BrokenExecutor)
    ├── RowsFailed               the job of some rows of a table did not end in a result
    ├── NoWorkers                no worker could do a waiting job for too long (TimeoutError)
    ├── NoReply                  a server of another protocol did not answer (TimeoutError)
    ├── OnStandby                the other manager of the pair may serve; submit the job there
    ├── StarConflict             both nodes of a Binary Star are active, or both are passive
    ├── StoreError               a store of jobs refused or failed (abstract)
    │   ├── StoreUnavailable     for now; the same call can be made again
    │   │   └── StoreFull        the disk is full, or the store has its maximum size
    │   ├── StoreUnusable        until somebody repairs the cause
    │   └── InstanceEnded        this process may not write under its old instance any more
    ├── QueueFull                the manager holds as many jobs as it may
    ├── Superseded               another process has this identity
    ├── HandlerHung              handlers did not end, so the worker stopped
    ├── ClosedError              the object is closed, or ``close`` ended the call
    │   └── WorkersEnded         the worker of an executor ended (BrokenExecutor)
    ├── ConfigError              a setting, flag or file is wrong (ValueError)
    └── TransportError           ZeroMQ refused (``__cause__`` is its error)
"""

from __future__ import annotations

import concurrent.futures
import sys
from collections.abc import Sequence
from typing import Any

from wmp.duration import Duration, in_seconds

__all__ = [
    "ClosedError",
    "ConfigError",
    "DecodeError",
    "HandlerHung",
    "HandlerVerdict",
    "InitializerFailed",
    "InstanceEnded",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobTimeout",
    "LocalProtocolError",
    "NoReply",
    "NoWorkers",
    "OnStandby",
    "ProtocolError",
    "QueueFull",
    "Reject",
    "RemoteProtocolError",
    "RetryLater",
    "RowsFailed",
    "StarConflict",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "StoreUnusable",
    "Superseded",
    "TransportError",
    "WMPError",
    "WorkerLost",
    "WorkersEnded",
]

_PACKAGE = sys.modules["wmp"]
# Another package `wmp` of the public index may have replaced wmp/__init__.py. Nearly every module
# imports this module, so that every import of this package ends here with an explanation.
if getattr(_PACKAGE, "__file__", None) is not None and not hasattr(_PACKAGE, "_DISTRIBUTION"):
    raise ImportError(
        f"{_PACKAGE.__file__} belongs to another package called wmp, which has been installed over "
        "this one; run: pip uninstall wmp, and then install worker-manager-protocol again"
    )


class WMPError(Exception):
    """Root of every exception that this library raises on purpose. It can be pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickle without ``__init__``, whose parameters a subclass may change."""
        return _again, (type(self), self.args), self.__dict__


def _again(kind: type[WMPError], args: tuple[Any, ...]) -> WMPError:
    error: WMPError = kind.__new__(kind)
    error.args = args
    return error


class ProtocolError(WMPError):
    """A rule of the specification was broken; see the two subclasses."""


class LocalProtocolError(ProtocolError):
    """This side broke a rule: a defect here, or misuse of a machine."""


class RemoteProtocolError(ProtocolError):
    """The peer broke a rule."""


class DecodeError(RemoteProtocolError, ValueError):
    """The frames are not a WMP message.

    Attributes:
        code: The ERROR code with which a receiver answers (specs/wmp.md, "Errors").
        source: The sender's path if it could be read, else ``()``.
        command: The command's number if it could be read, else ``None``.
        to: The receiver's path if it could be read, else ``()``.
        session: Session of a numbered message if it could be read, else 0.
        number: Number in that session, else 0.
    """

    def __init__(
        self,
        text: str,
        *,
        code: str = "malformed",
        source: tuple[bytes | int, ...] = (),
        command: int | None = None,
        to: tuple[bytes | int, ...] = (),
        session: int = 0,
        number: int = 0,
    ) -> None:
        super().__init__(text)
        self.code = code
        self.source = source
        self.command = command
        self.to = to
        self.session = session
        self.number = number


class JobError(WMPError):
    """One job did not end with a result.

    Attributes:
        job_id: The job's number at its manager; 0 when the number is not known.
        history: The attempts that failed or were lost, oldest first, if the job was tried again:
            each with its ``attempt``, ``worker``, ``at`` (seconds since 1970) and ``error``. If
            there are more than 32, only the first and the last are kept.
    """

    history: tuple[Any, ...] = ()

    def __init__(self, text: str, *, job_id: int = 0) -> None:
        super().__init__(text)
        self.job_id = job_id


class JobFailed(JobError):
    """The job's handler raised an exception. The worker sent it as text.

    Attributes:
        type_name: Name of the exception's type at the worker.
        text: The exception's text.
        remote_traceback: The worker's traceback, as text.
    """

    def __init__(
        self, type_name: str, text: str, remote_traceback: str = "", *, job_id: int = 0
    ) -> None:
        super().__init__(f"{type_name}: {text}", job_id=job_id)
        self.type_name = type_name
        self.text = text
        self.remote_traceback = remote_traceback
        if remote_traceback:
            self.add_note(f"at the worker:\n{remote_traceback.rstrip()}")


class JobCancelled(JobError, concurrent.futures.CancelledError):
    """The submitter cancelled the job.

    Attributes:
        may_have_started: Whether a worker may have begun the job before.
    """

    def __init__(self, text: str, *, job_id: int = 0, may_have_started: bool = False) -> None:
        super().__init__(text, job_id=job_id)
        self.may_have_started = may_have_started


class JobTimeout(JobError, TimeoutError):
    """The job's own ``timeout``, ``expires`` or ``run_limit`` passed; the text names which."""


class WorkerLost(JobError, concurrent.futures.BrokenExecutor):
    """The workers that had the job were lost more often than its ``max_worker_losses`` allow.

    Attributes:
        cause: The cause of the last loss: how the process ended, ``the connection ended``,
            ``silence``, a restart of the worker, a job above the worker's limits, …
        host: Label of that worker, by default host and process.
        attempts: Number of the job's leases, refusals included.
    """

    def __init__(
        self, text: str, *, job_id: int = 0, attempts: int = 0, cause: str = "", host: str = ""
    ) -> None:
        super().__init__(text, job_id=job_id)
        self.attempts = attempts
        self.cause = cause
        self.host = host


class HandlerVerdict(WMPError):
    """Raised by a handler to decide about its job; see the two subclasses."""


class RetryLater(HandlerVerdict):
    """Raised by a handler: the job is tried again after ``seconds``.

    The attempt counts as a failure. If neither the job nor its handler has settings, the job is
    tried again three times at most.
    """

    def __init__(self, seconds: Duration) -> None:
        seconds = in_seconds(seconds)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise TypeError(
                f"RetryLater got {seconds!r}; expected a number of seconds, or a timedelta"
            )
        if not 0 <= seconds <= 1e9:
            raise ValueError(f"RetryLater got {seconds!r} seconds; expected 0 to 1e9")
        super().__init__(f"try again in {seconds:g} s")
        self.seconds = seconds


class Reject(HandlerVerdict):
    """Raised by a handler: the job fails, and is not tried again whatever its settings are."""


class InitializerFailed(WMPError, concurrent.futures.BrokenExecutor):
    """The initializer of an executor raised an error, so its workers do no calls."""


class RowsFailed(WMPError):
    """The job of some rows of a table did not end with a result; ``__cause__`` is its error.

    Attributes:
        partition: Number of the partition.
        first_row: Place of the first of these rows in the partition, from 0.
        rows: Number of these rows.
    """

    def __init__(self, text: str, *, partition: int = 0, first_row: int = 0, rows: int = 0) -> None:
        super().__init__(text)
        self.partition = partition
        self.first_row = first_row
        self.rows = rows


class NoWorkers(WMPError, TimeoutError):
    """For too long no connected worker could do a waiting job."""


class NoReply(WMPError, TimeoutError):
    """No reply came to a request of another protocol in any of its tries (specs/pirates.md)."""


class OnStandby(WMPError):
    """This manager of a pair takes no jobs, because the other manager may serve; try there."""


class StarConflict(WMPError):
    """Both nodes of a Binary Star are active, or both are passive (specs/binary-star.md)."""


class StoreError(WMPError):
    """A store of jobs refused or failed. The caller must count nothing of the call as stored."""


class StoreUnavailable(StoreError):
    """The store cannot be used now. The same call can be made again, and changes nothing twice."""


class StoreFull(StoreUnavailable):
    """The disk is full, or the store has its maximum size.

    Args:
        text: The cause, for people.
        stored: The jobs of a ``submit_many`` that are stored.
    """

    def __init__(self, text: str = "", stored: Sequence[Any] = ()) -> None:
        super().__init__(text)
        self.stored = tuple(stored)

    @staticmethod
    def of_many(cause: StoreFull, stored: Sequence[Any], count: int) -> StoreFull:
        """Return the error of ``count`` jobs that were submitted together, of which some are
        stored."""
        return StoreFull(
            f"{cause}; {len(stored)} of {count} jobs are stored, and this error has them as "
            "`stored`: submit the others again",
            stored,
        )


class StoreUnusable(StoreError):
    """The store cannot be used until somebody repairs the cause that the text names."""


class InstanceEnded(StoreError):
    """The instance of this process was ended, because it had not renewed its validity in time."""


class QueueFull(WMPError):
    """The manager holds ``limit`` jobs or bytes already; submit later, or let ``submit`` wait."""

    def __init__(self, limit: int, unit: str = "jobs") -> None:
        super().__init__(
            f"the manager holds {limit} {unit}, which is its limit; wait until some jobs have "
            f"ended, use submit(), which waits, or raise max_{unit}"
        )
        self.limit = limit


class Superseded(WMPError):
    """No manager serves this worker, because another process has its identity."""


class HandlerHung(WMPError):
    """Handlers continued in threads long after their jobs were interrupted; the worker stopped."""


class ClosedError(WMPError):
    """The object is closed, or was closed while this call or job was pending."""


class WorkersEnded(ClosedError, concurrent.futures.BrokenExecutor):
    """The worker of an executor or of a local manager has ended, so no job there can end."""


class ConfigError(WMPError, ValueError):
    """A setting, a flag or a file is wrong. The text names it and the expected value."""


class TransportError(WMPError):
    """ZeroMQ refused a call; ``__cause__`` is the error of ZeroMQ."""
