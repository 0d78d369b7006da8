"""Codelets from expressions: a MultiVertex that evaluates fused expressions over its elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from abele import expr as ir
from abele import numerics
from abele.expr import TABLE
from abele.numerics import ElementType
from abele.poplibs.popops.expressions.fused import Fused
from abele.poplibs.popops.expressions.generated import build, type_name

Access = Literal["full", "row", "column", "single", "whole"]
"""How a vertex reads an operand: an element for each of its own, for each row, for each column, one, or a vector of
its own (a seed)."""


@dataclass(frozen=True)
class Port:
    """One field of a generated codelet.

    Attributes:
        name: Field name.
        type: Element type.
        direction: ``Input``, ``Output`` or ``InOut``.
        access: How elements are found.
    """

    name: str
    type: ElementType
    direction: str
    access: Access

    @property
    def declaration(self) -> str:
        """The line that declares the field."""
        type_ = type_name(self.type)
        return f"{self.name}: {self.direction}[{type_ if self.access == 'single' else f'Vector[{type_}]'}]"

    @property
    def element(self) -> str:
        """The element that belongs to position i."""
        at = {"full": "[i]", "row": "[row]", "column": "[i - start]", "single": "", "whole": ""}
        return f"self.{self.name}{at[self.access]}"


@dataclass(frozen=True)
class Layout:
    """What of a codelet is decided by how its operands lie, not by what it computes.

    Attributes:
        inputs: Port of each operand that is read.
        outputs: Port of each output; the port of an operand where it is overwritten.
        rows: Whether vertices walk rows of ``columns`` elements.
        indexed: Whether the expressions need the position of the element in the whole tensor.
        workers: Workers that share a vertex.
        grain: Elements that a worker's share is a multiple of.
        base: ``MultiVertex``, or ``SupervisorVertex`` where the library has code of its own that starts the workers.
    """

    inputs: tuple[Port | None, ...]
    outputs: tuple[Port, ...]
    rows: bool
    indexed: bool
    workers: int
    grain: int
    base: str = "MultiVertex"

    @property
    def ports(self) -> tuple[Port, ...]:
        """Every field once: operands, then outputs that overwrite none."""
        found = [p for p in self.inputs if p is not None]
        return tuple(dict.fromkeys([*found, *self.outputs]))


def element_codelet(
    name: str, fused: Fused, layout: Layout, cycles: Callable[..., Any], cost_key: object = None
) -> type:
    """The codelet class that evaluates ``fused``; one class for one text and cost.

    Args:
        name: Readable part of the class name.
        fused: The expressions.
        layout: Its fields and loops.
        cycles: Cost formula of a vertex.
        cost_key: What tells the formula from another of the same expressions and fields.
    """
    fields = [p.declaration for p in layout.ports]
    if layout.rows:
        fields.append("columns: i32")
    if layout.indexed:
        fields += ["base: i32", "row_step: i32", "column_step: i32"]
    operations = tuple(TABLE[op.op].popops_name for op in fused.operations)
    return build(name, layout.base, fields, _loop(fused, layout), cycles, extra=(operations, fused.types, cost_key))


def element_statements(fused: Fused, inputs: Sequence[Port | None], outputs: Sequence[Port]) -> list[str]:
    """Statements that compute and store the element of every output at ``i``, as the ports say where it is."""
    return _Statements(Layout(tuple(inputs), tuple(outputs), rows=False, indexed=False, workers=1, grain=1)).render(
        fused
    )


def _loop(fused: Fused, layout: Layout) -> list[str]:
    size = f"len(self.{layout.outputs[0].name})"
    chunk = layout.workers * layout.grain
    head = [
        f"size = {size}",
        f"share = (size + {chunk - 1}) // {chunk} * {layout.grain}",
        "begin = worker_id * share",
        "end = min(begin + share, size)",
    ]
    if layout.base == "SupervisorVertex":
        head = ["begin = 0", f"end = {size}"]
    body = _Statements(layout).render(fused)
    if not layout.rows:
        index = ["at = self.base + i * self.column_step"] if layout.indexed else []
        return [*head, "for i in range(begin, end):", *_indented(index + body)]
    index = ["at = self.base + row * self.row_step + (i - start) * self.column_step"] if layout.indexed else []
    walk = ["for i in range(begin, min(start + self.columns, end)):", *_indented(index + body)]
    step = ["row += 1", "start += self.columns", "begin = start"]
    first = ["row = begin // self.columns", "start = row * self.columns"]
    return [*head, *first, "while begin < end:", *_indented(walk + step)]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


_INFIX = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>"}
_INFIX |= {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_CALLS = {n: n for n in ("exp", "log", "tanh", "sigmoid", "erf", "sin", "cos", "pow", "sqrt", "rsqrt", "floor", "ceil")}
_CALLS |= {"round": "rint", "max": "max", "min": "min", "abs": "abs"}


class _Statements:
    """Renders kernel expressions as statements of the vertex language, each shared part once."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.lines: list[str] = []
        self.known: dict[ir.Expr, str] = {}
        self.types = tuple(numerics.f32 if p is None else p.type for p in layout.inputs)

    def render(self, fused: Fused) -> list[str]:
        """Statements that compute and store every output."""
        values = [self.value(low, ir.compute_type(t)) for low, t in zip(fused.lowered, fused.out_types, strict=True)]
        for port, value in zip(self.layout.outputs, values, strict=True):
            self.lines.append(f"{port.element} = {self.narrowed(value, port.type)}")
        return self.lines

    @staticmethod
    def narrowed(value: str, type_: ElementType) -> str:
        """``value``, of the compute type, as an element of ``type_``."""
        return value if ir.compute_type(type_) == type_ else f"{type_name(type_)}({value})"

    def value(self, expression: ir.Expr, wanted: ElementType) -> str:
        """A name or literal for ``expression``; a constant takes the type ``wanted``."""
        if isinstance(expression, ir.Const):
            return _literal(expression.value, wanted)
        if expression not in self.known:
            text = self.text(expression)
            name = f"v{len(self.known)}"
            self.known[expression] = name
            self.lines.append(f"{name} = {text}")
        return self.known[expression]

    def text(self, expression: ir.Expr) -> str:
        """The right-hand side for ``expression``."""
        match expression:
            case ir.Load():
                port = self.layout.inputs[expression.operand]
                assert port is not None
                wide = ir.compute_type(port.type)
                return port.element if wide == port.type else f"{type_name(wide)}({port.element})"
            case ir.Index():
                return _linear(expression.affine)
            case ir.Random():
                port = self.layout.inputs[expression.seed]
                assert port is not None
                seed = f"self.{port.name}"
                return f"random_u32({seed}[0], {seed}[1], {expression.modifier}, {_linear(expression.index)})"
            case ir.Cast():
                return self.cast(expression)
            case ir.Apply():
                return self.apply(expression)
        raise TypeError(f"{expression!r} is no kernel expression")

    def cast(self, expression: ir.Cast) -> str:
        """A conversion; to 16-bit floats and back."""
        wide = ir.compute_type(expression.type)
        source = wide if isinstance(expression.arg, ir.Const) else ir.result_type(expression.arg, self.types)
        inner = self.value(expression.arg, source)
        if wide == expression.type:
            return f"{type_name(wide)}({inner})"
        return f"{type_name(wide)}({type_name(expression.type)}({inner}))"

    def apply(self, expression: ir.Apply) -> str:
        """An operation on named values."""
        op = expression.op
        if op == "select":
            condition, *rest = expression.args
            common = ir.common_type(tuple(rest), self.types, at=expression)
            then, otherwise = (self.value(a, common) for a in rest)
            return f"{then} if {self.value(condition, numerics.bool_)} else {otherwise}"
        common = ir.common_type(expression.args, self.types, at=expression)
        values = [self.value(a, common) for a in expression.args]
        return _operation(op, values, common)


