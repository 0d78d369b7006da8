"""The fused product of a step: several inputs side by side, by the weights of several gates side by side."""

from __future__ import annotations

from dataclasses import dataclass

from abele.graph import Copy, Execute, Graph, Tensor, concat
from abele.graph.program import Sequence
from abele.kernels.nest import ir
from abele.numerics import ElementType, f16
from abele.poplibs import poplin, popops
from abele.poplibs.poplin.contraction.operand import operand
from abele.poplibs.poplin.lowering.arrange import arrange
from abele.poplibs.poplin.vertices.cost import weights_per_unit
from abele.poplibs.popnn.recurrent.layout import Units, new_operand
from abele.poplibs.popops.expressions.host_kernel import nest_over, point
from abele.poplibs.poputil.layout import clone


@dataclass(frozen=True)
class ProductTypes:
    """Element types and memory share of the products of a step.

    Attributes:
        partials: Type of partial sums.
        accumulators: Type in which gradients of weights are summed over the steps.
        proportion: Share of a tile's memory for slices and partials.
    """

    partials: ElementType
    accumulators: ElementType
    proportion: float


def create_product_weights(
    graph: Graph, units: Units, sizes: tuple[int, ...], gates: int, types: ProductTypes, name: str
) -> list[Tensor]:
    """The weights of a product as [gates, size, units] for each input: views of one tensor in the planned layout."""
    rows, columns = sum(sizes), gates * units.size
    made = poplin.create_matmul_input_rhs(
        graph,
        units.dtype,
        (units.batch, rows),
        (rows, columns),
        name,
        partials_type=types.partials,
        available_memory_proportion=types.proportion,
    )
    return split_rows(made, sizes, gates)


