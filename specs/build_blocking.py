"""Write the classes of the blocking API from those for asyncio.

``python specs/build_blocking.py`` writes the modules, ``--check`` exits 1 when one is stale.

Each class for asyncio that has sockets gets a twin of the same name, with the same methods,
parameters and docstrings. A twin of ``wmp/gateways/NAME/aio*.py`` is in
``wmp/gateways/NAME/blocking.py``, a twin of ``wmp/aio/NAME.py`` in ``wmp/blocking/NAME.py``.
``wmp/blocking/node.py`` contains what the twins share. The docstring of a module is not generated:
it is written in the module, and stays there. In the twins of ``BY_HAND`` only the docstrings are
generated.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import functools
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from wmp import aio
from wmp.aio.node import AsyncPart
from wmp.gateways import aio as gateways

ROOT = Path(__file__).parents[1]

BY_HAND: dict[type, frozenset[str]] = {
    aio.Manager: frozenset(),
    aio.Job: frozenset(("add_status_callback", "status", "stored")),
}
"""Classes whose blocking form is more than a twin, because blocking jobs are futures of another
kind. Only docstrings are written: those of the named methods, or of the class and all methods."""

_PROTOCOLS = {"PairNode": ("wmp.blocking.manager", "BlockingPairNode")}
"""Module and name of the blocking form of each protocol that parameters may have."""

_WIDTH = 100
_SHARED = "wmp.aio.node"
"""The module whose classes have their twins in ``wmp.blocking.node``, which is not generated."""

_ADAPTIONS = (
    (r"\bwmp\.gateways\.aio\.", "wmp.gateways."),
    (r"\bwmp\.aio\.(?=[A-Z])", "wmp."),
    (r"\basync with\b", "with"),
    (r"``await ", "``"),
    # The white space between the words stays, so that no line grows too long.
    (
        r"\bCall(\s+)this(\s+)method(\s+)on(\s+)the(\s+)loop\b",
        r"Any\1thread\2may\3call\4this\5method",
    ),
    # Callbacks of jobs run on a thread of their own there.
    (r"called(\s+)on(\s+)the(\s+)loop(?=\s+at\s+every\s+report)", r"called\1on\2a\3thread"),
    (r"(``on_status``\s+is\s+called\s+on)(\s+)the(\s+)loop", r"\1\2a\3thread"),
    (r"\bcontextlib\.aclosing\b", "contextlib.closing"),
    (r", an iterable or an async iterable; iterated on the loop\.", ", an iterable."),
)
"""What differs between the docstrings of both APIs."""


def adapted(docstring: str) -> str:
    """Return the docstring of the blocking API for one of the API for asyncio."""
    for pattern, replacement in _ADAPTIONS:
        docstring = re.sub(pattern, replacement, docstring)
    return docstring


def public_classes() -> dict[str, type[AsyncPart]]:
    """Return the public classes that have sockets, by name."""
    members = [getattr(api, name) for api in (aio, gateways) for name in api.__all__]
    return {
        member.__name__: member
        for member in members
        if inspect.isclass(member) and issubclass(member, AsyncPart)
    }


PUBLIC = public_classes()


def home(cls: type) -> str:
    """Return the module of the twin of a class."""
    package, _, module = cls.__module__.rpartition(".")
    return f"wmp.blocking.{module}" if package == "wmp.aio" else f"{package}.blocking"


def twin(cls: type) -> str:
    """Return the name of the twin of a class."""
    return cls.__name__ if cls.__name__ in PUBLIC else f"Blocking{cls.__name__.lstrip('_')}"


def bases(cls: type) -> list[type[AsyncPart]]:
    """Return the direct bases that have twins."""
    return [base for base in cls.__bases__ if issubclass(base, AsyncPart)]


def modules() -> dict[str, list[type[AsyncPart]]]:
    """Return the classes whose twins are generated, by the module of the twins."""
    classes = {
        base
        for cls in PUBLIC.values()
        if cls not in BY_HAND
        for base in cls.__mro__
        if issubclass(base, AsyncPart) and base.__module__ != _SHARED
    }
    by_module: dict[str, list[type[AsyncPart]]] = defaultdict(list)
    for cls in sorted(classes, key=lambda cls: (cls.__module__, _Source(cls).node.lineno)):
        by_module[home(cls)].append(cls)
    return dict(sorted(by_module.items()))


def path_of(module: str) -> Path:
    """Return the file of a module."""
    return ROOT / (module.replace(".", "/") + ".py")


@functools.cache
def _parsed(path: Path) -> tuple[str, ast.Module]:
    text = path.read_text(encoding="utf-8")
    return text, ast.parse(text)


class _Source:
    """The text of a class for asyncio."""

    def __init__(self, cls: type) -> None:
        self.module = cls.__module__
        text, tree = _parsed(path_of(cls.__module__))
        self._lines = text.encode().splitlines(keepends=True)  # columns of nodes count bytes
        self.node = next(
            node
            for node in tree.body
            if isinstance(node, ast.ClassDef) and node.name == cls.__name__
        )
        self.imports: dict[str, str] = {}
        """The module of each name that the module of the class imports."""
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                self.imports |= {
                    alias.name: node.module for alias in node.names if not alias.asname
                }
            elif isinstance(node, ast.Import):
                self.imports |= {alias.name: "" for alias in node.names if not alias.asname}

    def __getitem__(self, node: ast.expr | ast.stmt) -> str:
        assert node.end_lineno is not None
        lines = self._lines[node.lineno - 1 : node.end_lineno]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"".join(lines).decode()

    def docstring(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        if ast.get_docstring(node) is None:
            raise ValueError(f"{self.node.name}.{node.name} has no docstring; expected one")
        return adapted(self[node.body[0]])


class _Parameters:
    """The parameters of a method: how they are declared, and how they are passed on."""

    def __init__(
        self, source: _Source, function: ast.FunctionDef | ast.AsyncFunctionDef, imports: _Imports
    ) -> None:
        arguments = function.args
        self.declared = ["self"]
        self.passed: list[str] = []
        plain = arguments.args[1:]
        defaults = [None] * (len(plain) - len(arguments.defaults)) + [*arguments.defaults]
        for argument, default in zip(plain, defaults, strict=True):
            self._add(source, imports, argument, default, "")
        if arguments.vararg:
            self._add(source, imports, arguments.vararg, None, "*")
        elif arguments.kwonlyargs:
            self.declared.append("*")
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            self._add(source, imports, argument, default, f"{argument.arg}=")
        if arguments.kwarg:
            self._add(source, imports, arguments.kwarg, None, "**")
        self.returned = "" if function.returns is None else source[function.returns]
        imports.add_names(source, function.returns)

    def _add(
        self,
        source: _Source,
        imports: _Imports,
        argument: ast.arg,
        default: ast.expr | None,
        sign: str,
    ) -> None:
        stars = sign if sign.startswith("*") else ""
        assert argument.annotation is not None
        annotation = source[argument.annotation]
        for name, (_, blocking) in _PROTOCOLS.items():
            annotation = re.sub(rf"\b{name}\b", blocking, annotation)
        text = f"{stars}{argument.arg}: {annotation}"
        self.declared.append(text if default is None else f"{text} = {source[default]}")
        imports.add_names(source, argument.annotation, default)
        value = argument.arg
        names = {n.id for n in ast.walk(argument.annotation) if isinstance(n, ast.Name)}
        if names & (PUBLIC.keys() | _PROTOCOLS.keys()):
            optional = "None" in annotation
            value = f"{value}._inner"
            value = f"None if {argument.arg} is None else {value}" if optional else value
        self.passed.append(f"{sign}{value}")


class _Imports:
    """The imports of a generated module."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._names: dict[str, set[str]] = defaultdict(set)

    def add(self, module: str, name: str) -> None:
        if module != self._module:
            self._names[module].add(name)

    def add_names(self, source: _Source, *nodes: ast.AST | None) -> None:
        """Import the names of annotations and defaults, as the module for asyncio does."""
        for node in (part for top in nodes if top is not None for part in ast.walk(top)):
            if not isinstance(node, ast.Name) or hasattr(builtins, node.id):
                continue
            if node.id in PUBLIC:
                self.add(home(PUBLIC[node.id]), node.id)
            elif node.id in _PROTOCOLS:
                self.add(*_PROTOCOLS[node.id])
            else:
                self.add(source.imports.get(node.id, source.module), node.id)

    def reference(self, cls: type) -> str:
        """Import a class for asyncio; return its name in the generated module."""
        package, _, module = cls.__module__.rpartition(".")
        if cls.__name__ not in PUBLIC:
            self.add(cls.__module__, cls.__name__)
            return cls.__name__
        if package == "wmp.aio":
            package, module = "wmp", "aio"
        self.add(package, module)
        return f"{module}.{cls.__name__}"

    def lines(self) -> Iterator[str]:
        yield from ("from __future__ import annotations", "")
        library = sorted(module for module in self._names if module.split(".")[0] != "wmp")
        own = sorted(module for module in self._names if module.split(".")[0] == "wmp")
        for section in filter(None, (library, own)):
            for module in section:
                yield from self._line(module)
            yield ""

    def _line(self, module: str) -> Iterator[str]:
        names = sorted(self._names[module], key=lambda name: (_rank(name), name))
        if not module:
            yield from (f"import {name}" for name in names)
            return
        line = f"from {module} import {', '.join(names)}"
        if len(line) <= _WIDTH:
            yield line
        else:
            yield from (f"from {module} import (", *(f"    {name}," for name in names), ")")


