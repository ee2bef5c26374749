"""The checks that a request passes before a dispatcher or an HTTP worker serves it (DSP-6)."""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

from starlette.requests import Request

from wmp.dispatcher.http_parts import BODY, JsonAnswer, refusal
from wmp.dispatcher.json_text import read_json
from wmp.dispatcher.peer_rates import PeerRates
from wmp.dispatcher.targets import network_address
from wmp.dispatcher.tokens import TokenTable
from wmp.errors import ConfigError
from wmp.message import printable
from wmp.runtime.common.permissions import (
    PERMITTED,
    Act,
    Permission,
    PermissionHolder,
    listed_permissions,
)

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]

HeadCheck = Callable[[Request], JsonAnswer | None]
"""Returns the refusal of a request by its head, or None."""

MAX_RATE: Final = 2_000
"""Requests of one network address in a second, unless a setting names another number."""
BODY_TIME: Final = 30.0
"""Seconds that a client has to send a body."""
_HEALTH: Final = "/healthz"
"""The path that passes every check: probes know neither a token nor the name of the server."""
_SAME_SITE: Final = ("same-origin", "none")
"""Values of ``Sec-Fetch-Site`` of requests that no page of another server has caused."""
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/?#@\[\]]+)(?::\d{1,5})?")
_NAME: Final = re.compile(r"[0-9a-zA-Z_]([-0-9a-zA-Z_.]*[0-9a-zA-Z_])?\.?")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(host: str) -> _Address | None:
    """Return the IP address that a host is, with or without brackets; None for a name."""
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _host_key(host: str) -> _Address | str:
    """Return the value by which two spellings of one host are equal."""
    return _address(host) or host.lower().removesuffix(".")


def check_host_name(host: str, flag: str) -> str:
    """Return the host of a flag.

    Raises:
        ConfigError: The text is neither a name nor an address.
    """
    if _address(host) is None and not _NAME.fullmatch(host):
        raise ConfigError(
            f"{flag} is {host!r}; expected a name or an address without scheme and port, for "
            "example jobs.example.com"
        )
    return host


