"""The Lazy Pirate client as a machine: send, wait, send again on a new socket, give up.

With several servers it is the failover client of Freelance, or with ``settle`` the client of a
Binary Star: each try goes to the next server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from attrs import define, field

from wmp.actions import Reconnect
from wmp.foreign import Emit, EndRequest, ForeignAction, Frames
from wmp.gateways.common.body import MAX_FRAMES
from wmp.gateways.common.request_client import RequestClient
from wmp.gateways.common.request_lifecycle import TRANSITIONS, RequestInput, RequestState

_State = RequestState
_Input = RequestInput


@define(eq=False)
class LazyClientMachine(RequestClient):
    """Sans-I/O client, with a DEALER for each server. Requests go out one after the other.

    Args:
        timeout: Seconds of one try.
        tries: Sends of a request in all; None for no limit.
        servers: Number of servers. The first try goes to the server of the last reply, each
            further try to the next server (FREE-2.2).
        settle: Seconds between the end of a try and the next try (STAR-3.1).
    """

    timeout: float = 2.5
    tries: int | None = 3
    servers: int = 1
    settle: float = 0.0
    state: RequestState = field(default=_State.ENDED, init=False)
    """State of the first request of the queue, which is in progress."""
    _up: set[int] = field(factory=set, init=False)
    """The sockets that are connected, as far as known."""
    _server: int = field(default=0, init=False)
    """The socket of the try in progress, or of the last reply."""
    _try: int = field(default=0, init=False)
    _opens_at: float | None = field(default=None, init=False)
    """When the next try begins; None while no try waits for its time."""
    _ends_at: float = field(default=0.0, init=False)

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""
        if self._halted or self.state is _State.ENDED:
            return None
        return self._ends_at if self._opens_at is None else self._opens_at

    @property
    def attempt(self) -> int:
        """Return the number of the present try of the present request."""
        return self._try

    def _step(self, what: RequestInput) -> bool:
        """Change the state by the table; return whether the table has this change."""
        target = TRANSITIONS.get((self.state, what))
        if target is None:
            return False
        self.state = target
        return True

    def _begin(self, now: float, actions: list[ForeignAction]) -> None:
        if self._queue and self._step(_Input.REQUEST):
            self._begin_try(1, now, actions)

    def _arrived(self, port: int, frames: Frames, actions: list[ForeignAction]) -> None:
        # A REQ socket takes only messages that begin with an empty frame.
        if not 2 <= len(frames) <= MAX_FRAMES or frames[0]:
            actions.append(self._drop("invalid"))
        elif port != self._server or not self._step(_Input.REPLY):
            actions.append(self._drop("no request"))
        else:
            self._replies += 1
            actions.append(EndRequest(self._queue.popleft().id, frames[1:], self._try))

    def _connected(self, port: int, actions: list[ForeignAction]) -> None:
        self._up.add(port)
        self._send(actions)

    def _unsent(self, port: int) -> None:
        self._up.discard(port)
        if port == self._server:
            self._step(_Input.UNSENT)

    def _lost(self, port: int, now: float, actions: list[ForeignAction]) -> None:
        self._up.discard(port)
        if self.settle and port == self._server and self.state is _State.SENT:
            # STAR-3.1: no reply comes over this connection. The other node may notice the end a
            # moment later than this client.
            self._ends_at = min(self._ends_at, now + self.timeout / 4)

    def _begin_try(self, number: int, now: float, actions: list[ForeignAction]) -> None:
        self._try = number
        self._opens_at = now + self.settle if number > 1 and self.settle else None
        self._ends_at = now + self.timeout + (self.settle if number > 1 else 0.0)
        self._send(actions)

    def _send(self, actions: list[ForeignAction]) -> None:
        if self._opens_at is None and self._server in self._up and self._step(_Input.CONNECTED):
            self._resent += self._try > 1
            # PIRATE-2.1
            actions.append(Emit(self._server, b"", (b"", *self._queue[0].frames)))

    def _ticked(self, now: float, actions: list[ForeignAction]) -> None:
        if self.state is _State.ENDED:
            return
        if self._opens_at is not None and now >= self._opens_at:
            self._opens_at = None
            self._send(actions)
        if now < self._ends_at:
            return
        # The reply of an earlier try must not reach a later request, so the socket is replaced.
        self._replace(actions)
        self._server = (self._server + 1) % self.servers
        if self.tries is None or self._try < self.tries:
            self._step(_Input.TIMEOUT)
            self._begin_try(self._try + 1, now, actions)
            return
        self._step(_Input.SPENT)
        self._abandoned += 1
        actions.append(EndRequest(self._queue.popleft().id, None, self._try))

    def _replace(self, actions: list[ForeignAction]) -> None:
        self._up.discard(self._server)
        actions.append(Reconnect(self._server))

    def _withdraw(self, ids: Collection[int], actions: list[ForeignAction]) -> None:
        first = self._queue[0].id if self._queue else None
        self._queue = deque(request for request in self._queue if request.id not in ids)
        if first not in ids:
            return
        if self.state is _State.SENT:
            self._replace(actions)  # PIRATE-2.6
        self._step(_Input.WITHDRAW)
