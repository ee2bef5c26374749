"""What a worker shows at its registration, and what a registration leads to (DSP-10)."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from typing import Final

from attrs import field, frozen

from wmp.dispatcher.records import WorkerRecord

SECRET_HEADER: Final = "Wmp-Worker-Secret"
"""Header with the secret of a registration."""
NONCE_HEADER: Final = "Wmp-Nonce"
"""Header of a health check with the digest of the nonce of a registration."""


def secret_digest(secret: str) -> str:
    """Return what the store keeps of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def is_same_address(first: str | None, second: str | None) -> bool:
    """Return whether two addresses of workers lead to one host; all of loopback do."""
    if first is None or second is None:
        return False
    return first == second or all(
        ipaddress.ip_address(address).is_loopback for address in (first, second)
    )


def shows_secret(worker: WorkerRecord, secret: str | None, *, required: bool) -> bool:
    """Return whether a request comes from the holder of a registration (DSP-10.2).

    Args:
        worker: The entry.
        secret: The secret that the request carries.
        required: Whether the dispatcher accepts no worker without a secret. Otherwise a request may
            leave the secret out until the worker has shown it once.
    """
    if secret is None:
        return not required and not worker.shown
    if worker.secret is None:
        return not required
    return hmac.compare_digest(secret_digest(secret), worker.secret)


@frozen
class Registrant:
    """Who registers a worker, and from where."""

    address: str | None = None
    """The address of the worker, resolved once; None for the hostname as it is."""
    host: str | None = None
    """The host whose loopback the address is; None for an address of the network."""
    peer: str | None = None
    """The network address from which the request came."""
    trusted: bool = True
    """Whether the request carried a token, so that the worker need not prove itself (DSP-3.16)."""
    token: str | None = None
    """Name of the token."""
    secret: str | None = field(default=None, repr=False)
    """The secret that the request carries."""
    required: bool = False
    """Whether workers without a secret are refused."""
    confirmed: bool = False
    """Whether the worker at the address has confirmed this registration (DSP-10.3)."""
    new: str | None = field(default=None, repr=False)
    """The secret of a new registration; None for a worker without a secret, in tests."""


@frozen
class Registered:
    """The answer to a registration."""

    worker: WorkerRecord | None
    """None: the registration is refused."""
    secret: str | None = field(default=None, repr=False)
    """The secret of the registration."""
    taken: bool = False
    """Whether another registration of the same hostname and port is alive."""
    full: str | None = None
    """Why there is no place for the registration."""