def split_rows(weights: Tensor, sizes: tuple[int, ...], gates: int) -> list[Tensor]:
    """[sum of sizes, units · gates] as one [gates, size, units] for each of ``sizes``."""
    parts, first = [], 0
    for size in sizes:
        # Columns are units with their gates innermost, so that whatever belongs to a unit is on one tile.
        part = weights[first : first + size]
        parts.append(part.reshape((size, part.shape[1] // gates, gates)).transpose((2, 0, 1)))
        first += size
    return parts


def join_rows(parts: list[Tensor]) -> Tensor:
    """[gates, size, units] for each input as one [sum of sizes, units · gates]: the gates of a unit lie together."""
    flat = [p.transpose((1, 2, 0)).reshape((p.shape[1], p.shape[0] * p.shape[2])) for p in parts]
    return flat[0] if len(flat) == 1 else concat(flat, 0)


def write_transposed(graph: Graph, source: Tensor, target: Tensor, prog: Sequence, name: str) -> None:
    """target ← source, matrices of which one is stored by columns: blocks are permuted on the target's tiles."""
    theirs, mine = (operand(t, ("ci", "co")) for t in (source, target))
    if not (theirs.is_regular and mine.is_regular):
        prog.add(Copy(source, target))
        return
    kernel = ir.HostKernel(
        (source.shape, target.shape),
        (source.dtype, target.dtype),
        1,
        1,
        (nest_over(source.shape, ir.Store(1, point(2), ir.Load(0, point(2)))),),
    )
    call = graph.library_call(
        prog, "popops.transpose", inputs=(source,), outputs=(target,), kernel=kernel, debug_name=name
    )
    with call as body:
        compute_set = graph.compute_set(name)
        arrange(graph, compute_set, theirs, mine)
        body.add(Execute(compute_set))


@dataclass
class Product:
    """A product that every step computes.

    Attributes:
        graph: The graph.
        units: The hidden units.
        operand: Its inputs side by side, [batch, sum of sizes].
        sizes: Columns of each input.
        gates: Gates that it makes.
        types: Element types and memory share of the product.
        name: Name of its calls.
    """

    graph: Graph
    units: Units
    operand: Tensor
    sizes: tuple[int, ...]
    gates: int
    types: ProductTypes
    name: str
    _weights: Tensor | None = None
    _turned: Tensor | None = None
    _deltas: Tensor | None = None
    _sum: Tensor | None = None
    _gathered: tuple[Tensor, Tensor] | None = None

    @property
    def rows(self) -> int:
        """Columns of all inputs."""
        return sum(self.sizes)

    @property
    def columns(self) -> int:
        """Columns of the product."""
        return self.gates * self.units.size

    def arrange(self, weights: list[Tensor], prog: Sequence) -> None:
        """Take the weights, [gates, size, units] for each input; written out once if they are no view of one tensor."""
        joined = join_rows(weights)
        if joined.strided() is None:
            made = self._create((self.units.batch, self.rows), joined.shape, "weights")
            prog.add(Copy(joined, made))
            joined = made
        self._weights = joined

    def turn(self, weights: list[Tensor], prog: Sequence) -> None:
        """Take the weights for the gradients of the inputs: transposed once, before the steps."""
        turned = join_rows(weights).T
        self._turned = self._create((self.units.batch, self.columns), turned.shape, "turned")
        write_transposed(self.graph, turned, self._turned, prog, f"{self.name}_turn")

    def forward(self, prog: Sequence) -> Tensor:
        """The product of the operand, [gates, batch, units], unit by unit."""
        assert self._weights is not None
        like = self.units.stack(self.gates, f"{self.name}/like")
        made = self._multiply(self.operand, self._weights, prog, like=self._flat(like), name=self.name)
        return made.reshape((self.units.batch, self.units.size, self.gates)).transpose((2, 0, 1))

    def take_deltas(self, deltas: Tensor) -> None:
        """Let :meth:`backward` and :meth:`accumulate` read gradients of the gates, [gates, batch, units], in place."""
        self._deltas = deltas

    def put_deltas(self, deltas: Tensor, prog: Sequence) -> None:
        """Bring gradients of the gates to the product: tiles read them where they are."""
        self.take_deltas(deltas)

    def deltas(self) -> Tensor:
        """The gradients of the gates, [gates, batch, units]."""
        assert self._deltas is not None
        return self._deltas

    def backward(self, prog: Sequence) -> list[Tensor]:
        """Gradients of the inputs from those of the gates, [batch, size] each."""
        assert self._turned is not None
        made = self._multiply(self._flat(self.deltas()), self._turned, prog, like=None, name=f"{self.name}_backward")
        return self._split(made)

    def accumulate(self, prog: Sequence, before: Sequence, number: int = 0, together: int = 1) -> None:
        """Add the gradient of the weights; ``before`` sets the sum to zero.

        Args:
            prog: Program of one step.
            before: Program that runs before the steps.
            number: Place of this step among those that are added together; the last one adds them.
            together: Steps that one product adds.
        """
        a, d = self.operand, self._flat(self.deltas())
        if together > 1:
            a, d = self._gather(prog, number, together)
            if number + 1 < together:
                return
        accumulators = self.types.accumulators
        # One pass of the matrix units sums so few rows: it can write the type of the sum, and nothing is converted.
        # Guess: PopLibs does. Published totals of f16 training have room for one copy of a step's gradient, in f16.
        single = a.dtype == f16 and a.shape[0] <= weights_per_unit(f16)
        made = self._multiply(
            a.T,
            d,
            prog,
            like=None,
            name=f"{self.name}_update",
            output_type=accumulators,
            partials_type=accumulators if single else None,
        )
        if self._sum is None:
            self._sum = clone(self.graph, made, f"{self.name}/gradient")
            popops.zero(self.graph, self._sum, before, name=f"{self.name}_zero")
        popops.scaled_add_to(self.graph, self._sum, made, 1.0, prog, name=f"{self.name}_accumulate")

    def gradients(self, prog: Sequence) -> list[Tensor]:
        """Gradients of the weights, [gates, size, units] for each input."""
        assert self._sum is not None
        total = self._sum
        if total.dtype != self.units.dtype:
            total = popops.cast(self.graph, total, self.units.dtype, prog, name=f"{self.name}_cast")
        return split_rows(total, self.sizes, self.gates)

    def _gather(self, prog: Sequence, number: int, together: int) -> tuple[Tensor, Tensor]:
        """Operand and gradients of several steps, one below the other; those of step ``number`` put there."""
        units, rows = self.units, together * self.units.batch
        if self._gathered is None:
            operand = new_operand(self.graph, units.dtype, rows, self.sizes, f"{self.name}/operands")
            deltas = new_operand(self.graph, units.dtype, rows, (self.columns,), f"{self.name}/all_deltas")
            self._gathered = operand, deltas
        at = slice(number * units.batch, (number + 1) * units.batch)
        for theirs, mine in zip(self._gathered, (self.operand, self._flat(self.deltas())), strict=True):
            prog.add(Copy(mine, theirs[at]))
        return self._gathered

    def _split(self, gradient: Tensor) -> list[Tensor]:
        """The gradient of each input, from that of all side by side."""
        ends = [sum(self.sizes[: n + 1]) for n in range(len(self.sizes))]
        return [gradient[:, end - size : end] for end, size in zip(ends, self.sizes, strict=True)]

    def _flat(self, gates: Tensor) -> Tensor:
        return gates.transpose((1, 2, 0)).reshape((self.units.batch, self.columns))

    def _create(self, a_shape: tuple[int, ...], b_shape: tuple[int, ...], name: str) -> Tensor:
        return poplin.create_matmul_input_rhs(
            self.graph,
            self.units.dtype,
            a_shape,
            b_shape,
            f"{self.name}/{name}",
            partials_type=self.types.partials,
            available_memory_proportion=self.types.proportion,
        )

    def _multiply(
        self,
        a: Tensor,
        b: Tensor,
        prog: Sequence,
        *,
        like: Tensor | None,
        name: str,
        output_type: ElementType | None = None,
        partials_type: ElementType | None = None,
    ) -> Tensor:
        return poplin.matmul(
            self.graph,
            a,
            b,
            prog,
            like=like,
            output_type=output_type,
            partials_type=partials_type or self.types.partials,
            available_memory_proportion=self.types.proportion,
            name=name,
        )
