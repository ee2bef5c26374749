"""The handlers of the example: functions by the types of jobs that they do."""

from __future__ import annotations

from typing import Any


def resize(job: dict[str, Any]) -> dict[str, Any]:
    """Return the size of a picture that is half as wide; `run` names the run of the workflow."""
    width = job["payload"]["width"]
    return {"run": job["run"], "width": width // 2}


handlers = {"resize": resize}
