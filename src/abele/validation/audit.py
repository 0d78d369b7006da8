"""Audit: every number in the costs, with its source, read from the code itself.

Machines cite their constants as data (``abele.machine.sources``). Formulas of vertices, planners and the memory model
have theirs as named numbers. Their docstrings give the section of the machine reference, or say that the number was
guessed, or chosen: a limit of a search, say, enters no cost. This module reads both, so a page of them cannot differ
from the code, and a number without a source is found by name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache
from importlib.resources import files
from pathlib import Path

from abele.machine import Source, System, sources, systems
from abele.machine.spec import Spec

COST_ROOMS = (
    "codelet/slots.py",
    "codelet/straight_code.py",
    "codelet/layouts.py",
    "codelet/cpp/costing.py",
    "compiler/cycles.py",
    "compiler/durations.py",
    "compiler/footprint.py",
    "compiler/links.py",
    "compiler/moves.py",
    "compiler/traffic.py",
    "compiler/nodes/control.py",
    "poplibs/*cost*.py",
    "poplibs/poplin/linalg/estimates.py",
    "poplibs/poplin/planner/*.py",
    "poplibs/popops/reductions/first_step.py",
    "poplibs/popops/reductions/plan.py",
    "poplibs/popops/slicing/plan*.py",
    "poplibs/popnn/pool_layout.py",
)
"""Modules all of whose named numbers must have a source; ``*`` stands for folders too."""

_COSTING = re.compile(r"(^|_)(cycles|slots|cost|costs)(_|$)")
"""Names of functions that work out costs, wherever they are."""
_HARMLESS = (0, 1, -1, 2)
"""Numbers that a formula needs no source for: nothing, one more, both."""
_SOURCED = re.compile(r"§|Source|[Gg]uess|[Cc]hosen|[Cc]alibrated|machine reference|machine\.md")
_STATED = re.compile(r"§[\d.]+(?: and §?[\d.]+|, §?[\d.]+)* ([SDG])\b")


@dataclass(frozen=True)
class FormulaConstant:
    """A named number of a cost formula.

    Attributes:
        module: Path of the module inside the package.
        name: Its name, or names that are set together.
        value: As the code writes it.
        text: Comment of the code on it, with its source; empty where there is none.
    """

    module: str
    name: str
    value: str
    text: str

    @property
    def has_source(self) -> bool:
        """True if the text gives a source, or says that there is none."""
        return _SOURCED.search(self.text) is not None

    @property
    def confidence(self) -> str:
        """``S``, ``D``, ``C`` or ``G`` as for constants of machines; ``–`` for chosen numbers that cost nothing."""
        stated = _STATED.search(self.text)
        if stated is not None:
            return stated[1]
        for word, mark in (("uess", "G"), ("alibrated", "C"), ("hosen", "–")):
            if word in self.text:
                return mark
        return "S"


@dataclass
class MachineRow:
    """One constant of machines, over all presets.

    Attributes:
        path: Dotted name, without what tells parts of a list apart.
        meaning: Meaning of the constant.
        by_value: Value with unit and source to what has it: chips, or presets where it is no constant of the chip.
    """

    path: str
    meaning: str
    by_value: dict[tuple[str, Source], list[str]] = field(default_factory=dict)


@cache
def machine_rows() -> tuple[MachineRow, ...]:
    """Every constant of every preset, the equal ones of several presets together."""
    return rows_of({name: systems.get(name) for name in systems.names()})


def rows_of(parts: Mapping[str, Spec]) -> tuple[MachineRow, ...]:
    """Every constant of some machines, or of other things that cite theirs alike, by name."""
    rows: dict[str, MachineRow] = {}
    for name, spec in parts.items():
        for c in sources(spec):
            row = rows.setdefault(c.path, MachineRow(c.path, c.meaning))
            holder = spec.ipu.name if isinstance(spec, System) and c.path.startswith("ipu.") else name
            holders = row.by_value.setdefault((c.text, c.source), [])
            if holder not in holders:
                holders.append(holder)
    return tuple(rows.values())


@cache
def formula_constants() -> tuple[FormulaConstant, ...]:
    """The named numbers of the cost rooms, module by module."""
    return tuple(c for module, tree in _modules() if _is_cost_room(module) for c in _named(module, tree))


@cache
def unsourced() -> tuple[str, ...]:
    """Numbers without a source: named ones of the cost rooms, and those in formulas anywhere."""
    found = [f"{c.module}: {c.name}" for c in formula_constants() if not c.has_source]
    for module, tree in _modules():
        found += [f"{module}: {name}" for name in _bare(tree, _is_cost_room(module))]
    return tuple(found)


def _is_cost_room(module: str) -> bool:
    return any(fnmatch(module, pattern) for pattern in COST_ROOMS)


@cache
def _modules() -> tuple[tuple[str, ast.Module], ...]:
    root = Path(str(files("abele")))
    paths = sorted(p for room in ("codelet", "compiler", "poplibs") for p in (root / room).rglob("*.py"))
    return tuple((p.relative_to(root).as_posix(), ast.parse(p.read_text(encoding="utf-8"))) for p in paths)


def _named(module: str, tree: ast.Module) -> Iterator[FormulaConstant]:
    """Named numbers of a module; those that follow each other share the docstring behind the last of them."""
    waiting: list[tuple[str, ast.expr]] = []
    of_all = _of_all(ast.get_docstring(tree) or "")
    for statement in [*tree.body, ast.Pass()]:
        if isinstance(statement, ast.AugAssign):
            continue
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            if _has_number(statement.value):
                target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
                waiting.append((ast.unparse(target), statement.value))
            continue
        text = _docstring_of(statement)
        for name, value in waiting:
            said = _own_source(value) or text
            yield FormulaConstant(
                module, name.strip("()"), _shown(value), said if _SOURCED.search(said) else f"{said} {of_all}".strip()
            )
        waiting = []


def _of_all(text: str) -> str:
    """The sentence of a module's docstring that cites a source, if there is one."""
    found = re.search(r"[^.]*\bSource\b[^:]*: .*?(?:\.(?=\s|$)|$)", " ".join(text.split()))
    return found[0].strip() if found else ""


