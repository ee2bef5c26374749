"""The log of handlers: their log lines go to stderr, each with the time and the job."""

from __future__ import annotations

import logging
import os
import sys
from contextvars import ContextVar
from typing import Final, Protocol, TextIO

LOG_FORMAT: Final = "WMP_LOG_FORMAT"
"""Environment variable with the layout of log lines, so that worker processes have the
layout too: ``text`` or ``json``.
"""

TIME: Final = "%Y-%m-%d %H:%M:%S"
"""Layout of the time in lines of the log."""


class LoggedLane(Protocol):
    """The lane whose handler runs."""

    running: int
    """Number of the job, 0 between two jobs."""

    @property
    def role(self) -> str: ...

    def doing(self, text: str) -> None: ...


RUNNING: Final[ContextVar[LoggedLane | None]] = ContextVar("wmp_running", default=None)
"""The lane that runs in this thread or task."""


def logs_json() -> bool:
    """Return whether log lines are JSON."""
    return os.environ.get(LOG_FORMAT) == "json"


def json_line(message: str, *, level: str, logger: str, at: float, **more: object) -> str:
    """Return a log line: a JSON object with the time in UTC, and further entries if not None."""
    # Few programs write JSON, and worker processes start sooner without these modules.
    import json
    from datetime import UTC, datetime

    row: dict[str, object] = {
        "time": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
        "level": level.lower(),
        "logger": logger,
        "message": message,
    }
    row |= {name: value for name, value in more.items() if value is not None}
    return json.dumps(row, ensure_ascii=False, default=str)


class JsonFormatter(logging.Formatter):
    """Writes each record as a JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, with the job whose handler wrote the record."""
        lane = RUNNING.get()
        runs = lane is not None and bool(lane.running)
        return json_line(
            record.getMessage(),
            level=record.levelname,
            logger=record.name,
            at=record.created,
            job=lane.running if runs and lane is not None else None,
            role=lane.role if runs and lane is not None else None,
            error=self.formatException(record.exc_info) if record.exc_info else None,
        )


class _JobHandler(logging.StreamHandler[TextIO]):
    """Writes to stderr. This class marks a root logger that this module has set up."""

    def format(self, record: logging.LogRecord) -> str:
        """Put the time and the job before a record."""
        lane = RUNNING.get()
        job = f"job {lane.running} ({lane.role}) " if lane is not None and lane.running else ""
        record.__dict__["job"] = job
        return super().format(record)


def log_handlers(level: int) -> None:
    """Write the log lines of handlers to stderr, unless the user's code has set up logging."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = _JobHandler(sys.stderr)
    layout = "%(asctime)s %(job)s%(levelname)s %(name)s: %(message)s"
    text = logging.Formatter(layout, TIME)
    handler.setFormatter(JsonFormatter() if logs_json() else text)
    root.addHandler(handler)
    root.setLevel(level)


def passed_level() -> int | None:
    """Return the level that worker processes pass to :func:`log_handlers`.

    None if they set up no log.
    """
    root = logging.getLogger()
    ours = any(isinstance(handler, _JobHandler) for handler in root.handlers)
    return root.level if ours else None
