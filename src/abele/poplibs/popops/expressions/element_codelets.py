"""Codelets from expressions: a MultiVertex that evaluates fused expressions over its elements.

Expressions over primitive operations become the tree of a codelet as the table of operations says: each operation is
a statement of its own, so that what is shared is computed once. The text beside the tree is what listings show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import abele.expr as ir
from abele import numerics
from abele.codelet import ONE_PTR, SPAN, InOut, Input, Output, Vector
from abele.codelet.tree import Local
from abele.codelet.write import CodeWriter, WrittenValue
from abele.codelet.written import written_codelet
from abele.expr import TABLE, InVertex
from abele.numerics import ElementType, i32
from abele.poplibs.popops.expressions.fused import Fused

Access = Literal["full", "row", "column", "single", "whole", "column of block", "block"]
"""Elements of an operand that a vertex reads: one for each of its own, for each row, for each column, one in all, or a
vector of its own (a seed); or, where its rows are of several blocks, one for each column of each, or for each.
"""


FLAT_CODE_BYTES = 261
"""Code of a vertex whose workers share its elements, at least: six workers' shares, heads and tails that do not fill a
vector, and the loop. Source: POPLINER, operations of one vertex on each of 4 tiles have 261 to 264 B of code there.
"""
ROW_CODE_BYTES = 162
"""The same where an operand is repeated along rows or columns. Source: POPLINER, a mask and a bias that are added have
162 B on each of 1,280 and 1,456 tiles.
"""

_VECTOR: Any = Vector
_DIRECTIONS: dict[str, Any] = {"Input": Input, "Output": Output, "InOut": InOut}


@dataclass(frozen=True)
class Port:
    """One field of a codelet.

    Attributes:
        name: Field name.
        type: Element type.
        direction: ``Input``, ``Output`` or ``InOut``.
        access: Way in which elements are addressed.
    """

    name: str
    type: ElementType
    direction: str
    access: Access

    def declared(self, *, has_size: bool) -> Any:
        """Type that the field is declared with; one vector of a vertex has the size, the others are pointers.

        Source: declarations of PopLibs' UnaryOp1D, BinaryOp1D and broadcasts (docs/library_vertices.md).
        """
        content = self.type if self.access == "single" else _VECTOR[self.type, SPAN if has_size else ONE_PTR]
        return _DIRECTIONS[self.direction][content]

    def index(self, code: CodeWriter) -> tuple[WrittenValue, ...]:
        """Index, in the field, of the element of position i."""
        match self.access:
            case "full":
                return (code.local("i"),)
            case "row":
                return (code.local("row"),)
            case "column":
                return (code.local("i") - code.local("start"),)
            case "column of block":
                return (code.local("i") - code.local("start") + code.local("block") * code.scalar("columns"),)
            case "block":
                return (code.local("block"),)
        return ()

    def load(self, code: CodeWriter) -> WrittenValue:
        """The element that belongs to position i."""
        index = self.index(code)
        return code.element(self.name, *index) if index else code.scalar(self.name)

    def store(self, code: CodeWriter, value: WrittenValue) -> None:
        """Set the element that belongs to position i."""
        code.store(self.name, value, *self.index(code))


@dataclass(frozen=True)
class OperandLayout:
    """Properties of a codelet that follow from the layout of its operands, not from its expressions.

    Attributes:
        inputs: Port of each operand that is read.
        outputs: Port of each output; the port of an operand where it is overwritten.
        rows: True if vertices walk rows of ``columns`` elements.
        indexed: True if the expressions need the position of the element in the whole tensor.
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

    @property
    def blocks(self) -> bool:
        """True if a vertex has rows of several blocks of ``height`` rows, the first without its ``skip`` first ones."""
        return any(p.access in ("column of block", "block") for p in self.ports)

    @property
    def overlays(self) -> tuple[tuple[str, str], ...]:
        """Outputs, each with an operand of its type that it may take the place of: the two are read and written element
        by element, and all operands of an element are read before its first result is written.
        """
        read = [p for p in self.ports if p.direction == "Input" and p.access == "full"]
        made = [o for o in self.outputs if o.direction == "Output"]
        return tuple((o.name, p.name) for o in made for p in read if o.type == p.type)


def element_codelet(
    name: str, fused: Fused, layout: OperandLayout, cycles: Callable[..., Any], cost_key: object = None
) -> type:
    """The codelet class that evaluates ``fused``; one class for one text and cost.

    Args:
        name: Readable part of the class name.
        fused: The expressions.
        layout: Its fields and loops.
        cycles: Cost formula of a vertex.
        cost_key: Key that tells the formula from another of the same expressions and fields.
    """
    operations = tuple(TABLE[op.op].popops_name for op in fused.operations)
    extra = operations, fused.types, cost_key
    least = ROW_CODE_BYTES if layout.rows else FLAT_CODE_BYTES
    return written_codelet(
        name,
        _code(fused, layout),
        cycles,
        extra,
        overlays=layout.overlays,
        least_code_bytes=0 if layout.base == "Vertex" else least,
    )


