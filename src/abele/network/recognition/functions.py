"""Activation functions written out, and their gradients: found by their values.

A chain of maps of one value is a function of it, whatever it is written as. It is compared at points between -9 and 9
with each function that the libraries have as one vertex with its gradient: GELU in both forms and SiLU. What is made
of the same value and one other one is compared with the function's gradient. Functions are equal here if they differ
by no more than the rounding of the constants in them, which are of the value's type.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np

from abele.arrays import Array
from abele.expr import NONLINEARITIES, TABLE, derivative, evaluate
from abele.expr.nodes import Apply, Const, Expr, Load
from abele.network.ir import NetworkOp, Value
from abele.network.ops import build
from abele.network.recognition.region import Appender, Emit, Replacements, Uses
from abele.numerics import ElementType, bf16, f16, f32

WRITTEN_OUT = ("gelu", "gelu_erf", "swish")
"""Functions of several operations whose vertices cost less than the operations one by one."""
_TOLERANCES = {f32: 3e-6, f16: 4e-3, bf16: 2e-2}
_POINTS = np.concatenate([np.linspace(-9, 9, 37), [-0.03, 0.0, 1e-3, 0.7]])
_TELLING = frozenset({"erf", "erfc", "tanh", "sigmoid", "exp"})
_MOST_NODES = 240
_MOST_SOURCES = 5
_MOST_OPS = 200


def find_functions(uses: Uses) -> Iterator[Replacements]:
    """Activation functions of a block, each with what takes the place of its values."""
    if not any(op.kind == "map" and _tells(op.attrs["expr"]) for op in uses.ops):
        return
    unary = _Unary(uses)
    found: dict[Value, tuple[str, Value]] = {}
    for op in uses.ops:
        if op.kind == "map" and op.output.dtype in _TOLERANCES and len(op.inputs) <= _MOST_SOURCES:
            hit = unary.function(op)
            if hit is not None:
                found[op.output] = hit
    sources = dict.fromkeys(found.values())
    for function, source in sources:
        plan = Replacements()
        for result, known in found.items():
            if known == (function, source):
                plan.instead[result] = _forward(function, source)
        plan.instead |= _gradients(uses, function, source)
        yield plan


def _tells(expression: Expr) -> bool:
    return any(isinstance(part, Apply) and part.op in _TELLING for part in expression.walk())


def find_relu_gradients(uses: Uses) -> Iterator[Replacements]:
    """Gradients of relu, as choices by the sign of what entered: made of the result, as the library's vertices are."""
    for op in uses.ops:
        match op.attrs["expr"] if op.kind == "map" and len(op.inputs) == 1 else None:
            case Apply(op="max", operands=(Load(), Const(value=0.0)) | (Const(value=0.0), Load())):
                if op.inputs[0].type == op.output.type and op.output.dtype in _TOLERANCES:
                    yield Replacements(_gradients(uses, "relu", op.inputs[0], op.output))


def _forward(function: str, source: Value) -> Emit:
    return lambda to: build.nonlinearity(to.net, function, to.values[source])


def _near(made: object, wanted: Array, dtype: ElementType) -> bool:
    allowed = _TOLERANCES[dtype]
    found = np.broadcast_to(np.asarray(made, np.float64), wanted.shape)
    return bool(np.all(np.abs(found - wanted) <= allowed * np.maximum(1.0, np.abs(wanted))))


class _Unary:
    """Values as functions of one value each, of several to choose from."""

    def __init__(self, uses: Uses) -> None:
        self._uses = uses
        self._of: dict[Value, dict[Value, Expr]] = {}
        with np.errstate(all="ignore"):
            self._wanted = {
                name: TABLE[NONLINEARITIES[name].op].meaning(_POINTS.astype(np.float64)) for name in WRITTEN_OUT
            }

    def function(self, op: NetworkOp) -> tuple[str, Value] | None:
        """The function that the result of a map is, and of what; None if it is none."""
        shape, choices = op.output.shape, dict[Value, Expr]()
        known = [self._of.get(v, {}) | {v: derivative.arg(0)} for v in op.inputs if v.shape == shape]
        if len(known) == len(op.inputs) and known and all(v.dtype.is_float for v in op.inputs):
            common = [c for c in known[0] if all(c in other for other in known)]
            for source in common[-_MOST_SOURCES:]:
                expression = derivative.substitute(op.attrs["expr"], lambda n, s=source: known[n][s])  # type: ignore[misc]
                if sum(1 for _ in expression.walk()) <= _MOST_NODES:
                    choices[source] = expression
        self._of[op.output] = choices
        for source, expression in choices.items():
            if source.dtype == op.output.dtype and _tells(expression):
                made = evaluate(expression, [_POINTS])
                near = [name for name, wanted in self._wanted.items() if _near(made, wanted, op.output.dtype)]
                if near:
                    return min(near, key=lambda name: float(np.abs(made - self._wanted[name]).max())), source
        return None


def _gradients(uses: Uses, function: str, source: Value, saved: Value | None = None) -> dict[Value, Emit]:
    """Replacements of gradients by the source: maps of it and of one other value.

    Args:
        uses: The block.
        function: The function.
        source: Its argument.
        saved: Operand of its gradient; None for the source.
    """
    made: dict[Value, tuple[Expr, tuple[Value, ...]]] = {source: (derivative.arg(0), (source,))}
    gradient = TABLE[NONLINEARITIES[function].gradient].meaning
    rng = np.random.default_rng(0)
    by = rng.normal(size=_POINTS.size)
    with np.errstate(all="ignore"):
        wanted = gradient(_POINTS if saved is None else np.maximum(_POINTS, 0.0), by)
    instead: dict[Value, Emit] = {}
    waiting = [uses.place[op] for op in uses.readers.get(source, ())]
    heapq.heapify(waiting)
    seen = set[int]()
    while waiting and len(seen) < _MOST_OPS:
        number = heapq.heappop(waiting)
        op = uses.ops[number]
        if number in seen or op.kind != "map" or op.output.shape != source.shape:
            continue
        seen.add(number)
        operands = list[Value]([source])
        parts: list[Expr] = []
        for operand in op.inputs:
            expression, leaves = made.get(operand, (derivative.arg(0), (operand,)))
            places = [_place(operands, leaf) for leaf in leaves]
            parts.append(derivative.substitute(expression, lambda n, p=places: derivative.arg(p[n])))  # type: ignore[misc]
        whole = derivative.substitute(op.attrs["expr"], parts.__getitem__)
        if len(operands) > 2 or sum(1 for _ in whole.walk()) > _MOST_NODES:
            continue
        made[op.output] = whole, tuple(operands)
        for reader in uses.readers.get(op.output, ()):
            heapq.heappush(waiting, uses.place[reader])
        fits = len(operands) == 2 and operands[1].type == source.type == op.output.type
        if fits and _near(evaluate(whole, [_POINTS, by]), wanted, source.dtype):
            instead[op.output] = _backward(function, saved or source, operands[1])
    return instead


def _place(operands: list[Value], leaf: Value) -> int:
    if leaf not in operands:
        operands.append(leaf)
    return operands.index(leaf)


def _backward(function: str, source: Value, gradient: Value) -> Emit:
    def make(to: Appender) -> Value:
        saved, given = to.values[source], to.values[gradient]
        return to.net.emit_like("nonlinearity_grad", [saved, given], saved, function=function)

    return make
