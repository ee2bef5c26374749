"""The results of folding lines: facts of jobs, rows of tables, counts and violations.

A fold is plain Python. It appends to a :class:`FoldSink`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Any, Final

import msgspec
import pyarrow
from attrs import define, field, frozen

from wmp.spark.folds.findings import FINDINGS
from wmp.spark.folds.process_lines import LineNumbers
from wmp.spark.session.arrow import Values

ProcessKey = tuple[str, int]
"""(identity, epoch)."""

JobKey = tuple[str, int, int]
"""(owner, epoch of the owner, number)."""

Window = tuple[int, int]
"""The first µs since 1970 of a part of a journal, and the µs after its last."""
ALWAYS: Final[Window] = (-(1 << 62), 1 << 62)

Counts = dict[tuple[Any, ...], list[int]]
"""[number, sum, greatest] of samples, by (name, key…); those of two sets of lines add up."""

_HOUR: Final = 3_600_000_000
"""In µs."""
MAX_OF_A_NAME: Final = 100
"""Maximum number of violations of one name and certainty in a report; all are counted."""
_SLACK: Final = 1_000_000
"""µs by which clocks of processes may disagree beyond their errors, because rates differ."""
_MAX_LINES: Final = 200
"""Maximum number of lines of a violation that are reported."""


@frozen
class KnownProcess:
    """The facts of a process that wrote a journal, which each fold needs."""

    node: str
    epoch: int
    kind: str
    """manager, worker or device: from its ``start``, or else by the kinds of its lines."""
    clock: int
    """µs that are added to its monotonic clock."""
    whole: bool
    """Whether the journal has a ``start`` and lacks no line."""
    end: str | None
    """As ``nodes.end``; None without a ``stop`` line, because the last lines may be lost."""
    first: int
    """The time of its first line on its own clock."""
    last: int
    """The time of its last line on its own clock."""
    max_silence: float | None = None
    """Seconds of silence after which a manager gives a worker up."""
    resources: Mapping[str, int] = {}
    roles: Sequence[str] = ()
    """The roles of its ``start`` line."""
    upstreams: int = 0
    """Number of the endpoints above a device."""
    error: int | None = 0
    """µs by which ``clock`` may be wrong; None for a clock that was compared with no other."""
    settings: Mapping[str, float] = {}
    """The settings of its ``start`` line, by name."""
    label: str | None = None
    """The label of its ``start`` line, empty for no label; None without such a line."""
    reference: ProcessKey | None = None
    """The process with whose clock this process and its neighbours were compared."""

    @property
    def compared(self) -> bool:
        """Whether ``clock`` is that of the common clock, and not only its own wall clock."""
        return self.error is not None

    def has_lines_until(self, other: KnownProcess, at: int) -> bool:
        """Return whether the journal certainly has all lines before a time of another process.

        The lines of a journal are written in their order. So a killed process loses only lines
        that are younger than its last line. A journal with gaps is not ``whole``.

        Args:
            other: The other process.
            at: µs on the clock of the other process.
        """
        if self.end is not None:
            return True
        error = (self.error or 0) + (other.error or 0) + _SLACK
        return self.shares_clock(other) and at + other.clock + error < self.last + self.clock

    def begins_after(self, other: KnownProcess, at: int) -> bool:
        """Return whether the process certainly began after a time of another process."""
        error = (self.error or 0) + (other.error or 0) + _SLACK
        return self.shares_clock(other) and self.first + self.clock > at + other.clock + error

    def shares_clock(self, other: KnownProcess) -> bool:
        """Return whether messages compare the clocks of two processes, perhaps through others."""
        return self.reference == other.reference


class Fact(msgspec.Struct, array_like=True, gc=False, eq=False):
    """One event of one job, in a line of a manager (side 0) or worker (side 1).

    ========= ==== =========== =========== ================= ================== ================
    event     side peer        value       number            word               other
    ========= ==== =========== =========== ================= ================== ================
    submitted  0               losses      deadline, µs                         priority
    asked      0
    declined   0
    cancelling 0   the worker
    granted    0   the worker  1: by the   of its TAKE                          its lock
                               observer
    lost       0               1: counts;
                               2: once for
                               each worker
    noted      0   the worker                                the reason
    arrived    0   the worker  the outcome of its DONE
    resolved   0   whose DONE                                the end
                   it was
    taken      1   the manager             of its TAKE
    run        1               the lane
    finished   1               the outcome when it began     ``recalled``, or    the lane
                                                             nothing
    cancel     1   the manager 1: only
                               unstarted
    answered   1   the manager the outcome of its DONE
    refused    1   the manager             of the DONE
    forgotten  1   the manager
    reported   0
    notified   0
    ========= ==== =========== =========== ================= ================== ================
    """

    side: int
    node: str
    epoch: int
    n: int
    at: int
    """The time on the clock of its process."""
    time: int
    """The time on the common clock; so is the time when a job began."""
    event: str
    attempt: int | None = None
    peer: str | None = None
    peer_epoch: int | None = None
    value: int | None = None
    session: int | None = None
    """Of the DONE; of a job that finished, the µs for which it ran; of a submission, the µs since
    the submitter called."""
    number: int | None = None
    word: str | None = None
    other: int | None = None
    role: str | None = None
    text: Any = None
    """``needs`` of a job or lane, ``via`` of a TAKE."""
    terms: Any = None
    """Terms of a job (:mod:`wmp.spark.folds.job_terms`): of a submission the delay, timeout,
    expiry and run limit in µs, the retries and the codec; of a lease the needs, the codec,
    and its entries of ``left``, ``expires``, ``limits``, ``failed`` and ``begun``; of an arrived
    DONE its wait in ms."""

    @property
    def process(self) -> ProcessKey:
        """The process that wrote the line."""
        return self.node, self.epoch

    @property
    def called(self) -> int:
        """When the submitter called, on the common clock; of a submission."""
        return self.time - max(0, self.session or 0)


@lru_cache(65_536)
def process_number(*who: Any) -> int:
    """Return a process, or another tuple, as a number; two almost surely have different numbers."""
    digest = blake2b(repr(who).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def is_certain(
    processes: Sequence[ProcessKey] | None, known: Mapping[ProcessKey, KnownProcess]
) -> bool:
    """Return whether a violation is certain that these processes show; None: in any case."""
    return processes is None or all(
        (process := known.get(who)) is not None and process.whole for who in processes
    )


def add_count(counts: dict[Any, list[int]], key: Any, entry: Sequence[int]) -> None:
    """Add [number, sum, greatest] to the entry of a key."""
    total = counts.get(key)
    if total is None:
        counts[key] = list(entry)
    else:
        total[0] += entry[0]
        total[1] += entry[1]
        total[2] = max(total[2], entry[2])


def rounded(micros: int) -> int:
    """Round µs to three digits, so that there are few different values."""
    unit = 1
    while micros >= 1000 * unit:
        unit *= 10
    return micros // unit * unit


@define(eq=False)
class FoldSink:
    """Collects the results of folds of one task."""

    known: Mapping[ProcessKey, KnownProcess]
    closed: Mapping[tuple[Any, ...], LineNumbers] = {}
    """The jobs that earlier calls reported for good, and the messages without a target."""
    late: int = 0
    """Number of facts, or messages, about which lines came after that."""
    length: int = 1_000_000
    """µs of a stretch of time, for the load of workers and roles."""
    window: Window = ALWAYS
    """The jobs submitted in this time, and the locks, WAKEs and load in it, become rows."""
    rows: defaultdict[str, list[Values]] = field(factory=lambda: defaultdict(list))
    """Rows by the name of their table."""
    tables: defaultdict[str, list[pyarrow.Table]] = field(factory=lambda: defaultdict(list))
    """Further rows by the name of their table."""
    facts: defaultdict[JobKey, list[Fact]] = field(factory=lambda: defaultdict(list))
    _counts: Counts = field(factory=dict)
    _amounts: defaultdict[tuple[Any, ...], list[int]] = field(factory=lambda: defaultdict(list))
    """Numbers that are not in the counts yet, by their key there."""
    _samples: defaultdict[tuple[Any, ...], list[int]] = field(factory=lambda: defaultdict(list))
    """µs that are not in the counts yet, by their key there without the rounded µs."""
    _broken: Counter[tuple[str, bool]] = field(factory=Counter)
    """Number of violations of the present group, by name and certainty."""

    def add(self, table: str, row: Values) -> None:
        """Add a row."""
        self.rows[table].append(row)

    def apart(self) -> FoldSink:
        """Return an empty sink for rows and counts that may still change."""
        return FoldSink(self.known, self.closed, length=self.length, window=self.window)

    @property
    def counts(self) -> Counts:
        """The counts so far."""
        self.add_up()
        return self._counts

    def add_up(self) -> None:
        """Add the numbers and samples so far to the counts, because they need more memory."""
        for key, values in self._samples.items():
            for took in values:
                self._amounts[*key, rounded(took)].append(took)
        for key, values in self._amounts.items():
            add_count(self._counts, key, (len(values), sum(values), max(values)))
        self._samples.clear()
        self._amounts.clear()

    def count(self, amount: int, *key: Any) -> None:
        """Count a number; the key begins with the name of the count."""
        self._amounts[key].append(amount)

    def bound(self, value: int, *key: Any) -> None:
        """Remember the greatest of these values."""
        add_count(self._counts, key, (0, 0, value))

    def samples(self, took: Iterable[int], *key: Any) -> None:
        """Count µs under a key that ends in the rounded µs."""
        self._samples[key].extend(took)

    def phase(
        self, phase: str, took: int, time: int,
        role: str | None, manager: str | None, worker: str | None, device: str | None,
    ) -> None:  # fmt: skip
        """Count a sample of a phase that ended at this time."""
        key = ("phase", phase, role, manager, worker, device, time // _HOUR)
        self._samples[key].append(took)

    def shows(self, time: int) -> bool:
        """Return whether rows of this time on the common clock are wanted."""
        return self.window[0] <= time < self.window[1]

    def begin(self) -> None:
        """Begin another group of lines."""
        self._broken.clear()

    def violation(
        self,
        name: str,
        detail: str,
        line: tuple[str, int, int, int],
        lines: Sequence[tuple[str, int, int]] = (),
        *,
        owner: ProcessKey | None = None,
        job: int | None = None,
        attempt: int | None = None,
        worker: ProcessKey | None = None,
        lock: int | None = None,
        others: Sequence[ProcessKey] = (),
        certain: bool = False,
    ) -> None:
        """Report a violation.

        Args:
            name: The name in ``FINDINGS``.
            detail: The observation.
            line: (node, epoch, n, at) of the line that shows the violation.
            lines: (node, epoch, n) of its story; by default the line alone.
            owner: The manager of the job.
            job: The job.
            attempt: Its lease.
            worker: The worker.
            lock: The lock.
            others: Further processes whose lines would show it if the violation were none.
            certain: Whether the violation is certain, even if a journal has gaps.
        """
        node, epoch, n, at = line
        story = list(lines[-_MAX_LINES:]) or [(node, epoch, n)]
        processes = {(event[0], event[1]) for event in story} | set(others)
        processes |= {who for who in (owner, worker) if who is not None}
        judged = None if certain else tuple(sorted(processes))
        shown = self.known.get((node, epoch))
        self.count(1, "violation", name, judged)
        proved = is_certain(judged, self.known)
        self._broken[name, proved] += 1
        if self._broken[name, proved] > MAX_OF_A_NAME:
            return
        text = "|".join(map(str, (name, node, epoch, n, owner, job, detail)))
        row = (
            sha256(text.encode()).hexdigest()[:12], name, FINDINGS[name], detail,
            proved, node, epoch, *(owner or (None, None)), job, attempt,
            *(worker or (None, None)), lock,
            None if shown is None else at + shown.clock, story, judged,
        )  # fmt: skip
        self.add("violations", row)
