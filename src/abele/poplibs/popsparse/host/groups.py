"""Groups of a sparse product, and the shares of each that threads do.

Groups are products of their own, such as attention heads. They share a pattern or have one each; the values of one
group lie after those of the group before it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from abele.arrays import Int64
from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.popsparse.host.dense import brought_near, lines
from abele.poplibs.popsparse.host.walks import Walk, num_shares, shares_of
from abele.sparsity import Pattern

Patterns = Pattern | Items[Pattern]
"""The pattern of all groups, or one for each."""


@dataclass(frozen=True, eq=False)
class ProductGroup:
    """One group of a product.

    Attributes:
        walk: Its blocks.
        values: Its values, with places that no block has [values].
    """

    walk: Walk
    values: Tensor


def grouped(tensor: Tensor) -> Tensor:
    """A matrix as the only one of its groups."""
    return tensor.reshape((1, *tensor.shape)) if tensor.ndim == 2 else tensor


def patterns_of(patterns: Patterns, groups: int) -> list[Pattern]:
    """The pattern of each group.

    Raises:
        TensorError: There is another number of groups, or of blocks' sizes.
    """
    if isinstance(patterns, Pattern):
        return [patterns] * groups
    if len(patterns) != groups:
        raise TensorError(f"{len(patterns)} patterns do not fit operands of {groups} groups")
    if len({(p.shape, p.block) for p in patterns}) > 1:
        raise TensorError("groups of one product have patterns of one shape and block")
    return list(patterns)


def check_operand(name: str, what: str, tensor: Tensor, groups: int, rows: int, columns: int) -> None:
    """Raise where an operand has another shape.

    Raises:
        TensorError: It has.
    """
    if tensor.shape != (groups, rows, columns):
        raise TensorError(
            f"{what} of {name} is {list(tensor.shape)}, not [{groups}, {rows}, {columns}]",
            because="groups, rows and columns follow from the pattern and the other operands",
        )


def check_values(name: str, patterns: list[Pattern], values: Tensor, order: Int64 | None) -> None:
    """Raise where there are too few values, or their order is no order of them.

    Raises:
        TensorError: There are, or it is not.
    """
    held = sum(p.num_values for p in patterns)
    is_shared = all(p is patterns[0] for p in patterns)
    each = values.size // len(patterns)
    if values.size < held or (is_shared and values.size % len(patterns)) or (not is_shared and values.size != held):
        raise TensorError(f"{name} has {values.size:,} values, its patterns hold {held:,}")
    if order is None:
        return
    wanted = patterns[0].num_values if is_shared else held
    places = np.asarray(order).reshape(-1)
    if places.size != wanted or (places.size and (places.min() < 0 or places.max() >= (each if is_shared else held))):
        raise TensorError(f"the order of {name} has {places.size:,} places, not {wanted:,} of its values")


def walks_of(patterns: list[Pattern], order: Int64 | None, make: Callable[[Pattern, Int64 | None], Walk]) -> list[Walk]:
    """The walk of each group; groups of one pattern share it."""
    if order is None or all(p is patterns[0] for p in patterns):
        known: dict[Pattern, Walk] = {}
        return [known[p] if p in known else known.setdefault(p, make(p, order)) for p in patterns]
    ends = np.cumsum([p.num_values for p in patterns])
    return [make(p, places) for p, places in zip(patterns, np.split(order.reshape(-1), ends[:-1]), strict=True)]


def values_of(patterns: list[Pattern], values: Tensor) -> list[Tensor]:
    """The values of each group; where groups share a pattern there may be more than it has."""
    if all(p is patterns[0] for p in patterns):
        return lines(values.reshape((len(patterns), values.size // len(patterns))))
    ends = np.cumsum([0, *(p.num_values for p in patterns)]).tolist()
    return [values[begin:end] for begin, end in pairwise(ends)]


def near_values(graph: Graph, values: Tensor, name: str) -> tuple[Tensor, Sequence]:
    """Values of any shape in one stretch [values], and the steps that bring them there."""
    near, steps = brought_near(graph, values.reshape((1, 1, values.size)), name)
    return near.flatten(), steps


@dataclass(frozen=True, eq=False)
class WalkShare:
    """Runs of a group's walk that one vertex does.

    Attributes:
        number: Number of the group.
        group: The group.
        first: First of the runs.
        last: The one after the last.
    """

    number: int
    group: ProductGroup
    first: int
    last: int

    @property
    def blocks(self) -> slice:
        """Blocks of its runs."""
        starts = self.group.walk.starts
        return slice(int(starts[self.first]), int(starts[self.last]))

    @property
    def starts(self) -> Int64:
        """Its runs' first blocks, counted from its own first."""
        starts = self.group.walk.starts[self.first : self.last + 1]
        return np.asarray(starts - starts[0], np.int64)


def shares_of_groups(groups: list[ProductGroup]) -> list[WalkShare]:
    """Shares of all groups, about equal in work within each."""
    each = num_shares(len(groups))
    cuts = [shares_of(group.walk, each).tolist() for group in groups]
    return [
        WalkShare(number, group, first, last)
        for number, group in enumerate(groups)
        for first, last in pairwise(cuts[number])
        if first < last
    ]