class HostCheck:
    """Refuses requests to a name that is not the server's (DSP-6.10).

    The browser of a developer lets a page of evil.example read from this server when the name
    evil.example begins to lead to 127.0.0.1; ``Host`` shows the name. Starlette's
    ``TrustedHostMiddleware`` compares texts, so it cannot allow all addresses of loopback or the
    address at which a connection arrived, and its answer does not name the host.

    Args:
        hosts: Names and addresses of the server besides those of loopback.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = {"localhost", *map(_host_key, hosts)}

    def __call__(self, request: Request) -> JsonAnswer | None:
        """Return the refusal of a request, or None."""
        hosts = request.headers.getlist("host")
        parts = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if parts is not None and self._serves(parts[1], request.scope.get("server")):
            return None
        seen = " and ".join(repr(printable(host[:100])) for host in hosts[:2]) or "missing"
        named = parts is not None and _NAME.fullmatch(parts[1])
        name = parts[1][:100] if parts is not None and named else "HOST"
        return refusal(
            403,
            f"the header Host is {seen}; expected a name or an address of this server; if this "
            f"name is right, start the server with --allow-host {name}",
            "Host",
        )

    def _serves(self, host: str, server: tuple[str, int | None] | None) -> bool:
        if _host_key(host) in self._hosts:
            return True
        address = _address(host)
        if address is None:
            return False
        # No name leads to a page of this host, so a page of this address is the server's own.
        here = None if server is None else _address(server[0].partition("%")[0])
        return address.is_loopback or address == here


def check_site(request: Request) -> JsonAnswer | None:
    """Return the refusal of a request that a page of another server caused, or None (DSP-6.11)."""
    for site in request.headers.getlist("sec-fetch-site"):
        if site not in _SAME_SITE:
            return refusal(
                403,
                f"a web page of another server sent this request (Sec-Fetch-Site is "
                f"{printable(site[:20])!r}); expected a program, or a page of this server",
                "Sec-Fetch-Site",
            )
    host = request.headers.get("host", "").lower()
    for origin in request.headers.getlist("origin"):
        scheme, _, authority = origin.lower().partition("://")
        if not authority or authority != host.removesuffix(_DEFAULT_PORTS.get(scheme, "/")):
            return refusal(
                403,
                f"a web page of {printable(origin[:100])!r} sent this request (Origin); expected a "
                f"program, or a page of {printable(host[:100])!r}, which is Host; a proxy must "
                "pass on the header Host",
                "Origin",
            )
    return None


def check_content_type(request: Request) -> JsonAnswer | None:
    """Return the refusal of a body that is not declared as JSON, or None (DSP-6.12).

    A browser sends ``text/plain``, forms and a body without a type to any server, and asks before
    it sends ``application/json``.
    """
    headers = request.headers
    if "transfer-encoding" not in headers and not headers.get("content-length", "0").strip("0"):
        return None
    kinds = headers.getlist("content-type")
    from_browser = "origin" in headers or "sec-fetch-site" in headers
    if not kinds and not from_browser:
        return None  # Programs that the design knows send no type; every browser sends Origin.
    if kinds and all(
        kind.partition(";")[0].strip().lower() == "application/json" for kind in kinds
    ):
        return None
    seen = " and ".join(repr(printable(kind[:100])) for kind in kinds[:2]) or "missing"
    return refusal(
        415,
        f"the header Content-Type is {seen}; expected application/json (with curl: -H "
        "'Content-Type: application/json')",
        "Content-Type",
    )


class RateCheck:
    """Refuses requests of a network address above a rate (DSP-6.14).

    Args:
        rate: Requests in a second.
    """

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._rates = PeerRates(rate)

    def __call__(self, request: Request) -> JsonAnswer | None:
        """Return the refusal of a request, or None."""
        client = None if request.client is None else request.client.host
        address = network_address(client) or ""
        if self._rates.take(address):
            return None
        answer = refusal(
            429, f"{address or 'this client'} sends more than {self._rate} requests a second"
        )
        answer.headers["Retry-After"] = "1"
        return answer


HOLDER: Final = "wmp.holder"
"""Key of the scope of a request: the holder of its token."""


class TokenCheck:
    """Refuses requests without a bearer token (DSP-6.6).

    Args:
        tokens: The tokens; None if requests need none.
    """

    def __init__(self, tokens: TokenTable | None) -> None:
        self._tokens = tokens

    def __call__(self, request: Request) -> JsonAnswer | None:
        """Return the refusal of a request, or None."""
        if self._tokens is None:
            return None
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            holder = self._tokens.holder(token.strip().encode("latin-1"))
            if holder is not None:
                request.scope[HOLDER] = holder
                return None
        text = "the header Authorization: Bearer TOKEN is missing, or the token is wrong"
        return refusal(401, text, "Authorization")


class PermissionCheck:
    """Refuses requests that the holder of the token may not send (DSP-12.2).

    Args:
        act_of: Returns what a request does, by its method and path.
    """

    def __init__(self, act_of: Callable[[str, str], Act]) -> None:
        self._act_of = act_of

    def __call__(self, request: Request) -> JsonAnswer | None:
        """Return the refusal of a request, or None."""
        holder: PermissionHolder | None = request.scope.get(HOLDER)
        act = self._act_of(request.scope["method"], request.scope["path"])
        if holder is None or holder.may(act):
            return None
        needed = listed_permissions({*PERMITTED[act], Permission.ADMIN})
        return refusal(
            403,
            f"the token {holder.name!r} may not {act}: it has the permissions "
            f"{listed_permissions(holder.permissions)}; expected one of {needed}",
            "Authorization",
        )


class GuardedApp:
    """Checks the head of each request, then reads a limited body (DSP-6.3), then calls the app.

    Args:
        app: The application.
        max_body: Maximum number of bytes of a body.
        token: The bearer token, or a table of tokens; None for none.
        hosts: Names and addresses of the server besides those of loopback.
        act_of: Returns what a request does; None if each token permits every request.
        max_rate: Requests of one network address in a second.
    """

    def __init__(
        self,
        app: _App,
        *,
        max_body: int,
        token: str | TokenTable | None,
        hosts: Iterable[str] = (),
        act_of: Callable[[str, str], Act] | None = None,
        max_rate: int = MAX_RATE,
    ) -> None:
        self._app = app
        self._max_body = max_body
        self._checks: tuple[HeadCheck, ...] = (
            RateCheck(max_rate),
            HostCheck(hosts),
            check_site,
            check_content_type,
            TokenCheck(TokenTable.of(token)),
            *(() if act_of is None else (PermissionCheck(act_of),)),
        )

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._check_head(scope)
        if answer is not None:
            await answer(scope, receive, send)
            return
        headers = dict(scope["headers"])
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
        if body:
            try:
                # The application takes the value: no body is parsed twice, nor by another reader.
                scope = {**scope, BODY: read_json(bytes(body))}
            except ValueError as error:
                await refusal(400, f"the body is not JSON: {error}")(scope, receive, send)
                return
        # A body without a type is JSON, too.
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

    def _check_head(self, scope: _Scope) -> JsonAnswer | None:
        """Return the first refusal of a request; None if it passes."""
        if scope["path"] == _HEALTH:
            return None
        request = Request(scope)
        answers = (check(request) for check in self._checks)
        return next((answer for answer in answers if answer is not None), None)
