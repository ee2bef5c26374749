"""CURVE keys, the allow list, and the rule that only local addresses are open without keys.

The allow list is a ZAP handler: libzmq asks the handler over an inproc socket whether a client with
a public key may connect. A context has only one ZAP handler, so two nodes with allow lists cannot
share a context.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import zmq
from attrs import field, frozen

from wmp.errors import ConfigError
from wmp.runtime.common.checks import check_private
from wmp.runtime.common.permissions import Act, Permission, PermissionHolder, read_permissions

_PEERS, _MANAGERS, _DOORS = b"wmp", b"wmp-managers", b"wmp-doors"
"""ZAP domains: of the ROUTER for all peers, of the ROUTER to which managers dial in, and of the
doors of a gateway."""

_DOMAINS: Final = {
    Act.CONNECT_WORKER: _PEERS,
    Act.CONNECT_MANAGER: _MANAGERS,
    Act.CONNECT_DOOR: _DOORS,
}

_KEY_LENGTH = 40
"""Characters of a CURVE key in Z85."""


def _key(value: str | bytes) -> bytes:
    key = value.encode("ascii", "replace") if isinstance(value, str) else bytes(value)
    if len(key) != _KEY_LENGTH:
        raise ConfigError(
            f"a CURVE key has {len(key)} characters; expected 40 characters of Z85; "
            "make a pair with Security.generate()"
        )
    return key


def _keys(values: Iterable[str | bytes] | None) -> frozenset[bytes] | None:
    if values is None:
        return None
    if isinstance(values, str | bytes):
        raise ConfigError(
            "allowed is one key; expected a collection of public keys, for example [key]"
        )
    return frozenset(map(_key, values))


def _permissions_of_keys(
    values: Mapping[str | bytes, Iterable[Permission]],
) -> Mapping[bytes, frozenset[Permission]]:
    return {_key(key): frozenset(permissions) for key, permissions in values.items()}


_PERMISSIONS: Final = re.compile(r'^\s*permissions\s*=\s*"([^"\n]*)"\s*$', re.MULTILINE)
"""The permissions in the metadata of a certificate."""


def _read_permissions(
    *folders: str | os.PathLike[str] | None,
) -> Mapping[str | bytes, Iterable[Permission]]:
    """Return the permissions of the keys in folders whose files name some.

    Raises:
        ConfigError: A file names another permission.
        OSError: A file cannot be read.
    """
    permissions: dict[str | bytes, Iterable[Permission]] = {}
    paths = [path for folder in folders if folder for path in Path(folder).glob("*.key")]
    for path in sorted(paths):
        named = _PERMISSIONS.search(path.read_text(encoding="utf-8"))
        if named is not None:
            public, _ = zmq.auth.load_certificate(path)
            permissions[public] = read_permissions(named[1], os.fspath(path))
    return permissions


def _optional_key(value: str | bytes | None) -> bytes | None:
    return None if value is None else _key(value)


@frozen(kw_only=True)
class Security:
    """CURVE keys of a node: its own keys, and the keys of trusted peers.

    A node with keys uses CURVE on every tcp and ipc endpoint, so either both ends have keys or
    neither has. inproc needs no keys, because it does not leave the process.

    A key is Z85 text of 40 characters, as ZeroMQ's own tools make it.
    """

    public_key: bytes = field(converter=_key)
    """This node's public key."""
    secret_key: bytes = field(converter=_key, repr=False)
    """This node's secret key; never logged."""
    server_key: bytes | None = field(default=None, converter=_optional_key)
    """Public key of the nodes to which this node connects (workers and devices need it)."""
    allowed: frozenset[bytes] | None = field(default=None, converter=_keys)
    """Public keys of the nodes that may connect.

    None: every node that has this node's public key may connect.
    """
    managers: frozenset[bytes] | None = field(default=None, converter=_keys)
    """Public keys of the managers that may dial in to a device.

    None: every node that has this node's public key may dial in. A device with ``allowed`` needs
    this list.
    """

    permissions: Mapping[bytes, frozenset[Permission]] = field(
        factory=dict, converter=_permissions_of_keys, hash=False
    )
    """What the holders of some keys may do; the holders of other keys may do everything.

    The table is in ``specs/security.md``.
    """

    def __attrs_post_init__(self) -> None:
        if not zmq.has("curve"):
            return  # a socket that uses the keys raises an error with the reason
        try:
            public = zmq.curve_public(self.secret_key)
        except (ValueError, zmq.ZMQError) as error:
            raise ConfigError(f"the secret key is not a Z85-encoded CURVE key: {error}") from error
        if public != self.public_key:
            raise ConfigError(
                "the public key does not belong to the secret key; "
                "make a pair with Security.generate(), or with: wmp keys NAME"
            )

    @classmethod
    def generate(
        cls,
        *,
        server_key: str | bytes | None = None,
        allowed: Iterable[str | bytes] | None = None,
        managers: Iterable[str | bytes] | None = None,
        permissions: Mapping[str | bytes, Iterable[Permission]] | None = None,
    ) -> Security:
        """Make a new pair of keys.

        Args:
            server_key: Public key of the nodes to connect to.
            allowed: Public keys of the peers that may connect.
            managers: Public keys of the managers that may dial in to a device.
            permissions: What the holders of some of these keys may do; default: everything.
        """
        _require_curve()
        public, secret = zmq.curve_keypair()
        return cls(
            public_key=public,
            secret_key=secret,
            server_key=server_key,
            allowed=allowed,
            managers=managers,
            permissions=permissions or {},
        )

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        server: str | os.PathLike[str] | None = None,
        allowed: str | os.PathLike[str] | None = None,
        managers: str | os.PathLike[str] | None = None,
    ) -> Security:
        """Read keys from certificate files in the format of ``zmq.auth``.

        Args:
            path: The node's own ``.key_secret`` file.
            server: The ``.key`` file of the nodes to connect to.
            allowed: A directory with the ``.key`` files of the peers that may connect.
            managers: A directory with the ``.key`` files of the managers that may dial in.

        Raises:
            ConfigError: A file is missing or contains no such key, other users can read the secret
                key, or the two keys of ``path`` do not belong together.
        """
        import zmq.auth  # only nodes with keys need it

        missing = "there is no file {}; make keys with: wmp keys NAME"
        if not os.path.exists(path):
            raise ConfigError(missing.format(os.fspath(path)))
        if server is not None and not os.path.exists(server):
            raise ConfigError(
                f"there is no file {os.fspath(server)}; copy the .key file of the server"
            )
        for folder, peers in (
            (allowed, "peers that may connect"),
            (managers, "managers that may dial in"),
        ):
            if folder is not None and not os.path.isdir(folder):
                raise ConfigError(
                    f"there is no folder {os.fspath(folder)}; expected a folder with the .key "
                    f"files of the {peers}"
                )
        try:
            public, secret = zmq.auth.load_certificate(os.fspath(path))
            server_key = zmq.auth.load_certificate(os.fspath(server))[0] if server else None
            keys = zmq.auth.load_certificates(os.fspath(allowed)) if allowed else None
            dialing = zmq.auth.load_certificates(os.fspath(managers)) if managers else None
            permissions = _read_permissions(allowed, managers)
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read CURVE keys: {error}") from error
        if secret is None:
            raise ConfigError(f"{os.fspath(path)} has no secret key; name the .key_secret file")
        check_private("the secret key", path)
        return cls(
            public_key=public,
            secret_key=secret,
            server_key=server_key,
            allowed=keys,
            managers=dialing,
            permissions=permissions,
        )

    @property
    def guarded(self) -> bool:
        """Whether a list names the peers that may connect or dial in."""
        return self.allowed is not None or self.managers is not None

    def serve(self, socket: zmq.Socket[bytes], act: Act = Act.CONNECT_WORKER) -> None:
        """Make a binding socket use CURVE. The :class:`Gate` decides which peers may connect.

        Args:
            socket: The socket.
            act: What a peer does by connecting.
        """
        _require_curve()
        socket.curve_secretkey = self.secret_key
        socket.curve_publickey = self.public_key
        socket.curve_server = True
        socket.zap_domain = _DOMAINS[act]

    def join(self, socket: zmq.Socket[bytes]) -> None:
        """Make a connecting socket use CURVE.

        Raises:
            ConfigError: ``server_key`` is not set.
        """
        _require_curve()
        if self.server_key is None:
            raise ConfigError(
                "security has no server_key: set it to the public key of the nodes to connect to"
            )
        socket.curve_secretkey = self.secret_key
        socket.curve_publickey = self.public_key
        socket.curve_serverkey = self.server_key


