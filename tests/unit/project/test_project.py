"""Rules of the project: names, imports, sizes of files, errors."""

from __future__ import annotations

import ast
import configparser
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import ROOT, house_files
from tests.waiting import RUN
from wmp import errors

PACKAGE = ROOT / "wmp"

SANS_IO = ("core", "codec", "message", "events", "actions", "balance", "foreign")
"""Modules without sockets, clocks and threads, as in the contracts of setup.cfg."""

NEEDED = {"rows": "pyarrow", "spark": "pyspark"}
"""Packages of `wmp` that need a library of an extra of the same name, each with that library."""

MAX_LINES = 660


def lists_its_names(path: Path) -> bool:
    """Return whether a file is one from which users import, so that it lists its public names.

    These are the modules directly in ``wmp``, and the packages that import names. All other modules
    are internal: a reader sees their names at once, and a list would only repeat them.
    """
    if path.name == "__init__.py":
        tree = ast.parse(path.read_text(encoding="utf-8"))
        return any(isinstance(node, ast.Assign | ast.AnnAssign) for node in tree.body)
    return path.parent == PACKAGE or path == PACKAGE / "gateways" / "aio.py"


FILES = [path for path in house_files(".py", PACKAGE) if path.name != "__main__.py"]


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def names_made(path: Path) -> set[str]:
    """Return the public names bound at the top of a module; an ``__init__`` only imports names."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Assign():
                names.update(
                    name.id
                    for target in node.targets
                    for name in ast.walk(target)
                    if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
                )
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.ImportFrom() if path.name == "__init__.py" and node.module != "__future__":
                names.update(alias.asname or alias.name for alias in node.names)
    # Every module may have a `logger` of its own under this name.
    return {name for name in names if not name.startswith("_") and name != "logger"}


def sort_key(name: str) -> tuple[int, str]:
    """Return the key by which ruff sorts ``__all__``: constants, then classes, then functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def extra_of(path: Path) -> str:
    """Return the extra without which a module cannot be imported; empty for the core install."""
    package = dotted(path).split(".")[1:2]
    return package[0] if package and package[0] in NEEDED else ""


@pytest.mark.parametrize("extra", ["", *NEEDED], ids=lambda extra: extra or "core")
def test_exports_are_sorted_and_complete(extra):
    if extra:
        pytest.importorskip(NEEDED[extra], reason=f"the extra `{extra}` is not installed")
    files = [path for path in FILES if lists_its_names(path) and extra_of(path) == extra]
    assert files
    wrong = []
    for path in files:
        name = dotted(path)
        module = importlib.import_module(name)
        listed = list(getattr(module, "__all__", ()))
        # The top level adds the errors, which are sorted in their own module.
        own = [export for export in listed if name != "wmp" or export not in errors.__all__]
        if own != sorted(set(own), key=sort_key):
            wrong.append(f"{name}: __all__ is not sorted")
        if unlisted := names_made(path) - set(listed):
            wrong.append(f"{name}: __all__ does not list the public names {sorted(unlisted)}")
        if missing := [export for export in listed if not hasattr(module, export)]:
            wrong.append(f"{name}: __all__ lists names that are not there: {missing}")
    assert not wrong, "\n".join(wrong)


def test_internal_modules_list_no_names():
    internal = [path for path in FILES if not lists_its_names(path)]
    assert internal
    listing = [
        dotted(path) for path in internal if "\n__all__ =" in path.read_text(encoding="utf-8")
    ]
    assert not listing, f"remove __all__ from {listing}: only public modules list their names"


def drawn_tree(text: str) -> Iterator[tuple[str, str | None, set[str]]]:
    """Yield (name, parent, names in brackets) for each line of a drawn tree."""
    stack: list[tuple[int, str]] = []
    for line in text.splitlines():
        if not (match := re.match(r"[ │├└─]*(?=[A-Z])([A-Z]\w+)(?:  +(.*))?$", line)):
            continue
        column = line.index(match[1])
        while stack and stack[-1][0] >= column:
            stack.pop()
        brackets = re.findall(r"\((\w+)\)", match[2] or "")
        yield match[1], (stack[-1][1] if stack else None), set(brackets)
        stack.append((column, match[1]))


def test_the_tree_of_errors_is_drawn_as_it_is():
    tree = list(drawn_tree((errors.__doc__ or "").partition("::")[2]))

    assert errors.__all__ == sorted(name for name, _, _ in tree)
    for name, parent, brackets in tree:
        error = getattr(errors, name)
        bases = {base.__name__ for base in error.__bases__}
        builtins = bases - set(errors.__all__) - {"Exception"}

        assert bases - builtins == {parent or "Exception"}, name
        assert builtins == brackets - {"abstract"}, name


