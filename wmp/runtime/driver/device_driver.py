"""The driver of a device to which managers dial in: a second ROUTER, for the peers above.

The first ROUTER and the DEALERs belong to :class:`~wmp.runtime.driver.driver.Driver`. The
connections of both ROUTERs have budgets of their own, so a flood on one side does not use up the
budgets of the other side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import zmq

from wmp import codec
from wmp.actions import Drop
from wmp.errors import DecodeError
from wmp.events import Disconnected, Garbled, Received
from wmp.message import Frame
from wmp.runtime.driver.driver import Driver, Machine
from wmp.runtime.driver.inbox import Inbox
from wmp.runtime.driver.refusals import Refusals
from wmp.runtime.driver.throttle import Throttle
from wmp.runtime.sockets.dialed_connections import DialedConnections
from wmp.runtime.sockets.identity_holders import IdentityHolders, taken
from wmp.runtime.sockets.ports import Port

_BATCH: Final = 256
"""Maximum number of messages of the upper ROUTER in a turn."""

_CHOSEN: Final = (
    "a manager that dials in chose a routing id; leave the routing id of its DEALER to ZeroMQ"
)


class DeviceDriver(Driver):
    """Runs a device's machine with an upper ROUTER; see :class:`~wmp.runtime.driver.driver.Driver`.

    Args:
        machine: The device.
        inbox: Events for the device.
        ports: The first ROUTER and the DEALERs.
        above: The upper ROUTER.
        others: Arguments of the driver.
    """

    def __init__(
        self, machine: Machine, inbox: Inbox, ports: Sequence[Port], *, above: Port, **others: Any
    ) -> None:
        dealers = sum(port.index is not None for port in ports)
        self._above = above
        self._dialed = DialedConnections(above, dealers)
        super().__init__(machine, inbox, ports, dialed=self._dialed, **others)
        transport = self._transport
        self._sockets.add_door(above)
        self._sockets.report_ends(above, self._manager_parted, lambda: None)
        self._upper_throttle = Throttle(transport.max_chatter, transport.max_refused)
        self._upper_refusals = Refusals(
            self._upper_throttle, self.counters, self._clock, lambda seconds: None
        )
        self._upper_holders = IdentityHolders() if self._gate is not None else None
        self._managers_parted: list[bytes] = []
        """Routing ids whose connections ended, until the upper ROUTER was found empty."""

    def _take_received(self) -> None:
        readable = self._sockets.readable
        waits = self._above in readable
        if waits:
            del readable[self._above]
        if readable:
            super()._take_received()
        if waits and self.running:
            self._take_from_managers()

    def _take_from_managers(self) -> None:
        """Receive the messages of the managers that dialed in, and the ends of connections."""
        port, now = self._above, self._clock()
        ignored = self._upper_throttle.ignored(now)
        for count in range(_BATCH):
            if count == 1 and not port.readable():
                self._send_queue.touched.pop(port, None)
                break
            frames: list[Frame] | None = None
            try:
                frames = port.receive(heads=True, ignored=ignored)
            except zmq.Again:
                pass
            except zmq.ZMQError as error:
                self._count("transport", f"cannot receive on {port.name}: {error}")
            if port.skipped:
                skipped, port.skipped = port.skipped, 0
                self._upper_refusals.skipped(skipped, now)
            if frames is None:
                break
            if frames:
                self._take_from_manager(bytes(frames.pop(0)), frames)
            if not self.running:
                return
        else:
            self._sockets.readable[port] = None
            return
        parted, self._managers_parted = self._managers_parted, []
        for routing_id in parted:
            self._upper_throttle.forget(routing_id)
            link = self._dialed.link(routing_id)
            if link is not None:
                self._feed(Disconnected(link))

    def _take_from_manager(self, routing_id: bytes, frames: list[Frame]) -> None:
        """Give the machine one message of the upper ROUTER, unless a budget refuses it."""
        connections, now = self._above.connections, self._now
        throttle, refusals = self._upper_throttle, self._upper_refusals
        link = self._dialed.link(routing_id)
        if link is None:
            self.counters.count("routing id", _CHOSEN, now, alarming=True)
            if connections is not None:
                connections.close(routing_id, "routing id", _CHOSEN)
            return
        try:
            message = codec.peek(frames)
        except DecodeError as error:
            if connections is not None and not connections.spoil(routing_id):
                throttle.ignore(routing_id, now)
            if refusals.garbled(routing_id, error, now):
                self._feed(Garbled(link, error))
            return
        if not throttle.admits(routing_id, message.command, message.source, now):
            refusals.flooded(routing_id, message, now)
            return
        holders = self._upper_holders
        if holders is None or holders.admits(
            self._above.user(routing_id), routing_id, message.source, now
        ):
            self._feed(Received(link, message))
            return
        stolen = taken(message)
        if refusals.garbled(routing_id, stolen, now) and holders.is_other_process(message.source):
            self._feed(Garbled(link, stolen))

    def _manager_parted(self, routing_id: bytes, garbled: bool) -> None:
        # Last messages of the connection may still wait in the socket. They are received first.
        if self._upper_holders is not None:
            self._upper_holders.forget(routing_id)
        if garbled:
            self._upper_throttle.ignore(routing_id, self._clock())
        self._managers_parted.append(routing_id)
        self._sockets.readable[self._above] = None
        self._inbox.schedule()

    def _dropped(self, drop: Drop) -> None:
        super()._dropped(drop)
        if isinstance(drop.link, int) and drop.message is not None:
            routing_id = self._dialed.routing_id(drop.link)
            if routing_id is not None:
                hops = drop.message.hops
                self._upper_refusals.refused(routing_id, hops, drop.reason, self._now)
