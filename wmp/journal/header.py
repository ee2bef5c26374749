"""The node that writes a journal, and the first line of each of its segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii as quote
from typing import Any, Final

from attrs import asdict, field, frozen

from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.journal.json_fragments import array_of_texts, object_of
from wmp.journal.schema import VERSION, name_of_peer

_KINDS: Final = {ManagerSettings: "manager", WorkerSettings: "worker", DeviceSettings: "device"}


@frozen(kw_only=True)
class JournalHeader:
    """The node that writes a journal, as its ``start`` lines describe it."""

    kind: str
    """``manager``, ``worker`` or ``device``."""
    identity: bytes
    epoch: int
    label: str = ""
    roles: Sequence[str] = ()
    """Roles of a worker; empty for other nodes."""
    resources: Mapping[str, int] | None = None
    """Resources of a worker; empty for other nodes."""
    settings: Mapping[str, float] = field(factory=dict)
    """The machine's numeric settings."""
    endpoints: Sequence[str] = ()
    host: str | None = None
    pid: int | None = None
    release: str | None = None

    @classmethod
    def of(
        cls, settings: ManagerSettings | WorkerSettings | DeviceSettings, **more: Any
    ) -> JournalHeader:
        """Return the header of a node with these settings.

        ``more`` has other fields of this class.
        """
        numbers = {
            name: value
            for name, value in asdict(settings, recurse=False).items()
            if isinstance(value, int | float) and name not in ("epoch", "beat_key")
        }
        if isinstance(settings, WorkerSettings):
            more |= {"roles": settings.roles, "resources": settings.resources}
        return cls(
            kind=_KINDS[type(settings)],
            identity=settings.identity,
            epoch=settings.epoch,
            label=settings.label,
            settings=numbers,
            **more,
        )

    def start(self, segment: int, at: int, wall: int) -> str:
        """Return the first line of a segment.

        Its number is 0, because a segment may begin between any two lines.
        """
        text = (
            f'"kind":{quote(self.kind)},"segment":{segment},"settings":{object_of(self.settings)}'
        )
        for name in ("label", "host", "release"):
            if value := getattr(self, name):
                text += f',"{name}":{quote(value)}'
        if self.pid is not None:
            text += f',"pid":{self.pid}'
        if self.roles:
            text += f',"roles":{array_of_texts(self.roles)}'
        if self.resources is not None:
            text += f',"resources":{object_of(self.resources)}'
        if self.endpoints:
            text += f',"endpoints":{array_of_texts(self.endpoints)}'
        return f'{self.begin}0,"step":0,"at":{at},"wall":{wall},"what":"start",{text}}}'

    @property
    def begin(self) -> str:
        """Return the beginning of each line, up to its number."""
        node = quote(name_of_peer(self.identity))
        return f'{{"v":{VERSION},"node":{node},"epoch":{self.epoch},"n":'
