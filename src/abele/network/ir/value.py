"""Values: the tensors that flow between ops, with their stage of a step and their place."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from abele.numerics import ElementType

Shape = tuple[int, ...]


class Stage(Enum):
    """The part of a training step that makes a value."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Place:
    """Place and time at which a value is made.

    Attributes:
        ipu: Number of the IPU among those of a replica.
        pipeline_stage: Stage of the pipeline.
        phase: Phase of an execution in phases.
    """

    ipu: int = 0
    pipeline_stage: int = 0
    phase: int = 0

    def __str__(self) -> str:
        parts = (("ipu", self.ipu), ("stage", self.pipeline_stage), ("phase", self.phase))
        return "@" + (":".join(f"{name}{number}" for name, number in parts if number) or "ipu0")


HERE = Place()
"""The first IPU, stage and phase: where a value is unless something says otherwise."""


def type_text(shape: Shape, dtype: ElementType) -> str:
    """A type as listings show it, such as ``f32[2, 3]``."""
    return f"{dtype}[{', '.join(map(str, shape))}]"


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """A tensor that one op makes, or that enters a network or block.

    Two values are the same only if they are one object; networks made from each other by passes share them.

    Attributes:
        shape: Dimensions, for one micro-batch.
        dtype: Element type.
        name: A telling name, such as the parameter's; may be empty.
        stage: The part of a training step that makes it.
        place: Place at which it is made.
    """

    shape: Shape
    dtype: ElementType
    name: str = ""
    stage: Stage = Stage.FORWARD
    place: Place = HERE

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def type(self) -> tuple[Shape, ElementType]:
        """Shape and element type."""
        return self.shape, self.dtype

    def __str__(self) -> str:
        return f"{self.name or 'value'}: {type_text(self.shape, self.dtype)}"
