"""Graphs of ONNX under construction: names, nodes, constants, and graphs inside graphs.

Equal nodes are written once. A graph inside sees the names around it, as ONNX has it, so a constant is always an
initialiser of the outermost graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from abele.arrays import Array
from abele.errors import UnsupportedOpError, nearest
from abele.frontends.onnx.types import type_code
from abele.network.ir import NetworkOp, OpBlock, Shape, Value
from abele.network.ir.network import needed
from abele.numerics import ElementType, f8_143, f8_152, f32

Written = str | tuple[str | None, ...]
Write = Callable[..., Written]

WRITERS: dict[str, Write] = {}
"""Writers by kind of op: they take the graph, the op and the name of each operand, and give those of results."""

LARGE = 64
"""Elements above which a constant of one number is written as the number, and repeated by a node. Chosen."""


def writer(*kinds: str) -> Callable[[Write], Write]:
    """Register what writes ops of these kinds."""

    def register(write: Write) -> Write:
        for kind in kinds:
            assert kind not in WRITERS, f"{kind} is registered twice"
            WRITERS[kind] = write
        return write

    return register


@dataclass
class _InnerScope:
    """Nodes of one graph, and the results of those that may stand for equal ones."""

    nodes: list[NodeProto] = field(default_factory=list)
    known: dict[Any, tuple[str, ...]] = field(default_factory=dict)


class GraphWriter:
    """A graph to which ops are written.

    Args:
        opset: Version of the standard operators.
        valid: Values of whole numbers, with the range that they are known to lie in.
    """

    def __init__(self, opset: int, valid: Mapping[Value, tuple[int, int]] | None = None) -> None:
        self.opset = opset
        self.initializers: dict[str, TensorProto] = {}
        self.valid = dict(valid or {})
        self.read: set[Value] = set()
        self.at: NetworkOp | None = None
        self._scopes = [_InnerScope()]
        self._names: dict[Value, str] = {}
        self._taken: set[str] = set()
        self._constants: dict[Any, str] = {}
        self._ordinals: dict[str, int] = {}

    # --- names --------------------------------------------------------------------------------------------------------

    def unique(self, wanted: str) -> str:
        """``wanted``, or with a number after it where something has this name."""
        name = wanted or "value"
        while name in self._taken:
            self._ordinals[wanted] = self._ordinals.get(wanted, 0) + 1
            name = f"{wanted or 'value'}_{self._ordinals[wanted]}"
        self._taken.add(name)
        return name

    def name(self, value: Value) -> str:
        """Name of a value that has been written."""
        return self._names[value]

    def bind(self, value: Value, name: str) -> None:
        """Let a value have a name."""
        self._names[value] = name

    @property
    def nodes(self) -> list[NodeProto]:
        """Nodes of the graph that is being written."""
        return self._scopes[-1].nodes

    # --- nodes --------------------------------------------------------------------------------------------------------

    def node(self, operator: str, *inputs: str, fresh: bool = False, **attrs: Any) -> str:
        """The result of an operator.

        Args:
            operator: Its name.
            inputs: Names of its operands; empty for those that are left out.
            fresh: True for a node that no equal one stands for.
            attrs: Its attributes.
        """
        return self.nodes_of(operator, inputs, 1, fresh=fresh, **attrs)[0]

    def nodes_of(
        self, operator: str, inputs: Sequence[str], count: int, *, fresh: bool = False, **attrs: Any
    ) -> tuple[str, ...]:
        """All results of an operator; see :meth:`node`."""
        given = {name: value for name, value in attrs.items() if value is not None}
        key: Any = None
        if not fresh:
            key = (operator, tuple(inputs), count, repr(sorted(given.items())))
            for scope in reversed(self._scopes):
                if key in scope.known:
                    return scope.known[key]
        label = "" if self.at is None else self.at.debug.full_name
        node = self.unique(f"{label}/{operator}" if label else operator)
        made = (node, *(self.unique(f"{node}:{n}") for n in range(1, count)))
        self.nodes.append(helper.make_node(operator, list(inputs), list(made), name=node, **given))
        if not fresh:
            self._scopes[-1].known[key] = made
        return made

    def unsupported(self, what: str, remedy: str | None = None) -> UnsupportedOpError:
        """The error that ONNX has nothing for what is being written."""
        return UnsupportedOpError(
            f"ONNX has no {what}", at="" if self.at is None else str(self.at.debug), remedy=remedy
        )

    def require_opset(self, version: int, what: str) -> None:
        """Raise unless the opset is of a version.

        Raises:
            UnsupportedOpError: It is older.
        """
        if self.opset < version:
            raise UnsupportedOpError(
                f"ONNX has {what} since opset {version}, the model is written for {self.opset}",
                at="" if self.at is None else str(self.at.debug),
                remedy=f"export(…, opset={version})",
            )

    # --- constants ----------------------------------------------------------------------------------------------------

    def constant(self, array: Array, wanted: str = "constant") -> str:
        """A constant; equal ones are there once."""
        array = np.asarray(array)
        if array.size > LARGE and not any(array.strides):
            one = self.constant(np.array(array.flat[0]), wanted)
            return self.node("Expand", one, self.ints(array.shape))
        array = np.ascontiguousarray(array).reshape(array.shape)
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.initializer(array, wanted)
        return self._constants[key]

    def initializer(self, array: Array, wanted: str) -> str:
        """An initialiser of its own."""
        name = self.unique(wanted)
        self.initializers[name] = tensor_of(np.asarray(array), name)
        return name

    def ints(self, numbers: Iterable[int]) -> str:
        """A list of i64, such as a shape."""
        return self.constant(np.array(list(numbers), np.int64), "numbers")

    def number(self, number: float | int | bool, dtype: ElementType) -> str:
        """A scalar."""
        return self.constant(np.asarray(number).astype(dtype.np), "number")

    # --- operators that are everywhere --------------------------------------------------------------------------------

    def cast(self, name: str, was: ElementType, dtype: ElementType) -> str:
        """Elements as another type."""
        return name if was == dtype else self.node("Cast", name, to=code_of(dtype))

    def reshape(self, name: str, shape: Iterable[int]) -> str:
        """Elements in another shape."""
        return self.node("Reshape", name, self.ints(shape))

    def expand(self, name: str, shape: Shape) -> str:
        """Elements repeated to a shape."""
        return self.node("Expand", name, self.ints(shape))

    def slice(self, name: str, dim: int, begin: int, end: int, step: int = 1) -> str:
        """Some indices of one dimension."""
        return self.node("Slice", name, *(self.ints([n]) for n in (begin, end, dim, step)))

    def pad(self, name: str, low: Sequence[int], high: Sequence[int], fill: str) -> str:
        """Elements with others around them; ``fill`` is the name of the number."""
        return self.node("Pad", name, self.ints([*low, *high]), fill)

    def reduce(self, operator: str, name: str, dims: Sequence[int], *, keep: bool = False) -> str:
        """A reduction over dimensions; sums take their dimensions as an operand since 13, all others since 18."""
        if not dims:
            return name
        if self.opset >= 18 or operator == "ReduceSum":
            return self.node(operator, name, self.ints(dims), keepdims=int(keep))
        return self.node(operator, name, axes=list(dims), keepdims=int(keep))

    # --- ops ----------------------------------------------------------------------------------------------------------

    def ops(self, ops: Iterable[NetworkOp], results: Sequence[Value]) -> list[str]:
        """Write what results depend on; gives the names of the results."""
        kept = needed(ops, results)
        self.read.update(results)
        self.read.update(v for op in kept for v in op.inputs)
        for op in kept:
            self.op(op)
        return [self.name(v) for v in results]

    def op(self, op: NetworkOp) -> None:
        """Write one op.

        Raises:
            UnsupportedOpError: ONNX has nothing for it.
        """
        write, self.at = WRITERS.get(op.kind), op
        if write is None:
            raise self.unsupported(
                f"operator for an op of kind {op.kind!r}", "leave it out of the part of the model that is exported"
            )
        made = write(self, op, *map(self.name, op.inputs))
        for value, name in zip(op.outputs, (made,) if isinstance(made, str) else made, strict=True):
            if name is not None:
                self.bind(value, name)
            elif value in self.read:
                raise self.unsupported(f"operator for what {op.kind!r} keeps", "export the model for inference")

    def block(self, block: OpBlock, arguments: Sequence[str]) -> list[str]:
        """Write a block where it stands; gives the names of its results."""
        outer = self.at
        for value, name in zip(block.parameters, arguments, strict=True):
            self.bind(value, name)
        made = self.ops(block.ops, block.results)
        self.at = outer
        return made

    @contextmanager
    def inside(self) -> Iterator[_InnerScope]:
        """Write into a graph inside this one."""
        self._scopes.append(_InnerScope())
        try:
            yield self._scopes[-1]
        finally:
            self._scopes.pop()

    def graph(
        self, wanted: str, inputs: Sequence[ValueInfoProto], make: Callable[[], Sequence[tuple[str, Any]]]
    ) -> GraphProto:
        """A graph inside this one.

        Args:
            wanted: Its name.
            inputs: Its inputs.
            make: Writes it; gives the name and the type of each result.
        """
        with self.inside() as scope:
            results = list(make())
            # A result is made inside, under a name that nothing else has.
            named = [(self.node("Identity", name, fresh=True), kind) for name, kind in results]
        outputs = [info(name, *kind) for name, kind in named]
        return helper.make_graph(scope.nodes, wanted, list(inputs), outputs)


def code_of(dtype: ElementType) -> int:
    """Number of the ONNX type of a device type.

    Raises:
        UnsupportedOpError: It is an 8-bit float with a scale, which ONNX does not have.
    """
    if dtype.is_quarter:
        codes = {f8_143: TensorProto.FLOAT8E4M3FNUZ, f8_152: TensorProto.FLOAT8E5M2FNUZ}
        if dtype not in codes:
            close = nearest(str(dtype), ["f8_143", "f8_152"])
            raise UnsupportedOpError(f"ONNX has no type {dtype}", remedy=f"use {close or 'f16'}")
        return int(codes[dtype])
    return type_code(dtype)


def info(name: str, shape: Shape, dtype: ElementType | int) -> ValueInfoProto:
    """Name and type of a tensor."""
    code = dtype if isinstance(dtype, int) else code_of(dtype)
    return helper.make_tensor_value_info(name, code, list(shape))


def tensor_of(array: Array, name: str) -> TensorProto:
    """An array as ONNX keeps it."""
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def wide(dtype: ElementType) -> ElementType:
    """The type that floats are computed in: f32."""
    return f32 if dtype.is_float else dtype
