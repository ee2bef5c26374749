"""The clients of Majordomo as machines: one request for each socket, or many on one socket."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from heapq import heappop, heappush
from typing import NamedTuple

from attrs import define, field

from wmp.actions import Reconnect
from wmp.core.protocol.timers import Timers
from wmp.foreign import Emit, EndRequest, ForeignAction, Frames, Requested
from wmp.gateways.common.request_client import RequestClient
from wmp.gateways.common.request_lifecycle import TRANSITIONS, RequestInput, RequestState
from wmp.gateways.majordomo.wire import read_reply, write_request

_State = RequestState
_Input = RequestInput


class _TryTimer(NamedTuple):
    """The try of a request ends."""

    port: int


@define(eq=False)
class _RequestSocket:
    port: int
    up: bool = False
    """Whether the socket is connected, as far as known."""
    state: RequestState = _State.ENDED
    request: Requested | None = None
    tries: int = 0


@define(eq=False)
class MajordomoClientMachine(RequestClient):
    """Sans-I/O client, on the DEALERs from number 0 on. Each has one request at a time.

    The frames of a request are the name of the service and the body. Only socket 0 is open at the
    start. The machine opens another one when all have a request.

    Args:
        timeout: Seconds of one try.
        tries: Sends of a request in all.
        sockets: Maximum number of sockets.
    """

    timeout: float = 2.5
    tries: int = 3
    sockets: int = 1
    _sockets: list[_RequestSocket] = field(factory=lambda: [_RequestSocket(0)], init=False)
    _free: list[int] = field(factory=lambda: [0], init=False)
    """Numbers of the sockets without a request, the lowest first."""
    _at: dict[int, _RequestSocket] = field(factory=dict, init=False)
    """The socket of each request in progress."""
    _timers: Timers[_TryTimer] = field(factory=Timers, init=False)

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""
        return None if self._halted else self._timers.next()

    @property
    def _busy(self) -> bool:
        return bool(self._at)

    def _step(self, socket: _RequestSocket, what: RequestInput) -> bool:
        """Change the state by the table; return whether the table has this change."""
        target = TRANSITIONS.get((socket.state, what))
        if target is None:
            return False
        socket.state = target
        return True

    def _begin(self, now: float, actions: list[ForeignAction]) -> None:
        """Give the waiting requests to free sockets, and open sockets for the others."""
        while self._queue:
            if not self._free:
                if len(self._sockets) >= self.sockets:
                    return
                socket = _RequestSocket(len(self._sockets))
                self._sockets.append(socket)
                actions.append(Reconnect(socket.port))
            else:
                socket = self._sockets[heappop(self._free)]
            request = self._queue.popleft()
            socket.request, socket.tries = request, 1
            self._at[request.id] = socket
            self._step(socket, _Input.REQUEST)
            self._timers.set(_TryTimer(socket.port), now + self.timeout)
            self._send(socket, actions)

    def _connected(self, port: int, actions: list[ForeignAction]) -> None:
        socket = self._sockets[port]
        if self._step(socket, _Input.UNSENT):
            # ZeroMQ connected the socket again, which may still hold the request. Sent twice, the
            # request could get two replies, and a later request the second one (MDP-6.6).
            self._resent += 1
            self._replace(socket, actions)
        else:
            socket.up = True
            self._send(socket, actions)

    def _send(self, socket: _RequestSocket, actions: list[ForeignAction]) -> None:
        request = socket.request
        if socket.up and request is not None and self._step(socket, _Input.CONNECTED):
            self._resent += socket.tries > 1
            frames = write_request(bytes(request.frames[0]), request.frames[1:])
            actions.append(Emit(socket.port, b"", frames))

    def _unsent(self, port: int) -> None:
        socket = self._sockets[port]
        socket.up = False
        self._step(socket, _Input.UNSENT)

    def _arrived(self, port: int, frames: Frames, actions: list[ForeignAction]) -> None:
        reply, socket = read_reply(frames), self._sockets[port]
        request = socket.request
        if reply is None:
            actions.append(self._drop("invalid"))
        elif request is None or socket.state is not _State.SENT:
            actions.append(self._drop("no request"))
        elif reply[0] != request.frames[0]:
            actions.append(self._drop("other service"))  # MDP-6.5
        else:
            self._step(socket, _Input.REPLY)
            self._replies += 1
            actions.append(EndRequest(request.id, reply[1], socket.tries))
            self._end(socket, request)

    def _end(self, socket: _RequestSocket, request: Requested) -> None:
        del self._at[request.id]
        socket.request = None
        self._timers.clear(_TryTimer(socket.port))
        heappush(self._free, socket.port)

    def _ticked(self, now: float, actions: list[ForeignAction]) -> None:
        for timer in self._timers.due(now):
            self._timed_out(self._sockets[timer.port], now, actions)

    def _timed_out(self, socket: _RequestSocket, now: float, actions: list[ForeignAction]) -> None:
        request = socket.request
        if request is None:
            return
        # The reply of an earlier try must not reach a later request, so the socket is replaced.
        self._replace(socket, actions)
        if socket.tries < self.tries:
            self._step(socket, _Input.TIMEOUT)
            socket.tries += 1
            self._timers.set(_TryTimer(socket.port), now + self.timeout)
            return
        self._step(socket, _Input.SPENT)
        self._abandoned += 1
        actions.append(EndRequest(request.id, None, socket.tries))
        self._end(socket, request)

    def _replace(self, socket: _RequestSocket, actions: list[ForeignAction]) -> None:
        socket.up = False
        actions.append(Reconnect(socket.port))

    def _withdraw(self, ids: Collection[int], actions: list[ForeignAction]) -> None:
        if any(request.id in ids for request in self._queue):
            self._queue = deque(request for request in self._queue if request.id not in ids)
        for id in ids:
            socket = self._at.get(id)
            if socket is None or socket.request is None:
                continue
            if socket.state is _State.SENT:
                self._replace(socket, actions)
            self._step(socket, _Input.WITHDRAW)
            self._end(socket, socket.request)
