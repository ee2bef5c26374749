"""The driver of a gateway: WMP sockets, ROUTERs of other protocols, and one machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Protocol

from wmp.events import Disconnected, Garbled, Received, Undelivered
from wmp.foreign import Arrived, Emit, Left, RepliesArrived, Settled, Unsent
from wmp.runtime.driver.driver import Driver, Machine
from wmp.runtime.driver.foreign_driver import ForeignDriver
from wmp.runtime.driver.inbox import Event
from wmp.runtime.sockets.ports import Port

_SETTLED: Final = Settled()
_REPLIES_ARRIVED: Final = RepliesArrived()


class _MachineWithReplies(Machine, Protocol):
    @property
    def has_replies(self) -> bool:
        """Whether ``RepliesArrived`` would let workers begin further jobs."""


class GatewayDriver(ForeignDriver):
    """Runs the machine of a gateway; see :class:`~wmp.runtime.driver.driver.Driver`.

    The ROUTER and the DEALERs speak WMP. Each door has a ROUTER of its own.

    Args:
        doors: ROUTERs of the doors, by their numbers.
        others: Arguments of the driver.
    """

    from_peers: ClassVar[tuple[type[Event], ...]] = (
        RepliesArrived,
        Arrived,
        Unsent,
        Left,
        Settled,
        Received,
        Garbled,
        Undelivered,
    )
    others: ClassVar[str] = "the manager at "
    router_is_foreign: ClassVar[bool] = False

    def __init__(
        self, machine: _MachineWithReplies, *args: Any, doors: Sequence[Port], **others: Any
    ) -> None:
        super().__init__(machine, *args, **others)
        self._gateway = machine
        self._doors = tuple(doors)
        self._numbers = {port: number for number, port in enumerate(doors)}
        for port, number in self._numbers.items():
            self._sockets.add_door(port)
            self._report_ends(port, number)

    def _take_posted(self) -> None:
        Driver._take_posted(self)

    def _take_received(self) -> None:
        readable, numbers = self._sockets.readable, self._numbers
        raw = [(port, numbers[port]) for port in readable if port in numbers]
        for port, _ in raw:
            del readable[port]
        if readable:
            Driver._take_received(self)
        if raw:
            self._take_raw(raw)

    def _settle(self) -> None:
        if self._gateway.has_replies:
            self._feed(_REPLIES_ARRIVED)
        self._feed(_SETTLED)

    def _part(self, routing_id: bytes) -> None:
        self._throttle.forget(routing_id)
        self._feed(Disconnected(routing_id))

    def _port_of(self, action: Emit) -> Port | None:
        return self._doors[action.port]
