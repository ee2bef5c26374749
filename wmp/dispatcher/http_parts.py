"""What dispatchers and HTTP workers share as servers: errors, routes and addresses (DSP-6)."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.routing import Match

from wmp.core.manager.unserved import listed
from wmp.dispatcher.json_text import write_json
from wmp.errors import ConfigError

_PLACES: Final = ("body", "query", "path", "header", "[key]")
"""Parts of the place of an error that are not names of fields."""


class JsonAnswer(JSONResponse):
    """An answer in JSON that any value which was read can be written as."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return write_json(content)


def refusal(code: int, text: str, field: str | None = None) -> JsonAnswer:
    """Return the answer to a request that is wrong (DSP-6.2)."""
    headers = {"WWW-Authenticate": "Bearer"} if code == 401 else None
    return JsonAnswer({"error": text, "field": field}, code, headers)


async def refuse(request: Request, error: Exception) -> Response:
    """Answer an exception of the framework."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        keys = [str(key) for key in first["loc"] if key not in _PLACES]
        name = ".".join(keys) or str(first["loc"][-1])
        text = first["msg"].removeprefix("Value error, ")
        if first["type"] not in ("missing", "value_error"):
            text += f"; found {_shown(first['input'])}"
        return refusal(400, f"{name}: {text}", name)
    if isinstance(error, HTTPException):
        answer = refusal(error.status_code, _detail(request, error))
        answer.headers.update(error.headers or {})
        return answer
    raise error


def _shown(value: Any) -> str:
    """Return a value that was found, for an error."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = write_json(value).decode()
    return text if len(text) <= 50 else f"{text[:50]}…"


def _detail(request: Request, error: HTTPException) -> str:
    """Return the text of an error; the framework's own texts do not name the path."""
    path, routes = request.url.path, request.app.routes
    if error.status_code == 405:
        path_routes = [
            route for route in routes if route.matches(request.scope)[0] is Match.PARTIAL
        ]
        allowed = " or ".join(sorted({name for route in path_routes for name in route.methods}))
        return f"{path} has no method {request.method}; expected {allowed}"
    if error.status_code == 404 and error.detail == "Not Found":
        with_slash = any(route.path == f"{path}/" for route in routes)
        return f"there is no path {path}" + (f"; expected {path}/" if with_slash else "")
    return str(error.detail)


BODY: Final = "wmp.body"
"""Key of the scope of a request: the value of its body, which was read strictly."""


class _StrictRequest(Request):
    """Has the value of the body that the guard has read: other readers accept more than JSON."""

    async def json(self) -> Any:
        if BODY not in self.scope:
            raise HTTPException(400, "the body is not JSON: it is empty")
        return self.scope[BODY]


class StrictRoute(APIRoute):
    """A route whose JSON is read strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler."""
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict


class KnownQueryRoute(StrictRoute):
    """A route that refuses query parameters which it does not have (DSP-6.8)."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler."""
        handle = super().get_route_handler()
        names = [parameter.alias for parameter in self.dependant.query_params]

        async def known(request: Request) -> Response:
            for name in request.query_params:
                if name not in names:
                    text = f"{name}: {request.method} {request.url.path} has no such parameter"
                    expected = listed(name, names) if names else "none"
                    return refusal(400, f"{text}; expected {expected}", name)
            return await handle(request)

        return known


def split_address(text: str, flag: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT.

    Raises:
        ConfigError: The text has another form.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"{flag} is {text!r}; expected HOST:PORT, for example 127.0.0.1:8081")
    return host, int(port)


def check_open(host: str, token: object, flag: str) -> None:
    """Check that a server beyond loopback has a token (DSP-6.6).

    Raises:
        ConfigError: It has none.
    """
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if not local and not token:
        raise ConfigError(
            f"{flag} {host} can be reached from other hosts; give a token with --token-file, or "
            "listen on 127.0.0.1"
        )
