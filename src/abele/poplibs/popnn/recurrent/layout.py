"""Layout of states and sequences of recurrent networks on the tiles.

States, gates and everything kept of a step lie unit by unit: all that belongs to a hidden unit is on one tile, so that
element-wise steps exchange nothing. Sequences keep the steps of a stretch on its tile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from abele.graph import Graph, Tensor
from abele.numerics import ElementType
from abele.poplibs.poputil.layout import channels_per_group
from abele.poplibs.poputil.mapping import linear_mapping, set_mapping

if TYPE_CHECKING:
    from abele.poplibs.popnn.recurrent.params import RecurrentParams


@dataclass(frozen=True)
class Units:
    """Layout of tensors with a dimension of hidden units.

    Attributes:
        graph: Graph in which tensors are made.
        dtype: Their element type.
        batch: Samples.
        size: Hidden units.
    """

    graph: Graph
    dtype: ElementType
    batch: int
    size: int

    def state(self, name: str) -> Tensor:
        """A new tensor [batch, units]."""
        return self.stack(1, name)[0]

    def stack(self, count: int, name: str) -> Tensor:
        """A new tensor [count, batch, units]."""
        # Units outermost in memory, whole units per tile.
        made = self._by_unit((self.size, count, self.batch), name)
        return made.transpose((1, 2, 0))

    def sequence(self, steps: int, name: str) -> Tensor:
        """A new tensor [steps, batch, units]."""
        return self.stacks(steps, 1, name)[:, 0]

    def stacks(self, steps: int, count: int, name: str) -> Tensor:
        """A new tensor [steps, count, batch, units]."""
        made = self._by_unit((self.size, steps, count, self.batch), name)
        return made.transpose((1, 2, 3, 0))

    def biases(self, shape: tuple[int, ...], dtype: ElementType, name: str) -> Tensor:
        """A new tensor [*shape, units]."""
        made = self._by_unit((self.size, *shape), name, dtype)
        return made.moveaxis(0, -1)

    def operand(self, sizes: tuple[int, ...], name: str) -> Tensor:
        """A new left operand of products, [batch, sum of sizes]."""
        return new_operand(self.graph, self.dtype, self.batch, sizes, name)

    def _by_unit(self, shape: tuple[int, ...], name: str, dtype: ElementType | None = None) -> Tensor:
        made = self.graph.variable(dtype or self.dtype, shape, name=name)
        grain = math.prod(shape[1:])
        return set_mapping(self.graph, made, linear_mapping(self.graph, made.size, made.dtype, grain, grain))


def new_operand(graph: Graph, dtype: ElementType, batch: int, sizes: tuple[int, ...], name: str) -> Tensor:
    """A left operand of matmuls, [batch, sum of sizes]: each part of columns is spread over all tiles."""
    # Groups of columns must not straddle two parts, as each part is mapped, and written, by itself.
    group = channels_per_group(math.gcd(*sizes))
    made = graph.variable(dtype, (sum(sizes) // group, batch, group), name=name)
    first = 0
    for size in sizes:
        part = made[first // group : (first + size) // group]
        set_mapping(graph, part, linear_mapping(graph, part.size, dtype, group, group))
        first += size
    return made.transpose((1, 0, 2)).reshape((batch, sum(sizes)))


def new_input_sequence(graph: Graph, params: RecurrentParams, name: str) -> Tensor:
    """The input of a layer, [steps, batch, size]: its steps lie as the products' operand."""
    steps, batch, size = params.time_steps, params.batch, params.input_size
    group = channels_per_group(math.gcd(size, params.hidden))
    made = graph.variable(params.dtype, (size // group, batch, steps, group), name=name)
    grain = steps * group
    set_mapping(graph, made, linear_mapping(graph, made.size, params.dtype, grain, grain))
    return made.transpose((2, 1, 0, 3)).reshape((steps, batch, size))
