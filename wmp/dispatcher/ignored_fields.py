"""Fields of requests that a schema does not have: ignored, named in the answer, and logged."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

from wmp.core.manager.unserved import listed
from wmp.dispatcher.descriptions import SCHEMAS
from wmp.dispatcher.http_parts import JsonAnswer
from wmp.dispatcher.models import DocumentModel
from wmp.message import printable

logger = logging.getLogger("wmp")

_SHOWN: Final = 8
"""Maximum number of fields that an answer names."""
_NAME: Final = 100
"""Characters of a name that are shown."""
_LINES: Final = 100
"""Maximum number of lines: clients that invent names cannot fill the log."""


class IgnoredFields:
    """Answers requests, and names the fields that were ignored (DSP-1.6).

    Each route and field is logged once.
    """

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def answer(
        self, route: str, model: DocumentModel, document: dict[str, Any], code: int = 200
    ) -> JsonAnswer:
        """Return the answer to a request.

        Args:
            route: Method and path, for the log.
            model: The body of the request.
            document: The body of the answer.
            code: The code of the answer.
        """
        ignored: list[str] = []
        for name, known in _unknown("", model, _SET[type(model).__name__]):
            if len(ignored) == _SHOWN:
                break
            ignored.append(name)
            line = f"{route}: the field {name} is ignored; known fields are {known}"
            if line not in self._logged and len(self._logged) < _LINES:
                self._logged.add(line)
                logger.warning("dispatcher: %s", line)
        return JsonAnswer({**document, "ignored": ignored} if ignored else document, code)


_SET: Final[Mapping[str, Mapping[str, Any]]] = {
    "JobModel": SCHEMAS["JobDocument"],
    "WorkerModel": SCHEMAS["WorkerDocument"],
    "ResignationModel": SCHEMAS["WorkerDocument"],
    "CompletionModel": {"properties": {}},
}
"""The fields that documents of clients may have although the dispatcher sets them (DSP-1.4)."""


def _unknown(
    prefix: str, model: DocumentModel, schema: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield each unknown field of a document, and the known ones, in words."""
    properties = schema["properties"]
    known = {*type(model).model_fields, *properties}
    for name in model.model_extra or ():
        if name not in known:
            names = listed(name, type(model).model_fields)
            yield printable(f"{prefix}{name[:_NAME]}"), names
    for name in type(model).model_fields:
        inner = getattr(model, name)
        if isinstance(inner, DocumentModel):
            yield from _unknown(f"{prefix}{name}.", inner, properties[name])