def _operation(op: str, values: Sequence[str], type_: ElementType) -> str:
    if op in _INFIX:
        return f" {_INFIX[op]} ".join(values)
    if op == "div":
        return _division(values[0], values[1], type_)
    if op in _CALLS:
        return f"{_CALLS[op]}({', '.join(values)})"
    x = values[0]
    unary = {"neg": f"-{x}", "square": f"{x} * {x}", "inv": f"1.0 / {x}", "relu": f"max({x}, {_literal(0, type_)})"}
    unary["not"] = f"not {x}" if type_ == numerics.bool_ else f"~{x}"
    return unary[op]


def _division(x: str, y: str, type_: ElementType) -> str:
    """A quotient; of integers truncated towards zero, where ``//`` of the vertex language rounds down."""
    if type_.is_float:
        return f"{x} / {y}"
    return f"-((-{x}) // {y}) if ({x} ^ {y}) < 0 else {x} // {y}" if type_.kind == "int" else f"{x} // {y}"


def _literal(value: float | int | bool, type_: ElementType) -> str:
    if type_ == numerics.bool_:
        return repr(bool(value))
    if not type_.is_float:
        return repr(int(value))
    number = float(value)
    if math.isfinite(number):
        return repr(number)
    return "INF - INF" if math.isnan(number) else "-INF" if number < 0 else "INF"


def _linear(index: ir.Affine) -> str:
    scale = index.terms[0][1] if index.terms else 0
    return f"at * {scale} + {index.const}"
