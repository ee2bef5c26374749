"""Rules that bind a kind of testee and have no case, each with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["UNSEEN"]

_PIPES = (
    "a pipe is full only when high-water marks and the buffers of the system are, whose sizes the "
    "kit does not know; what a peer says about a connection that is gone is WMP-8.8 and 9.12"
)
_OPTIONS = "options of its own sockets; nothing on the wire shows them"
_NO_HANDLERS = "it runs no user code"
_UNREAD = "it does not read what follows the head (WMP-8.4)"
_OWN_AFFAIR = (
    "whether and when a worker hands back what waits is its own affair; what its manager makes of "
    "that is WMP-6.11"
)

UNSEEN: Final[Mapping[tuple[str, str], str]] = {
    ("manager", "WMP-1.6"): _PIPES,
    ("worker", "WMP-1.6"): _PIPES,
    ("manager", "WMP-1.7"): _OPTIONS,
    ("worker", "WMP-1.7"): _OPTIONS,
    ("device", "WMP-1.7"): _OPTIONS,
    ("manager", "WMP-9.5"): _NO_HANDLERS,
    ("device", "WMP-9.5"): _NO_HANDLERS,
    ("device", "WMP-2.8"): _UNREAD,
    ("device", "WMP-2.9"): _UNREAD,
    ("manager", "WMP-12.1"): _OPTIONS,
    ("worker", "WMP-6.18"): _OWN_AFFAIR,
    ("worker", "WMP-12.1"): _OPTIONS,
    ("device", "WMP-12.1"): _OPTIONS,
}
"""(kind of testee, rule) to the reason why it cannot be seen from outside."""
