"""The opponents of the kit: honest peers in three languages, with habits of their own.

The peers in JavaScript (tests/peers) speak every profile but those of a manager with a store. The
library is tested by its own adapter. The peers of ``examples/independent`` and
``examples/minimal`` were written from the specification alone.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from wmp.conformance.engine.check import cases_for
from wmp.conformance.engine.socket_plays import LiveTestee
from wmp.conformance.script.case import Case
from wmp.conformance.script.rules import PROFILES

ROOT = Path(__file__).resolve().parents[2]
_EXAMPLES = ROOT / "examples"
_PYTHON = shlex.quote(sys.executable)
_TESTEE = f"{_PYTHON} -m wmp.conformance.testees.testee"
_INDEPENDENT = f"{_PYTHON} {shlex.quote(str(_EXAMPLES / 'independent'))}"
_MINIMAL = f"{_PYTHON} {shlex.quote(str(_EXAMPLES / 'minimal'))}"
_STORELESS = frozenset(PROFILES) - {"successor"}


@frozen
class Opponent:
    """An honest peer.

    Args:
        kind: ``worker``, ``manager`` or ``device``.
        command: Its command line. ``{folder}`` becomes the folder of :func:`make_folder`.
        habits: Options of the command, of which each run takes one.
        profiles: The profiles of the peer.
    """

    kind: str
    command: str
    habits: tuple[str, ...] = ("",)
    profiles: frozenset[str] = frozenset(PROFILES)

    def live(self, folder: Path, habits: str = "", unit: int = 200) -> LiveTestee:
        """Return how the kit starts this peer."""
        command = f"{self.command} {habits}".strip().replace("{folder}", shlex.quote(str(folder)))
        return LiveTestee(self.kind, command, unit=unit)

    @property
    def cases(self) -> list[Case]:
        """The cases of the peer's profiles."""
        return cases_for(self.kind, self.profiles)


OPPONENTS: Mapping[str, Opponent] = {
    "worker": Opponent(
        "worker",
        "node {folder}/worker.mjs {endpoint} --slots {slots} --unit {unit}",
        ("", "--window 4 --often --list --late 0.2 --apart", "--window 2 --hold 2"),
    ),
    "manager": Opponent(
        "manager",
        "node {folder}/manager.mjs {endpoint} --connect={connect} --unit {unit}",
        ("", "--parts 1 --often"),
        _STORELESS,
    ),
    "device": Opponent(
        "device",
        "node {folder}/device.mjs {bind} --connect={connect} --managers={managers} --unit {unit}",
    ),
    "library-worker": Opponent(
        "worker", f"{_TESTEE} worker --connect {{endpoint}} --unit {{unit}} --slots {{slots}}"
    ),
    "library-manager": Opponent(
        "manager",
        f"{_TESTEE} manager --bind {{endpoint}} --connect '{{connect}}' --unit {{unit}}",
        profiles=_STORELESS,
    ),
    "library-device": Opponent(
        "device",
        f"{_TESTEE} device --bind {{bind}} --connect {{connect}} --managers {{managers}}"
        " --unit {unit}",
    ),
    "independent-worker": Opponent(
        "worker",
        f"{_INDEPENDENT}/worker.py {{endpoint}} --slots {{slots}} --unit {{unit}}",
        profiles=_STORELESS - {"held-give"},
    ),
    "independent-manager": Opponent(
        "manager",
        f"{_INDEPENDENT}/manager.py {{endpoint}} --unit {{unit}}",
        profiles=_STORELESS - {"dial-in", "times"},
    ),
    "c-worker": Opponent(
        "worker", "{folder}/worker {endpoint} {unit}", profiles=frozenset({"core"})
    ),
    "c-manager": Opponent(
        "manager", "{folder}/manager {endpoint} {unit}", profiles=frozenset({"core"})
    ),
    "minimal-worker": Opponent(
        "worker", f"{_MINIMAL}/worker.py {{endpoint}} {{unit}}", profiles=frozenset({"core"})
    ),
    "minimal-manager": Opponent(
        "manager", f"{_MINIMAL}/manager.py {{endpoint}} {{unit}}", profiles=frozenset({"core"})
    ),
}
"""The opponents by name. Those in JavaScript have the name of their kind."""


def make_folder(folder: Path) -> None:
    """Copy the peers in JavaScript, and the modules that they import, into one folder."""
    example = _EXAMPLES / "javascript"
    for path in (*(ROOT / "tests" / "peers").glob("*.mjs"), example / "messages.mjs"):
        shutil.copy(path, folder)
    shutil.copy(example / "node.mjs", folder)
    # The example imports the package zeromq. Here zmtp.mjs takes its place.
    package = folder / "node_modules" / "zeromq"
    package.mkdir(parents=True)
    about = {"name": "zeromq", "version": "0.0.0", "type": "module", "exports": "./index.mjs"}
    (package / "package.json").write_text(json.dumps(about))
    (package / "index.mjs").write_text('export { Dealer } from "../../zmtp.mjs";\n')


def build(folder: Path) -> None:
    """Build the peers in C in this folder.

    Raises:
        subprocess.CalledProcessError: The compiler reports an error.
        OSError: There is no compiler.
    """
    for name in ("worker", "manager"):
        source, program = str(_EXAMPLES / "minimal" / f"{name}.c"), str(folder / name)
        flags = ("-O1", "-Wall", "-Werror", "-Wno-unused-function")
        subprocess.run(["cc", *flags, "-o", program, source, "-lzmq"], check=True)
