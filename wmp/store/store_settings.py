"""Settings of all stores: times, sizes, and the inputs that batches may have."""

from __future__ import annotations

from typing import Final

from wmp.store.stored_job import StoredJobInput

VALIDITY: Final = 15.0
"""Seconds for which a write batch renews the validity of its instance."""

GRACE: Final = 10.0
"""Seconds after which the reserved jobs of an ended instance are queued again."""

MAX_BYTES: Final = 16 << 30
"""Default of the bytes in use above which the store takes no new jobs."""

RESERVE: Final = 16 << 20
"""Default of the bytes that a store on SQLite keeps on the disk for ends and purges."""

ROW: Final = 256
"""Bytes of a job beside its payload, for the limit of the size."""

BLOCK: Final = 65_536
"""Numbers of a block."""

KEPT_INSTANCES: Final = 24 * 3_600_000
"""Milliseconds for which an ended instance without jobs is kept."""

RARELY: Final = 1_000
"""Milliseconds for which transactions do not renew the validity of their instance again."""

NUMBERS_FROM: Final = 1_577_836_800
"""2020-01-01 in seconds since 1970: from then on the numbers after a restoration are counted."""

NUMBERS_SHIFT: Final = 30
"""Bits: no store gives 2**30 numbers in a second."""

BY_CALLERS: Final = frozenset(
    (
        StoredJobInput.REPEAT,
        StoredJobInput.RELEASE,
        StoredJobInput.SPEND,
        StoredJobInput.AGAIN,
        StoredJobInput.BEGIN,
        StoredJobInput.ADOPT,
        StoredJobInput.SUCCEED,
        StoredJobInput.FAIL,
        StoredJobInput.OVERRUN,
        StoredJobInput.CANCEL,
        StoredJobInput.REVIVE,
        StoredJobInput.FORGET,
    )
)
"""The inputs that a batch may have as changes. The store makes the others itself."""

LEARNING: Final = 60_000
"""Milliseconds for which a job is kept after its time to live, until its submitter has learned of
its end."""
