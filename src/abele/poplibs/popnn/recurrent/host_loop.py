"""Parts of recurrent layers as a host runs them: rows in one memory, kernels without vertices, steps where they lie.

Cells are written over units, loops and products (:mod:`abele.poplibs.popnn.recurrent.cell`). Here are other ones, which
give the same cells another form: what belongs to a sample lies in a row, each product and each map is a kernel and
nothing more, and a step of a sequence is a view that moves on from trip to trip, so that no step is sliced or put back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from operator import mul

from abele.graph import Copy, HostLoop, HostOrder, Tensor, Variable, concat
from abele.graph.program import Sequence
from abele.kernels.nest import ir
from abele.kernels.target import row_length
from abele.poplibs.popnn.recurrent.layout import Units
from abele.poplibs.popnn.recurrent.loop import SequenceLoop
from abele.poplibs.popnn.recurrent.product import Product
from abele.poplibs.popops.expr import Expr
from abele.poplibs.popops.expressions.fused import fuse
from abele.poplibs.popops.expressions.host_kernel import elementwise_kernel

PANEL = 32
"""Columns of a panel of weights: two vectors of 512 bits of f32, as a register tile has them, or four of 256."""
NARROW_PANEL = 16
"""Columns of the narrowest panel."""


@dataclass(frozen=True)
class HostUnits(Units):
    """Tensors of hidden units, row after row."""

    def stack(self, count: int, name: str) -> Tensor:
        """A new tensor [count, batch, units]."""
        return self.new((count, self.batch, self.size), name)

    def stacks(self, steps: int, count: int, name: str) -> Tensor:
        """A new tensor [steps, count, batch, units]; the elements of one sample and step are one row."""
        width = count * self.size
        rows = self.new((steps, self.batch, row_length(width, self.dtype)), name)[:, :, :width]
        return rows.reshape((steps, self.batch, count, self.size)).transpose((0, 2, 1, 3))

    def operand(self, sizes: tuple[int, ...], name: str) -> Tensor:
        """A new left operand of products, [batch, sum of sizes]."""
        return self.new((self.batch, sum(sizes)), name)

    def new(self, shape: tuple[int, ...], name: str) -> Tensor:
        """A new tensor, row-major; the machine knows nothing of it."""
        return self.graph.variable(self.dtype, shape, name=f"{name}/host", map="linear")


@dataclass(frozen=True)
class HostSteps(SequenceLoop):
    """The steps of a sequence in one loop of kernels.

    Attributes:
        steps: Number of steps.
        backwards: True if they run from the last to the first.
        strides: Elements that each variable advances per step, so far.
    """

    steps: int = field(kw_only=True)
    backwards: bool = field(kw_only=True)
    strides: dict[Variable, int] = field(kw_only=True, default_factory=dict)

    def at(self, sequence: Tensor) -> Tensor:
        """The step of ``sequence``, [steps, …], that the loop is at: a view that moves on.

        Raises:
            NotSteppedError: Steps do not lie one stride apart.
        """
        strided = sequence.strided()
        factors = None if strided is None else [f for f in strided.factors[0] if f[0] != 1]
        if strided is None or factors is None or len(factors) > 1:
            raise NotSteppedError
        stride = factors[0][1] if factors else 0
        moved = -stride if self.backwards else stride
        if self.strides.setdefault(strided.variable, moved) != moved:
            raise NotSteppedError
        return sequence[self.steps - 1 if self.backwards else 0]

    def map(self, expressions: Iterable[Expr], tensors: list[Tensor], outputs: list[Tensor], name: str) -> None:
        """Write expressions of ``tensors`` to ``outputs``."""
        host_map(self.prog, list(expressions), tensors, outputs, name)

    def loop(self) -> HostLoop:
        """The loop."""
        return HostLoop(self.steps, self.prog, self.strides)


@dataclass(frozen=True)
class RowOrder:
    """Kept values of all steps in the host's order: the elements of one sample and step are one row.

    Attributes:
        rows: [steps, slots, batch, units].
        enter: Step that brings the elements to that order.
        leave: Step that brings them back.
    """

    rows: Tensor
    enter: HostOrder
    leave: HostOrder

    @staticmethod
    def of(kept: Tensor) -> RowOrder | None:
        """The other order of ``kept``, [steps, slots, batch, units]; None if it is not the whole of a variable."""
        strided = kept.strided()
        if strided is None or strided.variable.size != kept.size or any(s == 0 for f in strided.factors for _, s in f):
            return None
        graph, (steps, slots, batch, units) = kept.graph, kept.shape
        flat = graph.whole(strided.variable).flatten()
        rows = flat.reshape((steps, batch, slots, units)).transpose((0, 2, 1, 3))
        between = graph.variable(kept.dtype, kept.shape, name="kept/host", map="linear")
        return RowOrder(rows, HostOrder(kept, rows, between), HostOrder(rows, kept, between))


class NotSteppedError(Exception):
    """Steps of a sequence do not lie so that a view can move from one to the next: hosts run the layer's vertices."""