def _require_curve() -> None:
    if not zmq.has("curve"):
        raise ConfigError(
            "this libzmq was built without CURVE; install a pyzmq wheel or bind to loopback only"
        )


def is_local(endpoint: str) -> bool:
    """Return whether only this machine can reach ``endpoint`` (``tcp``, ``ipc`` or ``inproc``)."""
    if not endpoint.startswith("tcp://"):
        return True
    host = endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    import ipaddress  # addresses of this process alone need no parser

    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        # A name, a network interface or "*" may mean any address.
        return False


class Gate:
    """The ZAP handler of one node: it decides which peers may connect."""

    ENDPOINT = "inproc://zeromq.zap.01"

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], security: Security) -> None:
        """Bind the handler in ``context``.

        Raises:
            ConfigError: Another node holds the handler of this context.
        """
        self._allowed = {
            _PEERS: security.allowed,
            _MANAGERS: security.managers,
            _DOORS: security.allowed,
        }
        self._acts = {domain: act for act, domain in _DOMAINS.items()}
        self._holders = {
            key: PermissionHolder(key.decode(), permissions)
            for key, permissions in security.permissions.items()
        }
        self.refused = 0
        self.socket: zmq.Socket[bytes] = context.socket(zmq.REP)
        descriptor = self.socket.get(zmq.FD)
        assert isinstance(descriptor, int)
        self.descriptor = descriptor
        self.socket.linger = 0
        try:
            self.socket.bind(self.ENDPOINT)
        except zmq.ZMQError as error:
            self.socket.close()
            raise ConfigError(
                "another node of this zmq.Context already has an allow list; "
                "give each node with Security(allowed=...) its own context"
            ) from error

    def answer(self) -> None:
        """Answer all waiting questions of libzmq. Never blocks."""
        from zmq.utils import z85

        while True:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            # version, request id, domain, address, routing id, mechanism, credentials…
            request = frames[1] if len(frames) > 1 else b""
            key = z85.encode(frames[6]) if len(frames) > 6 and frames[6] else b""
            curve = len(frames) > 6 and frames[5] == b"CURVE"
            allowed = self._allowed.get(frames[2], frozenset()) if curve else frozenset()
            listed = curve and (allowed is None or key in allowed)
            holder, act = self._holders.get(key), self._acts.get(frames[2])
            admitted = listed and (holder is None or act is None or holder.may(act))
            reason = b"without the permission" if listed else b"not in the allow list"
            status = (b"200", b"OK") if admitted else (b"400", reason)
            self.refused += not admitted
            try:
                self.socket.send_multipart([b"1.0", request, *status, key, b""], zmq.NOBLOCK)
            except zmq.Again:
                return

    def close(self) -> None:
        """Release the context's handler."""
        self.socket.close(linger=0)