def test_every_error_class_has_a_docstring():
    for name in errors.__all__:
        assert inspect.getdoc(getattr(errors, name)), name


def test_every_arrow_runs_down():
    process = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN,
    )

    assert process.returncode == 0, process.stdout + process.stderr


BARE = """
import builtins, importlib, sys, types

# Without wmp/__init__.py, which exports the API and so the runtime.
package = types.ModuleType("wmp")
package.__path__ = [{package!r}]
sys.modules["wmp"] = package

BLOCKED = {{"asyncio", "logging", "os", "random", "socket", "threading", "time", "zmq"}}
real = builtins.__import__

def guarded(name, globals=None, locals=None, fromlist=(), level=0):
    # Only what our own modules ask for: the standard library reads clocks as it likes.
    if (globals or {{}}).get("__name__", "").startswith("wmp") and name.split(".")[0] in BLOCKED:
        raise ImportError(f"{{globals['__name__']}} imports {{name}}")
    return real(name, globals, locals, fromlist, level)

builtins.__import__ = guarded
for name in {modules!r}:
    importlib.import_module(name)
loaded = {{"asyncio", "zmq"}} & sys.modules.keys()
sys.exit(f"{{loaded}} got loaded" if loaded else 0)
"""


def test_the_core_imports_with_io_blocked():
    modules = [name for name in map(dotted, FILES) if name != "wmp" and is_sans_io(name)]
    script = BARE.format(package=str(PACKAGE), modules=modules)

    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=RUN
    )

    assert process.returncode == 0, process.stderr
    assert "wmp.core.protocol.settings" in modules


def is_sans_io(module: str) -> bool:
    return module.split(".")[1] in SANS_IO or module in sans_io_modules_of_gateways()


IO_MODULE = re.compile(
    r"(aio(_\w+)?|blocking|doors?|majordomo_door|requester|backlog|control|star_guard|requests|"
    r"remember|__init__)"
)
"""Names of the modules in folders of `wmp/gateways` that do I/O or use a module that does."""


def sans_io_modules_of_gateways() -> set[str]:
    """Return the modules of gateways that the contract `sansio` of setup.cfg lists."""
    contracts = configparser.ConfigParser()
    contracts.read_string((ROOT / "setup.cfg").read_text(encoding="utf-8"))
    listed = contracts["importlinter:contract:sansio"]["source_modules"].split()
    return {module for module in listed if module.startswith("wmp.gateways.")}


def test_the_machines_of_gateways_are_listed_as_sans_io():
    machines = {
        dotted(path)
        for path in FILES
        if path.parent.parent == PACKAGE / "gateways" and not IO_MODULE.fullmatch(path.stem)
    }

    assert "wmp.gateways.gateway.machine" in machines
    assert sans_io_modules_of_gateways() == machines


def test_the_gateway_knows_no_protocol():
    folder = PACKAGE / "gateways" / "gateway"
    imported = {
        (path.name, node.module)
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("wmp.gateways")
    }
    known = ("wmp.gateways.common.", "wmp.gateways.gateway")

    assert ("aio.py", "wmp.gateways.gateway.door") in imported
    assert not [entry for entry in imported if not entry[1].startswith(known)]


def test_no_file_outgrows_its_noun():
    sizes = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in house_files(".py")
    }
    long = {name: lines for name, lines in sizes.items() if lines > MAX_LINES}

    assert "wmp/__init__.py" in sizes
    assert not long, f"files with two nouns: {long}"


# Homes and workplaces of people and of build machines. A socket below /tmp is an address. A name
# below /tmp that begins with wmp- stands for a folder of the reader.
MACHINE_PATH = re.compile(
    r"(?<![\w.:/*])(?<!ipc://)/(?:home|root|tmp(?!/wmp-)|Users|work|workspace|builds)/\w"
)


def test_no_path_of_a_machine_is_written_down():
    lines = []
    for path in house_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if MACHINE_PATH.search(line):
                lines.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")

    assert not lines, "\n".join(lines)


def test_a_path_of_a_machine_would_be_seen():
    assert MACHINE_PATH.search("see " + "/".join(["", "home", "me", "notes"]))
    assert not MACHINE_PATH.search("bind ipc:///tmp/wmp.sock, or /run/wmp.sock")
    assert not MACHINE_PATH.search("wmp demo --journal /tmp/wmp-journal")
    assert MACHINE_PATH.search("written to " + "/".join(["", "tmp", "wm", "notes"]))
