"""Requests to programs that may be slow, broken or hostile: answers have a size and a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import httpx
from attrs import frozen

from wmp.dispatcher.json_text import read_json
from wmp.duration import Duration, in_seconds
from wmp.message import printable

_CONNECTIONS: Final = 256
_KEPT: Final = 2.0
"""Seconds for which an idle connection is kept.

Many servers close theirs after 5 s. A job that is sent at this moment gets no answer, and would
wait for the checks that show whether the job arrived.
"""
MAX_ANSWER: Final = 1 << 20
"""Bytes of an answer that are read, unless the caller wants more."""
_NEVER_SENT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.InvalidURL,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
)


class RequestFailed(Exception):
    """A request has no answer.

    Attributes:
        sent: Whether the request may have arrived.
    """

    def __init__(self, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent


@frozen
class BoundedAnswer:
    """The answer to a request."""

    code: int
    body: bytes
    whole: bool
    """Whether the body ended within the limit."""

    @property
    def good(self) -> bool:
        """Whether the code is one of success; a redirection is none, and is not followed."""
        return 200 <= self.code < 300

    @property
    def text(self) -> str:
        """Start of the body, for people."""
        return printable(self.body[:200].decode("utf-8", "replace"))

    def json(self) -> Any:
        """Return the value of the body.

        Raises:
            ValueError: The body is not JSON, or is too long.
        """
        if not self.whole:
            raise ValueError(f"the answer has more than {len(self.body)} bytes")
        return read_json(self.body)


class BoundedClient:
    """Sends requests, and reads answers within limits.

    Args:
        timeout: Seconds to connect, and between two parts of an answer. A whole request has twice
            this time.
        token: Bearer token to send.
        transport: Carries the requests; for tests.
        whole: Seconds of a whole request, if not twice ``timeout``.
    """

    def __init__(
        self,
        timeout: Duration,
        token: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        whole: Duration | None = None,
    ) -> None:
        # A compressed answer could be a thousand times as long as what was received.
        headers = {"Accept-Encoding": "identity"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        seconds = in_seconds(timeout)
        self._whole = 2 * seconds if whole is None else in_seconds(whole)
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=seconds,
            limits=httpx.Limits(
                max_connections=_CONNECTIONS,
                max_keepalive_connections=_CONNECTIONS,
                keepalive_expiry=_KEPT,
            ),
            # Another program could learn the token by a redirection.
            follow_redirects=False,
            trust_env=False,
            transport=transport,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def ask(
        self,
        method: str,
        url: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        maximum: int = MAX_ANSWER,
    ) -> BoundedAnswer:
        """Send a request; return the answer.

        Args:
            method: The method.
            url: The address.
            content: The body.
            headers: Further headers.
            maximum: Bytes of the answer that are read.

        Raises:
            RequestFailed: No answer came in time, or what came is not HTTP.
        """
        try:
            async with (
                asyncio.timeout(self._whole),
                self._client.stream(method, url, content=content, headers=headers) as answer,
            ):
                body = bytearray()
                async for part in answer.aiter_raw():
                    body += part
                    if len(body) > maximum:
                        return BoundedAnswer(answer.status_code, bytes(body[:maximum]), whole=False)
                return BoundedAnswer(answer.status_code, bytes(body), whole=True)
        except _NEVER_SENT as error:
            raise RequestFailed(f"{type(error).__name__}: {error}", sent=False) from error
        except TimeoutError as error:
            text = f"no whole answer came in {self._whole:g} s"
            raise RequestFailed(text, sent=True) from error
        except Exception as error:
            raise RequestFailed(f"{type(error).__name__}: {error}", sent=True) from error
