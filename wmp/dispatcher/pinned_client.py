"""Requests to targets that clients named: only to the address that was checked (DSP-11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from wmp.dispatcher.http_client import MAX_ANSWER, BoundedAnswer, BoundedClient, RequestFailed
from wmp.dispatcher.records import CallbackRecord, WorkerRecord, http_url
from wmp.dispatcher.targets import TargetRefused, Targets, loopback_host, read_address
from wmp.dispatcher.tokens import TokenTable

DEPTH_HEADER: Final = "Wmp-Depth"
"""Header of a callback: how many callbacks led to the request (DSP-7.4)."""


@frozen
class PinnedTarget:
    """A host and a port, with the address that the host had when a client named it."""

    hostname: str
    port: int
    address: str | None
    token: str | None = None
    """Name of the token with which the worker registered."""
    host: str | None = None
    """The host whose loopback the address is."""

    @classmethod
    def of(cls, record: WorkerRecord | CallbackRecord) -> PinnedTarget:
        """Return the target of a worker or of a callback."""
        token = record.token if isinstance(record, WorkerRecord) else None
        return cls(record.hostname, record.port, record.address, token, record.host)

    @property
    def url(self) -> str:
        """URL of the target, for people."""
        return http_url(self.hostname, self.port)


class PinnedClient:
    """Sends requests to the addresses of targets.

    Args:
        client: Sends the requests.
        targets: Checks the addresses.
        tokens: The tokens of the workers, of which each gets its own (DSP-12.3); None for none.
    """

    def __init__(
        self, client: BoundedClient, targets: Targets, tokens: TokenTable | None = None
    ) -> None:
        self._client = client
        self._targets = targets
        self._tokens = tokens

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def ask(
        self,
        method: str,
        target: PinnedTarget,
        path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        maximum: int = MAX_ANSWER,
    ) -> BoundedAnswer:
        """Send a request; return the answer.

        Args:
            method: The method.
            target: The target.
            path: The path, which begins with a slash.
            content: The body.
            headers: Further headers.
            maximum: Bytes of the answer that are read.

        Raises:
            RequestFailed: The target is refused, no answer came in time, or what came is not HTTP.
        """
        try:
            address = await self._address(target)
        except TargetRefused as error:
            raise RequestFailed(f"{target.url} is refused: {error}", sent=False) from error
        # The server knows itself by its name.
        head = {**(headers or {}), "Host": target.url.removeprefix("http://")}
        token = None if self._tokens is None else self._tokens.token_of(target.token)
        if token is not None:
            head["Authorization"] = f"Bearer {token}"
        url = http_url(address, target.port) + path
        return await self._client.ask(method, url, content, head, maximum=maximum)

    async def _address(self, target: PinnedTarget) -> str:
        """Return the address of a target, checked.

        Raises:
            TargetRefused: No request is sent to the address.
        """
        address = target.address
        if address is None and read_address(target.hostname) is not None:
            address = target.hostname  # it was registered by an earlier version
        if address is None:
            return await self._targets.pin(target.hostname, target.port, None)
        self._targets.check(address, target.port)
        if target.host not in (None, loopback_host(address)):
            raise TargetRefused(f"it is an address of loopback, and that of {target.host}")
        return address