_WRITTEN: dict[tuple[OperandLayout, tuple[ElementType, ...], str], CodeWriter] = {}
"""Code that has been written, by fields, types of outputs and expressions."""
_MOST_WRITTEN = 1024


def _code(fused: Fused, layout: OperandLayout) -> CodeWriter:
    """Fields and statements of a codelet, which are only read from here on."""
    # As text, which tells 0.0 from -0.0 and 1 from 1.0: numbers that are equal, and written otherwise.
    key = layout, fused.out_types, repr(fused.lowered)
    code = _WRITTEN.get(key)
    if code is None:
        declared = {p.name: p.declared(has_size=p == layout.outputs[0]) for p in layout.ports}
        if layout.rows:
            declared["columns"] = i32
        if layout.blocks:
            declared |= dict.fromkeys(("height", "skip"), i32)
        if layout.indexed:
            declared |= dict.fromkeys(("base", "row_step", "column_step"), i32)
        code = CodeWriter(layout.base, declared)
        _write_loop(code, fused, layout)
        if len(_WRITTEN) >= _MOST_WRITTEN:
            _WRITTEN.clear()
        _WRITTEN[key] = code
    return code


def element_statements(fused: Fused, inputs: Sequence[Port | None], outputs: Sequence[Port]) -> list[str]:
    """Text of the statements that compute and store the element of every output, as the ports say where it is."""
    code = CodeWriter("Vertex", {})
    _Statements(code, inputs, outputs).write(fused)
    return code.lines


