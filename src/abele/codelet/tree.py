"""A codelet after reading: typed expressions and statements, still shaped like the source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields

from abele.codelet.fields import FieldDef
from abele.numerics import ElementType, bool_, i64


@dataclass(eq=False, kw_only=True)
class VertexExpr:
    """A value.

    Attributes:
        type: Element type of the value.
        line: Source line.
    """

    type: ElementType
    line: int = 0

    @property
    def parts(self) -> tuple[VertexExpr, ...]:
        """Expressions directly inside."""
        return _expressions(self)

    def walk(self) -> Iterator[VertexExpr]:
        """This expression and all inside."""
        found: list[VertexExpr] = []
        _collect(self, found)
        return iter(found)


def _collect(expression: VertexExpr, found: list[VertexExpr]) -> None:
    found.append(expression)
    for part in expression.parts:
        _collect(part, found)


_PARTS: dict[type, tuple[str, ...]] = {}
"""Names of the fields that may hold expressions, by class; kept, because every line that is written walks its tree."""


def _expressions(node: VertexExpr | Stmt) -> tuple[VertexExpr, ...]:
    """The expressions in the fields of ``node``, those in tuples included."""
    kind = type(node)
    if kind not in _PARTS:
        _PARTS[kind] = tuple(f.name for f in fields(node) if f.name not in ("type", "line"))
    found: list[VertexExpr] = []
    for name in _PARTS[kind]:
        value = getattr(node, name)
        if isinstance(value, VertexExpr):
            found.append(value)
        elif isinstance(value, tuple):
            found += [part for part in value if isinstance(part, VertexExpr)]
    return tuple(found)


@dataclass(eq=False, kw_only=True)
class ConstExpr(VertexExpr):
    """Number; ``weak`` while it may still take the type of the other operand."""

    value: float | int | bool
    weak: bool = False


@dataclass(eq=False, kw_only=True)
class Local(VertexExpr):
    """A local variable."""

    name: str


@dataclass(eq=False, kw_only=True)
class Scalar(VertexExpr):
    """A rank-0 edge or scalar state."""

    field: FieldDef


@dataclass(eq=False, kw_only=True)
class Element(VertexExpr):
    """An element of a vector field, or of a row of a vector of vectors (then two indices)."""

    field: FieldDef
    index: tuple[VertexExpr, ...]


@dataclass(eq=False, kw_only=True)
class Length(VertexExpr):
    """Number of elements of a vector, of rows of a vector of vectors, or of elements of one row."""

    field: FieldDef
    row: VertexExpr | None = None
    type: ElementType = i64


@dataclass(eq=False, kw_only=True)
class BinaryExpr(VertexExpr):
    """An operation on two values of one type: add sub mul div floordiv mod and or xor shl shr min max."""

    op: str
    left: VertexExpr
    right: VertexExpr


@dataclass(eq=False, kw_only=True)
class Compare(VertexExpr):
    """A comparison of two values of one type: == != < <= > >=."""

    op: str
    left: VertexExpr
    right: VertexExpr
    type: ElementType = bool_


@dataclass(eq=False, kw_only=True)
class Logic(VertexExpr):
    """``and`` or ``or`` of two bools; the right one is evaluated only if needed."""

    op: str
    left: VertexExpr
    right: VertexExpr
    type: ElementType = bool_


@dataclass(eq=False, kw_only=True)
class UnaryExpr(VertexExpr):
    """neg, abs, invert, or not."""

    op: str
    arg: VertexExpr


@dataclass(eq=False, kw_only=True)
class Choice(VertexExpr):
    """``then if condition else otherwise``; only one of them is evaluated."""

    condition: VertexExpr
    then: VertexExpr
    otherwise: VertexExpr


@dataclass(eq=False, kw_only=True)
class CastExpr(VertexExpr):
    """A conversion to the type of the expression."""

    arg: VertexExpr


@dataclass(eq=False, kw_only=True)
class Math(VertexExpr):
    """A function of the language: exp, sqrt, fma, random_u32, …"""

    function: str
    args: tuple[VertexExpr, ...]


@dataclass(eq=False, kw_only=True)
class HelperCall(VertexExpr):
    """A call of a plain Python function, read for these argument types."""

    helper: Helper
    args: tuple[VertexExpr, ...]


@dataclass(eq=False, kw_only=True)
class Stmt:
    """A statement.

    Attributes:
        line: Source line.
    """

    line: int = 0


@dataclass(eq=False, kw_only=True)
class Assign(Stmt):
    """Sets a local variable.

    Attributes:
        row_of: The field whose row the variable numbers, where it stands for a row that the source gives a name.
    """

    name: str
    value: VertexExpr
    row_of: FieldDef | None = None


@dataclass(eq=False, kw_only=True)
class StoreStmt(Stmt):
    """Writes an element of a field; ``index`` is empty for a rank-0 edge or scalar state."""

    field: FieldDef
    index: tuple[VertexExpr, ...]
    value: VertexExpr


@dataclass(eq=False, kw_only=True)
class Evaluate(Stmt):
    """Evaluates a call for its effect."""

    value: HelperCall


@dataclass(eq=False, kw_only=True)
class Print(Stmt):
    """Print a line on the host.

    Attributes:
        text: Text before, between and after the values.
        specs: Format of each value, as in a format string.
        values: The values.
    """

    text: tuple[str, ...]
    specs: tuple[str, ...] = ()
    values: tuple[VertexExpr, ...] = ()


@dataclass(eq=False, kw_only=True)
class DebugOnly(Stmt):
    """An ``assert``, which only debug mode executes; ``source`` is the original text."""

    source: str


@dataclass(eq=False, kw_only=True)
class IfStmt(Stmt):
    """A branch."""

    condition: VertexExpr
    then: list[Stmt]
    otherwise: list[Stmt]


@dataclass(eq=False, kw_only=True)
class WhileStmt(Stmt):
    """A loop while the condition holds."""

    condition: VertexExpr
    body: list[Stmt]


@dataclass(eq=False, kw_only=True)
class For(Stmt):
    """A loop over a range with a constant step.

    Attributes:
        name: Loop variable.
        start: First value.
        stop: Bound that is not reached.
        step: Constant, not zero.
        body: Statements.
        lanes: Accumulators of the loop, each with the operation that combines it; see ``reductions``.
    """

    name: str
    start: VertexExpr
    stop: VertexExpr
    step: int
    body: list[Stmt]
    lanes: dict[str, str] = field(default_factory=dict)


@dataclass(eq=False, kw_only=True)
class Leave(Stmt):
    """``break`` or ``continue``."""

    how: str


@dataclass(eq=False, kw_only=True)
class Return(Stmt):
    """Ends the function."""

    value: VertexExpr | None = None


@dataclass(eq=False)
class Helper:
    """A function read for given argument types.

    Attributes:
        name: Its name.
        file: Source file.
        parameters: Names of the parameters that are values.
        types: Types of its local variables, parameters included.
        body: Statements.
        result: Type of the result; None when it returns nothing.
    """

    name: str
    file: str
    parameters: tuple[str, ...] = ()
    types: dict[str, ElementType] = field(default_factory=dict)
    body: list[Stmt] = field(default_factory=list)
    result: ElementType | None = None


def blocks(statement: Stmt) -> tuple[list[Stmt], ...]:
    """Lists of statements inside a statement."""
    match statement:
        case IfStmt():
            return (statement.then, statement.otherwise)
        case WhileStmt() | For():
            return (statement.body,)
    return ()


def own_expressions(statement: Stmt) -> tuple[VertexExpr, ...]:
    """Expressions of a statement itself, not of the statements inside it."""
    return _expressions(statement)


def walk(body: list[Stmt]) -> Iterator[Stmt]:
    """All statements of ``body``, nested ones included."""
    for statement in body:
        yield statement
        for block in blocks(statement):
            yield from walk(block)


def all_expressions(body: list[Stmt]) -> Iterator[VertexExpr]:
    """All expressions of ``body``, those inside called helpers included."""
    for statement in walk(body):
        for expression in own_expressions(statement):
            for part in expression.walk():
                yield part
                if isinstance(part, HelperCall):
                    yield from all_expressions(part.helper.body)


def assigned(body: list[Stmt]) -> set[str]:
    """Local variables that ``body`` sets."""
    return {s.name for s in walk(body) if isinstance(s, Assign | For)}


def mentioned(expression: VertexExpr) -> set[str]:
    """Local variables that ``expression`` reads."""
    return {e.name for e in expression.walk() if isinstance(e, Local)}
