"""Spread of beam search over tiles: each sequence on tiles of its own, each of them with some of the classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, Tensor
from abele.numerics import ElementType, as_element_type
from abele.poplibs.popnn.ctc_infer.costs import extend_slots, select_slots
from abele.poplibs.poputil.options import PROPORTION, Option, Options, choice, read_options
from abele.words import counted

OPTIONS: dict[str, Option] = {"partialsType": choice("float"), "availableMemoryProportion": PROPORTION}
"""PopLibs' options. Beams are scored in f32; the memory that the search takes is decided by its operands alone."""


@dataclass(frozen=True)
class Plan:
    """Split of a beam search over tiles.

    Attributes:
        dtype: Type of the data.
        batch: Sequences.
        steps: Time steps of the longest.
        classes: Classes, the blank among them.
        width: Beams that are kept.
        parts: Shares of the classes; each is on a tile of its own, if there are enough.
    """

    dtype: ElementType
    batch: int
    steps: int
    classes: int
    width: int
    parts: int

    @cached_property
    def shares(self) -> list[tuple[int, int]]:
        """First class of each part, and how many."""
        size = -(-self.classes // self.parts)
        return [(first, min(size, self.classes - first)) for first in range(0, self.classes, size)]

    def cycles(self, workers: int) -> int:
        """Expected cycles of the compute sets of all time steps."""
        sizes = (self.shares[0][1], len(self.shares), self.width)
        largest, parts, width = (np.asarray(x, np.int64) for x in sizes)
        step = extend_slots(largest, width) + select_slots(parts, width)
        return int(self.steps * workers * step)

    def __str__(self) -> str:
        sizes = f"{self.batch} x {self.steps} x {self.classes} {self.dtype}"
        return f"beam search of {sizes}, {self.width} beams, classes in {len(self.shares)} parts"


def plan(
    graph: Graph,
    dtype: ElementType | str,
    batch_size: int,
    max_time: int,
    num_classes: int,
    beam_width: int,
    *,
    options: Options = None,
) -> Plan:
    """The fastest way to spread a beam search: more parts extend faster, but leave more to choose from.

    Args:
        graph: The graph.
        dtype: Type of the data, f32 or f16.
        batch_size: Sequences.
        max_time: Time steps of the longest.
        num_classes: Classes, the blank among them.
        beam_width: Beams that are kept after every step.
        options: ``partialsType`` (float), ``availableMemoryProportion``.

    Raises:
        TensorError: An extent below 1, or less than two classes.
        TypeMismatchError: The type is neither f32 nor f16.
        InvalidOptionError: An option or value that there is not.
    """
    read_options("ctc_infer.plan", options, OPTIONS)
    element = as_element_type(dtype)
    if element.name not in ("f32", "f16"):
        raise TypeMismatchError(f"ctc_infer.plan takes f32 or f16 data, got {element}")
    if min(batch_size, max_time, beam_width) < 1 or num_classes < 2:
        raise TensorError(
            f"ctc_infer.plan takes at least one sequence, step and beam, and two classes, got {batch_size} sequences, "
            f"{counted(max_time, 'step')}, {counted(beam_width, 'beam')}, {counted(num_classes, 'class')}"
        )
    most = min(num_classes, max(1, graph.num_tiles // batch_size))
    made = [Plan(element, batch_size, max_time, num_classes, beam_width, parts) for parts in _counts(most)]
    return min(made, key=lambda p: p.cycles(graph.system.ipu.num_workers))


def create_data_input(
    graph: Graph,
    dtype: ElementType | str,
    batch_size: int,
    max_time: int,
    num_classes: int,
    plan: Plan,
    *,
    name: str = "data",
) -> Tensor:
    """Data [max_time, batch_size, num_classes], laid out as ``plan`` spreads it.

    Raises:
        TensorError: The plan is for other sizes or another type.
    """
    given = as_element_type(dtype), batch_size, max_time, num_classes
    if given != (plan.dtype, plan.batch, plan.steps, plan.classes):
        asked = f"{given[0]}[{max_time}, {batch_size}, {num_classes}]"
        raise TensorError(f"ctc_infer.create_data_input: {asked} does not fit the plan, {plan}")
    return new_data(graph, plan, name)


def new_data(graph: Graph, plan: Plan, name: str) -> Tensor:
    """A tensor [steps, batch, classes] in which all steps of a class of a sequence lie together."""
    made = graph.variable(plan.dtype, (plan.batch * plan.classes, plan.steps), name=name)
    part_of = np.repeat(np.arange(len(plan.shares)), [size for _, size in plan.shares])
    tiles = np.arange(plan.batch)[:, None] * len(plan.shares) + part_of
    graph.map_rows(made, (tiles.ravel() % graph.num_tiles).tolist())
    return made.reshape((plan.batch, plan.classes, plan.steps)).transpose((2, 0, 1))


def _counts(most: int) -> list[int]:
    """Numbers of parts that are worth a look: all small ones, then in steps."""
    return sorted({*range(1, min(most, 64) + 1), *(int(x) for x in np.geomspace(1, most, 32))})
