"""The simplest views: one strided block of one variable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.graph.variable import Variable
from abele.layout import Modes


@dataclass(frozen=True, slots=True)
class Strided:
    """A view that is one strided block of one variable.

    Attributes:
        variable: The storage.
        offset: Element of the variable that index (0, …, 0) reads.
        factors: Per dimension of the view, ``(extent, stride)`` pairs in elements, outermost first.
    """

    variable: Variable
    offset: int
    factors: tuple[Modes, ...]

    def of(self, elements: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """View of the elements of its variable, an array of one dim: in place, with a dim for every factor."""
        pairs = [pair for factors in self.factors for pair in factors]
        return np.lib.stride_tricks.as_strided(
            elements[self.offset :], [n for n, _ in pairs], [step * elements.itemsize for _, step in pairs]
        )
