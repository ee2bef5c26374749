"""The bodies of requests, as models that check them and describe them for OpenAPI (DSP-1)."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

_LATEST: Final = 253_402_300_799_000
"""The last millisecond that a date can have."""
_YEARS: Final = 100 * 366 * 86_400_000


def _clean(text: str) -> str:
    """Refuse text that a database or a header cannot have."""
    for character in text:
        if ord(character) < 32 or ord(character) == 127 or 0xD800 <= ord(character) < 0xE000:
            raise ValueError("has a control character or half of a surrogate pair")
    return text


def plain_text(text: str) -> str:
    """Return text of printable ASCII.

    Raises:
        ValueError: The text has another character.
    """
    if not all(32 <= ord(character) < 127 for character in text):
        raise ValueError("has a character that is not printable ASCII")
    return text


def _host(text: str) -> str:
    if not text or set(text) & set("/?#@[]\\ %<>\"'{}|^`"):
        raise ValueError("is not a host name or address")
    return plain_text(text)


def _id(text: str) -> str:
    if len(text) != 24 or not set(text) <= set("0123456789abcdef"):
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        raise ValueError(
            f"is {shown!r}; expected the `_id` of a document: 24 hexadecimal digits in lower case, "
            "for example 00000000000000000000002a"
        )
    return text


def _header_name(text: str) -> str:
    if not _HEADER_NAME.fullmatch(text):
        raise ValueError(
            "is not a header name; expected 1 to 100 letters, digits or signs without spaces"
        )
    return text


_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")

_FRAMING: Final = frozenset(
    (
        "connection",
        "content-length",
        "expect",
        "host",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "wmp-depth",
    )
)
"""Headers that the sender of a request sets: of one connection, of the body, of the target, and of
the chain of callbacks (DSP-7.3)."""


def _end_to_end(headers: dict[str, str]) -> dict[str, str]:
    for name in headers:
        if name.lower() in _FRAMING:
            raise ValueError(f"has {name}, which the dispatcher sets; leave it out")
    return headers


def _number(value: object, read: ValidatorFunctionWrapHandler) -> object:
    """Name the field in an error, and not each type that was tried."""
    try:
        return read(value)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "value_error":
            raise ValueError(str(first["ctx"]["error"])) from None
        raise ValueError("expected a number") from None


def _finite(value: float | None) -> float | None:
    try:
        finite = value is None or math.isfinite(value)
    except OverflowError:  # an integer beyond the numbers with a fraction
        finite = False
    if not finite:
        raise ValueError("is out of the range of numbers")
    return value


def _milliseconds(value: Any) -> Any:
    """Return a date as milliseconds since 1970 (DSP-1.1)."""
    if isinstance(value, str):
        try:
            date = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("is not an ISO 8601 date, for example 2026-01-31T12:00:00Z") from None
        if date.tzinfo is None:
            date = date.replace(tzinfo=UTC)
        try:
            return max(0, round(date.timestamp() * 1000))
        except (OverflowError, ValueError):
            raise ValueError("is out of the range of dates") from None
    return value


IdText = Annotated[str, AfterValidator(_id), Field(json_schema_extra={"pattern": "^[0-9a-f]{24}$"})]
"""An `_id` (DSP-1.2). Errors describe it in words."""

_Text = Annotated[str, Field(max_length=1024), AfterValidator(_clean)]
_Type = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_clean)]
_Host = Annotated[str, Field(min_length=1, max_length=253), AfterValidator(_host)]
_Port = Annotated[int, Field(ge=1, le=65_535, strict=True)]
_Date = Annotated[int, BeforeValidator(_milliseconds), Field(ge=0, le=_LATEST)]
_Run = Annotated[float | int, AfterValidator(_finite), WrapValidator(_number)]


class DocumentModel(BaseModel):
    """A document of a client. Fields that the schema does not have are kept only to be named."""

    model_config = ConfigDict(extra="allow")

    def known(self) -> dict[str, Any]:
        """Return the fields of the schema."""
        return self.model_dump(include=set(type(self).model_fields))


class _JobDispatcherModel(DocumentModel):
    """The part `dispatcher` of a job document."""

    expiry: _Date | None = Field(
        None,
        description="When the job should be dispatched; null for at once.",
        json_schema_extra={"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
    )


class _JobExecutionModel(DocumentModel):
    """The part `execution` of a job document."""

    timeout: Annotated[int, Field(ge=1, le=_YEARS, strict=True)] = Field(
        3_600_000, description="Milliseconds that an execution may take."
    )


class CallbackModel(DocumentModel):
    """The HTTP request at the end of a job."""

    hostname: _Host
    port: _Port = 80
    path: Annotated[str, Field(max_length=2048), AfterValidator(plain_text)] = "/"
    method: Literal["GET", "PUT", "POST", "DELETE"] = "POST"
    headers: Annotated[
        dict[
            Annotated[str, AfterValidator(_header_name)],
            Annotated[str, Field(max_length=4096), AfterValidator(plain_text)],
        ],
        AfterValidator(_end_to_end),
    ] = Field(default_factory=dict, max_length=50)


class JobModel(DocumentModel):
    """A job to create: the fields of the job document that a client sets."""

    type: _Type = Field(description="Type of the job: workers name the types that they know.")
    payload: Any = Field(default_factory=dict, description="Input of the job.")
    workflow: _Text | None = None
    run: _Run | None = None
    priority: Annotated[int, Field(ge=-(1 << 31), lt=1 << 31, strict=True)] = 0
    dispatcher: _JobDispatcherModel | None = None
    execution: _JobExecutionModel | None = None
    callback: CallbackModel | None = None


class WorkerModel(DocumentModel):
    """A worker that registers."""

    hostname: _Host
    port: _Port
    maxJobs: Annotated[int, Field(ge=1, le=100_000, strict=True)]
    handlers: dict[_Type, Any] = Field(
        default_factory=dict,
        max_length=1000,
        description="Its keys are the types of jobs that the worker knows.",
    )
    nonce: Annotated[str, Field(min_length=16, max_length=200)] | None = Field(
        None,
        description="Random text of the worker, which the worker confirms in a health check.",
    )


class ResignationModel(DocumentModel):
    """A worker that resigns, by the names with which it registered."""

    hostname: _Host
    port: _Port


class CompletionModel(DocumentModel):
    """The end of a job at its worker."""

    attempt: Annotated[int, Field(ge=1, lt=1 << 62, strict=True)]
    status: Literal["s", "f", "x"]
    result: Any = None
