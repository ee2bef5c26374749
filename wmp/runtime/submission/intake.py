"""The way of jobs into a manager, for the APIs and other packages of this library."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Sized
from typing import TYPE_CHECKING, Any

from wmp.runtime.common.checks import check_count
from wmp.runtime.driver.inbox import JobTerms
from wmp.runtime.submission.submissions import Submissions
from wmp.runtime.submission.submit_option_checks import TermsMaker

if TYPE_CHECKING:
    from wmp.runtime.submission.map_pipeline import MapPipeline, MapSignal


class Intake:
    """Takes jobs into one manager: has what their terms, payloads and numbers need.

    Args:
        terms: Makes the terms of jobs from the options of a user's call.
        submissions: The jobs of the manager.
        codec: Name of the codec of payloads and results.
        payload_limit: Maximum number of bytes of one payload.

    Attributes:
        terms: As the argument.
        submissions: As the argument. Any thread may add jobs.
        codec: As the argument.
        payload_limit: As the argument.
    """

    def __init__(
        self, terms: TermsMaker, submissions: Submissions, codec: str, payload_limit: int
    ) -> None:
        self.terms = terms
        self.submissions = submissions
        self.codec = codec
        self.payload_limit = payload_limit

    def serving(self) -> Submissions:
        """Return the jobs of the manager, which must be serving.

        Raises:
            ClosedError: The manager is not started, or has ended.
        """
        self.terms.node.serving()
        return self.submissions

    def pipeline(
        self,
        inputs: tuple[Iterable[Any] | AsyncIterable[Any], ...],
        terms: JobTerms,
        in_flight: int,
        signal: MapSignal,
        return_exceptions: bool,
        ordered: bool,
        *,
        threaded: bool = False,
    ) -> MapPipeline:
        """Return the inputs and results of one ``map``, whose arguments these are.

        Args:
            inputs: As for ``map``.
            terms: Terms of every job.
            in_flight: As for ``map``.
            signal: Ends the consumer's wait.
            return_exceptions: As for ``map``.
            ordered: As for ``map``.
            threaded: Whether a thread pulls inputs for which the consumer may have to wait: those
                that are not collections.
        """
        from wmp.runtime.submission.joined_inputs import joined
        from wmp.runtime.submission.map_pipeline import MapPipeline
        from wmp.runtime.submission.unordered_map import UnorderedMap

        return (MapPipeline if ordered else UnorderedMap)(
            self.submissions,
            joined(inputs, self.codec),
            terms,
            codec=self.codec,
            in_flight=check_count("in_flight", in_flight, 1),
            signal=signal,
            limit=self.payload_limit,
            lenient=return_exceptions,
            threaded=threaded and not all(isinstance(some, Sized) for some in inputs),
        )
