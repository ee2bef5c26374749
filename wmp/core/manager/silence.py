"""The silence of a worker: when the worker counts as gone, and which beats prevent this.

The manager loses a worker, with its leases and locks, after ``max_silence`` seconds without a
message of that worker (WMP-9.3). A beat counts as such a message while the worker's process does
not run (WMP-9.18).
"""

from __future__ import annotations

from wmp.core.manager.remote_worker import RemoteWorker
from wmp.core.protocol.claims import Claim
from wmp.core.protocol.settings import ManagerSettings
from wmp.message import Command, Field, Message


def silent_at(worker: RemoteWorker, settings: ManagerSettings) -> float:
    """Return the time, in seconds, at which a worker is gone unless it sends something before."""
    return worker.last_received + settings.max_silence


def is_gone(worker: RemoteWorker, claim: Claim | None) -> bool:
    """Return whether a worker is gone after its silence.

    A claim shows that the worker still runs, and reached the manager over another route. A claim by
    BYE does not, unless the worker itself left over the other route.

    Args:
        worker: The worker, which was silent for ``max_silence``.
        claim: The claim to its identity at the end of the silence, if any.
    """
    return claim is None or (claim.command is Command.BYE and claim.epoch != worker.epoch)


def count_beat(
    worker: RemoteWorker | None, beat: Message, settings: ManagerSettings, now: float
) -> str:
    """Count a beat as a message of its worker; return the reason for not counting it, or "".

    A beat changes nothing else. In particular it is not a claim to the worker's identity.

    Args:
        worker: The worker of the beat's identity; None if the manager knows none.
        beat: The PING.
        settings: The settings of the manager.
        now: Seconds.
    """
    fields = beat.fields
    if (
        worker is None
        or worker.epoch != beat.sender[1]
        or fields.get(Field.SESSION) != worker.stream.session
        or fields[Field.BEAT] != worker.beat_key
    ):
        return "no worker has this session and beat key"
    silent, bound = now - worker.own_at, _bound(worker, settings)
    if silent >= bound:
        return f"the worker itself has sent nothing for {silent:.1f} s; beats count for {bound:g} s"
    worker.last_received = now
    # A worker that does not run acknowledges nothing. A message that is sent again in that time
    # does not show that the worker refuses it (WMP-9.19).
    worker.stream.fruitless = 0
    return ""


def _bound(worker: RemoteWorker, settings: ManagerSettings) -> float:
    """Return the seconds for which beats count after the last message of the worker itself."""
    limits = [limit for limit in worker.run_limits() if limit is not None]
    if not limits or len(limits) < worker.leased:
        return settings.max_stall
    # No job of this worker may run for longer.
    return min(settings.max_stall, max(*limits, settings.max_silence))
