"""Only ``wmp.aio`` uses the private attributes of a manager for asyncio."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

from wmp import aio

PACKAGE: Final = Path(aio.__file__).parents[1]

MACHINES: Final = PACKAGE / "testing" / "state"
"""In this folder a manager is the machine, whose whole state is printed and compared."""

RECEIVERS: Final = {"manager", "_manager", "inner", "_inner"}
"""Names that the library gives to a manager for asyncio."""


def private_names() -> set[str]:
    """Return the private attributes that ``wmp.aio.Manager`` and its bases assign or define."""
    names = {name for name in dir(aio.Manager) if name.startswith("_")}
    for module in ("manager.py", "node.py"):
        tree = ast.parse((PACKAGE / "aio" / module).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    names.add(name)
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


PRIVATE: Final = private_names()


def uses(source: str) -> list[str]:
    """Return the places in a module that reach into a manager for asyncio."""
    privates = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(
                value=ast.Name(id=receiver) | ast.Attribute(attr=receiver), attr=name
            ) if receiver in RECEIVERS and name in PRIVATE:
                privates.append(f"line {node.lineno}: {receiver}.{name}")
    return privates


def test_the_names_are_those_of_the_manager() -> None:
    assert {"_store", "_node", "_machine", "_wait_until_free"} <= PRIVATE


@pytest.mark.parametrize(
    "source", ["inner._unserved.start()", "self._manager._inner._node.stop()", "manager._store"]
)
def test_the_scan_finds_a_use(source: str) -> None:
    assert uses(source)


def test_no_package_but_aio_uses_the_privates_of_a_manager() -> None:
    privates = [
        f"{path.relative_to(PACKAGE)}, {use}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.parent not in (PACKAGE / "aio", MACHINES)
        for use in uses(path.read_text(encoding="utf-8"))
    ]

    assert not privates, "\n".join(["these lines reach past Manager.intake:", *privates])
