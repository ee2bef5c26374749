"""The driver's end of the conversation between a fleet and its members."""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import zmq

from wmp.errors import ConfigError
from wmp.spark.fleet.table import Beat, Order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FleetControl:
    """A socket that takes the reports of members and answers with orders.

    Only processes that know the token are answered. Where libzmq has CURVE, the reports are
    encrypted with keys of this object alone.

    Args:
        endpoint: ``tcp://HOST`` or ``tcp://HOST:PORT``: where members connect.
        bind: Host on which the socket is bound.

    Raises:
        ConfigError: The endpoint cannot be bound.
    """

    def __init__(self, endpoint: str, bind: str | None = None) -> None:
        where = urlsplit(endpoint)
        if where.scheme != "tcp" or not where.hostname:
            raise ConfigError(
                f"control is {endpoint!r}; expected tcp://HOST or tcp://HOST:PORT, an address of "
                "this host that the executors reach"
            )
        self.token = secrets.token_hex(16)
        self.server_key: bytes | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        if zmq.has("curve"):
            self.server_key, self._socket.curve_secretkey = zmq.curve_keypair()
            self._socket.curve_server = True
        host = bind or where.hostname
        try:
            self._socket.bind(f"tcp://{socket.gethostbyname(host)}:{where.port or '*'}")
        except (OSError, zmq.ZMQError) as error:
            self.close()
            raise ConfigError(
                f"cannot bind {endpoint} for the reports of the fleet ({error}); set control= to "
                "tcp://HOST or tcp://HOST:PORT, an address of this host that the executors reach"
            ) from error
        port = bytes(self._socket.getsockopt(zmq.LAST_ENDPOINT)).decode()
        port = port.rstrip("\0").rpartition(":")[2]
        self.endpoint = f"tcp://{where.hostname}:{port}"

    def answer(self, timeout: float, order: Callable[[Beat], Order]) -> None:
        """Answer all reports that arrived within ``timeout`` seconds.

        Args:
            timeout: Seconds.
            order: Returns the answer to a report.
        """
        if not self._socket.poll(int(timeout * 1000)):
            return
        while self._socket.poll(0):
            route, *frames = self._socket.recv_multipart()
            beat = self._read(frames)
            if beat is not None:
                self._socket.send_multipart([route, order(beat).value.encode()])

    def _read(self, frames: list[bytes]) -> Beat | None:
        """Return the report in a message; None for a message of a stranger."""
        try:
            row: dict[str, Any] = json.loads(frames[-1])
            if not secrets.compare_digest(str(row.pop("token")), self.token):
                return None
            return Beat(**row)
        except (ValueError, LookupError, TypeError, AttributeError):
            return None

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._socket.close()
        self._context.term()


def own_address(spark: SparkSession) -> tuple[str, str | None]:
    """Return the endpoint of this host for executors, and the host to bind if that differs.

    A classic session knows the address that its executors use. A client of Spark Connect uses the
    address from which it reaches the server.
    """
    if hasattr(spark, "_jsparkSession"):
        conf = spark.sparkContext.getConf()
        host = conf.get("spark.driver.host") or "127.0.0.1"
        bind = conf.get("spark.driver.bindAddress")
        return f"tcp://{host}", bind
    server = str(getattr(spark.client, "host", "localhost"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((server, 9))  # sends nothing
            return f"tcp://{probe.getsockname()[0]}", None
        except OSError:
            return "tcp://127.0.0.1", None
