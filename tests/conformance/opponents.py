"""The opponents of the kit: honest peers in JavaScript, with habits of their own (tests/peers)."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

from wmp.conformance.engine.socket_plays import LiveTestee

ROOT = Path(__file__).resolve().parents[2]
_COMMANDS = {
    "worker": "worker.mjs {endpoint} --slots {slots} --unit {unit}",
    "manager": "manager.mjs {endpoint} --unit {unit}",
    "device": "device.mjs {bind} {connect}",
}
HABITS: dict[str, tuple[str, ...]] = {
    "worker": ("", "--window 4 --often --list --late 0.2 --apart", "--window 2 --hold 2"),
    "manager": ("", "--parts 1 --often"),
    "device": ("",),
}
"""The habits of each opponent, as options of its program."""


def make_folder(folder: Path) -> None:
    """Copy the peers, and the modules that they import, into one folder."""
    example = ROOT / "examples" / "javascript"
    for path in (*(ROOT / "tests" / "peers").glob("*.mjs"), example / "messages.mjs"):
        shutil.copy(path, folder)
    shutil.copy(example / "node.mjs", folder)
    # The example imports the package zeromq. Here zmtp.mjs takes its place.
    package = folder / "node_modules" / "zeromq"
    package.mkdir(parents=True)
    about = {"name": "zeromq", "version": "0.0.0", "type": "module", "exports": "./index.mjs"}
    (package / "package.json").write_text(json.dumps(about))
    (package / "index.mjs").write_text('export { Dealer } from "../../zmtp.mjs";\n')


def opponent(folder: Path, kind: str, habits: str, unit: int = 200) -> LiveTestee:
    """Return the live testee for an opponent."""
    program, _, rest = f"{_COMMANDS[kind]} {habits}".strip().partition(" ")
    return LiveTestee(kind, f"node {shlex.quote(str(folder / program))} {rest}", unit=unit)
