"""Random mutants of the core: ``python tests/mutants.py``, or ``tox -e mutants``.

pytest does not collect this file. A mutant is the source with one small fault: a reversed
comparison, a number that is one off, a negated condition, an omitted statement, two exchanged
arguments or branches, or a call replaced by its argument. A mutant is killed when a test fails or
takes too long. A mutant that survives is printed as a diff: either a test is missing, or the mutant
behaves as the original. Mutants that behave as the original are listed in ``mutants.toml`` with the
reason, and are not drawn again.

    python tests/mutants.py --count 30 --seed 7
    python tests/mutants.py --only wmp/core/manager --jobs 2
    python tests/mutants.py --mutant wmp/codec/limits.py:41:7:compare   # this mutant again

Each mutant is tried in a copy of the tree. The unit tests of the core run first, then worlds,
property tests and ablations, up to the first failure.

Exit status: 0 no mutant survived, 1 a mutant survived, 2 wrong usage, or a test fails without a
mutant.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from attrs import frozen

ROOT = Path(__file__).resolve().parents[1]
JUDGED = Path(__file__).with_suffix(".toml")
MUTATED = ("wmp/core", "wmp/codec")
COPIED = ("devices", "examples", "pyspark_wmp", "specs", "tests", "wmp")
WORLDS = 600

# -- places to change -------------------------------------------------------------------------

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.BitAnd: ast.BitOr,
}


@frozen
class Mutant:
    """One change of one file: the bytes from ``start`` to ``end`` become ``text``."""

    path: str
    line: int
    column: int
    operator: str
    start: int
    end: int
    text: str

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line}:{self.column}:{self.operator}"

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]

    def diff(self, source: bytes) -> list[str]:
        before, after = source.decode(), self.applied(source).decode()
        return list(
            difflib.unified_diff(
                before.splitlines(), after.splitlines(), self.path, self.path, "", "", 2, ""
            )
        )


class Finder(ast.NodeVisitor):
    """All mutants of a file, in the order of the source."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path = path
        self.found: list[Mutant] = []
        self._offsets = [0]
        for line in source.splitlines(keepends=True):
            self._offsets.append(self._offsets[-1] + len(line))
        self.visit(ast.parse(source))

    def _add(self, operator: str, node: ast.expr | ast.stmt, text: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._offsets[node.lineno - 1] + node.col_offset
        end = self._offsets[node.end_lineno - 1] + node.end_col_offset
        self.found.append(
            Mutant(self.path, node.lineno, node.col_offset, operator, start, end, text)
        )

    def _replace(self, operator: str, node: ast.expr, new: ast.expr) -> None:
        self._add(operator, node, f"({ast.unparse(new)})")

    # These get no mutants: annotations, imports, decorators and docstrings.

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        self._block(node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None: ...

    visit_ImportFrom = visit_Import

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._block(node.body)

    def visit_Assert(self, node: ast.Assert) -> None: ...

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                self.visit(statement)

    # -- statements

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._add("delete", node, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._add("delete", node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add("delete", node, "pass")
        if new := ARITHMETIC.get(type(node.op)):
            changed = ast.AugAssign(node.target, new(), node.value)
            self._add("arithmetic", node, ast.unparse(changed))
        self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._add("delete", node, "pass")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._add("delete", node, "pass")
        else:
            self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add("leave", node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._add("leave", node, "continue")

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add("delete", node, "pass")

    def visit_If(self, node: ast.If | ast.While) -> None:
        self._condition(node.test)
        self.visit(node.test)
        self._block([*node.body, *node.orelse])

    visit_While = visit_If

    def _condition(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare | ast.Constant | ast.UnaryOp):
            self._replace("negate", test, ast.UnaryOp(ast.Not(), test))

    # -- expressions

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._replace("branches", node, ast.IfExp(node.test, node.orelse, node.body))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1 and (new := COMPARISONS.get(type(node.ops[0]))):
            self._replace("compare", node, ast.Compare(node.left, [new()], node.comparators))
            if isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                turned = ast.UnaryOp(ast.Not(), node)
                self._replace("turn", node, turned)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._replace("connect", node, ast.BoolOp(other, node.values))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace("negate", node, node.operand)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if new := ARITHMETIC.get(type(node.op)):
            self._replace("arithmetic", node, ast.BinOp(node.left, new(), node.right))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        plain = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
        if len(plain) == len(node.args) >= 2:
            swapped = [node.args[1], node.args[0], *node.args[2:]]
            self._replace("swap", node, ast.Call(node.func, swapped, node.keywords))
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max") and plain:
            self._replace("call", node, plain[0])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add("constant", node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._add("constant", node, f"({node.value + 1})")
            self._add("constant-", node, f"({node.value - 1})")


def mutants(only: Sequence[str] = MUTATED) -> list[Mutant]:
    """Return all mutants, file by file."""
    sites = []
    for position in only:
        path = ROOT / position
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            sites += Finder(file.relative_to(ROOT).as_posix(), file.read_bytes()).found
    return sites


# -- judged survivors ------------------------------------------------------------------------


def changed_lines(diff: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the lines that a diff removes and adds, without their indentation."""
    body = diff[2:]
    return tuple(
        [line[1:].strip() for line in body if line.startswith(sign) and line[1:].strip()]
        for sign in "-+"
    )  # type: ignore[return-value]


def judged() -> list[tuple[str, list[str], list[str]]]:
    """Return the mutants that behave as the original: file, lines before, lines after."""
    rows = tomllib.loads(JUDGED.read_text(encoding="utf-8")).get("equivalent", [])
    for row in rows:
        assert row["because"], f"{row} gives no reason"
    return [(row["file"], row["before"].split("\n"), row["after"].split("\n")) for row in rows]


# -- trying a mutant -------------------------------------------------------------------------

SLOW = (
    *("test_api_parity", "test_command", "test_conftest", "test_descriptors", "test_distribution"),
    *("test_docs", "test_glossary", "test_pool", "test_project", "test_rules", "test_thread"),
)
"""Unit tests that start processes or read the project: no fault of the core changes the result."""


def stages(path: str) -> list[tuple[str, list[str]]]:
    """Return name and command of each stage for a mutant of this file, quick tests first."""
    pytest = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider"]
    worlds = [sys.executable, "-m", "wmp.testing", "--seeds"]
    package = path.rpartition("/")[0].replace("/", ".")
    files = [
        file
        for file in sorted((ROOT / "tests" / "unit").glob("test_*.py"))
        if not file.name.startswith(SLOW)
    ]
    files.sort(key=lambda file: package not in file.read_text(encoding="utf-8"))
    unit = [f"tests/unit/{file.name}" for file in files]
    return [
        ("unit", [*pytest, *unit]),
        ("worlds", [*worlds, "0:40"]),
        ("property", [*pytest, "tests/property"]),
        ("ablation", [*pytest, "tests/ablation"]),
        ("worlds", [*worlds, f"40:{WORLDS}"]),
    ]


def copied(folder: Path) -> None:
    """Copy the tree into a folder."""
    for name in COPIED:
        ignored = shutil.ignore_patterns("__pycache__", "node_modules", ".*")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, folder)


def run(command: Sequence[str], folder: Path, timeout: float | None) -> tuple[bool, str]:
    """Run a command; return whether it passes in time, and its last lines or "too slow"."""
    environ = {
        **{name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
        "CI": "1",
        "PYTHONPATH": str(folder),
        # A mutant's source may have the size and age of the original, so Python must not cache the
        # compiled file.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return False, "too slow"
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR", "seed "))]
    return process.returncode == 0, "\n".join(failed[:1] or lines[-1:])


def tried(mutant: Mutant, folder: Path, limits: Sequence[float]) -> tuple[str, str]:
    """Return the stage that kills a mutant, or an empty text, and the output of that stage."""
    file = folder / mutant.path
    source = file.read_bytes()
    file.write_bytes(mutant.applied(source))
    try:
        for (name, command), limit in zip(stages(mutant.path), limits, strict=True):
            passed, output = run(command, folder, limit)
            if not passed:
                return name, output
    finally:
        file.write_bytes(source)
    return "", ""


def timed(folder: Path) -> Iterator[float]:
    """Run each stage without a mutant; yield the seconds that a mutant may take in it."""
    for name, command in stages(MUTATED[0]):
        begin = time.monotonic()
        passed, output = run(command, folder, None)
        if not passed:
            sys.exit(f"without a mutant: {name} does not pass: {output}")
        took = time.monotonic() - begin
        say(f"without a mutant: {name} takes {took:.0f} s")
        yield 30 + 4 * took


# -- the program -----------------------------------------------------------------------------


def say(text: str) -> None:
    print(text, flush=True)


def drawn(options: argparse.Namespace) -> list[Mutant]:
    """Return the mutants to try; none of them is known to be equivalent to the original."""
    every = mutants(options.only or MUTATED)
    if options.mutant:
        return [mutant for mutant in every if mutant.name in options.mutant]
    known = judged()
    # Each operator gets an equal part, because most places in the source are numbers and arguments.
    draw, kinds = random.Random(options.seed), {}
    for mutant in every:
        kinds.setdefault(mutant.operator.rstrip("-"), []).append(mutant)
    chosen: list[Mutant] = []
    while kinds and len(chosen) < options.count:
        kind = draw.choice(sorted(kinds))
        mutant = kinds[kind].pop(draw.randrange(len(kinds[kind])))
        if not kinds[kind]:
            del kinds[kind]
        before, after = changed_lines(mutant.diff((ROOT / mutant.path).read_bytes()))
        if (mutant.path, before, after) in known:
            say(f"{mutant.name}: equivalent, as {JUDGED.name} says")
        else:
            chosen.append(mutant)
    return chosen


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python tests/mutants.py",
        description="Try random mutants of the core. Print the mutants that no test notices.",
        epilog="exit status: 0 nothing survived, 1 something did, 2 wrong usage",
    )
    add = parser.add_argument
    add("--count", type=int, default=30, help="how many mutants (default: 30)")
    add("--seed", type=int, default=None, help="of the draw (default: any)")
    add("--only", action="append", metavar="PATH", help="file or folder (default: core and codec)")
    add("--mutant", action="append", metavar="NAME", help="try this one, as a run has named it")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at once (default: cores)")
    add("--list", action="store_true", help="name all mutants, and do nothing else")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    command_line = parser()
    options = command_line.parse_args(arguments)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 16)
    if options.list:
        for mutant in mutants(options.only or MUTATED):
            say(mutant.name)
        return 0
    chosen = drawn(options)
    if not chosen:
        command_line.error("no such mutant; --list names all of them")
    say(f"seed {options.seed}: {len(chosen)} mutants of {len(mutants(options.only or MUTATED))}")
    begin = time.monotonic()
    killed: dict[str, int] = {}
    survivors: list[Mutant] = []
    with tempfile.TemporaryDirectory() as temporary:
        folders: SimpleQueue[Path] = SimpleQueue()
        for index in range(options.jobs):
            folder = Path(temporary, str(index))
            folder.mkdir()
            copied(folder)
            folders.put(folder)
        free = folders.get()
        limits = [limit * max(1, options.jobs) for limit in timed(free)]
        folders.put(free)

        def attempt(mutant: Mutant) -> tuple[Mutant, str, str]:
            folder = folders.get()
            try:
                return mutant, *tried(mutant, folder, limits)
            finally:
                folders.put(folder)

        with ThreadPoolExecutor(options.jobs) as pool:
            for mutant, stage, output in pool.map(attempt, chosen):
                if stage:
                    killed[stage] = killed.get(stage, 0) + 1
                    say(f"{mutant.name}: killed by {stage}: {output}")
                else:
                    survivors.append(mutant)
                    say(f"{mutant.name}: survives")
    for mutant in survivors:
        say("")
        say("\n".join(mutant.diff((ROOT / mutant.path).read_bytes())))
    count = len(chosen) - len(survivors)
    by = ", ".join(f"{stage} {number}" for stage, number in killed.items())
    minutes = (time.monotonic() - begin) / 60
    say("")
    say(
        f"seed {options.seed}: {count} of {len(chosen)} mutants killed ({by or 'none'}), "
        f"{len(survivors)} survived, in {minutes:.0f} minutes"
    )
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