def _write_loop(code: CodeWriter, fused: Fused, layout: OperandLayout) -> None:
    out, chunk = layout.outputs[0].name, layout.workers * layout.grain
    if layout.base == "SupervisorVertex":
        code.let("begin", code.number(0))
        code.let("end", code.length(out))
    else:
        code.let("size", code.length(out))
        # Shares are whole grains, so that a worker's vectors are aligned; the last workers may have less, or nothing.
        rounded = (code.local("size") + code.number(chunk - 1)) // code.number(chunk) * code.number(layout.grain)
        code.let("share", rounded)
        code.let("begin", code.local("worker_id") * code.local("share"))
        code.let("end", code.call("min", code.local("begin") + code.local("share"), code.local("size")))
    statements = _Statements(code, layout.inputs, layout.outputs)
    if not layout.rows:
        with code.loop("i", code.local("begin"), code.local("end")) as i:
            if layout.indexed:
                code.let("at", code.scalar("base") + i * code.scalar("column_step"))
            statements.write(fused)
        return
    # A worker's share may begin and end within a row: its first and last row are cut by `begin` and `end`.
    code.let("row", code.local("begin") // code.scalar("columns"))
    code.let("start", code.local("row") * code.scalar("columns"))
    with code.repeat(code.local("begin").compare("<", code.local("end"))):
        row_end = code.local("start") + code.scalar("columns")
        if layout.blocks:
            code.let("block", (code.local("row") + code.scalar("skip")) // code.scalar("height"))
        with code.loop("i", code.local("begin"), code.call("min", row_end, code.local("end"))) as i:
            if layout.indexed:
                in_row = (i - code.local("start")) * code.scalar("column_step")
                code.let("at", code.scalar("base") + code.local("row") * code.scalar("row_step") + in_row)
            statements.write(fused)
        code.increase("row", code.number(1))
        code.increase("start", code.scalar("columns"))
        code.let("begin", code.local("start"))


class _Statements:
    """Writes expressions over primitive operations as statements, each shared part once.

    Args:
        code: Writer that statements go to.
        inputs: Port of each operand.
        outputs: Port of each result.
    """

    def __init__(self, code: CodeWriter, inputs: Sequence[Port | None], outputs: Sequence[Port]) -> None:
        self.code = code
        self.inputs = inputs
        self.outputs = outputs
        self.known: dict[ir.Expr, str] = {}
        self.typing = ir.Typing(tuple(numerics.f32 if p is None else _computed_type(p.type) for p in inputs))

    def write(self, fused: Fused) -> None:
        """Compute and store every output."""
        values = [self.value(low, _computed_type(t)) for low, t in zip(fused.lowered, fused.out_types, strict=True)]
        for port, value in zip(self.outputs, values, strict=True):
            narrow = _computed_type(port.type) != port.type
            # All values are known before the first store, as an output may overwrite an operand of another.
            port.store(self.code, value.converted(port.type) if narrow else value)

    def value(self, expression: ir.Expr, wanted: ElementType) -> WrittenValue:
        """A variable or literal for ``expression``; a constant takes the type ``wanted``."""
        if isinstance(expression, ir.Const):
            return self.literal(expression.value, wanted)
        if expression not in self.known:
            value = self.computed(expression)
            self.known[expression] = name = f"v{len(self.known)}"
            self.code.let(name, value)
        return self.code.local(self.known[expression])

    def literal(self, value: float | int | bool, type_: ElementType) -> WrittenValue:
        """A number as one of ``type_``."""
        if type_ == numerics.bool_:
            return self.code.number(bool(value))
        return self.code.number(float(value) if type_.is_float else int(value))

    def port(self, operand: int) -> Port:
        """Port from which an operand is read."""
        found = self.inputs[operand]
        assert found is not None
        return found

    def computed(self, expression: ir.Expr) -> WrittenValue:
        """Value of the variable of ``expression``."""
        match expression:
            case ir.Load():
                port = self.port(expression.operand)
                wide = _computed_type(port.type)
                loaded = port.load(self.code)
                return loaded if wide == port.type else loaded.converted(wide)
            case ir.Index():
                return self.linear(expression.affine)
            case ir.Random():
                seed = self.port(expression.seed).name
                words = (self.code.element(seed, self.code.number(n)) for n in (0, 1))
                where = self.linear(expression.index)
                return self.code.call("random_u32", *words, self.code.number(expression.modifier), where)
            case ir.Cast():
                return self.cast(expression)
            case ir.Apply():
                return self.apply(expression)
        raise TypeError(f"{expression!r} is no expression")

    def cast(self, expression: ir.Cast) -> WrittenValue:
        """A conversion; to 16-bit floats and back."""
        wide = ir.compute_type(expression.type)
        inner = self.value(
            expression.arg, wide if isinstance(expression.arg, ir.Const) else self.typing.of(expression.arg)
        )
        return (inner if wide == expression.type else inner.converted(expression.type)).converted(wide)

    def apply(self, expression: ir.Apply) -> WrittenValue:
        """An operation on variables."""
        args, before = expression.args, []
        if expression.op == "select":
            before, args = [(args[0], numerics.bool_)], args[1:]
        common = self.typing.common(args, at=expression)
        # A condition comes last, where the language evaluates it; its own statements stay in front of its choice.
        values = [self.value(a, t) for a, t in [*((a, common) for a in args), *before]]
        if before:
            values = [values[-1], *values[:-1]]
        return self.said(expression.op, values, common)

    def said(self, op: str, values: Sequence[WrittenValue], type_: ElementType) -> WrittenValue:
        """An operation on ``values`` of type ``type_``, as the table says that vertices have it."""
        operation = TABLE[op]
        form = operation.in_vertex if type_.is_float else operation.in_integer_vertex or operation.in_vertex
        assert form is not None
        if isinstance(form, InVertex):
            return _construct(self.code, form, values)
        return self.inline(form(type_, *(ir.Load(n, ()) for n in range(len(values)))), values, type_)

    def inline(self, expression: ir.Expr, values: Sequence[WrittenValue], type_: ElementType) -> WrittenValue:
        """An expression over ``%n[]`` for value n, in one statement."""
        match expression:
            case ir.Load():
                return values[expression.operand]
            case ir.Const():
                return self.literal(expression.value, type_)
            case ir.Apply():
                return self.said(expression.op, [self.inline(a, values, type_) for a in expression.args], type_)
        raise TypeError(f"{expression!r} has no place in a vertex")

    def linear(self, index: ir.Affine) -> WrittenValue:
        """A multiple of the position in the whole tensor, and a constant."""
        scale = index.terms[0][1] if index.terms else 0
        return self.code.local("at") * self.code.number(scale) + self.code.number(index.const)


def _computed_type(type_: ElementType) -> ElementType:
    """The type in which a vertex computes with elements of ``type_``; 8-bit floats are widened where they are read."""
    return ir.compute_type(type_)


def _construct(code: CodeWriter, form: InVertex, values: Sequence[WrittenValue]) -> WrittenValue:
    """A construct of the vertex language on values."""
    match form.kind:
        case "operator":
            return values[0].infix(form.name, values[1])
        case "comparison":
            return values[0].compare(form.name, values[1])
        case "choice":
            return code.choice(*values)
        case "sign" if form.name == "neg":
            return values[0].negative()
        case "sign" if form.name == "invert":
            return values[0].inverted()
    return code.call(form.name, *values)


@dataclass(frozen=True)
class OperandPlace(Port):
    """An operand that is read or written where ``text`` says; only text of its statements can be written."""

    text: str = ""

    def load(self, code: CodeWriter) -> WrittenValue:
        """The element at the place."""
        return WrittenValue(Local(type=self.type, name=self.text), self.text)

    def store(self, code: CodeWriter, value: WrittenValue) -> None:
        """Set the element at the place."""
        code.lines.append(f"{self.text} = {value.text}")
