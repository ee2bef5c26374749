"""Whether a file system is fit for a store: all processes must see one set of locks and memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from wmp.errors import ConfigError

_NETWORK: Final = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "drvfs", "fhgfs", "glusterfs", "gpfs"),
        *("lustre", "ncpfs", "nfs", "nfs4", "orangefs", "panfs", "prl_fs", "pvfs2", "smb3"),
        *("smbfs", "vboxsf", "vmhgfs", "fuse.cephfs", "fuse.glusterfs", "fuse.juicefs"),
        *("fuse.s3fs", "fuse.sshfs", "fuse.vmhgfs-fuse", "fuse.rclone", "fuse.gcsfuse", "gfs2"),
        *("ocfs2", "fuse.mount-s3", "fuse.davfs", "davfs", "fuse.lizardfs", "fuse.moosefs"),
    )
)
"""Types of file systems that several hosts share, as Linux names them."""

_MOUNTS: Final = Path("/proc/self/mountinfo")


def type_of(folder: Path, mounts: Path = _MOUNTS) -> str:
    """Return the type of the file system of a folder; empty if it is not known.

    Only Linux has such a list. The last mount of the longest path counts.
    """
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    wanted = os.path.realpath(folder)
    best, file_system = -1, ""
    for line in lines:
        fields = line.split(" ")
        if "-" not in fields or len(fields) < 7:
            continue
        point = _unescaped(fields[4])
        inside = wanted == point or wanted.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, file_system = len(point), fields[fields.index("-", 6) + 1]
    return file_system


def _unescaped(text: str) -> str:
    """Replace the escapes of mountinfo: space, tab, line feed and backslash as octal numbers."""
    for code in ("\\040", "\\011", "\\012"):
        text = text.replace(code, chr(int(code[1:], 8)))
    return text.replace("\\134", "\\")


def check_file_system(path: Path, mounts: Path = _MOUNTS) -> None:
    """Check that a store may be in a file.

    Raises:
        ConfigError: The file is in a file system that several hosts share.
    """
    if not sys.platform.startswith("linux"):
        return
    kind = type_of(path.parent, mounts)
    if kind in _NETWORK:
        raise ConfigError(
            f"the store {path} is in a file system of type {kind}, which several hosts can share; "
            "its file locks and its shared memory are not reliable, and jobs would be lost; put "
            "the store on a disk of this host"
        )
