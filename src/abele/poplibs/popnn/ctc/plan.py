"""Spread of a CTC loss: each sequence on tiles of its own, which share its labels; gradients are spread over time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from abele.arrays import Int64
from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, Tensor
from abele.numerics import ElementType, as_element_type, u32
from abele.poplibs.poputil.options import PROPORTION, Option, Options, choice, flag, read_options
from abele.words import counted

OPTIONS: dict[str, Option] = {
    "partialsType": choice("float"),
    "availableMemoryProportion": PROPORTION,
    "includeSoftmaxGradient": flag(True),
    "zeroInfinity": flag(False),
    "enableReducedClassesInLabel": flag(True),
}
"""PopLibs' options. Sums are f32. Only the classes that a tile's labels name are ever kept on it, so that
``enableReducedClassesInLabel`` changes nothing."""


@dataclass(frozen=True)
class Plan:
    """Split of a CTC loss over tiles and workers.

    Labels are extended: a blank before each label and one at the end. A worker has ``share`` positions of one sequence;
    half of a tile's workers go forwards in time, the others backwards, at the same positions.

    Attributes:
        in_type: Type of the data.
        out_type: Type of loss and gradient.
        batch: Sequences.
        steps: Time steps of the longest.
        labels: Labels of the longest sequence of labels.
        classes: Classes, the blank among them.
        share: Positions of a worker.
        block: Time steps whose gradients are made on one tile.
        gather_steps: Time steps of data that a tile receives at once.
        tiles: Tiles there are.
        pairs: Workers of a tile that go forwards.
    """

    in_type: ElementType
    out_type: ElementType
    batch: int
    steps: int
    labels: int
    classes: int
    share: int
    block: int
    gather_steps: int
    tiles: int
    pairs: int

    @property
    def parts(self) -> int:
        """Shares of the extended labels of a sequence."""
        return -(-(2 * self.labels + 1) // self.share)

    @property
    def blocks(self) -> int:
        """Blocks of time steps of a sequence."""
        return -(-self.steps // self.block)

    @property
    def padded(self) -> int:
        """Time steps, up to whole blocks."""
        return self.blocks * self.block

    @cached_property
    def part_tiles(self) -> Int64:
        """Tile of every part of every sequence, int64[batch, parts]."""
        each = -(-self.parts // self.pairs)
        return (np.arange(self.batch)[:, None] * each + np.arange(self.parts) // self.pairs) % self.tiles

    @cached_property
    def block_tiles(self) -> Int64:
        """Tile of every block of time steps of every sequence, int64[batch, blocks]."""
        return np.arange(self.batch * self.blocks).reshape(self.batch, self.blocks) % self.tiles

    def __str__(self) -> str:
        sizes = f"{self.batch} x {self.steps} x {self.classes} {self.in_type}, up to {self.labels} labels"
        return f"CTC loss of {sizes}, {self.share} positions a worker"


def plan(
    graph: Graph,
    in_type: ElementType | str,
    out_type: ElementType | str,
    batch_size: int,
    max_time: int,
    max_label_length: int,
    num_classes: int,
    *,
    options: Options = None,
) -> Plan:
    """Spread a CTC loss over all tiles: the worker with most positions bounds the time of a step.

    Args:
        graph: The graph.
        in_type: Type of the data, f32 or f16.
        out_type: Type of loss and gradient, f32 or f16.
        batch_size: Sequences.
        max_time: Time steps of the longest.
        max_label_length: Labels of the longest sequence of labels.
        num_classes: Classes, the blank among them.
        options: ``partialsType`` (float), ``availableMemoryProportion`` (how much of a tile's memory data may take
            while they are spread), ``includeSoftmaxGradient``, ``zeroInfinity``, ``enableReducedClassesInLabel``.

    Raises:
        TensorError: An extent below 1, or less than two classes.
        TypeMismatchError: A type is neither f32 nor f16.
        InvalidOptionError: An option or value that there is not.
    """
    read = read_options("ctc.plan", options, OPTIONS)
    types = as_element_type(in_type), as_element_type(out_type)
    for element in types:
        if element.name not in ("f32", "f16"):
            raise TypeMismatchError(f"ctc.plan takes f32 or f16, got {element}")
    if min(batch_size, max_time, max_label_length) < 1 or num_classes < 2:
        raise TensorError(
            f"ctc.plan takes at least one sequence, step and label, and two classes, got {batch_size} sequences, "
            f"{counted(max_time, 'step')}, {counted(max_label_length, 'label')}, {counted(num_classes, 'class')}"
        )
    ipu = graph.system.ipu
    tiles = graph.num_tiles
    # Half of the workers for each direction.
    pairs = max(1, ipu.num_workers // 2)
    workers = max(1, tiles // batch_size) * pairs
    # As many steps per tile as there are workers, or more where tiles are few.
    block = max(min(ipu.num_workers, max_time), -(-max_time * batch_size // tiles))
    memory = int(read["availableMemoryProportion"] * ipu.tile.total_bytes)
    return Plan(
        *types,
        batch=batch_size,
        steps=max_time,
        labels=max_label_length,
        classes=num_classes,
        share=-(-(2 * max_label_length + 1) // workers),
        block=block,
        gather_steps=min(max_time, max(1, memory // (4 * num_classes))),
        tiles=tiles,
        pairs=pairs,
    )


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
    if given != (plan.in_type, plan.batch, plan.steps, plan.classes):
        asked = f"{given[0]}[{max_time}, {batch_size}, {num_classes}]"
        raise TensorError(f"ctc.create_data_input: {asked} does not fit the plan, {plan}")
    return over_time(graph, plan, plan.in_type, name)[: plan.steps]


def create_labels_input(
    graph: Graph,
    dtype: ElementType | str,
    batch_size: int,
    max_label_length: int,
    plan: Plan,
    *,
    name: str = "labels",
) -> Tensor:
    """Labels u32 [batch_size, max_label_length], each sequence on the first of its tiles.

    Raises:
        TypeMismatchError: The type is not u32.
        TensorError: The plan is for other sizes.
    """
    if as_element_type(dtype) != u32:
        raise TypeMismatchError(f"ctc.create_labels_input: labels are u32, got {as_element_type(dtype)}")
    if (batch_size, max_label_length) != (plan.batch, plan.labels):
        raise TensorError(f"ctc.create_labels_input: [{batch_size}, {max_label_length}] does not fit the plan, {plan}")
    made = graph.variable(u32, (batch_size, max_label_length), name=name)
    return graph.map_rows(made, plan.part_tiles[:, 0].tolist())


def over_time(graph: Graph, plan: Plan, dtype: ElementType, name: str) -> Tensor:
    """A tensor [steps up to whole blocks, batch, classes], each block of steps of a sequence on one tile."""
    made = graph.variable(dtype, (plan.batch * plan.blocks, plan.block * plan.classes), name=name)
    graph.map_rows(made, plan.block_tiles.ravel().tolist())
    return made.reshape((plan.batch, plan.padded, plan.classes)).transpose((1, 0, 2))