def clone_in_panels(weights: Tensor, name: str) -> Tensor:
    """A new tensor of the shape of ``weights``, [gates, rows, columns], whose columns lie in panels.

    Register tiles of a product read a panel from end to end, however often a step runs. Rows apart from each other come
    from the caches a piece at a time. Columns that no panel divides lie in rows.
    """
    gates, rows, columns = weights.shape
    width = math.gcd(columns, PANEL)
    if width < NARROW_PANEL:
        return clone_in_rows(weights, name)
    panels = weights.graph.variable(
        weights.dtype, (columns // width, gates, rows, width), name=f"{name}/host", map="linear"
    )
    return panels.transpose((1, 2, 0, 3)).reshape(weights.shape)


def in_rows(tensor: Tensor, prog: Sequence, name: str) -> Tensor:
    """``tensor`` row-major: read many times, it is worth a copy."""
    made = clone_in_rows(tensor, name)
    prog.add(Copy(tensor, made))
    return made


def clone_in_rows(tensor: Tensor, name: str) -> Tensor:
    """A new tensor of the shape of ``tensor``, row-major; the machine knows nothing of it."""
    return tensor.graph.variable(tensor.dtype, tensor.shape, name=f"{name}/host", map="linear")


def host_map(prog: Sequence, expressions: list[Expr], tensors: list[Tensor], outputs: list[Tensor], name: str) -> None:
    """Append a kernel that writes expressions of ``tensors`` to ``outputs``."""
    fused = fuse(expressions, tuple(t.dtype for t in tensors), [t.dtype for t in outputs])
    kernel = elementwise_kernel(fused, tensors, outputs)
    assert kernel is not None  # no 8-bit floats
    host_call(prog, "popops.map", tensors, outputs, kernel, name, flops=len(fused.operations) * outputs[0].size)


def host_call(
    prog: Sequence,
    library: str,
    inputs: list[Tensor],
    outputs: list[Tensor],
    kernel: ir.HostKernel,
    name: str,
    *,
    flops: int,
) -> None:
    """Append a library call that is a kernel and nothing more."""
    call = outputs[0].graph.library_call(
        prog, library, inputs=inputs, outputs=outputs, kernel=kernel, flops=flops, debug_name=name
    )
    with call:
        pass


def host_product(prog: Sequence, dims: str, a: Tensor, b: Tensor, out: Tensor, name: str) -> None:
    """Append out ← the sum of products of ``a`` and ``b`` over the dims that it does not have.

    Args:
        prog: Program that the product is appended to.
        dims: A letter for each dim of the three, as in ``bk,gku->gbu``.
        a: One operand.
        b: The other.
        out: The sums.
        name: Name of the call.
    """
    _contract(prog, "poplin.matmul", dims, operands=[a, b], out=out, name=name)


def host_sum(prog: Sequence, dims: str, a: Tensor, out: Tensor, name: str) -> None:
    """Append out ← the sum of ``a`` over the dims that it does not have, as in ``tgbu->gu``."""
    _contract(prog, "popops.reduce", dims, operands=[a], out=out, name=name)


def _contract(prog: Sequence, library: str, dims: str, operands: list[Tensor], out: Tensor, name: str) -> None:
    given, result = dims.split("->")
    names = given.split(",")
    extents = {d: n for letters, t in zip(names, operands, strict=True) for d, n in zip(letters, t.shape, strict=True)}
    order = result + "".join(d for d in extents if d not in result)
    value = reduce(mul, (ir.load(n, *letters) for n, letters in enumerate(names)))
    sums = ir.store(len(operands), tuple(result), value, "add")
    tensors = [*operands, out]
    kernel = ir.HostKernel(
        tuple(t.shape for t in tensors),
        tuple(t.dtype for t in tensors),
        len(operands),
        1,
        (ir.nest({d: extents[d] for d in order}, sums),),
    )
    host_call(prog, library, operands, [out], kernel, name, flops=len(operands) * math.prod(extents.values()))


class HostProduct(Product):
    """A product of a step whose weights lie as its loops read them, from before the first step on."""

    def arrange(self, weights: list[Tensor], prog: Sequence) -> None:
        """Take the weights, [gates, size, units] for each input."""
        self._weights = self._copied(concat(weights, 1), prog)

    def turn(self, weights: list[Tensor], prog: Sequence) -> None:
        """Take the weights for the gradients of the inputs."""
        self._turned = self._copied(concat(weights, 1).transpose((0, 2, 1)), prog)

    def forward(self, prog: Sequence) -> Tensor:
        """The product of the operand, [gates, batch, units]."""
        assert self._weights is not None
        made = self.units.stack(self.gates, f"{self.name}/sums")
        host_product(prog, "bk,gku->gbu", self.operand, self._weights, made, self.name)
        return made

    def put_deltas(self, deltas: Tensor, prog: Sequence) -> None:
        """Bring gradients of the gates to the product: side by side, unless all are read where they are."""
        if self._deltas is None:
            self._deltas = self.units.stack(self.gates, f"{self.name}/deltas")
        if not deltas.is_same_view(self._deltas):
            prog.add(Copy(deltas, self._deltas))

    def backward(self, prog: Sequence) -> list[Tensor]:
        """Gradients of the inputs from those of the gates, [batch, size] each."""
        assert self._turned is not None
        made = self.units.operand(self.sizes, f"{self.name}/gradient")
        host_product(prog, "gbu,guk->bk", self.deltas(), self._turned, made, f"{self.name}_backward")
        return self._split(made)

    def _copied(self, weights: Tensor, prog: Sequence) -> Tensor:
        made = clone_in_panels(weights, f"{self.name}/weights")
        prog.add(Copy(weights, made))
        return made