def _docstring_of(statement: ast.stmt) -> str:
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return " ".join(str(ast.literal_eval(statement.value)).split()) if is_text else ""  # type: ignore[attr-defined]


def _own_source(value: ast.expr) -> str:
    """The source that a cost is made with, as in ``Slots(main=1, source="…")``."""
    words = value.keywords if isinstance(value, ast.Call) else []
    return next((str(ast.literal_eval(w.value)) for w in words if w.arg == "source"), "")


def _shown(value: ast.expr) -> str:
    if isinstance(value, ast.Call):
        value = ast.Call(value.func, value.args, [w for w in value.keywords if w.arg != "source"])
    return ast.unparse(value)


def _has_number(value: ast.expr) -> bool:
    return any(_is_number(node) for node in ast.walk(value))


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _bare(tree: ast.Module, is_cost_room: bool) -> Iterator[str]:
    """Functions of costs with numbers in sums and products that have no source, nor has the code around them."""

    def within(body: list[ast.stmt], said: tuple[str, ...], is_cost: bool, path: str) -> Iterator[str]:
        for node in body:
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                continue
            here = (*said, ast.get_docstring(node) or "")
            name = f"{path}{node.name}"
            costs = is_cost or (isinstance(node, ast.FunctionDef) and _COSTING.search(node.name) is not None)
            if costs and isinstance(node, ast.FunctionDef) and _own_numbers(node) and not _cites(here):
                yield name
            yield from within(node.body, here, costs and isinstance(node, ast.FunctionDef), f"{name}.")
            if is_cost_room and isinstance(node, ast.ClassDef):
                yield from within(node.body, here, True, f"{name}.")

    yield from dict.fromkeys(within(tree.body, (ast.get_docstring(tree) or "",), is_cost_room, ""))


def _cites(texts: tuple[str, ...]) -> bool:
    return any(_SOURCED.search(text) for text in texts)


def _own_numbers(function: ast.FunctionDef) -> bool:
    """True if sums and products of a function, not of those within it, contain numbers that need a source."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        # Functions within have their own turn; numbers in brackets are places, not amounts.
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            continue
        if isinstance(node, ast.Subscript):
            waiting.append(node.value)
            continue
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv)):
            for side in (node.left, node.right):
                if _is_number(side) and ast.literal_eval(side) not in _HARMLESS:
                    return True
        waiting += ast.iter_child_nodes(node)
    return False
