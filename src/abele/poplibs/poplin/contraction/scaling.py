"""Factors by which sums of products of 8-bit floats are multiplied, beyond the scales of their types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from abele.graph import Tensor


@dataclass(frozen=True)
class Scaling:
    """A power of two: a number that is known now, or a tensor.

    The machine has it in the metadata of an operand, so it costs no instruction: products come out scaled.

    Attributes:
        log2: Its exponent.
        factor: The power itself, one f32, where only the program knows it; ``log2`` is 0 then.
    """

    log2: int = 0
    factor: Tensor | None = None

    @property
    def kind(self) -> Literal["", "number", "tensor"]:
        """Form in which vertices get the factor: a compile-time number, a tensor, or none."""
        return "tensor" if self.factor is not None else "number" if self.log2 else ""


UNSCALED = Scaling()
