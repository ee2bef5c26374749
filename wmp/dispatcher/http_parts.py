"""What the servers of dispatchers and of HTTP workers share: bodies, errors and tokens (DSP-6)."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, Final

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.routing import Match

from wmp.core.manager.unserved import listed
from wmp.dispatcher.json_text import read_json, write_json
from wmp.errors import ConfigError

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


_PLACES: Final = ("body", "query", "path", "header", "[key]")
"""Parts of the place of an error that are no names of fields."""

BODY_TIME: Final = 30.0
"""Seconds that a client has to send a body."""


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
        place = [str(one) for one in first["loc"] if one not in _PLACES]
        name = ".".join(place) or str(first["loc"][-1])
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
        found = [one for one in routes if one.matches(request.scope)[0] is Match.PARTIAL]
        allowed = " or ".join(sorted({name for one in found for name in one.methods}))
        return f"{path} has no method {request.method}; expected {allowed}"
    if error.status_code == 404 and error.detail == "Not Found":
        with_slash = any(one.path == f"{path}/" for one in routes)
        return f"there is no path {path}" + (f"; expected {path}/" if with_slash else "")
    return str(error.detail)


class _StrictRequest(Request):
    """Reads JSON strictly: what Python reads beyond JSON could not be written again."""

    async def json(self) -> Any:
        body = await self.body()
        try:
            return read_json(body)
        except ValueError as error:
            raise HTTPException(400, f"the body is no JSON: {error}") from error


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
        names = [one.alias for one in self.dependant.query_params]

        async def known(request: Request) -> Response:
            for name in request.query_params:
                if name not in names:
                    text = f"{name}: {request.method} {request.url.path} has no such parameter"
                    expected = listed(name, names) if names else "none"
                    return refusal(400, f"{text}; expected {expected}", name)
            return await handle(request)

        return known


class GuardedApp:
    """Limits bodies (DSP-6.3) and asks for the token (DSP-6.6), before the application.

    Args:
        app: The application.
        max_body: Largest number of bytes of a body.
        token: The bearer token; None for none.
        open_paths: Paths that need no token.
    """

    def __init__(
        self, app: _App, *, max_body: int, token: str | None, open_paths: tuple[str, ...] = ()
    ) -> None:
        self._app = app
        self._max_body = max_body
        self._token = None if token is None else token.encode()
        self._open_paths = open_paths

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if not self._has_token(scope, headers):
            text = "the header Authorization: Bearer TOKEN is missing, or the token is wrong"
            await refusal(401, text, "Authorization")(scope, receive, send)
            return
        length = headers.get(b"content-length", b"0")
        body = bytearray()
        if not length.isdigit() or int(length) <= self._max_body:
            try:
                async with asyncio.timeout(BODY_TIME):
                    while len(body) <= self._max_body:
                        message = await receive()
                        if message["type"] == "http.disconnect":
                            return
                        body += message.get("body", b"")
                        if not message.get("more_body", False):
                            break
            except TimeoutError:
                text = f"the body did not end within {BODY_TIME:g} s"
                await refusal(408, text)(scope, receive, send)
                return
        if len(body) > self._max_body or (length.isdigit() and int(length) > self._max_body):
            text = f"the body has more than {self._max_body} bytes"
            await refusal(413, text)(scope, receive, send)
            return
        # A body is JSON, also from a client that names another type or none, as curl does.
        plain = [pair for pair in scope["headers"] if pair[0] != b"content-type"]
        scope = {**scope, "headers": [*plain, (b"content-type", b"application/json")]}
        given = False

        async def replay() -> MutableMapping[str, Any]:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self._app(scope, replay, send)

    def _has_token(self, scope: _Scope, headers: dict[bytes, bytes]) -> bool:
        if self._token is None or scope["path"] in self._open_paths:
            return True
        kind, _, token = headers.get(b"authorization", b"").partition(b" ")
        return kind.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)


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


def check_open(host: str, token: str | None, flag: str) -> None:
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