def _rank(name: str) -> int:
    return 0 if name.isupper() else 1 if name[0].isupper() else 2


def _call(before: str, arguments: Sequence[str], after: str, indent: int) -> list[str]:
    """Return the lines of a call or of a signature."""
    space = " " * indent
    line = f"{space}{before}({', '.join(arguments)}){after}"
    if len(line) <= _WIDTH:
        return [line]
    inner = [f"{space}    {argument}" + "," for argument in arguments]
    return [f"{space}{before}(", *inner, f"{space}){after}"]


class _Twin:
    """The text of one class."""

    def __init__(self, cls: type[AsyncPart], imports: _Imports) -> None:
        self._cls = cls
        self._imports = imports
        self._source = _Source(cls)
        self._is_public = cls.__name__ in PUBLIC
        self._variable = f"_{cls.__name__}T"
        self._base_is_public = any(base.__name__ in PUBLIC for base in bases(cls))
        self._reference = imports.reference(cls)

    def variable(self) -> list[str]:
        """Return the definition of the type variable of a class that is not public."""
        if self._is_public:
            return []
        count = len(getattr(self._cls, "__parameters__", ()))
        bound = self._reference + (f"[{', '.join(['Any'] * count)}]" if count else "")
        if count:
            self._imports.add("typing", "Any")
        self._imports.add("typing", "TypeVar")
        return [f'{self._variable} = TypeVar("{self._variable}", bound={bound})']

    def lines(self) -> Iterator[str]:
        parameter = self._reference if self._is_public else self._variable
        parents = []
        for base in bases(self._cls):
            shared = base.__module__ == _SHARED
            name = base.__name__.replace("Async", "Blocking") if shared else twin(base)
            self._imports.add("wmp.blocking.node" if shared else home(base), name)
            parents.append(name if base.__name__ in PUBLIC else f"{name}[{parameter}]")
        yield from _call(f"class {twin(self._cls)}", parents, ":", 0)
        docstring = self._source.docstring(self._source.node)
        if not self._is_public:  # its arguments are those of the class for asyncio
            docstring = docstring.removesuffix('"""').partition("\n\n")[0].rstrip() + '"""'
        yield f"    {docstring}"
        for node in self._source.node.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name == "__init__" and self._is_public:
                yield ""
                yield from self._init(node)
            elif not node.name.startswith("_"):
                yield ""
                yield from self._method(node)

    def _signature(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, parameters: _Parameters
    ) -> list[str]:
        return _call(f"def {node.name}", parameters.declared, f" -> {parameters.returned}:", 4)

    def _decorators(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
        for decorator in node.decorator_list:
            self._imports.add_names(self._source, decorator)
            yield f"    @{self._source[decorator]}"

    def _init(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
        parameters = _Parameters(self._source, node, self._imports)
        yield from self._decorators(node)
        yield from self._signature(node, parameters)
        yield from _call(f"inner = {self._reference}", parameters.passed, "", 8)
        words = re.sub(r"(?<!^)(?=[A-Z])", " ", self._cls.__name__).lower()
        timed = "timeout" in inspect.signature(self._cls.close).parameters
        arguments = [f'"{words}"', "inner", "inner.close" if timed else "lambda _: inner.close()"]
        if self._base_is_public:  # the base makes an object of its own
            self._imports.add("wmp.blocking.node", "BlockingPart")
            yield from _call("BlockingPart.__init__", ["self", *arguments], "", 8)
        else:
            yield from _call("super().__init__", arguments, "", 8)

    def _method(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
        parameters = _Parameters(self._source, node, self._imports)
        is_property = any(
            self._source[decorator] == "property" for decorator in node.decorator_list
        )
        yield from self._decorators(node)
        yield from self._signature(node, parameters)
        yield f"        {self._source.docstring(node)}"
        member = f"inner.{node.name}" if self._base_is_public else f"self._inner.{node.name}"
        call = f"{member}({', '.join(parameters.passed)})"
        read = f"lambda: {member if is_property else call}" if parameters.passed else member
        if is_property:
            read = f"lambda: {member}"
        if self._base_is_public and node.name not in ("start", "close"):
            self._imports.add("typing", "cast")
            yield f"        inner = cast({self._reference}, self._inner)"
        back = "" if parameters.returned == "None" else "return "
        if node.name == "start":
            yield "        super().start()"
        elif node.name == "close":
            yield from _call("self._shut", parameters.passed or ["0.0"], "", 8)
        elif node.name == "run":
            yield from _call("self._serve", [read], "", 8)
        elif node.name == "interrupt":
            yield f"        self._portal.post({member})"
        elif isinstance(node, ast.FunctionDef):
            yield from _call(f"{back}self._look", [read], "", 8)
        elif (shortcut := getattr(self._cls, f"_try_{node.name}", None)) is not None:
            yield from self._shortcut(node.name, shortcut, call, bool(back))
        else:
            yield from _call(f"{back}self._portal.call", [call], "", 8)

    def _shortcut(self, name: str, shortcut: object, call: str, returns: bool) -> Iterator[str]:
        """Call a function that needs no loop first. It returns nothing if the call must wait."""
        assert callable(shortcut)
        given = ", ".join([*inspect.signature(shortcut).parameters][1:])
        attempt = f"self._inner._try_{name}({given})"
        if returns:
            yield f"        result = {attempt}"
            yield f"        return self._portal.call({call}) if result is None else result"
        else:
            yield f"        if not {attempt}:"
            yield f"            self._portal.call({call})"


def text_of(module: str, classes: Sequence[type[AsyncPart]], before: str) -> str:
    """Return the text of a generated module.

    Args:
        module: Its name.
        classes: The classes for asyncio whose twins the module contains.
        before: Its present text, whose docstring stays.
    """
    imports = _Imports(module)
    twins = [_Twin(cls, imports) for cls in classes]
    variables = [line for blocking in twins for line in blocking.variable()]
    body = [("", "", *blocking.lines()) for blocking in twins]
    files = sorted({str(path_of(cls.__module__).relative_to(ROOT)) for cls in classes})
    present = ast.parse(before)
    if ast.get_docstring(present) is not None:
        docstring = ast.get_source_segment(before, present.body[0]) or ""
    else:
        docstring = f'"""Twins of {", ".join(files)} for code without an event loop."""'
    lines = [
        *(f"# Twin of {file}; written by specs/build_blocking.py." for file in files),
        docstring,
        "",
        *imports.lines(),
        *variables,
    ]
    while not lines[-1]:
        lines.pop()
    return "\n".join([*lines, *(line for part in body for line in part)]) + "\n"


def with_docstrings(cls: type, before: str) -> str:
    """Return a module with the docstrings of a class for asyncio in its twin.

    Args:
        cls: The class for asyncio, one of ``BY_HAND``.
        before: The text of the module, which contains a class of the same name.
    """
    source = _Source(cls)
    chosen = BY_HAND[cls]
    docstrings = {} if chosen else {cls.__name__: source.docstring(source.node)}
    for node in source.node.body:
        name = getattr(node, "name", "_")
        if name in chosen or not (chosen or name.startswith("_")):
            assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            docstrings[name] = source.docstring(node)
    lines = before.splitlines()
    for here in reversed([*ast.walk(ast.parse(before))]):
        if isinstance(here, ast.ClassDef | ast.FunctionDef) and here.name in docstrings:
            present = here.body[0]
            if ast.get_docstring(here) is not None:
                text = " " * present.col_offset + docstrings[here.name]
                lines[present.lineno - 1 : present.end_lineno] = text.splitlines()
    return "\n".join(lines) + "\n"


def generated() -> dict[Path, str]:
    """Return the texts of all modules that are generated, or whose docstrings are, by file."""
    texts = {
        path_of(module): text_of(module, classes, _present(path_of(module)))
        for module, classes in modules().items()
    }
    for cls in BY_HAND:
        path = path_of(home(cls))
        texts[path] = with_docstrings(cls, _present(path))
    return texts


def _present(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the modules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 when stale")
    check = parser.parse_args(arguments).check
    stale = {path: text for path, text in generated().items() if text != _present(path)}
    for path, text in stale.items():
        if check:
            print(f"{path} is stale; run python specs/build_blocking.py", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
