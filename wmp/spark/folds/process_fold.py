"""The fold of a process: what folds of devices, workers and managers have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from attrs import define

from wmp.spark.folds.facts import Fact, FoldSink, KnownProcess, ProcessKey
from wmp.spark.folds.number_fold import NumberFold
from wmp.spark.journals.lines import LineRow


def jobs_of(line: LineRow, column: list[Any] | None = None) -> Iterable[tuple[int, Any, Any]]:
    """Return (job, attempt, value of a column) for each job of a line."""
    ids: list[int] = line.ids or []
    attempts = line.attempts
    if attempts is None or len(attempts) != len(ids):
        attempts = line.each(attempts)
    if column is None or len(column) != len(ids):
        column = line.each(column)
    return zip(ids, attempts, column, strict=True)


@define(eq=False)
class ProcessFold(NumberFold):
    """The state of a process as its lines show it, in the order of their numbers."""

    side: ClassVar[int]
    """As ``Fact.side``."""

    def step(self, lines: Sequence[LineRow]) -> None:
        """Fold the lines of one step."""
        raise NotImplementedError

    def finish(self) -> None:
        """Report everything that is still open."""
        raise NotImplementedError

    def attach(self, me: KnownProcess | None, sink: FoldSink | None) -> None:
        """Continue with these facts of the process and this sink; None before a pause."""
        self.me = me  # type: ignore[assignment]
        self.sink = sink  # type: ignore[assignment]

    def _fact(
        self, line: LineRow, event: str, owner: ProcessKey, job: int, attempt: int | None = None,
        peer: str | None = None, peer_epoch: int | None = None, value: int | None = None,
        session: int | None = None, number: int | None = None, word: str | None = None,
        other: int | None = None, role: str | None = None, text: Any = None, terms: Any = None,
    ) -> None:  # fmt: skip
        """Add a fact of a job, from a line; positions are faster than names."""
        self.sink.facts[*owner, job].append(
            Fact(
                self.side, line.node, line.epoch, line.n, line.at, line.at + self.me.clock, event,
                attempt, peer, peer_epoch, value, session, number, word, other, role, text,
                terms,
            )
        )  # fmt: skip

    def _is_own(self, line: LineRow) -> bool:
        """Return whether the process made a message that it sent; report any other (WMP-2.5)."""
        if (line.source, line.source_epoch) == (line.node, line.epoch) and not line.hops:
            return True
        text = f"{line.command} was sent as that of {line.source}:{line.source_epoch}"
        NumberFold._break(self, line, "WMP-2.5", f"{text} after {line.hops} devices")
        return False
