"""Codelets written by Python code, a statement at a time: the tree that is compiled, and its text.

Text is what listings, the debugger and tracebacks show, line for line; it is never read. The tree is what reading it
would give: both come about in the same call, by the rules of :mod:`abele.codelet.construct`.

>>> from abele.codelet import Input, Output, Vector
>>> from abele.numerics import f32
>>> code = CodeWriter("Vertex", {"x": Input[Vector[f32]], "y": Output[Vector[f32]]})
>>> with code.loop("i", code.number(0), code.length("x")) as i:
...     code.store("y", code.element("x", i) * code.number(2.0), i)
>>> print("\\n".join(code.lines))
for i in range(len(self.x)):
    self.y[i] = self.x[i] * 2.0
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from abele.codelet import construct
from abele.codelet.fields import FieldDef, FieldType, field_type
from abele.codelet.functions import VertexFunction
from abele.codelet.reductions import accumulators
from abele.codelet.rules import cast, computed, converts, is_weak
from abele.codelet.tree import (
    Assign,
    ConstExpr,
    Element,
    For,
    Helper,
    IfStmt,
    Length,
    Local,
    Scalar,
    Stmt,
    StoreStmt,
    VertexExpr,
    WhileStmt,
    own_expressions,
)
from abele.errors import CodeletError
from abele.numerics import ElementType, i64

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%"}
_SIGNS |= {"and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>"}
_SUM, _PRODUCT, _OTHER, _ATOM = 1, 2, 0, 3
_LEVELS = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "//": _PRODUCT}
"""Binding strengths of the arithmetic operators; parts of any other operation are put in brackets."""


@dataclass(frozen=True, eq=False)
class WrittenValue:
    """A value: its tree, and its text. It is used in one place: a variable that is read twice is two values.

    Attributes:
        tree: The typed expression.
        text: The same in the vertex language.
        level: Binding strength of the text.
        is_product: True if it is a product that is written where it is used.
    """

    tree: VertexExpr
    text: str
    level: int = _ATOM
    is_product: bool = False

    def infix(self, op: str, other: Operand) -> WrittenValue:
        """``self`` operator ``other``."""
        other = _operand(other)
        sign = _SIGNS[op]
        level = _LEVELS.get(sign, _OTHER)
        tree = construct.infix(op, self.tree, other.tree, products=(self.is_product, other.is_product))
        text = f"{self._within(level)} {sign} {other._within(level, is_right=True)}"
        return WrittenValue(tree, text, level, op == "mul")

    def compare(self, sign: str, other: Operand) -> WrittenValue:
        """``self`` sign ``other``."""
        other = _operand(other)
        tree = construct.comparison(sign, self.tree, other.tree)
        return WrittenValue(tree, f"{self._bracketed} {sign} {other._bracketed}", _OTHER)

    def both(self, other: WrittenValue) -> WrittenValue:
        """``self and other``."""
        return self._logic("and", other)

    def either(self, other: WrittenValue) -> WrittenValue:
        """``self or other``."""
        return self._logic("or", other)

    def _logic(self, op: str, other: WrittenValue) -> WrittenValue:
        tree = construct.logic(op, [construct.truth(self.tree), construct.truth(other.tree)])
        return WrittenValue(tree, f"{self._bracketed} {op} {other._bracketed}", _OTHER)

    def __add__(self, other: Operand) -> WrittenValue:
        return self.infix("add", other)

    def __sub__(self, other: Operand) -> WrittenValue:
        return self.infix("sub", other)

    def __mul__(self, other: Operand) -> WrittenValue:
        return self.infix("mul", other)

    def __truediv__(self, other: Operand) -> WrittenValue:
        return self.infix("div", other)

    def __floordiv__(self, other: Operand) -> WrittenValue:
        return self.infix("floordiv", other)

    def __mod__(self, other: Operand) -> WrittenValue:
        return self.infix("mod", other)

    def __rmul__(self, other: int | float) -> WrittenValue:
        return _operand(other) * self

    def negative(self) -> WrittenValue:
        """``-self``."""
        return WrittenValue(construct.negative(self.tree), f"-{self._bracketed}", _OTHER)

    def inverted(self) -> WrittenValue:
        """``~self`` of integers, ``not self`` of bools."""
        if self.tree.type.kind == "bool":
            tree, text = construct.inverted(self.tree), f"not {self._bracketed}"
        else:
            tree, text = construct.bits_inverted(self.tree), f"~{self._bracketed}"
        return WrittenValue(tree, text, _OTHER)

    def converted(self, wanted: ElementType) -> WrittenValue:
        """The value as an element of ``wanted``."""
        tree = construct.converted(self.tree, wanted)
        return WrittenValue(tree, f"{type_name(wanted)}({self.text})")

    @property
    def _bracketed(self) -> str:
        return self.text if self.level == _ATOM else f"({self.text})"

    def _within(self, level: int, is_right: bool = False) -> str:
        """The text as an operand of an operation that binds at ``level``."""
        binds = self.level > level if is_right else self.level >= level
        return self.text if self.level == _ATOM or (level and self.level and binds) else f"({self.text})"


Operand = WrittenValue | int | float | bool
"""Operands of operations: values, and numbers."""


def type_name(type_: ElementType) -> str:
    """Name of an element type in text of the vertex language."""
    return "bool_" if type_.name == "bool" else type_.name


@dataclass
class CodeWriter:
    """Writes the ``compute`` of one codelet.

    Args:
        kind: ``Vertex``, ``MultiVertex`` or ``SupervisorVertex``.
        declared: Declaration of each field, by name.

    Attributes:
        fields: The fields by name.
        lines: Text of the statements.
    """

    kind: str
    declared: Mapping[str, FieldType | ElementType]
    lines: list[str] = field(default_factory=list)
    _open: list[list[Stmt]] = field(default_factory=lambda: [[]])
    _types: dict[str, ElementType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fields: dict[str, FieldDef] = {n: field_type(d).field(n) for n, d in self.declared.items()}
        # The decorator, the class, its fields, a blank line and the line of compute come before the first statement.
        self._before = len(self.fields) + 4
        if self.kind == "MultiVertex":
            self._types["worker_id"] = i64

    @property
    def line(self) -> int:
        """Number of the line that is written next."""
        return self._before + len(self.lines) + 1

    def helper(self, file: str) -> Helper:
        """The code written so far, as of ``file``."""
        parameters = ("worker_id",) if self.kind == "MultiVertex" else ()
        return Helper("compute", file, parameters, dict(self._types), self._open[0], None)

    # --- values ----------------------------------------------------------------------------------------------------

    def number(self, value: float | int | bool) -> WrittenValue:
        """A literal."""
        return _operand(value)

    def local(self, name: str) -> WrittenValue:
        """The local variable ``name``."""
        return WrittenValue(Local(type=self._types[name], name=name), name)

    def scalar(self, name: str) -> WrittenValue:
        """The field ``name`` of one element."""
        known = self.fields[name]
        tree = computed(Scalar(type=known.type, field=known))
        return WrittenValue(tree, f"self.{name}")

    def element(self, name: str, *index: WrittenValue) -> WrittenValue:
        """An element of the field ``name``."""
        known = self.fields[name]
        where = tuple(cast(i.tree, i64) for i in index)
        tree = computed(Element(type=known.type, field=known, index=where))
        return WrittenValue(tree, f"self.{name}{_subscripts(index)}")

    def length(self, name: str, row: WrittenValue | None = None) -> WrittenValue:
        """The number of elements of the vector ``name``, or of one of its rows."""
        if row is None:
            return WrittenValue(Length(field=self.fields[name]), f"len(self.{name})")
        return WrittenValue(Length(field=self.fields[name], row=cast(row.tree, i64)), f"len(self.{name}[{row.text}])")

    def call(self, function: str, *operands: Operand) -> WrittenValue:
        """A function of floats, or ``min``, ``max``, ``abs``, ``random_u32``."""
        args = [_operand(o) for o in operands]
        trees = [a.tree for a in args]
        match function:
            case "min" | "max":
                tree = construct.extreme(function, trees)
            case "abs":
                tree = construct.absolute(trees[0])
            case "random_u32":
                tree = construct.random_word(trees)
            case _:
                tree = construct.call(VertexFunction(function), trees)
        return WrittenValue(tree, f"{function}({', '.join(a.text for a in args)})")

    def choice(self, condition: WrittenValue, then: WrittenValue, otherwise: WrittenValue) -> WrittenValue:
        """``then if condition else otherwise``."""
        text = f"{then.text} if {condition.text} else {otherwise.text}"
        test = construct.truth(condition.tree)
        if isinstance(test, ConstExpr):
            return WrittenValue((then if test.value else otherwise).tree, text, _OTHER)
        return WrittenValue(construct.choice(test, then.tree, otherwise.tree), text, _OTHER)

    # --- statements ------------------------------------------------------------------------------------------------

    def let(self, name: str, given: Operand) -> WrittenValue:
        """``name = given``; returns the variable."""
        value = _operand(given)
        tree = value.tree
        if name in self._types:
            tree = self._fitting(tree, self._types[name], name, narrowing=False)
        self._types.setdefault(name, tree.type)
        self._write(f"{name} = {value.text}", Assign(name=name, value=_typed(tree)))
        return self.local(name)

    def increase(self, name: str, value: WrittenValue) -> None:
        """``name += value``."""
        tree = self.local(name).infix("add", value).tree
        tree = self._fitting(tree, self._types[name], name, narrowing=False)
        self._write(f"{name} += {value.text}", Assign(name=name, value=_typed(tree)))

    def store(self, name: str, value: WrittenValue, *index: WrittenValue) -> None:
        """``self.name[index] = value``; no index for a field of one element."""
        target = self.fields[name]
        tree = self._fitting(value.tree, target.type, f"field {name}", narrowing=True)
        where = tuple(cast(i.tree, i64) for i in index)
        text = f"self.{name}{_subscripts(index)} = {value.text}"
        self._write(text, StoreStmt(field=target, index=where, value=tree))

    @contextmanager
    def loop(self, name: str, first: Operand, last: Operand) -> Iterator[WrittenValue]:
        """Loop ``for name in range(first, last):`` around the code written inside."""
        start, stop = _operand(first), _operand(last)
        from_zero = isinstance(start.tree, ConstExpr) and start.tree.value == 0
        bounds = stop.text if from_zero else f"{start.text}, {stop.text}"
        made = For(name=name, start=cast(start.tree, i64), stop=cast(stop.tree, i64), step=1, body=[])
        self._types[name] = i64
        known = set(self._types)
        with self._block(f"for {name} in range({bounds}):", made, made.body):
            yield self.local(name)
        made.lanes.update({n: op for n, op in accumulators(made.body).items() if n in known and n != name})

    @contextmanager
    def repeat(self, condition: WrittenValue) -> Iterator[None]:
        """Loop ``while condition:`` around the code written inside."""
        made = WhileStmt(condition=construct.truth(condition.tree), body=[])
        with self._block(f"while {condition.text}:", made, made.body):
            yield

    @contextmanager
    def when(self, condition: WrittenValue) -> Iterator[None]:
        """Branch ``if condition:`` around the code written inside."""
        made = IfStmt(condition=construct.truth(condition.tree), then=[], otherwise=[])
        with self._block(f"if {condition.text}:", made, made.then):
            yield

    def _fitting(self, tree: VertexExpr, wanted: ElementType, target: str, *, narrowing: bool) -> VertexExpr:
        if not converts(tree, wanted, narrowing=narrowing):
            raise CodeletError(f"{target} is {wanted}, the value written to it is {tree.type}")
        return cast(tree, wanted)

    @contextmanager
    def _block(self, text: str, statement: Stmt, body: list[Stmt]) -> Iterator[None]:
        self._write(text, statement)
        self._open.append(body)
        yield
        self._open.pop()

    def _write(self, text: str, statement: Stmt) -> None:
        statement.line = self.line
        for expression in own_expressions(statement):
            for part in expression.walk():
                part.line = self.line
        self.lines.append("    " * (len(self._open) - 1) + text)
        self._open[-1].append(statement)


def _subscripts(index: tuple[WrittenValue, ...]) -> str:
    return "".join(f"[{i.text}]" for i in index)


def _operand(given: Operand) -> WrittenValue:
    """A value; a number as it would be written."""
    return given if isinstance(given, WrittenValue) else WrittenValue(construct.number(given), _literal(given))


def _literal(value: float | int | bool) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NAN" if math.isnan(value) else "INF" if value > 0 else "-INF"
    return repr(value)


def _typed(value: VertexExpr) -> VertexExpr:
    """A number without a type of its own gets the default one."""
    return cast(value, value.type) if is_weak(value) else value
