"""Answers in the description of the API: schemas of documents, and links (DSP-6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_Schema = dict[str, Any]

STATUSES: Final = ("q", "d", "r", "k", "s", "f", "x")
"""The letters of DSP-2."""


def _maybe(type_: str, **more: Any) -> _Schema:
    return {"type": [type_, "null"], **more}


def _object(required: Mapping[str, _Schema], *, maybe: bool = False) -> _Schema:
    kind = ["object", "null"] if maybe else "object"
    return {"type": kind, "required": list(required), "properties": dict(required)}


def _list(name: str, more: Mapping[str, _Schema] | None = None) -> _Schema:
    items = {"type": "array", "items": {"$ref": f"#/components/schemas/{name}Document"}}
    return _object({f"{name.lower()}s": items, **(more or {})})


_ID: Final = {"type": "string", "pattern": "^[0-9a-f]{24}$"}
_DATE: Final = {"type": "string", "format": "date-time"}
_MAYBE_DATE: Final = _maybe("string", format="date-time")
_MAYBE_ID: Final = _maybe("string", pattern="^[0-9a-f]{24}$")
_NUMBER: Final = {"type": "integer"}
_MAYBE_NUMBER: Final = _maybe("integer")
_TEXT: Final = {"type": "string"}
_MAYBE_TEXT: Final = _maybe("string")
_BOOLEAN: Final = {"type": "boolean"}
_ANY: Final[_Schema] = {}

_JOB: Final = _object(
    {
        "_id": _ID,
        "workflow": _maybe("string"),
        "run": _maybe("number"),
        "created": _DATE,
        "updated": _DATE,
        "priority": _NUMBER,
        "status": {"type": "string", "enum": list(STATUSES)},
        "result": _ANY,
        "type": _TEXT,
        "payload": _ANY,
        "dispatched_by": _MAYBE_NUMBER,
        "dispatcher": _object({"id": _MAYBE_NUMBER, "expiry": _MAYBE_DATE, "date": _MAYBE_DATE}),
        "execution": _object(
            {
                "worker_id": _MAYBE_ID,
                "worker": _MAYBE_TEXT,
                "progress": {
                    "type": ["object", "null"],
                    "properties": {
                        "fraction": {"type": ["number", "null"]},
                        "text": _MAYBE_TEXT,
                    },
                    "required": ["fraction", "text"],
                },
                "started": _MAYBE_DATE,
                "ended": _MAYBE_DATE,
                "expiry": _MAYBE_DATE,
                "timeout": _MAYBE_NUMBER,
                "attempt": _NUMBER,
            }
        ),
        "callback": _object(
            {
                "hostname": _TEXT,
                "port": _NUMBER,
                "path": _TEXT,
                "method": {"type": "string", "enum": ["GET", "PUT", "POST", "DELETE"]},
                "headers": {"type": "object", "additionalProperties": {"type": "string"}},
                "didCallbackSuccessfully": _BOOLEAN,
            },
            maybe=True,
        ),
    }
)
_WORKER: Final = _object(
    {
        "_id": _ID,
        "kind": {"type": "string", "enum": ["http", "wmp"]},
        "label": _TEXT,
        "hostname": _TEXT,
        "port": _MAYBE_NUMBER,
        "handlers": {"type": "object"},
        "maxJobs": _NUMBER,
        "jobs": {"type": "array", "items": _ID},
        "lastPinged": _DATE,
        "failedPingCount": _NUMBER,
        "lastError": _ANY,
        "isResigned": _BOOLEAN,
        "isDead": _BOOLEAN,
    }
)
_IGNORED: Final = {"type": "array", "items": _TEXT}
_WORKER["properties"] |= {
    "secret": _TEXT,
    "pingInterval": _NUMBER,
    "maxRetries": _NUMBER,
    "ignored": _IGNORED,
}
_JOB["properties"] |= {"waits": _maybe("string"), "ignored": _IGNORED}
_ACCEPTED: Final = _object({"accepted": _BOOLEAN})
_ACCEPTED["properties"] |= {"ignored": _IGNORED}
_ATTEMPT: Final = _object(
    {"attempt": _NUMBER, "worker": _maybe("string"), "error": _maybe("string"), "date": _MAYBE_DATE}
)
_KIND: Final = _object({"workers": _NUMBER, "maxJobs": _NUMBER, "free": _NUMBER})
_ROW: Final = _object({"maxJobs": _NUMBER, "free": _NUMBER, "queued": _NUMBER})

SCHEMAS: Final[Mapping[str, _Schema]] = {
    "JobDocument": _JOB,
    "JobList": _list("Job", {"next": _MAYBE_ID}),
    "JobHistory": _object(
        {
            "_id": _ID,
            "attempt": _NUMBER,
            "lost": _NUMBER,
            "failed": _NUMBER,
            "attempts": {"type": "array", "items": _ATTEMPT},
        }
    ),
    "WorkerDocument": _WORKER,
    "WorkerList": _list("Worker"),
    "Capacity": _object(
        {
            "workers": _NUMBER,
            "maxJobs": _NUMBER,
            "free": _NUMBER,
            "kinds": {"type": "object", "additionalProperties": _KIND},
            "types": {"type": "object", "additionalProperties": _ROW},
        }
    ),
    "Accepted": _ACCEPTED,
    "Health": _object({"status": _TEXT}),
    "Refusal": _object(
        {
            "error": {"type": "string", "description": "The value found, and the value expected."},
            "field": _maybe("string", description="Name of the field that is wrong."),
        }
    ),
}
"""The schemas of all answers."""

_LINKS: Final[Mapping[str, tuple[str, ...]]] = {
    "JobDocument": ("get_job", "cancel_job", "get_history", "complete_job"),
    "WorkerDocument": ("get_worker", "resign_worker"),
}


def answered(name: str, *codes: int, text: str = "The document.") -> dict[int | str, Any]:
    """Return the description of good answers: a schema, and what can be asked of the `_id` next.

    Args:
        name: A key of ``SCHEMAS``.
        codes: The codes of the answers; 200 without any.
        text: A description of the answer.
    """
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    links = {
        operation: {"operationId": operation, "parameters": {"id": "$response.body#/_id"}}
        for operation in _LINKS.get(name, ())
    }
    answer: dict[str, Any] = {"description": text, "content": content}
    if links:
        answer["links"] = links
    return dict.fromkeys(codes or (200,), answer)


def describe_answers(description: dict[str, Any]) -> None:
    """Complete the description of the framework."""
    for path in description["paths"].values():
        for operation in path.values():
            # This API never answers by this code.
            operation["responses"].pop("422", None)
    components = description["components"]
    for name in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(name, None)
    components["schemas"].update(SCHEMAS)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
